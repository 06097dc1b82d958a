package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
)

func TestRepairUsage(t *testing.T) {
	t.Parallel()
	for reason, args := range map[string][]string{
		"--to must be stable or new":          {"repair", "shop/web"},
		"invalid name":                        {"repair", "shop/a/b", "--to", "stable"},
		"unsupported workload kind":           {"repair", "shop/web", "--kind", "pod", "--to", "new"},
		"--timeout 0s must be greater than 0": {"repair", "shop/web", "--to", "new", "--timeout", "0s"},
		"specify a workload: NAME is missing": {"repair", "--to", "new"},
		"no such file or directory":           {"repair", "shop/web", "--to", "new", "--kubeconfig", "/nowhere"},
	} {
		got := slipway(t, nil, args...)
		require.NotEqual(t, app.ExitOK, got.code)
		require.Contains(t, got.err, reason)
	}
}
