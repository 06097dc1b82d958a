package pods_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// TestHalt_LeavesPausedState_WhenStepInterrupted: a halt leaves the same state on the workload as a paused step, at any
// point of the step.
func TestHalt_LeavesPausedState_WhenStepInterrupted(t *testing.T) {
	t.Parallel()
	rolling := func(unavailable, surge int) string {
		return fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%d,"maxUnavailable":%d}}`, surge,
			unavailable)
	}
	for _, tc := range []struct {
		reason, template string
		back             bool
		live, want       string
		surge            int32
	}{
		{"the limit equals the new pods: paused, it is its own", newTemplate, false, rolling(8, 0), rolling(3, 0), 0},
		{"on a rollback", stableTemplate, true, rolling(6, 0), rolling(3, 0), 0},
		{"another client's template with the rollout's limits is paused as well", "t-other", false, rolling(8, 0),
			rolling(3, 0), 0},
		{"surged pods stay: a paused Deployment is scaled to its size and its surge", newTemplate, false, rolling(4, 2),
			rolling(3, 2), 2},
	} {
		w := newToy(10, rolling(3, 0))
		tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
		begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
			Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
		require.True(t, w.write(begun.Write, w.generation))
		before := maps.Clone(w.settings)
		w.template = tc.template
		w.settings["/spec/strategy"], w.settings["/spec/minReadySeconds"] = json.RawMessage(tc.live),
			json.RawMessage("2147483646")
		w.settings["/spec/progressDeadlineSeconds"] = json.RawMessage("2147483647")
		req := rollout.MoveRequest{Subject: subject(), Step: 2, Style: strategy.StylePartition,
			Replicas: intstr.FromString("100%"), Template: newTemplate, Halt: true, Back: tc.back, From: 8}
		d := pods.Move(tech, req, w.observe())
		require.NotEmpty(t, d.Reason, tc.reason)
		require.Equal(t, int32(10), d.Numbers.Replicas, "%s: its counts are reported", tc.reason)
		require.Equal(t, workload.ActWrite, d.Action, tc.reason)
		require.True(t, d.Ends, "%s: nothing is waited for", tc.reason)
		require.Nil(t, d.Write.Template, tc.reason)
		require.Equal(t, ourClaim, d.Write.ExpectedClaim, tc.reason)
		require.True(t, w.write(d.Write, w.generation), tc.reason)
		rest := w.observe().Rest
		require.NotNil(t, rest, "%s: its state is recorded, so that another client's edit is noticed", tc.reason)
		require.Equal(t, tc.surge, rest.Surge, tc.reason)
		require.Equal(t, tc.template, rest.Template, tc.reason)
		require.Empty(t, rest.ChangedFields(w.settings), tc.reason)
		require.Contains(t, rest.Settings, "/spec/paused", tc.reason)
		before["/spec/paused"], before["/spec/strategy"] = json.RawMessage("true"), json.RawMessage(tc.want)
		require.Equal(t, before, w.settings, "%s: all else is its own again", tc.reason)
		require.Equal(t, workload.ActDone, pods.Move(tech, req, w.observe()).Action, "%s: then it is done",
			tc.reason)
	}
}

// TestHalt_WritesNothing_BeforeFirstPodOrWithoutClaim: a halt writes nothing before the first pod, nor on a workload
// that another release has claimed.
func TestHalt_WritesNothing_BeforeFirstPodOrWithoutClaim(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":3}}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
		Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition,
		Replicas: intstr.FromString("100%"), Halt: true}
	require.Equal(t, workload.ActDone, pods.Move(tech, req, w.observe()).Action, "it has its own limits")
	w.claim = "somebody@else"
	d := pods.Move(tech, req, w.observe())
	require.Equal(t, workload.ActFail, d.Action)
	require.Equal(t, failure.ClaimLost, d.Failure.Kind)
}

// TestHaltKeepsLimits_AtAnyMoment interrupts a step of a toy Deployment anywhere and halts it. Then another client
// edits the template, or the step continues: nothing removes more ready pods than its own limits allow, and a continued
// step reaches the same end.
func TestHaltKeepsLimits_AtAnyMoment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, _ := anyInPlace(t, 1)
		w, size := r.w, r.w.replicas
		req := rollout.MoveRequest{Subject: subject(), Step: 2, Style: strategy.StylePartition,
			Replicas: intstr.FromInt32(size)}
		first := int32(rapid.IntRange(0, int(size)).Draw(t, "first"))
		if first == 0 {
			r.begin(nil)
		} else {
			r.begin(r.anyFirst(intstr.FromInt32(first), false))
			r.move(1, intstr.FromInt32(first), false, 0)
			req.Template = newTemplate
			if rapid.Bool().Draw(t, "back") {
				req.Back, req.From, req.Replicas = true, first, intstr.FromString("100%")
			}
		}
		// its own controller replaces what it may, at any number of the step
		if req.Native = !req.Back && rapid.Bool().Draw(t, "native"); req.Native {
			req.Replicas = intstr.FromInt32(int32(rapid.IntRange(1, int(size)).Draw(t, "told")))
		}
		r.interrupted(req, rapid.IntRange(0, 60).Draw(t, "moves"))
		req.Halt = true
		r.until("halt", func(seen pods.Observed) pods.NextAction { return pods.Move(r.tech, req, seen) })
		r.stuck("halted")
		if rapid.Bool().Draw(t, "goes on") {
			req.Halt = false
			r.until("what goes on", func(seen pods.Observed) pods.NextAction { return pods.Move(r.tech, req, seen) })
			if req.Native {
				r.quiet("what goes on")
			}
			want := map[bool]int32{false: size}[req.Back]
			if n := w.set(newTemplate).asked; n != want {
				t.Fatalf("%d pods are new, %d should be", n, want)
			}
			return
		}
		// before any pod has moved, nothing of the rollout is on it
		moved, begun := w.pods(), string(w.settings["/spec/paused"]) == "true"
		w.template = rapid.SampledFrom([]string{stableTemplate, "t-other"}).Draw(t, "edited to")
		w.generation++
		r.stuck("edited")
		r.quiet("edited")
		if live := w.set(w.template); live != nil && live.asked == w.replicas {
			// a paused Deployment whose newest ReplicaSet is complete removes the others: this happens only after a
			// halted surge
			return
		}
		if now := w.pods(); begun && now != moved {
			t.Fatalf("an edit during a pause moves no pod: %s were desired, now %s", moved, now)
		}
	})
}

// stuck lets the controllers work while no pod gets ready any more.
func (r *run) stuck(what string) {
	for range 20 {
		r.w.hear()
		r.w.sync()
		r.check(what)
		for _, s := range r.w.sets {
			s.settle()
		}
		r.w.report()
		r.check(what)
	}
}

// interrupted lets an activity and the cluster work for a while.
func (r *run) interrupted(req rollout.MoveRequest, moves int) {
	for range moves {
		switch m := rapid.IntRange(0, 9).Draw(r.t, "move"); {
		case m < 3:
			r.step("interrupted", func(seen pods.Observed) pods.NextAction { return pods.Move(r.tech, req, seen) })
		case m < 5:
			r.sync()
		case m < 8:
			r.w.sets[rapid.IntRange(0, len(r.w.sets)-1).Draw(r.t, "set")].settle()
			r.w.report()
		default:
			r.kubelet()
		}
		r.check("interrupted")
	}
}

// Strategy type Recreate is restored last, in the write that releases the claim, when no old pod is left for it to
// remove.
func TestFinishRelease_RestoresRecreateLast(t *testing.T) {
	t.Parallel()
	tech, ok := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	require.True(t, ok)
	own := json.RawMessage(`{"type":"Recreate"}`)
	seen := pods.Observed{
		Snapshot: workload.Snapshot{Claim: ourClaim, Replicas: 2, Ready: 2, Settings: map[string]json.RawMessage{
			"/spec/strategy": json.RawMessage(`{"type":"RollingUpdate"}`)}},
		Saved: &rollout.Saved{Claim: ourClaim, Style: strategy.StylePartition,
			Settings: map[string]json.RawMessage{"/spec/strategy": own}},
	}
	d := pods.Finish(tech, rollout.FinishRequest{Subject: subject(), Action: rollout.FinishRelease,
		To: rollout.SideStable}, seen)
	require.NotNil(t, d.Write, d.Reason)
	require.True(t, d.Write.Release && d.Ends, "the claim goes with it")
	require.Equal(t, []workload.Setting{{Path: "/spec/strategy", Value: own}}, d.Write.Settings)
}

// TestRolloutWritesNothing_WhileUserRepairsWorkload: while a user repairs a workload, no Move and no Finish writes to
// it, and the failure names the user.
func TestRolloutWritesNothing_WhileUserRepairsWorkload(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	begin := rollout.BeginRequest{Subject: subject(), Strategy: strategy.Strategy{Style: strategy.StylePartition}}
	seen := w.observe()
	seen.Repairer = "anna"
	d := pods.Begin(tech, begin, seen)
	require.Equal(t, failure.Refused, d.Failure.Kind, "a rollout does not begin on it")
	require.Contains(t, d.Reason, "is being repaired by anna: nothing is written to it")

	begun := pods.Begin(tech, begin, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	seen = w.observe()
	seen.Repairer = "anna"
	move := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition,
		Replicas: intstr.FromString("20%"), Template: newTemplate, OverwriteDrift: true}
	for reason, d := range map[string]pods.NextAction{
		"no pod is moved": pods.Move(tech, move, seen),
		"it is not finalised": pods.Finish(tech,
			rollout.FinishRequest{Subject: subject(), Action: rollout.FinishResume, To: rollout.SideStable}, seen),
		"nor is the claim released": pods.Finish(tech,
			rollout.FinishRequest{Subject: subject(), Action: rollout.FinishFreeze}, seen),
	} {
		require.NotNil(t, d.Failure, reason)
		require.Equal(t, failure.Drift, d.Failure.Kind, reason)
		require.Contains(t, d.Failure.Message, "remove its annotation slipway.io/repair", reason)
	}
}

// A halted rollout keeps its autoscalers pinned, like a running one. An autoscaler that was not pinned yet is left
// alone.
func TestHalt_PinsAutoscalersAgain_WhenEdited(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleBlueGreen)
	for _, tc := range []struct {
		reason     string
		autoscaler pods.Autoscaler
		pins       bool
	}{
		{"another client has changed its limits", pods.Autoscaler{Name: "web", Pinned: true, Edited: true}, true},
		{"it is still pinned", pods.Autoscaler{Name: "web", Pinned: true}, false},
		{"it was not pinned yet", pods.Autoscaler{Name: "web"}, false},
		{"it is not this rollout's", pods.Autoscaler{Name: "other", Pinned: true, Edited: true}, false},
	} {
		w := newToy(4, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}`)
		seen := w.observe()
		seen.Autoscalers = []pods.Autoscaler{{Name: "web"}}
		begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
			Strategy: strategy.Strategy{Style: strategy.StyleBlueGreen}}, seen)
		require.True(t, w.write(begun.Write, w.generation))
		w.settleAll()
		seen = w.observe()
		seen.Autoscalers = []pods.Autoscaler{tc.autoscaler}
		d := pods.Move(tech, rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StyleBlueGreen,
			Replicas: intstr.FromInt32(2), Halt: true}, seen)
		require.Equal(t, tc.pins, d.Autoscaler != nil && d.Autoscaler.Pin != nil, "%s: %s", tc.reason, d.Reason)
	}
}
