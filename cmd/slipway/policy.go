package main

import (
	"fmt"
	"os"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/serving/admission"
)

// policyOf reads what the party allows in pods of servings or Jobs of builds; without a file it returns the default
// policy.
func policyOf(setting, file string) (admission.Policy, error) {
	if file == "" {
		return admission.Policy{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return admission.Policy{}, fmt.Errorf("%s: %w", setting, err)
	}
	policy, wrong := admission.Decode(text)
	if err := wrong.Err(); err != nil {
		return admission.Policy{}, fmt.Errorf("%s: invalid policy in %s:\n%w", setting, file, err)
	}
	return policy, nil
}

// buildPolicy returns what the party allows in Jobs of builds: by default the same as for servings.
func buildPolicy(s settings.Settings) (admission.Policy, error) {
	if s.BuildPolicyFile == "" {
		return policyOf("serving-policy-file", s.ServingPolicyFile)
	}
	return policyOf("build-policy-file", s.BuildPolicyFile)
}
