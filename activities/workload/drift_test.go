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
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/kruise"
)

// mailbox takes the detector's signals.
type mailbox struct {
	mu       sync.Mutex
	arrived  []string
	attempts int
	trouble  error
	latest   rollout.Observed
}

func (m *mailbox) SignalWorkflow(_ context.Context, workflowID, runID, name string, arg any) error {
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

func (m *mailbox) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = err
}

func (m *mailbox) signals() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.arrived)
}

func (m *mailbox) last() rollout.Observed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

func (m *mailbox) tries() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.attempts
}

// watched is a namespace with a detector, its signals and its requests.
type watched struct {
	*bench
	dynamic dynamic.Interface
	mail    *mailbox
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
	return &watched{bench: b, dynamic: client, mail: &mailbox{}, log: &lockedText{}}
}

// start runs a detector; stop ends it early.
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
	acts := workload.New(w.kube, own, workload.Options{Namespaces: []string{w.namespace}, Logger: slog.New(slog.NewTextHandler(w.log, nil))})
	s := workload.NewDriftDetector(acts, found, w.mail)
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

// restAt claims a workload and leaves on it what it is like, as a step at rest does.
func (w *watched) restAt(resource schema.GroupVersionResource, size int32) {
	w.t.Helper()
	o := w.get(resource)
	template, _, err := unstructured.NestedMap(o.Object, "spec", "template")
	require.NoError(w.t, err)
	note := rollout.Rest{Template: pods.Digest(template), Replicas: size}
	w.change(resource, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"},"annotations":{%q:%q,%q:%q}}}`,
		workloadops.LabelClaimed, workloadops.AnnotationClaimedBy, w.claim(), rollout.AnnotationRest, note.String()))
}

// rollout is the workflow that holds the workload, and claim its claim.
func (w *watched) rollout() string { return rollout.WorkflowID("", w.namespace, "w") }

func (w *watched) claim() string {
	return workloadops.Holder{WorkflowID: w.rollout(), RunID: "run-1", Engine: workloadops.Engine{UID: "uid-a", Name: "a"}}.String()
}

func (w *watched) get(resource schema.GroupVersionResource) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.dynamic.Resource(resource).Namespace(w.namespace).Get(w.t.Context(), "w", metav1.GetOptions{})
	require.NoError(w.t, err)
	return o
}

func (w *watched) change(resource schema.GroupVersionResource, patch string) {
	w.t.Helper()
	_, err := w.dynamic.Resource(resource).Namespace(w.namespace).Patch(w.t.Context(), "w", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// hears waits until exactly these changes have been told, in order.
func (w *watched) hears(reason string, what ...string) {
	w.t.Helper()
	var want []string
	for _, word := range what {
		want = append(want, w.rollout()+"||"+rollout.SignalObserved+"|"+word)
	}
	require.EventuallyWithT(w.t, func(c *assert.CollectT) { assert.Equal(c, want, w.mail.signals(), reason) }, patience, tick)
}

var deploymentsForTest = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

func imageOf(tag string) string {
	return `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x:` + tag + `"}]}}}}`
}

func TestDriftDetectorTellsEachDifferenceOnce(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("a new size", "scaled")
	w.change(deploymentsForTest, `{"metadata":{"annotations":{"note":"nothing of interest"}}}`)
	w.change(deploymentsForTest, `{"spec":{"replicas":2}}`)
	w.change(deploymentsForTest, imageOf("other"))
	w.hears("the size is right again, the template is not", "scaled", "edited")
	w.change(deploymentsForTest, imageOf("third"))
	w.hears("another edit is another difference", "scaled", "edited", "edited")
	require.NoError(t, w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), "w", metav1.DeleteOptions{}))
	w.hears("and the end of it", "scaled", "edited", "edited", "deleted")
}

// The extra workload of a canary goes with its release. Only who deletes it while that rests is somebody else.
func TestDriftDetectorKnowsWhoDeletesAnExtraWorkload(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	extra := func() {
		w.deployment("w-canary", 1, nil)
		note := rollout.Rest{Template: "t", Replicas: 1}
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"true",%q:%q},"annotations":{%q:%q,%q:%q,%q:"t"}}}`, workloadops.LabelClaimed, strategy.LabelCanaryOf, strategy.CanaryOf("w"),
			workloadops.AnnotationClaimedBy, w.claim(), rollout.AnnotationRest, note.String(), rollout.AnnotationWritten)
		_, err := w.dynamic.Resource(deploymentsForTest).Namespace(w.namespace).Patch(t.Context(), "w-canary", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	remove := func() {
		require.NoError(t, w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), "w-canary", metav1.DeleteOptions{}))
	}
	extra()
	w.hears("its template is not the one that it rests with", "edited")
	remove()
	w.hears("somebody deletes it while the release rests", "edited", "deleted")
	extra()
	w.hears("it is there again", "edited", "deleted", "edited")
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, rollout.AnnotationRest, rollout.Rest{}.String()))
	remove()
	require.Eventually(t, func() bool { return w.calls.count(http.MethodGet, "/deployments/w-canary") == 1 }, patience, tick, "it was looked for the first time only")
	w.restAt(deploymentsForTest, 3)
	w.hears("at its end the release does it itself: the next to be told is the size", "edited", "deleted", "edited", "scaled")
}

// Anybody who may edit a workload can write a claim onto it: the workflow that it names is told nothing unless it can be the workload's, and
// is told whose claim was seen on which object.
func TestDriftDetectorDoesNotBelieveAForgedClaim(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	for reason, claim := range map[string]string{
		"a rollout in another namespace":   "rollout/default/" + w.namespace + "-other/w@run-1",
		"a rollout of another party":       "rollout/bob/" + w.namespace + "/w@run-1",
		"a plan's operation":               "task/t1/1-w@run-1",
		"what is no workflow of Slipway's": "somebody@run-1",
	} {
		w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"replicas":3}}`, workloadops.AnnotationClaimedBy, claim))
		w.change(deploymentsForTest, `{"spec":{"replicas":2}}`)
		require.Empty(t, w.mail.signals(), reason)
	}
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"replicas":4}}`, workloadops.AnnotationClaimedBy, w.claim()))
	w.hears("the workload's own rollout is told, and nobody else was", "scaled")
	require.Equal(t, w.claim(), w.mail.last().Claim)
	require.Equal(t, "Deployment "+w.namespace+"/w", w.mail.last().Object, "so that the receiver sees whether it is its own")
}

func TestDriftDetectorSaysNothingOfWhatIsAsItWas(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	stop := w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("a difference", "scaled")
	stop()
	stop = w.start()
	w.hears("after a restart, a difference that is still there is told again", "scaled", "scaled")
	stop()
	w.change(deploymentsForTest, `{"spec":{"replicas":2}}`)
	w.start()
	w.change(deploymentsForTest, imageOf("other"))
	w.hears("after a restart, what is as it was is not told: the edit is the next thing", "scaled", "scaled", "edited")
}

func TestDriftDetectorLeavesReleasedWorkloadsAlone(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("a difference", "scaled")
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{%q:null,%q:null}}}`,
		workloadops.LabelClaimed, workloadops.AnnotationClaimedBy, rollout.AnnotationRest))
	require.Eventually(t, func() bool { return w.calls.count(http.MethodGet, "/deployments/w") == 1 }, patience, tick, "it is looked for once when it leaves the watch")
	require.NoError(t, w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), "w", metav1.DeleteOptions{}))
	w.deployment("w", 1, nil)
	w.restAt(deploymentsForTest, 2)
	w.hears("what happened to it without a claim is nobody's concern", "scaled", "scaled")
}

// Without its label no watch would show the workload, and nobody would notice what is done to it.
func TestDriftDetectorMarksAgainWhatIsStillHeld(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("it is watched", "scaled")
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"labels":{%q:null}},"spec":{"replicas":2}}`, workloadops.LabelClaimed))
	w.hears("its rollout looks at what was done with it", "scaled", "edited")
	require.Eventually(t, func() bool { return w.get(deploymentsForTest).GetLabels()[workloadops.LabelClaimed] != "" }, patience, tick, "it is marked again")
	w.change(deploymentsForTest, `{"spec":{"replicas":5}}`)
	w.hears("what comes afterwards is noticed", "scaled", "edited", "scaled")
	w.mail.fail(serviceerror.NewNotFound("no such workflow"))
	tries := w.mail.tries()
	w.change(deploymentsForTest, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, workloadops.LabelClaimed))
	require.Eventually(t, func() bool { return w.mail.tries() > tries }, patience, tick)
	require.Empty(t, w.get(deploymentsForTest).GetLabels()[workloadops.LabelClaimed], "nothing is written for a rollout that is over, or is another engine's")
}

func TestDriftDetectorRepeatsWhatDoesNotArrive(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.mail.fail(errors.New("Temporal is away"))
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	require.Eventually(t, func() bool { return w.mail.tries() >= 2 }, patience, tick, "it tries again")
	w.mail.fail(nil)
	w.hears("as soon as Temporal is back, the rollout hears of it", "scaled")
	w.mail.fail(serviceerror.NewNotFound("no such workflow"))
	before := w.mail.tries()
	w.change(deploymentsForTest, `{"spec":{"replicas":4}}`)
	require.Eventually(t, func() bool { return w.mail.tries() > before }, patience, tick)
	w.mail.fail(nil)
	w.change(deploymentsForTest, `{"spec":{"replicas":5}}`)
	w.hears("a rollout that is over is not told again and again", "scaled", "scaled")
}

func TestDriftDetectorCostsNothingAtRest(t *testing.T) {
	w := newWatched(t)
	w.deployment("w", 2, nil)
	w.restAt(deploymentsForTest, 2)
	w.start()
	w.change(deploymentsForTest, `{"spec":{"replicas":3}}`)
	w.hears("it works", "scaled")
	require.Zero(t, w.calls.count(http.MethodGet, "/deployments/w"), "what it compares, its watch brings")
	require.LessOrEqual(t, w.calls.watchesOf("/apis/apps/v1/namespaces/"+w.namespace+"/deployments"), 2, "one watch, with a list before it where the server cannot stream it")
	require.NotContains(t, w.log.String(), "level=WARN", "nothing to worry about")
}

func TestDriftDetectorKnowsEveryKind(t *testing.T) {
	w := newWatched(t)
	kruise.Start(t, w.config, w.namespace)
	template := `{"metadata":{"labels":{"app":"w"}},"spec":{"containers":[{"name":"app","image":"x:v1"}]}}`
	w.daemonSet("w", nil)
	w.statefulSet("w", 1, func(s *appsv1.StatefulSet) { s.Spec.Template.Labels = map[string]string{"app": "w"} })
	for kind, resource := range map[string]schema.GroupVersionResource{"CloneSet": kruise.CloneSets, "StatefulSet": kruise.StatefulSets, "DaemonSet": kruise.DaemonSets} {
		o := &unstructured.Unstructured{}
		require.NoError(t, o.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":"w"},"spec":{"selector":{"matchLabels":{"app":"w"}},"template":%s}}`,
			resource.GroupVersion().String(), kind, template)))
		_, err := w.dynamic.Resource(resource).Namespace(w.namespace).Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.start()
	var want []string
	apps := func(plural string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: plural}
	}
	for _, resource := range []schema.GroupVersionResource{apps("statefulsets"), apps("daemonsets"), kruise.CloneSets, kruise.StatefulSets, kruise.DaemonSets} {
		size, _, _ := unstructured.NestedInt64(w.get(resource).Object, "spec", "replicas")
		w.restAt(resource, int32(size))
		w.change(resource, imageOf("other"))
		want = append(want, "edited")
		w.hears(resource.String(), want...)
	}
}
