package pods_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Right after `kubectl create deployment` there is no single stable revision yet. That passes, so it is not a refusal.
func TestBegin_WaitsOrRefusesAsAsked_WhenOwnUpdateUnderWay(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	settled := newToy(4, `{"type":"RollingUpdate"}`).observe()
	for _, c := range []struct {
		reason string
		change func(*pods.Observed)
		want   string
	}{
		{"its controller has not made all pods of the newest template", func(o *pods.Observed) {
			o.Updated = 1
		}, "still being updated: 1 of 4 pods"},
		{"old pods are still there", func(o *pods.Observed) {
			o.Total = 5
		}, "4 of 4 pods are of its newest template, 5 in all"},
		{"its controller has not processed the last change", func(o *pods.Observed) {
			o.Generation++
		}, "has not processed its last change yet"},
		{"no ReplicaSet is there yet", func(o *pods.Observed) { o.Revisions = nil }, "has not recorded the revision"},
	} {
		seen := settled
		c.change(&seen)
		require.Empty(t, pods.RefusalReason(tech, subject(), seen), c.reason)
		require.Contains(t, pods.UnsettledReason(tech, subject(), seen), c.want, c.reason)

		ask := func(how rollout.Unsettled, elapsed time.Duration) pods.NextAction {
			seen.Elapsed = elapsed
			s := subject()
			s.DeadlineSeconds = 60
			return pods.Begin(tech, rollout.BeginRequest{Subject: s,
				Strategy: strategy.Strategy{Style: strategy.StylePartition}, Unsettled: how}, seen)
		}
		d := ask("", 0)
		if seen.Lagging() {
			require.Equal(t, workload.ActWait, d.Action, "%s: that takes a moment", c.reason)
		} else {
			require.Equal(t, workload.ActFail, d.Action, "%s: a request that does not wait is refused", c.reason)
			require.Equal(t, failure.Refused, d.Failure.Kind)
		}
		d = ask(rollout.UnsettledReport, 0)
		require.Equal(t, workload.ActDone, d.Action, c.reason)
		require.Contains(t, d.Begun.Unsettled, c.want, c.reason)
		d = ask(rollout.UnsettledWait, 59*time.Second)
		require.Equal(t, workload.ActWait, d.Action, c.reason)
		require.Contains(t, d.Reason, c.want, c.reason)
		d = ask(rollout.UnsettledWait, time.Minute)
		require.Equal(t, workload.ActFail, d.Action, c.reason)
		require.Equal(t, failure.Refused, d.Failure.Kind, "%s: nothing was done, so that the rollout ends", c.reason)
		require.Contains(t, d.Reason, "did not end within 60 s", c.reason)
	}
	require.Empty(t, pods.UnsettledReason(tech, subject(), settled), "a settled workload is claimed")
	d := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
		Strategy: strategy.Strategy{Style: strategy.StylePartition}, Unsettled: rollout.UnsettledReport}, settled)
	require.Equal(t, workload.ActWrite, d.Action, d.Reason)
}

// A release never takes over what another engine has on a workload, neither a live claim nor a frozen split, even if
// the request declares that release dead.
func TestBegin_IsRefused_WhenAnotherEngineHoldsOrFrozeWorkload(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	const ours, theirs = "rollout/default/shop/order@2@a/uid-a", "rollout/default/shop/order@1@b/uid-b"
	begin := func(claim, takeOver, standing, savedBy string) pods.NextAction {
		seen := newToy(4, `{"type":"RollingUpdate"}`).observe()
		seen.Claim = standing
		if savedBy != "" {
			seen.Saved = &rollout.Saved{Name: "order", Style: strategy.StylePartition, Stable: "stable", Claim: savedBy}
		}
		s := subject()
		s.Claim, s.TakeOver = claim, takeOver
		return pods.Begin(tech, rollout.BeginRequest{Subject: s,
			Strategy: strategy.Strategy{Style: strategy.StylePartition}}, seen)
	}
	live := begin(ours, theirs, theirs, theirs)
	require.Equal(t, failure.Claimed, live.Failure.Kind, "even if the centre declares it dead")
	require.Contains(t, live.Failure.Message, "is being released by rollout/default/shop/order of engine b")
	require.Equal(t, theirs, live.Failure.Holder)
	frozen := begin(ours, "", "", theirs)
	require.Equal(t, failure.Refused, frozen.Failure.Kind)
	require.Contains(t, frozen.Failure.Message, "carries what rollout/default/shop/order of engine b has left on it: "+
		"only engine b can take over its own claims")
	require.Contains(t, frozen.Failure.Message, "slipway repair shop/order --to stable --engine b")
	own := "rollout/default/shop/order@1@a/uid-a"
	require.Equal(t, ours, begin(ours, own, own, own).Write.Claim, "its own dead one is taken over")
	require.Equal(t, ours, begin(ours, "", "", "rollout/default/shop/order@1").Write.Claim,
		"and so is what an earlier build left frozen")
}

// What a release has left that has ended since and given everything back is a copy: nothing of it is followed. What a
// dead or a frozen one has left is taken over, once the centre has been asked.
func TestBegin_FollowsNothing_OfEndedRelease(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	const ours, theirs = "rollout/default/shop/order@2@a/uid-a", "rollout/default/shop/order@1@a/uid-a"
	for _, c := range []struct {
		reason, claim, takeOver string
		ended, asks, adopts     bool
	}{
		{"a claim that the release has not asked about yet", theirs, "", false, true, false},
		{"a dead release's claim", theirs, theirs, false, false, true},
		{"an ended release's claim", theirs, theirs, true, false, false},
		{"a split without a claim that the release has not asked about yet", "", "", false, true, false},
		{"a frozen split", "", theirs, false, false, true},
		{"a split that a later release has finished", "", theirs, true, false, false},
	} {
		seen := newToy(4, `{"type":"RollingUpdate"}`).observe()
		seen.Claim, seen.Rest = c.claim, &rollout.SettledState{Template: "old", Replicas: 9}
		seen.Saved = &rollout.Saved{Name: "order", Style: strategy.StylePartition, Stable: "old", Claim: theirs}
		s := subject()
		s.Claim, s.TakeOver, s.Ended = ours, c.takeOver, c.ended
		d := pods.Begin(tech, rollout.BeginRequest{Subject: s, AskSaved: true,
			Strategy: strategy.Strategy{Style: strategy.StylePartition}}, seen)
		if c.asks {
			require.Equal(t, failure.Claimed, d.Failure.Kind, c.reason)
			require.Equal(t, theirs, d.Failure.Holder, c.reason)
			continue
		}
		require.Equal(t, ours, d.Write.Claim, c.reason)
		require.Equal(t, c.claim, d.Write.ExpectedClaim, c.reason)
		if c.adopts {
			require.Nil(t, d.Begun, c.reason)
			continue
		}
		require.Nil(t, d.Begun.Adopted, c.reason)
		saved, err := rollout.ParseSaved(d.Write.Annotations[workload.AnnotationRollout])
		require.NoError(t, err, c.reason)
		require.Equal(t, ours, saved.Claim, "%s: the workload as it is now is saved", c.reason)
		require.Contains(t, d.Write.Remove, rollout.AnnotationSettled, c.reason)
	}
}

func TestReadSaved_IsRefused_WhenFieldIsNeverBorrowed(t *testing.T) {
	t.Parallel()
	for _, ref := range []catalog.WorkloadRef{
		{APIVersion: "apps/v1", Kind: "Deployment"}, {APIVersion: "apps/v1", Kind: "StatefulSet"},
		{APIVersion: "apps/v1", Kind: "DaemonSet"},
		{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet"},
		{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet"},
		{APIVersion: "apps.kruise.io/v1alpha1", Kind: "DaemonSet"},
	} {
		borrowed := 0
		for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
			tech, known := pods.TechniqueOf(ref, style)
			if !known {
				continue
			}
			for _, path := range tech.Pointers() {
				saved, err := pods.ReadSaved(ref, `{"style":"`+string(style)+`","settings":{"`+path+`":null}}`)
				require.NoError(t, err, "%s %s gives %s back", ref.Kind, style, path)
				require.Contains(t, saved.Settings, path)
				borrowed++
			}
		}
		require.Positive(t, borrowed, ref.Kind)
		for _, path := range []string{"/spec/template", "/spec/template/spec/serviceAccountName", "/spec/selector",
			"/spec/replicas", "/metadata/ownerReferences",
			"/metadata/finalizers", "/metadata/annotations/a", "/metadata/labels/a", "/spec", "/status", "/"} {
			_, err := pods.ReadSaved(ref, `{"style":"partition","settings":{"`+path+`":{}}}`)
			require.EqualError(t, err, "another client has added "+path+", which no rollout of a "+ref.Kind+" borrows")
		}
	}
}

// The workload is written once if its pods move at once, and the claim is written alone if something else may come
// first.
func TestBeginWithMove_CombinesWrites_WhenMoveBorrowsNothing(t *testing.T) {
	t.Parallel()
	rolling := `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}`
	foreseen := &rollout.PredictedTemplate{From: stableTemplate, Template: newTemplate}
	for _, c := range []struct {
		reason string
		style  strategy.Style
		first  *rollout.MoveRequest
		step   string
	}{
		{"its own controller goes to the end", strategy.StylePartition,
			&rollout.MoveRequest{Native: true, Predicted: foreseen}, "begin+native"},
		{"the gate is borrowed", strategy.StylePartition,
			&rollout.MoveRequest{Replicas: intstr.FromInt32(1), Settle: true, Predicted: foreseen}, "begin"},
		{"the surge is borrowed", strategy.StyleBlueGreen,
			&rollout.MoveRequest{Replicas: intstr.FromInt32(1), Settle: true, Predicted: foreseen}, "begin"},
		{"the digest of the new template is unknown", strategy.StylePartition, &rollout.MoveRequest{Native: true},
			"begin"},
		{"it was foreseen of another template", strategy.StylePartition,
			&rollout.MoveRequest{Native: true, Predicted: &rollout.PredictedTemplate{From: "t-other",
				Template: newTemplate}}, "begin"},
		{"a first step without pods", strategy.StylePartition,
			&rollout.MoveRequest{Replicas: intstr.FromInt32(0), Settle: true, Predicted: foreseen}, "begin"},
		{"something else comes first", strategy.StylePartition, nil, "begin"},
		{"its own pods do not change", strategy.StyleCanary,
			&rollout.MoveRequest{Replicas: intstr.FromInt32(1), Settle: true, Predicted: foreseen}, "begin"},
	} {
		w := newToy(4, rolling)
		tech, known := pods.TechniqueOf(subject().Workload.WorkloadRef, c.style)
		require.True(t, known)
		if c.first != nil {
			c.first.Subject, c.first.Style = subject(), c.style
		}
		begin := rollout.BeginRequest{Subject: subject(), Strategy: strategy.Strategy{Style: c.style}}
		d := pods.BeginWithMove(tech, begin, w.observe(), func(answer rollout.BeginResult) *rollout.MoveRequest {
			require.Equal(t, stableTemplate, answer.StableTemplate, "what comes next may depend on it")
			return c.first
		})
		together := c.step != "begin"
		require.Equal(t, c.step, d.Write.Step, c.reason)
		require.True(t, d.Ends && d.Write.OnlyIfUnchanged, "%s: the write applies only to the workload that was read",
			c.reason)
		require.Equal(t, ourClaim, d.Write.Claim, c.reason)
		require.Equal(t, together, d.Begun.TemplateWritten, c.reason)
		require.Equal(t, together, d.Write.Template != nil, c.reason)
		require.True(t, w.write(d.Write, w.generation), c.reason)
		require.Equal(t, stableTemplate, w.observe().Saved.Stable, "%s: the rollback is saved with it", c.reason)
		require.NotEmpty(t, w.annotations[rollout.AnnotationRecover], c.reason)

		again := pods.BeginWithMove(tech, begin, w.observe(), func(rollout.BeginResult) *rollout.MoveRequest {
			return c.first
		})
		require.Nil(t, again.Write, "%s: when the answer was lost, nothing is written again", c.reason)
		require.Equal(t, together, again.Begun.TemplateWritten, "%s: and the answer is the same", c.reason)
		repaired := w.observe()
		repaired.Repairer = "ann"
		kind := map[bool]failure.Kind{true: failure.Drift, false: failure.Refused}[together]
		require.Equal(t, kind, pods.Begin(tech, begin, repaired).Failure.Kind,
			"%s: a user repairs it meanwhile; only a claim alone has changed nothing", c.reason)
		if together {
			c.first.UID = again.Begun.UID
			require.Equal(t, workload.ActWait, pods.Move(tech, *c.first, w.observe()).Action,
				"%s: the Move has nothing left to write", c.reason)
		}
	}
}
