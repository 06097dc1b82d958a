package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving/admission"
)

// A worker that was given a policy and cannot read it does not start: it would take what the party does not.
func TestServingPolicy(t *testing.T) {
	t.Parallel()
	written := func(text string) string {
		file := filepath.Join(t.TempDir(), "servings.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	policy, err := servingPolicy("")
	require.NoError(t, err)
	require.Equal(t, admission.Policy{}, policy, "without a file the default holds")
	policy, err = servingPolicy(written("secrets: {allowed: [model]}\n"))
	require.NoError(t, err)
	require.Equal(t, admission.Policy{Secrets: []string{"model"}}, policy)
	_, err = servingPolicy(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorContains(t, err, "serving-policy-file: open ")
	_, err = servingPolicy(written("privileged: false\nsecret: {allowed: []}\n"))
	require.ErrorContains(t, err, "is not a policy for servings:\nline 2, secret: unknown key \"secret\": did you mean \"secrets\"?")
}
