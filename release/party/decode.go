// Package party holds what a party declares of itself and what is concluded from its workers' heartbeats.
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

// maxQueueLength is how many characters the name of a party's queue has at most.
const maxQueueLength = 200

// Decode reads the spec of a Party from YAML or JSON, strictly, with all errors at once; {} is a party with defaults only. The spec means
// nothing when there are errors.
func Decode(data []byte) (v1alpha1.PartySpec, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return v1alpha1.PartySpec{}, found.Sorted()
	}
	m := root.Mapping("queue", "namespace", "labels")
	spec := v1alpha1.PartySpec{Queue: m.Field("queue").Text(), Namespace: m.Field("namespace").Text(), Labels: m.Field("labels").StringMap()}
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
		found.Refuse(0, "queue", "%s is not the name of a queue: it has a blank, a quote or a backslash in it", strictyaml.Quote(queue))
	case queue == catalog.EngineQueue:
		found.Refuse(0, "queue", "%s is the engine's own queue, on which no party's worker is found: leave queue out to have %s",
			strictyaml.Quote(queue), catalog.PartyQueue("<name>"))
	}
}
