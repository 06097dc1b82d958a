package conversion

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// namesOf returns the JSON names of a type's fields.
func namesOf(of any) map[string]bool {
	names := map[string]bool{}
	for field := range reflect.TypeOf(of).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

// Every field that both versions have is in a list of fields to copy or to convert. A field added to the types must be
// added there.
func TestFieldsOfBothVersionsAreCopied(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		alpha, beta     any
		same, converted []string
	}{
		"Spec":     {v1alpha1.RolloutSpec{}, v1beta1.RolloutSpec{}, sameOfSpec, []string{"strategy"}},
		"Strategy": {v1alpha1.RolloutStrategy{}, v1beta1.RolloutStrategy{}, sameOfStrategy, []string{"canary"}},
		"Canary":   {v1alpha1.CanaryStrategy{}, v1beta1.CanaryStrategy{}, sameOfBody, []string{"steps"}},
		"Step":     {v1alpha1.CanaryStep{}, v1beta1.CanaryStep{}, sameOfStep, []string{"matches"}},
		"Match":    {v1alpha1.HTTPRouteMatch{}, v1beta1.HTTPRouteMatch{}, nil, []string{"headers"}},
	} {
		both := namesOf(test.alpha)
		inBeta := namesOf(test.beta)
		maps.DeleteFunc(both, func(field string, _ bool) bool { return !inBeta[field] })
		require.ElementsMatch(t, slices.Concat(test.same, test.converted), slices.Collect(maps.Keys(both)), name)
	}
}
