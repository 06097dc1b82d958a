package pods

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

func TestWithoutHold_RestoresHeldFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, path, now, held, value, want string }{
		{"a pause that was absent is removed", "/spec/paused", `true`, "/spec/paused", `null`, `null`},
		{"an owner's own pause stays", "/spec/paused", `true`, "/spec/paused", `true`, `true`},
		{"a partition within the strategy is what it was", "/spec/updateStrategy",
			`{"type":"RollingUpdate","rollingUpdate":{"partition":2147483647}}`,
			"/spec/updateStrategy/rollingUpdate/partition", `0`,
			`{"type":"RollingUpdate","rollingUpdate":{"partition":0}}`},
		{"an absent partition is removed, and its neighbours stay", "/spec/updateStrategy",
			`{"rollingUpdate":{"partition":2147483647,"maxUnavailable":2}}`,
			"/spec/updateStrategy/rollingUpdate/partition", `null`, `{"rollingUpdate":{"maxUnavailable":2}}`},
		{"an object that was absent is removed too", "/spec/updateStrategy",
			`{"type":"RollingUpdate","rollingUpdate":{"partition":2147483647}}`,
			"/spec/updateStrategy/rollingUpdate/partition", `null`, `{"type":"RollingUpdate"}`},
		{"a share stays a string", "/spec/updateStrategy", `{"partition":"100%"}`, "/spec/updateStrategy/partition",
			`"20%"`, `{"partition":"20%"}`},
		{"a type is what it was", "/spec/updateStrategy", `{"type":"OnDelete","rollingUpdate":{"maxUnavailable":1}}`,
			"/spec/updateStrategy/type",
			`"RollingUpdate"`, `{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1}}`},
	} {
		seen := Observed{Held: gate.Held{c.held: json.RawMessage(c.value)}}
		seen.Settings = map[string]json.RawMessage{c.path: json.RawMessage(c.now)}
		require.JSONEq(t, c.want, string(withoutHold(seen).Settings[c.path]), c.reason)
		require.JSONEq(t, c.now, string(seen.Settings[c.path]), "the snapshot is unchanged")
	}
}

// A release that only changes the rollout ID takes the claim like any other, and its pods are numbered before the claim
// is released.
func TestFinish_NumbersPodsBeforeRelease_WhenOnlyRolloutIDChanges(t *testing.T) {
	t.Parallel()
	seen := Observed{Template: "first", Declared: "first", Revisions: []Revision{
		{Name: "r1", Hash: "r1", Number: 1, Template: "first", HasCounts: true, Desired: 2, Total: 2, Ready: 2}}}
	seen.Replicas, seen.Total, seen.Ready, seen.Updated, seen.Available, seen.UID = 2, 2, 2, 2, 2, "uid"
	subject := rollout.Subject{Claim: "rollout/default/shop/web@run", DeadlineSeconds: 60, UID: "uid"}
	begun := Begin(deploymentPartition{}, rollout.BeginRequest{Subject: subject}, seen)
	require.Equal(t, workload.ActWrite, begun.Action, begun.Reason)
	require.True(t, begun.Begun.AlreadyComplete)

	saved, err := rollout.ParseSaved(begun.Write.Annotations[workload.AnnotationRollout])
	require.NoError(t, err)
	seen.Saved, seen.Claim, seen.PodsSeen = saved, subject.Claim, true
	pod := func(name, id string) workload.Pod {
		return workload.Pod{Name: name, UID: name, Revision: "r1", Ready: true, RolloutID: id}
	}
	seen.Pods = []workload.Pod{pod("a", "6"), pod("b", "7")}
	finish := rollout.FinishRequest{Subject: subject, Action: rollout.FinishResumeAndRelease, To: rollout.SideNew,
		Template: "first",
		Batch:    &rollout.Batch{RolloutID: "7", Step: 3}}
	d := Finish(deploymentPartition{}, finish, seen)
	require.Equal(t, ActNumber, d.Action, d.Reason)
	require.Equal(t, &PodNumbers{Pods: seen.Pods[:1], RolloutID: "7", Batches: []string{"3"}}, d.Number,
		"only the pod with another ID")
	seen.Pods[0].RolloutID = "7"
	d = Finish(deploymentPartition{}, finish, seen)
	require.True(t, d.Ends, d.Reason)
	require.Equal(t, "r1", d.Numbers.Canary, "the object shows which revision it is")
}

// If a template is changed in the middle of a native update, that update is finished first, since a release begins from
// one version.
func TestBegin_FinishesOwnUpdateFirst_WhenHeldChangeInterruptedIt(t *testing.T) {
	t.Parallel()
	seen := Observed{Held: gate.Held{"/spec/paused": json.RawMessage("null")}, Template: "third", Declared: "third",
		Revisions: []Revision{
			{Name: "r1", Hash: "r1", Number: 1, Template: "first", HasCounts: true, Desired: 3, Total: 3, Ready: 3},
			{Name: "r2", Hash: "r2", Number: 2, Template: "second", HasCounts: true, Desired: 2, Total: 2, Ready: 1}}}
	seen.PodsSeen = true // none is in trouble
	seen.Settings, seen.Replicas, seen.Total = map[string]json.RawMessage{"/spec/paused": json.RawMessage("true")}, 5, 5
	req := rollout.BeginRequest{Subject: rollout.Subject{Claim: "rollout/default/shop/web@run", DeadlineSeconds: 60},
		Unsettled: rollout.UnsettledReport}
	require.NotEmpty(t, Begin(deploymentPartition{}, req, seen).Begun.Unsettled,
		"it is only reported: nothing is written")
	req.Unsettled = rollout.UnsettledWait
	d := Begin(deploymentPartition{}, req, seen)
	require.Equal(t, workload.ActWrite, d.Action, d.Reason)
	require.Equal(t, "r2", d.Write.Template.Revision, "the newest that has pods")
	require.Equal(t, rollout.AnnotationNext, d.Write.KeepTemplate, "what is declared is not lost")
	require.Equal(t, []workload.Setting{{Path: "/spec/paused", Value: json.RawMessage("null")}}, d.Write.Settings,
		"its own controller may go on")

	seen.Template, seen.Next, seen.Held, seen.Settings = "second", "third", nil, map[string]json.RawMessage{}
	require.Equal(t, workload.ActWait, Begin(deploymentPartition{}, req, seen).Action,
		"it waits until the update is done")
	seen.Revisions[0].Total, seen.Revisions[0].Desired, seen.Revisions[1].Total, seen.Revisions[1].Ready,
		seen.Total = 0, 0, 5, 5, 5
	begun := Begin(deploymentPartition{}, req, seen)
	require.Equal(t, workload.ActWrite, begun.Action, begun.Reason)
	require.Contains(t, begun.Write.Annotations[workload.AnnotationRollout], `"stable":"r2"`,
		"the release begins from there")
}

// A workload that is scaled in the middle of a release gets pods that earlier steps would have created: their numbers
// follow the plan of steps.
func TestBatchNumbers_FollowPlan_AfterScale(t *testing.T) {
	t.Parallel()
	plan := []intstr.IntOrString{intstr.FromString("20%"), intstr.FromString("40%")}
	aim := Revision{Name: "web-new", Hash: "new"}
	pod := func(batch string) workload.Pod {
		p := workload.Pod{Revision: "new", Ready: true, Batch: batch}
		if batch != "" {
			p.RolloutID = "7"
		}
		return p
	}
	for _, c := range []struct {
		reason string
		size   int32
		step   int
		has    []string
		want   []string
	}{
		{"as planned", 10, 1, []string{"", ""}, []string{"1", "1"}},
		{"the second step", 10, 2, []string{"1", "1", "", ""}, []string{"2", "2"}},
		{"scaled from five to ten after the first step", 10, 2, []string{"1", "", "", ""}, []string{"1", "2", "2"}},
		{"a pod of the first step was replaced", 10, 2, []string{"1", "2", "2", ""}, []string{"1"}},
		{"scaled down: more than planned are of the current step", 5, 2, []string{"1", "1", ""}, []string{"2"}},
		{"beyond the plan", 5, 1, []string{"1", "", ""}, []string{"1", "1"}},
	} {
		seen := Observed{}
		seen.PodsSeen = true
		seen.Replicas = c.size
		for _, batch := range c.has {
			seen.Pods = append(seen.Pods, pod(batch))
		}
		d, numbers := numberPods(&rollout.Batch{RolloutID: "7", Step: c.step, Plan: plan[:c.step]}, "new", aim, seen,
			strategy.StylePartition)
		require.True(t, numbers, c.reason)
		require.Equal(t, c.want, d.Number.Batches, c.reason)
	}
}
