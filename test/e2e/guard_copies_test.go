package e2e

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

var servicesGVR = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// dump reads an object as `kubectl get -o yaml` does and a client later writes it.
func (r *release) dump(gvr schema.GroupVersionResource) *unstructured.Unstructured {
	r.t.Helper()
	o := r.ReadObject(gvr, r.rollout.Name)
	for _, field := range []string{"resourceVersion", "managedFields", "uid", "generation"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(o.Object, "status")
	return o
}

// waitNoMarks waits until an object has nothing of a release.
func (r *release) waitNoMarks(gvr schema.GroupVersionResource, name string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		return len(marksOf(r.ReadObject(gvr, name))) == 0
	}, harness.Patience, harness.Tick, "%s", lazily(func() string {
		return gvr.Resource + " " + name + " keeps what another client has brought back:\n" + r.Processes[0].Output()
	}))
}

// A client writes the workload and its Service as they were during a release, after its end: with kubectl replace, and
// with GitOps tools whose manifest was exported then. What the release had on them is taken off again; no other
// client's write is needed for that, and the next release goes through from what the client wrote.
func TestMarksOfEndedRelease_AreTakenOff_WhenBroughtBack(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentCell(strategy.StyleCanary, harness.Nginx),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			r := beginGuarded(t, e, g, c, nil)
			r.waitPaused(1)
			dumped := r.dump(c.kind.GVR)
			require.Contains(t, dumped.GetAnnotations(), workload.AnnotationRollout)
			objects := []*unstructured.Unstructured{dumped}
			if c.provider != harness.NoProvider {
				objects = append(objects, r.dump(servicesGVR))
			}
			r.approveAll(1)
			r.requirePromoted()

			for _, o := range objects {
				r.Replace(o)
			}
			r.waitNoMarks(c.kind.GVR, r.rollout.Name)
			for _, tool := range []harness.Tool{harness.Flux, harness.ArgoClientSide} {
				n := r.StartApplier(t, tool, objects)
				n.Sync(t)
				for _, o := range objects {
					gvr := map[bool]schema.GroupVersionResource{true: c.kind.GVR, false: servicesGVR}[o == dumped]
					r.waitNoMarks(gvr, r.rollout.Name)
				}
			}
			require.Equal(t, rollout.PhaseHealthy, r.Rollout(r.rollout.Name).Phase, "the ended release stays as it was")

			// the client's template is that of the first step, and its settings are too
			r.PatchObject(c.kind, r.rollout.Name, `{"spec":{"updateStrategy":null}}`)
			if c.provider != harness.NoProvider {
				_, err := r.Kube.CoreV1().Services(r.Apps).Patch(context.Background(), r.rollout.Name,
					"application/merge-patch+json", []byte(`{"spec":{"selector":{"pod-template-hash":null}}}`),
					metav1.PatchOptions{})
				require.NoError(t, err)
			}
			r.watch.WaitSettled(t)
			again := r.rollout
			again.Image = "registry.test/" + r.rollout.Name + ":v3"
			r.StartRollout(again)
			for step := 1; step <= len(again.Strategy.Steps); step++ {
				if r.needsApproval(step) {
					r.Approve(again.Name, r.WaitForApproval(again.Name, step))
				}
			}
			r.WaitPhase(again.Name, rollout.PhaseHealthy)
			require.Empty(t, marksOf(r.object()))
		})
	}
}

// A workload that is made from another one's dump during its release has nothing of that release, which goes on
// undisturbed: the copy has another UID.
func TestMarksOnCopyOfWorkload_AreTakenOff_DuringRelease(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	r.waitPaused(1)
	held := marksOf(r.object())
	twin := r.dump(harness.Deployment.GVR)
	twin.SetName("twin")
	for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		require.NoError(t, unstructured.SetNestedStringMap(twin.Object, map[string]string{"app": "twin"}, path...))
	}
	_, err := r.Dynamic(t).Resource(harness.Deployment.GVR).Namespace(r.Apps).Create(context.Background(), twin,
		metav1.CreateOptions{FieldManager: "kubectl-create"})
	require.NoError(t, err)
	r.waitNoMarks(harness.Deployment.GVR, "twin")
	require.Equal(t, held, marksOf(r.object()), "the release keeps its own")
	r.Kubectl("-n", r.Apps, "delete", "deployment", "twin", "--wait=true")
	r.approveAll(1)
	r.requirePromoted()
}

// A split that was left frozen, and that the next release has finished, is written again with a dump: the release after
// that starts from what the client wrote, and does not go back to the version that the split names.
func TestFrozenSplit_IsNotFinishedTwice_WhenBroughtBack(t *testing.T) {
	t.Parallel()
	r := startRelease(t, harness.Shared(t), deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	r.waitPaused(1)
	r.sendVerb("stop", `{"actor":"ann","to":"frozen"}`)
	r.WaitPhase(r.rollout.Name, rollout.PhaseCancelled)
	dumped := r.dump(harness.Deployment.GVR)
	require.Contains(t, dumped.GetAnnotations(), workload.AnnotationRollout)
	require.NotContains(t, dumped.GetAnnotations(), workload.AnnotationClaimedBy)
	next := func(image string) harness.Rollout {
		again := r.rollout
		again.Image = "registry.test/" + r.rollout.Name + ":" + image
		r.StartRollout(again)
		return again
	}
	pass := func(again harness.Rollout) {
		for step := 1; step <= len(again.Strategy.Steps); step++ {
			if r.needsApproval(step) {
				r.Approve(again.Name, r.WaitForApproval(again.Name, step))
			}
		}
		r.WaitPhase(again.Name, rollout.PhaseHealthy)
	}
	pass(next("v3"))
	require.Empty(t, marksOf(r.object()), "it has finished the frozen split first")

	r.Replace(dumped)
	r.PatchObject(harness.Deployment, r.rollout.Name, `{"spec":{"paused":null}}`)
	r.watch.WaitSettled(t)
	again := next("v4")
	at := r.WaitForApproval(again.Name, 1)
	require.Equal(t, map[string]string{"app": r.rollout.NewestImage()}, at.StableImages, "the dump's version is stable")
	pods, err := r.Kube.CoreV1().Pods(r.Apps).List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, p := range pods.Items {
		require.NotEqual(t, harness.StableImage(r.rollout.Name), p.Spec.Containers[0].Image,
			"no pod went back to the version before the frozen release")
	}
	r.Approve(again.Name, at)
	for step := 2; step <= len(again.Strategy.Steps); step++ {
		if r.needsApproval(step) {
			r.Approve(again.Name, r.WaitForApproval(again.Name, step))
		}
	}
	r.WaitPhase(again.Name, rollout.PhaseHealthy)
	require.Empty(t, marksOf(r.object()))
}

// The same dump blocks nothing else: a plan's operation begins, and so does a release of a Rollout object.
func TestFrozenSplit_BlocksNoPlanAndNoRolloutObject_WhenBroughtBack(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	r := prepareUnobserved(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	g.EnforceOn(t, r.Apps)
	name := r.rollout.Name
	r.StartRollout(r.rollout)
	r.WaitForApproval(name, 1)
	r.MustVerb(name, "stop", `{"actor":"ann","to":"frozen"}`)
	r.WaitPhase(name, rollout.PhaseCancelled)
	dumped := r.dump(harness.Deployment.GVR)
	require.NoError(t, unstructured.SetNestedField(dumped.Object, false, "spec", "paused"))
	require.Contains(t, dumped.GetAnnotations(), workload.AnnotationRollout)
	r.PutService(name, "", "Deployment/"+name)
	r.PutPlan(name, "deployPlanItems: [{serviceId: "+name+", deployment: RESTART}]")
	blocked := r.Call(http.MethodPost, "/api/v1/plans/"+name+"/execute", "{}")
	require.Equal(t, http.StatusUnprocessableEntity, blocked.Status, "a frozen split blocks: %s", blocked.Body)
	require.Contains(t, string(blocked.Body), "in the middle of a rollout")

	r.MustVerb(name, "rollback", `{"actor":"ann"}`)
	r.WaitPhase(name, rollout.PhaseRolledBack)
	require.Empty(t, marksOf(r.object()))
	r.Replace(dumped)
	require.Contains(t, r.object().GetAnnotations(), workload.AnnotationRollout, "no detector watches it")
	task := r.WaitTask(r.Execute(name), plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	require.Empty(t, marksOf(r.object()))

	r.Replace(dumped)
	r.waitPods(r.rollout.NewestImage(), harness.SubjectSize)
	d := &declared{release: r, guard: g}
	d.create(d.document(), "owner")
	d.waitGate()
	require.Eventually(t, func() bool {
		return d.object().GetAnnotations()[workload.AnnotationRollout] == ""
	}, harness.Patience, harness.Tick, "the gate holds no change of a workload with a split")
	d.setImage("dev", "registry.test/order:v4")
	for step := 1; step <= len(d.rollout.Strategy.Steps); step++ {
		if d.needsApproval(step) {
			d.approveUnwatched(step)
		}
	}
	d.waitEnd(true)
	d.waitPods("registry.test/order:v4", harness.SubjectSize)
	for mark := range marksOf(d.object()) {
		require.Contains(t, mark, "gate", "nothing is left of a release")
	}
}
