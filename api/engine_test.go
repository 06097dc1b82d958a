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
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/store"
	"slipway.io/slipway/store/recent"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

const (
	patience = 30 * time.Second
	// tick is how often a state is asked for: more often would keep both cores busy with the questions of the parallel tests alone.
	tick = 50 * time.Millisecond
)

// engine is the front door on a real Temporal server and a real home cluster, with the real workflows and the centre's real activities.
// Only the parties' pods are played, by party.
type engine struct {
	t        *testing.T
	url      string
	router   routers.Router
	temporal client.Client
	store    *store.Store
	home     *brokenHome
	backend  backend.Backend
	// own is the engine's namespace in the home cluster.
	own      string
	party    *party
	rollouts *rolloutParty
	api      *api.API
	// cut makes every call of the front door to Temporal fail, as if it were away.
	cut atomic.Bool
	// namespace is the engine's in Temporal.
	namespace string
	// listWorkers is what Temporal answers to the question for workers in place of them; nil: it is asked.
	listWorkers atomic.Pointer[error]
	// limited has every call of the front door refused by a limit, as a server of Temporal does it.
	limited atomic.Bool
	// before is called with what the front door is about to send to Temporal; nil: nothing is.
	before atomic.Pointer[func(request any)]
	// deleted are the workflows that Temporal was asked to forget; it takes it a minute.
	deleted, deletedRuns sync.Map
	// remembers keeps deletions from Temporal, which forgets at a time of its own.
	remembers atomic.Bool
	ends      []func()
}

func newEngine(t *testing.T) *engine { return newEngineWith(t, nil) }

// newEngineWith is an engine that keeps answers for a moment; with nil it keeps none, so that a test sees what it has changed behind the API.
func newEngineWith(t *testing.T, answers *recent.Answers) *engine {
	t.Helper()
	stack := harness.SharedStack(t)
	e := &engine{t: t, party: newParty(), rollouts: &rolloutParty{}}
	namespace := stack.TemporalNamespace(t)
	e.namespace, e.temporal = namespace, stack.Temporal(t, namespace)
	e.addSearchAttributes(namespace)
	var err error
	own := stack.Namespace(t, "api")
	e.home = &brokenHome{}
	e.store = e.storeBehind(own, e.home)
	connection := client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(backend.NoteLimits, e.limit)}}
	front, err := client.NewLazyClient(client.Options{HostPort: stack.TemporalAddress, Namespace: namespace, Logger: quiet, TrafficController: e,
		ConnectionOptions: connection})
	require.NoError(t, err)
	t.Cleanup(front.Close)
	e.backend = backend.Backend{Home: e.store, Temporal: front,
		Recent: answers, Lists: answers, Checks: &gather.Questions[workflows.RolloutPreflight, workflows.PreflightOutcome]{},
		Namespace: namespace, TemporalUI: "http://ui.example/", Log: slog.New(slog.DiscardHandler), UnreachableBudget: 5 * time.Second}
	e.own = own
	e.serve()
	return e
}

// storeBehind is a store that reaches the home cluster through home, and keeps up with it.
func (e *engine) storeBehind(own string, home *brokenHome) *store.Store {
	config := rest.CopyConfig(harness.SharedStack(e.t).REST)
	config.Wrap(home.between)
	s, err := store.New(config, own, own)
	require.NoError(e.t, err)
	go s.Run(e.t.Context())
	return s
}

// serve has requests answered by a new server.
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

// besides starts a second server, and returns how to have it answer from then on. Until then it hears of no record that is written.
func (e *engine) besides() (answers func()) {
	home := &brokenHome{}
	e.backend.Home = e.storeBehind(e.own, home)
	require.Eventually(e.t, e.backend.Home.Watching, patience, tick)
	home.deaf.Store(true)
	return e.serve
}

var quiet = sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))

func (e *engine) limit(ctx context.Context, method string, request, reply any, to *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if e.limited.Load() {
		return status.Error(codes.ResourceExhausted, "namespace rate limit exceeded")
	}
	return call(ctx, method, request, reply, to, options...)
}

// CheckCallAllowed lets the test cut the front door off from Temporal.
func (e *engine) CheckCallAllowed(_ context.Context, _ string, request, _ any) error {
	if deletion, ok := request.(*workflowservice.DeleteWorkflowExecutionRequest); ok {
		e.deleted.Store(deletion.GetWorkflowExecution().GetWorkflowId(), true)
		e.deletedRuns.Store(deletion.GetWorkflowExecution().GetRunId(), true)
		if e.remembers.Load() {
			return status.Error(codes.NotFound, "kept by the test")
		}
	}
	if before := e.before.Load(); before != nil {
		(*before)(request)
	}
	if _, asked := request.(*workflowservice.ListWorkersRequest); asked {
		if answer := e.listWorkers.Load(); answer != nil {
			return *answer
		}
	}
	if e.cut.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

func (e *engine) addSearchAttributes(namespace string) {
	wanted := map[string]enumspb.IndexedValueType{}
	for _, key := range workflows.SearchAttributes {
		wanted[key.GetName()] = key.GetValueType()
	}
	_, err := e.temporal.OperatorService().AddSearchAttributes(e.t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: namespace, SearchAttributes: wanted})
	require.NoError(e.t, err)
	require.Eventually(e.t, func() bool { // the server's frontend learns of a namespace's attributes a moment later
		_, err := e.temporal.CountWorkflow(e.t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace,
			Query: "SlipwayKind = 'task'"})
		return err == nil
	}, time.Minute, 100*time.Millisecond, "the frontend never learnt of the search attributes of %s", namespace)
}

// work starts the engine's worker and that of the party "default".
func (e *engine) work() *engine {
	e.t.Helper()
	engine := worker.New(e.temporal, workflows.QueueEngine, worker.Options{DisableRegistrationAliasing: true,
		Interceptors: []interceptor.WorkerInterceptor{workflows.NewInterceptor()}})
	engine.RegisterWorkflowWithOptions(workflows.DeployPlan, workflow.RegisterOptions{Name: workflows.TypeDeployPlan})
	engine.RegisterWorkflowWithOptions(workflows.ServiceRelease, workflow.RegisterOptions{Name: workflows.TypeServiceRelease})
	engine.RegisterWorkflowWithOptions(workflows.Preflight, workflow.RegisterOptions{Name: workflows.TypePreflight})
	registerRollout(engine)
	engine.RegisterWorkflowWithOptions(workflows.Serving, workflow.RegisterOptions{Name: workflows.TypeServing})
	centre.NewActivities(e.store, e.temporal, versions.NewReader(e.temporal, e.namespace), 0).Register(engine)
	require.NoError(e.t, engine.Start())
	pods := worker.New(e.temporal, catalog.PartyQueue(catalog.DefaultParty), worker.Options{DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: tick})
	e.party.register(pods)
	e.rollouts.register(pods)
	registerServingParty(pods)
	require.NoError(e.t, pods.Start())
	e.ends = append(e.ends, engine.Stop, pods.Stop)
	e.t.Cleanup(e.rest)
	return e
}

// rest ends the workers.
func (e *engine) rest() {
	e.party.open()
	for _, end := range e.ends {
		end()
	}
	e.ends = nil
}

// answer is what the API answered.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// call sends one request and holds the answer against api/openapi.yaml. headers are "Name: value".
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

// callAgain repeats a call for as long as nobody answers it: a worker that has just begun, on a machine that is busy, takes its time.
func (e *engine) callAgain(method, path, body string, headers ...string) answer {
	e.t.Helper()
	var a answer
	require.Eventually(e.t, func() bool {
		a = e.call(method, path, body, headers...)
		return a.status != http.StatusServiceUnavailable
	}, patience, tick, "%s %s: still nobody answers", method, path)
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

// conforms checks that the operation has this answer, in this form.
func (e *engine) conforms(request *http.Request, a answer) {
	e.t.Helper()
	route, parameters, err := e.router.FindRoute(request)
	if err != nil {
		return // the tests of addresses that do not exist
	}
	content := a.header.Get("Content-Type")
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, Route: route}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader([]byte(a.body))),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: !strings.Contains(content, "json")}})
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

// is requires the status and answers itself.
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

// reasons are all that is wrong, by place.
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

// putService makes a service of one Deployment that has the service's own name.
func (e *engine) putService(id string) {
	e.t.Helper()
	e.call("PUT", "/api/v1/services/"+id, `{"workloads":[{"namespace":"shop","workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"`+id+`"}}]}`, jsonBody)
}

// putPlan makes a plan of items "<service> <priority>", and the services that it names.
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
	a := e.callAgain("POST", "/api/v1/plans/"+name+"/execute", "", headers...).is(http.StatusAccepted, "the plan can be executed")
	id := decode[schema.ExecuteResult](a).ID
	require.Equal(e.t, "/api/v1/tasks/"+id, a.header.Get("Location"))
	return id
}

func (e *engine) task(id string) plan.Task {
	e.t.Helper()
	return decode[plan.Task](e.call("GET", "/api/v1/tasks/"+id, "").is(http.StatusOK, "the task exists"))
}

// wait waits until the task is as asked.
func (e *engine) wait(id, what string, is func(plan.Task) bool) plan.Task {
	e.t.Helper()
	var last plan.Task
	require.Eventually(e.t, func() bool {
		a := e.call("GET", "/api/v1/tasks/"+id, "")
		if a.status == http.StatusServiceUnavailable {
			return false // on a busy machine Temporal may be late once
		}
		last = decode[plan.Task](a.is(http.StatusOK, "the task exists"))
		return is(last)
	}, patience, tick, "task %s does not come to %s; it is %+v", id, what, &last)
	return last
}

func (e *engine) waitState(id string, state plan.TaskState) plan.Task {
	e.t.Helper()
	return e.wait(id, string(state), func(t plan.Task) bool { return t.State == state })
}

// waitClosed waits until the task's workflow is closed.
func (e *engine) waitClosed(id string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	err := e.temporal.GetWorkflow(ctx, plan.WorkflowID(id), "").Get(ctx, nil)
	var failed *temporal.WorkflowExecutionError
	if err != nil {
		require.ErrorAs(e.t, err, &failed)
	}
}
