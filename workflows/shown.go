package workflows

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/rollout"
)

// MemoShown is the memo in which a release keeps what lists show of it beside its search attributes: Shown.
const MemoShown = "shown"

// Shown says why a release waits. It is written when its state or what it waits for changes, and only while there is more to say than the search attributes
// do: it counts for a reader as long as they agree with it.
type Shown struct {
	// State is the search attribute's: a rollout's phase, a task's state.
	State  string `json:"state"`
	Reason string `json:"reason"`
	// WaitingFor is what a rollout waits for; its message is Reason.
	WaitingFor *rollout.WaitingFor `json:"waitingFor,omitempty"`
}

// MemoStartedAt is the memo in which a task that goes on in another run keeps when it started itself: lists know the start of its newest run alone.
const MemoStartedAt = "startedAt"

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
