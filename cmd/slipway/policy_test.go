package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/serving/admission"
)

// Without their own policy, builds use the policy of servings.
func TestBuildPolicy(t *testing.T) {
	t.Parallel()
	written := func(text string) string {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	servings := written("secrets: {allowed: []}\n")
	policy, err := buildPolicy(settings.Settings{ServingPolicyFile: servings})
	require.NoError(t, err)
	require.Equal(t, admission.Policy{Secrets: []string{}}, policy)
	policy, err = buildPolicy(settings.Settings{ServingPolicyFile: servings,
		BuildPolicyFile: written("privileged: true\nserviceAccounts: {allowed: [builder]}\n")})
	require.NoError(t, err)
	require.Equal(t, admission.Policy{Privileged: true, ServiceAccounts: []string{"builder"}}, policy)
	_, err = buildPolicy(settings.Settings{BuildPolicyFile: written("serviceAccounts: {allowed: [No]}\n")})
	require.ErrorContains(t, err, "build-policy-file: ")
}

// A worker that cannot read its policy does not start: the default would allow more.
func TestServingPolicy(t *testing.T) {
	t.Parallel()
	written := func(text string) string {
		file := filepath.Join(t.TempDir(), "servings.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	policy, err := policyOf("serving-policy-file", "")
	require.NoError(t, err)
	require.Equal(t, admission.Policy{}, policy, "without a file the default applies")
	policy, err = policyOf("serving-policy-file", written("secrets: {allowed: [model]}\n"))
	require.NoError(t, err)
	require.Equal(t, admission.Policy{Secrets: []string{"model"}}, policy)
	_, err = policyOf("serving-policy-file", filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorContains(t, err, "serving-policy-file: open ")
	_, err = policyOf("serving-policy-file", written("privileged: false\nsecret: {allowed: []}\n"))
	require.ErrorContains(t, err, "servings.yaml:\nline 2, secret: unknown key \"secret\": did you mean \"secrets\"?")
}
