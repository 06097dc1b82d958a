// Package observer watches a test's namespace and replays, in order of resourceVersion, what happened there, so that a test can check at every single change what
// must never be otherwise (design §10).
package observer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Observer records every change of the pods, Deployments, StatefulSets and DaemonSets of one namespace.
type Observer struct {
	client    kubernetes.Interface
	namespace string
	feeds     []*feed
	cancel    context.CancelFunc
	ending    sync.WaitGroup

	mu      sync.Mutex
	first   []runtime.Object
	changes []change
	gap     error
}

// change is one event of a watch.
type change struct {
	version uint64
	kind    watch.EventType
	object  runtime.Object
}

// feed is one of the watches.
type feed struct {
	list  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	// version is where the watch goes on after it broke.
	version string
}

// Start begins to observe a namespace; the observer ends with the test. What is there already is the state that the record begins with.
func Start(t *testing.T, client kubernetes.Interface, namespace string) *Observer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := &Observer{client: client, namespace: namespace, feeds: feeds(client, namespace), cancel: cancel}
	t.Cleanup(o.stop)
	for _, f := range o.feeds {
		list, err := f.list(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		items, err := meta.ExtractList(list)
		require.NoError(t, err)
		o.first = append(o.first, items...)
		m, err := meta.ListAccessor(list)
		require.NoError(t, err)
		f.version = m.GetResourceVersion()
	}
	for _, f := range o.feeds {
		o.ending.Go(func() { o.follow(ctx, f) })
	}
	return o
}

func (o *Observer) stop() {
	o.cancel()
	o.ending.Wait()
}

// Timeline is what happened until now. It waits until every change that the API server has made so far has arrived.
func (o *Observer) Timeline(t *testing.T) *Timeline {
	t.Helper()
	require.Eventually(t, func() bool { return o.caughtUp(t) }, 30*time.Second, 20*time.Millisecond, "the watches do not catch up")
	o.mu.Lock()
	defer o.mu.Unlock()
	require.NoError(t, o.gap, "the record is not complete")
	tl, err := newTimeline(o.first, o.changes)
	require.NoError(t, err)
	return tl
}

// RequireAtMostOneOut fails the test when more than one pod of a service was out at any moment while a release held it (design §5, SEQUENTIAL).
func (o *Observer) RequireAtMostOneOut(t *testing.T, service ...Name) {
	t.Helper()
	tl := o.Timeline(t)
	most, at := tl.MostOut(service...)
	require.LessOrEqual(t, most, int32(1), "pods of %v out at once, after version %d (%s):\n%s", service, at.Version, at.What, tl)
}

// caughtUp compares what was recorded with what is there.
func (o *Observer) caughtUp(t *testing.T) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	there := map[string]string{}
	for _, f := range o.feeds {
		list, err := f.list(ctx, metav1.ListOptions{})
		if err != nil {
			t.Logf("observer: %v", err)
			return false
		}
		items, err := meta.ExtractList(list)
		require.NoError(t, err)
		for _, item := range items {
			there[key(item)] = versionText(item)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gap != nil {
		return true
	}
	known := map[string]string{}
	for _, item := range o.first {
		known[key(item)] = versionText(item)
	}
	for _, c := range o.changes {
		if c.kind == watch.Deleted {
			delete(known, key(c.object))
		} else {
			known[key(c.object)] = versionText(c.object)
		}
	}
	return fmt.Sprint(known) == fmt.Sprint(there)
}

// follow records one watch, and begins it again where it broke, for as long as the API server is away.
func (o *Observer) follow(ctx context.Context, f *feed) {
	for ctx.Err() == nil {
		w, err := f.watch(ctx, metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true})
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				o.broke(err)
				return
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		for event := range w.ResultChan() {
			if !o.record(f, event) {
				break
			}
		}
		w.Stop()
	}
}

// record takes one event; false ends the watch, which is then begun again.
func (o *Observer) record(f *feed, event watch.Event) bool {
	if event.Type == watch.Error {
		if err := apierrors.FromObject(event.Object); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			o.broke(err)
		}
		return false
	}
	f.version = versionText(event.Object)
	if event.Type == watch.Bookmark {
		return true
	}
	version, err := strconv.ParseUint(f.version, 10, 64)
	if err != nil {
		o.broke(err)
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes = append(o.changes, change{version: version, kind: event.Type, object: event.Object})
	return true
}

func (o *Observer) broke(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gap = err
}

func feeds(client kubernetes.Interface, ns string) []*feed {
	core, apps := client.CoreV1(), client.AppsV1()
	return []*feed{
		{
			list: func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
				return core.Pods(ns).List(ctx, l)
			},
			watch: core.Pods(ns).Watch,
		},
		{
			list: func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
				return apps.Deployments(ns).List(ctx, l)
			},
			watch: apps.Deployments(ns).Watch,
		},
		{
			list: func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
				return apps.StatefulSets(ns).List(ctx, l)
			},
			watch: apps.StatefulSets(ns).Watch,
		},
		{
			list: func(ctx context.Context, l metav1.ListOptions) (runtime.Object, error) {
				return apps.DaemonSets(ns).List(ctx, l)
			},
			watch: apps.DaemonSets(ns).Watch,
		},
	}
}

// key names an object among all kinds.
func key(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return kindOf(obj) + "/" + m.GetName()
}

func kindOf(obj runtime.Object) string {
	switch obj.(type) {
	case *corev1.Pod:
		return "Pod"
	case *appsv1.Deployment:
		return "Deployment"
	case *appsv1.StatefulSet:
		return "StatefulSet"
	case *appsv1.DaemonSet:
		return "DaemonSet"
	}
	return ""
}

func versionText(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}
