package operation_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

const (
	ourClaim = "task/t1/1-order@run-1"
	marker   = "t1/1"
)

func request(kind string, op plan.Operation, method plan.Method) operation.Request {
	var code *source.Package
	if op == plan.HTTPUploadDeploy {
		code = &source.Package{SHA256: "0123456789abcdef", Bytes: 2048}
	}
	return operation.Request{
		Package: code, Claim: ourClaim, Marker: marker, Operation: op, Method: method, DeadlineSeconds: 600,
		UnreachableBudgetSeconds: 120,
		Workload: catalog.Workload{Namespace: "shop",
			WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: kind, Name: "order"}},
	}
}

// TestMain makes the property tests run 5000 cases instead of rapid's 100, unless the flag rapid.checks is set.
func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if !set {
		if err := flag.Set("rapid.checks", "5000"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// drawToy returns a random workload with random pods and settings.
func drawToy(t *rapid.T, kind string, replicas int32) *toyWorkload {
	w := newToy(kind, replicas)
	w.ordered = kind == operation.KindStatefulSet && rapid.Bool().Draw(t, "keeps its order")
	w.countsTerminating = kind == operation.KindDeployment && rapid.Bool().Draw(t, "status counts terminating pods")
	amount := rapid.SampledFrom([]string{`1`, `2`, `"25%"`})
	zero := rapid.SampledFrom([]string{`0`, `1`, `"25%"`})
	set := func(path, value string) { w.spec.settings[path] = json.RawMessage(value) }
	switch kind {
	case operation.KindDeployment:
		w.spec.updateType = rapid.SampledFrom([]string{workload.UpdateRolling, workload.UpdateRolling,
			workload.UpdateRecreate}).Draw(t, "type")
		set(workload.PathDeploymentUnavailable, amount.Draw(t, "maxUnavailable"))
		set(workload.PathDeploymentSurge, zero.Draw(t, "maxSurge"))
	case operation.KindStatefulSet:
		w.spec.updateType = rapid.SampledFrom([]string{workload.UpdateRolling, workload.UpdateOnDelete}).Draw(t,
			"type")
		set(workload.PathUpdateStrategy, `{"type":"`+w.spec.updateType+`"}`)
	default:
		w.spec.updateType = rapid.SampledFrom([]string{workload.UpdateRolling, workload.UpdateOnDelete}).Draw(t,
			"type")
		set(workload.PathUpdateUnavailable, amount.Draw(t, "maxUnavailable"))
		set(workload.PathUpdateSurge, `0`)
	}
	w.settle()
	for _, p := range w.pods {
		p.ready = !rapid.Bool().Draw(t, "not ready") || rapid.Bool().Draw(t, "after all ready")
	}
	w.report()
	return w
}

// runner drives one operation like the activity does, and can be killed at any point.
type runner struct {
	req      operation.Request
	w        *toyWorkload
	held     bool
	ending   *workload.Ending
	withPods bool
	result   *workload.Result
	failure  string
	// ghost is a decision of an abandoned attempt that still runs.
	ghost        *workload.NextAction
	ghostVersion int
	// sizeBefore is the size when it began.
	sizeBefore int32
}

// step reads the workload once and carries out the decision. die reports whether the process is killed at that point.
func (r *runner) step(die func(where string) bool) {
	r.w.request = r.req
	seen := r.w.look(r.withPods)
	seen.Held, seen.Ending = r.held, r.ending
	version := r.w.version
	r.held = r.held || seen.Claim == r.req.Claim
	r.withPods = false
	d := operation.Decide(r.req, seen)
	if end, ends := d.Ending(); ends && d.Action == workload.ActWrite {
		r.ending = &end
	}
	if die("after the decision") {
		r.ghost, r.ghostVersion = &d, version
		r.forget()
		return
	}
	done := r.apply(d, version)
	if die("after the change") {
		r.forget()
		return
	}
	switch {
	case d.Action == workload.ActReadPods:
		r.withPods = true
	case !done:
	case d.Result != nil:
		r.result = d.Result
	case d.Failure != nil:
		r.failure = d.Failure.Message
	}
}

// forget resets what a killed process loses: it no longer knows that it held the claim.
func (r *runner) forget() { r.held, r.withPods = false, false }

func (r *runner) apply(d workload.NextAction, version int) bool {
	switch d.Action {
	case workload.ActWrite:
		return r.w.write(d.Write, version)
	case workload.ActDelete:
		for _, want := range d.Delete {
			for _, p := range r.w.pods {
				if fmt.Sprint(p.uid) == want.UID && fmt.Sprint(p.version) == want.Version {
					r.w.delete(p)
				}
			}
		}
	}
	return true
}

// Operations run in a toy cluster whose parts act in any order; the process is killed at any point, and late decisions
// of killed attempts still take effect. After every single move the size, the settings and the number of unavailable
// pods are as specified.
func TestOperation_KeepsItsInvariants_AfterAnyCrash(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{operation.KindDeployment, operation.KindStatefulSet,
			operation.KindDaemonSet}).Draw(t, "kind")
		operations := []plan.Operation{plan.Restart, plan.HTTPUploadDeploy, plan.Restore}
		if kind != operation.KindDaemonSet {
			operations = append(operations, plan.Start, plan.Stop)
		}
		op := rapid.SampledFrom(operations).Draw(t, "operation")
		method := rapid.SampledFrom([]plan.Method{plan.Parallel, plan.Sequential}).Draw(t, "method")
		replicas := int32(rapid.IntRange(1, 5).Draw(t, "replicas"))
		req := request(kind, op, method)
		if op == plan.Start && rapid.Bool().Draw(t, "stopped") {
			catalogued := replicas
			req.Workload.Replicas, replicas = &catalogued, 0
		}
		if op == plan.Restore {
			drawRestoration(t, &req, &replicas)
		}
		w := drawToy(t, kind, replicas)
		if op == plan.Restart || op == plan.HTTPUploadDeploy || op == plan.Restore && req.Restore.Replicas == nil {
			w.restarting, w.before = true, w.lastUID
		}
		checkRun(t, &runner{req: req, w: w})
	})
}

// drawRestoration draws what is restored: a template, a size, or both. The current size may be 0.
func drawRestoration(t *rapid.T, req *operation.Request, replicas *int32) {
	r := &plan.Restoration{Task: "t0"}
	sized := req.Workload.WorkloadRef.Kind != operation.KindDaemonSet
	if sized && rapid.Bool().Draw(t, "sized") {
		*replicas = int32(rapid.IntRange(0, 5).Draw(t, "size now"))
		r.Replicas, r.SizeAfter = n(int32(rapid.IntRange(0, 5).Draw(t, "size before"))), n(*replicas)
	}
	if r.Replicas == nil || rapid.Bool().Draw(t, "with a template") {
		r.Template = &revision.Revision{Template: "before#"}
	}
	req.Restore = r
}

func checkRun(t *rapid.T, r *runner) {
	w, before := r.w, r.w.specText()
	first, replicas := w.lastUID, w.spec.replicas
	r.sizeBefore = replicas
	allowed := max(1, w.out())
	if restore := r.req.Restore; restore != nil && restore.Replicas != nil {
		allowed = max(allowed, 2) // the pod that starts, and one that was unavailable before
	}
	sequential := r.req.Method == plan.Sequential && w.spec.updateType != workload.UpdateRecreate
	kills := 0
	die := func(where string) bool {
		if kills >= 6 || rapid.IntRange(0, 9).Draw(t, where) > 0 {
			return false
		}
		kills++
		return true
	}
	for moves := 0; r.result == nil; moves++ {
		if moves > 2000 {
			t.Fatalf("it does not end: %+v", w.look(true))
		}
		switch m := rapid.IntRange(0, 9).Draw(t, "move"); {
		case m < 4:
			r.step(die)
		case m < 6:
			w.sync()
		case m == 6 && r.ghost != nil:
			r.apply(*r.ghost, r.ghostVersion)
			r.ghost = nil
		default:
			w.kubelet(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pod") })
		}
		if r.failure != "" {
			t.Fatalf("it failed: %s", r.failure)
		}
		if sequential && w.out() > allowed {
			t.Fatalf("%d pods are out, only %d may be", w.out(), allowed)
		}
		if len(w.deletedNew) > 0 {
			t.Fatalf("restarted twice: %v", w.deletedNew)
		}
	}
	checkEnd(t, r, before, first, replicas)
}

func checkEnd(t *rapid.T, r *runner, before string, first int, replicas int32) {
	w := r.w
	for _, name := range []string{workload.AnnotationClaimedBy, workload.AnnotationOriginal,
		workload.AnnotationLeftAt} {
		if _, there := w.annotations[name]; there {
			t.Fatalf("annotation %s is left", name)
		}
	}
	if w.labelled {
		t.Fatal("the label is left")
	}
	switch r.req.Operation {
	case plan.Start:
		replicas = max(replicas, w.spec.replicas)
		if w.ready() != replicas || r.req.Workload.Replicas != nil && replicas != *r.req.Workload.Replicas {
			t.Fatalf("started with %d ready pods of %d", w.ready(), replicas)
		}
	case plan.Stop:
		if len(w.pods) != 0 || w.annotations[workload.AnnotationReplicas] != fmt.Sprint(replicas) {
			t.Fatalf("stopped with %d pods, remembering %q of %d", len(w.pods),
				w.annotations[workload.AnnotationReplicas], replicas)
		}
	case plan.Restart, plan.HTTPUploadDeploy:
		for _, p := range w.pods {
			if p.uid <= first {
				t.Fatalf("pod %s was not restarted", p.name)
			}
		}
		if w.ready() != replicas {
			t.Fatalf("restarted with %d ready pods of %d", w.ready(), replicas)
		}
	}
	if restore := r.req.Restore; restore != nil {
		replicas = checkRestored(t, r, first, replicas)
	}
	w.spec.marker = ""
	now := w.spec.replicas
	w.spec.replicas = replicas
	if r.req.Operation == plan.Start && r.req.Workload.Replicas != nil {
		w.spec.replicas = 0
	}
	if r.req.Operation == plan.Restore {
		w.spec.replicas = r.sizeBefore
	}
	if after := w.specText(); after != before {
		t.Fatalf("its settings were %s and are %s", before, after)
	}
	w.spec.replicas = now
}

// checkRestored checks the outcome of a RESTORE and returns the expected number of pods.
func checkRestored(t *rapid.T, r *runner, first int, replicas int32) int32 {
	w, restore := r.w, r.req.Restore
	if restore.Replicas != nil {
		replicas = *restore.Replicas
	}
	if w.spec.replicas != replicas || w.ready() != replicas || len(w.pods) != int(replicas) {
		t.Fatalf("restored with %d ready pods of %d, %d should be: %+v", w.ready(), w.spec.replicas, replicas, w.pods)
	}
	if restore.Template == nil {
		return replicas
	}
	if w.spec.marker != restore.Template.Template {
		t.Fatalf("its template is %s", w.spec.marker)
	}
	for _, p := range w.pods {
		if p.marker != restore.Template.Template {
			t.Fatalf("pod %s is of %s", p.name, p.marker)
		}
	}
	if r.result.After == nil || r.result.After.Template != restore.Template.Template || r.result.Before == nil ||
		r.result.Before.Template != "" {
		t.Fatalf("the record says %+v to %+v", r.result.Before, r.result.After)
	}
	return replicas
}
