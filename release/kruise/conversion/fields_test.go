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

// namesOf are the fields of a type, as JSON has them.
func namesOf(of any) map[string]bool {
	names := map[string]bool{}
	for field := range reflect.TypeOf(of).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
}

// A field that both versions have, and that isn't converted, is in one of the lists: whoever adds one to the types adds it there.
func TestFieldsOfBothVersionsAreTakenOver(t *testing.T) {
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
