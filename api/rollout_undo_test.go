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

// releaseToEnd releases an image and promotes it.
func (e *engine) releaseToEnd(image, extra string) schema.RolloutStarted {
	e.t.Helper()
	started := e.startRollout(image, extra)
	e.promote(started.Record)
	return started
}

func (e *engine) promote(record string) {
	e.t.Helper()
	waiting := e.waitApproval()
	e.call("POST", rolloutPath+"/promote", `{"gate":"`+waiting.WaitingFor.Gate+`"}`, jsonBody).is(http.StatusOK,
		"it waits")
	e.waitRecord(record, rollout.PhaseHealthy)
}

func (e *engine) undo(body string, headers ...string) schema.RolloutStarted {
	e.t.Helper()
	a := e.callAgain("POST", undoPath, body, append(headers, jsonBody)...).is(http.StatusAccepted, "it can be undone")
	require.Equal(e.t, rolloutPath, a.header.Get("Location"))
	return decode[schema.RolloutStarted](a)
}

// refusedUndo returns the reason why an undo is refused.
func (e *engine) refusedUndo(body string, status int, reason string) string {
	e.t.Helper()
	a := e.call("POST", undoPath, body, jsonBody).is(status, reason)
	return a.problem().Detail
}

func TestUndo_GoesBackInHistory(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.refusedUndo("", http.StatusNotFound, "nothing has been released")
	e.releaseToEnd("x:2", "")
	e.releaseToEnd("x:3", "")

	undone := e.undo(`{"actor":"ann","reason":"errors","key":"u1"}`)
	require.Equal(t, &strategy.Undo{ToRevision: 2}, undone.Undo)
	require.Equal(t, map[string]string{"app": "x:2"}, undone.Images, "the version that the last release replaced")
	require.Len(t, undone.Steps, 2, "without a window it goes through the steps")
	waiting := e.waitApproval()
	first := waiting.History[0]
	require.Equal(t, []any{rollout.VerbUndo, "ann", "errors", "http", "the undo to revision 2 was started: app=x:2"},
		[]any{first.Verb, first.Actor, first.Reason, first.Via, first.Message}, "the actor and the reason are recorded")
	require.Contains(t, e.refusedUndo("", http.StatusConflict, "a release is running"),
		"roll this one back (POST /api/v1/rollouts/shop/order/rollback)")
	e.promote(undone.Record)
	require.Equal(t, undone.Record, e.undo(`{"actor":"ann","reason":"errors"}`, "Idempotency-Key: u1").Record,
		"the same key is the same undo, also after its end")

	items := e.history().Items
	type row struct {
		revision, replaced int64
		image, before      string
	}
	var rows []row
	for _, r := range items {
		rows = append(rows, row{r.Rollout.Revision, r.Replaced, r.Rollout.Images["app"], r.Rollout.StableImages["app"]})
	}
	require.Equal(t, []row{{4, 3, "x:2", "x:3"}, {3, 2, "x:3", "x:2"}, {2, 1, "x:2", "x:1"}}, rows,
		"numbers and images of the released and the replaced versions")

	again := e.undo("")
	require.Equal(t, map[string]string{"app": "x:3"}, again.Images, "the undo of an undo restores the newer version")
	e.promote(again.Record)
}

func TestUndo_SkipsSteps_WithinRollbackWindow(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.releaseToEnd("x:2", "")
	e.releaseToEnd("x:3", `"policy":{"rollbackWindow":{"revisions":2}},`)

	fast := e.undo(`{"toRevision":1}`)
	require.Equal(t, &strategy.Undo{ToRevision: 1, WithoutSteps: true}, fast.Undo)
	require.Len(t, fast.Steps, 1)
	e.waitRecord(fast.Record, rollout.PhaseHealthy) // without an approval
	require.Equal(t, map[string]string{"app": "x:1"}, e.rollout().Images)

	far := e.undo(`{"toRevision":2}`)
	require.Equal(t, &strategy.Undo{ToRevision: 2, WithoutSteps: true}, far.Undo,
		"x:3 and x:1 came later: it is the second one back")
	e.waitRecord(far.Record, rollout.PhaseHealthy)

	fresh := e.releaseToEnd("x:4", "")
	require.Len(t, fresh.Steps, 2)
	slow := e.undo("")
	require.Equal(t, &strategy.Undo{ToRevision: 5}, slow.Undo, "the last release has no rollback window")
	require.Len(t, slow.Steps, 2, "the strategy is that of the last release with steps")
	e.promote(slow.Record)
}

// If only undos without steps are still recorded, there are no steps for an undo outside the rollback window.
func TestUndo_Refused_WhenNoRecordedReleaseHasSteps(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.releaseToEnd("x:2", "")
	e.releaseToEnd("x:3", `"policy":{"rollbackWindow":{"revisions":1}},`)
	e.waitRecord(e.undo("").Record, rollout.PhaseHealthy)
	e.rollouts.edited("x:8")
	e.waitRecord(e.undo(`{"toRevision":3}`).Record, rollout.PhaseHealthy)

	pruned, err := e.store.PruneRecords(t.Context(), v1alpha1.KindRollout,
		v1alpha1.SubjectLabel(v1alpha1.RolloutSubject(catalog.DefaultParty, "shop", "order")), "", 2)
	require.NoError(t, err)
	require.Equal(t, 2, pruned)
	require.Contains(t, e.refusedUndo(`{"toRevision":4}`, http.StatusUnprocessableEntity, "x:8 and x:3 came later"),
		"no recorded release has steps to reuse")
	e.waitRecord(e.undo("").Record, rollout.PhaseHealthy)
	require.Equal(t, map[string]string{"app": "x:8"}, e.rollout().Images, "within the window no steps are needed")
}

// The history shows which version a release replaced, even if another client had restored it.
func TestHistory_ShowsReplacedVersion_AfterManualChange(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	for _, image := range []string{"x:2", "x:3", "x:4"} {
		e.releaseToEnd(image, "")
	}
	e.rollouts.edited("x:2")
	e.releaseToEnd("x:5", "")
	require.EqualValues(t, 2, e.history().Items[0].Replaced)
}

func TestUndo_Refusals(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	stopped := e.startRollout("x:2", "")
	e.waitApproval()
	e.call("POST", rolloutPath+"/stop", "", jsonBody).is(http.StatusOK, "it can be stopped")
	e.waitRecord(stopped.Record, rollout.PhaseRolledBack)
	require.Contains(t, e.refusedUndo("", http.StatusUnprocessableEntity, "no release was ever completed"),
		"no release of this name has ended Healthy")
	e.releaseToEnd("x:3", "")

	for _, c := range []struct {
		reason, body string
		status       int
		says         string
	}{
		{"a number that no version has", `{"toRevision":9}`, http.StatusUnprocessableEntity,
			"there is no revision 9 in the history, which has revision 1 (app=x:1)"},
		{"the version that serves", `{"toRevision":3}`, http.StatusUnprocessableEntity,
			"revision 3 (app=x:3) is the version that serves now"},
		{"a version that was rolled back", `{"toRevision":2}`, http.StatusUnprocessableEntity,
			"revision 2 never served alone: its release ended as RolledBack"},
		{"no number at all", `{"toRevision":0}`, http.StatusBadRequest, "toRevision"},
		{"an unknown field", `{"revision":1}`, http.StatusBadRequest, "revision"},
	} {
		require.Contains(t, e.refusedUndo(c.body, c.status, c.reason), c.says, c.reason)
	}
	before := len(e.history().Items)
	e.rollouts.answers(rollout.PreflightResult{Refusals: []rollout.Refusal{{Field: "toRevision",
		Reason: "its cluster doesn't keep that version any more"}}})
	require.Contains(t, e.refusedUndo("", http.StatusUnprocessableEntity, "the cluster has dropped it"),
		"doesn't keep that version any more")
	e.rollouts.answers(rollout.PreflightResult{})
	e.rollouts.edited("x:8")
	require.Contains(t, e.refusedUndo("", http.StatusUnprocessableEntity, "the previous version is ambiguous"),
		"was changed since its last release")
	require.Len(t, e.history().Items, before, "a refused undo leaves no record")
	e.undo(`{"toRevision":1}`)
	require.Equal(t, map[string]string{"app": "x:1"}, e.waitApproval().Images,
		"with a number, the version is unambiguous")
}
