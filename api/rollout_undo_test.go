package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
)

const undoPath = rolloutPath + "/undo"

// released releases an image to the end, whatever steps wait.
func (e *engine) released(image, extra string) schema.RolloutStarted {
	e.t.Helper()
	started := e.startRollout(image, extra)
	e.promoted(started.Record)
	return started
}

func (e *engine) promoted(record string) {
	e.t.Helper()
	waiting := e.waitApproval()
	e.call("POST", rolloutPath+"/promote", `{"gate":"`+waiting.WaitingFor.Gate+`"}`, jsonBody).is(http.StatusOK, "it waits")
	e.waitRecord(record, rollout.PhaseHealthy)
}

func (e *engine) undo(body string, headers ...string) schema.RolloutStarted {
	e.t.Helper()
	a := e.callAgain("POST", undoPath, body, append(headers, jsonBody)...).is(http.StatusAccepted, "it can be undone")
	require.Equal(e.t, rolloutPath, a.header.Get("Location"))
	return decode[schema.RolloutStarted](a)
}

// refusedUndo is why an undo is refused.
func (e *engine) refusedUndo(body string, status int, reason string) string {
	e.t.Helper()
	a := e.call("POST", undoPath, body, jsonBody).is(status, reason)
	return a.problem().Detail
}

func TestAnUndoGoesBackByTheHistory(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.refusedUndo("", http.StatusNotFound, "nothing has been released")
	e.released("x:2", "")
	e.released("x:3", "")

	undone := e.undo(`{"actor":"ann","reason":"errors","key":"u1"}`)
	require.Equal(t, &strategy.Undo{ToRevision: 2}, undone.Undo)
	require.Equal(t, map[string]string{"app": "x:2"}, undone.Images, "what the last release replaced")
	require.Len(t, undone.Steps, 2, "without a window it goes through the steps")
	waiting := e.waitApproval()
	first := waiting.History[0]
	require.Equal(t, []any{rollout.VerbUndo, "ann", "errors", "http", "the undo to revision 2 was started: app=x:2"},
		[]any{first.Verb, first.Actor, first.Reason, first.Via, first.Message}, "who asked for it, and why, is on record")
	require.Contains(t, e.refusedUndo("", http.StatusConflict, "a release is under way"), "roll this one back (POST /api/v1/rollouts/shop/order/rollback)")
	e.promoted(undone.Record)
	require.Equal(t, undone.Record, e.undo(`{"actor":"ann","reason":"errors"}`, "Idempotency-Key: u1").Record, "the same key is the same undo, also when it is over")

	items := e.history().Items
	type row struct {
		revision, replaced int64
		image, before      string
	}
	var rows []row
	for _, r := range items {
		rows = append(rows, row{r.Rollout.Revision, r.Replaced, r.Rollout.Images["app"], r.Rollout.StableImages["app"]})
	}
	require.Equal(t, []row{{4, 3, "x:2", "x:3"}, {3, 2, "x:3", "x:2"}, {2, 1, "x:2", "x:1"}}, rows, "numbers and images of what was released, and of what it replaced")

	again := e.undo("")
	require.Equal(t, map[string]string{"app": "x:3"}, again.Images, "the undo of an undo goes forward again")
	e.promoted(again.Record)
}

func TestAnUndoWithinTheWindowGoesWithoutSteps(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.released("x:2", "")
	e.released("x:3", `"policy":{"rollbackWindow":{"revisions":2}},`)

	fast := e.undo(`{"toRevision":1}`)
	require.Equal(t, &strategy.Undo{ToRevision: 1, WithoutSteps: true}, fast.Undo)
	require.Len(t, fast.Steps, 1)
	e.waitRecord(fast.Record, rollout.PhaseHealthy) // nobody has approved anything
	require.Equal(t, map[string]string{"app": "x:1"}, e.rollout().Images)

	far := e.undo(`{"toRevision":2}`)
	require.Equal(t, &strategy.Undo{ToRevision: 2, WithoutSteps: true}, far.Undo, "x:3 and x:1 came after it: it is the second one back")
	e.waitRecord(far.Record, rollout.PhaseHealthy)

	fresh := e.released("x:4", "")
	require.Len(t, fresh.Steps, 2)
	slow := e.undo("")
	require.Equal(t, &strategy.Undo{ToRevision: 5}, slow.Undo, "the last release has no window")
	require.Len(t, slow.Steps, 2, "the strategy is that of the last release that had steps")
	e.promoted(slow.Record)
}

// When undos without steps are all that is left on record, nobody knows the steps by which one outside the window would go.
func TestAnUndoHasStepsFromSomewhere(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.released("x:2", "")
	e.released("x:3", `"policy":{"rollbackWindow":{"revisions":1}},`)
	e.waitRecord(e.undo("").Record, rollout.PhaseHealthy)
	e.rollouts.edited("x:8")
	e.waitRecord(e.undo(`{"toRevision":3}`).Record, rollout.PhaseHealthy)

	pruned, err := e.store.PruneRecords(t.Context(), v1alpha1.KindRollout, v1alpha1.SubjectLabel(v1alpha1.RolloutSubject(catalog.DefaultParty, "shop", "order")), "", 2)
	require.NoError(t, err)
	require.Equal(t, 2, pruned)
	require.Contains(t, e.refusedUndo(`{"toRevision":4}`, http.StatusUnprocessableEntity, "x:8 and x:3 came after it"), "no release with steps is on record any more")
	e.waitRecord(e.undo("").Record, rollout.PhaseHealthy)
	require.Equal(t, map[string]string{"app": "x:8"}, e.rollout().Images, "within the window no steps are needed")
}

// Whatever version somebody has brought back by hand, the history says which one a release found.
func TestAHistoryKnowsWhatWasBroughtBackByHand(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	for _, image := range []string{"x:2", "x:3", "x:4"} {
		e.released(image, "")
	}
	e.rollouts.edited("x:2")
	e.released("x:5", "")
	require.EqualValues(t, 2, e.history().Items[0].Replaced)
}

func TestUndosThatAreRefused(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	stopped := e.startRollout("x:2", "")
	e.waitApproval()
	e.call("POST", rolloutPath+"/stop", "", jsonBody).is(http.StatusOK, "it can be stopped")
	e.waitRecord(stopped.Record, rollout.PhaseRolledBack)
	require.Contains(t, e.refusedUndo("", http.StatusUnprocessableEntity, "nothing was ever released to its end"), "no release of this name has ended Healthy")
	e.released("x:3", "")

	for _, c := range []struct {
		reason, body string
		status       int
		says         string
	}{
		{"a number that no version has", `{"toRevision":9}`, http.StatusUnprocessableEntity, "there is no revision 9 in the history, which has revision 1 (app=x:1)"},
		{"the version that serves", `{"toRevision":3}`, http.StatusUnprocessableEntity, "revision 3 (app=x:3) is the version that serves now"},
		{"a version that was rolled back", `{"toRevision":2}`, http.StatusUnprocessableEntity, "revision 2 never served alone: its release ended as RolledBack"},
		{"no number at all", `{"toRevision":0}`, http.StatusBadRequest, "toRevision"},
		{"an unknown field", `{"revision":1}`, http.StatusBadRequest, "revision"},
	} {
		require.Contains(t, e.refusedUndo(c.body, c.status, c.reason), c.says, c.reason)
	}
	before := len(e.history().Items)
	e.rollouts.answers(rollout.PreflightResult{Refusals: []rollout.Refusal{{Field: "toRevision", Reason: "its cluster doesn't keep that version any more"}}})
	require.Contains(t, e.refusedUndo("", http.StatusUnprocessableEntity, "the cluster has dropped it"), "doesn't keep that version any more")
	e.rollouts.answers(rollout.PreflightResult{})
	e.rollouts.edited("x:8")
	require.Contains(t, e.refusedUndo("", http.StatusUnprocessableEntity, "it is not clear what the version before is"), "was changed since its last release")
	require.Len(t, e.history().Items, before, "nothing of a refused undo is on record")
	e.undo(`{"toRevision":1}`)
	require.Equal(t, map[string]string{"app": "x:1"}, e.waitApproval().Images, "with a number it is clear")
}
