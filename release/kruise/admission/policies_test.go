package admission_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/admission"
)

// Whoever changes a policy has to generate the manifest again.
func TestTheManifestHasThesePolicies(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../deploy/rollouts/policies.yaml")
	require.NoError(t, err)
	body, err := guard.YAML(admission.Policies())
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(text), string(body)), "run go generate in release/kruise/admission")
}

// The engine's role names each policy: it may write no other.
func TestTheRoleNamesThePolicies(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../deploy/rbac/centre.yaml")
	require.NoError(t, err)
	for _, policy := range admission.Policies() {
		require.Contains(t, string(text), policy.GetName())
	}
}
