package traffic_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/activities/traffic/scriptbox"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/routes"
)

const (
	patience = 60 * time.Second
	tick     = 100 * time.Millisecond
	stable   = "6c9d7"
	canary   = "84f5b"
	ours     = "rollout/default/shop/order@run-1"
)

// TestMain lets the test binary act as the sandbox process for scripts, like the product's binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == scriptbox.Argument {
		os.Exit(scriptbox.Child(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// bench is one test's namespace with its activities.
type bench struct {
	t         *testing.T
	kube      kubernetes.Interface
	objects   dynamic.Interface
	config    *rest.Config
	namespace string
	acts      *traffic.Activities
	wire      *wire
}

// wire counts the activities' writes, without dry runs, and can inject faults.
type wire struct {
	next http.RoundTripper

	mu     sync.Mutex
	writes []string
	fault  func(r *http.Request, before int) error
	// lose drops the responses of writes.
	lose bool
	// down fails every request.
	down bool
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	dry := strings.Contains(r.URL.RawQuery, "dryRun")
	write := r.Method != http.MethodGet && !dry && !strings.Contains(r.URL.Path, "selfsubject")
	w.mu.Lock()
	fault, lose, before := w.fault, w.lose, len(w.writes)
	w.mu.Unlock()
	if w.down {
		return nil, errors.New("connection refused")
	}
	if write && fault != nil {
		if err := fault(r, before); err != nil {
			return nil, err
		}
	}
	response, err := w.next.RoundTrip(r)
	if err == nil && write && response.StatusCode < 300 {
		w.mu.Lock()
		w.writes = append(w.writes, r.Method+" "+r.URL.Path)
		w.mu.Unlock()
		if lose {
			_ = response.Body.Close()
			return nil, context.Canceled
		}
	}
	return response, err
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.writes)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	stack := harness.SharedStack(t)
	t.Parallel()
	routes.Install(t, stack.REST)
	return benchOn(t, stack)
}

func benchOn(t *testing.T, stack harness.Stack) *bench {
	t.Helper()
	b := &bench{t: t, config: stack.REST, kube: stack.Kube, namespace: stack.Namespace(t, "traffic")}
	var err error
	b.objects, err = dynamic.NewForConfig(stack.REST)
	require.NoError(t, err)
	b.use(b.config, traffic.Options{})
	return b
}

// use creates new activities.
func (b *bench) use(config *rest.Config, options traffic.Options) {
	b.t.Helper()
	counted := rest.CopyConfig(config)
	b.wire = &wire{}
	wire := b.wire
	counted.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		wire.next = next
		return wire
	}
	// outside of the wire, so that injected faults are handled like a cluster's
	counted = kube.Configure(counted, kube.Options{QPS: 500, Burst: 1000})
	client, err := kubernetes.NewForConfig(counted)
	require.NoError(b.t, err)
	objects, err := dynamic.NewForConfig(counted)
	require.NoError(b.t, err)
	options.Logger = slog.New(slog.NewTextHandler(b.t.Output(), nil))
	b.acts, err = traffic.New(client, objects, options)
	require.NoError(b.t, err)
}

// run makes one change, with retries as Temporal makes them.
func (b *bench) run(req rollout.RouteRequest) (rollout.RouteResult, error) {
	b.t.Helper()
	for {
		result, err := b.attempt(req)
		var app *temporal.ApplicationError
		if err == nil || !asApp(err, &app) || app.NonRetryable() {
			return result, err
		}
	}
}

func asApp(err error, app **temporal.ApplicationError) bool {
	for err != nil {
		if a, is := err.(*temporal.ApplicationError); is { //nolint:errorlint // the chain is walked here
			*app = a
			return true
		}
		u, is := err.(interface{ Unwrap() error })
		if !is {
			return false
		}
		err = u.Unwrap()
	}
	return false
}

func (b *bench) attempt(req rollout.RouteRequest) (rollout.RouteResult, error) {
	b.t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(patience)
	env.RegisterActivityWithOptions(b.acts.Route, activity.RegisterOptions{Name: "route"})
	value, err := env.ExecuteActivity("route", req)
	var result rollout.RouteResult
	if err == nil {
		require.NoError(b.t, value.Get(&result))
	}
	return result, err
}

// must makes a change that has to succeed, and repeats it: the second time nothing is written.
func (b *bench) must(req rollout.RouteRequest) rollout.RouteResult {
	b.t.Helper()
	result, err := b.run(req)
	require.NoError(b.t, err, "%s", req.Action)
	before := b.wire.count()
	again, err := b.run(req)
	require.NoError(b.t, err, "%s again", req.Action)
	require.Equal(b.t, before, b.wire.count(), "%s: the second time nothing is written: %v", req.Action, b.wire.writes)
	require.False(b.t, again.Modified, "%s again", req.Action)
	require.Zero(b.t, again.GraceSeconds)
	return result
}

func (b *bench) fails(req rollout.RouteRequest, kind failure.Kind) (string, failure.Details) {
	b.t.Helper()
	_, err := b.run(req)
	var app *temporal.ApplicationError
	require.True(b.t, asApp(err, &app), "%s: want %s, have %v", req.Action, kind, err)
	require.Equal(b.t, string(kind), app.Type(), app.Message())
	var details failure.Details
	require.NoError(b.t, app.Details(&details))
	return app.Message(), details
}

func (b *bench) request(action rollout.RouteAction, routing ...strategy.Routing) rollout.RouteRequest {
	return rollout.RouteRequest{
		Subject: rollout.Subject{
			Workload: catalog.Workload{Namespace: b.namespace,
				WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "order"}},
			Name: "order", Claim: ours, DeadlineSeconds: 30, UnreachableBudgetSeconds: 30,
		},
		Action: action, Routings: routing, StableHash: stable, CanaryHash: canary,
	}
}

func weight(n int32) strategy.Traffic { return strategy.Traffic{Weight: &n} }

func byHeader(name, value string) strategy.Traffic {
	return strategy.Traffic{Matches: []strategy.Match{{Headers: []strategy.ValueMatch{{Type: strategy.MatchExact,
		Name: name, Value: value}}}}}
}

var gvrs = map[string]schema.GroupVersionResource{
	"Service":         {Version: "v1", Resource: "services"},
	"Ingress":         {Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	"HTTPRoute":       {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
	"VirtualService":  {Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"},
	"DestinationRule": {Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"},
	"HTTPProxy":       {Group: "projectcontour.io", Version: "v1", Resource: "httpproxies"},
	"ApisixRoute":     {Group: "apisix.apache.org", Version: "v2", Resource: "apisixroutes"},
	"Deployment":      {Group: "apps", Version: "v1", Resource: "deployments"},
}

// apply creates an object from YAML.
func (b *bench) apply(text string) map[string]any {
	b.t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(b.t, err)
	var o unstructured.Unstructured
	require.NoError(b.t, o.UnmarshalJSON(raw))
	o.SetNamespace(b.namespace)
	gvr := gvrs[o.GetKind()]
	gvr.Version = o.GroupVersionKind().Version
	made, err := b.objects.Resource(gvr).Namespace(b.namespace).Create(b.t.Context(), &o, metav1.CreateOptions{})
	require.NoError(b.t, err)
	return made.Object
}

// object reads an object; nil if it does not exist.
func (b *bench) object(kind, name string) *unstructured.Unstructured {
	b.t.Helper()
	o, err := b.objects.Resource(gvrs[kind]).Namespace(b.namespace).Get(b.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	return o
}

// own returns the user's part of an object: spec, labels, annotations.
func own(o *unstructured.Unstructured) map[string]any {
	return map[string]any{"spec": o.Object["spec"], "labels": o.GetLabels(), "annotations": o.GetAnnotations()}
}

// merge edits an object as another client would.
func (b *bench) merge(kind, name, patch string) {
	b.t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(patch))
	require.NoError(b.t, err)
	_, err = b.objects.Resource(gvrs[kind]).Namespace(b.namespace).Patch(b.t.Context(), name, types.MergePatchType, raw,
		metav1.PatchOptions{})
	require.NoError(b.t, err)
}

func (b *bench) delete(kind, name string) {
	b.t.Helper()
	require.NoError(b.t, b.objects.Resource(gvrs[kind]).Namespace(b.namespace).Delete(b.t.Context(), name,
		metav1.DeleteOptions{}))
}

// pod creates a pod of a version; the stack makes it ready.
func (b *bench) pod(name, hash string, annotations map[string]string) {
	b.t.Helper()
	_, err := b.kube.CoreV1().Pods(b.namespace).Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "order", "pod-template-hash": hash},
			Annotations: annotations},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "order:1",
			Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}},
	}, metav1.CreateOptions{})
	require.NoError(b.t, err)
}

// shop creates the Service, and pods of both versions.
func (b *bench) shop() {
	b.t.Helper()
	b.apply(serviceYAML)
	b.pod("stable-1", stable, nil)
	b.pod("stable-2", stable, nil)
	b.pod("canary-1", canary, nil)
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	return string(raw)
}

const serviceYAML = `
apiVersion: v1
kind: Service
metadata: {name: order, labels: {team: shop}, annotations: {note: mine}}
spec:
  selector: {app: order}
  ports: [{name: http, port: 80, targetPort: 8080}]
`
