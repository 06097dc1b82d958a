package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// party plays a party's worker: each workload is restarted at once, unless the test holds it, fails it or refuses it.
type party struct {
	mu      sync.Mutex
	gates   map[string]chan struct{}
	failing map[string]failure.Kind
	refused map[string]string
	warned  map[string]string
}

func newParty() *party {
	return &party{gates: map[string]chan struct{}{}, failing: map[string]failure.Kind{}, refused: map[string]string{}, warned: map[string]string{}}
}

func (p *party) register(w worker.Worker) {
	w.RegisterActivityWithOptions(p.run, activity.RegisterOptions{Name: workloadops.ActivityRun})
	w.RegisterActivityWithOptions(p.restore, activity.RegisterOptions{Name: workloadops.ActivityRestore})
	w.RegisterActivityWithOptions(p.preflight, activity.RegisterOptions{Name: workloadops.ActivityPreflight})
	w.RegisterActivityWithOptions(p.diff, activity.RegisterOptions{Name: workloadops.ActivityDiff})
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

func (p *party) warn(name, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warned[name] = reason
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
		if reason := p.warned[request.Workload.WorkloadRef.Name]; reason != "" {
			result.Warnings = append(result.Warnings, workloadops.Refusal{Index: i, Reason: reason})
		}
	}
	return result, nil
}

func (p *party) diff(_ context.Context, in workloadops.PreflightRequest) (workloadops.DiffResult, error) {
	var result workloadops.DiffResult
	for _, request := range in.Requests {
		result.Workloads = append(result.Workloads, workloadops.Diff{Changes: true, Summary: string(request.Operation) + " " + request.Workload.WorkloadRef.Name})
	}
	return result, nil
}

// brokenHome stands between the store and the home cluster. The test can have it fail at one place, as if the process had died there.
type brokenHome struct {
	mu     sync.Mutex
	broken map[string]bool
	// atRecord is called once, before the next record is written; nil: nothing is.
	atRecord atomic.Pointer[func()]
	// deaf has no watch on records hear of anything any more.
	deaf atomic.Bool
}

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

// between dies before or after a plan is claimed, and before a record is written.
func (b *brokenHome) between(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		claims := request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/deployplans/")
		records := request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/releaserecords")
		if records {
			if do := b.atRecord.Swap(nil); do != nil {
				(*do)()
			}
		}
		if claims && b.diesAt("before the claim") || records && b.diesAt("before the record") {
			panic("the process died here")
		}
		answer, err := next.RoundTrip(request)
		if claims && b.diesAt("after the claim") {
			panic("the process died here")
		}
		if err == nil && request.URL.Query().Has("watch") && strings.HasSuffix(request.URL.Path, "/releaserecords") {
			answer.Body = &muffled{ReadCloser: answer.Body, until: request.Context(), deaf: &b.deaf}
		}
		return answer, err
	})
}

// muffled is the answer to a watch, of which nothing arrives any more once deaf is set.
type muffled struct {
	io.ReadCloser
	until context.Context
	deaf  *atomic.Bool
}

func (m *muffled) Read(into []byte) (int, error) {
	n, err := m.ReadCloser.Read(into)
	if m.deaf.Load() {
		<-m.until.Done()
		return 0, m.until.Err()
	}
	return n, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
