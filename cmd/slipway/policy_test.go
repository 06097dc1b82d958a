package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/podpolicy"
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
	policy, err := buildPolicy(settings.Settings{ServingPolicyFile: servings}, podpolicy.Policy{})
	require.NoError(t, err)
	require.Equal(t, admission.Policy{Secrets: []string{}}, policy)
	policy, err = buildPolicy(settings.Settings{ServingPolicyFile: servings,
		BuildPolicyFile: written("privileged: true\nserviceAccounts: {allowed: [builder]}\n")}, podpolicy.Policy{})
	require.NoError(t, err)
	require.Equal(t, admission.Policy{Privileged: true, ServiceAccounts: []string{"builder"}}, policy)
	_, err = buildPolicy(settings.Settings{BuildPolicyFile: written("serviceAccounts: {allowed: [No]}\n")},
		podpolicy.Policy{})
	require.ErrorContains(t, err, "build-policy-file: ")
	policy, err = buildPolicy(settings.Settings{}, podpolicy.Policy{Preset: podpolicy.Open})
	require.NoError(t, err)
	require.Equal(t, admission.Policy{AnyFeature: true}, policy, "the engine's own cluster without a policy: as before")
	policy, err = buildPolicy(settings.Settings{}, podpolicy.Policy{Preset: podpolicy.Baseline})
	require.NoError(t, err)
	require.Equal(t, admission.Policy{}, policy)
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

// A party's own worker has the preset baseline unless its party decides otherwise.
func TestReleasePolicy(t *testing.T) {
	t.Parallel()
	policy, err := releasePolicy(settings.Settings{})
	require.NoError(t, err)
	require.True(t, policy.AllowsAll(), "the engine's own cluster")
	policy, err = releasePolicy(settings.Settings{Parties: []string{"alice"}})
	require.NoError(t, err)
	require.Equal(t, podpolicy.Policy{Preset: podpolicy.Baseline}, policy)
	file := filepath.Join(t.TempDir(), "releases.yaml")
	require.NoError(t, os.WriteFile(file, []byte("preset: open\n"), 0o600))
	policy, err = releasePolicy(settings.Settings{Parties: []string{"alice"}, ReleasePolicyFile: file})
	require.NoError(t, err)
	require.True(t, policy.AllowsAll(), "the party has decided so")
	require.NoError(t, os.WriteFile(file, []byte("images: {allowedPrefixes: [x/]}\n"), 0o600))
	_, err = releasePolicy(settings.Settings{ReleasePolicyFile: file})
	require.ErrorContains(t, err, "release-policy-file: invalid policy in ")
	require.ErrorContains(t, err, "preset: is missing")
}
