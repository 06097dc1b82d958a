package workload_test

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/observer"
)

var order = observer.Name{Kind: "Deployment", Name: "order"}

// Workloads are started whose pods have every kind of trouble: the item fails with the pod's own message.
func TestStart_FailsWithPodMessage(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		change   func(*corev1.PodTemplateSpec)
		deadline int64
		early    bool
		says     []string
	}{
		"bad image": {
			reason:   "an image that cannot be pulled fails after half the deadline, with the registry's message",
			deadline: 24, early: true,
			change: func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "x:bad" },
			says: []string{": 0 of 2 pods are ready",
				`: ImagePullBackOff: Back-off pulling image "x:bad": manifest unknown`},
		},
		"bad image of an init container": {
			reason: "init containers are checked too", deadline: 24, early: true,
			change: func(p *corev1.PodTemplateSpec) {
				p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "x:bad"}}
			},
			says: []string{`ImagePullBackOff: Back-off pulling image "x:bad": manifest unknown`},
		},
		"crash loop": {
			reason: "a crash loop fails with its last exit", deadline: 30, early: true,
			change: func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "x:crash" },
			says:   []string{": CrashLoopBackOff: back-off", "(last exit code 1)"},
		},
		"never ready": {
			reason: "a running pod that is not ready may still become ready: it has the whole deadline", deadline: 12,
			change: func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "x:never-ready" },
			says:   []string{": NotReady: containers with unready status: [app]"},
		},
		"unschedulable": {
			reason: "nodes may get free capacity: it has the whole deadline", deadline: 12,
			change: func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector = map[string]string{"no": "such-node"} },
			says:   []string{": Unschedulable: 0/4 nodes are available"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.deployment("order", 0, func(d *appsv1.Deployment) { tc.change(&d.Spec.Template) })
			before := b.state(order)
			two := int32(2)
			req := b.request(order, plan.Start, plan.Parallel)
			req.Workload.Replicas, req.DeadlineSeconds = &two, tc.deadline
			app := b.fails(req, failure.WorkloadFailed)
			found := regexp.MustCompile(` after (\d+) s: `).FindStringSubmatch(app.Message())
			require.Len(t, found, 2, app.Message())
			spent, err := strconv.ParseInt(found[1], 10, 64)
			require.NoError(t, err)
			require.GreaterOrEqual(t, spent, tc.deadline/2, tc.reason)
			require.Equal(t, tc.early, spent < tc.deadline, "%s: %s", tc.reason, app.Message())
			for _, want := range append(tc.says, "Deployment "+b.namespace+"/order: ", "pod order-") {
				require.Contains(t, app.Message(), want, tc.reason)
			}
			after := b.requireTidy(order, before)
			require.Equal(t, int64(2), after.replicas, "nothing is rolled back")
		})
	}
}

func TestFailedRestart_RestoresSettings(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 3, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "x:good" })
	b.settled(order, 3)
	// The image breaks between the start and the restart; the new template is applied while paused, so that only the
	// restart rolls it out.
	b.merge(order, `{"spec":{"paused":true,"template":{"spec":{"containers":[{"name":"app","image":"x:bad"}]}}}}`)
	b.merge(order, `{"spec":{"paused":false,"strategy":{"rollingUpdate":{"maxUnavailable":"50%","maxSurge":2}}}}`)
	before := b.state(order)
	req := b.request(order, plan.Restart, plan.Sequential)
	req.DeadlineSeconds = 20
	app := b.fails(req, failure.WorkloadFailed)
	require.Contains(t, app.Message(), "pods are ready, ")
	require.Contains(t, app.Message(), "restarted after")
	require.Contains(t, app.Message(), "manifest unknown")
	after := b.requireTidy(order, before)
	require.Equal(t, "t1/1", after.marker, "the template is not rolled back")
}

// With an exhausted quota no pod can report the reason; the Deployment does.
func TestStart_FailsWithQuotaMessage(t *testing.T) {
	b := newBench(t)
	_, err := b.kube.CoreV1().ResourceQuotas(b.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		q, err := b.kube.CoreV1().ResourceQuotas(b.namespace).Get(t.Context(), "none", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	}, patience, tick)
	b.deployment("order", 0, nil)
	one := int32(1)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas, req.DeadlineSeconds = &one, 10
	app := b.fails(req, failure.WorkloadFailed)
	require.Contains(t, app.Message(), "0 of 1 pods are ready after 10 s: its pods cannot be created:")
	require.Contains(t, app.Message(), "exceeded quota")
}

// A START SEQUENTIAL fails halfway; the next one continues to the requested size.
func TestStart_ContinuesAfterPartialStart(t *testing.T) {
	b := newBench(t)
	name := observer.Name{Kind: "StatefulSet", Name: "store"}
	b.statefulSet("store", 0, func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "x:bad" })
	three := int32(3)
	req := b.request(name, plan.Start, plan.Sequential)
	req.Workload.Replicas, req.DeadlineSeconds = &three, 16
	app := b.fails(req, failure.WorkloadFailed)
	require.Regexp(t, `: 0 of 1 pods are ready, on the way to 3 after \d+ s: pod store-0: ImagePullBackOff`,
		app.Message())
	half := b.state(name)
	require.Equal(t, "3", half.annotations[workload.AnnotationReplicas], "the target size is stored")
	require.Equal(t, "1", half.annotations[workload.AnnotationLeftAt])
	require.NotContains(t, half.annotations, workload.AnnotationClaimedBy)

	// A user corrects the image. The pod of the bad template remains, because the StatefulSet waits for it in order.
	// START removes it.
	b.merge(name, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x:good"}]}}}}`)
	again := b.request(name, plan.Start, plan.Sequential)
	again.DeadlineSeconds = 30
	again.Workload.Replicas = nil
	result := b.must(again)
	require.Equal(t, "started: 3 of 3 pods are ready", result.Message)
	require.Equal(t, int32(1), *result.FromReplicas)
	after := b.state(name)
	require.NotContains(t, after.annotations, workload.AnnotationReplicas)
	require.NotContains(t, after.annotations, workload.AnnotationLeftAt)
}

// The restart begins with pods that are not ready. They are replaced first, since they are unavailable anyway, and
// never a second one at the same time.
func TestRestart_ReplacesUnreadyPodsFirst(t *testing.T) {
	for name, change := range map[string]func(*appsv1.StatefulSet){"ordered": func(*appsv1.StatefulSet) {},
		"burst": burst} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			set := observer.Name{Kind: "StatefulSet", Name: "store"}
			b.statefulSet("store", 3, change)
			b.settled(set, 3)
			b.sicken("store-1")
			before, old := b.state(set), uids(b.pods("store"))
			watched := observer.Start(t, b.kube, b.namespace)
			result := b.must(b.request(set, plan.Restart, plan.Sequential))
			require.Equal(t, "restarted: 3 of 3 pods are ready", result.Message)
			b.requireTidy(set, before)
			made := watched.Timeline(t).Created[set]
			require.Len(t, made, 3, "no pod may be restarted twice:\n%s", watched.Timeline(t))
			require.Equal(t, "store-1", made[0].Name, "the unavailable pod is replaced first")
			for _, p := range b.pods("store") {
				require.NotContains(t, old, string(p.UID))
			}
			watched.RequireAtMostOneUnavailable(t, set)
		})
	}
}

// sicken makes a running pod permanently not ready.
func (b *bench) sicken(pod string) {
	b.t.Helper()
	_, err := b.kube.CoreV1().Pods(b.namespace).Patch(b.t.Context(), pod, "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"dev.slipway.io/behaviour":"never-ready"}}}`), metav1.PatchOptions{})
	require.NoError(b.t, err)
	_, err = b.kube.CoreV1().Pods(b.namespace).Patch(b.t.Context(), pod, "application/strategic-merge-patch+json",
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"ContainersNotReady","message":"it hangs"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(b.t, err)
	require.Eventually(b.t, func() bool {
		s, err := b.kube.AppsV1().StatefulSets(b.namespace).Get(b.t.Context(), "store", metav1.GetOptions{})
		return err == nil && s.Status.AvailableReplicas == 2
	}, patience, tick, "the StatefulSet does not notice its unready pod")
}
