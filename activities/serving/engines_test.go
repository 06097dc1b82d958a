package serving_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
)

// Two engines on one cluster may have a serving of the same name in the same namespace: neither writes the objects of
// the other.
func TestApply_RefusesServingOfAnotherEngine(t *testing.T) {
	s := newSite(t)
	s.settings.Engine = "red"
	require.NoError(t, s.apply(s.step(1, false), nil))
	before := s.deployment()

	theirs := s.step(2, false)
	theirs.UID = "u2"
	s.settings.Engine = "blue"
	err := s.apply(theirs, nil)
	requireKind(t, failure.Refused, err)
	require.ErrorContains(t, err, "belongs to a serving of the same name of another engine (Temporal namespace red)")
	require.Equal(t, before.Spec, s.deployment().Spec)

	s.patch("red", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, workload.AnnotationClaimedBy,
		workflowOf(1)+"@r@red/uid-red"))
	ours := s.step(2, false)
	ours.Claim = workflowOf(2) + "@r@blue/uid-blue"
	err = s.apply(ours, nil)
	requireKind(t, failure.Claimed, err)
	require.ErrorContains(t, err, "is being released by "+workflowOf(1)+" of engine red")
	require.Equal(t, before.Spec, s.deployment().Spec,
		"an operation of a serving of the same name of another engine is not an older operation of this one")
}
