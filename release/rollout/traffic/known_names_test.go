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

// borrowedByScript is a custom object and what releases do to it.
type borrowedByScript struct {
	t    *testing.T
	live traffic.Object
}

func (o *borrowedByScript) look() traffic.Borrowed {
	o.t.Helper()
	b, err := traffic.Look("VirtualService shop/order", o.live, traffic.BorrowsByScript)
	require.NoError(o.t, err)
	return b
}

// ask has the object say something else, as a script does, and says whether that took a write.
func (o *borrowedByScript) ask(hand traffic.Hand, hosts string) bool {
	o.t.Helper()
	w, err := o.look().Want(hand, func(original traffic.Object) (traffic.Object, []string, error) {
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
	w, err := o.look().Return(hand)
	require.NoError(o.t, err)
	require.NotNil(o.t, w)
	o.live = jsonpatch.Apply(o.live, w.Ops())
}

func (o *borrowedByScript) told() string {
	annotations, _ := o.live["metadata"].(traffic.Object)["annotations"].(traffic.Object)
	text, _ := annotations[rollout.AnnotationOriginalSpec].(string)
	return text
}

func customObject(t *testing.T, annotations traffic.Object) (*borrowedByScript, traffic.Object) {
	t.Helper()
	live := traffic.Object{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "spec": traffic.Object{"hosts": "stable"},
		"metadata": traffic.Object{"name": "order", "namespace": "shop", "resourceVersion": "1", "labels": traffic.Object{"app": "order"}, "annotations": annotations}}
	return &borrowedByScript{t: t, live: live}, jsonpatch.Apply(live, nil)
}

var telling = traffic.Hand{Claim: hand.Claim, Tells: true}

func TestWhatACustomObjectWasIsToldToOtherTools(t *testing.T) {
	t.Parallel()
	o, original := customObject(t, traffic.Object{"mine": "yes", "kubectl.kubernetes.io/last-applied-configuration": "{}"})
	require.True(t, o.ask(telling, "canary"))
	want := `{"spec":{"hosts":"stable"},"labels":{"app":"order"},"annotations":{"mine":"yes"}}`
	require.JSONEq(t, want, o.told(), "in the write that borrows it")
	require.True(t, o.ask(telling, "more"), "the next step")
	require.JSONEq(t, want, o.told(), "it is what the object was, not what the last step made")
	require.False(t, o.ask(telling, "more"), "and asks for no write of its own")
	require.True(t, o.ask(hand, "another"), "a release that shares it")
	require.JSONEq(t, want, o.told(), "leaves it")
	require.Contains(t, o.look().Live()["metadata"].(traffic.Object)["annotations"], rollout.AnnotationRestore)
	o.giveBack()
	require.Equal(t, original, o.live, "nothing of it is left")
}

func TestAReleaseWithoutARolloutTellsNothing(t *testing.T) {
	t.Parallel()
	o, _ := customObject(t, traffic.Object{"mine": "yes"})
	o.ask(hand, "canary")
	require.Empty(t, o.told())
}

func TestWhatAnotherControllerHasNotedStays(t *testing.T) {
	t.Parallel()
	o, original := customObject(t, traffic.Object{rollout.AnnotationOriginalSpec: "theirs"})
	require.True(t, o.ask(telling, "canary"))
	require.Equal(t, "theirs", o.told(), "it is another's only copy")
	o.giveBack()
	require.Equal(t, original, o.live)
}

// The object's annotations have a limit: what is needed to give it back goes first.
func TestALargeObjectIsNotTold(t *testing.T) {
	t.Parallel()
	o, original := customObject(t, traffic.Object{"mine": "yes"})
	long := strings.Repeat("x", 60<<10)
	o.live["spec"].(traffic.Object)["gateways"], original["spec"].(traffic.Object)["gateways"] = long, long
	require.True(t, o.ask(telling, "canary"))
	require.Empty(t, o.told())
	o.giveBack()
	require.Equal(t, original, o.live)
}

// A person who brings the object home with kubectl applies what stands on it: it takes every mark away.
func TestTheSavedPatchTakesWhatWasToldAway(t *testing.T) {
	t.Parallel()
	o, original := customObject(t, traffic.Object{"mine": "yes"})
	o.ask(telling, "canary")
	var undo []jsonpatch.Op
	require.NoError(t, json.Unmarshal([]byte(o.live["metadata"].(traffic.Object)["annotations"].(traffic.Object)[rollout.AnnotationRestore].(string)), &undo))
	require.Equal(t, original, jsonpatch.Apply(o.live, undo))
}
