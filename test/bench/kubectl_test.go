package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/test/harness"
)

// TestSoakFewKubectlAtOnce measures releases that begin with an edit of a workload that a Rollout names, next to the
// same releases started over HTTP in the same run.
func TestSoakFewKubectlAtOnce(t *testing.T) {
	harness.Soak(t)
	measureKubectl(t, 20, 10*time.Second)
}

// TestSoakKubectlAtOnce has the size for which figures are published: 100 at once, and 200 idle.
func TestSoakKubectlAtOnce(t *testing.T) {
	harness.Soak(t)
	measureKubectl(t, 100, time.Minute)
}

// measureKubectl releases n Deployments over HTTP, as many others with kubectl, and then watches twice as many idle
// Rollouts for a while.
func measureKubectl(t *testing.T, n int, watched time.Duration) {
	stack := harness.SharedStack(t)
	guard := stack.InstallGuard(t)
	proxy := harness.NewCountingProxy(t, stack)
	stack.Kubeconfig = proxy.Kubeconfig
	e := harness.Start(t, harness.Options{SeparateWorker: true, Stack: &stack,
		Kubeconfig: func(e *harness.Engine) string { return e.KubeconfigAs(t, harness.EngineUser) }})
	guard.EnforceOn(t, e.Apps)
	each(2*n, func(i int) { e.Deployment(deploymentName(i), rolloutPods, nil) })
	waitReleased(t, e, 2*n, ":v1")

	writesBefore, readsBefore, _ := proxy.Requests()
	http := measure(t, e, func() {
		each(n, func(i int) { startRollout(t, e, deploymentName(i), ":v2", 0) })
		waitReleasedFrom(t, e, n, 0, ":v2")
	})
	waitClosed(t, e, n)
	writesHTTP, readsHTTP, _ := proxy.Requests()
	each(2*n, func(i int) { declareRollout(t, e, deploymentName(i)) })
	waitPhases(t, e, 2*n)
	writesAt, readsAt, _ := proxy.Requests()
	began := proxy.RequestsByResource("write")
	kubectl := measure(t, e, func() {
		each(n, func(i int) { setImage(t, e, deploymentName(n+i), ":v2") })
		waitReleasedFrom(t, e, n, n, ":v2")
	})
	waitClosed(t, e, 2*n)
	waitPhases(t, e, 2*n)
	waitNoWrites(t, proxy) // events are written asynchronously
	writes, reads, _ := proxy.Requests()

	fmt.Printf("\n%d Deployments of %d pods, in %d steps without pauses, no traffic: started over HTTP, and by an "+
		"edit of the workload\n", n, rolloutPods, rolloutSteps)
	row := func(what, unit string, a, b float64) {
		fmt.Printf("  %-40s %10.1f %10.1f  %.2f %s\n", what, a, b, b/a, unit)
	}
	row("wall time (the edit waits 3 s on purpose)", "s", http.wall.Seconds(), kubectl.wall.Seconds())
	row("CPU of slipway (server + worker)", "s", http.slipway(), kubectl.slipway())
	row("CPU of Temporal", "s", http.temporal(), kubectl.temporal())
	row("CPU of the Kubernetes control plane", "s", http.control(), kubectl.control())
	row("writes per release", "", float64(writesHTTP-writesBefore)/float64(n), float64(writes-writesAt)/float64(n))
	row("reads per release", "", float64(readsHTTP-readsBefore)/float64(n), float64(reads-readsAt)/float64(n))

	printRequests("write", began, proxy.RequestsByResource("write"))
	askedBefore, wroteBefore := proxy.RequestsByResource("read"), proxy.RequestsByResource("write")
	writesAt, readsAt, _ = proxy.Requests()
	timer := time.NewTimer(watched)
	idle := measure(t, e, func() { <-timer.C })
	writes, reads, _ = proxy.Requests()
	fmt.Printf("%d idle Rollouts over %s: slipway %.2f s of CPU per minute, %d writes, %d reads\n", 2*n, watched,
		idle.slipway()/watched.Minutes(), writes-writesAt,
		reads-readsAt)
	printRequests("read", askedBefore, proxy.RequestsByResource("read"))
	printRequests("write", wroteBefore, proxy.RequestsByResource("write"))
	harness.Covered(t, n, "releases by kubectl at once")
	require.Zero(t, writes-writesAt, "an idle Rollout must not write")
}

// declareRollout creates a Rollout for a Deployment with the steps of startRollout.
func declareRollout(t *testing.T, e *harness.Engine, name string) {
	var steps []any
	for i := range rolloutSteps {
		steps = append(steps, map[string]any{"replicas": fmt.Sprintf("%d%%", 100*(i+1)/rolloutSteps),
			"pause": map[string]any{"duration": int64(0)}})
	}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1beta1.GroupVersion.String(),
		"kind":     v1beta1.Kind,
		"metadata": map[string]any{"name": name}, "spec": map[string]any{
			"workloadRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
			"strategy":    map[string]any{"canary": map[string]any{"steps": steps}}}}}
	client := e.Dynamic(t).Resource(v1beta1.Resource).Namespace(e.Apps)
	_, err := client.Create(context.Background(), object, metav1.CreateOptions{})
	require.NoError(t, err)
}

// waitPhases returns when n Rollouts are Healthy and n workloads have the gate label.
func waitPhases(t *testing.T, e *harness.Engine, n int) {
	client := e.Dynamic(t).Resource(v1beta1.Resource).Namespace(e.Apps)
	require.Eventually(t, func() bool {
		list, err := client.List(context.Background(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false
		}
		healthy := 0
		for _, item := range list.Items {
			raw, _ := json.Marshal(item.Object["status"])
			var status v1beta1.RolloutStatus
			if json.Unmarshal(raw, &status) == nil && status.Phase == v1beta1.PhaseHealthy {
				healthy++
			}
		}
		return healthy == n
	}, 5*time.Minute, 200*time.Millisecond, "not all Rollouts are Healthy")
	require.Eventually(t, func() bool {
		list, err := e.Kube.AppsV1().Deployments(e.Apps).List(context.Background(),
			metav1.ListOptions{LabelSelector: "slipway.io/gate"})
		return err == nil && len(list.Items) == n
	}, 5*time.Minute, 200*time.Millisecond, "not all workloads have the gate label")
}

// waitReleasedFrom returns when n Deployments, beginning with number from, are complete with that image and unclaimed.
func waitReleasedFrom(t *testing.T, e *harness.Engine, n, from int, tag string) {
	require.Eventually(t, func() bool {
		list, err := e.Kube.AppsV1().Deployments(e.Apps).List(context.Background(),
			metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false
		}
		done := 0
		for _, d := range list.Items {
			var i int
			if _, err := fmt.Sscanf(d.Name, "d%d", &i); err == nil && i >= from && i < from+n && released(&d, tag) {
				done++
			}
		}
		return done == n
	}, 10*time.Minute, 200*time.Millisecond, "the Deployments never reached version %s", tag)
}
