package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/sources"
)

// workloadSpec is the part of a workload that RESTORE reverts: its template without a restart's stamp, its size and its
// update strategy.
type workloadSpec struct {
	Template corev1.PodTemplateSpec
	Replicas int32
	Update   any
}

// specs returns those of the Deployments and StatefulSets of these names.
func specs(t *testing.T, e *harness.Engine, deployments, statefulSets []string) map[string]workloadSpec {
	t.Helper()
	all := map[string]workloadSpec{}
	for _, name := range deployments {
		d, err := e.Kube.AppsV1().Deployments(e.Apps).Get(context.Background(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.NotContains(t, d.Annotations, workload.AnnotationClaimedBy)
		all[name] = workloadSpec{d.Spec.Template, *d.Spec.Replicas, d.Spec.Strategy}
	}
	for _, name := range statefulSets {
		s, err := e.Kube.AppsV1().StatefulSets(e.Apps).Get(context.Background(), name, metav1.GetOptions{})
		require.NoError(t, err)
		all[name] = workloadSpec{s.Spec.Template, *s.Spec.Replicas, s.Spec.UpdateStrategy}
	}
	for name, spec := range all {
		delete(spec.Template.Annotations, workload.AnnotationRestartedBy)
		if len(spec.Template.Annotations) == 0 {
			spec.Template.Annotations = nil
		}
		all[name] = spec
	}
	return all
}

// reverse creates the plan that reverts a task.
func reverse(t *testing.T, e *harness.Engine, task string, status int) (out schema.ReversePlan) {
	t.Helper()
	a := e.Call(http.MethodPost, "/api/v1/tasks/"+task+"/reverse", "")
	require.Equal(t, status, a.Status, "%s", a.Body)
	require.NoError(t, json.Unmarshal(a.Body, &out))
	return out
}

// mustSucceed executes a plan and requires that its task succeeds.
func mustSucceed(e *harness.Engine, t *testing.T, name string) plan.Task {
	t.Helper()
	task := e.WaitTask(e.Execute(name), plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskSucceeded, task.State, "%s: %+v", task.Reason, task.Services)
	return task
}

// A plan of all kinds is reversed, and the reverse is reversed: every spec is equal to the previous one, except for the
// stamps of restarts.
func TestReverseOfReverse_RestoresResultOfPlan(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: packageOptions})
	web := sources.NewFiles(t)
	deployments, statefulSets := []string{"front", "cart", "mail"}, []string{"back", "idle"}
	e.Deployment("front", 3, nil)
	e.Deployment("cart", 2, nil)
	e.Deployment("mail", 1, nil)
	e.StatefulSet("back", 2, func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	e.StatefulSet("idle", 0, nil)
	for name, size := range map[string]int{"front": 3, "cart": 2, "mail": 1, "back": 2} {
		e.WaitReadyPods(name, size)
	}
	e.PutService("111", "package: {container: app, mountPath: /app}\n", "Deployment/front", "StatefulSet/back")
	e.PutService("222", "", "Deployment/cart")
	e.PutService("333", "  replicas: 2\n", "StatefulSet/idle")
	e.PutService("444", "", "Deployment/mail")
	digest := putPackage(t, web, "/latest.zip", "one")
	e.PutPlan("shop", `deployPlanItems:
- {serviceId: 111, priority: 3, deployment: HTTP_UPLOAD_DEPLOY, httpSrcUri: '`+web.URL+`/latest.zip?signature=s3cr3t'}
- {serviceId: 222, priority: 2, deployment: STOP}
- {serviceId: 333, priority: 2, deployment: START, containerExecMethod: SEQUENTIAL}
- {serviceId: 444, priority: 1, deployment: RESTART}
`)
	before := specs(t, e, deployments, statefulSets)
	requireDiff(t, e, "shop", before, map[string]string{
		"front": "3 to 3, replaces 3, metadata.annotations.slipway.io/package: (known once the package is fetched)",
		"back":  "2 to 2, replaces 2, spec.initContainers[slipway-fetch]: {…}",
		"cart":  "2 to 0, replaces 0", "idle": "0 to 2, replaces 0",
		"mail": "1 to 1, replaces 1, metadata.annotations.slipway.io/restarted-by: (the task)"})
	first := mustSucceed(e, t, "shop")
	after := specs(t, e, deployments, statefulSets)
	require.Equal(t, "sha256:"+digest, after["front"].Template.Annotations[source.AnnotationPackage])
	require.NotEqual(t, before, after)

	back := reverse(t, e, first.ID, http.StatusCreated)
	require.Len(t, back.Document.Items, 3, "RESTART leaves nothing to restore")
	again := reverse(t, e, first.ID, http.StatusOK)
	require.Equal(t, back.Name, again.Name, "a repeat finds the same plan")
	requireDiff(t, e, back.Name, after, map[string]string{"front": "3 to 3, replaces 3, " +
		"metadata.annotations.slipway.io/package: ",
		"back": "2 to 2, replaces 2, spec.initContainers[slipway-fetch]: ", "cart": "0 to 2, replaces 0",
		"idle": "2 to 0, replaces 0"})
	restored := mustSucceed(e, t, back.Name)
	require.Equal(t, first.ID, restored.ReverseOf)
	require.Equal(t, before, specs(t, e, deployments, statefulSets))
	require.Equal(t, digest, restored.Services[2].Workloads[0].FromPackage,
		"its record keeps the package that it removed, which its own reverse restores")
	for name, size := range map[string]int{"front": 3, "cart": 2, "mail": 1, "back": 2, "idle": 0} {
		e.WaitReadyPods(name, size)
	}

	forth := reverse(t, e, restored.ID, http.StatusCreated)
	mustSucceed(e, t, forth.Name)
	require.Equal(t, after, specs(t, e, deployments, statefulSets),
		"the reverse of the reverse restores the plan's result")

	requireDiff(t, e, forth.Name, after, map[string]string{"front": "", "back": "", "cart": "", "idle": ""})
	uids := e.PodUIDs("front")
	nothing := mustSucceed(e, t, forth.Name)
	for _, service := range nothing.Services {
		require.Equal(t, "nothing to do", service.Reason, "an unchanged template changes nothing")
	}
	require.Equal(t, uids, e.PodUIDs("front"))
}

// requireDiff requires what an execution of a plan would change: for each workload its sizes, the number of replaced
// pods and one field; "" for no change. The request itself must change no spec.
func requireDiff(t *testing.T, e *harness.Engine, name string, now map[string]workloadSpec, want map[string]string) {
	t.Helper()
	a := e.Call(http.MethodPost, "/api/v1/plans/"+name+"/diff", "")
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	require.NotContains(t, string(a.Body), "s3cr3t", "a diff hides the queries of URLs")
	var diff schema.PlanDiff
	require.NoError(t, json.Unmarshal(a.Body, &diff))
	seen := 0
	for _, item := range diff.Items {
		for _, w := range item.Workloads {
			seen++
			require.Equal(t, want[w.Name] != "", w.Changes, "%s: %s", w.Name, w.Summary)
			if !w.Changes {
				continue
			}
			sizes, field, _ := strings.Cut(want[w.Name], ", metadata")
			if field != "" {
				field = "metadata" + field
			} else if s, f, some := strings.Cut(want[w.Name], ", spec"); some {
				sizes, field = s, "spec"+f
			}
			require.Equal(t, sizes, fmt.Sprintf("%d to %d, replaces %d", *w.FromReplicas, *w.ToReplicas, w.Pods),
				"%s: %s", w.Name, a.Body)
			if field != "" {
				require.True(t, slices.ContainsFunc(w.Template, func(f workload.FieldChange) bool {
					return f.Field+": "+f.To == field
				}), "%s: %s", w.Name, a.Body)
			}
		}
	}
	require.Equal(t, len(want), seen)
	require.Equal(t, now, specs(t, e, []string{"front", "cart", "mail"}, []string{"back", "idle"}),
		"nothing is changed")
}
