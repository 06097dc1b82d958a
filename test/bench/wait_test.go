package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"slipway.io/slipway/test/harness"
)

// maxWait is the timeout of a measurement.
const maxWait = 10 * time.Minute

// objectSource lists and watches the objects of one kind in one namespace.
type objectSource struct {
	list  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// waitFor waits until n of these objects are done. It uses a watch: repeated lists of a thousand objects would distort
// the measurement.
func waitFor(t *testing.T, of objectSource, n int, done func(object runtime.Object) bool) {
	t.Helper()
	var there int
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, maxWait, true,
		func(ctx context.Context) (bool, error) {
			there, last = of.countDone(ctx, n, done) // retried if the watch has ended or could not start
			return there >= n, nil
		})
	require.NoError(t, err, "only %d of %d objects are done: %v", there, n, last)
}

// countDone returns the number of done objects once it reaches n, or once the watch has ended.
func (of objectSource) countDone(ctx context.Context, n int, done func(object runtime.Object) bool) (int, error) {
	list, err := of.list(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, err
	}
	finished := map[string]bool{}
	look := func(object runtime.Object, deleted bool) error {
		named, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		delete(finished, named.GetName())
		if !deleted && done(object) {
			finished[named.GetName()] = true
		}
		return nil
	}
	if err := meta.EachListItem(list, func(object runtime.Object) error { return look(object, false) }); err != nil {
		return len(finished), err
	}
	listed, err := meta.ListAccessor(list)
	if err != nil {
		return len(finished), err
	}
	events, err := of.watch(ctx, metav1.ListOptions{ResourceVersion: listed.GetResourceVersion()})
	if err != nil {
		return len(finished), err
	}
	defer events.Stop()
	for len(finished) < n {
		event, open := <-events.ResultChan()
		if !open || event.Type == watch.Error {
			break
		}
		if err := look(event.Object, event.Type == watch.Deleted); err != nil {
			return len(finished), err
		}
	}
	return len(finished), nil
}

// deploymentsOf returns the Deployments of a namespace.
func deploymentsOf(e *harness.Engine, namespace string) objectSource {
	client := e.Kube.AppsV1().Deployments(namespace)
	return objectSource{watch: client.Watch, list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
		error) {
		return client.List(ctx, o)
	}}
}

// comparisonLabel marks the objects of a comparison, which are deleted after it. Controllers go through all objects of
// a namespace for each of them, so the way measured second would pay for what the first one left.
const comparisonLabel = "compared"

// markCompared adds the comparison label to a Deployment and its pods.
func markCompared(d *appsv1.Deployment) {
	d.Labels = map[string]string{comparisonLabel: ""}
	d.Spec.Template.Labels[comparisonLabel] = ""
}

// deleteCompared deletes the objects with the comparison label in a namespace and waits until their pods are deleted.
func deleteCompared(t *testing.T, e *harness.Engine, namespace string) {
	t.Helper()
	options, chosen := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)},
		metav1.ListOptions{LabelSelector: comparisonLabel}
	apps, core := e.Kube.AppsV1(), e.Kube.CoreV1()
	require.NoError(t, apps.Deployments(namespace).DeleteCollection(t.Context(), options, chosen))
	require.NoError(t, core.ConfigMaps(namespace).DeleteCollection(t.Context(), options, chosen))
	services, err := core.Services(namespace).List(t.Context(), chosen)
	require.NoError(t, err)
	each(len(services.Items), func(i int) {
		require.NoError(t, core.Services(namespace).Delete(t.Context(), services.Items[i].Name, options))
	})
	err = wait.PollUntilContextTimeout(t.Context(), time.Second, maxWait, true,
		func(ctx context.Context) (bool, error) {
			sets, err := apps.ReplicaSets(namespace).List(ctx, chosen)
			if err != nil {
				return false, nil //nolint:nilerror // the poll repeats the request
			}
			pods, err := core.Pods(namespace).List(ctx, chosen)
			return err == nil && len(sets.Items)+len(pods.Items) == 0, nil
		})
	require.NoError(t, err, "objects of the comparison still exist")
}

// Between two measurements waitSettled waits until the processes use less than idleCPU within idleFor. After a burst
// controllers keep writing for seconds, which would count for the next measurement.
const (
	idleFor     = 2 * time.Second
	idleCPU     = 0.5 // seconds
	maxIdleWait = time.Minute
)

// waitSettled waits until all measured processes are nearly idle.
func waitSettled(t *testing.T, e *harness.Engine) {
	t.Helper()
	for until := time.Now().Add(maxIdleWait); time.Now().Before(until); {
		timer := time.NewTimer(idleFor)
		window := measure(t, e, func() { <-timer.C })
		if window.slipway()+window.temporal()+window.control() < idleCPU {
			return
		}
	}
	t.Logf("after %s the processes are still busy: the next measurement includes that", maxIdleWait)
}
