package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// The search attributes. The worker registers them when it starts.
var (
	AttributeKind         = temporal.NewSearchAttributeKeyKeyword("SlipwayKind")
	AttributeState        = temporal.NewSearchAttributeKeyKeyword(workload.SearchAttributeState)
	AttributeName         = temporal.NewSearchAttributeKeyKeyword("SlipwayName")
	AttributeNamespace    = temporal.NewSearchAttributeKeyKeyword("SlipwayNamespace")
	AttributeWaitingFor   = temporal.NewSearchAttributeKeyKeyword("SlipwayWaitingFor")
	AttributeWaitingSince = temporal.NewSearchAttributeKeyTime("SlipwayWaitingSince")
	AttributeParties      = temporal.NewSearchAttributeKeyKeywordList("SlipwayParties")
	AttributeServices     = temporal.NewSearchAttributeKeyKeywordList("SlipwayServices")
)

// SearchAttributes lists the attributes that lists and filters use.
var SearchAttributes = []temporal.SearchAttributeKey{
	AttributeKind, AttributeState, AttributeName, AttributeNamespace,
	AttributeWaitingFor, AttributeWaitingSince, AttributeParties, AttributeServices,
}

// CutMarker is the last element of a list that was truncated.
const CutMarker = "…"

// FitList truncates a list to what one search attribute can hold and appends CutMarker. The server rejects a value of
// 2,048 bytes or more as JSON.
func FitList(list []string) []string {
	const most = 2000
	size := 0
	for i, value := range list {
		if size += len(value) + len(`"",`); size > most-len(CutMarker)-len(`"",`) {
			return append(list[:i:i], CutMarker)
		}
	}
	return list
}

// MemoShown is the memo key of Shown: what lists show of a release in addition to its search attributes.
const MemoShown = "shown"

// Shown is why a release waits. It is written when the state or the awaited condition changes, and only if it adds to
// the search attributes. A reader ignores it if its State differs from theirs.
type Shown struct {
	// State equals the search attribute: a rollout's phase, a task's state.
	State  string `json:"state"`
	Reason string `json:"reason"`
	// WaitingFor is what a rollout waits for. Its message is in Reason.
	WaitingFor *rollout.WaitingFor `json:"waitingFor,omitempty"`
	// Position is where the rollout waits.
	rollout.Position
}

// MemoRecord is the memo key of the name of the record with which a rollout's workflow was started.
const MemoRecord = "record"

// RolloutAttributes returns the search attributes of a rollout that starts.
func RolloutAttributes(spec strategy.Spec) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(
		AttributeKind.ValueSet(KindRollout),
		AttributeState.ValueSet(string(rollout.PhaseProgressing)),
		AttributeName.ValueSet(spec.Name),
		AttributeNamespace.ValueSet(spec.Namespace),
		AttributeParties.ValueSet([]string{spec.Workload().PartyOrDefault()}),
	)
}

// MemoStartedAt is the memo key of when a task started, set when it continues as new: Temporal lists only the start
// time of the newest run.
const MemoStartedAt = "startedAt"

// MemoTimes is the memo key that marks a task with release windows. It starts with its first service rather than with
// its workflow.
const MemoTimes = "times"

func writeMemo(ctx workflow.Context, key string, value any) {
	if err := workflow.UpsertMemo(ctx, map[string]any{key: value}); err != nil {
		workflow.GetLogger(ctx).Error("memo", "error", err)
	}
}

// maxShownReason is the maximum length of a reason in a memo, in bytes. The whole memo stays below 2,048.
const maxShownReason = 1000

// remember writes s into the memo.
func (s Shown) remember(ctx workflow.Context) {
	s.Reason = phrase.Cut(s.Reason, maxShownReason)
	if s.WaitingFor != nil {
		w := *s.WaitingFor
		w.Message = ""
		s.WaitingFor = &w
	}
	writeMemo(ctx, MemoShown, s)
}

// listing is what lists show of a release. If since is zero, the time when waitingFor was first published is used.
type listing struct {
	state, waitingFor string
	since             time.Time
	// memo holds details that do not fit into search attributes; nil if there are none.
	memo *Shown
	// endState is how the release ended, if that differs from state.
	endState string
	// skipPublish leaves the search attributes unchanged: Temporal itself shows that a workflow has closed, without
	// another write.
	skipPublish bool
}

// publish updates the search attributes, the memo and the details page in Temporal's UI. Attributes are written on
// change only, since each write is an event.
func (l *loop[C]) publish() {
	now, was := l.driver.listed(), l.shown // first: it refreshes what details shows
	workflow.SetCurrentDetails(l.ctx, l.driver.details())
	// a run that continues as new inherits the attributes
	inherited := was.state == "" && l.info.ContinuedExecutionRunID != ""
	l.meter.setWaiting(now.waitingFor)
	if now.skipPublish {
		return
	}
	waitChanged := now.waitingFor != was.waitingFor || !now.since.Equal(was.since)
	var updates []temporal.SearchAttributeUpdate
	if now.state != was.state {
		updates = append(updates, AttributeState.ValueSet(now.state))
	}
	switch {
	case waitChanged && now.waitingFor != "":
		since := now.since
		if since.IsZero() {
			since = workflow.Now(l.ctx)
		}
		updates = append(updates, AttributeWaitingFor.ValueSet(now.waitingFor), AttributeWaitingSince.ValueSet(since))
	case waitChanged, inherited:
		updates = append(updates, AttributeWaitingFor.ValueUnset(), AttributeWaitingSince.ValueUnset())
	}
	// a rollout that waits can be sent to another step
	moved := now.memo != nil && was.memo != nil && now.memo.Position != was.memo.Position
	l.shown = now
	if len(updates) > 0 {
		if err := workflow.UpsertTypedSearchAttributes(l.ctx, updates...); err != nil {
			workflow.GetLogger(l.ctx).Error("search attributes", "error", err)
		}
	}
	if now.memo != nil && (len(updates) > 0 || moved) {
		now.memo.remember(l.ctx)
	}
}
