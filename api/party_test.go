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
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workload"
)

// fakeParty is the fake worker of a party: it restarts each workload at once, unless the test holds, fails or refuses
// it.
type fakeParty struct {
	mu      sync.Mutex
	gates   map[string]chan struct{}
	failing map[string]failure.Kind
	refused map[string]string
	warned  map[string]string
}

func newParty() *fakeParty {
	return &fakeParty{gates: map[string]chan struct{}{}, failing: map[string]failure.Kind{},
		refused: map[string]string{}, warned: map[string]string{}}
}

func (p *fakeParty) register(w worker.Worker) {
	w.RegisterActivityWithOptions(p.run, activity.RegisterOptions{Name: operation.ActivityRun})
	w.RegisterActivityWithOptions(p.restore, activity.RegisterOptions{Name: operation.ActivityRestore})
	w.RegisterActivityWithOptions(p.preflight, activity.RegisterOptions{Name: operation.ActivityPreflight})
	w.RegisterActivityWithOptions(p.diff, activity.RegisterOptions{Name: operation.ActivityDiff})
}

// hold keeps workloads from getting ready until open is called.
func (p *fakeParty) hold(names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		p.gates[name] = make(chan struct{})
	}
}

// open releases everything.
func (p *fakeParty) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, gate := range p.gates {
		close(gate)
		delete(p.gates, name)
	}
}

// fail makes operations on a workload fail; "" ends that.
func (p *fakeParty) fail(name string, kind failure.Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing[name] = kind
}

func (p *fakeParty) refuse(name, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused[name] = reason
}

func (p *fakeParty) warn(name, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warned[name] = reason
}

func (p *fakeParty) run(ctx context.Context, in operation.Request) (workload.Result, error) {
	name := in.Workload.WorkloadRef.Name
	p.mu.Lock()
	gate, kind := p.gates[name], p.failing[name]
	p.mu.Unlock()
	if kind != "" {
		return workload.Result{}, temporal.NewNonRetryableApplicationError(name+" cannot: "+string(kind),
			string(kind), nil, failure.Details{Holder: "rollout/default/shop/ended@run-1"})
	}
	if gate != nil {
		activity.RecordHeartbeat(ctx, workload.Progress{Message: name + ": 2 of 3 pods are ready"})
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		for open := true; open; {
			select {
			case <-gate:
				open = false
			case <-ticker.C:
				activity.RecordHeartbeat(ctx, workload.Progress{Message: name + ": 2 of 3 pods are ready"})
			case <-ctx.Done():
				return workload.Result{}, ctx.Err()
			}
		}
	}
	return workload.Result{Message: "restarted: 3 of 3 pods are ready", Changed: true,
		Change: revision.Change{FromRevision: "1", ToRevision: "2"}}, nil
}

func (p *fakeParty) restore(context.Context, operation.Request) (workload.Result, error) {
	return workload.Result{}, nil
}

func (p *fakeParty) preflight(_ context.Context, in operation.PreflightRequest) (operation.PreflightResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var result operation.PreflightResult
	for i, request := range in.Requests {
		if reason := p.refused[request.Workload.WorkloadRef.Name]; reason != "" {
			result.Refusals = append(result.Refusals, operation.Refusal{Index: i, Reason: reason})
		}
		if reason := p.warned[request.Workload.WorkloadRef.Name]; reason != "" {
			result.Warnings = append(result.Warnings, operation.Refusal{Index: i, Reason: reason})
		}
	}
	return result, nil
}

func (p *fakeParty) diff(_ context.Context, in operation.PreflightRequest) (operation.DiffResult, error) {
	var result operation.DiffResult
	for _, request := range in.Requests {
		result.Workloads = append(result.Workloads,
			operation.Diff{Changes: true, Summary: string(request.Operation) + " " +
				request.Workload.WorkloadRef.Name})
	}
	return result, nil
}

// faultyHome is an HTTP transport between the store and the home cluster. The test can make it fail at one point, as if
// the process had died there.
type faultyHome struct {
	mu     sync.Mutex
	broken map[string]bool
	// atRecord is called once, before the next record is written; nil: none.
	atRecord atomic.Pointer[func()]
	// watchMuted suppresses all further watch events of records.
	watchMuted atomic.Bool
}

func (b *faultyHome) breakAt(place string, broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil {
		b.broken = map[string]bool{}
	}
	b.broken[place] = broken
}

func (b *faultyHome) isBroken(place string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken[place]
}

// intercept panics before or after a plan is claimed, or before a record is written.
func (b *faultyHome) intercept(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		claims := request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/deployplans/")
		records := request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/releaserecords")
		if records {
			if do := b.atRecord.Swap(nil); do != nil {
				(*do)()
			}
		}
		if claims && b.isBroken("before the claim") || records && b.isBroken("before the record") {
			panic("the process died here")
		}
		answer, err := next.RoundTrip(request)
		if claims && b.isBroken("after the claim") {
			panic("the process died here")
		}
		if err == nil && request.URL.Query().Has("watch") && strings.HasSuffix(request.URL.Path, "/releaserecords") {
			answer.Body = &mutedWatch{ReadCloser: answer.Body, until: request.Context(), muted: &b.watchMuted}
		}
		return answer, err
	})
}

// mutedWatch is the body of a watch, which delivers nothing after muted is set.
type mutedWatch struct {
	io.ReadCloser
	until context.Context
	muted *atomic.Bool
}

func (m *mutedWatch) Read(into []byte) (int, error) {
	n, err := m.ReadCloser.Read(into)
	if m.muted.Load() {
		<-m.until.Done()
		return 0, m.until.Err()
	}
	return n, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
