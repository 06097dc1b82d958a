package pods

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// twice is a Deployment at its second version, whose first version is still kept by its cluster.
func twice() Observed {
	seen := Observed{Template: "second", Declared: "first", Recalled: &strategy.Revision{Template: "first"},
		Revisions: []Revision{
			{Name: "r1", Hash: "r1", Number: 1, Template: "first", HasCounts: true,
				Images: map[string]string{"app": "x:1"}},
			{Name: "r2", Hash: "r2", Number: 2, Template: "second", HasCounts: true, Desired: 3, Total: 3, Ready: 3,
				Available: 3, Images: map[string]string{"app": "x:2"}}}}
	seen.Replicas, seen.Total, seen.Updated, seen.Settings = 3, 3, 3, map[string]json.RawMessage{}
	return seen
}

func TestBegin_KeepsEarlierTemplate_OnUndoUnderRolloutObject(t *testing.T) {
	t.Parallel()
	req := rollout.BeginRequest{Subject: rollout.Subject{Claim: "rollout/default/shop/web@run"}}
	d := Begin(deploymentPartition{}, req, twice())
	require.Equal(t, workload.ActWrite, d.Action, d.Reason)
	require.Nil(t, d.Write.Template, "no pod moves before the steps do")
	require.Equal(t, []string{rollout.AnnotationNext, "r1"}, []string{d.Write.KeepTemplate, d.Write.KeepRevision},
		"it is kept in an annotation until then")
	require.Contains(t, d.Write.Annotations[workload.AnnotationRollout], `"stable":"r2"`)
	require.Equal(t, map[string]string{"app": "x:2"}, d.Begun.StableImages, "the answer has the images that serve")

	plain := twice()
	plain.Declared = ""
	require.Empty(t, Begin(deploymentPartition{}, req, plain).Write.KeepTemplate,
		"without an object nothing is declared")
}

func TestRefusalReason_WhenUndoCannotBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		change func(*Observed)
		says   string
	}{
		{"the cluster has dropped the revision", func(o *Observed) {
			o.Revisions = o.Revisions[1:]
		}, "It keeps r2 (app=x:2). Start a rollout with the images"},
		{"a change is held, whose release is about to begin", func(o *Observed) {
			o.Template, o.Held = "third", gate.Held{"/spec/paused": json.RawMessage("null")}
		}, "is held until its own release begins"},
		{"a template that another release set aside is still to be released", func(o *Observed) {
			o.Next = "third"
		}, "is held until its own release begins"},
	} {
		seen := twice()
		c.change(&seen)
		require.Contains(t, RefusalReason(deploymentPartition{}, rollout.Subject{}, seen), c.says, c.reason)
	}
}

func TestRecalledRevision(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		of     *strategy.Revision
		want   string
	}{
		{"the recorded template", &strategy.Revision{Template: "first", Name: "missing"}, "r1"},
		{"a template that the API server now defaults differently has the same name",
			&strategy.Revision{Template: "first as of 1.30", Name: "r1"}, "r1"},
		{"a revision that no longer exists", &strategy.Revision{Template: "zeroth", Name: "r0"}, ""},
		{"nothing recorded", &strategy.Revision{}, ""},
		{"no undo", nil, ""},
	} {
		seen := twice()
		seen.Recalled = c.of
		r, kept := seen.RecalledRevision()
		require.Equal(t, c.want, r.Name, c.reason)
		require.Equal(t, c.want != "", kept, c.reason)
	}
}
