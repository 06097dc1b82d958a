package traffic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
)

// borrowedByScript is a custom object with the operations of a release on it.
type borrowedByScript struct {
	t    *testing.T
	live traffic.Object
}

func (o *borrowedByScript) look() traffic.Borrowed {
	o.t.Helper()
	b, err := traffic.ReadBorrowed("VirtualService shop/order", o.live, traffic.BorrowsByScript)
	require.NoError(o.t, err)
	return b
}

// ask changes the object's spec, as a script does, and reports whether that took a write.
func (o *borrowedByScript) ask(hand traffic.Claimant, hosts string) bool {
	o.t.Helper()
	w, err := o.look().PlanWrite(hand, func(original traffic.Object) (traffic.Object, []string, error) {
		jsonpatch.Put(original, "/spec/hosts", hosts)
		return original, []string{"/spec"}, nil
	})
	require.NoError(o.t, err)
	if w == nil {
		return false
	}
	after := jsonpatch.Apply(o.live, w.Changes)
	stamped := jsonpatch.Apply(o.live, w.Stamp(traffic.Digest(after, w.Paths())))
	wrote := stamped["spec"].(traffic.Object)["hosts"] != o.live["spec"].(traffic.Object)["hosts"]
	o.live = stamped
	return wrote
}

func (o *borrowedByScript) giveBack() {
	o.t.Helper()
	w, err := o.look().PlanRestore(hand)
	require.NoError(o.t, err)
	require.NotNil(o.t, w)
	o.live = jsonpatch.Apply(o.live, w.Ops())
}

func (o *borrowedByScript) originalSpec() string {
	annotations, _ := o.live["metadata"].(traffic.Object)["annotations"].(traffic.Object)
	text, _ := annotations[rollout.AnnotationOriginalSpec].(string)
	return text
}

func customObject(t *testing.T, annotations traffic.Object) (*borrowedByScript, traffic.Object) {
	t.Helper()
	live := traffic.Object{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
		"spec": traffic.Object{"hosts": "stable"},
		"metadata": traffic.Object{"name": "order", "namespace": "shop", "resourceVersion": "1",
			"labels": traffic.Object{"app": "order"}, "annotations": annotations}}
	return &borrowedByScript{t: t, live: live}, jsonpatch.Apply(live, nil)
}

var annotating = traffic.Claimant{Claim: hand.Claim, WriteOriginalSpec: true}

func TestOriginalSpecIsAnnotated_OnCustomObject(t *testing.T) {
	t.Parallel()
	o, original := customObject(t, traffic.Object{"mine": "yes",
		"kubectl.kubernetes.io/last-applied-configuration": "{}"})
	require.True(t, o.ask(annotating, "canary"))
	want := `{"spec":{"hosts":"stable"},"labels":{"app":"order"},"annotations":{"mine":"yes"}}`
	require.JSONEq(t, want, o.originalSpec(), "in the write that borrows it")
	require.True(t, o.ask(annotating, "more"), "the next step")
	require.JSONEq(t, want, o.originalSpec(), "it is the original, not the result of the last step")
	require.False(t, o.ask(annotating, "more"), "and needs no write of its own")
	require.True(t, o.ask(hand, "another"), "a release that shares it")
	require.JSONEq(t, want, o.originalSpec(), "leaves it")
	require.Contains(t, o.look().Live()["metadata"].(traffic.Object)["annotations"], rollout.AnnotationRestore)
	o.giveBack()
	require.Equal(t, original, o.live, "nothing of the release is left")
}

func TestOriginalSpecIsAbsent_WithoutRolloutObject(t *testing.T) {
	t.Parallel()
	o, _ := customObject(t, traffic.Object{"mine": "yes"})
	o.ask(hand, "canary")
	require.Empty(t, o.originalSpec())
}

func TestOriginalSpecStays_WhenWrittenByAnotherController(t *testing.T) {
	t.Parallel()
	o, original := customObject(t, traffic.Object{rollout.AnnotationOriginalSpec: "theirs"})
	require.True(t, o.ask(annotating, "canary"))
	require.Equal(t, "theirs", o.originalSpec(), "it is the other controller's only copy")
	o.giveBack()
	require.Equal(t, original, o.live)
}

// The object's annotations have a size limit: what is needed to restore it has priority.
func TestOriginalSpecIsAbsent_WhenObjectIsLarge(t *testing.T) {
	t.Parallel()
	o, original := customObject(t, traffic.Object{"mine": "yes"})
	long := strings.Repeat("x", 60<<10)
	o.live["spec"].(traffic.Object)["gateways"], original["spec"].(traffic.Object)["gateways"] = long, long
	require.True(t, o.ask(annotating, "canary"))
	require.Empty(t, o.originalSpec())
	o.giveBack()
	require.Equal(t, original, o.live)
}

// A user who restores the object with kubectl applies the patch saved on it: it removes every mark.
func TestSavedPatch_RemovesOriginalSpec(t *testing.T) {
	t.Parallel()
	o, original := customObject(t, traffic.Object{"mine": "yes"})
	o.ask(annotating, "canary")
	var undo []jsonpatch.Op
	annotations := o.live["metadata"].(traffic.Object)["annotations"].(traffic.Object)
	require.NoError(t, json.Unmarshal([]byte(annotations[rollout.AnnotationRestore].(string)), &undo))
	require.Equal(t, original, jsonpatch.Apply(o.live, undo))
}
