package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/catalog"
)

// Workloads are named as kubectl names them.
func TestParseWorkload(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, text string
		want         catalog.WorkloadRef
	}{
		{"the plain word is the built-in kind", "statefulset/db", catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}},
		{"short names are taken", "deploy/web", catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}},
		{"a group tells two kinds of one name apart", "statefulset.apps.kruise.io/db",
			catalog.WorkloadRef{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "db"}},
		{"the plural with its group is what kubectl prints", "deployments.apps/web",
			catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}},
		{"the reference's short name is taken", "ads/agent",
			catalog.WorkloadRef{APIVersion: "apps.kruise.io/v1alpha1", Kind: "DaemonSet", Name: "agent"}},
	} {
		ref, err := app.ParseWorkload(c.text)
		require.NoError(t, err, c.reason)
		require.Equal(t, c.want, ref, c.reason)
	}
	for _, text := range []string{"web", "deployment/", "deployment.batch/web", "job/x", "deployment/a/b"} {
		_, err := app.ParseWorkload(text)
		require.Error(t, err, "%q names no workload that can be released", text)
	}
}
