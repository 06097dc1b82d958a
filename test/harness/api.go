package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
)

// Answer is an HTTP response with its complete body.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Problem is an RFC 9457 body.
type Problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Task   string `json:"task"`
	Errors []struct {
		Field  string `json:"field"`
		Reason string `json:"reason"`
		Item   int    `json:"item"`
		Line   int    `json:"line"`
	} `json:"errors"`
}

// Problem decodes the body as a problem.
func (a Answer) Problem() Problem {
	var p Problem
	_ = json.Unmarshal(a.Body, &p)
	return p
}

// Call sends one request. The body is sent unchanged, as YAML unless it begins with a brace.
func (e *Engine) Call(method, path, body string, headers ...string) Answer {
	e.t.Helper()
	a, err := e.TryCall(method, path, body, headers...)
	require.NoError(e.t, err, "%s %s", method, path)
	return a
}

// TryCall is Call for a server that may be unreachable.
func (e *Engine) TryCall(method, path, body string, headers ...string) (Answer, error) {
	request, err := http.NewRequest(method, e.URL+path, strings.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	if strings.HasPrefix(body, "{") {
		request.Header.Set("Content-Type", "application/json")
	} else if body != "" {
		request.Header.Set("Content-Type", "application/yaml")
	}
	e.authorize(request)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	c := http.Client{Timeout: 30 * time.Second}
	response, err := c.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, response.Body); err != nil {
		return Answer{}, err
	}
	return Answer{Status: response.StatusCode, Header: response.Header, Body: b.Bytes()}, nil
}

func (e *Engine) authorize(request *http.Request) {
	if e.Token != "" {
		request.Header.Set("Authorization", "Bearer "+e.Token)
	}
}

// PutService stores a service in the catalogue with these workloads (kind/name) of the apps namespace; extra is further
// YAML.
func (e *Engine) PutService(id, extra string, workloads ...string) {
	e.t.Helper()
	var b strings.Builder
	b.WriteString("workloads:\n")
	for _, w := range workloads {
		kind, name, _ := strings.Cut(w, "/")
		fmt.Fprintf(&b, "- namespace: %s\n  workloadRef: {apiVersion: apps/v1, kind: %s, name: %s}\n", e.Apps, kind,
			name)
	}
	b.WriteString(extra)
	a := e.Call(http.MethodPut, "/api/v1/services/"+id, b.String())
	require.Contains(e.t, []int{http.StatusOK, http.StatusCreated}, a.Status, "put service %s: %s", id, a.Body)
}

// PutPlan stores a plan.
func (e *Engine) PutPlan(name, document string) {
	e.t.Helper()
	a := e.Call(http.MethodPut, "/api/v1/plans/"+name, document)
	require.Contains(e.t, []int{http.StatusOK, http.StatusCreated}, a.Status, "put plan %s: %s", name, a.Body)
}

// Execute runs a plan and returns the ID of the task.
func (e *Engine) Execute(name string, headers ...string) string {
	e.t.Helper()
	a := e.retryWhileUnavailable(func() Answer {
		return e.Call(http.MethodPost, "/api/v1/plans/"+name+"/execute", "", headers...)
	})
	require.Equal(e.t, http.StatusAccepted, a.Status, "execute %s: %s", name, a.Body)
	var accepted struct {
		ID string `json:"id"`
	}
	require.NoError(e.t, json.Unmarshal(a.Body, &accepted))
	return accepted.ID
}

// Task reads a task.
func (e *Engine) Task(id string) plan.Task {
	e.t.Helper()
	task, err := e.tryTask(id)
	require.NoError(e.t, err)
	return task
}

func (e *Engine) tryTask(id string) (plan.Task, error) {
	var task plan.Task
	a, err := e.TryCall(http.MethodGet, "/api/v1/tasks/"+id, "")
	if err != nil {
		return task, err
	}
	if a.Status != http.StatusOK {
		return task, fmt.Errorf("task %s: %d %s", id, a.Status, a.Body)
	}
	return task, json.Unmarshal(a.Body, &task)
}

// WaitTask returns the task when it is in one of these states; for a final state, when its workflow has closed as well.
func (e *Engine) WaitTask(id string, states ...plan.TaskState) plan.Task {
	e.t.Helper()
	task := e.WaitTaskUntil(id, fmt.Sprintf("state %v", states), func(t plan.Task) bool {
		for _, s := range states {
			if t.State == s && (!s.Final() || t.FinishedAt != nil) {
				return true
			}
		}
		return false
	})
	if task.State.Final() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		_ = e.Workflows.GetWorkflow(ctx, plan.WorkflowID(id), "").Get(ctx, nil) // the task holds the outcome
		require.NoError(e.t, ctx.Err(), "task %s does not close", id)
	}
	return task
}

// WaitTaskUntil returns the task when is reports true. what describes that state in the failure message.
func (e *Engine) WaitTaskUntil(id, what string, is func(plan.Task) bool) plan.Task {
	e.t.Helper()
	var last plan.Task
	if !assert.Eventually(e.t, func() bool {
		task, err := e.tryTask(id)
		if err != nil {
			return false
		}
		last = task
		return is(task)
	}, Patience, Tick, "task %s never reached %s", id, what) {
		e.t.Fatalf("task %s last was %s: %s\n%+v", id, last.State, last.Reason, last.Services)
	}
	return last
}

// Verb sends a verb to a task.
func (e *Engine) Verb(id, verb, body string) Answer {
	e.t.Helper()
	if body == "" {
		body = "{}"
	}
	return e.Call(http.MethodPost, "/api/v1/tasks/"+id+"/"+verb, body)
}
