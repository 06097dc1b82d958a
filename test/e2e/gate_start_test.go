package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
)

// An API server that has just started may not know Rollouts yet, by which its policies hold workloads. A change of a
// workload is held nevertheless, from the first request that it answers, if its Rollout was there before. Until it can
// hold by Rollouts, the API server refuses new ones; then the policies, or else the engine's mark, hold their workloads.
func TestLongGate_HoldsEveryChange_AfterAPIServerStart(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	changeAfterStarts(t, 1, harness.Deployment, harness.StatefulSet, harness.DaemonSet)
}

func TestSoakGate_HoldsEveryChange_AfterAPIServerStart(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	changeAfterStarts(t, 6, harness.Kinds...)
}

// startedChange is a workload that is changed a while after the start of the API server, and its Rollout, which is made
// then if it is new.
type startedChange struct {
	*gated
	after time.Duration
	isNew bool
	// madeAt and changedAt are when the API server accepted the Rollout and the change, since its start; refusals are
	// what it answered before.
	madeAt, changedAt time.Duration
	refusals          map[string]int
	changed           *unstructured.Unstructured
}

// changeAfterStarts kills and starts the API server several times, and then changes a workload at each tenth of a
// second.
func changeAfterStarts(t *testing.T, starts int, kinds ...harness.Kind) {
	p := harness.NewPrivateStack(t)
	p.InstallRollouts(t)
	g := p.InstallGuard(t)
	e := harness.Start(t, harness.Options{Stack: &p.Stack,
		Kubeconfig: func(e *harness.Engine) string { return e.KubeconfigAs(t, harness.EngineUser) }})
	g.EnforceOn(t, e.Apps)
	kruise.Start(t, e.REST, e.Apps)
	for start := range starts {
		var all []*startedChange
		for i := range 2 * 20 {
			c := &startedChange{gated: describeGated(t, e, kinds[(start+i/2)%len(kinds)]), isNew: i%2 == 0,
				after: time.Duration(i/2) * time.Second / 10, refusals: map[string]int{}}
			if i/2 >= 15 { // the API server looks for new kinds every 30 seconds
				c.after = time.Duration(i/2-14) * 5 * time.Second
			}
			c.Subject(c.kind, c.name, func(object map[string]any) {
				if c.kind.Kind != "DaemonSet" {
					_ = unstructured.SetNestedField(object, int64(2), "spec", "replicas")
				}
			})
			if !c.isNew {
				c.createRollout(c.name)
				c.waitInForce()
			}
			all = append(all, c)
		}
		p.Kill(harness.PartAPIServer)
		// on a busy machine the killed process listens a little longer
		require.Eventually(t, func() bool { return utilnet.IsConnectionRefused(ready(e)) }, harness.Patience, harness.Tick,
			"the API server does not end")
		var running sync.WaitGroup
		running.Go(func() { p.StartPart(harness.PartAPIServer) })
		began := waitAnswers(t, e)
		for _, c := range all {
			running.Go(func() { c.run(began) })
		}
		running.Wait()
		for _, c := range all {
			c.requireReleased()
		}
	}
}

// waitAnswers waits until the API server says that it is ready.
func waitAnswers(t *testing.T, e *harness.Engine) time.Time {
	t.Helper()
	require.Eventually(t, func() bool { return ready(e) == nil }, harness.Patience, 20*time.Millisecond,
		"the API server does not start")
	return time.Now()
}

// ready asks the API server whether it is ready.
func ready(e *harness.Engine) error {
	return e.Kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(context.Background()).Error()
}

// run makes the Rollout if it is new, and changes the workload, as soon as the API server accepts it.
func (c *startedChange) run(began time.Time) {
	time.Sleep(time.Until(began.Add(c.after)))
	if c.isNew {
		c.madeAt = c.until(began, func() error { return c.tryRollout(c.name) })
		time.Sleep(c.after % time.Second)
	}
	c.changedAt = c.until(began, func() (err error) {
		c.changed, err = c.try(anna, metav1.PatchOptions{}, c.image("v2"))
		return err
	})
}

// until repeats a request every tenth of a second until the API server accepts it, and returns when it did.
func (c *startedChange) until(began time.Time, ask func() error) time.Duration {
	for deadline := began.Add(harness.Patience); ; time.Sleep(time.Second / 10) {
		err := ask()
		if err == nil || apierrors.IsAlreadyExists(err) || time.Now().After(deadline) {
			return time.Since(began)
		}
		c.refusals[err.Error()]++
	}
}

func (c *startedChange) String() string {
	return fmt.Sprintf("%s %s: new Rollout %v, made %v and changed %v after the start, refused: %v", c.kind.Title,
		c.name, c.isNew, c.madeAt, c.changedAt, c.refusals)
}

// markedWithin is how long after a Rollout was made its workload is held for certain: an API server may deliver the
// Rollout to its own policies late, but the engine marks the workload.
const markedWithin = 2 * time.Second

// requireReleased requires that the change was held, and waits until its release pauses at its first step, with at most
// half of the pods. A change right after its Rollout was made may pass, if the Rollout says so.
func (c *startedChange) requireReleased() {
	c.t.Helper()
	c.t.Log(c)
	require.NotNil(c.t, c.changed, "the API server never accepts the change: %s", c)
	var last *v1beta1.Rollout
	require.Eventually(c.t, func() bool {
		found, err := c.Dynamic(c.t).Resource(v1beta1.Resource).Namespace(c.Apps).Get(context.Background(), c.name,
			metav1.GetOptions{})
		require.NoError(c.t, err)
		last, err = store.ReadRollout(found)
		require.NoError(c.t, err)
		return last.Status.CurrentStepState == "StepPaused" || conditionOf(last, v1beta1.ConditionNotHeld).Type != ""
	}, 2*harness.Patience, harness.Tick, "%s\nits release does not begin, and it says nothing: %v\n%v", c, &last,
		c.changed)
	if passed := conditionOf(last, v1beta1.ConditionNotHeld); passed.Message != "" {
		c.t.Logf("%s passed: %s", c, passed.Message)
		require.True(c.t, c.isNew && c.changedAt-c.madeAt < markedWithin, "%s passed: %s", c, passed.Message)
		return
	}
	pods, err := c.Kube.CoreV1().Pods(c.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: "app=" + c.name})
	require.NoError(c.t, err)
	var moved []corev1.Pod
	for _, p := range pods.Items {
		if p.Spec.Containers[0].Image != harness.StableImage(c.name) {
			moved = append(moved, p)
		}
	}
	require.LessOrEqual(c.t, len(moved), len(pods.Items)/2+1, "%s moved more than the step", c)
	require.NotEmpty(c.t, moved, c)
}
