package cli_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
)

// TestMain removes the settings of the environment in which the tests run.
func TestMain(m *testing.M) {
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "SLIPWAY_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// noon is the current time in all tests.
var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return noon.Add(-d) }

func beforeP(d time.Duration) *time.Time { t := before(d); return &t }

func answerJSON(status int, v any) answer { return answer{status: status, body: v} }

// answer is a response of the fake API: a value sent as JSON, or text with a content type.
type answer struct {
	status      int
	body        any
	contentType string
}

// problem returns an error response.
func problem(status int, detail string, fields ...client.FieldProblem) answer {
	return answer{status: status, contentType: "application/problem+json",
		body: client.Problem{Type: "/docs#problem", Title: "Problem", Status: status, Detail: detail, Errors: fields}}
}

// request is a request to the fake API.
type request struct {
	method, path, query string
	header              http.Header
	body                string
}

func (r request) field(t *testing.T, name string) string {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.body), &fields), "the request's body is JSON")
	text, _ := fields[name].(string)
	return text
}

// fakeAPI answers "METHOD /path" by routes and validates every request and response against api/openapi.yaml.
type fakeAPI struct {
	t      *testing.T
	router routers.Router
	routes map[string]func(request) answer
	// streams handle a route themselves, such as the event stream of a task.
	streams map[string]http.HandlerFunc
	*httptest.Server

	mutex sync.Mutex
	seen  []request
}

// specification routes requests by api/openapi.yaml. Its servers are removed, because every fake API has another
// address.
var specification = sync.OnceValues(func() (routers.Router, error) {
	spec, err := openapi3.NewLoader().LoadFromFile("../api/openapi.yaml")
	if err != nil {
		return nil, err
	}
	spec.Servers = nil
	return legacy.NewRouter(spec)
})

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	router, err := specification()
	require.NoError(t, err)
	f := &fakeAPI{t: t, router: router, routes: map[string]func(request) answer{},
		streams: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewServer(f)
	f.on("GET /api/v1/services", func(request) answer {
		return answerJSON(http.StatusOK, client.ServiceList{Items: []client.ServiceSummary{}})
	})
	t.Cleanup(f.Close)
	return f
}

// newTLSServer serves the same API over TLS.
func newTLSServer(t *testing.T, f *fakeAPI, config *tls.Config) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(f)
	server.TLS, server.Config.ErrorLog = config, log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func (f *fakeAPI) on(route string, answers func(request) answer) { f.routes[route] = answers }

func (f *fakeAPI) requests() []request {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.seen
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Errorf("reading a request: %s", err)
	}
	seen := request{method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, header: r.Header, body: string(body)}
	f.mutex.Lock()
	f.seen = append(f.seen, seen)
	f.mutex.Unlock()
	input := f.checkRequest(r, body)
	key := r.Method + " " + r.URL.Path
	if stream, ok := f.streams[key]; ok {
		stream(w, r)
		return
	}
	route, ok := f.routes[key]
	if !ok {
		f.t.Errorf("unexpected request %s to the fake API", key)
		route = func(request) answer { return problem(http.StatusNotFound, "unexpected") }
	}
	f.write(w, input, route(seen))
}

func (f *fakeAPI) checkRequest(r *http.Request, body []byte) *openapi3filter.RequestValidationInput {
	outside := r.Clone(context.Background())
	outside.Body = io.NopCloser(bytes.NewReader(body))
	outside.URL.Scheme, outside.URL.Host = "http", r.Host
	route, parameters, err := f.router.FindRoute(outside)
	if err != nil {
		f.t.Errorf("%s %s is not in api/openapi.yaml: %s", r.Method, r.URL, err)
		return nil
	}
	input := &openapi3filter.RequestValidationInput{Request: outside, PathParams: parameters, Route: route}
	// The tests validate the bodies of plans and services with the strict decoders.
	input.Options = &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		ExcludeRequestBody: strings.Contains(r.Header.Get("Content-Type"), "yaml")}
	if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil {
		f.t.Errorf("%s %s does not match api/openapi.yaml: %s", r.Method, r.URL, err)
	}
	return input
}

func (f *fakeAPI) write(w http.ResponseWriter, input *openapi3filter.RequestValidationInput, a answer) {
	text, isText := a.body.(string)
	if !isText && a.body != nil {
		encoded, err := json.Marshal(a.body)
		if err != nil {
			f.t.Errorf("encoding an answer: %s", err)
		}
		text = string(encoded)
	}
	if a.contentType == "" && a.body != nil {
		a.contentType = "application/json"
	}
	if a.contentType != "" {
		w.Header().Set("Content-Type", a.contentType)
	}
	if input != nil && a.contentType != "text/html" {
		err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: input, Status: a.status, Header: w.Header(),
			Body:    io.NopCloser(strings.NewReader(text)),
			Options: &openapi3filter.Options{ExcludeResponseBody: a.contentType == "text/markdown"}})
		if err != nil {
			f.t.Errorf("the test's response does not match api/openapi.yaml: %s", err)
		}
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, text)
}

// outcome is the result of a command line.
type outcome struct {
	out, err string
	code     int
}

// session runs command lines.
type session struct {
	app  *app.App
	ctx  context.Context
	out  *bytes.Buffer
	errs *bytes.Buffer
	// pauses are the waits between attempts.
	pauses []time.Duration
}

func newSession(t *testing.T, input string) *session {
	t.Helper()
	s := &session{ctx: t.Context(), out: &bytes.Buffer{}, errs: &bytes.Buffer{}}
	s.app = &app.App{In: strings.NewReader(input), Out: s.out, Err: s.errs, Output: app.Table, Now: func() time.Time {
		return noon
	}}
	s.app.Screen = func() (int, int, bool) { return 0, 0, false }
	s.app.Wait = func(_ context.Context, d time.Duration) { s.pauses = append(s.pauses, d) }
	return s
}

func (s *session) run(args ...string) outcome {
	code := cli.Run(s.ctx, s.app, args)
	return outcome{out: s.out.String(), err: s.errs.String(), code: code}
}

// slipway runs one command line with the API, which may be nil.
func slipway(t *testing.T, api *fakeAPI, args ...string) outcome {
	t.Helper()
	return slipwayWith(t, api, "", args...)
}

func slipwayWith(t *testing.T, api *fakeAPI, input string, args ...string) outcome {
	t.Helper()
	if api != nil {
		args = append(args, "--api", api.URL)
	}
	return newSession(t, input).run(args...)
}

// write creates a file in a temporary folder and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// inFolder removes the test's temporary folder from paths in the output.
func (o outcome) inFolder(path string) outcome {
	folder := filepath.Dir(path) + string(filepath.Separator)
	o.out, o.err = strings.ReplaceAll(o.out, folder, ""), strings.ReplaceAll(o.err, folder, "")
	return o
}

// shopTask is a half-finished task with three services in two waves.
func shopTask() plan.Task {
	three, zero := int32(3), int32(0)
	return plan.Task{
		ID: "shop-1", Plan: "shop", Comment: "release of the shop", State: plan.TaskRunning,
		Reason:    "wave 1 of 2: 1 of 2 services is done",
		CreatedAt: before(70 * time.Second), StartedAt: beforeP(65 * time.Second),
		Services: []plan.ServiceStatus{
			{ServiceID: "333", Priority: 1, Deployment: plan.Start, State: plan.ItemPending,
				Reason:    "waits for its turn",
				Workloads: []plan.WorkloadStatus{}},
			{ServiceID: "111", Priority: 3, Deployment: plan.Restart, Method: plan.Sequential, State: plan.ItemRunning,
				Reason:    "being released",
				StartedAt: beforeP(64 * time.Second), Workloads: []plan.WorkloadStatus{
					{Party: "default", Namespace: "shop", Kind: "Deployment", Name: "order", State: plan.ItemRunning,
						Message: "2 of 3 pods are new and ready"},
					{Party: "alice", Namespace: "shop", Kind: "StatefulSet", Name: "order-db", State: plan.ItemPending},
				}},
			{ServiceID: "222", Priority: 3, Deployment: plan.Stop, State: plan.ItemSucceeded, Reason: "stopped",
				StartedAt: beforeP(64 * time.Second), FinishedAt: beforeP(60 * time.Second),
				Workloads: []plan.WorkloadStatus{
					{Party: "default", Namespace: "shop", Kind: "Deployment", Name: "cart", State: plan.ItemSucceeded,
						Message: "stopped: scaled from 3 to 0", Changed: true,
						Change: revision.Change{FromReplicas: &three, ToReplicas: &zero}},
				}},
		},
		Workflow: &audit.WorkflowRef{ID: "task/shop-1", RunID: "run-1", URL: "http://127.0.0.1:8233/task"},
	}
}

// shopTaskIn is the same task, ended in this state.
func shopTaskIn(state plan.TaskState, reason string) plan.Task {
	t := shopTask()
	t.State, t.Reason = state, reason
	itemState := plan.ItemSkipped
	if state == plan.TaskSucceeded {
		itemState = plan.ItemSucceeded
	}
	t.Services[0].State, t.Services[0].Reason = itemState, ""
	t.Services[1].State, t.Services[1].Reason, t.Services[1].FinishedAt = plan.ItemSucceeded, "restarted",
		beforeP(5*time.Second)
	if state == plan.TaskFailed {
		t.Services[1].State = plan.ItemFailed
	}
	if state.Final() {
		t.FinishedAt = beforeP(5 * time.Second)
	}
	return t
}

// sendEvent writes and flushes one server-sent event.
func sendEvent(t *testing.T, w http.ResponseWriter, name, id string, data any) {
	t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		t.Errorf("encoding an event: %s", err)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "event: %s\nid: %s\ndata: %s\n\n", name, id, text)
	w.(http.Flusher).Flush()
}

// watchedStates returns an API that serves the first state and then the others as events. The stream stays open.
func watchedStates[S any](t *testing.T, path string, first S, states []S) *fakeAPI {
	t.Helper()
	api := newFakeAPI(t)
	api.on("GET "+path, func(request) answer { return answerJSON(http.StatusOK, first) })
	api.streams["GET "+path+"/events"] = func(w http.ResponseWriter, r *http.Request) {
		for n, s := range states {
			sendEvent(t, w, "state", fmt.Sprintf("run-1.%d", n), s)
		}
		<-r.Context().Done()
	}
	return api
}
