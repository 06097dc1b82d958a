package main

import (
	"fmt"
	"os"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/release/strictyaml"
)

// releasePolicy reads what the party allows in the pods of all releases. Without a file, a party's own worker allows
// what the preset baseline allows, and a worker of the engine's own cluster everything.
func releasePolicy(s settings.Settings) (podpolicy.Policy, error) {
	switch {
	case s.ReleasePolicyFile != "":
		return readPolicy("release-policy-file", s.ReleasePolicyFile, podpolicy.Decode)
	case len(s.Parties) > 0:
		return podpolicy.Policy{Preset: podpolicy.Baseline}, nil
	}
	return podpolicy.Policy{Preset: podpolicy.Open}, nil
}

// policyOf reads what the party allows in pods of servings or Jobs of builds; without a file it returns the default
// policy.
func policyOf(setting, file string) (admission.Policy, error) {
	if file == "" {
		return admission.Policy{}, nil
	}
	return readPolicy(setting, file, admission.Decode)
}

// buildPolicy returns what the party allows in Jobs of builds: by default the same as for servings. Without a policy of
// any kind, builds may use every feature of pods that is no privilege.
func buildPolicy(s settings.Settings, releases podpolicy.Policy) (admission.Policy, error) {
	if s.BuildPolicyFile != "" {
		return policyOf("build-policy-file", s.BuildPolicyFile)
	}
	policy, err := policyOf("serving-policy-file", s.ServingPolicyFile)
	policy.AnyFeature = s.ServingPolicyFile == "" && releases.AllowsAll()
	return policy, err
}

// readPolicy reads a policy from the file that a setting names.
func readPolicy[P any](setting, file string, decode func([]byte) (P, strictyaml.Errors)) (policy P, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return policy, fmt.Errorf("%s: %w", setting, err)
	}
	policy, wrong := decode(text)
	if err := wrong.Err(); err != nil {
		return *new(P), fmt.Errorf("%s: invalid policy in %s:\n%w", setting, file, err)
	}
	return policy, nil
}
