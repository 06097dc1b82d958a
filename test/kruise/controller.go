package kruise

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// key identifies a workload.
type key struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// controller reconciles the pods of the workloads in some namespaces. Watches only trigger it; every decision is based
// on fresh reads from the API server, so that it never acts on stale data.
type controller struct {
	dynamic dynamic.Interface
	kube    kubernetes.Interface
	queue   workqueue.TypedRateLimitingInterface[key]
	log     *slog.Logger
	now     func() time.Time
}

// Start installs the definitions and runs the controller for these namespaces until the test ends.
func Start(t testing.TB, config *rest.Config, namespaces ...string) {
	t.Helper()
	require.NotEmpty(t, namespaces, "name the namespaces to run in: other tests run their own controllers")
	Install(t, config)
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = 500, 1000
	c := &controller{
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](20*time.Millisecond, 2*time.Second)),
		log: slog.New(slog.NewTextHandler(t.Output(), nil)).With("part", "kruise"),
		now: time.Now,
	}
	var err error
	c.dynamic, err = dynamic.NewForConfig(own)
	require.NoError(t, err)
	c.kube, err = kubernetes.NewForConfig(own)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		c.queue.ShutDown()
		running.Wait()
	})
	for _, informer := range c.informers(t, namespaces) {
		running.Go(func() { informer.RunWithContext(ctx) })
		require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	}
	// Four workers, so that workloads do not wait for each other.
	for range 4 {
		running.Go(func() { c.work(ctx) })
	}
}

// informers returns informers of the workloads and of their pods.
func (c *controller) informers(t testing.TB, namespaces []string) []cache.SharedIndexInformer {
	t.Helper()
	var all []cache.SharedIndexInformer
	for _, namespace := range namespaces {
		for _, resource := range []schema.GroupVersionResource{CloneSets, StatefulSets, DaemonSets} {
			client := c.dynamic.Resource(resource).Namespace(namespace)
			informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return client.List(ctx, o)
				},
				WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					return client.Watch(ctx, o)
				},
			}, c.dynamic), nil, 0, nil)
			listen(t, informer, func(m metav1.Object) { c.queue.Add(key{resource, m.GetNamespace(), m.GetName()}) })
			all = append(all, informer)
		}
		pods := c.kube.CoreV1().Pods(namespace)
		informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return pods.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(ctx, o)
			},
		}, c.kube), &corev1.Pod{}, 0, nil)
		listen(t, informer, c.podChanged)
		all = append(all, informer)
	}
	return all
}

func listen(t testing.TB, informer cache.SharedIndexInformer, changed func(metav1.Object)) {
	t.Helper()
	notify := func(obj any) {
		if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = deleted.Obj
		}
		if m, ok := obj.(metav1.Object); ok {
			changed(m)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: notify, UpdateFunc: func(_, obj any) {
		notify(obj)
	}, DeleteFunc: notify})
	require.NoError(t, err)
}

func (c *controller) podChanged(pod metav1.Object) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return
	}
	for kind, resource := range map[string]schema.GroupVersionResource{"CloneSet": CloneSets,
		"StatefulSet": StatefulSets, "DaemonSet": DaemonSets} {
		if gv, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && gv.Group == resource.Group &&
			owner.Kind == kind {
			c.queue.Add(key{resource, pod.GetNamespace(), owner.Name})
		}
	}
}

func (c *controller) work(ctx context.Context) {
	for {
		k, stopping := c.queue.Get()
		if stopping {
			return
		}
		if err := c.sync(ctx, k); err != nil && ctx.Err() == nil {
			c.log.Info("sync failed, retrying", "kind", k.resource.Resource, "name", k.name, "error", err)
			c.queue.AddRateLimited(k)
		} else {
			c.queue.Forget(k)
		}
		c.queue.Done(k)
	}
}

// sync reconciles a workload once and writes its status.
func (c *controller) sync(ctx context.Context, k key) error {
	u, err := c.dynamic.Resource(k.resource).Namespace(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := newSet(u)
	if err != nil || s.DeletionTimestamp != nil {
		return err
	}
	revisions, err := c.revisions(ctx, s)
	if err != nil {
		return err
	}
	pods, err := c.pods(ctx, s)
	if err != nil {
		return err
	}
	var report map[string]any
	switch k.resource {
	case CloneSets:
		report, err = c.syncCloneSet(ctx, s, revisions, pods)
	case StatefulSets:
		report, err = c.syncStatefulSet(ctx, s, revisions, pods)
	default:
		report, err = c.syncDaemonSet(ctx, s, revisions, pods)
	}
	if err != nil {
		return err
	}
	return c.report(ctx, k, u, report)
}
