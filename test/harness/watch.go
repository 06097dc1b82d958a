package harness

import (
	"context"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// Seen is what a watch saw of the pods of one workload.
type Seen struct {
	// MostOut is the largest number of pods that were out at once: fewer ready ones than when the watch began.
	MostOut int
	// Created are the UIDs of the pods that came while it watched.
	Created []string
}

// WatchPods follows the pods of a workload in the order of their changes; the function that it returns ends that and tells what it saw.
func (e *Engine) WatchPods(name string) func() Seen {
	e.t.Helper()
	options := metav1.ListOptions{LabelSelector: "app=" + name}
	list, err := e.Kube.CoreV1().Pods(e.Apps).List(context.Background(), options)
	require.NoError(e.t, err)
	ready := map[string]bool{}
	for _, p := range list.Items {
		ready[string(p.UID)] = serving(&p)
	}
	whole := countReady(ready)
	options.ResourceVersion = list.ResourceVersion
	watcher, err := e.Kube.CoreV1().Pods(e.Apps).Watch(context.Background(), options)
	require.NoError(e.t, err)
	done := make(chan Seen)
	go func() {
		var seen Seen
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			uid := string(pod.UID)
			if event.Type == apiwatch.Added {
				seen.Created = append(seen.Created, uid)
			}
			ready[uid] = event.Type != apiwatch.Deleted && serving(pod)
			seen.MostOut = max(seen.MostOut, whole-countReady(ready))
		}
		done <- seen
	}()
	return func() Seen {
		watcher.Stop()
		return <-done
	}
}

func serving(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && isReady(*p) }

func countReady(ready map[string]bool) int {
	n := 0
	for _, r := range ready {
		if r {
			n++
		}
	}
	return n
}

// Change is one change of a Deployment, in the order in which the API server made them.
type Change struct {
	Name string
	// Generation counts the changes of its spec, Whole says that the controller has carried the newest one out.
	Generation int64
	Whole      bool
}

// WatchDeployments follows the Deployments of the apps namespace; the function that it returns ends that and tells the changes in their order.
func (e *Engine) WatchDeployments() func() []Change {
	e.t.Helper()
	list, err := e.Kube.AppsV1().Deployments(e.Apps).List(context.Background(), metav1.ListOptions{})
	require.NoError(e.t, err)
	watcher, err := e.Kube.AppsV1().Deployments(e.Apps).Watch(context.Background(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(e.t, err)
	done := make(chan []Change)
	go func() {
		var changes []Change
		for event := range watcher.ResultChan() {
			if d, ok := event.Object.(*appsv1.Deployment); ok {
				changes = append(changes, Change{Name: d.Name, Generation: d.Generation, Whole: whole(d)})
			}
		}
		done <- changes
	}()
	return func() []Change {
		watcher.Stop()
		return <-done
	}
}

func whole(d *appsv1.Deployment) bool {
	s, want := d.Status, int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	return s.ObservedGeneration >= d.Generation && s.Replicas == want && s.UpdatedReplicas == want && s.ReadyReplicas == want
}
