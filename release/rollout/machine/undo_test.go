package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// undo returns an undo without steps, of a workload that declares the version to go back to.
func undo(t *testing.T) *world {
	setup := setupOf(strategy.StylePartition, false)
	setup.Spec.Strategy = strategy.Strategy{Style: strategy.StyleBlueGreen, Paused: true,
		Routings: []strategy.Routing{{Service: "order"}},
		Steps:    []strategy.Step{aStep("50%", 20, -1), aStep("100%", 100, -1)}}.WithoutSteps()
	setup.Spec.Undo, setup.Revision = &strategy.Undo{ToRevision: 2, WithoutSteps: true}, 4
	setup.Spec.Change = strategy.Change{Revision: &strategy.Revision{Template: "first",
		Images: map[string]string{"app": "x:1"}},
		Declared: &strategy.Declared{Template: "first", Images: map[string]string{"app": "x:1"}}}
	return newWorld(t, setup, 4)
}

func TestUndoWithoutSteps_EndsHealthyWithoutWaiting(t *testing.T) {
	t.Parallel()
	w := undo(t)
	first := w.m.Status().History[0]
	require.Equal(t, []any{rollout.VerbUndo, "the undo to revision 2 without steps was started: app=x:1"},
		[]any{first.Verb, first.Message})
	require.Equal(t, int64(4), w.m.Status().Revision)
	for a := w.next(); a.Kind != ActMove; a = w.next() {
		require.NotEqual(t, ActWait, a.Kind, "it waits for nothing: %s", a.Summary)
		require.NotEqual(t, ActRoute, a.Kind, "the routes are not changed")
		w.do(a)
	}
	require.True(t, w.next().Move.Native, "the workload's own controller replaces all pods, within its own limits")
	require.Equal(t, ActClose, w.drive().Kind)
	require.Equal(t, rollout.PhaseHealthy, w.m.Status().Phase)
}

func TestUndo_ReportsReplacedTemplateAsRolledBack(t *testing.T) {
	t.Parallel()
	w := undo(t)
	w.drive()
	v := w.m.View()
	require.Equal(t, []string{"first", "stable template"}, []string{v.Template, v.RolledBack},
		"the template that serves, and the one that it replaced")
}

func TestReplan_IsIgnored_DuringUndoWithoutSteps(t *testing.T) {
	t.Parallel()
	w := undo(t)
	edited := strategy.Strategy{Style: strategy.StylePartition,
		Steps: []strategy.Step{aStep("50%", -1, -1), aStep("100%", -1, 0)}}
	outcome, text := w.m.Replan(rollout.Command{Verb: rollout.VerbReplan, Generation: 3}, edited, w.now)
	require.Equal(t, audit.Accepted, outcome, text)
	require.Equal(t, int64(3), w.m.View().Generation, "the object's generation is taken in")
	require.Equal(t, ActClose, w.drive().Kind, "it continues unchanged")
	require.Len(t, w.m.Status().Steps, 1)
}
