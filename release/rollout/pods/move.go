package pods

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// move is one decision on a Move.
type move struct {
	tech Technique
	req  rollout.MoveRequest
	seen Observed
	// ours is the digest of the new template, as far as it is known.
	ours    string
	task    Task
	numbers rollout.MoveResult
}

// Move decides on the next step on the way to a step's number of pods.
func Move(tech Technique, req rollout.MoveRequest, seen Observed) Decision {
	if d, stop := guard(req.Subject, seen); stop {
		return d
	}
	if tech.ByPods() && !seen.PodsSeen {
		return look("see which revision its pods are of")
	}
	m := &move{tech: tech, req: req, seen: seen, ours: orElse(req.Template, seen.Expected)}
	m.plan() // a drift is told with the pods' numbers as well
	if req.Halt {
		return m.halt()
	}
	if d, stop := m.drifted(); stop {
		return d
	}
	if seen.Lagging() {
		return m.wait("its controller has not seen the last change yet")
	}
	if d, stop := m.pin(); stop {
		return d
	}
	d := tech.Next(m.task, seen)
	d.Numbers = m.numbers
	switch d.Action {
	case ActWrite:
		return m.complete(d)
	case ActWait:
		return m.wait(d.Reason)
	case ActDone:
		return m.arrived()
	}
	return d
}

// drifted says whether somebody else has edited the template. The template may be the stable one before the first Move, and while a
// rollback in batches is under way.
func (m *move) drifted() (Decision, bool) {
	saved, live := m.seen.Saved, m.seen.Template
	isOurs, isStable := live == m.ours && m.ours != "", live == saved.StableTemplate
	switch {
	case m.req.PutBack:
		return Decision{}, false
	case m.tech.untouched():
		if isStable {
			return Decision{}, false
		}
	case m.req.Back && (isOurs || isStable), isOurs, isStable && (m.req.Template == "" || saved.Retracting):
		return Decision{}, false
	}
	return m.drift(), true
}

func (m *move) drift() Decision { return drift(m.req.Subject, m.seen, m.numbers) }

func drift(s rollout.Subject, seen Observed, numbers rollout.MoveResult) Decision {
	what := "changed its pod template"
	if seen.Template == seen.Saved.StableTemplate {
		what = "set its pod template back to the stable version"
	}
	return driftOf(s, what, numbers)
}

// driftOf is a drift in words of its own: what somebody else did.
func driftOf(s rollout.Subject, what string, numbers rollout.MoveResult) Decision {
	e := failure.New(failure.Drift, "%s: somebody else %s in the middle of the rollout", s.Workload, what)
	e.Data = numbers
	return fail(e)
}

// plan works out the task.
func (m *move) plan() {
	seen, saved := m.seen, m.seen.Saved
	size := seen.Replicas
	stable, _ := seen.Find(saved.Stable)
	fresh := m.fresh()
	t := Task{Request: m.req, Size: size, Target: m.target(size), Aim: fresh, Placed: seen.Template == m.ours && m.ours != ""}
	asked := t.Target
	if m.req.Back {
		asked = max(min(m.req.From, size)-strategy.BackTarget(m.req.Replicas, m.req.From), 0)
		t.Target, t.Aim, t.Placed = size-asked, stable, seen.Template == saved.StableTemplate
		t.Template = Template{Revision: saved.Stable}
	} else if fresh.Name != "" && !m.tech.untouched() {
		t.Template = Template{Revision: fresh.Name}
	}
	t.Total, t.Ready = seen.Count(t.Aim)
	if e := seen.Extra; m.tech.untouched() && e != nil && !e.lagging() {
		t.Total, t.Ready = e.Total, e.Ready
	}
	t.Tolerated = strategy.Tolerated(m.req.FailureThreshold, t.Target)
	m.task = t
	m.numbers = numbersOf(seen, fresh, stable)
	m.numbers.Target = asked
	if m.tech.untouched() {
		m.numbers.Updated, m.numbers.UpdatedReady = t.Total, t.Ready
	}
	if t.Placed || m.req.Template != "" || m.tech.untouched() && seen.Extra != nil {
		m.numbers.Template = m.ours
	}
}

// target is how many pods are to be new.
func (m *move) target(size int32) int32 {
	target := strategy.Target(m.req.Replicas, size)
	if m.req.KeepStable {
		target = max(min(target, size-1), 0)
	}
	return target
}

// fresh is the revision of the new version, empty until there is one.
func (m *move) fresh() Revision { return freshOf(m.tech, m.seen, m.ours) }

func freshOf(tech Technique, seen Observed, ours string) Revision {
	if tech.untouched() {
		if seen.Extra == nil {
			return Revision{}
		}
		return Revision{Name: seen.Extra.Hash, Hash: seen.Extra.Hash}
	}
	if r, ok := seen.Made(ours); ok && r.Name != seen.Saved.Stable {
		return r
	}
	r, _ := seen.Find(seen.Saved.Canary)
	return r
}

func numbersOf(seen Observed, fresh, stable Revision) rollout.MoveResult {
	n := rollout.MoveResult{Replicas: seen.Replicas, Canary: fresh.Name, CanaryHash: fresh.Hash, Generation: seen.Generation}
	n.Updated, n.UpdatedReady = seen.Count(fresh)
	_, n.StableReady = seen.Count(stable)
	return n
}

// pin has the autoscalers of a blue-green workload keep its size, before the first pod comes.
func (m *move) pin() (Decision, bool) {
	if m.seen.Saved.Style != strategy.StyleBlueGreen {
		return Decision{}, false
	}
	for _, a := range m.seen.Autoscalers {
		if contains(m.seen.Saved.Autoscalers, a.Name) && !a.Pinned {
			size := m.seen.Replicas
			return Decision{Action: ActAutoscaler, Numbers: m.numbers, Autoscaler: &AutoscalerChange{Name: a.Name, Pin: &size},
				Reason: fmt.Sprintf("pin the autoscaler %s to %d pods while both versions run", a.Name, size)}, true
		}
	}
	return Decision{}, false
}

// complete adds to a technique's write what the framework sees to: the claim, and what is saved.
func (m *move) complete(d Decision) Decision {
	w := d.Write
	w.Held = m.req.Claim
	if w.Step == "" {
		w.Step = "move"
	}
	w.Annotations = merged(w.Annotations, m.savedNow())
	return d
}

// savedNow is the annotation with what is saved, when that has changed: the new revision's name once it is known, and the direction.
func (m *move) savedNow() map[string]string {
	next := *m.seen.Saved
	if m.numbers.Canary != "" && !m.req.Back {
		next.Canary = m.numbers.Canary
	}
	next.Retracting = m.req.Back
	if next.String() == m.seen.Saved.String() {
		return nil
	}
	return map[string]string{rollout.AnnotationSaved: next.String()}
}

// arrived ends the move, or waits for pods that are not ready yet; what a resting step needs is written before.
func (m *move) arrived() Decision {
	t := m.task
	if t.Total < t.Target || !t.Settled() || m.task.Placed && m.task.Aim.Hash == "" && t.Target > 0 {
		return m.wait("")
	}
	m.numbers.Message = m.progress()
	done := Decision{Action: ActDone, Reason: m.numbers.Message, Numbers: m.numbers}
	if !m.req.Rest {
		return done
	}
	w := &Write{Step: "rest", Settings: changed(m.tech.Rest(t, m.seen), m.seen), Annotations: map[string]string{}}
	if rest := (rollout.Rest{Template: m.seen.Template, Replicas: m.seen.Replicas}); m.seen.Rest == nil || *m.seen.Rest != rest {
		w.Annotations[rollout.AnnotationRest] = rest.String()
	}
	d := m.complete(Set(m.progress()+": it rests", w))
	if len(w.Settings) == 0 && len(w.Annotations) == 0 {
		return done
	}
	d.Ends, d.Numbers = true, m.numbers
	return d
}

// halt brings to rest what an interrupted Move has left, however far it came: nobody moves on until somebody has decided.
func (m *move) halt() Decision {
	m.numbers.Message = m.progress() + ": halted"
	w := &Write{Step: "halt", Settings: changed(m.tech.Rest(m.task, m.seen), m.seen)}
	if len(w.Settings) == 0 {
		return Decision{Action: ActDone, Reason: m.numbers.Message, Numbers: m.numbers}
	}
	d := m.complete(Set(m.numbers.Message, w))
	d.Ends, d.Numbers = true, m.numbers
	return d
}

func (m *move) wait(text string) Decision {
	progress := m.progress()
	if text != "" {
		progress += ", " + text
	}
	m.numbers.Message = progress
	d := judge(m.req.Subject, m.seen, m.task.Aim.Hash, progress, m.task.Tolerated, m.numbers)
	if m.req.TellStuck && d.Action == ActWait && d.LookAgain > 0 { // a pod is in trouble that may pass
		d.Action, d.Numbers.Stuck, d.Numbers.SpentSeconds = ActDone, podWord(m.seen, m.task.Aim.Hash), int64(m.seen.Elapsed/time.Second)
	}
	return d
}

// progress says how far it is: "step 2: 3 of 5 new pods are ready".
func (m *move) progress() string {
	if m.req.Back {
		left := m.numbers.Updated
		return fmt.Sprintf("step %d: %d of %d pods are back on the stable version and ready, %d new ones are left", m.req.Step, m.task.Ready, m.task.Size, left)
	}
	text := fmt.Sprintf("step %d: %d of %d new pods are ready", m.req.Step, m.task.Ready, m.task.Target)
	if m.task.Total > m.task.Target {
		text += fmt.Sprintf(" (%d are new)", m.task.Total)
	}
	if n := m.strangers(); n > 0 {
		text += fmt.Sprintf(", %d of neither version, which somebody else's edit has left, stay until more pods move", n)
	}
	return text
}

// strangers is how many pods are of neither version. They are left where they are: the native controller would take stable pods in their place.
func (m *move) strangers() int32 {
	n := int32(0)
	for _, r := range m.seen.Revisions {
		if m.tech.untouched() || r.Name == m.seen.Saved.Stable || r.Name == m.fresh().Name {
			continue
		}
		total, _ := m.seen.Count(r)
		n += total
	}
	return n
}

func merged(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		out[k] = v
	}
	return out
}

func contains(list []string, name string) bool {
	for _, s := range list {
		if s == name {
			return true
		}
	}
	return false
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}
