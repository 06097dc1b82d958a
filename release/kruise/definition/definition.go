// Package definition completes the CustomResourceDefinition of Rollouts with validation rules in CEL, so that the API
// server rejects a wrong Rollout even if no Slipway server runs. It rejects only what Kruise Rollouts rejects: files
// that work there keep working. What one object alone cannot show is checked by the policies of
// release/kruise/admission.
package definition

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
)

//go:generate controller-gen object paths=../v1beta1 paths=../v1alpha1
//go:generate controller-gen crd paths=../v1beta1 paths=../v1alpha1 output:crd:dir=../../../deploy/crds
//go:generate go run ../../generate definition ../../../deploy/crds/rollouts.kruise.io_rollouts.yaml

// LabelManagedBy and LabelPartOf have the value ManagedBySlipway on definitions of other API groups that Slipway
// installed. Helm overwrites the first one, so the second one is enough. A definition with neither belongs to another
// product.
const (
	LabelManagedBy   = "app.kubernetes.io/managed-by"
	LabelPartOf      = "app.kubernetes.io/part-of"
	ManagedBySlipway = "slipway"
)

// IsOurs reports whether Slipway installed the definition with these labels.
func IsOurs(labels map[string]string) bool {
	return labels[LabelManagedBy] == ManagedBySlipway || labels[LabelPartOf] == ManagedBySlipway
}

// Name is the name of the definition.
var Name = v1beta1.Resource.Resource + "." + v1beta1.GroupVersion.Group

// rule is one rule of a schema. field is the path of the wrong field, relative to the schema; "" for the schema itself.
type rule struct {
	expression, message, field string
}

// labels mark the definition as Slipway's: a definition of the same name that another product installed is left
// unchanged.
var labels = map[string]any{LabelManagedBy: ManagedBySlipway, LabelPartOf: ManagedBySlipway}

// Complete adds the rules and labels to the definition that controller-gen has written.
func Complete(text []byte) ([]byte, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	metadata, versions := jsonpatch.DigObject(crd, "metadata"), jsonpatch.DigObjects(crd, "spec", "versions")
	if metadata == nil || len(versions) == 0 {
		return nil, fmt.Errorf("the definition has no metadata or no versions: generate it first")
	}
	metadata["labels"] = labels
	for _, version := range versions {
		if err := completeVersion(version); err != nil {
			return nil, fmt.Errorf("version %v: %w", version["name"], err)
		}
	}
	body, err := yaml.Marshal(crd)
	return append([]byte("---\n"), body...), err
}

func completeVersion(version map[string]any) error {
	rules, strategies := rulesBeta, []string{"canary", "blueGreen"}
	if version["name"] == v1alpha1.GroupVersion.Version {
		rules, strategies = rulesAlpha, []string{"canary"}
	}
	root := jsonpatch.DigObject(version, "schema", "openAPIV3Schema")
	for _, strategy := range strategies {
		duration, err := at(root, "spec.strategy."+strategy+".steps.[].pause.duration")
		if err != nil {
			return err
		}
		completeDuration(duration)
	}
	for path, all := range rules() {
		schema, err := at(root, path)
		if err != nil {
			return err
		}
		var validations []any
		for _, r := range all {
			validation := map[string]any{"rule": r.expression, "message": r.message}
			if r.field != "" {
				validation["fieldPath"] = "." + r.field
			}
			validations = append(validations, validation)
		}
		schema["x-kubernetes-validations"] = validations
	}
	return nil
}

// at returns the schema at a path from the root: names of fields, and [] for the items of a list.
func at(schema map[string]any, path string) (map[string]any, error) {
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' }) {
		next := jsonpatch.DigObject(schema, "properties", name)
		if name == "[]" {
			next = jsonpatch.DigObject(schema, "items")
		}
		if next == nil {
			return nil, fmt.Errorf("the schema has no %s of %s", name, path)
		}
		schema = next
	}
	return schema, nil
}

// completeDuration allows 32-bit integers and {}, which the API specification prints for an absent duration. A schema
// cannot name two types, and rules do not see a field without a type; but each of these limits applies to values of one
// type only.
func completeDuration(schema map[string]any) {
	schema["minimum"], schema["maximum"], schema["multipleOf"] = -1<<31, 1<<31-1, 1
	schema["maxProperties"] = 0
	schema["pattern"] = "must be a number of seconds, without quotes$^"
	schema["minItems"], schema["maxItems"] = 1, 0
	schema["not"] = map[string]any{"enum": []any{true, false}}
}
