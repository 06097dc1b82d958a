package api_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/activities/leg"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/workflows"
)

// fakeRolloutParty is the fake worker of a party for rollouts: pods get ready at once, unless the test holds them.
type fakeRolloutParty struct {
	mu            sync.Mutex
	preflight     rollout.PreflightResult
	gate          chan struct{}
	rollbackCount int
	// failing is the kind of failure of the next move; "": none.
	failing failure.Kind
	// frozen means that a split was left on the workload.
	frozen bool
	// unknown means that no pod shows which version is stable; servedBy is the version by which it was claimed then.
	unknown  bool
	servedBy string
	// serves is the image that the workload declares, next the one being released. A template's digest is derived from
	// its image.
	serves, next string
}

const partySize = 4

func (p *fakeRolloutParty) register(w worker.Worker) {
	w.RegisterActivityWithOptions(p.check, activity.RegisterOptions{Name: rollout.ActivityPreflight})
	leg.New(legParty{p}, legParty{p}, leg.Options{}).Register(w)
}

// legParty adapts the party to the leg activity.
type legParty struct{ p *fakeRolloutParty }

func (l legParty) BeginMoving(ctx context.Context, in rollout.BeginRequest,
	_ func(rollout.BeginResult) *rollout.MoveRequest) (rollout.BeginResult, error) {
	return l.p.begin(ctx, in)
}

func (l legParty) Move(ctx context.Context, in rollout.MoveRequest) (rollout.MoveResult, error) {
	return l.p.move(ctx, in)
}

func (l legParty) ReportLeftOut(context.Context, rollout.Subject, []string) {}

func (l legParty) Route(ctx context.Context, in rollout.RouteRequest) (rollout.RouteResult, error) {
	return l.p.route(ctx, in)
}

func (l legParty) Finish(ctx context.Context, in rollout.FinishRequest) (rollout.MoveResult, error) {
	return l.p.finish(ctx, in)
}

// answers sets the result of all further preflights.
func (p *fakeRolloutParty) answers(result rollout.PreflightResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.preflight = result
}

// failOnce makes the next move of pods fail.
func (p *fakeRolloutParty) failOnce(kind failure.Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = kind
}

// hold keeps the pods of every move from getting ready until the returned function is called.
func (p *fakeRolloutParty) hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.gate = gate
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.gate = nil
		close(gate)
	})
}

func (p *fakeRolloutParty) rollbacks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rollbackCount
}

func (p *fakeRolloutParty) check(_ context.Context, in rollout.PreflightRequests) (results []rollout.PreflightResult,
	err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, req := range in.Rollouts {
		result := p.preflight
		if p.unknown && req.Served == nil {
			result = rollout.PreflightResult{StableUnknown: true,
				Refusals: []rollout.Refusal{{Field: "workloadRef", Reason: "no revision has a ready pod"}}}
		}
		if req.Change.Revision != nil && len(result.Refusals) == 0 {
			result.Template, result.Revision = digestOf(p.serves), req.Change.Revision
		}
		results = append(results, result)
	}
	return results, nil
}

func digestOf(image string) string { return "digest of " + image }

// edited simulates another client that changes the workload.
func (p *fakeRolloutParty) edited(image string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serves = image
}

func (p *fakeRolloutParty) begin(_ context.Context, in rollout.BeginRequest) (rollout.BeginResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in.Served != nil {
		p.servedBy = in.Served.Template
	}
	p.serves, p.next = cmp.Or(p.serves, "x:1"), in.Change.ImagesOf()["app"]
	if p.frozen {
		return rollout.BeginResult{Replicas: partySize, Stable: "old",
			Adopted: &rollout.Adopted{Style: strategy.StylePartition}, Message: "claimed, with a frozen split"}, nil
	}
	return rollout.BeginResult{Replicas: partySize, Stable: "old", StableHash: "old", Generation: 1, Message: "claimed",
		StableTemplate: digestOf(p.serves), StableImages: map[string]string{"app": p.serves}}, nil
}

func (p *fakeRolloutParty) move(ctx context.Context, in rollout.MoveRequest) (rollout.MoveResult, error) {
	p.mu.Lock()
	gate, kind := p.gate, p.failing
	p.failing = ""
	p.mu.Unlock()
	if kind != "" {
		return rollout.MoveResult{}, temporal.NewNonRetryableApplicationError("it fails: "+string(kind), string(kind),
			nil, failure.Details{})
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for waiting := gate != nil; waiting; {
		one := int32(1)
		activity.RecordHeartbeat(ctx, workload.Progress{Message: "1 of 2 new pods are ready", Updated: &one,
			UpdatedReady: &one})
		select {
		case <-gate:
			waiting = false
		case <-ticker.C:
		case <-ctx.Done():
			return rollout.MoveResult{}, ctx.Err()
		}
	}
	target, err := intstr.GetScaledValueFromIntOrPercent(&in.Replicas, partySize, true)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods(int32(target)), err
}

func (p *fakeRolloutParty) pods(updated int32) rollout.MoveResult {
	return rollout.MoveResult{Replicas: partySize, Target: updated, Updated: updated, UpdatedReady: updated,
		StableReady: partySize - updated,
		Canary:      "new", CanaryHash: "new", Template: digestOf(p.next), Images: map[string]string{"app": p.next},
		Generation: 2, Message: fmt.Sprintf("%d of %d new pods are ready", updated, updated)}
}

func (p *fakeRolloutParty) route(context.Context, rollout.RouteRequest) (rollout.RouteResult, error) {
	return rollout.RouteResult{Message: "the routes are as requested"}, nil
}

func (p *fakeRolloutParty) finish(_ context.Context, in rollout.FinishRequest) (rollout.MoveResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = in.Action == rollout.FinishFreeze
	if in.To == rollout.SideNew {
		p.serves = p.next
	}
	if in.To == rollout.SideStable && !p.frozen {
		p.rollbackCount++
	}
	return p.pods(partySize), nil
}

// registerRollout registers the Rollout workflow.
func registerRollout(w worker.Worker) {
	w.RegisterWorkflowWithOptions(workflows.Rollout, workflow.RegisterOptions{Name: workflows.TypeRollout})
}

// rolloutBody is a start with two steps; the first one waits for an approval.
func rolloutBody(image, extra string) string {
	return `{"namespace":"shop","workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"order"},"images":{"app":"` + image + `"},` + extra +
		`"strategy":{"canary":{"steps":[{"replicas":2,"pause":{}},{"replicas":"100%"}]}},"actor":"li","reason":"release 2"}`
}

const rolloutPath = "/api/v1/rollouts/shop/order"

func (e *engine) startRollout(image, extra string, headers ...string) schema.RolloutStarted {
	e.t.Helper()
	a := e.callAgain("POST", "/api/v1/rollouts", rolloutBody(image, extra),
		append(headers, jsonBody)...).is(http.StatusAccepted, "the rollout can be started")
	require.Equal(e.t, rolloutPath, a.header.Get("Location"))
	return decode[schema.RolloutStarted](a)
}

func (e *engine) rollout() rollout.Status {
	e.t.Helper()
	return decode[rollout.Status](e.call("GET", rolloutPath, "").is(http.StatusOK, "the rollout exists"))
}

// waitRollout waits until the rollout shop/order satisfies the condition.
func (e *engine) waitRollout(what string, is func(rollout.Status) bool) rollout.Status {
	e.t.Helper()
	var last rollout.Status
	require.Eventually(e.t, func() bool {
		last = e.rollout()
		return is(last)
	}, waitTimeout, pollInterval, "the rollout does not reach %s; it is %+v", what, &last)
	return last
}

func (e *engine) waitApproval() rollout.Status {
	e.t.Helper()
	return e.waitRollout("an approval", waitsFor(rollout.WaitApproval))
}

func waitsFor(kind rollout.WaitKind) func(rollout.Status) bool {
	return func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == kind }
}

// waitRecord waits until the release of that record has ended with a recorded outcome.
func (e *engine) waitRecord(record string, phase rollout.Phase) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		found, err := e.store.GetRelease(e.t.Context(), record)
		return err == nil && found.Outcome != nil && found.Outcome.State == string(phase)
	}, waitTimeout, pollInterval, "record %s does not reach %s", record, phase)
	e.waitRolloutClosed()
}

func (e *engine) waitRolloutClosed() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), waitTimeout)
	defer cancel()
	_ = e.temporal.GetWorkflow(ctx, "rollout/default/shop/order", "").Get(ctx, nil) // its outcome is in its record
	require.NoError(e.t, ctx.Err(), "the workflow closes")
}

func (e *engine) history() schema.RolloutHistory {
	e.t.Helper()
	return decode[schema.RolloutHistory](e.call("GET", rolloutPath+"/history", "").is(http.StatusOK,
		"it has a history"))
}

func newRolloutEngine(t *testing.T) *engine {
	t.Helper()
	return newEngine(t).startWorkers()
}
