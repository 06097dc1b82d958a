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

// fixture is the namespace of one test, in which the controller runs.
type fixture struct {
	harness.Stack
	t         *testing.T
	namespace string
	dynamic   dynamic.Interface
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	stack := harness.SharedStack(t)
	t.Parallel()
	f := &fixture{Stack: stack, t: t, namespace: stack.Namespace(t, "kruise")}
	var err error
	f.dynamic, err = dynamic.NewForConfig(stack.REST)
	require.NoError(t, err)
	Start(t, stack.REST, f.namespace)
	return f
}

// apply creates a workload "w" with the given spec, and adds selector and template.
func (f *fixture) apply(resource schema.GroupVersionResource, kind, spec string) {
	f.t.Helper()
	var fields map[string]any
	require.NoError(f.t, json.Unmarshal([]byte(spec), &fields))
	fields["selector"] = map[string]any{"matchLabels": map[string]any{"app": "w"}}
	fields["template"] = map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "w"}},
		"spec": map[string]any{"terminationGracePeriodSeconds": 1.0,
			"containers": []any{map[string]any{"name": "app", "image": "x:v1"}}},
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": "w"},
		"spec": fields,
	}}
	_, err := f.dynamic.Resource(resource).Namespace(f.namespace).Create(context.Background(), u,
		metav1.CreateOptions{})
	require.NoError(f.t, err)
}

func (f *fixture) patch(resource schema.GroupVersionResource, spec string) {
	f.t.Helper()
	_, err := f.dynamic.Resource(resource).Namespace(f.namespace).Patch(context.Background(), "w", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":%s}`, spec), metav1.PatchOptions{})
	require.NoError(f.t, err)
}

// image returns a patch of the spec that changes the image and the other given fields.
func image(tag, others string) string {
	return fmt.Sprintf(`{"template":{"spec":{"containers":[{"name":"app","image":"x:%s"}]}}%s}`, tag, others)
}

func (f *fixture) pods() []corev1.Pod {
	f.t.Helper()
	list, err := f.Kube.CoreV1().Pods(f.namespace).List(context.Background(),
		metav1.ListOptions{LabelSelector: "app=w"})
	require.NoError(f.t, err)
	return list.Items
}

// split returns the number of pods and of ready pods per image: "v1:3/3 v2:1/0" means three ready pods of v1 and an
// unready one of v2. Terminating pods are added as "-1".
func (f *fixture) split() string {
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

// becomes waits until the split is as wanted.
func (f *fixture) becomes(want, reason string) {
	f.t.Helper()
	if !f.within(func() bool { return f.split() == " "+want }) {
		require.Equal(f.t, " "+want, f.split(), reason)
	}
}

// within reports whether reached becomes true within harness.Patience.
func (f *fixture) within(reached func() bool) bool {
	return assert.Eventually(silent{}, reached, harness.Patience, 20*time.Millisecond)
}

type silent struct{}

func (silent) Errorf(string, ...any) {}

// holds waits until the controller has reconciled the newest spec, and requires the split to be as wanted then.
func (f *fixture) holds(resource schema.GroupVersionResource, want, reason string) {
	f.t.Helper()
	f.observedStatus(resource)
	require.Equal(f.t, " "+want, f.split(), reason)
}

// observedStatus waits until the status has the newest generation and returns it.
func (f *fixture) observedStatus(resource schema.GroupVersionResource) map[string]any {
	f.t.Helper()
	var status map[string]any
	require.Eventually(f.t, func() bool {
		u, err := f.dynamic.Resource(resource).Namespace(f.namespace).Get(context.Background(), "w",
			metav1.GetOptions{})
		require.NoError(f.t, err)
		status, _, _ = unstructured.NestedMap(u.Object, "status")
		return status["observedGeneration"] == u.GetGeneration()
	}, harness.Patience, 20*time.Millisecond)
	return status
}

// reports waits until the status has the wanted numbers.
func (f *fixture) reports(resource schema.GroupVersionResource, want map[string]int64, reason string) {
	f.t.Helper()
	var status map[string]any
	is := f.within(func() bool {
		status = f.observedStatus(resource)
		for name, n := range want {
			if status[name] != n {
				return false
			}
		}
		return true
	})
	require.True(f.t, is, "%s: %v, never %v", reason, status, want)
}

func TestCloneSet_UpdatesDownToPartition(t *testing.T) {
	f := newFixture(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":4,"updateStrategy":{"maxUnavailable":1}}`)
	f.becomes("v1:4/4", "a CloneSet creates the requested number of pods")
	f.patch(CloneSets, image("v2", `,"updateStrategy":{"partition":3}`))
	f.becomes("v1:3/3 v2:1/1", "a partition of 3 keeps three pods old")
	f.reports(CloneSets, map[string]int64{"replicas": 4, "readyReplicas": 4, "availableReplicas": 4,
		"updatedReplicas": 1, "updatedReadyReplicas": 1},
		"the status counts the updated pods")
	status := f.observedStatus(CloneSets)
	require.NotEqual(t, status["currentRevision"], status["updateRevision"])
	f.patch(CloneSets, `{"updateStrategy":{"partition":"50%"}}`)
	f.becomes("v1:2/2 v2:2/2", "a percentage keeps that share of the pods old")
	f.patch(CloneSets, `{"replicas":8}`)
	f.becomes("v1:4/4 v2:4/4", "scaling keeps the proportion of a percentage")
	f.patch(CloneSets, `{"replicas":4,"updateStrategy":{"partition":1}}`)
	f.becomes("v1:1/1 v2:3/3", "scaling in removes old pods down to the partition first")
	f.patch(CloneSets, `{"updateStrategy":{"partition":2}}`)
	f.holds(CloneSets, "v1:1/1 v2:3/3", "a larger partition reverts no pod")
	f.patch(CloneSets, `{"updateStrategy":{"partition":0}}`)
	f.becomes("v2:4/4", "without a partition all pods are updated")
	status = f.observedStatus(CloneSets)
	require.Eventually(t, func() bool {
		s := f.observedStatus(CloneSets)
		return s["currentRevision"] == s["updateRevision"]
	}, harness.Patience, 20*time.Millisecond,
		"the update is complete: %v", status)
	for _, p := range f.pods() {
		require.Equal(t, p.Labels["controller-revision-hash"], "w-"+p.Labels["pod-template-hash"],
			"a pod has the name and the hash of its revision")
	}
}

func TestCloneSet_ReusesRevisionOfEarlierTemplate(t *testing.T) {
	f := newFixture(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":1}`)
	f.becomes("v1:1/1", "the first version")
	f.patch(CloneSets, image("v2", ""))
	f.becomes("v2:1/1", "the second version")
	f.patch(CloneSets, image("v1", ""))
	f.becomes("v1:1/1", "the first version again")
	list, err := f.Kube.AppsV1().ControllerRevisions(f.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 2, "an earlier template keeps its revision")
	var numbers []int64
	for _, r := range list.Items {
		numbers = append(numbers, r.Revision)
		require.Contains(t, string(r.Data.Raw), `"$patch":"replace"`)
	}
	slices.Sort(numbers)
	require.Equal(t, []int64{2, 3}, numbers, "the reused revision becomes the newest")
}

func TestCloneSetSurge_KeepsOldPods_WhileNewPodsAreNotAvailable(t *testing.T) {
	f := newFixture(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":4}`)
	f.becomes("v1:4/4", "before the change")
	f.patch(CloneSets, image("v2", `,"minReadySeconds":2147483646,"updateStrategy":{"maxSurge":1,"maxUnavailable":0}`))
	f.becomes("v1:4/4 v2:1/1", "one new pod is added to the old ones and never becomes available")
	f.patch(CloneSets, `{"updateStrategy":{"maxSurge":2}}`)
	f.becomes("v1:4/4 v2:2/2", "a larger surge adds pods")
	f.patch(CloneSets, `{"updateStrategy":{"maxSurge":4}}`)
	f.holds(CloneSets, "v1:4/4 v2:2/2", "the surge is never larger than the number of pods still to be updated: it "+
		"does not grow beyond half")
	f.patch(CloneSets, `{"minReadySeconds":0,"updateStrategy":{"maxSurge":0,"maxUnavailable":1}}`)
	f.becomes("v2:4/4", "once new pods are available, the old pods are removed")
}

func TestCloneSetFullSurge_IsNotAvailable_BeforeMinReadySeconds(t *testing.T) {
	f := newFixture(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":3}`)
	f.becomes("v1:3/3", "before the change")
	f.patch(CloneSets,
		image("v2", `,"minReadySeconds":2147483646,"updateStrategy":{"maxSurge":"100%","maxUnavailable":0}`))
	f.becomes("v1:3/3 v2:3/3", "as many new pods as old ones")
	f.reports(CloneSets, map[string]int64{"readyReplicas": 6, "availableReplicas": 0},
		"no pod is available before minReadySeconds")
}

func TestCloneSet_StopsUpdate_WhenPausedOrPodIsBad(t *testing.T) {
	f := newFixture(t)
	f.apply(CloneSets, "CloneSet", `{"replicas":4,"updateStrategy":{"paused":true,"maxUnavailable":1}}`)
	f.becomes("v1:4/4", "before the change")
	f.patch(CloneSets, image("bad", ""))
	f.holds(CloneSets, "v1:4/4", "a paused CloneSet updates nothing")
	f.patch(CloneSets, `{"updateStrategy":{"paused":false}}`)
	f.becomes("bad:1/0 v1:3/3", "a bad pod replaces only one old pod")
	f.patch(CloneSets, `{"minReadySeconds":1}`)
	f.holds(CloneSets, "bad:1/0 v1:3/3", "no other pod is replaced while it is bad")
	f.patch(CloneSets, image("v1", ""))
	f.becomes("v1:4/4", "a bad pod does not block the revert")
}

func TestStatefulSet_UpdatesDownToPartition(t *testing.T) {
	for _, policy := range []string{"OrderedReady", "Parallel"} {
		t.Run(policy, func(t *testing.T) {
			f := newFixture(t)
			f.apply(StatefulSets, "StatefulSet", `{"replicas":4,"podManagementPolicy":"`+policy+`"}`)
			f.becomes("v1:4/4", "before the change")
			f.patch(StatefulSets, image("v2", `,"updateStrategy":{"rollingUpdate":{"partition":3}}`))
			f.becomes("v1:3/3 v2:1/1", "the pods from the partition on are updated")
			for _, p := range f.pods() {
				require.Equal(t, p.Name == "w-3", p.Spec.Containers[0].Image == "x:v2",
					"%s: the highest ordinals are updated", p.Name)
			}
			f.reports(StatefulSets, map[string]int64{"replicas": 4, "readyReplicas": 4, "updatedReplicas": 1,
				"updatedReadyReplicas": 1}, "the status")
			require.NoError(t, f.Kube.CoreV1().Pods(f.namespace).Delete(t.Context(), "w-0", metav1.DeleteOptions{}))
			f.becomes("v1:3/3 v2:1/1", "a deleted pod below the partition is created as an old one")
			f.patch(StatefulSets, `{"updateStrategy":{"rollingUpdate":{"partition":1,"maxUnavailable":2}}}`)
			f.becomes("v1:1/1 v2:3/3", "a smaller partition updates more")
			f.patch(StatefulSets, `{"replicas":2}`)
			f.becomes("v1:1/1 v2:1/1", "scaling in removes the highest ordinals")
			f.patch(StatefulSets, `{"updateStrategy":{"rollingUpdate":{"partition":0}}}`)
			f.becomes("v2:2/2", "all pods are updated")
			require.Eventually(t, func() bool {
				s := f.observedStatus(StatefulSets)
				return s["currentRevision"] == s["updateRevision"]
			}, harness.Patience, 20*time.Millisecond,
				"the update is complete")
		})
	}
}

func TestStatefulSet_WaitsForBrokenPod(t *testing.T) {
	f := newFixture(t)
	f.apply(StatefulSets, "StatefulSet", `{"replicas":3}`)
	f.becomes("v1:3/3", "before the change")
	f.patch(StatefulSets, image("bad", ""))
	f.becomes("bad:1/0 v1:2/2", "one at a time")
	f.patch(StatefulSets, image("v1", ""))
	f.holds(StatefulSets, "bad:1/0 v1:2/2", "OrderedReady waits for the broken pod although the template is good again")
	require.NoError(t, f.Kube.CoreV1().Pods(f.namespace).Delete(t.Context(), "w-2", metav1.DeleteOptions{}))
	f.becomes("v1:3/3", "the new pod is good")
}

func TestStatefulSet_StopsUpdate_WhenPausedOrNotAvailable(t *testing.T) {
	f := newFixture(t)
	f.apply(StatefulSets, "StatefulSet",
		`{"replicas":2,"podManagementPolicy":"Parallel","updateStrategy":{"rollingUpdate":{"paused":true}}}`)
	f.becomes("v1:2/2", "before the change")
	f.patch(StatefulSets, image("v2", ""))
	f.holds(StatefulSets, "v1:2/2", "a paused update replaces no pod")
	f.patch(StatefulSets, `{"updateStrategy":{"rollingUpdate":{"paused":false,"minReadySeconds":600}}}`)
	f.becomes("v1:1/1 v2:1/1", "a pod that is ready but not yet available delays the next one")
	f.reports(StatefulSets, map[string]int64{"readyReplicas": 2, "availableReplicas": 0},
		"pods are available only after minReadySeconds")
}

func TestStatefulSet_CanBeCreatedInAlpha(t *testing.T) {
	f := newFixture(t)
	older := StatefulSets
	older.Version = "v1alpha1"
	f.apply(older, "StatefulSet", `{"replicas":1}`)
	f.becomes("v1:1/1", "an object of v1alpha1 is reconciled too")
}

func TestDaemonSet_UpdatesDownToPartition(t *testing.T) {
	f := newFixture(t)
	f.apply(DaemonSets, "DaemonSet", `{}`)
	f.becomes("v1:4/4", "one pod on each node of the stack")
	nodes := map[string]bool{}
	for _, p := range f.pods() {
		nodes[p.Spec.NodeName] = true
	}
	require.Len(t, nodes, 4)
	f.patch(DaemonSets, image("v2", `,"updateStrategy":{"rollingUpdate":{"partition":3}}`))
	f.becomes("v1:3/3 v2:1/1", "a partition of 3 keeps the old pods of three nodes")
	f.reports(DaemonSets, map[string]int64{"desiredNumberScheduled": 4, "currentNumberScheduled": 4, "numberReady": 4,
		"numberAvailable": 4, "updatedNumberScheduled": 1},
		"the status")
	f.patch(DaemonSets, `{"updateStrategy":{"rollingUpdate":{"partition":1,"maxUnavailable":2}}}`)
	f.becomes("v1:1/1 v2:3/3", "a smaller partition updates more")
	f.patch(DaemonSets, `{"updateStrategy":{"rollingUpdate":{"paused":true,"partition":0}}}`)
	f.holds(DaemonSets, "v1:1/1 v2:3/3", "a paused update replaces no pod")
	f.patch(DaemonSets, `{"updateStrategy":{"rollingUpdate":{"paused":false}}}`)
	f.becomes("v2:4/4", "the pods of all nodes are updated")
}

func TestDaemonSet_StopsUpdate_WhenPodIsBad(t *testing.T) {
	f := newFixture(t)
	f.apply(DaemonSets, "DaemonSet", `{}`)
	f.becomes("v1:4/4", "before the change")
	f.patch(DaemonSets, image("bad", ""))
	f.becomes("bad:1/0 v1:3/3", "a bad pod delays the next one")
	f.patch(DaemonSets, image("v1", ""))
	f.becomes("v1:4/4", "a bad pod is replaced at once")
}
