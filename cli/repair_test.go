package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
)

func TestRepairUsage(t *testing.T) {
	t.Parallel()
	for reason, args := range map[string][]string{
		"--to says which version to bring it home to": {"repair", "deployment/web"},
		"names no workload":                           {"repair", "web", "--to", "stable"},
		"no kind of workload":                         {"repair", "pod/web", "--to", "new"},
		"--timeout 0s is not above 0":                 {"repair", "deployment/web", "--to", "new", "--timeout", "0s"},
		"accepts 1 arg(s), received 0":                {"repair", "--to", "new"},
		"no such file or directory":                   {"repair", "deployment/web", "--to", "new", "--kubeconfig", "/nowhere"},
	} {
		got := slipway(t, nil, args...)
		require.NotEqual(t, app.ExitOK, got.code)
		require.Contains(t, got.err, reason)
	}
}
