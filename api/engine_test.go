package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/api"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/gather"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

const (
	waitTimeout = 30 * time.Second
	// pollInterval is the interval between checks of a state: with a shorter one, the polling of parallel tests would
	// saturate the machine.
	pollInterval = 50 * time.Millisecond
)

// engine is the HTTP API on a real Temporal server and a real home cluster, with the real workflows and the centre's
// real activities. Only the parties' workloads are faked, by fakeParty.
type engine struct {
	t        *testing.T
	url      string
	router   routers.Router
	temporal client.Client
	store    *store.Store
	home     *faultyHome
	backend  backend.Backend
	// own is the engine's namespace in the home cluster.
	own      string
	party    *fakeParty
	rollouts *fakeRolloutParty
	api      *api.API
	// temporalDown makes every call of the API to Temporal fail, as in an outage.
	temporalDown atomic.Bool
	// namespace is the engine's namespace in Temporal.
	namespace string
	// listWorkers is the error of ListWorkers calls to Temporal; nil: they are passed on.
	listWorkers atomic.Pointer[error]
	// rateLimited makes every call of the API fail with a rate limit error of Temporal.
	rateLimited atomic.Bool
	// onRequest is called with each request before the API sends it to Temporal; nil: none.
	onRequest atomic.Pointer[func(request any)]
	// deleted and deletedRuns are the workflows and runs whose deletion was requested; Temporal deletes them about a
	// minute later.
	deleted, deletedRuns sync.Map
	// keepDeleted blocks deletions before they reach Temporal, which deletes at an unpredictable time.
	keepDeleted atomic.Bool
	ends        []func()
}

func newEngine(t *testing.T) *engine { return newEngineWith(t, nil) }

// newEngineWith returns an engine that caches answers for a moment; with nil it caches none, so that a test sees its
// own changes behind the API.
func newEngineWith(t *testing.T, answers *recent.Cache) *engine {
	t.Helper()
	stack := harness.SharedStack(t)
	e := &engine{t: t, party: newParty(), rollouts: &fakeRolloutParty{}}
	namespace := stack.TemporalNamespace(t)
	e.namespace, e.temporal = namespace, stack.Temporal(t, namespace)
	e.addSearchAttributes(namespace)
	var err error
	own := stack.Namespace(t, "api")
	e.home = &faultyHome{}
	e.store = e.storeBehind(own, e.home)
	connection := client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		backend.RecordRateLimits, e.rejectIfRateLimited)}}
	front, err := client.NewLazyClient(client.Options{HostPort: stack.TemporalAddress, Namespace: namespace,
		Logger: quiet, TrafficController: e,
		ConnectionOptions: connection})
	require.NoError(t, err)
	t.Cleanup(front.Close)
	e.backend = backend.Backend{Home: e.store, Temporal: front,
		Recent: answers, Lists: answers, Checks: &gather.Batcher[workflows.RolloutPreflight,
			workflows.PreflightOutcome]{},
		Namespace: namespace, TemporalUI: "http://ui.example/", Log: slog.New(slog.DiscardHandler),
		UnreachableBudget: 5 * time.Second}
	e.own = own
	e.serve()
	return e
}

// storeBehind returns a store that reaches the home cluster through home, and runs its watches.
func (e *engine) storeBehind(own string, home *faultyHome) *store.Store {
	config := rest.CopyConfig(harness.SharedStack(e.t).REST)
	config.Wrap(home.intercept)
	s, err := store.New(config, own, own)
	require.NoError(e.t, err)
	go s.Run(e.t.Context())
	return s
}

// serve starts a new server, which answers requests from now on.
func (e *engine) serve() {
	var err error
	e.api, err = api.New(api.Deps{Metrics: http.NotFoundHandler(), Kuscia: http.NotFoundHandler(), Backend: e.backend})
	require.NoError(e.t, err)
	server := httptest.NewServer(e.api)
	e.url = server.URL
	e.router = specRouter(e.t, e.url)
	e.t.Cleanup(func() {
		e.api.Close()
		server.Close()
	})
}

// secondServer prepares a second server, and returns the function that makes it answer requests. Until then it receives
// no watch events of records.
func (e *engine) secondServer() (answers func()) {
	home := &faultyHome{}
	e.backend.Home = e.storeBehind(e.own, home)
	require.Eventually(e.t, e.backend.Home.Watching, waitTimeout, pollInterval)
	home.watchMuted.Store(true)
	return e.serve
}

var quiet = sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))

func (e *engine) rejectIfRateLimited(ctx context.Context, method string, request, reply any, to *grpc.ClientConn,
	call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if e.rateLimited.Load() {
		return status.Error(codes.ResourceExhausted, "namespace rate limit exceeded")
	}
	return call(ctx, method, request, reply, to, options...)
}

// CheckCallAllowed lets the test intercept the API's calls to Temporal.
func (e *engine) CheckCallAllowed(_ context.Context, _ string, request, _ any) error {
	if deletion, ok := request.(*workflowservice.DeleteWorkflowExecutionRequest); ok {
		e.deleted.Store(deletion.GetWorkflowExecution().GetWorkflowId(), true)
		e.deletedRuns.Store(deletion.GetWorkflowExecution().GetRunId(), true)
		if e.keepDeleted.Load() {
			return status.Error(codes.NotFound, "kept by the test")
		}
	}
	if before := e.onRequest.Load(); before != nil {
		(*before)(request)
	}
	if _, asked := request.(*workflowservice.ListWorkersRequest); asked {
		if answer := e.listWorkers.Load(); answer != nil {
			return *answer
		}
	}
	if e.temporalDown.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

func (e *engine) addSearchAttributes(namespace string) {
	wanted := map[string]enumspb.IndexedValueType{}
	for _, key := range workflows.SearchAttributes {
		wanted[key.GetName()] = key.GetValueType()
	}
	_, err := e.temporal.OperatorService().AddSearchAttributes(e.t.Context(),
		&operatorservice.AddSearchAttributesRequest{
			Namespace: namespace, SearchAttributes: wanted})
	require.NoError(e.t, err)
	require.Eventually(e.t, func() bool { // the server's frontend loads the namespace's attributes with a delay
		_, err := e.temporal.CountWorkflow(e.t.Context(),
			&workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace,
				Query: "SlipwayKind = 'task'"})
		return err == nil
	}, time.Minute, 100*time.Millisecond, "the frontend never loaded the search attributes of %s", namespace)
}

// startWorkers starts the engine's worker and the worker of the party "default".
func (e *engine) startWorkers() *engine {
	e.t.Helper()
	engine := worker.New(e.temporal, workflows.QueueEngine, worker.Options{DisableRegistrationAliasing: true,
		Interceptors: []interceptor.WorkerInterceptor{workflows.NewInterceptor()}})
	engine.RegisterWorkflowWithOptions(workflows.DeployPlan, workflow.RegisterOptions{Name: workflows.TypeDeployPlan})
	engine.RegisterWorkflowWithOptions(workflows.ServiceRelease,
		workflow.RegisterOptions{Name: workflows.TypeServiceRelease})
	engine.RegisterWorkflowWithOptions(workflows.Preflight, workflow.RegisterOptions{Name: workflows.TypePreflight})
	registerRollout(engine)
	engine.RegisterWorkflowWithOptions(workflows.Serving, workflow.RegisterOptions{Name: workflows.TypeServing})
	centre.NewActivities(e.store, e.temporal, versions.NewReader(e.temporal, e.namespace), 0).Register(engine)
	require.NoError(e.t, engine.Start())
	pods := worker.New(e.temporal, catalog.PartyQueue(catalog.DefaultParty),
		worker.Options{DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: pollInterval})
	e.party.register(pods)
	e.rollouts.register(pods)
	registerServingParty(pods)
	require.NoError(e.t, pods.Start())
	e.ends = append(e.ends, engine.Stop, pods.Stop)
	e.t.Cleanup(e.stopWorkers)
	return e
}

// stopWorkers stops the workers.
func (e *engine) stopWorkers() {
	e.party.open()
	for _, end := range e.ends {
		end()
	}
	e.ends = nil
}

// answer is a response of the API.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// call sends one request and validates the response against api/openapi.yaml. headers are "Name: value".
func (e *engine) call(method, path, body string, headers ...string) answer {
	e.t.Helper()
	request := e.request(e.t.Context(), method, path, body, headers...)
	response, err := http.DefaultClient.Do(request)
	require.NoError(e.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(e.t, err)
	a := answer{e.t, response.StatusCode, response.Header, string(text)}
	e.conforms(request, a)
	return a
}

// callAgain repeats a call while its status is 503: a worker that has just started may be slow on a busy machine.
func (e *engine) callAgain(method, path, body string, headers ...string) answer {
	e.t.Helper()
	var a answer
	require.Eventually(e.t, func() bool {
		a = e.call(method, path, body, headers...)
		return a.status != http.StatusServiceUnavailable
	}, waitTimeout, pollInterval, "%s %s: still 503", method, path)
	return a
}

func (e *engine) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	e.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, e.url+path, strings.NewReader(body))
	require.NoError(e.t, err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	return request
}

// conforms checks that the response conforms to the operation's description.
func (e *engine) conforms(request *http.Request, a answer) {
	e.t.Helper()
	route, parameters, err := e.router.FindRoute(request)
	if err != nil {
		return // tests of unknown addresses
	}
	content := a.header.Get("Content-Type")
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, Route: route}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header,
		Body: io.NopCloser(bytes.NewReader([]byte(a.body))),
		Options: &openapi3filter.Options{IncludeResponseStatus: true,
			ExcludeResponseBody: !strings.Contains(content, "json")}})
	require.NoError(e.t, err, "%s %s answered %d %s", request.Method, request.URL.Path, a.status, a.body)
}

func specRouter(t *testing.T, url string) routers.Router {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	require.NoError(t, err)
	spec.Servers = openapi3.Servers{{URL: url}}
	router, err := legacy.NewRouter(spec)
	require.NoError(t, err)
	return router
}

// is checks the status and returns the answer.
func (a answer) is(status int, reason string) answer {
	a.t.Helper()
	require.Equal(a.t, status, a.status, "%s; the answer was %s", reason, a.body)
	return a
}

func (a answer) problem() schema.Problem {
	a.t.Helper()
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"), a.body)
	return decode[schema.Problem](a)
}

// reasons returns all errors of a problem, one per line.
func (a answer) reasons() string {
	var all []string
	for _, one := range a.problem().Errors {
		all = append(all, fmt.Sprintf("%d %s (line %d): %s", one.Item, one.Field, one.Line, one.Reason))
	}
	return strings.Join(all, "\n")
}

func decode[T any](a answer) T {
	a.t.Helper()
	var value T
	require.NoError(a.t, json.Unmarshal([]byte(a.body), &value), a.body)
	return value
}

const (
	yamlBody = "Content-Type: application/yaml"
	jsonBody = "Content-Type: application/json"
)

// putService creates a service of one Deployment with the service's ID as name.
func (e *engine) putService(id string) {
	e.t.Helper()
	e.call("PUT", "/api/v1/services/"+id,
		`{"workloads":[{"namespace":"shop","workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"`+id+
			`"}}]}`, jsonBody)
}

// putPlan creates a plan of items "<service> <priority>", and the services that it names.
func (e *engine) putPlan(name string, items ...string) {
	e.t.Helper()
	var document strings.Builder
	document.WriteString("comment: release of the shop\ndeployPlanItems:\n")
	for _, item := range items {
		service, priority, _ := strings.Cut(item, " ")
		e.putService(service)
		fmt.Fprintf(&document, "- {serviceId: %s, priority: %s, deployment: RESTART}\n", service, priority)
	}
	e.call("PUT", "/api/v1/plans/"+name, document.String(), yamlBody).is(http.StatusCreated, "the plan is new")
}

func (e *engine) execute(name string, headers ...string) string {
	e.t.Helper()
	a := e.callAgain("POST", "/api/v1/plans/"+name+"/execute", "", headers...).is(http.StatusAccepted,
		"the plan can be executed")
	id := decode[schema.ExecuteResult](a).ID
	require.Equal(e.t, "/api/v1/tasks/"+id, a.header.Get("Location"))
	return id
}

func (e *engine) task(id string) plan.Task {
	e.t.Helper()
	return decode[plan.Task](e.call("GET", "/api/v1/tasks/"+id, "").is(http.StatusOK, "the task exists"))
}

// wait waits until the task satisfies the condition.
func (e *engine) wait(id, what string, is func(plan.Task) bool) plan.Task {
	e.t.Helper()
	var last plan.Task
	require.Eventually(e.t, func() bool {
		a := e.call("GET", "/api/v1/tasks/"+id, "")
		if a.status == http.StatusServiceUnavailable {
			return false // on a busy machine Temporal may answer late
		}
		last = decode[plan.Task](a.is(http.StatusOK, "the task exists"))
		return is(last)
	}, waitTimeout, pollInterval, "task %s does not reach %s; it is %+v", id, what, &last)
	return last
}

func (e *engine) waitState(id string, state plan.TaskState) plan.Task {
	e.t.Helper()
	return e.wait(id, string(state), func(t plan.Task) bool { return t.State == state })
}

// waitClosed waits until the task's workflow is closed.
func (e *engine) waitClosed(id string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), waitTimeout)
	defer cancel()
	err := e.temporal.GetWorkflow(ctx, plan.WorkflowID(id), "").Get(ctx, nil)
	var failed *temporal.WorkflowExecutionError
	if err != nil {
		require.ErrorAs(e.t, err, &failed)
	}
}
