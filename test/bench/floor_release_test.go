package bench

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/api/gather"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/test/harness"
)

var (
	deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")
	replicaSetsResource = appsv1.SchemeGroupVersion.WithResource("replicasets")
	recordsResource     = v1alpha1.GroupVersion.WithResource("releaserecords")
)

// probeWrites is what one observed rollout wrote: the annotations of its Deployment during and after the release, and
// its record at the end.
type probeWrites struct {
	begun, ended map[string]string
	record       unstructured.Unstructured
}

// observeRollout runs one rollout and returns what it wrote.
func observeRollout(t *testing.T, e *harness.Engine) (s probeWrites) {
	const name = "probe"
	e.Deployment(name, rolloutPods, markCompared)
	watched, err := e.Kube.AppsV1().Deployments(e.Apps).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watched.Stop()
	startRollout(t, e, name, ":v2", 0)
	for event := range watched.ResultChan() {
		d, is := event.Object.(*appsv1.Deployment)
		if !is || d.Spec.Template.Spec.Containers[0].Image != image(name, ":v2") {
			continue
		}
		if s.begun == nil {
			s.begun = annotationsOf(d)
		}
		if released(d, ":v2") {
			s.ended = annotationsOf(d)
			break
		}
	}
	require.True(t, s.begun != nil && s.ended != nil, "the watch ended before the rollout")
	e.WaitPhase(name, rollout.PhaseHealthy)
	records, err := e.Dynamic(t).Resource(recordsResource).Namespace(e.Home).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, records.Items, 1)
	s.record = records.Items[0]
	deleteCompared(t, e, e.Apps)
	return s
}

// annotationsOf returns the annotations that the native controller did not set.
func annotationsOf(d *appsv1.Deployment) map[string]string {
	own := maps.Clone(d.Annotations)
	maps.DeleteFunc(own, func(key, _ string) bool { return strings.HasPrefix(key, "deployment.kubernetes.io/") })
	return own
}

// floor writes what a rollout writes, without an engine: a lower bound for the cost of a release.
type floor struct {
	// id is part of the names of its records and workflows and makes them unique.
	id       string
	seen     probeWrites
	objects  dynamic.Interface
	kube     kubernetes.Interface
	apps     string
	promises bool
	// body writes to the workload what a release writes, and its events.
	body func(ctx context.Context, name string) error
	// checks batches the checks before a release begins; nil: releases are not checked.
	checks *gather.Batcher[string, struct{}]

	mu    sync.Mutex
	ready map[string]chan struct{}
}

// newFloor returns a floor that watches the Deployments until the context ends.
func newFloor(ctx context.Context, t *testing.T, e *harness.Engine, s probeWrites) *floor {
	f := newUnwatchedFloor(t, e, s)
	f.watch(ctx, t, deploymentsResource)
	return f
}

// newUnwatchedFloor returns a floor without watches.
func newUnwatchedFloor(t *testing.T, e *harness.Engine, s probeWrites) *floor {
	objects, err := kube.NewUntyped(e.REST)
	require.NoError(t, err)
	f := &floor{id: harness.RandomName("floor"), seen: s, objects: objects, kube: e.Kube, apps: e.Apps,
		ready: map[string]chan struct{}{}}
	f.body = f.release
	return f
}

// withPromises makes the floor keep the engine's promises too, and watch the ReplicaSets for them.
func (f *floor) withPromises(ctx context.Context, t *testing.T) *floor {
	f.promises = true
	f.watch(ctx, t, replicaSetsResource)
	return f
}

// withChecks makes the floor check each release before it begins.
func (f *floor) withChecks() *floor {
	f.checks = &gather.Batcher[string, struct{}]{}
	return f
}

func (f *floor) watch(ctx context.Context, t *testing.T, resource schema.GroupVersionResource) {
	look := func(*unstructured.Unstructured) {}
	if resource == deploymentsResource {
		look = f.observe
	}
	f.watchObjects(ctx, t, resource, f.apps, look)
}

// watchObjects calls look with each object of a kind in a namespace, at first and after each change, until its context
// ends.
func (f *floor) watchObjects(ctx context.Context, t *testing.T, resource schema.GroupVersionResource, namespace string,
	look func(o *unstructured.Unstructured)) {
	informer := dynamicinformer.NewFilteredDynamicInformer(f.objects, resource, namespace, 0, cache.Indexers{},
		nil).Informer()
	notify := func(object any) {
		if o, is := object.(*unstructured.Unstructured); is {
			look(o)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: notify,
		UpdateFunc: func(_, object any) { notify(object) }})
	require.NoError(t, err)
	go informer.RunWithContext(ctx)
}

// whenReady returns a channel that is closed when the new pods of a Deployment serve.
func (f *floor) whenReady(name string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ready[name] == nil {
		f.ready[name] = make(chan struct{})
	}
	return f.ready[name]
}

func (f *floor) observe(o *unstructured.Unstructured) {
	number := func(field string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, "status", field)
		return n
	}
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 || containers[0].(map[string]any)["image"] != image(o.GetName(), ":v2") ||
		number("observedGeneration") < o.GetGeneration() ||
		number("updatedReplicas") != rolloutPods || number("availableReplicas") != rolloutPods ||
		number("replicas") != rolloutPods {
		return
	}
	f.markReady(o.GetName())
}

// markReady wakes those who wait for that Deployment.
func (f *floor) markReady(name string) {
	ready := f.whenReady(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-ready:
	default:
		close(ready)
	}
}

// loop releases n Deployments at once.
func (f *floor) loop(t *testing.T, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			name := deploymentName(i)
			err := f.record(t.Context(), name)
			if err == nil {
				err = f.attempt(t.Context(), name)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func (f *floor) records() dynamic.ResourceInterface {
	return f.objects.Resource(recordsResource).Namespace(f.seen.record.GetNamespace())
}

func (f *floor) recordName(name string) string { return f.id + "-" + name }

// record creates the record of a release.
func (f *floor) record(ctx context.Context, name string) error {
	record := f.seen.record.DeepCopy()
	record.SetName(f.recordName(name))
	record.SetResourceVersion("")
	record.SetManagedFields(nil)
	_, err := f.records().Create(ctx, record, metav1.CreateOptions{})
	return err
}

// complete writes the end into the record.
func (f *floor) complete(ctx context.Context, name string) error {
	patch := []byte(`{"metadata":{"labels":{"floor":"over"}}}`)
	_, err := f.records().Patch(ctx, f.recordName(name), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// beginPatch returns the write with which the release of a Deployment begins.
func (f *floor) beginPatch(name string) []byte {
	container := map[string]any{"name": "app", "image": image(name, ":v2")}
	begin, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": f.seen.begun},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}})
	return begin
}

// dryRun asks the API server whether a release may begin.
func (f *floor) dryRun(ctx context.Context, name string) error {
	return f.patch(ctx, name, f.beginPatch(name), metav1.DryRunAll)
}

// release writes to the workload what a rollout writes, and its events.
func (f *floor) release(ctx context.Context, name string) error {
	if f.checks == nil {
		if err := f.dryRun(ctx, name); err != nil {
			return err
		}
	}
	if err := f.patch(ctx, name, f.beginPatch(name)); err != nil {
		return err
	}
	if err := f.recordEvent(ctx, name); err != nil {
		return err
	}
	select {
	case <-f.whenReady(name):
	case <-ctx.Done():
		return ctx.Err()
	}
	left := map[string]any{}
	for key := range f.seen.begun {
		left[key] = nil
	}
	for key, value := range f.seen.ended {
		left[key] = value
	}
	end, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": left}})
	if err := f.patch(ctx, name, end); err != nil {
		return err
	}
	return f.recordEvent(ctx, name)
}

func (f *floor) patch(ctx context.Context, name string, patch []byte, dry ...string) error {
	_, err := f.objects.Resource(deploymentsResource).Namespace(f.apps).Patch(ctx, name, types.StrategicMergePatchType,
		patch, metav1.PatchOptions{DryRun: dry})
	return err
}

func (f *floor) recordEvent(ctx context.Context, name string) error {
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Namespace: f.apps}, Reason: "Floor",
		Message: "event of a rollout",
		Type:    corev1.EventTypeNormal, InvolvedObject: corev1.ObjectReference{Kind: "Deployment",
			APIVersion: "apps/v1",
			Name:       name, Namespace: f.apps}}
	_, err := f.kube.CoreV1().Events(f.apps).Create(ctx, event, metav1.CreateOptions{})
	return err
}

// read reads a workload and its ReplicaSets.
func (f *floor) read(ctx context.Context, name string) error {
	deployment, err := f.objects.Resource(deploymentsResource).Namespace(f.apps).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	labels, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "selector", "matchLabels")
	selector := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(
		&metav1.LabelSelector{MatchLabels: labels}), Limit: 500}
	_, err = f.objects.Resource(replicaSetsResource).Namespace(f.apps).List(ctx, selector)
	return err
}
