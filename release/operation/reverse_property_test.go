package operation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
)

// shop is a catalogue whose workloads run in toy clusters.
type shop struct {
	services  map[plan.ServiceID]catalog.Service
	workloads map[string]*toyWorkload
	names     []string
	// scaled are the workloads whose size an autoscaler has changed.
	scaled map[string]bool
	tasks  int
}

func drawShop(t *rapid.T) *shop {
	s := &shop{services: map[plan.ServiceID]catalog.Service{}, workloads: map[string]*toyWorkload{},
		scaled: map[string]bool{}}
	for i := range rapid.IntRange(1, 3).Draw(t, "services") {
		var service catalog.Service
		service.Package = &catalog.Package{Container: "app", MountPath: "/app"}
		kinds := []string{operation.KindDeployment, operation.KindStatefulSet}
		if i == 0 {
			kinds = append(kinds, operation.KindDaemonSet)
		}
		for k := range rapid.IntRange(1, 2).Draw(t, "workloads") {
			kind := rapid.SampledFrom(kinds).Draw(t, "kind")
			name := fmt.Sprintf("w%d-%d", i, k)
			size := int32(rapid.IntRange(0, 3).Draw(t, "size"))
			if kind == operation.KindDaemonSet {
				size = 2
			}
			w := drawToy(t, kind, size)
			w.spec.marker = "v0#"
			for _, p := range w.pods {
				p.marker, p.ready = w.spec.marker, true
			}
			w.report()
			w.refresh()
			s.workloads[name], s.names = w, append(s.names, name)
			service.Workloads = append(service.Workloads, catalog.Workload{Namespace: "shop", Replicas: n(3),
				WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: kind, Name: name}})
		}
		s.services[plan.ServiceID(fmt.Sprint(i))] = service
	}
	return s
}

// drawPlan draws items with all kinds of operations; a service may occur twice, in two waves.
func (s *shop) drawPlan(t *rapid.T) plan.Document {
	var d plan.Document
	taken := map[string]bool{}
	for range rapid.IntRange(1, 6).Draw(t, "items") {
		id := plan.ServiceID(fmt.Sprint(rapid.IntRange(0, len(s.services)-1).Draw(t, "service")))
		item := plan.Item{ServiceID: id, Priority: int64(rapid.IntRange(0, 2).Draw(t, "priority")),
			HTTPSrcURI:          "http://web.test/app.zip",
			ContainerExecMethod: rapid.SampledFrom([]plan.Method{plan.Parallel, plan.Sequential}).Draw(t, "method")}
		operations := []plan.Operation{plan.Restart, plan.HTTPUploadDeploy}
		if !hasDaemonSet(s.services[id]) {
			operations = append(operations, plan.Start, plan.Stop)
		}
		item.Deployment = rapid.SampledFrom(operations).Draw(t, "deployment")
		if place := fmt.Sprint(id, "/", item.Priority); !taken[place] {
			taken[place] = true
			d.Items = append(d.Items, item)
		}
	}
	return d
}

func hasDaemonSet(service catalog.Service) bool {
	for _, w := range service.Workloads {
		if !w.WorkloadRef.Sized() {
			return true
		}
	}
	return false
}

// execute runs a plan to its end, like a task does, and returns the task as it is recorded.
func (s *shop) execute(t *rapid.T, d plan.Document, records ...plan.Task) plan.Task {
	s.tasks++
	task := plan.Task{ID: fmt.Sprintf("t%d", s.tasks), Plan: "shop", State: plan.TaskSucceeded,
		Services: make([]plan.ServiceStatus, len(d.Items))}
	recorded := map[string]plan.Recorded{}
	for _, r := range records {
		recorded[r.ID] = plan.Recorded{Task: r}
	}
	restorations, wrong := plan.ResolveRestorations(d, s.services, recorded)
	for _, w := range wrong {
		if !strings.Contains(w.Reason, "has changed nothing") { // another item may have undone the change
			t.Fatalf("the plan is refused: %v", wrong)
		}
	}
	snap := plan.Snapshot{Task: task.ID, Document: d, Services: s.services, Restorations: restorations}
	for _, wave := range d.Waves() {
		for _, i := range wave.Items {
			item := d.Items[i]
			task.Services[i] = plan.ServiceStatus{ServiceID: item.ServiceID, Priority: item.Priority,
				Deployment: item.Deployment, State: plan.ItemSucceeded}
			for _, req := range operation.Requests(snap, i) {
				req.Claim, req.Marker = fmt.Sprintf("task/%s/%d@run", task.ID, i), fmt.Sprintf("%s/%d", task.ID, i)
				task.Services[i].Workloads = append(task.Services[i].Workloads, s.run(t, req))
			}
		}
	}
	return task
}

// run carries out a request on one workload.
func (s *shop) run(t *rapid.T, req operation.Request) plan.WorkloadStatus {
	ref := req.Workload.WorkloadRef
	w := s.workloads[ref.Name]
	w.restarting = false
	r := &runner{req: req, w: w}
	for turns := 0; r.result == nil; turns++ {
		if turns > 500 || r.failure != "" {
			t.Fatalf("%s %s does not end (%s): %+v", req.Operation, ref.Name, r.failure, w.look(true))
		}
		r.step(func(string) bool { return false })
		w.sync()
		for i := range len(w.pods) {
			w.kubelet(func(n int) int { return i % n })
		}
	}
	result := r.result
	return plan.WorkloadStatus{Party: "default", Namespace: "shop", Kind: ref.Kind, Name: ref.Name,
		State: plan.ItemSucceeded, Changed: result.Changed, Change: result.Change}
}

// autoscale changes the sizes of some workloads that have pods.
func (s *shop) autoscale(t *rapid.T) {
	for _, name := range s.names {
		w := s.workloads[name]
		if w.kind == operation.KindDaemonSet || w.spec.replicas == 0 || rapid.IntRange(0, 3).Draw(t, "scaled") > 0 {
			continue
		}
		s.scaled[name] = true
		w.spec.replicas = int32(rapid.IntRange(1, 4).Draw(t, "scaled to"))
		w.generation++
		for range 20 {
			w.sync()
			for i := range len(w.pods) {
				w.kubelet(func(n int) int { return i % n })
			}
		}
	}
}

// specs returns the specs in a comparable form, without restart stamps.
func (s *shop) specs() map[string]toySpec {
	specs := map[string]toySpec{}
	for name, w := range s.workloads {
		spec := w.spec
		spec.marker, spec.settings = versionIn(spec.marker),
			map[string]json.RawMessage{"all": json.RawMessage(fmt.Sprint(w.spec.settings))}
		specs[name] = spec
	}
	return specs
}

// reverse returns the reverse plan from a task's report; false if there is nothing to reverse.
func reverse(t *rapid.T, task plan.Task, d plan.Document) (plan.Document, bool) {
	report := plan.NewReport(task, plan.Snapshot{Document: d})
	if report.Reverse.Document == nil {
		return plan.Document{}, false
	}
	if _, wrong := report.Reverse.Document.Validate(); len(wrong) > 0 {
		t.Fatalf("the reverse is no plan: %v", wrong)
	}
	back := *report.Reverse.Document
	if rapid.Bool().Draw(t, "service by service") {
		back = byService(back)
	}
	return back, true
}

// byService returns a plan that reverses all items of a service at once.
func byService(d plan.Document) plan.Document {
	seen := map[plan.ServiceID]bool{}
	var all plan.Document
	for _, item := range d.Items {
		if !seen[item.ServiceID] {
			seen[item.ServiceID], item.RestoreItem = true, 0
			all.Items = append(all.Items, item)
		}
	}
	return all
}

// Random plans, their reverses and the reverses of those are executed. After the reverse every spec is as before the
// plan, after the second reverse as after the plan, except for the stamps of restarts and for sizes that an autoscaler
// set.
func TestReverse_RestoresBothWays_ForRandomPlans(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawShop(t)
		autoscaled := rapid.Bool().Draw(t, "autoscaled")
		before := s.specs()
		d := s.drawPlan(t)
		task := s.execute(t, d)
		after := s.specs()
		if autoscaled {
			s.autoscale(t)
		}
		back, some := reverse(t, task, d)
		if !some {
			s.require(t, before, "a plan without a reverse changed something")
			return
		}
		reversed := s.execute(t, back, task)
		s.require(t, before, "the reverse does not restore")
		if autoscaled {
			s.autoscale(t)
		}
		forth, some := reverse(t, reversed, back)
		if !some {
			s.require(t, after, "a reverse without a reverse changed something")
			return
		}
		s.execute(t, forth, reversed)
		s.require(t, after, "the reverse of the reverse does not restore")
	})
}

func (s *shop) require(t *rapid.T, want map[string]toySpec, reason string) {
	now := s.specs()
	for name, spec := range want {
		got := now[name]
		if s.scaled[name] && spec.replicas > 0 && got.replicas > 0 {
			got.replicas = spec.replicas
		}
		if fmt.Sprint(got) != fmt.Sprint(spec) {
			t.Fatalf("%s: %s is %+v and should be %+v", reason, name, got, spec)
		}
	}
}
