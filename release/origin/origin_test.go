package origin_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/v1alpha1"
)

func recordOf(change func(r *v1alpha1.ReleaseRecord)) *v1alpha1.ReleaseRecord {
	r := &v1alpha1.ReleaseRecord{
		ObjectMeta: metav1.ObjectMeta{Name: "rollout-a", Labels: map[string]string{v1alpha1.LabelKind: "rollout"}},
		Spec: v1alpha1.ReleaseRecordSpec{Kind: "rollout", WorkflowID: "rollout/bob/shop/pay",
			InputDigest: "digest"}}
	if change != nil {
		change(r)
	}
	return r
}

func ofTask(r *v1alpha1.ReleaseRecord) {
	r.Spec.InputDigest, r.Labels[v1alpha1.LabelTask] = "", "shop-1"
}

func TestCheckRecord(t *testing.T) {
	t.Parallel()
	real := origin.Request{WorkflowID: "rollout/bob/shop/pay", Type: "Rollout", Kind: "rollout", Record: "rollout-a",
		InputDigest: "digest"}
	request := func(change func(q *origin.Request)) origin.Request {
		q := real
		change(&q)
		return q
	}
	for reason, c := range map[string]struct {
		request  origin.Request
		record   *v1alpha1.ReleaseRecord
		refusal  string
		byParent bool
	}{
		"it is the recorded one": {real, recordOf(nil), "", false},
		"there is none":          {real, nil, `there is no record "rollout-a"`, false},
		"it is over": {real, recordOf(func(r *v1alpha1.ReleaseRecord) {
			r.Outcome = &v1alpha1.ReleaseOutcome{State: "Healthy"}
		}), "the release of record rollout-a is over (Healthy)", false},
		"it is of another kind": {request(func(q *origin.Request) { q.Kind = "task" }), recordOf(nil),
			"record rollout-a is not that of a task", false},
		"only its key is kept": {real, recordOf(func(r *v1alpha1.ReleaseRecord) {
			r.Labels[v1alpha1.LabelKind] = v1alpha1.KindKey
		}), "is not that of a rollout", false},
		"it is of another workflow": {request(func(q *origin.Request) { q.WorkflowID = "rollout/bob/shop/other" }),
			recordOf(nil), "record rollout-a is of workflow rollout/bob/shop/pay", false},
		"it is of another input": {request(func(q *origin.Request) { q.InputDigest = "forged" }), recordOf(nil),
			"record rollout-a is of another input", false},
		"it has no digest": {real, recordOf(func(r *v1alpha1.ReleaseRecord) { r.Spec.InputDigest = "" }),
			"of another input", false},
		"neither has one": {request(func(q *origin.Request) { q.InputDigest = "" }),
			recordOf(func(r *v1alpha1.ReleaseRecord) { r.Spec.InputDigest = "" }), "of another input", false},
		"a task's rollout is its parent's": {request(func(q *origin.Request) { q.Task = "shop-1" }), recordOf(ofTask),
			"", true},
		"it belongs to another task": {request(func(q *origin.Request) { q.Task = "shop-2" }), recordOf(ofTask),
			"record rollout-a belongs to task shop-1", true},
		"a task needs a digest": {request(func(q *origin.Request) { q.Kind = "task" }),
			recordOf(func(r *v1alpha1.ReleaseRecord) {
				ofTask(r)
				r.Spec.Kind, r.Labels[v1alpha1.LabelKind] = "task", "task"
			}), "of another input", false},
	} {
		refusal, byParent := c.request.CheckRecord(c.record)
		if c.refusal == "" {
			require.Empty(t, refusal, reason)
		} else {
			require.Contains(t, refusal, c.refusal, reason)
		}
		require.Equal(t, c.byParent, byParent, reason)
	}
}

func TestCheckParent(t *testing.T) {
	t.Parallel()
	parent := func(id string) *origin.Run { return &origin.Run{WorkflowID: id, RunID: "r"} }
	for reason, c := range map[string]struct {
		request origin.Request
		refusal string
	}{
		"the task of an item":  {origin.Request{Task: "shop-1", Parent: parent("task/shop-1")}, ""},
		"the item of a sweep":  {origin.Request{Parent: parent("task/shop-1/1-web")}, ""},
		"none":                 {origin.Request{Task: "shop-1", ParentType: "DeployPlan"}, "no DeployPlan has started"},
		"another task":         {origin.Request{Task: "shop-1", Parent: parent("task/shop-2")}, "is no workflow"},
		"a task's name within": {origin.Request{Task: "shop-1", Parent: parent("evil/task/shop-1")}, "is no workflow"},
	} {
		refusal := c.request.CheckParent()
		if c.refusal == "" {
			require.Empty(t, refusal, reason)
		} else {
			require.Contains(t, refusal, c.refusal, reason)
		}
	}
}

func TestCheckRun(t *testing.T) {
	t.Parallel()
	run := origin.Run{WorkflowID: "task/shop-1", RunID: "r"}
	const queue = "slipway"
	require.Empty(t, origin.CheckRun(run, &origin.Seen{Type: "DeployPlan", Queue: queue}, "DeployPlan", queue))
	require.Contains(t, origin.CheckRun(run, &origin.Seen{Type: "DeployPlan", Queue: "evil"}, "DeployPlan", queue),
		"is of type DeployPlan on queue evil", "another client can name its type like the engine's")
	require.Contains(t, origin.CheckRun(run, &origin.Seen{Type: "Preflight", Queue: queue}, "DeployPlan", queue),
		"is of type Preflight on queue slipway")
	require.Contains(t, origin.CheckRun(run, nil, "DeployPlan", queue), "Temporal no longer has run r")

	q := origin.Request{WorkflowID: "task/shop-1", FormerRun: "r", Type: "DeployPlan"}
	seen := &origin.Seen{Type: "DeployPlan", Queue: queue, Continued: true}
	require.Empty(t, q.CheckFormer(seen, queue))
	seen.Continued = false
	require.Contains(t, q.CheckFormer(seen, queue), "run r of task/shop-1 has not continued as new",
		"a cron schedule repeats a refused start")
	seen.Type = "Evil"
	require.Contains(t, q.CheckFormer(seen, queue), "is of type Evil")
	require.Contains(t, q.CheckFormer(nil, queue), "Temporal no longer has run r")
}
