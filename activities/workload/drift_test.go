package workload_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/kruise"
)

// signalRecorder receives the detector's signals.
type signalRecorder struct {
	mu       sync.Mutex
	arrived  []string
	attempts int
	trouble  error
	latest   rollout.Observed
}

func (m *signalRecorder) SignalWorkflow(_ context.Context, workflowID, runID, name string, arg any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts++
	if m.trouble != nil {
		return m.trouble
	}
	observed := arg.(rollout.Observed)
	m.latest = observed
	m.arrived = append(m.arrived, fmt.Sprintf("%s|%s|%s|%s", workflowID, runID, name, observed.What))
	return nil
}

// DescribeWorkflowExecution knows no workflow.
func (m *signalRecorder) DescribeWorkflowExecution(context.Context, string,
	string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewNotFound("workflow not found")
}

func (m *signalRecorder) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = err
}

func (m *signalRecorder) signals() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.arrived)
}

func (m *signalRecorder) last() rollout.Observed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

func (m *signalRecorder) tries() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.attempts
}

// watched is a namespace with a detector, its signals and its requests.
type watched struct {
	*bench
	dynamic dynamic.Interface
	mail    *signalRecorder
	calls   *traffic
	log     *lockedText
}

type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	b := newBench(t)
	client, err := dynamic.NewForConfig(b.config)
	require.NoError(t, err)
	return &watched{bench: b, dynamic: client, mail: &signalRecorder{}, log: &lockedText{}}
}

// start runs a detector; stop ends it before the end of the test.
func (w *watched) start() (stop func()) {
	w.t.Helper()
	counted := rest.CopyConfig(w.config)
	calls := &traffic{}
	w.calls = calls
	counted.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		calls.next = next
		return calls
	}
	own, err := dynamic.NewForConfig(counted)
	require.NoError(w.t, err)
	found, err := discovery.NewDiscoveryClientForConfig(w.config)
	require.NoError(w.t, err)
	acts := workloads.New(w.kube, own, workloads.Options{Namespaces: []string{w.namespace},
		Logger: slog.New(slog.NewTextHandler(w.log, nil))})
	s := workloads.NewDriftDetector(acts, found, w.mail)
	require.NoError(w.t, s.Start(w.t.Context()))
	var once sync.Once
	stop = func() {
		once.Do(func() {
			require.NoError(w.t, s.Stop(context.Background()))
			acts.Stop()
		})
	}
	w.t.Cleanup(stop)
	return stop
}

// restAt claims a workload and records its state on it, as a paused step does.
func (w *watched) restAt(resource schema.GroupVersionResource, size int32) {
	w.t.Helper()
	o := w.get(resource)
	template, _, err := unstructured.NestedMap(o.Object, "spec", "template")
	require.NoError(w.t, err)
	note := rollout.SettledState{Template: pods.Digest(template), Replicas: size}
	w.change(resource, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"},"annotations":{%q:%q,%q:%q}}}`,
		workload.LabelClaimed, workload.AnnotationClaimedBy, w.claim(), rollout.AnnotationSettled, note.String()))
}

// rollout is the ID of the workflow that holds the workload, and claim its claim.
func (w *watched) rollout() string { return rollout.WorkflowID("", w.namespace, "w") }

func (w *watched) claim() string {
	return workload.Holder{WorkflowID: w.rollout(), RunID: "run-1",
		Engine: workload.Engine{UID: "uid-a", Name: "a"}}.String()
}

func (w *watched) get(resource schema.GroupVersionResource) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.dynamic.Resource(resource).Namespace(w.namespace).Get(w.t.Context(), "w", metav1.GetOptions{})
	require.NoError(w.t, err)
	return o
}

func (w *watched) change(resource schema.GroupVersionResource, patch string) {
	w.t.Helper()
	_, err := w.dynamic.Resource(resource).Namespace(w.namespace).Patch(w.t.Context(), "w", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// hears waits until exactly these changes have been reported, in order.
func (w *watched) hears(reason string, what ...string) {
	w.t.Helper()
	var want []string
	for _, word := range what {
		want = append(want, w.rollout()+"||"+rollout.SignalObserved+"|"+word)
	}
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		assert.Equal(c, want, w.mail.signals(), reason)
	}, patience, tick)
}

var deploymentsForTest = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

func imageOf(tag string) string {
	return `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x:` + tag + `"}]}}}}`
}

func TestDriftDetector_ReportsEachChangeOnce(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("a new size", "scaled")
	w.change(deploymentsForTest, `{"metadata":{"annotations":{"note":"nothing of interest"}}}`)
	w.change(deploymentsForTest, `{"spec":{"replicas":2}}`)
	w.change(deploymentsForTest, imageOf("other"))
	w.hears("the size is restored, the template is not", "scaled", "edited")
	w.change(deploymentsForTest, imageOf("third"))
	w.hears("another edit is another change", "scaled", "edited", "edited")
	require.NoError(t, w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), "w", metav1.DeleteOptions{}))
	w.hears("the deletion is reported", "scaled", "edited", "edited", "deleted")
}

// A release deletes the extra workload of its canary itself. Only a deletion while the release is paused is another
// client's.
func TestDriftDetector_IgnoresExtraWorkloadDeletedByRelease(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	extra := func() {
		w.deployment("w-canary", 1, nil)
		note := rollout.SettledState{Template: "t", Replicas: 1}
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"true",%q:%q},"annotations":{%q:%q,%q:%q,%q:"t"}}}`,
			workload.LabelClaimed, strategy.LabelCanaryOf, strategy.CanaryOf("w"),
			workload.AnnotationClaimedBy, w.claim(), rollout.AnnotationSettled, note.String(),
			rollout.AnnotationWritten)
		_, err := w.dynamic.Resource(deploymentsForTest).Namespace(w.namespace).Patch(t.Context(), "w-canary",
			types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	remove := func() {
		require.NoError(t, w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), "w-canary",
			metav1.DeleteOptions{}))
	}
	extra()
	w.hears("its template is not the recorded one", "edited")
	remove()
	w.hears("another client deletes it while the release is paused", "edited", "deleted")
	extra()
	w.hears("it exists again", "edited", "deleted", "edited")
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, rollout.AnnotationSettled,
		rollout.SettledState{}.String()))
	remove()
	require.Eventually(t, func() bool {
		return w.calls.count(http.MethodGet, "/deployments/w-canary") == 1
	}, patience, tick, "it was read after the first deletion only")
	w.restAt(deploymentsForTest, 3)
	w.hears("at its end the release deletes it itself: the size is the next report", "edited", "deleted", "edited",
		"scaled")
}

// Every user who may edit a workload can write a claim onto it. The workflow in a claim receives a signal only if it
// can be the workload's, and the signal contains the claim and the object.
func TestDriftDetector_IgnoresForgedClaim(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	for reason, claim := range map[string]string{
		"a rollout in another namespace": "rollout/default/" + w.namespace + "-other/w@run-1",
		"a rollout of another party":     "rollout/bob/" + w.namespace + "/w@run-1",
		"a plan's operation":             "task/t1/1-w@run-1",
		"no workflow of Slipway":         "somebody@run-1",
	} {
		w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"replicas":3}}`,
			workload.AnnotationClaimedBy, claim))
		w.change(deploymentsForTest, `{"spec":{"replicas":2}}`)
		require.Empty(t, w.mail.signals(), reason)
	}
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"replicas":4}}`,
		workload.AnnotationClaimedBy, w.claim()))
	w.hears("only the workload's own rollout receives a signal", "scaled")
	require.Equal(t, w.claim(), w.mail.last().Claim)
	require.Equal(t, "Deployment "+w.namespace+"/w", w.mail.last().Object,
		"so that the receiver can check whether it is its own")
}

func TestDriftDetector_ReportsOnlyRemainingChangesAfterRestart(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	stop := w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("a change", "scaled")
	stop()
	stop = w.start()
	w.hears("after a restart, a change that remains is reported again", "scaled", "scaled")
	stop()
	w.change(deploymentsForTest, `{"spec":{"replicas":2}}`)
	w.start()
	w.change(deploymentsForTest, imageOf("other"))
	w.hears("after a restart, the restored size is not reported: the edit is the next report", "scaled", "scaled",
		"edited")
}

func TestDriftDetector_IgnoresReleasedWorkload(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("a change", "scaled")
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{%q:null,%q:null}}}`,
		workload.LabelClaimed, workload.AnnotationClaimedBy, rollout.AnnotationSettled))
	require.Eventually(t, func() bool {
		return w.calls.count(http.MethodGet, "/deployments/w") == 1
	}, patience, tick, "it is read once when it leaves the watch")
	require.NoError(t, w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), "w", metav1.DeleteOptions{}))
	w.deployment("w", 1, nil)
	w.restAt(deploymentsForTest, 2)
	w.hears("what happened to it without a claim is not reported", "scaled", "scaled")
}

// Without its label no watch would show the workload, and no later change would be noticed.
func TestDriftDetector_RestoresClaimLabel(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("it is watched", "scaled")
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"labels":{%q:null}},"spec":{"replicas":2}}`,
		workload.LabelClaimed))
	w.hears("its rollout receives a report to check it", "scaled", "edited")
	require.Eventually(t, func() bool {
		return w.get(deploymentsForTest).GetLabels()[workload.LabelClaimed] != ""
	}, patience, tick, "the label is set again")
	w.change(deploymentsForTest, `{"spec":{"replicas":5}}`)
	w.hears("later changes are noticed", "scaled", "edited", "scaled")
	w.mail.fail(serviceerror.NewNotFound("no such workflow"))
	tries := w.mail.tries()
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, workload.LabelClaimed))
	require.Eventually(t, func() bool { return w.mail.tries() > tries }, patience, tick)
	require.Empty(t, w.get(deploymentsForTest).GetLabels()[workload.LabelClaimed],
		"nothing is written for a rollout that has ended or belongs to another engine")
}

func TestDriftDetector_RetriesFailedSignal(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.mail.fail(errors.New("Temporal is unreachable"))
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	require.Eventually(t, func() bool { return w.mail.tries() >= 2 }, patience, tick, "it retries")
	w.mail.fail(nil)
	w.hears("as soon as Temporal is reachable, the rollout receives it", "scaled")
	w.mail.fail(serviceerror.NewNotFound("no such workflow"))
	before := w.mail.tries()
	w.change(deploymentsForTest, `{"spec":{"replicas":4}}`)
	require.Eventually(t, func() bool { return w.mail.tries() > before }, patience, tick)
	w.mail.fail(nil)
	w.change(deploymentsForTest, `{"spec":{"replicas":5}}`)
	w.hears("a signal to an ended rollout is not retried", "scaled", "scaled")
}

func TestDriftDetector_SendsNoReadsWhilePaused(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("it works", "scaled")
	require.Zero(t, w.calls.count(http.MethodGet, "/deployments/w"), "it compares only what the watch shows")
	require.LessOrEqual(t, w.calls.watchesOf("/apis/apps/v1/namespaces/"+w.namespace+"/deployments"), 2,
		"one watch, after a list if the server cannot stream it")
	require.NotContains(t, w.log.String(), "level=WARN", "no warnings")
}

func TestDriftDetector_WatchesEveryKind(t *testing.T) {
	w := newWatched(t)
	kruise.Start(t, w.config, w.namespace)
	template := `{"metadata":{"labels":{"app":"w"}},"spec":{"containers":[{"name":"app","image":"x:v1"}]}}`
	w.daemonSet("w", nil)
	w.statefulSet("w", 1, func(s *appsv1.StatefulSet) { s.Spec.Template.Labels = map[string]string{"app": "w"} })
	for kind, resource := range map[string]schema.GroupVersionResource{"CloneSet": kruise.CloneSets,
		"StatefulSet": kruise.StatefulSets, "DaemonSet": kruise.DaemonSets} {
		o := &unstructured.Unstructured{}
		require.NoError(t, o.UnmarshalJSON(fmt.Appendf(nil,
			`{"apiVersion":%q,"kind":%q,"metadata":{"name":"w"},"spec":{"selector":{"matchLabels":{"app":"w"}},"template":%s}}`,
			resource.GroupVersion().String(), kind, template)))
		_, err := w.dynamic.Resource(resource).Namespace(w.namespace).Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.start()
	var want []string
	apps := func(plural string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: plural}
	}
	for _, resource := range []schema.GroupVersionResource{apps("statefulsets"), apps("daemonsets"), kruise.CloneSets,
		kruise.StatefulSets, kruise.DaemonSets} {
		size, _, _ := unstructured.NestedInt64(w.get(resource).Object, "spec", "replicas")
		w.restAt(resource, int32(size))
		w.change(resource, imageOf("other"))
		want = append(want, "edited")
		w.hears(resource.String(), want...)
	}
}
