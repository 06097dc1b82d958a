package workflows

import (
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// The search attributes. The worker registers them at its start.
var (
	AttributeKind         = temporal.NewSearchAttributeKeyKeyword("SlipwayKind")
	AttributeState        = temporal.NewSearchAttributeKeyKeyword(workloadops.SearchAttributeState)
	AttributeName         = temporal.NewSearchAttributeKeyKeyword("SlipwayName")
	AttributeNamespace    = temporal.NewSearchAttributeKeyKeyword("SlipwayNamespace")
	AttributeWaitingFor   = temporal.NewSearchAttributeKeyKeyword("SlipwayWaitingFor")
	AttributeWaitingSince = temporal.NewSearchAttributeKeyTime("SlipwayWaitingSince")
	AttributeParties      = temporal.NewSearchAttributeKeyKeywordList("SlipwayParties")
	AttributeServices     = temporal.NewSearchAttributeKeyKeywordList("SlipwayServices")
)

// SearchAttributes are what lists and filters are made of.
var SearchAttributes = []temporal.SearchAttributeKey{
	AttributeKind, AttributeState, AttributeName, AttributeNamespace,
	AttributeWaitingFor, AttributeWaitingSince, AttributeParties, AttributeServices,
}

// CutMarker ends a list that was cut.
const CutMarker = "…"

// FitList cuts a list to what one search attribute holds, and marks the cut: the server refuses 2,048 bytes and more of it as JSON.
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

// MemoShown is the memo in which a release keeps what lists show of it beside its search attributes: Shown.
const MemoShown = "shown"

// Shown says why a release waits. It is written when its state or what it waits for changes, and only while there is more to say than the
// search attributes do: it counts for a reader as long as they agree with it.
type Shown struct {
	// State is the search attribute's: a rollout's phase, a task's state.
	State  string `json:"state"`
	Reason string `json:"reason"`
	// WaitingFor is what a rollout waits for; its message is Reason.
	WaitingFor *rollout.WaitingFor `json:"waitingFor,omitempty"`
}

// MemoRecord is the memo that names the record with which a rollout's workflow was started.
const MemoRecord = "record"

// RolloutAttributes are what lists can be filtered by of a rollout that begins.
func RolloutAttributes(spec strategy.Spec) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(
		AttributeKind.ValueSet(KindRollout),
		AttributeState.ValueSet(string(rollout.PhaseProgressing)),
		AttributeName.ValueSet(spec.Name),
		AttributeNamespace.ValueSet(spec.Namespace),
		AttributeParties.ValueSet([]string{spec.Workload().PartyOrDefault()}),
	)
}

// MemoStartedAt is the memo of when a task started that goes on in another run: lists know the start of its newest run alone.
const MemoStartedAt = "startedAt"

// MemoTimes is the memo that a task keeps times: it starts with its first service, and not with its workflow.
const MemoTimes = "times"

// rememberStart writes when a task started, for the runs after this one.
func rememberStart(ctx workflow.Context, at *time.Time) {
	if at == nil {
		return
	}
	if err := workflow.UpsertMemo(ctx, map[string]any{MemoStartedAt: *at}); err != nil {
		workflow.GetLogger(ctx).Error("memo", "error", err)
	}
}

// maxShownReason is how much of a reason a memo keeps, in bytes: the whole memo stays below 2,048.
const maxShownReason = 1000

// remember writes the memo.
func (s Shown) remember(ctx workflow.Context) {
	if len(s.Reason) > maxShownReason {
		s.Reason = strings.ToValidUTF8(s.Reason[:maxShownReason], "") + "…"
	}
	if s.WaitingFor != nil {
		w := *s.WaitingFor
		w.Message = ""
		s.WaitingFor = &w
	}
	if err := workflow.UpsertMemo(ctx, map[string]any{MemoShown: s}); err != nil {
		workflow.GetLogger(ctx).Error("memo", "error", err)
	}
}

// listing is what lists show of a release: its state, and what it waits for since when. The zero since is when that was first seen.
type listing struct {
	state, waits string
	since        time.Time
	// memo says more where there is more to say.
	memo *Shown
	// ended is how it ended, where that is not its state.
	ended string
	// untold has lists not told of it: that a workflow is over is seen without another write.
	untold bool
}

// publish tells Temporal's lists and its UI what the release does. Lists are written on change only: each write is an event.
func (l *loop[C]) publish() {
	now, was := l.driver.listed(), l.shown // first, since it brings what the page shows up to date
	workflow.SetCurrentDetails(l.ctx, l.driver.details())
	inherited := was.state == "" && l.info.ContinuedExecutionRunID != "" // attributes go with a workflow into its next run
	l.meter.turn(now.waits)
	if now.untold {
		return
	}
	waitsAnew := now.waits != was.waits || !now.since.Equal(was.since)
	var updates []temporal.SearchAttributeUpdate
	if now.state != was.state {
		updates = append(updates, AttributeState.ValueSet(now.state))
	}
	switch {
	case waitsAnew && now.waits != "":
		since := now.since
		if since.IsZero() {
			since = workflow.Now(l.ctx)
		}
		updates = append(updates, AttributeWaitingFor.ValueSet(now.waits), AttributeWaitingSince.ValueSet(since))
	case waitsAnew, inherited:
		updates = append(updates, AttributeWaitingFor.ValueUnset(), AttributeWaitingSince.ValueUnset())
	}
	l.shown = now
	if len(updates) > 0 {
		if err := workflow.UpsertTypedSearchAttributes(l.ctx, updates...); err != nil {
			workflow.GetLogger(l.ctx).Error("search attributes", "error", err)
		}
		if now.memo != nil {
			now.memo.remember(l.ctx)
		}
	}
}
