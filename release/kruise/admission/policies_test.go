package admission_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/admission"
)

// After a change of a policy, generate the manifest again.
func TestManifestIsCurrent(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../deploy/rollouts/policies.yaml")
	require.NoError(t, err)
	body, err := guard.YAML(admission.Policies())
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(text), string(body)), "run go generate in release/guard")
}

// The engine's role names each policy: the engine may write no other.
func TestRoleByServer_NamesEveryPolicy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../deploy/rbac/by-server.yaml")
	require.NoError(t, err)
	for _, policy := range admission.Policies() {
		require.Contains(t, string(text), policy.GetName())
	}
}
