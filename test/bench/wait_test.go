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

// longestWait is how long a measurement waits for what it has begun.
const longestWait = 10 * time.Minute

// objects are those of one kind in one namespace.
type objects struct {
	list  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// waitFor waits until n of these objects are done. It watches: to list a thousand of them again and again would be on the bill.
func waitFor(t *testing.T, of objects, n int, done func(object runtime.Object) bool) {
	t.Helper()
	var there int
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, longestWait, true, func(ctx context.Context) (bool, error) {
		there, last = of.follow(ctx, n, done) // again if the watch has ended, or could not be begun
		return there >= n, nil
	})
	require.NoError(t, err, "only %d of %d are done: %v", there, n, last)
}

// follow answers how many are done once n are, or once the watch has ended.
func (of objects) follow(ctx context.Context, n int, done func(object runtime.Object) bool) (int, error) {
	list, err := of.list(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, err
	}
	there := map[string]bool{}
	look := func(object runtime.Object, gone bool) error {
		named, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		delete(there, named.GetName())
		if !gone && done(object) {
			there[named.GetName()] = true
		}
		return nil
	}
	if err := meta.EachListItem(list, func(object runtime.Object) error { return look(object, false) }); err != nil {
		return len(there), err
	}
	listed, err := meta.ListAccessor(list)
	if err != nil {
		return len(there), err
	}
	events, err := of.watch(ctx, metav1.ListOptions{ResourceVersion: listed.GetResourceVersion()})
	if err != nil {
		return len(there), err
	}
	defer events.Stop()
	for len(there) < n {
		event, open := <-events.ResultChan()
		if !open || event.Type == watch.Error {
			break
		}
		if err := look(event.Object, event.Type == watch.Deleted); err != nil {
			return len(there), err
		}
	}
	return len(there), nil
}

// deploymentsOf are the Deployments of a namespace.
func deploymentsOf(e *harness.Engine, namespace string) objects {
	client := e.Kube.AppsV1().Deployments(namespace)
	return objects{watch: client.Watch, list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) }}
}

// compared is the label of what is made to be compared with, and goes after that: controllers go through all that a namespace has for each of its objects, so
// that who is measured second would pay for what the first one has left there.
const compared = "compared"

// markCompared marks a Deployment and its pods as made to be compared.
func markCompared(d *appsv1.Deployment) {
	d.Labels = map[string]string{compared: ""}
	d.Spec.Template.Labels[compared] = ""
}

// clearAway deletes what is compared with in a namespace, and returns when its pods are gone.
func clearAway(t *testing.T, e *harness.Engine, namespace string) {
	t.Helper()
	options, chosen := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, metav1.ListOptions{LabelSelector: compared}
	apps, core := e.Kube.AppsV1(), e.Kube.CoreV1()
	require.NoError(t, apps.Deployments(namespace).DeleteCollection(t.Context(), options, chosen))
	require.NoError(t, core.ConfigMaps(namespace).DeleteCollection(t.Context(), options, chosen))
	services, err := core.Services(namespace).List(t.Context(), chosen)
	require.NoError(t, err)
	each(len(services.Items), func(i int) {
		require.NoError(t, core.Services(namespace).Delete(t.Context(), services.Items[i].Name, options))
	})
	err = wait.PollUntilContextTimeout(t.Context(), time.Second, longestWait, true, func(ctx context.Context) (bool, error) {
		sets, err := apps.ReplicaSets(namespace).List(ctx, chosen)
		if err != nil {
			return false, nil //nolint:nilerror // it is asked again
		}
		pods, err := core.Pods(namespace).List(ctx, chosen)
		return err == nil && len(sets.Items)+len(pods.Items) == 0, nil
	})
	require.NoError(t, err, "what was made to be compared with does not go")
}

// Between two measurements the processes of both are waited for until they use less than idleCPU within idleFor: controllers write of a burst for seconds after
// its end is seen, which would be on the bill of the next one.
const (
	idleFor     = 2 * time.Second
	idleCPU     = 0.5 // seconds
	longestIdle = time.Minute
)

// settle waits until what was begun is over for everybody.
func settle(t *testing.T, e *harness.Engine) {
	t.Helper()
	for until := time.Now().Add(longestIdle); time.Now().Before(until); {
		timer := time.NewTimer(idleFor)
		window := measure(t, e, func() { <-timer.C })
		if window.slipway()+window.temporal()+window.control() < idleCPU {
			return
		}
	}
	t.Logf("after %s something is still at work: it is on the bill of what is measured next", longestIdle)
}
