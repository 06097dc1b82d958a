package centre_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// published is a release with a Rollout object.
type published struct {
	t          *testing.T
	objects    dynamic.ResourceInterface
	activities *centre.Activities
	ref        rollout.ObjectRef
	view       rollout.View
	// reads counts the engine's reads of Rollouts.
	reads harness.Counter
}

func newPublished(t *testing.T) *published {
	t.Helper()
	stack := harness.SharedStack(t)
	namespace := stack.Namespace(t, "centre")
	p := &published{t: t, objects: dynamic.NewForConfigOrDie(stack.REST).Resource(v1beta1.Resource).Namespace(
		namespace)}
	counted := rest.CopyConfig(stack.REST)
	p.reads.Match = func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/rollouts/")
	}
	counted.Wrap(p.reads.Wrap)
	home, err := store.New(counted, namespace, namespace)
	require.NoError(t, err)
	require.NoError(t, home.EnsureCRDs(testContext(t)))
	p.activities = centre.NewActivities(home, nil, fakeInputs{}, 1)
	p.view = rollout.View{Gate: "g", Template: "new", Generation: 1,
		Status: rollout.Status{Record: "one", Phase: rollout.PhaseProgressing,
			CurrentStepIndex: 1, NextStepIndex: 2, CurrentStepState: rollout.StatePaused,
			WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitApproval}}}
	p.create()
	return p
}

func (p *published) create() {
	p.t.Helper()
	step := map[string]any{"replicas": "50%"}
	made, err := p.objects.Create(testContext(p.t),
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": v1beta1.GroupVersion.String(),
			"kind": v1beta1.Kind, "metadata": map[string]any{"name": "web"}, "spec": map[string]any{
				"workloadRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
				"strategy":    map[string]any{"canary": map[string]any{"steps": []any{step, step}}}}}},
		metav1.CreateOptions{})
	require.NoError(p.t, err)
	p.ref = rollout.ObjectRef{Namespace: made.GetNamespace(), Name: made.GetName(), UID: string(made.GetUID())}
}

// publish publishes the release with this reason, and returns how often the object was read.
func (p *published) publish(reason string) (rollout.PublishResult, int) {
	p.t.Helper()
	if reason != p.view.Status.Reason { // the time is compared to the second
		p.view.Status.Reason, p.view.Status.LastUpdateTime = reason, time.Now()
	}
	before := p.reads.Count()
	result, err := p.activities.PublishRollout(testContext(p.t), rollout.PublishRequest{Object: p.ref, View: p.view})
	require.NoError(p.t, err)
	return result, p.reads.Count() - before
}

func (p *published) patch(body string, subresource ...string) {
	p.t.Helper()
	_, err := p.objects.Patch(testContext(p.t), "web", types.MergePatchType, []byte(body), metav1.PatchOptions{},
		subresource...)
	require.NoError(p.t, err)
}

// shows returns a field of the object's canaryStatus.
func (p *published) shows(field string) string {
	p.t.Helper()
	found, err := p.objects.Get(testContext(p.t), "web", metav1.GetOptions{})
	require.NoError(p.t, err)
	text, _, _ := unstructured.NestedString(found.Object, "status", "canaryStatus", field)
	return text
}

func TestPublishRollout_ReadsOnlyAfterForeignChange(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	_, reads := p.publish("first")
	require.Equal(t, 1, reads)
	_, reads = p.publish("second")
	require.Zero(t, reads, "no other client has changed it: it is written without a read")
	require.Equal(t, "second", p.shows("message"))

	p.patch(`{"metadata":{"labels":{"a":"b"}}}`)
	_, reads = p.publish("third")
	require.Equal(t, 1, reads, "another client has changed it")
	require.Equal(t, "third", p.shows("message"))
	_, reads = p.publish("third")
	require.Equal(t, 1, reads, "the cached object seems up to date: only a read can confirm it")
}

func TestPublishRollout_DoesNotOverwriteCommand(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	p.publish("first")
	p.patch(`{"status":{"canaryStatus":{"currentStepState":"StepReady"}}}`, "status")
	result, _ := p.publish("second")
	require.True(t, result.Pending, "the release has to process the command first")
	require.Equal(t, "StepReady", p.shows("currentStepState"))
	require.Equal(t, "first", p.shows("message"))
	p.view.AnsweredState = 1
	result, _ = p.publish("third")
	require.False(t, result.Pending, "the release has processed the command")
	require.Equal(t, "third", p.shows("message"))
}

// An approval that comes after a refused jump, and before the status that the jump has changed is restored, is not
// lost: the restored status carries it, with the gate that the client saw and the client's name, and the release
// answers it next.
func TestPublishRollout_KeepsCommand_ThatFollowedAnAnsweredOne(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	p.view.Gate = "gate"
	p.publish("first")
	p.patch(`{"status":{"canaryStatus":{"nextStepIndex":9}}}`, "status")
	p.patch(`{"status":{"canaryStatus":{"currentStepState":"StepReady"},"slipway":{"by":"ann"}}}`, "status")
	p.view.AnsweredState, p.view.AnsweredCommands = 1, []rollout.AnsweredCommand{{Verb: rollout.VerbJump, ToStep: 9}}
	p.view.Gate = "next"
	result, _ := p.publish("second")
	require.False(t, result.Pending)
	require.Equal(t, "second", p.shows("message"))
	require.Equal(t, "StepReady", p.shows("currentStepState"))
	found, err := p.objects.Get(testContext(t), "web", metav1.GetOptions{})
	require.NoError(t, err)
	next, _, _ := unstructured.NestedInt64(found.Object, "status", "canaryStatus", "nextStepIndex")
	require.NotEqual(t, int64(9), next, "the refused jump is restored")
	engine, _, _ := unstructured.NestedMap(found.Object, "status", "slipway")
	require.Equal(t, []any{"gate", "ann", int64(2)}, []any{engine["gate"], engine["by"], engine["seq"]})
	result, _ = p.publish("third")
	require.True(t, result.Pending, "it is written again after the approval is answered")
	p.view.AnsweredState, p.view.AnsweredCommands = 2, []rollout.AnsweredCommand{{Verb: rollout.VerbApprove}}
	result, _ = p.publish("third")
	require.False(t, result.Pending)
	require.NotEqual(t, "StepReady", p.shows("currentStepState"))
}

func TestPublishRollout_IgnoresNewObjectOfSameName(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	p.publish("first")
	require.NoError(t, p.objects.Delete(testContext(t), "web", metav1.DeleteOptions{}))
	old := p.ref
	p.create()
	p.ref = old
	result, _ := p.publish("second")
	require.True(t, result.ObjectDeleted)
	require.Empty(t, p.shows("message"))
}
