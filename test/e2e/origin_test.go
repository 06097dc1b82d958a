package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

// attacker has the credentials of Temporal, and none of a cluster.
type attacker struct {
	*harness.Engine
	t *testing.T
}

// evilQueue is the queue of the attacker's own worker.
const evilQueue = "evil"

// onward is what the attacker's own workflow starts: a workflow of the engine's.
type onward struct {
	Type, ID string
	Input    json.RawMessage
	// Child starts it as a child; otherwise the attacker's workflow continues as new as it.
	Child bool
}

// evil is the attacker's own workflow, whatever type it claims to have.
func evil(ctx workflow.Context, in onward) error {
	if !in.Child {
		ctx = workflow.WithWorkflowTaskQueue(ctx, workflows.QueueEngine)
		return workflow.NewContinueAsNewError(ctx, in.Type, in.Input)
	}
	return workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: in.ID,
		TaskQueue: workflows.QueueEngine}), in.Type, in.Input).Get(ctx, nil)
}

// attack makes an attacker with a worker of his own, whose workflows have the names of the engine's types.
func attack(t *testing.T, e *harness.Engine) attacker {
	t.Helper()
	w := worker.New(e.Workflows, evilQueue, worker.Options{})
	for _, name := range []string{"Evil", workflows.TypeDeployPlan} {
		w.RegisterWorkflowWithOptions(evil, workflow.RegisterOptions{Name: name})
	}
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return attacker{e, t}
}

// start starts a workflow and returns the error with which it closes. An open workflow of that ID is terminated.
func (a attacker) start(queue, kind, id string, input any) error {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	run, err := a.Workflows.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: queue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING}, kind, input)
	require.NoError(a.t, err)
	err = run.Get(ctx, nil)
	require.NoError(a.t, ctx.Err(), "%s closes at once", id)
	return err
}

// refused starts a workflow, as itself and by the attacker's own, which must close as one that the engine has not
// started.
func (a attacker) refused(kind, id string, input any) {
	a.t.Helper()
	for name, err := range a.everyWay(kind, id, input) {
		require.ErrorContains(a.t, err, "the engine has not started this workflow", "%s %s, %s", kind, id, name)
	}
}

func (a attacker) everyWay(kind, id string, input any) map[string]error {
	a.t.Helper()
	raw, err := json.Marshal(input)
	require.NoError(a.t, err)
	parent, parentType := "parent/"+id, "Evil"
	if task, ok := plan.TaskOfWorkflow(id); ok {
		parent, parentType = plan.WorkflowID(task), workflows.TypeDeployPlan
	}
	return map[string]error{
		"started": a.start(workflows.QueueEngine, kind, id, input),
		"child":   a.start(evilQueue, parentType, parent, onward{Type: kind, ID: id, Input: raw, Child: true}),
	}
}

// continued is how the attacker's own workflow ends after it has continued as new as the engine's type.
func (a attacker) continued(kind, id string, input any) error {
	a.t.Helper()
	raw, err := json.Marshal(input)
	require.NoError(a.t, err)
	return a.start(evilQueue, "Evil", id, onward{Type: kind, ID: id, Input: raw})
}

// repeated starts a rollout by a cron schedule: its later runs have a run before, of the engine's type and queue.
func (a attacker) repeated(id string, input any) {
	a.t.Helper()
	run, err := a.Workflows.ExecuteWorkflow(context.Background(), client.StartWorkflowOptions{ID: id,
		TaskQueue: workflows.QueueEngine, CronSchedule: "@every 1s"}, workflows.TypeRollout, input)
	require.NoError(a.t, err)
	require.Eventually(a.t, func() bool {
		newest, err := a.Workflows.DescribeWorkflowExecution(context.Background(), id, "")
		return err == nil && newest.GetWorkflowExecutionInfo().GetExecution().GetRunId() != run.GetRunID()
	}, harness.Patience, harness.Tick, "the schedule repeats it")
	time.Sleep(3 * time.Second)
	require.NoError(a.t, a.Workflows.TerminateWorkflow(context.Background(), id, "", "seen"))
}

// firstInput reads the input of a workflow, as every client that may read Temporal can.
func (a attacker) firstInput(id string, into any) {
	a.t.Helper()
	first := a.History(id)[0].GetWorkflowExecutionStartedEventAttributes()
	require.NoError(a.t, converter.GetDefaultDataConverter().FromPayloads(first.GetInput(), into))
}

func (a attacker) deployment(namespace, name string) *appsv1.Deployment {
	a.t.Helper()
	d, err := a.Kube.AppsV1().Deployments(namespace).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(a.t, err)
	return d
}

var privileged = json.RawMessage(`{"spec":{"hostPID":true,"hostNetwork":true}}`)

// A client that has only Temporal's credentials starts a rollout with an input of its own: privileged pods, in the name
// of another user. It writes nothing, with whatever record, state or parent it comes.
func TestForgedRollout_WritesNothing(t *testing.T) {
	t.Parallel()
	a := attack(t, harness.Start(t, harness.Options{}))
	a.Subject(harness.Deployment, "pay", nil)
	a.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: "pay",
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: []strategy.Step{harness.Step("50%", -1),
			harness.Step("100%", -1)}}})
	status := a.WaitForApproval("pay", 1)
	var real workflows.RolloutInput
	a.firstInput(a.RolloutID("pay"), &real)
	require.Equal(t, status.Record, real.Record)
	a.Subject(harness.Deployment, "victim", nil)
	victim := a.deployment(a.Apps, "victim").Generation

	forged := real
	forged.Spec.Name, forged.Spec.WorkloadRef.Name = "victim", "victim"
	forged.Spec.Change.TemplatePatch, forged.Actor = privileged, "cfo@example.com"
	forged.Spec.Strategy.Steps = slices.Clone(real.Spec.Strategy.Steps)
	for i := range forged.Spec.Strategy.Steps {
		forged.Spec.Strategy.Steps[i].PauseSeconds = new(int64)
	}
	for _, record := range []string{"", "rollout-forged", "no/record", "..", real.Record} {
		forged.Record = record
		a.refused(workflows.TypeRollout, a.RolloutID("victim"), forged)
	}
	// with the workflow ID and the record of the real one, which is terminated
	forged.Record = real.Record
	a.refused(workflows.TypeRollout, a.RolloutID("pay"), forged)
	forged.Task = "shop-1"
	a.refused(workflows.TypeRollout, a.RolloutID("pay"), forged)
	// with a state, by which nothing would be asked
	forged.State = &machine.State{Stage: "steps"}
	a.refused(workflows.TypeRollout, a.RolloutID("pay"), forged)
	require.ErrorContains(t, a.continued(workflows.TypeRollout, a.RolloutID("pay"), forged),
		"is of type Evil on queue evil")
	a.repeated(a.RolloutID("pay"), forged)
	forged.State = nil
	require.ErrorContains(t, a.continued(workflows.TypeRollout, a.RolloutID("victim"), forged), "has not started")

	time.Sleep(2 * time.Second) // a write would have come
	after := a.deployment(a.Apps, "victim")
	require.Equal(t, victim, after.Generation, "the victim was not written")
	require.NotContains(t, after.Annotations, workload.AnnotationClaimedBy, "and not claimed")
	pay := a.deployment(a.Apps, "pay")
	require.False(t, pay.Spec.Template.Spec.HostPID)

	// the recorded input itself is the release that was asked for
	a.restart(real)
	a.WaitForApproval("pay", 1)
	a.MustVerb("pay", "stop", `{"to":"new"}`)
	a.WaitPhase("pay", rollout.PhaseHealthy)
	a.refused(workflows.TypeRollout, a.RolloutID("pay"), real) // it is over
}

// restart starts a real rollout again, as an operator may after it was terminated.
func (a attacker) restart(in workflows.RolloutInput) {
	a.t.Helper()
	_, err := a.Workflows.ExecuteWorkflow(context.Background(), client.StartWorkflowOptions{
		ID: a.RolloutID(in.Spec.Name), TaskQueue: workflows.QueueEngine,
		TypedSearchAttributes: workflows.RolloutAttributes(in.Spec),
		Memo:                  map[string]any{workflows.MemoRecord: in.Record}}, workflows.TypeRollout, in)
	require.NoError(a.t, err)
}

// A forged task, item or sweep does nothing, with the record of a task that is over and with that of none.
func TestForgedTask_WritesNothing(t *testing.T) {
	t.Parallel()
	a := attack(t, harness.Start(t, harness.Options{}))
	a.Deployment("one", 1, nil)
	a.WaitReadyPods("one", 1)
	a.PutService("one", "", "Deployment/one")
	a.PutPlan("shop", "deployPlanItems:\n- {serviceId: one, deployment: RESTART}\n")
	id := a.Execute("shop")
	a.WaitTask(id, plan.TaskSucceeded)
	pods := a.PodUIDs("one")
	var task workflows.DeployPlanInput
	a.firstInput(plan.WorkflowID(id), &task)
	var item workflows.ServiceReleaseInput
	itemID := plan.ItemWorkflowID(id, 1, "one")
	a.firstInput(itemID, &item)

	const again, none = "again", "task/none"
	forged := task
	forged.Task = "none"
	require.ErrorContains(t, a.start(workflows.QueueEngine, workflows.TypeDeployPlan, none, forged),
		"there is no record")
	require.ErrorContains(t, a.start(workflows.QueueEngine, workflows.TypeDeployPlan, again, task),
		"is of workflow task/")
	for _, state := range []*workflows.DeployPlanState{nil, {}} {
		task.State = state
		require.ErrorContains(t, a.start(workflows.QueueEngine, workflows.TypeDeployPlan, plan.WorkflowID(id), task),
			"the engine has not started this workflow")
		require.ErrorContains(t, a.continued(workflows.TypeDeployPlan, plan.WorkflowID(id), task),
			"the engine has not started this workflow")
	}
	for _, state := range []*workflows.ServiceReleaseState{nil, {}} {
		item.State = state
		a.refused(workflows.TypeServiceRelease, itemID, item)
		require.ErrorContains(t, a.continued(workflows.TypeServiceRelease, itemID, item),
			"the engine has not started this workflow")
	}
	a.refused(workflows.TypePackageSweep, workflows.PackageSweepID("default"),
		workflows.PackageSweepInput{Party: "default", Queue: catalog.PartyQueue("default")})
	time.Sleep(2 * time.Second)
	require.Equal(t, pods, a.PodUIDs("one"), "no pod was restarted")
	require.Equal(t, plan.TaskSucceeded, a.Task(id).State, "the record of the real task is unchanged")
}

// A forged operation on a serving does nothing: the parties run what the home cluster declares.
func TestForgedServing_WritesNothing(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Start(t, harness.Options{}))
	a := attack(t, u.Engine)
	u.create("s1", serving.Policy{})
	kd := u.WaitServing("s1", "Available", harness.ServingAvailable)
	prefix := serving.WorkflowPrefix("s1")
	var real serving.Input
	a.firstInput(fmt.Sprintf("%s%d", prefix, kd.Generation), &real)
	before := a.deployment(u.alice, real.Parties[0].Deployment).ResourceVersion

	version, err := serving.Unpack(real.Target)
	require.NoError(t, err)
	for name, image := range version.AppImages {
		image.Image.Name, image.Image.Tag = "registry.evil.example/miner", "1"
		version.AppImages[name] = image
	}
	forged := real
	forged.Kind, forged.Previous, forged.PreviousDigest = serving.KindUpdate, real.Target, real.TargetDigest
	forged.Target, err = version.Pack()
	require.NoError(t, err)
	for _, digest := range []string{real.TargetDigest, "forged"} {
		for _, generation := range []int64{kd.Generation, kd.Generation + 1} {
			forged.TargetDigest, forged.Generation = digest, generation
			for _, id := range []string{"1", "2", "forged"} {
				require.NoError(t, a.start(workflows.QueueEngine, workflows.TypeServing, prefix+id, forged),
					"it has nothing to do")
			}
		}
	}
	forged.Continued = &serving.Continued{Begun: true}
	for name, err := range a.everyWay(workflows.TypeServing, prefix+"2", forged) {
		require.ErrorContains(t, err, "the engine has not started this workflow", name)
	}
	require.ErrorContains(t, a.continued(workflows.TypeServing, prefix+"2", forged), "is of type Evil on queue evil")
	time.Sleep(2 * time.Second)
	require.Equal(t, before, a.deployment(u.alice, real.Parties[0].Deployment).ResourceVersion)
	require.Equal(t, kd.Status.Operation.RunID, u.Serving(u.Home, "s1").Status.Operation.RunID,
		"the status names the real operation")
}

// Of two parties that kubectl gives one queue, the younger can't be used, and says so.
func TestPartyWithAnotherPartysQueue_IsUnusable_WhenMadeByKubectl(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{})
	e.Subject(harness.Deployment, "web", nil)
	for _, name := range []string{"older", "younger"} {
		file := filepath.Join(t.TempDir(), name+".yaml")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "apiVersion: slipway.io/v1alpha1\nkind: Party\n"+
			"metadata: {name: %s, namespace: %s}\nspec: {queue: shared, namespace: %s}\n", name, e.Home, e.Apps),
			0o600))
		e.Kubectl("create", "-f", file)
		time.Sleep(1100 * time.Millisecond) // creation timestamps have whole seconds
	}
	state := func(name string) (of struct{ Unusable string }) {
		a := e.Call(http.MethodGet, "/api/v1/parties/"+name, "")
		require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
		require.NoError(t, json.Unmarshal(a.Body, &of))
		return of
	}
	require.Empty(t, state("older").Unusable)
	require.Contains(t, state("younger").Unusable, "is that of party older")
	r := harness.Rollout{Kind: harness.Deployment, Name: "web", ExtraFields: map[string]any{"party": "younger"},
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: []strategy.Step{harness.Step("100%", -1)}}}
	refused := e.TryStartRollout(r)
	require.Equal(t, http.StatusUnprocessableEntity, refused.Status, "%s", refused.Body)
	require.Contains(t, string(refused.Body), "is that of party older")
	r.ExtraFields["party"] = "older"
	require.NotContains(t, string(e.TryStartRollout(r).Body), "is that of party", "the older one keeps its queue")
}
