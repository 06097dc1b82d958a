package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/catalog"
)

// Workloads have the same names as in kubectl.
func TestParseWorkload(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, text string
		want         catalog.WorkloadRef
	}{
		{"the plain word is the built-in kind", "statefulset/db",
			catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}},
		{"short names are accepted", "deploy/web",
			catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}},
		{"a group distinguishes two kinds of one name", "statefulset.apps.kruise.io/db",
			catalog.WorkloadRef{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "db"}},
		{"kubectl prints the plural with its group", "deployments.apps/web",
			catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}},
		{"Kruise's short name is accepted", "ads/agent",
			catalog.WorkloadRef{APIVersion: "apps.kruise.io/v1alpha1", Kind: "DaemonSet", Name: "agent"}},
	} {
		ref, err := app.ParseWorkload(c.text)
		require.NoError(t, err, c.reason)
		require.Equal(t, c.want, ref, c.reason)
	}
	for _, text := range []string{"web", "deployment/", "deployment.batch/web", "job/x", "deployment/a/b"} {
		_, err := app.ParseWorkload(text)
		require.Error(t, err, "%q is not a workload that can be released", text)
	}
}
