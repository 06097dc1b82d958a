package pods_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// run drives one rollout in a toy cluster whose parts move in any order; the process is killed at any point, and killed
// attempts write late.
type run struct {
	t      *rapid.T
	w      *toy
	tech   pods.Technique
	style  strategy.Style
	floor  int32
	excess int32
	// ghost is a decision of an attempt that was abandoned but still runs.
	ghost           *pods.NextAction
	ghostGeneration int64
}

// anyInPlace is a Deployment of any size (at least this many pods) and any limits that is released in place, with the
// strategy of its manifest.
func anyInPlace(t *rapid.T, least int) (r *run, manifest string) {
	size := int32(rapid.IntRange(least, 9).Draw(t, "size"))
	own := min(int32(rapid.IntRange(0, 3).Draw(t, "maxUnavailable")), size)
	surge := int32(rapid.IntRange(0, 3).Draw(t, "maxSurge"))
	if own == 0 && surge == 0 {
		surge = 1
	}
	manifest = fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%d,"maxUnavailable":%d}}`, surge, own)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	return &run{t: t, w: newToy(size, manifest), tech: tech, style: strategy.StylePartition, floor: size - own,
		excess: surge}, manifest
}

// until lets the cluster move until the activity ends.
func (r *run) until(what string, decide func(pods.Observed) pods.NextAction) pods.NextAction {
	for moves := 0; ; moves++ {
		if moves > 3000 {
			r.t.Fatalf("%s does not end: %+v", what, r.w.observe())
		}
		switch m := rapid.IntRange(0, 9).Draw(r.t, "move"); {
		case m < 3:
			if d, ended := r.step(what, decide); ended {
				return d
			}
		case m < 5:
			r.sync()
		case m < 8:
			s := r.w.sets[rapid.IntRange(0, len(r.w.sets)-1).Draw(r.t, "set")]
			s.settle()
			r.w.report()
		case m == 8 && r.ghost != nil:
			if r.ghost.Write != nil {
				r.w.write(r.ghost.Write, r.ghostGeneration)
			}
			r.ghost = nil
		default:
			r.kubelet()
		}
		r.check(what)
	}
}

// sync is a pass of the Deployment's controller, which has the current state of some ReplicaSets and a stale one of
// others.
func (r *run) sync() {
	for _, s := range r.w.sets {
		if rapid.Bool().Draw(r.t, "heard") {
			s.hear()
		}
	}
	r.w.sync()
}

func (r *run) step(what string, decide func(pods.Observed) pods.NextAction) (pods.NextAction, bool) {
	seen := r.w.observe()
	d := decide(seen)
	if d.Reason == "" {
		r.t.Fatalf("%s: a decision without a reason: %+v", what, d)
	}
	if rapid.IntRange(0, 9).Draw(r.t, "killed") == 0 {
		r.ghost, r.ghostGeneration = &d, seen.Generation
		return d, false
	}
	for range rapid.IntRange(0, 2).Draw(r.t, "meanwhile") { // the cluster moves during the decision
		r.world()
	}
	switch d.Action {
	case workload.ActWrite:
		done := r.w.write(d.Write, seen.Generation)
		return d, done && d.Ends
	case workload.ActFail:
		r.t.Fatalf("%s failed: %s", what, d.Reason)
	case workload.ActDone:
		return d, true
	}
	return d, false
}

// kubelet makes a pod ready.
func (r *run) kubelet() {
	s := r.w.sets[rapid.IntRange(0, len(r.w.sets)-1).Draw(r.t, "set")]
	for i, ready := range s.pods {
		if !ready && s.template != hungTemplate {
			s.pods[i] = true
			break
		}
	}
	if rapid.Bool().Draw(r.t, "status follows") {
		s.report()
		r.w.report()
	}
}

func (r *run) check(what string) {
	ready, asked := int32(0), int32(0)
	for _, s := range r.w.sets {
		for _, p := range s.pods {
			if p {
				ready++
			}
		}
		asked += s.asked
	}
	if ready < r.floor {
		r.t.Fatalf("%s: %d pods are ready, its own limits require %d: %+v", what, ready, r.floor, r.w.observe())
	}
	if asked > r.w.replicas+r.excess {
		r.t.Fatalf("%s: %d pods are desired, its own limits allow %d", what, asked, r.w.replicas+r.excess)
	}
}

// quiet lets the cluster move without the rollout until nothing changes any more.
func (r *run) quiet(what string) {
	for range 40 {
		r.w.hear()
		r.w.sync()
		for _, s := range r.w.sets {
			s.settle()
			for i := range s.pods {
				s.pods[i] = s.template != hungTemplate
			}
			s.report()
		}
		r.w.report()
		r.check(what)
	}
}

// begin takes the claim, alone or with the first Move.
func (r *run) begin(first *rollout.MoveRequest) {
	d := r.until("begin", func(seen pods.Observed) pods.NextAction {
		return pods.BeginWithMove(r.tech, rollout.BeginRequest{Subject: subject(),
			Strategy: strategy.Strategy{Style: r.style}}, seen,
			func(rollout.BeginResult) *rollout.MoveRequest { return first })
	})
	if d.Begun == nil || d.Begun.Adopted != nil || d.Begun.Stable != stableTemplate {
		r.t.Fatalf("begun with %+v", d.Begun)
	}
	if placed := r.w.template != stableTemplate; d.Begun.TemplateWritten != placed {
		r.t.Fatalf("Begun.Placed is %t, but the new template is placed: %t", d.Begun.TemplateWritten, placed)
	}
}

// anyFirst is the Move of a first step, with a foreseen digest or without; nil if the next action is unknown.
func (r *run) anyFirst(replicas intstr.IntOrString, native bool) *rollout.MoveRequest {
	first := &rollout.MoveRequest{Subject: subject(), Step: 1, Style: r.style, Replicas: replicas, Settle: !native,
		Native: native}
	switch rapid.SampledFrom([]string{"foreseen", "unforeseen", "unknown"}).Draw(r.t, "first") {
	case "foreseen":
		first.Predicted = &rollout.PredictedTemplate{From: stableTemplate, Template: newTemplate}
	case "unknown":
		return nil
	}
	return first
}

func (r *run) move(step int, replicas intstr.IntOrString, back bool, from int32) rollout.MoveResult {
	what := fmt.Sprintf("step %d to %s (back %t of %d)", step, replicas.String(), back, from)
	d := r.until(what, func(seen pods.Observed) pods.NextAction {
		req := rollout.MoveRequest{Subject: subject(), Step: step, Style: r.style, Replicas: replicas, Settle: true,
			Back: back, From: from}
		if step > 1 {
			req.Template = newTemplate
			seen.Expected = ""
		}
		return pods.Move(r.tech, req, seen)
	})
	r.quiet(what + ", paused")
	return d.Numbers
}

// TestRolloutKeepsLimits_InAnyOrderOfSteps moves a toy Deployment through random steps in both styles, with scaling,
// jumps, rollbacks in batches and kills. After every single move its own limits must hold, at each pause exactly the
// requested number of pods must be new, and at the end everything must be as before.
func TestRolloutKeepsLimits_InAnyOrderOfSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		style := rapid.SampledFrom([]strategy.Style{strategy.StylePartition, strategy.StyleBlueGreen}).Draw(t, "style")
		size := int32(rapid.IntRange(1, 9).Draw(t, "size"))
		own := int32(rapid.IntRange(0, 3).Draw(t, "maxUnavailable"))
		surge := int32(rapid.IntRange(0, 3).Draw(t, "maxSurge"))
		if own == 0 && surge == 0 {
			surge = 1
		}
		own = min(own, size)
		w := newToy(size, fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%d,"maxUnavailable":%d}}`,
			surge, own))
		before := w.spec()
		tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, style)
		r := &run{t: t, w: w, tech: tech, style: style, floor: size - own, excess: surge}
		if style == strategy.StyleBlueGreen {
			r.excess += size
		}
		first := rapid.IntRange(1, 100).Draw(t, "percent of the first step")
		r.begin(r.anyFirst(intstr.FromString(fmt.Sprintf("%d%%", first)), false))
		fresh := r.forward(size, first)
		if style == strategy.StylePartition && rapid.Bool().Draw(t, "to the end") {
			fresh = r.native(size)
		}
		if style == strategy.StylePartition && fresh > 0 && rapid.Bool().Draw(t, "back in batches") {
			r.backward(size, fresh)
		}
		r.finishRollout(before)
	})
}

// TestRolloutKeepsLimits_WhenNativeToTheEnd lets the Deployment's own controller go to the end from the first write on,
// with the claim or after it, with kills: its own limits hold, and afterwards everything is as before.
func TestRolloutKeepsLimits_WhenNativeToTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, manifest := anyInPlace(t, 1)
		before, size := r.w.spec(), r.w.replicas
		r.begin(r.anyFirst(intstr.FromString("20%"), true))
		if r.w.template != stableTemplate && string(r.w.settings["/spec/strategy"]) != manifest {
			t.Fatalf("nothing is borrowed by the write of the claim: %s", r.w.settings["/spec/strategy"])
		}
		r.native(size)
		r.finishRollout(before)
	})
}

// TestRolloutKeepsLimits_OverHungUpdate releases a toy Deployment whose own update hangs: as many pods stay ready as
// the update left, so broken pods go first; each step has its number, and at the end everything is as before.
func TestRolloutKeepsLimits_OverHungUpdate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, _ := anyInPlace(t, 1)
		before, size := r.w.spec(), r.w.replicas
		r.w.template = hungTemplate
		r.w.generation++
		r.quiet("its own update")
		if r.w.set(hungTemplate).ready > 0 || r.w.set(hungTemplate).total == 0 {
			t.Fatalf("the update does not hang: %s", r.w.pods())
		}
		first := rapid.IntRange(1, 100).Draw(t, "percent of the first step")
		r.begin(r.anyFirst(intstr.FromString(fmt.Sprintf("%d%%", first)), false))
		if rapid.Bool().Draw(t, "stays") {
			r.quiet("begun")
		}
		fresh := r.forward(size, first)
		if rapid.Bool().Draw(t, "to the end") {
			r.native(size)
		} else if fresh > 0 && rapid.Bool().Draw(t, "back in batches") {
			r.backward(size, fresh)
		}
		r.finishRollout(before)
		if n := r.w.set(hungTemplate).asked; n > 0 {
			t.Fatalf("%d pods of the update that hung are left", n)
		}
	})
}

// forward makes some steps, and returns how many pods are new then.
func (r *run) forward(size int32, first int) int32 {
	fresh := int32(0)
	for step := 1; step <= rapid.IntRange(1, 3).Draw(r.t, "steps"); step++ {
		percent := first
		if step > 1 {
			percent = rapid.IntRange(1, 100).Draw(r.t, "percent")
		}
		replicas := intstr.FromString(fmt.Sprintf("%d%%", percent))
		want := max(strategy.Target(r.style, replicas, size), fresh)
		got := r.move(step, replicas, false, 0)
		if n := r.w.set(newTemplate).asked; n != want || got.UpdatedReady < strategy.Target(r.style, replicas, size) {
			r.t.Fatalf("step %d at %d%% of %d: %d pods are new, %d should be (%+v)", step, percent, size, n, want, got)
		}
		if old := r.w.set(stableTemplate).asked; r.style == strategy.StyleBlueGreen && old != size {
			r.t.Fatalf("blue-green keeps every old pod: %d of %d are left", old, size)
		}
		fresh = want
	}
	return fresh
}

// native lets the Deployment's own controller go to the end; Moves report some steps' numbers as it passes them.
func (r *run) native(size int32) int32 {
	req := rollout.MoveRequest{Subject: subject(), Step: 4, Style: r.style, Template: newTemplate, Native: true}
	if r.w.template == stableTemplate { // the first Move that sets it reports the digest
		req.Template = ""
	}
	for _, percent := range []int{rapid.IntRange(1, 100).Draw(r.t, "passes"), 100} {
		req.Replicas = intstr.FromString(fmt.Sprintf("%d%%", percent))
		d := r.until("to the end", func(seen pods.Observed) pods.NextAction { return pods.Move(r.tech, req, seen) })
		if want := strategy.Target(r.style, req.Replicas, size); d.Numbers.UpdatedReady < want {
			r.t.Fatalf("%d of %d pods are new and ready, reported at %d%%", d.Numbers.UpdatedReady, want, percent)
		}
	}
	r.quiet("at the end")
	if n := r.w.set(newTemplate).asked; n != size {
		r.t.Fatalf("%d of %d pods are new at the end", n, size)
	}
	return size
}

func (r *run) backward(size, from int32) {
	last := int32(0)
	for step := 2; step <= 3; step++ {
		percent := rapid.IntRange(1, 100).Draw(r.t, "percent back")
		replicas := intstr.FromString(fmt.Sprintf("%d%%", percent))
		last = max(last, strategy.RollbackTarget(replicas, from))
		r.move(step, replicas, true, from)
		if n := r.w.set(newTemplate).asked; n != from-last {
			r.t.Fatalf("back by %d%% of %d: %d pods are new, %d should be", percent, from, n, from-last)
		}
	}
}

func (r *run) finishRollout(before string) {
	to := rapid.SampledFrom([]rollout.Side{rollout.SideStable, rollout.SideNew}).Draw(r.t, "to")
	r.until("finish to "+string(to), func(seen pods.Observed) pods.NextAction {
		return pods.Finish(r.tech, rollout.FinishRequest{Subject: subject(), Action: rollout.FinishResumeAndRelease,
			To: to, Template: newTemplate}, seen)
	})
	want := map[rollout.Side]string{rollout.SideStable: stableTemplate, rollout.SideNew: newTemplate}[to]
	if s := r.w.set(want); s == nil || s.asked != r.w.replicas {
		r.t.Fatalf("finish to %s: %+v", to, r.w.observe())
	}
	if r.w.claim != "" || r.w.annotations[workload.AnnotationRollout] != "" ||
		r.w.annotations[rollout.AnnotationSettled] != "" || r.w.annotations[rollout.AnnotationRecover] != "" {
		r.t.Fatalf("something of the rollout is left: %v", r.w.annotations)
	}
	r.w.template = stableTemplate
	if after := r.w.spec(); after != before {
		r.t.Fatalf("its settings were %s and are %s", before, after)
	}
}

// TestPausedSplit_KeepsProportion_WhenScaled scales a toy Deployment that is paused in the middle of a rollout: the
// split keeps its proportion by itself, to within a pod, and after the next Move no fewer than the requested number are
// new; none is moved beyond that.
func TestPausedSplit_KeepsProportion_WhenScaled(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := int32(rapid.IntRange(1, 20).Draw(t, "size"))
		w := newToy(size, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}}`)
		tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
		r := &run{t: t, w: w, tech: tech, style: strategy.StylePartition, excess: 20}
		r.begin(nil)
		percent := rapid.IntRange(1, 99).Draw(t, "percent")
		replicas := intstr.FromString(fmt.Sprintf("%d%%", percent))
		r.move(1, replicas, false, 0)
		for range rapid.IntRange(1, 4).Draw(t, "times") {
			was, from := w.set(newTemplate).asked, w.replicas
			w.replicas = int32(rapid.IntRange(0, 20).Draw(t, "scaled to"))
			w.generation++
			r.quiet("scaled")
			natural := w.set(newTemplate).asked
			if from == 0 && natural > 0 {
				t.Fatalf("scaled from nothing to %d: %d pods are new without a request", w.replicas, natural)
			}
			from = max(from, 1)
			if n, most := natural, max((was*w.replicas+from-1)/from, 1)+1; n > most {
				t.Fatalf("scaled from %d to %d: %d of %d new pods became %d without a request", from, w.replicas, was,
					from, n)
			}
			got := r.move(2, replicas, false, 0)
			if want := strategy.Target(r.style, replicas, w.replicas); got.UpdatedReady != max(want, natural) {
				t.Fatalf("at %d%% of %d: %d pods are new and ready, %d should be", percent, w.replicas,
					got.UpdatedReady, want)
			}
		}
	})
}

// TestPausedStep_KeepsLimits_WhenFieldsEdited: another client sets borrowed fields to the values of a manifest while a
// step is paused, and the cluster moves before that is noticed. While the pause is set no pod of the split moves; in
// any case the workload's own limits hold, and afterwards the recorded paused state is restored.
func TestPausedStep_KeepsLimits_WhenFieldsEdited(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, manifest := anyInPlace(t, 1)
		w, before := r.w, r.w.spec()
		size := w.replicas
		r.begin(nil)
		percent := intstr.FromString(fmt.Sprintf("%d%%", rapid.IntRange(1, 100).Draw(t, "percent")))
		r.move(1, percent, false, 0)
		r.floor = min(r.floor, size-1) // a limit of 0 is 1 during a pause
		for range rapid.IntRange(1, 3).Draw(t, "edits") {
			fresh := w.set(newTemplate).asked
			unpaused := rapid.Bool().Draw(t, "unpaused")
			if unpaused {
				delete(w.settings, "/spec/paused")
			}
			if rapid.Bool().Draw(t, "limits") {
				w.settings["/spec/strategy"] = json.RawMessage(manifest)
			}
			if rapid.Bool().Draw(t, "deadline") {
				w.settings["/spec/progressDeadlineSeconds"] = json.RawMessage("700")
			}
			w.generation++
			for range rapid.IntRange(0, 20).Draw(t, "unnoticed") {
				r.world()
				r.check("before it is noticed")
			}
			req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: r.style, Replicas: percent,
				Template: newTemplate, Settle: true, Inspect: true}
			r.until("a check", func(seen pods.Observed) pods.NextAction { return pods.Move(r.tech, req, seen) })
			r.quiet("paused again")
			if disturbed := w.observe().Rest.ChangedFields(w.settings); len(disturbed) > 0 {
				t.Fatalf("%v differ from the recorded state", disturbed)
			}
			if now := w.set(newTemplate).asked; !unpaused && r.excess == 0 && now != fresh {
				t.Fatalf("%d pods were new, now %d", fresh, now)
			}
		}
		r.finishRollout(before)
	})
}

// TestMove_KeepsLimits_WhenStrategyEdited: another client sets a Deployment's strategy to that of its manifest at any
// moment of a move. No pod goes beyond its own limits, and the move ends.
func TestMove_KeepsLimits_WhenStrategyEdited(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, manifest := anyInPlace(t, 1)
		w, before := r.w, r.w.spec()
		size := w.replicas
		r.excess = max(r.excess, size-r.floor)
		r.begin(nil)
		first := rapid.IntRange(1, 99).Draw(t, "first")
		r.move(1, intstr.FromString(fmt.Sprintf("%d%%", first)), false, 0)
		r.floor = min(r.floor, size-1) // a limit of 0 is 1 during a pause
		second := intstr.FromString(fmt.Sprintf("%d%%", rapid.IntRange(first, 100).Draw(t, "second")))
		req := rollout.MoveRequest{Subject: subject(), Step: 2, Style: r.style, Replicas: second, Template: newTemplate,
			Settle: true}
		for range rapid.IntRange(1, 3).Draw(t, "edits") {
			r.interrupted(req, rapid.IntRange(0, 20).Draw(t, "moves"))
			w.settings["/spec/strategy"] = json.RawMessage(manifest)
			w.generation++
		}
		r.move(2, second, false, 0)
		r.finishRollout(before)
	})
}

// TestMove_KeepsLimits_WhenGateOrPauseRemovedWhilePodsStart: another client removes the gate, or the pause, while new
// pods are starting, which is most of the time of a move. Two locks are on the Deployment then: with either of them no
// pod is removed, and the move ends.
func TestMove_KeepsLimits_WhenGateOrPauseRemovedWhilePodsStart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, _ := anyInPlace(t, 2)
		w, before := r.w, r.w.spec()
		r.excess = max(r.excess, w.replicas-r.floor)
		r.begin(nil)
		first := rapid.IntRange(1, 80).Draw(t, "first")
		r.move(1, intstr.FromString(fmt.Sprintf("%d%%", first)), false, 0)
		r.floor = min(r.floor, w.replicas-1) // a limit of 0 is 1 during a pause
		second := intstr.FromString(fmt.Sprintf("%d%%", rapid.IntRange(first, 100).Draw(t, "second")))
		req := rollout.MoveRequest{Subject: subject(), Step: 2, Style: r.style, Replicas: second, Template: newTemplate,
			Settle: true}
		r.interrupted(req, rapid.IntRange(0, 40).Draw(t, "moves"))
		for range 30 { // no pod gets ready any more, until it can only wait
			seen := w.observe()
			if d := pods.Move(r.tech, req, seen); d.Action == workload.ActWrite {
				w.write(d.Write, seen.Generation)
			}
			r.stuck("coming")
		}
		if w.total > w.ready {
			if string(w.settings["/spec/paused"]) != "true" {
				t.Fatalf("%d pods are starting, and it is not paused: %+v", w.total-w.ready, w.observe())
			}
			delete(w.settings, rapid.SampledFrom([]string{"/spec/paused", "/spec/minReadySeconds"}).Draw(t, "lock"))
			w.generation++
			r.quiet("a lock was removed")
		}
		r.move(2, second, false, 0)
		r.finishRollout(before)
	})
}

// world lets one part of the cluster move.
func (r *run) world() {
	switch m := rapid.IntRange(0, 6).Draw(r.t, "world"); {
	case m < 2:
		r.sync()
	case m < 5:
		r.w.sets[rapid.IntRange(0, len(r.w.sets)-1).Draw(r.t, "set")].settle()
		r.w.report()
	default:
		r.kubelet()
	}
}
