package kruise

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/test/harness"
)

// field is the namespace of one test, with the controller at work in it.
type field struct {
	harness.Stack
	t         *testing.T
	namespace string
	dynamic   dynamic.Interface
}

func newField(t *testing.T) *field {
	t.Helper()
	stack := harness.SharedStack(t)
	t.Parallel()
	f := &field{Stack: stack, t: t, namespace: stack.Namespace(t, "kruise")}
	var err error
	f.dynamic, err = dynamic.NewForConfig(stack.REST)
	require.NoError(t, err)
	Start(t, stack.REST, f.namespace)
	return f
}

// apply creates a workload "w" with the given spec, beside selector and template.
func (f *field) apply(resource schema.GroupVersionResource, kind, spec string) {
	f.t.Helper()
	var fields map[string]any
	require.NoError(f.t, json.Unmarshal([]byte(spec), &fields))
	fields["selector"] = map[string]any{"matchLabels": map[string]any{"app": "w"}}
	fields["template"] = map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "w"}},
		"spec":     map[string]any{"terminationGracePeriodSeconds": 1.0, "containers": []any{map[string]any{"name": "app", "image": "x:v1"}}},
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": "w"}, "spec": fields,
	}}
	_, err := f.dynamic.Resource(resource).Namespace(f.namespace).Create(context.Background(), u, metav1.CreateOptions{})
	require.NoError(f.t, err)
}

func (f *field) patch(resource schema.GroupVersionResource, spec string) {
	f.t.Helper()
	_, err := f.dynamic.Resource(resource).Namespace(f.namespace).Patch(context.Background(), "w", types.MergePatchType, fmt.Appendf(nil, `{"spec":%s}`, spec), metav1.PatchOptions{})
	require.NoError(f.t, err)
}

// image is a patch that changes the image, together with other fields.
func image(tag, others string) string {
	return fmt.Sprintf(`{"template":{"spec":{"containers":[{"name":"app","image":"x:%s"}]}}%s}`, tag, others)
}

func (f *field) pods() []corev1.Pod {
	f.t.Helper()
	list, err := f.Kube.CoreV1().Pods(f.namespace).List(context.Background(), metav1.ListOptions{LabelSelector: "app=w"})
	require.NoError(f.t, err)
	return list.Items
}

// split is the number of pods of each image, and of those that are ready: "v1:3/3 v2:1/0" has three ready pods of v1 and an unready one of v2. Pods on their
// way out show as "-1".
func (f *field) split() string {
	total, readyPods, leaving := map[string]int{}, map[string]int{}, 0
	for _, p := range f.pods() {
		tag := p.Spec.Containers[0].Image[2:]
		if p.DeletionTimestamp != nil {
			leaving++
			continue
		}
		total[tag]++
		if ready(&p) {
			readyPods[tag]++
		}
	}
	var tags []string
	for tag := range total {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	out := ""
	for _, tag := range tags {
		out += fmt.Sprintf(" %s:%d/%d", tag, total[tag], readyPods[tag])
	}
	if leaving > 0 {
		out += fmt.Sprintf(" -%d", leaving)
	}
	return out
}

func (f *field) becomes(want, reason string) {
	f.t.Helper()
	if !f.within(func() bool { return f.split() == " "+want }) {
		require.Equal(f.t, " "+want, f.split(), reason)
	}
}

// within says whether something comes true in time.
func (f *field) within(reached func() bool) bool {
	return assert.Eventually(silent{}, reached, harness.Patience, 20*time.Millisecond)
}

type silent struct{}

func (silent) Errorf(string, ...any) {}

// holds waits until the controller has seen the newest spec and done what it does about it, and has the split still be the same.
func (f *field) holds(resource schema.GroupVersionResource, want, reason string) {
	f.t.Helper()
	f.seen(resource)
	require.Equal(f.t, " "+want, f.split(), reason)
}

func (f *field) seen(resource schema.GroupVersionResource) map[string]any {
	f.t.Helper()
	var status map[string]any
	require.Eventually(f.t, func() bool {
		u, err := f.dynamic.Resource(resource).Namespace(f.namespace).Get(context.Background(), "w", metav1.GetOptions{})
		require.NoError(f.t, err)
		status, _, _ = unstructured.NestedMap(u.Object, "status")
		return status["observedGeneration"] == u.GetGeneration()
	}, harness.Patience, 20*time.Millisecond)
	return status
}

// reports waits until the status says so.
func (f *field) reports(resource schema.GroupVersionResource, want map[string]int64, reason string) {
	f.t.Helper()
	var status map[string]any
	is := f.within(func() bool {
		status = f.seen(resource)
		for name, n := range want {
			if status[name] != n {
				return false
			}
		}
		return true
	})
	require.True(f.t, is, "%s: %v, never %v", reason, status, want)
}

func TestCloneSetPartition(t *testing.T) {
	f := newField(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":4,"updateStrategy":{"maxUnavailable":1}}`)
	f.becomes("v1:4/4", "a CloneSet makes as many pods as it is asked for")
	f.patch(CloneSets, image("v2", `,"updateStrategy":{"partition":3}`))
	f.becomes("v1:3/3 v2:1/1", "a partition of 3 keeps three pods old")
	f.reports(CloneSets, map[string]int64{"replicas": 4, "readyReplicas": 4, "availableReplicas": 4, "updatedReplicas": 1, "updatedReadyReplicas": 1},
		"the status counts the updated pods")
	status := f.seen(CloneSets)
	require.NotEqual(t, status["currentRevision"], status["updateRevision"])
	f.patch(CloneSets, `{"updateStrategy":{"partition":"50%"}}`)
	f.becomes("v1:2/2 v2:2/2", "a share keeps that share old")
	f.patch(CloneSets, `{"replicas":8}`)
	f.becomes("v1:4/4 v2:4/4", "scaling keeps the proportion of a share")
	f.patch(CloneSets, `{"replicas":4,"updateStrategy":{"partition":1}}`)
	f.becomes("v1:1/1 v2:3/3", "scaling in takes old pods down to the partition first")
	f.patch(CloneSets, `{"updateStrategy":{"partition":2}}`)
	f.holds(CloneSets, "v1:1/1 v2:3/3", "a larger partition brings no pod back")
	f.patch(CloneSets, `{"updateStrategy":{"partition":0}}`)
	f.becomes("v2:4/4", "without a partition all pods are updated")
	status = f.seen(CloneSets)
	require.Eventually(t, func() bool { s := f.seen(CloneSets); return s["currentRevision"] == s["updateRevision"] }, harness.Patience, 20*time.Millisecond,
		"the update is complete: %v", status)
	for _, p := range f.pods() {
		require.Equal(t, p.Labels["controller-revision-hash"], "w-"+p.Labels["pod-template-hash"], "a pod carries the revision's name, and its hash")
	}
}

func TestCloneSetRevisions(t *testing.T) {
	f := newField(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":1}`)
	f.becomes("v1:1/1", "the first version")
	f.patch(CloneSets, image("v2", ""))
	f.becomes("v2:1/1", "the second version")
	f.patch(CloneSets, image("v1", ""))
	f.becomes("v1:1/1", "the first version again")
	list, err := f.Kube.AppsV1().ControllerRevisions(f.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 2, "a template that was there before has its revision already")
	var numbers []int64
	for _, r := range list.Items {
		numbers = append(numbers, r.Revision)
		require.Contains(t, string(r.Data.Raw), `"$patch":"replace"`)
	}
	slices.Sort(numbers)
	require.Equal(t, []int64{2, 3}, numbers, "the revision that is back is the newest")
}

func TestCloneSetSurgeBehindTheGate(t *testing.T) {
	f := newField(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":4}`)
	f.becomes("v1:4/4", "before")
	f.patch(CloneSets, image("v2", `,"minReadySeconds":2147483646,"updateStrategy":{"maxSurge":1,"maxUnavailable":0}`))
	f.becomes("v1:4/4 v2:1/1", "one new pod comes beside the old ones, and never counts as available")
	f.patch(CloneSets, `{"updateStrategy":{"maxSurge":2}}`)
	f.becomes("v1:4/4 v2:2/2", "a larger surge adds to it")
	f.patch(CloneSets, `{"updateStrategy":{"maxSurge":4}}`)
	f.holds(CloneSets, "v1:4/4 v2:2/2", "the surge is never larger than what is still to be updated: beyond a half it does not grow")
	f.patch(CloneSets, `{"minReadySeconds":0,"updateStrategy":{"maxSurge":0,"maxUnavailable":1}}`)
	f.becomes("v2:4/4", "the gate open, the old pods go")
}

func TestCloneSetAtOnceBehindTheGate(t *testing.T) {
	f := newField(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":3}`)
	f.becomes("v1:3/3", "before")
	f.patch(CloneSets, image("v2", `,"minReadySeconds":2147483646,"updateStrategy":{"maxSurge":"100%","maxUnavailable":0}`))
	f.becomes("v1:3/3 v2:3/3", "as many new pods as old ones")
	f.reports(CloneSets, map[string]int64{"readyReplicas": 6, "availableReplicas": 0}, "behind the gate no pod is available")
}

func TestCloneSetPausedAndTooFewServe(t *testing.T) {
	f := newField(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":4,"updateStrategy":{"paused":true,"maxUnavailable":1}}`)
	f.becomes("v1:4/4", "before")
	f.patch(CloneSets, image("bad", ""))
	f.holds(CloneSets, "v1:4/4", "a paused CloneSet updates nothing")
	f.patch(CloneSets, `{"updateStrategy":{"paused":false}}`)
	f.becomes("bad:1/0 v1:3/3", "a bad pod takes the place of one only")
	f.patch(CloneSets, `{"minReadySeconds":1}`)
	f.holds(CloneSets, "bad:1/0 v1:3/3", "as long as it is bad, no other follows")
	f.patch(CloneSets, image("v1", ""))
	f.becomes("v1:4/4", "a bad pod does not stand in the way back")
}

func TestStatefulSetPartition(t *testing.T) {
	for _, policy := range []string{"OrderedReady", "Parallel"} {
		t.Run(policy, func(t *testing.T) {
			f := newField(t)
			f.apply(StatefulSets, "StatefulSet", `{"replicas":4,"podManagementPolicy":"`+policy+`"}`)
			f.becomes("v1:4/4", "before")
			f.patch(StatefulSets, image("v2", `,"updateStrategy":{"rollingUpdate":{"partition":3}}`))
			f.becomes("v1:3/3 v2:1/1", "the pods from the partition on are updated")
			for _, p := range f.pods() {
				require.Equal(t, p.Name == "w-3", p.Spec.Containers[0].Image == "x:v2", "%s: the highest ordinals are updated", p.Name)
			}
			f.reports(StatefulSets, map[string]int64{"replicas": 4, "readyReplicas": 4, "updatedReplicas": 1, "updatedReadyReplicas": 1}, "the status")
			require.NoError(t, f.Kube.CoreV1().Pods(f.namespace).Delete(t.Context(), "w-0", metav1.DeleteOptions{}))
			f.becomes("v1:3/3 v2:1/1", "a pod below the partition comes back old")
			f.patch(StatefulSets, `{"updateStrategy":{"rollingUpdate":{"partition":1,"maxUnavailable":2}}}`)
			f.becomes("v1:1/1 v2:3/3", "a smaller partition updates more")
			f.patch(StatefulSets, `{"replicas":2}`)
			f.becomes("v1:1/1 v2:1/1", "scaling in takes the highest ordinals")
			f.patch(StatefulSets, `{"updateStrategy":{"rollingUpdate":{"partition":0}}}`)
			f.becomes("v2:2/2", "all of them")
			require.Eventually(t, func() bool { s := f.seen(StatefulSets); return s["currentRevision"] == s["updateRevision"] }, harness.Patience, 20*time.Millisecond,
				"the update is complete")
		})
	}
}

func TestStatefulSetWaitsForABrokenPod(t *testing.T) {
	f := newField(t)
	f.apply(StatefulSets, "StatefulSet", `{"replicas":3}`)
	f.becomes("v1:3/3", "before")
	f.patch(StatefulSets, image("bad", ""))
	f.becomes("bad:1/0 v1:2/2", "one at a time")
	f.patch(StatefulSets, image("v1", ""))
	f.holds(StatefulSets, "bad:1/0 v1:2/2", "in order, it waits for the broken pod though the template is good again")
	require.NoError(t, f.Kube.CoreV1().Pods(f.namespace).Delete(t.Context(), "w-2", metav1.DeleteOptions{}))
	f.becomes("v1:3/3", "the pod made anew is good")
}

func TestStatefulSetPaused(t *testing.T) {
	f := newField(t)
	f.apply(StatefulSets, "StatefulSet", `{"replicas":2,"podManagementPolicy":"Parallel","updateStrategy":{"rollingUpdate":{"paused":true}}}`)
	f.becomes("v1:2/2", "before")
	f.patch(StatefulSets, image("v2", ""))
	f.holds(StatefulSets, "v1:2/2", "a paused update holds")
	f.patch(StatefulSets, `{"updateStrategy":{"rollingUpdate":{"paused":false,"minReadySeconds":600}}}`)
	f.becomes("v1:1/1 v2:1/1", "a pod that is ready but not yet available holds the next one back")
	f.reports(StatefulSets, map[string]int64{"readyReplicas": 2, "availableReplicas": 0}, "available after minReadySeconds only")
}

func TestStatefulSetOfTheOlderVersion(t *testing.T) {
	f := newField(t)
	older := StatefulSets
	older.Version = "v1alpha1"
	f.apply(older, "StatefulSet", `{"replicas":1}`)
	f.becomes("v1:1/1", "an object made in the older version is the same object")
}

func TestDaemonSetPartition(t *testing.T) {
	f := newField(t)
	f.apply(DaemonSets, "DaemonSet", `{}`)
	f.becomes("v1:4/4", "one pod on each node of the stack")
	nodes := map[string]bool{}
	for _, p := range f.pods() {
		nodes[p.Spec.NodeName] = true
	}
	require.Len(t, nodes, 4)
	f.patch(DaemonSets, image("v2", `,"updateStrategy":{"rollingUpdate":{"partition":3}}`))
	f.becomes("v1:3/3 v2:1/1", "a partition of 3 keeps three nodes")
	f.reports(DaemonSets, map[string]int64{"desiredNumberScheduled": 4, "currentNumberScheduled": 4, "numberReady": 4, "numberAvailable": 4, "updatedNumberScheduled": 1},
		"the status")
	f.patch(DaemonSets, `{"updateStrategy":{"rollingUpdate":{"partition":1,"maxUnavailable":2}}}`)
	f.becomes("v1:1/1 v2:3/3", "a smaller partition updates more")
	f.patch(DaemonSets, `{"updateStrategy":{"rollingUpdate":{"paused":true,"partition":0}}}`)
	f.holds(DaemonSets, "v1:1/1 v2:3/3", "a paused update holds")
	f.patch(DaemonSets, `{"updateStrategy":{"rollingUpdate":{"paused":false}}}`)
	f.becomes("v2:4/4", "all nodes")
}

func TestDaemonSetWithinItsLimit(t *testing.T) {
	f := newField(t)
	f.apply(DaemonSets, "DaemonSet", `{}`)
	f.becomes("v1:4/4", "before")
	f.patch(DaemonSets, image("bad", ""))
	f.becomes("bad:1/0 v1:3/3", "a bad pod holds the next one back")
	f.patch(DaemonSets, image("v1", ""))
	f.becomes("v1:4/4", "a bad pod is replaced at once")
}
