package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// Rollout describes the rollout that a test starts.
type Rollout struct {
	Kind     Kind
	Name     string
	Strategy strategy.Strategy
	// Policy is sent unchanged.
	Policy map[string]any
	// Image is the new image of the container "app"; "" means NewImage.
	Image string
	// ExtraFields are further fields of the body.
	ExtraFields map[string]any
}

// NewestImage returns the image that the rollout releases.
func (r Rollout) NewestImage() string {
	if r.Image == "" {
		return NewImage(r.Name)
	}
	return r.Image
}

// Body returns the body of POST /api/v1/rollouts, with the strategy in the form of a source document (v1beta1).
func (r Rollout) Body(namespace string) map[string]any {
	body := map[string]any{"namespace": namespace, "name": r.Name, "workloadRef": r.Kind.Ref(r.Name),
		"strategy": document(r.Strategy),
		"images":   map[string]string{"app": r.NewestImage()}}
	if r.Policy != nil {
		body["policy"] = r.Policy
	}
	for field, value := range r.ExtraFields {
		body[field] = value
	}
	return body
}

func document(s strategy.Strategy) map[string]any {
	var steps, routings []any
	for _, step := range s.Steps {
		steps = append(steps, stepDocument(step))
	}
	for _, r := range s.Routings {
		routings = append(routings, routingDocument(r))
	}
	part := map[string]any{"steps": steps}
	if len(routings) > 0 {
		part["trafficRoutings"] = routings
	}
	if s.TrafficRoutingRef != "" {
		part["trafficRoutingRef"] = s.TrafficRoutingRef
	}
	if s.FailureThreshold != nil {
		part["failureThreshold"] = s.FailureThreshold
	}
	if s.PatchPodTemplateMetadata != nil {
		part["patchPodTemplateMetadata"] = s.PatchPodTemplateMetadata
	}
	if s.DisableGenerateCanaryService {
		part["disableGenerateCanaryService"] = true
	}
	out := map[string]any{}
	if s.Paused {
		out["paused"] = true
	}
	switch s.Style {
	case strategy.StyleBlueGreen:
		out["blueGreen"] = part
	case strategy.StyleCanary:
		part["enableExtraWorkloadForCanary"] = true
		out["canary"] = part
	default:
		out["canary"] = part
	}
	return out
}

func stepDocument(s strategy.Step) map[string]any {
	step := map[string]any{"replicas": s.Replicas}
	if s.Traffic != nil {
		step["traffic"] = fmt.Sprintf("%d%%", *s.Traffic)
	}
	if len(s.Matches) > 0 {
		step["matches"] = s.Matches
	}
	if s.RequestHeaderModifier != nil {
		step["requestHeaderModifier"] = s.RequestHeaderModifier
	}
	if s.PauseSeconds != nil {
		step["pause"] = map[string]any{"duration": *s.PauseSeconds}
	}
	return step
}

func routingDocument(r strategy.Routing) map[string]any {
	out := map[string]any{"service": r.Service, "gracePeriodSeconds": r.GraceSeconds}
	switch {
	case r.Ingress != nil:
		out["ingress"] = map[string]any{"classType": r.Ingress.Class, "name": r.Ingress.Name}
	case r.HTTPRoute != "":
		out["gateway"] = map[string]any{"httpRouteName": r.HTTPRoute}
	default:
		out["customNetworkRefs"] = r.Custom
	}
	return out
}

// Step returns a step that waits for approval. With traffic below 0 the step sets no traffic weight.
func Step(replicas string, traffic int32) strategy.Step {
	s := strategy.Step{Replicas: intstr.Parse(replicas)}
	if traffic >= 0 {
		s.Traffic = &traffic
	}
	return s
}

// TimedStep returns the step with a timed pause, after which the rollout continues without approval.
func TimedStep(s strategy.Step, pause time.Duration) strategy.Step {
	seconds := int64(pause / time.Second)
	s.PauseSeconds = &seconds
	return s
}

// TryStartRollout sends a request to start a rollout and returns the answer.
func (e *Engine) TryStartRollout(r Rollout) Answer {
	e.t.Helper()
	body, err := json.Marshal(r.Body(e.Apps))
	require.NoError(e.t, err)
	return e.Call(http.MethodPost, "/api/v1/rollouts", string(body))
}

// StartRollout starts a rollout; the engine must accept it.
func (e *Engine) StartRollout(r Rollout) {
	e.t.Helper()
	a := e.retryWhileUnavailable(func() Answer { return e.TryStartRollout(r) })
	require.Equal(e.t, http.StatusAccepted, a.Status, "start rollout %s: %s", r.Name, a.Body)
}

// retryWhileUnavailable repeats a request while the engine answers 503 (its worker was just killed or is starting), or
// 422 because a new workload has not settled.
func (e *Engine) retryWhileUnavailable(ask func() Answer) Answer {
	e.t.Helper()
	var a Answer
	require.Eventually(e.t, func() bool {
		a = ask()
		settling := a.Status == http.StatusUnprocessableEntity &&
			strings.Contains(string(a.Body), "then run this again")
		return a.Status != http.StatusServiceUnavailable && !settling
	}, Patience, 200*time.Millisecond, "the engine still answers 503 or reports an unsettled workload")
	return a
}

func (e *Engine) rolloutPath(name string) string { return "/api/v1/rollouts/" + e.Apps + "/" + name }

// Rollout reads the status of a rollout.
func (e *Engine) Rollout(name string) rollout.Status {
	e.t.Helper()
	a := e.Call(http.MethodGet, e.rolloutPath(name), "")
	require.Equal(e.t, http.StatusOK, a.Status, "rollout %s: %s", name, a.Body)
	var status rollout.Status
	require.NoError(e.t, json.Unmarshal(a.Body, &status))
	return status
}

// RolloutVerb sends a verb; body is JSON, "" for an empty one.
func (e *Engine) RolloutVerb(name, verb, body string) Answer {
	e.t.Helper()
	if body == "" {
		body = "{}"
	}
	return e.Call(http.MethodPost, e.rolloutPath(name)+"/"+verb, body)
}

// MustVerb sends a verb that must be accepted. A request whose outcome is unknown is repeated with the same key.
func (e *Engine) MustVerb(name, verb, body string) rollout.Status {
	e.t.Helper()
	fields := map[string]any{}
	if body != "" {
		require.NoError(e.t, json.Unmarshal([]byte(body), &fields))
	}
	if fields["key"] == nil {
		fields["key"] = uuid.NewString()
	}
	keyed, err := json.Marshal(fields)
	require.NoError(e.t, err)
	a := e.retryWhileUnavailable(func() Answer { return e.RolloutVerb(name, verb, string(keyed)) })
	require.Equal(e.t, http.StatusOK, a.Status, "%s %s: %s", verb, name, a.Body)
	var status rollout.Status
	require.NoError(e.t, json.Unmarshal(a.Body, &status), "%s", a.Body)
	return status
}

// Undo releases the previous version again, or the one that body names.
func (e *Engine) Undo(name, body string) rollout.Status {
	e.t.Helper()
	a := e.retryWhileUnavailable(func() Answer { return e.RolloutVerb(name, "undo", body) })
	require.Equal(e.t, http.StatusAccepted, a.Status, "undo %s: %s", name, a.Body)
	var status rollout.Status
	require.NoError(e.t, json.Unmarshal(a.Body, &status), "%s", a.Body)
	return status
}

// Approve approves the waiting step with its gate.
func (e *Engine) Approve(name string, at rollout.Status) rollout.Status {
	e.t.Helper()
	require.NotNil(e.t, at.WaitingFor, "rollout %s waits for nothing: %s", name, at.Reason)
	return e.MustVerb(name, "approve", fmt.Sprintf(`{"actor":"ann","reason":"looks good","step":%d,"gate":%q}`,
		at.CurrentStepIndex, at.WaitingFor.Gate))
}

// WaitRollout follows a rollout's events and returns the first status for which is reports true. what describes that
// status in the failure message.
func (e *Engine) WaitRollout(name, what string, is func(rollout.Status) bool) rollout.Status {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var last rollout.Status
	var trouble error
	for ctx.Err() == nil {
		found, err := e.followRollout(ctx, name, &last, is)
		if found {
			return last
		}
		trouble = err
		select { // the server may be unreachable, or may have closed the stream
		case <-time.After(Tick):
		case <-ctx.Done():
		}
	}
	shown, _ := json.MarshalIndent(last, "", " ")
	e.t.Fatalf("rollout %s never reached %s (%v); it last was %s, step %d, %s: %s\n%s", name, what, trouble, last.Phase,
		last.CurrentStepIndex, last.CurrentStepState, last.Reason, shown)
	return last
}

func (e *Engine) followRollout(ctx context.Context, name string, last *rollout.Status,
	is func(rollout.Status) bool) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+e.rolloutPath(name)+"/events", nil)
	if err != nil {
		return false, err
	}
	e.authorize(request)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("events of rollout %s: %s", name, response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 4<<20)
	event := ""
	for lines.Scan() {
		if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = kind
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || event != "state" {
			continue
		}
		var status rollout.Status
		if err := json.Unmarshal([]byte(data), &status); err != nil {
			return false, err
		}
		if *last = status; is(status) {
			return true, nil
		}
	}
	return false, lines.Err()
}

// WaitForApproval returns when a rollout waits for approval at a step. The test fails if the rollout has failed or
// ended.
func (e *Engine) WaitForApproval(name string, step int) rollout.Status {
	e.t.Helper()
	status := e.WaitRollout(name, fmt.Sprintf("approval of step %d", step), func(s rollout.Status) bool {
		waiting := s.CurrentStepIndex == step && s.CurrentStepState == rollout.StatePaused && s.WaitingFor != nil &&
			s.WaitingFor.Kind == rollout.WaitApproval
		return waiting || s.Phase == rollout.PhaseFailed || s.Phase.Final()
	})
	require.Equal(e.t, rollout.PhaseProgressing, status.Phase, "rollout %s on its way to step %d: %s", name, step,
		status.Reason)
	return status
}

// WaitPhase returns the rollout when it is in that phase; for a final phase, when its workflow has closed as well. The
// test fails on any other final phase.
func (e *Engine) WaitPhase(name string, phase rollout.Phase) rollout.Status {
	e.t.Helper()
	status := e.WaitRollout(name, "phase "+string(phase), func(s rollout.Status) bool {
		return s.Phase == phase || s.Phase.Final()
	})
	require.Equal(e.t, phase, status.Phase, "rollout %s: %s", name, status.Reason)
	if phase.Final() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		_ = e.Workflows.GetWorkflow(ctx, e.RolloutID(name), "").Get(ctx, nil) // the status holds the outcome
		require.NoError(e.t, ctx.Err(), "rollout %s does not close", name)
	}
	return status
}

// RolloutID returns the ID of a rollout's workflow.
func (e *Engine) RolloutID(name string) string { return rollout.WorkflowID("", e.Apps, name) }

// Events returns the number of events in the history of a workflow.
func (e *Engine) Events(workflowID string) int {
	e.t.Helper()
	return len(e.History(workflowID))
}

// History returns the events of a workflow's newest run.
func (e *Engine) History(workflowID string) []*historypb.HistoryEvent {
	e.t.Helper()
	return historyOf(e.t, e.Workflows, &commonpb.WorkflowExecution{WorkflowId: workflowID})
}
