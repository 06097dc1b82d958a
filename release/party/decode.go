// Package party decodes the declaration of a party, and derives its reachability from its workers' heartbeats.
package party

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

// maxQueueLength is the maximum length of a party's queue name, in characters.
const maxQueueLength = 200

// Decode reads the spec of a Party from YAML or JSON, strictly, with all errors at once; {} is a party with only
// defaults. If there are errors, the spec is meaningless.
func Decode(data []byte) (v1alpha1.PartySpec, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return v1alpha1.PartySpec{}, found.Sorted()
	}
	m := root.Mapping("queue", "namespace", "labels")
	spec := v1alpha1.PartySpec{Queue: m.Field("queue").Text(), Namespace: m.Field("namespace").Text(),
		Labels: m.Field("labels").StringMap()}
	if len(spec.Labels) == 0 {
		spec.Labels = nil
	}
	check(spec, found)
	return spec, found.Sorted()
}

func check(spec v1alpha1.PartySpec, found *strictyaml.Findings) {
	if spec.Queue != "" {
		checkQueue(spec.Queue, found)
	}
	rule := func(field, value, what string, problems []string) {
		if len(problems) > 0 {
			found.Refuse(0, field, "%s is not %s: %s", strictyaml.Quote(value), what, strings.Join(problems, "; "))
		}
	}
	if spec.Namespace != "" {
		rule("namespace", spec.Namespace, "the name of a namespace", validation.IsDNS1123Label(spec.Namespace))
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Labels)) {
		field, value := strictyaml.Join("labels", key), spec.Labels[key]
		rule(field, key, "a legal key of a label", validation.IsQualifiedName(key))
		rule(field, value, "a legal value of a label", validation.IsValidLabelValue(value))
	}
}

func checkQueue(queue string, found *strictyaml.Findings) {
	illegal := func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("'\"`\\", r)
	}
	switch {
	case len([]rune(queue)) > maxQueueLength:
		found.Refuse(0, "queue", "is too long: the name of a queue has at most %d characters", maxQueueLength)
	case strings.ContainsFunc(queue, illegal):
		found.Refuse(0, "queue", "%s is not the name of a queue: it contains a blank, a quote or a backslash",
			strictyaml.Quote(queue))
	case queue == catalog.EngineQueue:
		found.Refuse(0, "queue",
			"%s is the engine's own queue, which no party's worker polls: leave queue out to use %s",
			strictyaml.Quote(queue), catalog.PartyQueue("<name>"))
	}
}
