package workload_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/observer"
)

const (
	patience = 60 * time.Second
	tick     = 20 * time.Millisecond
)

// bench is one test's namespace, the activities under test, and what was asked of the API server on their behalf.
type bench struct {
	t         *testing.T
	kube      kubernetes.Interface
	config    *rest.Config
	namespace string
	acts      *workload.Activities
	traffic   *traffic
}

// traffic counts the requests of the activities, and can keep them from the server.
type traffic struct {
	next http.RoundTripper

	mu     sync.Mutex
	calls  []string
	writes int
	fault  func(*http.Request) (*http.Response, error)
}

func (c *traffic) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	call := r.Method + " " + r.URL.Path + "?" + r.URL.RawQuery
	c.calls = append(c.calls, call)
	fault := c.fault
	c.mu.Unlock()
	if fault != nil {
		if response, err := fault(r); response != nil || err != nil {
			return response, err
		}
	}
	response, err := c.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPatch && response.StatusCode == http.StatusOK {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writes++
	}
	return response, err
}

// written is the number of patches that the server took: those that came too late, and were decided anew, left aside.
func (c *traffic) written() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// count is the number of requests of a method whose path has the text in it, watches left out.
func (c *traffic) count(method, text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, call := range c.calls {
		if strings.HasPrefix(call, method+" ") && strings.Contains(call, text) && !strings.Contains(call, "watch=true") {
			n++
		}
	}
	return n
}

// watches is the number of watches that were begun, and watchesOf that of those whose path begins so.
func (c *traffic) watches() int { return c.watchesOf("/") }

func (c *traffic) watchesOf(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, call := range c.calls {
		if strings.HasPrefix(call, "GET "+path+"?") && strings.Contains(call, "watch=true") || path == "/" && strings.Contains(call, "watch=true") {
			n++
		}
	}
	return n
}

func (c *traffic) set(fault func(*http.Request) (*http.Response, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}

// newBench makes a namespace on the local stack and activities that act there. Without the stack the test is skipped.
func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Getenv("SLIPWAY_TEST_STACK") == "" {
		t.Skip("needs the local stack: run it by `make test`")
	}
	t.Parallel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("SLIPWAY_TEST_KUBECONFIG"))
	require.NoError(t, err)
	config.QPS, config.Burst = 500, 1000
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	b := &bench{t: t, kube: kube, config: config, namespace: fmt.Sprintf("workload-%08x", rand.Uint32())}
	_, err = kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = kube.CoreV1().Namespaces().Delete(context.Background(), b.namespace, metav1.DeleteOptions{})
	})
	b.use(config, workload.Options{})
	return b
}

// use makes the activities anew, for an account and with options.
func (b *bench) use(config *rest.Config, options workload.Options) {
	b.t.Helper()
	counted := rest.CopyConfig(config)
	b.traffic = &traffic{}
	counted.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		b.traffic.next = next
		return b.traffic
	}
	if options.Recorder == nil {
		options.Recorder = recorder{}
	}
	client, err := kubernetes.NewForConfig(counted)
	require.NoError(b.t, err)
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(b.t.Output(), nil))
	}
	b.acts = workload.New(client, options)
	b.t.Cleanup(b.acts.Stop)
}

// recorder stands in for the Temporal server where there is none; the SDK's own heartbeats reach the test's listener.
type recorder struct{ err error }

func (r recorder) RecordActivityHeartbeat(context.Context, []byte, ...any) error { return r.err }

// deployment creates a Deployment with its pods ready.
func (b *bench) deployment(name string, replicas int32, change func(*appsv1.Deployment)) *appsv1.Deployment {
	b.t.Helper()
	template, selector := podTemplate(name)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template}}
	if change != nil {
		change(d)
	}
	_, err := b.kube.AppsV1().Deployments(b.namespace).Create(b.t.Context(), d, metav1.CreateOptions{})
	require.NoError(b.t, err)
	return d
}

func (b *bench) statefulSet(name string, replicas int32, change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	b.t.Helper()
	template, selector := podTemplate(name)
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector, Template: template, ServiceName: name}}
	if change != nil {
		change(s)
	}
	_, err := b.kube.AppsV1().StatefulSets(b.namespace).Create(b.t.Context(), s, metav1.CreateOptions{})
	require.NoError(b.t, err)
	return s
}

func (b *bench) daemonSet(name string, change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	b.t.Helper()
	template, selector := podTemplate(name)
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
	if change != nil {
		change(d)
	}
	_, err := b.kube.AppsV1().DaemonSets(b.namespace).Create(b.t.Context(), d, metav1.CreateOptions{})
	require.NoError(b.t, err)
	return d
}

func podTemplate(name string) (corev1.PodTemplateSpec, *metav1.LabelSelector) {
	labels := map[string]string{"app": name}
	grace := int64(5)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "app", Image: "x:good"}}},
	}, &metav1.LabelSelector{MatchLabels: labels}
}

// settled waits until a workload has exactly so many pods, all ready, and its status says so.
func (b *bench) settled(name observer.Name, pods int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		list := b.pods(name.Name)
		for _, p := range list {
			if !isReady(p) || p.DeletionTimestamp != nil {
				return false
			}
		}
		return len(list) == pods && b.statusReady(name) == int32(pods)
	}, patience, tick, "%s never had %d ready pods", name, pods)
}

func (b *bench) statusReady(name observer.Name) int32 {
	b.t.Helper()
	switch name.Kind {
	case "Deployment":
		d, err := b.kube.AppsV1().Deployments(b.namespace).Get(b.t.Context(), name.Name, metav1.GetOptions{})
		require.NoError(b.t, err)
		return lagging(d.Generation, d.Status.ObservedGeneration, d.Status.AvailableReplicas)
	case "StatefulSet":
		s, err := b.kube.AppsV1().StatefulSets(b.namespace).Get(b.t.Context(), name.Name, metav1.GetOptions{})
		require.NoError(b.t, err)
		return lagging(s.Generation, s.Status.ObservedGeneration, s.Status.AvailableReplicas)
	default:
		d, err := b.kube.AppsV1().DaemonSets(b.namespace).Get(b.t.Context(), name.Name, metav1.GetOptions{})
		require.NoError(b.t, err)
		return lagging(d.Generation, d.Status.ObservedGeneration, d.Status.NumberAvailable)
	}
}

func lagging(generation, observed int64, n int32) int32 {
	if observed < generation {
		return -1
	}
	return n
}

func (b *bench) pods(name string) []corev1.Pod {
	b.t.Helper()
	list, err := b.kube.CoreV1().Pods(b.namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(b.t, err)
	return list.Items
}

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// request is an operation of this test's release on a workload.
func (b *bench) request(name observer.Name, op plan.Operation, method plan.Method) operation.Request {
	return operation.Request{
		Claim: operation.Holder{WorkflowID: "task/t1/1-" + name.Name, RunID: "run-1"}.String(), Marker: "t1/1", Operation: op, Method: method,
		DeadlineSeconds: 60, UnreachableBudgetSeconds: 30,
		Workload: catalog.Workload{Namespace: b.namespace, WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: name.Kind, Name: name.Name}},
	}
}

// driver runs one activity attempt after attempt, handing the heartbeat details on, as Temporal does.
type driver struct {
	b        *bench
	req      operation.Request
	progress *operation.Progress
	attempts int
	notReady []string
}

func (b *bench) driver(req operation.Request) *driver { return &driver{b: b, req: req} }

// attempt makes one attempt.
func (d *driver) attempt() (operation.Result, error) {
	d.b.t.Helper()
	d.attempts++
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(patience)
	env.RegisterActivityWithOptions(d.b.acts.Run, activity.RegisterOptions{Name: operation.ActivityRun})
	if d.progress != nil {
		env.SetHeartbeatDetails(*d.progress)
	}
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var p operation.Progress
		if details.Get(&p) == nil {
			d.progress = &p
		}
	})
	value, err := env.ExecuteActivity(operation.ActivityRun, d.req)
	if err != nil {
		return operation.Result{}, err
	}
	var result operation.Result
	require.NoError(d.b.t, value.Get(&result))
	return result, nil
}

// run makes attempts until one ends the operation.
func (d *driver) run() (operation.Result, error) {
	d.b.t.Helper()
	for d.attempts < 50 {
		result, err := d.attempt()
		var app *temporal.ApplicationError
		if errors.As(err, &app) && app.Type() == string(failure.NotReady) {
			d.notReady = append(d.notReady, app.Message())
			continue
		}
		return result, err
	}
	d.b.t.Fatalf("no end after %d attempts: %v", d.attempts, d.notReady)
	return operation.Result{}, nil
}

// must runs an operation that has to succeed.
func (b *bench) must(req operation.Request) operation.Result {
	b.t.Helper()
	result, err := b.driver(req).run()
	require.NoError(b.t, err)
	return result
}

// fails runs an operation that has to fail, and returns its message.
func (b *bench) fails(req operation.Request, kind failure.Kind) *temporal.ApplicationError {
	b.t.Helper()
	_, err := b.driver(req).run()
	return requireFailure(b.t, err, kind)
}

func requireFailure(t *testing.T, err error, kind failure.Kind) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(kind), app.Type(), app.Message())
	require.Equal(t, !kind.Retryable(), app.NonRetryable())
	return app
}

func requireNotReady(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	return requireFailure(t, err, failure.NotReady)
}

// whole is a workload as the API server has it: its metadata that matters, and its spec as JSON without the size and the restart marker.
type whole struct {
	generation  int64
	annotations map[string]string
	labels      map[string]string
	spec        string
	replicas    int64
	marker      string
}

func (b *bench) whole(name observer.Name) whole {
	b.t.Helper()
	resource := strings.ToLower(name.Kind) + "s"
	raw, err := b.kube.AppsV1().RESTClient().Get().Namespace(b.namespace).Resource(resource).Name(name.Name).DoRaw(b.t.Context())
	require.NoError(b.t, err)
	var o struct {
		Metadata struct {
			Generation  int64
			Annotations map[string]string
			Labels      map[string]string
		}
		Spec map[string]any
	}
	require.NoError(b.t, json.Unmarshal(raw, &o))
	w := whole{generation: o.Metadata.Generation, annotations: o.Metadata.Annotations, labels: o.Metadata.Labels}
	if n, ok := o.Spec["replicas"].(float64); ok {
		w.replicas = int64(n)
	}
	delete(o.Spec, "replicas")
	meta := o.Spec["template"].(map[string]any)["metadata"].(map[string]any)
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		w.marker, _ = annotations[operation.AnnotationRestartedBy].(string)
		delete(annotations, operation.AnnotationRestartedBy)
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	spec, err := json.Marshal(o.Spec)
	require.NoError(b.t, err)
	w.spec = string(spec)
	return w
}

// requireTidy checks that nothing of an operation is left on a workload but what it is about.
func (b *bench) requireTidy(name observer.Name, before whole) whole {
	b.t.Helper()
	after := b.whole(name)
	require.Equal(b.t, before.spec, after.spec, "its own settings must be what they were")
	for _, key := range []string{operation.AnnotationClaimedBy, operation.AnnotationOriginal, operation.AnnotationLeftAt} {
		require.NotContains(b.t, after.annotations, key)
	}
	require.NotContains(b.t, after.labels, operation.LabelClaimed)
	return after
}

// merge applies a JSON merge patch as somebody else would.
func (b *bench) merge(name observer.Name, patch string) {
	b.t.Helper()
	resource := strings.ToLower(name.Kind) + "s"
	err := b.kube.AppsV1().RESTClient().Patch(types.MergePatchType).Namespace(b.namespace).Resource(resource).Name(name.Name).Body([]byte(patch)).Do(b.t.Context()).Error()
	require.NoError(b.t, err)
}

// until waits for a state of a workload.
func (b *bench) until(name observer.Name, what string, reached func(whole) bool) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return reached(b.whole(name)) }, patience, tick, "%s: never %s", name, what)
}
