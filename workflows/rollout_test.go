package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

func TestRolloutExecutesItsSteps(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	p.grace = 3
	in := rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, -1), stepOf("50%", 50, 3600),
		stepOf("100%", -1, -1))
	answer := p.ask(48*time.Hour, rollout.VerbApprove,
		RolloutVerbRequest{VerbRequest: VerbRequest{Actor: "bob", Via: "http", Key: "k1"}, Step: 1})
	s := p.run(in)
	require.NoError(t, p.GetWorkflowError())
	require.Equal(t, audit.Accepted, answer.Outcome, answer.Message)
	require.Equal(t, []string{"begin", "PinStableService", "move 20%", "route 20%", "move 50%", "route 50%",
		"RestoreStableService", "RouteTrafficToStable", "RemoveCanaryService", "move 100%",
		"RestoreStableService", "RouteTrafficToStable", "RemoveCanaryService", "ResumeWorkload new",
		"ReleaseWorkloadControl", "record"}, p.calls)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Equal(t, -1, s.NextStepIndex)
	require.Equal(t, rollout.StateCompleted, s.CurrentStepState)
	require.NotNil(t, s.FinishedAt)
	require.GreaterOrEqual(t, s.FinishedAt.Sub(in.CreatedAt), 49*time.Hour)
	require.Equal(t, int32(10), s.CanaryReplicas)
	var decisions []string
	for _, d := range s.History {
		decisions = append(decisions, d.Actor+" "+string(d.Verb))
	}
	require.Equal(t, []string{"ann start", "bob approve", "timer elapsed"}, decisions,
		"decisions of users and of rules are kept")
}

func TestRolloutWithoutTrafficCostsOneActivityPerStep(t *testing.T) {
	t.Parallel()
	p := newParty(t, 4)
	s := p.run(rolloutOf(strategy.StylePartition, false, stepOf("25%", -1, 0), stepOf("50%", -1, 0),
		stepOf("100%", -1, 0)))
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Equal(t, []string{"begin", "move 25%", "move 50%", "move 100%", "ResumeAndRelease new", "record"}, p.calls)
	require.LessOrEqual(t, p.upserts, 2, "search attributes are written at the start and at the end, not for each step")
}

func TestRolloutStepWithTrafficAndApproval_CostsAtMost30Events(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	p.grace = 3
	timers := 0
	p.SetOnTimerScheduledListener(func(string, time.Duration) { timers++ })
	in := rolloutOf(strategy.StyleCanary, true, stepOf("20%", 20, -1), stepOf("40%", 40, -1), stepOf("60%", 60, -1))
	var calls, upserts, timersAt []int
	for i := range 3 {
		p.at(time.Duration(i+1)*time.Hour, func() {
			calls, upserts, timersAt = append(calls, len(p.calls)), append(upserts, p.upserts), append(timersAt, timers)
			p.SignalWorkflow(string(rollout.VerbApprove), nil)
		})
	}
	p.run(in)
	// Activities are 3 events and a workflow task of 3, timers 2 and a workflow task, upserts 1, an approval 2 and a
	// workflow task.
	activities, waits, lists := calls[2]-calls[1], timersAt[2]-timersAt[1], upserts[2]-upserts[1]
	require.Equal(t, 2, activities, "pods, then traffic")
	require.LessOrEqual(t, 6*activities+5*waits+lists+5, 30, "activities %d, timers %d, upserts %d", activities, waits,
		lists)
}

func TestRolloutEndings(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		style   strategy.Style
		traffic bool
		verb    rollout.Verb
		to      rollout.StopTo
		calls   []string
		phase   rollout.Phase
	}{
		"rollback of a partition": {
			reason: "traffic leaves before the pods, and the Service stays pinned until the new pods are deleted",
			style:  strategy.StylePartition, traffic: true, verb: rollout.VerbRollback,
			calls: []string{"RouteTrafficToStable", "ResumeWorkload stable", "RestoreStableService",
				"RemoveCanaryService", "ReleaseWorkloadControl"}, phase: rollout.PhaseRolledBack},
		"rollback of a blue-green": {
			reason: "the old pods get the traffic back at once", style: strategy.StyleBlueGreen, traffic: true,
			verb: rollout.VerbRollback,
			calls: []string{"RouteTrafficToStable", "ResumeWorkload stable", "RestoreStableService",
				"RemoveCanaryService", "ReleaseWorkloadControl"}, phase: rollout.PhaseRolledBack},
		"stop": {
			reason: "stop means stable by default", style: strategy.StylePartition, verb: rollout.VerbStop,
			calls: []string{"ResumeAndRelease stable"}, phase: rollout.PhaseRolledBack},
		"stop to new with an extra workload": {
			reason: "the extra workload serves its share until the workload itself is new", style: strategy.StyleCanary,
			traffic: true, verb: rollout.VerbStop, to: rollout.StopToNew,
			calls: []string{"RestoreStableService", "ResumeWorkload new", "RouteTrafficToStable", "RemoveCanaryService",
				"ReleaseWorkloadControl"}, phase: rollout.PhaseHealthy},
		"stop to new of a blue-green": {
			reason: "with few new pods, traffic goes to all pods", style: strategy.StyleBlueGreen, traffic: true,
			verb: rollout.VerbStop, to: rollout.StopToNew,
			calls: []string{"RestoreStableService", "RouteTrafficToStable", "RemoveCanaryService", "ResumeWorkload new",
				"ReleaseWorkloadControl"}, phase: rollout.PhaseHealthy},
		"stop to frozen": {
			reason: "split and traffic stay", style: strategy.StylePartition, traffic: true, verb: rollout.VerbStop,
			to:    rollout.StopToFrozen,
			calls: []string{"Freeze"}, phase: rollout.PhaseCancelled},
		"approved blue-green": {
			reason: "all traffic goes to the new pods before the old ones are deleted", style: strategy.StyleBlueGreen,
			traffic: true, verb: rollout.VerbApprove,
			calls: []string{"RouteTrafficToNew", "RestoreStableService", "ResumeWorkload new", "RouteTrafficToStable",
				"RemoveCanaryService", "ReleaseWorkloadControl"}, phase: rollout.PhaseHealthy},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParty(t, 10)
			p.send(time.Hour, tc.verb, RolloutVerbRequest{To: tc.to})
			before := 0
			p.at(time.Hour-time.Second, func() { before = len(p.calls) })
			steps := []strategy.Step{stepOf("50%", 50, -1)}
			if tc.style == strategy.StyleBlueGreen {
				steps = []strategy.Step{stepOf("100%", 50, -1)}
			}
			if !tc.traffic {
				steps[0].Traffic = nil
			}
			s := p.run(rolloutOf(tc.style, tc.traffic, steps...))
			require.Equal(t, append(tc.calls, "record"), p.calls[before:], tc.reason)
			require.Equal(t, tc.phase, s.Phase, tc.reason)
			require.Equal(t, tc.to == rollout.StopToFrozen, s.Frozen, tc.reason)
			require.NotEmpty(t, s.Reason)
		})
	}
}

func TestRolloutGatesAreAcceptedOnce(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	var gate string
	p.at(time.Hour-time.Second, func() { gate = p.status().WaitingFor.Gate })
	var first, again, second, stale, wrongStep VerbResponse
	approve := func(request RolloutVerbRequest, answer *VerbResponse) {
		p.updateNow("approve", request.Key+t.Name()+request.Gate+request.Via, request, answer)
	}
	p.at(time.Hour, func() { approve(RolloutVerbRequest{VerbRequest: VerbRequest{Key: "a"}, Gate: gate}, &first) })
	p.at(2*time.Hour, func() {
		approve(RolloutVerbRequest{VerbRequest: VerbRequest{Key: "a", Via: "cli"}, Gate: gate}, &again)
		approve(RolloutVerbRequest{VerbRequest: VerbRequest{Key: "b"}, Gate: gate}, &stale)
		approve(RolloutVerbRequest{VerbRequest: VerbRequest{Key: "c"}, Step: 1}, &wrongStep)
	})
	p.at(3*time.Hour, func() { approve(RolloutVerbRequest{VerbRequest: VerbRequest{Key: "d"}}, &second) })
	s := p.run(rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, -1), stepOf("50%", -1, -1)))
	require.NotEmpty(t, gate)
	require.Equal(t, audit.Accepted, first.Outcome)
	require.Equal(t, "a", s.History[1].Key)
	require.Equal(t, first.Message, again.Message, "the same key is the same command")
	require.Equal(t, audit.Refused, stale.Outcome, "the gate of a passed step is stale")
	require.Equal(t, string(rollout.PhaseProgressing), stale.State, "a refusal contains the current state")
	require.Equal(t, audit.Refused, wrongStep.Outcome, "an approval meant for step 1 does not approve step 2")
	require.Equal(t, audit.Accepted, second.Outcome)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
}

func TestRolloutApprovalExpires(t *testing.T) {
	t.Parallel()
	in := rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, -1), stepOf("100%", -1, 0))
	in.Spec.Policy.ApprovalExpiresSeconds = 3600
	t.Run("the policy rolls back", func(t *testing.T) {
		t.Parallel()
		p, in := newParty(t, 10), in
		in.Spec.Policy.OnExpiry = strategy.OnFailureRollback
		s := p.run(in)
		require.Equal(t, rollout.PhaseRolledBack, s.Phase)
		require.Equal(t, "policy", s.History[len(s.History)-1].Actor)
	})
	t.Run("the policy waits", func(t *testing.T) {
		t.Parallel()
		p, in := newParty(t, 10), in
		late := p.ask(2*time.Hour, rollout.VerbApprove, RolloutVerbRequest{})
		resumed := p.ask(3*time.Hour, rollout.VerbResume, RolloutVerbRequest{})
		p.send(3*time.Hour+time.Minute, rollout.VerbApprove, RolloutVerbRequest{})
		s := p.run(in)
		require.Equal(t, audit.Refused, late.Outcome, "a late approval is refused")
		require.Equal(t, string(rollout.PhaseProgressing), late.State)
		require.Equal(t, audit.Accepted, resumed.Outcome)
		require.Equal(t, rollout.PhaseHealthy, s.Phase)
	})
}

func TestRolloutJumps(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	p.send(1*time.Hour, rollout.VerbJump, RolloutVerbRequest{ToStep: 3})
	p.send(2*time.Hour, rollout.VerbJump, RolloutVerbRequest{ToStep: 1})
	nowhere := p.ask(3*time.Hour, rollout.VerbJump, RolloutVerbRequest{ToStep: 7})
	var during rollout.Status
	p.at(3*time.Hour+time.Minute, func() { during = p.status() })
	p.send(4*time.Hour, rollout.VerbPromote, RolloutVerbRequest{})
	s := p.run(rolloutOf(strategy.StyleCanary, true, stepOf("20%", 20, -1), stepOf("40%", 40, -1),
		stepOf("60%", 60, -1)))
	require.Equal(t, audit.Refused, nowhere.Outcome)
	require.Equal(t, int32(6), during.CanaryReplicas, "a jump back moves no pods")
	require.Equal(t, int32(20), during.Traffic.CanaryWeight, "a jump back moves traffic")
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
}

func TestRolloutRollsBackInBatches(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := rolloutOf(strategy.StylePartition, true, stepOf("50%", 50, 0), stepOf("80%", 80, -1))
	in.Spec.Policy.RollbackInBatches = true
	p.send(time.Hour, rollout.VerbRollback, RolloutVerbRequest{})
	p.send(2*time.Hour, rollout.VerbApprove, RolloutVerbRequest{})
	before := 0
	p.at(time.Hour-time.Second, func() { before = len(p.calls) })
	s := p.run(in)
	require.Equal(t, []string{"RouteTrafficToStable", "back 50%", "back 80%", "RouteTrafficToStable",
		"ResumeWorkload stable", "RestoreStableService", "RemoveCanaryService",
		"ReleaseWorkloadControl", "record"}, p.calls[before:])
	require.Equal(t, rollout.PhaseRolledBack, s.Phase)
}

func TestRolloutContinuesAsNew_WhilePaused(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, 7200), stepOf("100%", 100, 0))
	var before rollout.Status
	p.at(time.Hour, func() {
		before = p.status()
		p.SetContinueAsNewSuggested(true)
		p.SignalWorkflow(string(rollout.VerbRetry), nil) // refused, and not lost
	})
	p.ExecuteWorkflow(TypeRollout, in)
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, p.GetWorkflowError(), &again)
	require.Nil(t, p.recorded, "a rollout that continues as new has not ended")
	var next RolloutInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	require.Equal(t, audit.Refused, next.State.Log.Entries[1].Outcome)

	after := newParty(t, 10)
	after.updated, after.share, after.pinned = p.updated, p.share, p.pinned
	after.SetStartTime(time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC))
	var resumed rollout.Status
	after.at(time.Minute, func() { resumed = after.status() })
	s := after.run(next)
	require.Equal(t, before.WaitingFor.Until, resumed.WaitingFor.Until, "a pause ends at its original time")
	require.Equal(t, before.WaitingFor.Since, resumed.WaitingFor.Since)
	require.Equal(t, []string{"RestoreStableService", "move 100%", "route 100%"}, after.calls[:3],
		"no action is repeated")
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.GreaterOrEqual(t, s.FinishedAt.Sub(in.CreatedAt), 2*time.Hour)
}

func TestRolloutPageShowsHowToContinue(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	var page string
	var signals []string
	p.at(time.Hour, func() {
		value, err := p.QueryWorkflow("__temporal_workflow_metadata")
		require.NoError(t, err)
		var m sdkpb.WorkflowMetadata
		require.NoError(t, value.Get(&m))
		page = m.GetCurrentDetails()
		for _, s := range m.GetDefinition().GetSignalDefinitions() {
			require.Contains(t, s.GetDescription(), "Payload:")
			signals = append(signals, s.GetName())
		}
		p.SignalWorkflow("aprove", nil)
	})
	refused := ""
	p.at(2*time.Hour, func() { refused = rolloutDetails(p.status(), time.Now()); p.SignalWorkflow("approve", nil) })
	var steps []strategy.Step
	for range 50 {
		steps = append(steps, stepOf("20%", 20, -1))
	}
	p.send(3*time.Hour, rollout.VerbRollback, RolloutVerbRequest{})
	p.run(rolloutOf(strategy.StylePartition, true, steps...))
	require.Less(t, len(page), 4096)
	for _, part := range []string{"It waits for you", "`approve`", "slipway rollout approve shop/order",
		"waiting for approval", "Waits for **approval** since", "20% new, 80% stable"} {
		require.Contains(t, page, part)
	}
	require.ElementsMatch(t, []string{"approve", "pause", "resume", "stop", "rollback", "jump", "retry", "promote"},
		signals)
	require.Contains(t, refused, "there is no signal", "a misspelt signal is answered on the page")
}
