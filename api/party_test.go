package api_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store"
)

// party plays a party's worker: each workload is restarted at once, unless the test holds it, fails it or refuses it.
type party struct {
	mu      sync.Mutex
	gates   map[string]chan struct{}
	failing map[string]failure.Kind
	refused map[string]string
}

func newParty() *party {
	return &party{gates: map[string]chan struct{}{}, failing: map[string]failure.Kind{}, refused: map[string]string{}}
}

func (p *party) register(w worker.Worker) {
	w.RegisterActivityWithOptions(p.run, activity.RegisterOptions{Name: workloadops.ActivityRun})
	w.RegisterActivityWithOptions(p.restore, activity.RegisterOptions{Name: workloadops.ActivityRestore})
	w.RegisterActivityWithOptions(p.preflight, activity.RegisterOptions{Name: workloadops.ActivityPreflight})
}

// hold keeps workloads from getting ready until open.
func (p *party) hold(names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		p.gates[name] = make(chan struct{})
	}
}

// open releases everything.
func (p *party) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, gate := range p.gates {
		close(gate)
		delete(p.gates, name)
	}
}

// fail makes the next operation on a workload end in that failure; "" takes it back.
func (p *party) fail(name string, kind failure.Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing[name] = kind
}

func (p *party) refuse(name, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused[name] = reason
}

func (p *party) run(ctx context.Context, in workloadops.Request) (workloadops.Result, error) {
	name := in.Workload.WorkloadRef.Name
	p.mu.Lock()
	gate, kind := p.gates[name], p.failing[name]
	p.mu.Unlock()
	if kind != "" {
		return workloadops.Result{}, temporal.NewNonRetryableApplicationError(name+" cannot: "+string(kind), string(kind), nil, failure.Details{})
	}
	if gate != nil {
		activity.RecordHeartbeat(ctx, workloadops.Progress{Message: name + ": 2 of 3 pods are ready"})
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for open := true; open; {
			select {
			case <-gate:
				open = false
			case <-ticker.C:
				activity.RecordHeartbeat(ctx, workloadops.Progress{Message: name + ": 2 of 3 pods are ready"})
			case <-ctx.Done():
				return workloadops.Result{}, ctx.Err()
			}
		}
	}
	return workloadops.Result{Message: "restarted: 3 of 3 pods are ready", Changed: true, FromRevision: "1", ToRevision: "2"}, nil
}

func (p *party) restore(context.Context, workloadops.Request) (workloadops.Result, error) {
	return workloadops.Result{}, nil
}

func (p *party) preflight(_ context.Context, in workloadops.PreflightRequest) (workloadops.PreflightResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var result workloadops.PreflightResult
	for i, request := range in.Requests {
		if reason := p.refused[request.Workload.WorkloadRef.Name]; reason != "" {
			result.Refusals = append(result.Refusals, workloadops.Refusal{Index: i, Reason: reason})
		}
	}
	return result, nil
}

// brokenHome is the real store, which the test can have fail at one place, as if the process had died there.
type brokenHome struct {
	*store.Store
	mu     sync.Mutex
	broken map[string]bool
}

var errDied = errors.New("the process died here")

func (b *brokenHome) breakAt(place string, broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil {
		b.broken = map[string]bool{}
	}
	b.broken[place] = broken
}

func (b *brokenHome) diesAt(place string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken[place]
}

// ClaimPlan dies before or after the claim.
func (b *brokenHome) ClaimPlan(ctx context.Context, name, resourceVersion, task string) error {
	if b.diesAt("before the claim") {
		return errDied
	}
	if err := b.Store.ClaimPlan(ctx, name, resourceVersion, task); err != nil {
		return err
	}
	if b.diesAt("after the claim") {
		return errDied
	}
	return nil
}

// CreateRecord dies before or after the record is written.
func (b *brokenHome) CreateRecord(ctx context.Context, record *v1alpha1.ReleaseRecord) error {
	if b.diesAt("before the record") {
		return errDied
	}
	return b.Store.CreateRecord(ctx, record)
}
