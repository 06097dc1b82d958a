package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// verbStates are the states in which a verb can arrive, each reached by real actions.
var verbStates = map[string]func(t *testing.T) *world{
	"before the first step": func(t *testing.T) *world {
		s := setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("100%", 100, -1))
		s.Spec.Strategy.Paused = true
		w := newWorld(t, s, 10)
		w.drive()
		return w
	},
	"approval": func(t *testing.T) *world { return atApproval(t, strategy.StylePartition) },
	"timer": func(t *testing.T) *world {
		w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, 600), aStep("100%", 100, -1)), 10)
		for w.m.Status().CurrentStepState != rollout.StatePaused {
			a := w.next()
			if a.Activity() {
				w.do(a)
			} else {
				w.now = *a.Until
			}
		}
		w.next()
		return w
	},
	"pods move": func(t *testing.T) *world {
		w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("20%", -1, -1), aStep("100%", -1, -1)), 10)
		w.do(w.next())
		require.Equal(t, ActMove, w.next().Kind)
		return w
	},
	"failed":  func(t *testing.T) *world { return troubled(t, failure.WorkloadFailed) },
	"drift":   func(t *testing.T) *world { return troubled(t, failure.Drift) },
	"missing": func(t *testing.T) *world { return troubled(t, failure.Gone) },
	"lost":    func(t *testing.T) *world { return troubled(t, failure.ClaimLost) },
	"finishing": func(t *testing.T) *world {
		w := atApproval(t, strategy.StylePartition)
		w.send(rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToNew}, w.now)
		require.Equal(t, string(rollout.RouteUnpin), string(w.next().Route.Action))
		return w
	},
	"rolling back": func(t *testing.T) *world {
		w := atApproval(t, strategy.StylePartition)
		w.send(rollout.Command{Verb: rollout.VerbRollback}, w.now)
		w.next()
		return w
	},
	"ended": func(t *testing.T) *world {
		w := atApproval(t, strategy.StylePartition)
		w.send(rollout.Command{Verb: rollout.VerbRollback}, w.now)
		w.drive()
		return w
	},
}

func atApproval(t *testing.T, style strategy.Style) *world {
	w := newWorld(t, setupOf(style, true, aStep("20%", 20, -1), aStep("100%", 100, -1)), 10)
	w.drive()
	w.now = w.now.Add(time.Hour)
	return w
}

func troubled(t *testing.T, kind failure.Kind) *world {
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("20%", -1, -1), aStep("100%", -1, -1)), 10)
	w.do(w.next())
	w.next()
	w.fail(kind, "something is wrong with the workload")
	w.next()
	return w
}

// Which verb is legal in which state. A refusal names what can be done instead.
func TestVerbsByState(t *testing.T) {
	t.Parallel()
	legal := map[string][]rollout.Verb{
		"before the first step": {rollout.VerbResume, rollout.VerbStop, rollout.VerbRollback, rollout.VerbJump,
			rollout.VerbSupersede},
		"approval": {rollout.VerbApprove, rollout.VerbPause, rollout.VerbStop, rollout.VerbRollback,
			rollout.VerbJump, rollout.VerbPromote, rollout.VerbSupersede},
		"timer": {rollout.VerbApprove, rollout.VerbPause, rollout.VerbStop, rollout.VerbRollback,
			rollout.VerbJump, rollout.VerbPromote, rollout.VerbSupersede},
		"pods move": {rollout.VerbPause, rollout.VerbStop, rollout.VerbRollback, rollout.VerbJump,
			rollout.VerbPromote, rollout.VerbSupersede},
		"failed": {rollout.VerbStop, rollout.VerbRollback, rollout.VerbJump, rollout.VerbRetry,
			rollout.VerbSupersede},
		"drift":        {rollout.VerbStop, rollout.VerbRollback, rollout.VerbRetry, rollout.VerbSupersede},
		"missing":      {rollout.VerbStop},
		"lost":         {rollout.VerbStop},
		"finishing":    {rollout.VerbStop, rollout.VerbRollback},
		"rolling back": {rollout.VerbSupersede},
		"ended":        {},
	}
	for state, reach := range verbStates {
		for _, verb := range append([]rollout.Verb{rollout.VerbSupersede}, rollout.Verbs...) {
			t.Run(state+"/"+string(verb), func(t *testing.T) {
				t.Parallel()
				w := reach(t)
				outcome, message := w.send(rollout.Command{Verb: verb, ToStep: 2, Actor: "ann"}, w.now)
				want := audit.Refused
				for _, v := range legal[state] {
					if v == verb {
						want = audit.Accepted
					}
				}
				require.Equal(t, want, outcome, message)
				require.NotEmpty(t, message)
				last := w.m.Status().History[len(w.m.Status().History)-1]
				require.Equal(t, audit.Entry{At: w.now, Actor: "ann", Via: "temporal", Verb: verb, Step: last.Step,
					Outcome: outcome, Message: message}, last)
			})
		}
	}
}

func TestRefusal_NamesNextStep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, state string
		command       rollout.Command
		says          string
	}{
		{"a pause holds back an approval", "before the first step", rollout.Command{Verb: rollout.VerbApprove},
			"resume it"},
		{"a gate of another visit is stale", "approval",
			rollout.Command{Verb: rollout.VerbApprove, Gate: "0123456789abcdef"},
			"stale gate: the rollout has moved on"},
		{"a malformed gate is not called stale", "approval", rollout.Command{Verb: rollout.VerbApprove, Gate: "foo"},
			`there is no gate "foo": the waiting one is `},
		{"no gate waits while it finishes", "finishing", rollout.Command{Verb: rollout.VerbResume, Gate: "foo"},
			`there is no gate "foo": the rollout is at `},
		{"a command for another step is stale", "approval", rollout.Command{Verb: rollout.VerbPromote, Step: 2},
			"meant for step 2"},
		{"nothing failed", "approval", rollout.Command{Verb: rollout.VerbRetry}, "nothing has failed"},
		{"a failed step is not approved", "failed", rollout.Command{Verb: rollout.VerbApprove}, "retry repeats it"},
		{"a deleted workload is not rolled back", "missing", rollout.Command{Verb: rollout.VerbRollback},
			"stop restores the traffic"},
		{"a workload that the release has lost is not stopped to stable", "lost",
			rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToStable}, "stop to frozen abandons it"},
		{"finishing is not paused", "finishing", rollout.Command{Verb: rollout.VerbPause},
			"rollback or stop reverses it"},
		{"a rollback is not reversed", "rolling back", rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToNew},
			"it is rolling back"},
		{"a running rollback is not frozen", "rolling back",
			rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToFrozen}, "wait until it has ended"},
		{"an ended rollout accepts no verb", "ended", rollout.Command{Verb: rollout.VerbRollback},
			"has ended as RolledBack"},
		{"a step that does not exist", "approval", rollout.Command{Verb: rollout.VerbJump, ToStep: 3},
			"toStep is 1 to 2"},
	} {
		w := verbStates[tc.state](t)
		outcome, message := w.send(tc.command, w.now)
		require.Equal(t, audit.Refused, outcome, tc.reason)
		require.Contains(t, message, tc.says, tc.reason)
	}
}

func TestCommand_IsIdempotent_BySameKey(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	approve := rollout.Command{Verb: rollout.VerbApprove, Key: "k", Step: 1}
	first, message := w.send(approve, w.now)
	require.Equal(t, audit.Accepted, first)
	w.drive()
	n := len(w.m.Status().History)
	again, repeated := w.send(approve, w.now)
	require.Equal(t, audit.Accepted, again)
	require.Equal(t, message, repeated)
	require.Len(t, w.m.Status().History, n, "a repeated key is not a second decision")
	other, why := w.send(rollout.Command{Verb: rollout.VerbStop, Key: "k"}, w.now)
	require.Equal(t, audit.Refused, other)
	require.Contains(t, why, "take a new key")
}

func TestRollback_ReversesFinishing(t *testing.T) {
	t.Parallel()
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		w := atApproval(t, style)
		w.send(rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToNew}, w.now)
		var a Action
		for a = w.next(); a.Kind != ActFinish; a = w.next() {
			if a.Activity() {
				w.do(a)
			} else {
				w.now = *a.Until
			}
		}
		require.Equal(t, rollout.SideNew, a.Finish.To)
		outcome, message := w.send(rollout.Command{Verb: rollout.VerbRollback}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		w.drive()
		require.Equal(t, rollout.PhaseRolledBack, w.m.Status().Phase)
		require.Zero(t, w.updated)
	}
}

func TestGrace_DelaysNextAction_ButNotRollback(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("100%", 100, 0)), 10)
	w.do(w.next())
	w.do(w.next()) // pin
	a := w.next()
	require.Equal(t, ActWait, a.Kind)
	require.Equal(t, w.now.Add(3*time.Second), *a.Until, "changed routes take effect before the pods move")
	require.Equal(t, rollout.WaitTraffic, w.m.Status().WaitingFor.Kind)
	w.send(rollout.Command{Verb: rollout.VerbRollback}, w.now)
	a = w.next()
	require.Equal(t, ActRoute, a.Kind)
	require.Equal(t, rollout.RouteToStable, a.Route.Action, "a rollback takes traffic back at once")
}

// Another client edits the Deployment that has an extra workload: its pods leave the version that its Service is pinned
// to. The Service is unpinned at once, and pinned again only after a retry has restored the pods; until then it would
// select zero pods.
func TestRetryAfterDrift_RestoresPodsBeforeRoutes(t *testing.T) {
	t.Parallel()
	for style, want := range map[strategy.Style]string{
		strategy.StylePartition: "[RouteTrafficToStable move 20% move 20% EnsureRoutes]",
		strategy.StyleCanary: "[RouteTrafficToStable RestoreStableService move 20% PinStableService move 20% " +
			"EnsureRoutes]",
	} {
		w := atApproval(t, style)
		w.actions = nil
		w.hint(rollout.Observed{What: "edited"}, w.now)
		require.Equal(t, ActMove, w.next().Kind, "%s: it is inspected", style)
		w.m.Failed(Failure{Kind: failure.Drift, Message: "another client changed its pod template",
			Move: new(w.numbers())}, w.now)
		w.drive()
		require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind, style)
		require.Zero(t, w.share, style)
		w.now = w.now.Add(time.Hour) // the routes have taken effect
		outcome, message := w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		putBack := w.next()
		require.Equal(t, ActMove, putBack.Kind, "%s: the pods come first", style)
		require.True(t, putBack.Move.OverwriteDrift, style)
		w.do(putBack)
		for routed := false; !routed; {
			a := w.nextActivity()
			if a.Kind == ActRoute {
				require.True(t, a.Route.Overwrite,
					"%s: the client that edited the workload may have edited its Service", style)
				routed = a.Route.Action == rollout.RouteEnsure
			}
			w.do(a)
		}
		w.drive()
		require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind, style)
		require.Equal(t, want, fmt.Sprint(w.actions), style)
		w.send(rollout.Command{Verb: rollout.VerbApprove, Step: w.m.Status().CurrentStepIndex}, w.now)
		next := w.nextActivity()
		for ; next.Kind != ActRoute; next = w.nextActivity() {
			w.do(next)
		}
		require.False(t, next.Route.Overwrite, "%s: a later edit is left to the operator again", style)
	}
}

// A jump to another step before a retry has reached the routes does not overwrite the routes of that step.
func TestRetryAfterDrift_DoesNotOverwriteRoutes_AfterJump(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	w.hint(rollout.Observed{What: "edited"}, w.now)
	require.Equal(t, ActMove, w.next().Kind)
	w.m.Failed(Failure{Kind: failure.Drift, Message: "another client changed its pod template", Move: new(w.numbers())},
		w.now)
	w.drive()
	w.now = w.now.Add(time.Hour)
	w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	w.do(w.next()) // the pods
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbJump, ToStep: 2}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	a := w.nextActivity()
	for ; a.Kind != ActRoute; a = w.nextActivity() {
		w.do(a)
	}
	require.False(t, a.Route.Overwrite)
}

// Borrowed fields that another client changes during a pause are restored, each time with a history entry. After too
// many changes an operator has to decide.
func TestSettingsDrift_WaitsForOperator_AfterTooManyRestores(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	theirs := rollout.Observed{What: rollout.ObservedSettings, By: "argocd",
		Message: "another client has changed spec.paused of the Deployment shop/order"}
	for range rollout.MaxRestores {
		w.hint(theirs, w.now)
		a := w.next()
		require.Equal(t, ActMove, a.Kind)
		require.True(t, a.Move.Inspect, "it is inspected and restored")
		w.do(a)
		w.drive()
		require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind, "it waits for the same approval")
	}
	history := w.m.Status().History
	last := history[len(history)-1]
	require.Equal(t, "argocd", last.Actor)
	require.Equal(t, audit.Verb(VerbRestored), last.Verb)
	require.Contains(t, last.Message, "spec.paused")
	w.hint(theirs, w.now)
	w.drive()
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind)
	require.Contains(t, w.m.Status().Reason, "spec.paused of the Deployment shop/order for the 6th time")
	require.Zero(t, w.share, "traffic goes to the stable pods")
	w.hint(theirs, w.now)
	w.drive()
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind, "the change is not reverted again")
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	w.now = w.now.Add(time.Hour)
	w.drive()
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
}

// A hint names the claim and the object that it was seen on: any user can write this release's claim onto another
// object.
func TestHint_IsIgnored_ForForeignObjectOrClaim(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		claim, object string
		heeded        bool
	}{
		"its own workload":                {"claim@1", "Deployment shop/order", true},
		"the extra workload that it made": {"claim@1", "Deployment shop/order-canary", true},
		"a hint of an earlier build":      {"", "", true},
		"its claim on another workload":   {"claim@1", "Deployment shop/other", false},
		"in another namespace":            {"claim@1", "Deployment bank/order", false},
		"of another kind":                 {"claim@1", "StatefulSet shop/order", false},
		"another run's claim":             {"claim@2", "Deployment shop/order", false},
		"another engine's claim":          {"claim@1@b/uid-b", "Deployment shop/order", false},
		"a truncated claim":               {"claim", "Deployment shop/order", false},
	} {
		w := atApproval(t, strategy.StylePartition)
		w.m.setup.Claim = "claim@1"
		before := len(w.m.Status().History)
		w.hint(rollout.Observed{What: rollout.ObservedSettings, Message: "m", Claim: c.claim, Object: c.object},
			w.now)
		if c.heeded {
			require.Equal(t, ActMove, w.next().Kind, reason)
			continue
		}
		require.NotEqual(t, ActMove, w.next().Kind, reason)
		require.Len(t, w.m.Status().History, before, reason)
	}
}

// A hint that comes during another action is not lost: it is not sent a second time.
func TestHint_IsKept_WhileRoutesAreWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("100%", 100, -1)), 10)
	for {
		a := w.next()
		if a.Kind == ActRoute && a.Route.Action == rollout.RouteEnsure {
			w.hint(rollout.Observed{What: "edited"}, w.now)
			break
		}
		require.True(t, a.Activity() || a.Until != nil,
			"the first step's routes are made before it waits for an approval")
		if a.Activity() {
			w.do(a)
		} else {
			w.now = *a.Until
		}
	}
	a := w.next()
	for a.Kind == ActWait && a.Until != nil {
		w.now = *a.Until
		a = w.next()
	}
	require.Equal(t, ActMove, a.Kind)
	require.True(t, a.Move.Inspect, "the workload is inspected before the approval")
}

// An approval does not expire while it cannot be given.
func TestPause_StopsApprovalExpiry(t *testing.T) {
	t.Parallel()
	setup := setupOf(strategy.StylePartition, false, aStep("20%", -1, -1), aStep("100%", -1, -1))
	setup.Spec.Policy.ApprovalExpiresSeconds, setup.Spec.Policy.OnExpiry = 60, strategy.OnFailureRollback
	w := newWorld(t, setup, 10)
	w.drive()
	w.send(rollout.Command{Verb: rollout.VerbPause}, w.now)
	w.next()
	w.now = w.now.Add(time.Hour)
	w.send(rollout.Command{Verb: rollout.VerbResume}, w.now)
	require.Equal(t, rollout.WaitApproval, w.next().waitKind, "it waits for the approval again instead of rolling back")
}
