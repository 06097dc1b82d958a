package pods

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

type move struct {
	tech Technique
	req  rollout.MoveRequest
	seen Observed
	// ours is the digest of the new template, as far as it is known; fresh is its revision, empty until there is one.
	ours    string
	fresh   Revision
	task    task
	numbers rollout.MoveResult
}

// Move decides on the next step on the way to a step's number of pods.
func Move(tech Technique, req rollout.MoveRequest, seen Observed) NextAction {
	if d, stop := guard(req.Subject, seen); stop {
		return d
	}
	if tech.ByPods() && !seen.PodsSeen {
		return look("see which revision its pods are of")
	}
	m := &move{tech: tech, req: req, seen: seen, ours: cmp.Or(req.Template, seen.Expected, seen.Declared)}
	m.plan() // a drift is told with the pods' numbers as well
	d := m.next()
	return d.with(m.numbers)
}

func (m *move) next() NextAction {
	switch {
	case m.req.Halt:
		if a, ok := m.loosened(); ok { // it could scale what is held
			return m.pin(a)
		}
		return m.halt()
	case m.goesHome():
		return done(m.progress())
	case m.drifted():
		return drifted(m.req.Subject, m.seen)
	case m.seen.Duel.Times > rollout.MostDisturbed:
		return duel(m.req.Subject, m.seen.Duel)
	case m.seen.Lagging():
		return m.wait("its controller has not seen the last change yet")
	}
	if d, disturbed := m.disturbed(); disturbed {
		return d
	}
	if d, joined := m.joined(); joined {
		return d
	}
	if a, ok := m.unpinned(); ok {
		return m.pin(a)
	}
	d := m.toward()
	switch d.Action {
	case workloadops.ActWrite:
		return m.complete(d)
	case workloadops.ActWait:
		return m.wait(d.Reason)
	case workloadops.ActDone:
		return m.arrived()
	case workloadops.ActDelete:
		if m.seen.HeldUp != "" {
			return m.heldUp()
		}
	}
	return d
}

// heldUp waits for a PodDisruptionBudget that keeps pods from being taken: within the deadline, which names it when it has passed.
func (m *move) heldUp() NextAction {
	progress, deadline := m.progress(), deadlineOf(m.req.Subject)
	m.numbers.Message = progress
	if m.seen.Elapsed >= deadline {
		return failf(failure.WorkloadFailed, "%s: %s after %d s: %s", m.req.Workload, progress, int64(deadline/time.Second), m.seen.HeldUp)
	}
	d := wait(progress + ": " + m.seen.HeldUp)
	d.LookAgain = workloadops.AskAgain
	if m.req.TellStuck {
		d.Action = workloadops.ActDone
		m.numbers.Stuck, m.numbers.SpentSeconds = m.seen.HeldUp, int64(m.seen.Elapsed/time.Second)
	}
	return d
}

// toward is the next write on the way: the technique's, or the one with which the workload's own controller goes to the end.
func (m *move) toward() NextAction {
	if !m.req.Native {
		return m.tech.next(m.task, m.seen)
	}
	if w := m.task.write("native", m.seen.changed(m.tech.native(m.seen)...)); !empty(w) {
		return set("let its own controller bring every pod to that version", w)
	}
	return done("")
}

// goesHome says that this release has brought the new template home already: an attempt of its end was lost, and its last step is gone through once more. The
// extra pods serve until it is over.
func (m *move) goesHome() bool {
	home := m.req.Claim + " " + string(rollout.SideNew)
	return m.tech.untouched() && !m.req.Back && m.ours != "" && m.seen.Template == m.ours && m.seen.Saved.Homeward == home
}

// drifted says whether somebody else has edited the template. It may be the stable one before the first Move and on the way back.
func (m *move) drifted() bool {
	saved, live := m.seen.Saved, m.seen.Template
	isOurs, isStable := live == m.ours && m.ours != "", live == saved.StableTemplate
	switch {
	case m.req.PutBack:
		return false
	case m.tech.untouched() && saved.Declared == "":
		return !isStable
	}
	leaves := m.req.Back || saved.Retracting || m.seen.restsStable()
	if saved.Declared == "" {
		leaves = leaves || m.req.Template == ""
	} else {
		leaves = leaves || m.seen.Next == m.ours // it stands beside until its pods may come
	}
	return !isOurs && (!isStable || !leaves)
}

// drifted fails since somebody else has edited the template.
func drifted(s rollout.Subject, seen Observed) NextAction {
	if seen.Template == seen.Saved.StableTemplate {
		return drift(s, "set its pod template back to the stable version")
	}
	return drift(s, "changed its pod template")
}

func (m *move) plan() {
	seen, saved := m.seen, m.seen.Saved
	size := seen.Replicas
	stable, _ := seen.Find(saved.Stable)
	m.fresh = freshOf(m.tech, seen, m.ours)
	t := task{Request: m.req, Size: size, Target: m.target(size), Aim: m.fresh, Placed: seen.Template == m.ours && m.ours != ""}
	asked := t.Target
	if m.req.Back {
		asked = max(min(m.req.From, size)-strategy.BackTarget(m.req.Replicas, m.req.From), 0)
		t.Target, t.Aim, t.Placed = size-asked, stable, seen.Template == saved.StableTemplate
		t.Template.Revision = saved.Stable
	} else if !m.tech.untouched() {
		t.Template.Revision = m.fresh.Name
	}
	t.Total, t.Ready = seen.Count(t.Aim)
	if e := seen.Extra; m.tech.untouched() && e != nil && !e.Lagging() {
		t.Total, t.Ready = e.Total, e.Ready
	}
	if m.req.Native && m.req.Halt { // its own controller may have gone beyond the step
		t.Target = size
	}
	t.Tolerated = strategy.Tolerated(m.req.FailureThreshold, t.Target)
	m.task = t
	m.numbers = numbersOf(seen, m.fresh, stable)
	m.numbers.Target = asked
	if m.tech.untouched() {
		m.numbers.Updated, m.numbers.UpdatedReady = t.Total, t.Ready
	}
	if t.Placed || m.req.Template != "" || m.tech.untouched() && seen.Extra != nil {
		m.numbers.Template = m.ours
	}
}

func (m *move) target(size int32) int32 {
	target := strategy.Target(m.req.Replicas, size)
	if m.req.KeepStable {
		target = max(min(target, size-1), 0)
	}
	return target
}

// freshOf is the revision of the new version, empty until there is one.
func freshOf(tech Technique, seen Observed, ours string) Revision {
	if tech.untouched() {
		if seen.Extra == nil {
			return Revision{}
		}
		return Revision{Name: seen.Extra.Hash, Hash: seen.Extra.Hash, Images: seen.Extra.Images}
	}
	if r, ok := seen.Made(ours); ok && r.Name != seen.Saved.Stable {
		return r
	}
	r, _ := seen.Find(seen.Saved.Canary)
	return r
}

func numbersOf(seen Observed, fresh, stable Revision) rollout.MoveResult {
	n := rollout.MoveResult{Replicas: seen.Replicas, Canary: fresh.Name, CanaryHash: fresh.Hash, Generation: seen.Generation, Images: fresh.Images}
	n.Updated, n.UpdatedReady = seen.Count(fresh)
	_, n.StableReady = seen.Count(stable)
	return n
}

// joined notes autoscalers of a blue-green workload that somebody has added meanwhile, before they are pinned: so they are given back.
func (m *move) joined() (NextAction, bool) {
	saved := *m.seen.Saved
	for _, a := range m.seen.Autoscalers {
		if saved.Style == strategy.StyleBlueGreen && !slices.Contains(saved.Autoscalers, a.Name) {
			saved.Autoscalers = append(slices.Clone(saved.Autoscalers), a.Name)
		}
	}
	if len(saved.Autoscalers) == len(m.seen.Saved.Autoscalers) {
		return NextAction{}, false
	}
	d := set("note an autoscaler that somebody else has added", &workloadops.Write{Step: "autoscaler", Held: m.req.Claim,
		Annotations: map[string]string{rollout.AnnotationSaved: saved.String(),
			rollout.AnnotationRecover: rollout.RecoverText(saved, m.req.Workload)}})
	return d, true
}

// unpinned is an autoscaler of a blue-green workload that has to keep its size, before the first pod comes.
func (m *move) unpinned() (Autoscaler, bool) {
	i := slices.IndexFunc(m.seen.Autoscalers, func(a Autoscaler) bool {
		return m.seen.Saved.Style == strategy.StyleBlueGreen && slices.Contains(m.seen.Saved.Autoscalers, a.Name) && (!a.Pinned || a.Edited)
	})
	if i < 0 {
		return Autoscaler{}, false
	}
	return m.seen.Autoscalers[i], true
}

// loosened is an autoscaler whose limits somebody else has changed since it was pinned.
func (m *move) loosened() (Autoscaler, bool) {
	i := slices.IndexFunc(m.seen.Autoscalers, func(a Autoscaler) bool {
		return slices.Contains(m.seen.Saved.Autoscalers, a.Name) && a.Pinned && a.Edited
	})
	if i < 0 {
		return Autoscaler{}, false
	}
	return m.seen.Autoscalers[i], true
}

func (m *move) pin(a Autoscaler) NextAction {
	return changeAutoscaler(AutoscalerChange{Name: a.Name, Pin: &m.seen.Replicas},
		"pin the autoscaler %s to %d pods while both versions run", a.Name, m.seen.Replicas)
}

// complete adds to a technique's write what the framework sees to: the claim, and what is saved.
func (m *move) complete(d NextAction) NextAction {
	w := d.Write
	w.Held = m.req.Claim
	next := *m.seen.Saved
	if m.numbers.Canary != "" && !m.req.Back { // the new revision's name, once it is known
		next.Canary = m.numbers.Canary
	}
	next.Retracting = m.req.Back
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	if next.String() != m.seen.Saved.String() {
		w.Annotations[rollout.AnnotationSaved] = next.String()
	}
	if w.Template != nil && !m.req.Back && w.KeepTemplate == "" && m.seen.Next != "" && m.seen.Next == m.ours { // it stands on the workload itself from now on
		w.Remove = append(w.Remove, rollout.AnnotationNext)
	}
	if _, rests := w.Annotations[rollout.AnnotationRest]; !rests && m.seen.Rest != nil && len(m.seen.Rest.Settings) > 0 && len(w.Settings) > 0 {
		moving := *m.seen.Rest // what changes from now on is our own doing
		moving.Settings = nil
		w.Annotations[rollout.AnnotationRest] = moving.String()
	}
	return d
}

// arrived ends the move, or waits for pods that are not ready yet; what a resting step needs is written before.
func (m *move) arrived() NextAction {
	t := m.task
	if m.req.Native && t.Ready < t.Target {
		return m.wait("")
	}
	if t.Total < t.Target || !m.req.Native && !t.settled() || t.Placed && t.Aim.Hash == "" && t.Target > 0 {
		return m.wait("")
	}
	m.numbers.Message = m.progress()
	if d, numbers := number(m.batch(), m.numbers.Canary, m.task.Aim, m.seen); numbers {
		d.Ends = d.Number != nil && !m.req.Rest
		return d
	}
	if !m.req.Rest {
		return done(m.numbers.Message)
	}
	settings := m.tech.rest(t, m.seen)
	w := &workloadops.Write{Step: "rest", Settings: m.seen.changed(slices.Clone(settings)...)}
	rest := rollout.Rest{Template: m.seen.Template, Replicas: m.seen.Replicas, Surge: m.tech.surplus(m.seen), Settings: m.left(settings)}
	if m.seen.Rest == nil || m.seen.Rest.String() != rest.String() {
		w.Annotations = map[string]string{rollout.AnnotationRest: rest.String()}
	}
	m.tellOthers(w)
	return m.last(w, m.numbers.Message+": it rests")
}

// batch is how the step's pods are numbered; a request of an earlier build names the step beside it.
func (m *move) batch() *rollout.Batch {
	if b := m.req.Batch; b != nil && b.Step == 0 {
		return &rollout.Batch{RolloutID: b.RolloutID, Step: m.req.Step}
	}
	return m.req.Batch
}

// tellOthers notes on a Deployment under a Rollout object what other tools read of its new pods.
func (m *move) tellOthers(w *workloadops.Write) {
	if m.seen.Saved.Declared == "" || m.req.Workload.WorkloadRef.Kind != workloadops.KindDeployment {
		return
	}
	text := rollout.ExtraStatus(m.numbers.UpdatedReady, m.numbers.Target)
	if m.seen.ExtraStatus == text {
		return
	}
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	w.Annotations[rollout.AnnotationExtraStatus] = text
}

// left are the borrowed fields as these settings leave them, in the one form that their JSON has in the annotation.
func (m *move) left(settings []workloadops.Setting) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	for _, path := range m.tech.Pointers() {
		fields[path] = workloadops.Canonical(m.seen.Settings[path])
	}
	for _, s := range settings {
		fields[s.Path] = workloadops.Canonical(s.Value)
	}
	return fields
}

// emptied gives a workload without pods the stable template. Its controller would make all pods that come of the live one: that of a Deployment
// which is paused, and one that takes an update for done when there are no pods to update.
func emptied(seen Observed) NextAction {
	keep := ""
	if seen.keeps() {
		keep = rollout.AnnotationNext
	}
	rest := rollout.Rest{Template: seen.Saved.StableTemplate}
	if seen.Rest != nil {
		rest.Settings = seen.Rest.Settings
	}
	return set("give it the stable template while it has no pods: those that come would all be new", &workloadops.Write{Step: "empty",
		Template: &workloadops.Template{Revision: seen.Saved.Stable}, KeepTemplate: keep,
		Annotations: map[string]string{rollout.AnnotationRest: rest.String()}})
}

// disturbed puts back what somebody else has changed of the fields that were left at rest. A technique with settings of its own for a rest
// sees to them in its next step.
func (m *move) disturbed() (NextAction, bool) {
	if !m.req.Look && !m.req.PutBack || m.seen.Rest == nil || m.tech.rest(m.task, m.seen) != nil {
		return NextAction{}, false
	}
	settings := m.asLeft()
	if len(settings) == 0 {
		return NextAction{}, false
	}
	d := set("put back the fields that somebody else has changed at rest", &workloadops.Write{Step: "undisturb", Settings: settings, Held: m.req.Claim})
	return d, true
}

// asLeft are the fields of the rest that somebody else has changed, as they were left.
func (m *move) asLeft() (settings []workloadops.Setting) {
	if m.seen.Rest == nil || m.seen.Saved.Declared != "" && m.seen.Template != m.ours { // what holds another template's pods stays
		return nil
	}
	for _, path := range m.seen.Rest.Disturbed(m.seen.Settings) {
		settings = append(settings, workloadops.Setting{Path: path, Value: m.seen.Rest.Settings[path]})
	}
	return settings
}

// halt brings to rest what an interrupted Move has left, however far it came: nobody moves on until somebody has decided. What it was left
// like is noted as at the end of a step, unless nothing of the new version is on it yet.
func (m *move) halt() NextAction {
	m.numbers.Message = m.progress() + ": halted"
	if d, shrunk := m.extraBack(); shrunk {
		return d
	}
	settings := m.tech.rest(m.task, m.seen)
	if settings == nil {
		settings = m.asLeft()
	}
	w := &workloadops.Write{Step: "halt", Settings: m.seen.changed(slices.Clone(settings)...)}
	rest := rollout.Rest{Surge: m.tech.surplus(m.seen)}
	begun := m.task.Placed || settings != nil || m.tech.untouched() && m.seen.Extra != nil
	if begun {
		rest.Template, rest.Replicas, rest.Settings = m.seen.Template, m.seen.Replicas, m.left(settings)
	}
	if (begun || rest.Surge != surplusAtRest(m.seen)) && (m.seen.Rest == nil || m.seen.Rest.String() != rest.String()) {
		w.Annotations = map[string]string{rollout.AnnotationRest: rest.String()}
	}
	return m.last(w, m.numbers.Message)
}

// extraBack gives an extra Deployment that somebody else has scaled down while it is held the size back that it had.
func (m *move) extraBack() (NextAction, bool) {
	e := m.seen.Extra
	if !m.tech.untouched() || e == nil || e.Deleting || e.Of != strategy.CanaryOf(m.req.Workload.WorkloadRef.Name) || e.Replicas >= min(e.Left, m.task.Size) {
		return NextAction{}, false
	}
	size := min(e.Left, m.task.Size) // anybody may write what was noted
	return changeExtra(ExtraChange{Replicas: &size}, "scale %s back to %d pods, as it was", e.Name, size), true
}

// last ends the move with a write, or at once when there is nothing to be written.
func (m *move) last(w *workloadops.Write, reason string) NextAction {
	if len(w.Settings) == 0 && len(w.Annotations) == 0 {
		return done(m.numbers.Message)
	}
	d := m.complete(set(reason, w))
	d.Ends = true
	return d
}

func (m *move) wait(text string) NextAction {
	progress := m.progress()
	if text != "" {
		progress += ", " + text
	}
	m.numbers.Message = progress
	d := judge(m.req.Subject, m.seen, m.task.Aim.Hash, progress, m.task.Tolerated)
	troubled := d.LookAgain > 0 // a pod is in trouble that may pass
	late := m.seen.PodsSeen && m.seen.Still >= min(deadlineOf(m.req.Subject)/2, lateAfter)
	if m.req.TellStuck && d.Action == workloadops.ActWait && (troubled || late) {
		d.Action = workloadops.ActDone
		m.numbers.Stuck, m.numbers.SpentSeconds = why(m.seen, m.task.Aim.Hash), int64(m.seen.Elapsed/time.Second)
	}
	return d
}

// lateAfter is for how long pods may not come on before lists tell of it, whatever they say; half the deadline where that is shorter.
const lateAfter = 5 * time.Minute

// progress says how far it is: "step 2: 3 of 5 new pods are ready".
func (m *move) progress() string {
	if m.req.Back {
		return fmt.Sprintf("step %d: %d of %d pods are back on the stable version and ready, %d new ones are left",
			m.req.Step, m.task.Ready, m.task.Size, m.numbers.Updated)
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

// strangers is how many pods are of neither version. They stay: the native controller would take stable pods in their place.
func (m *move) strangers() int32 {
	n := int32(0)
	for _, r := range m.seen.Revisions {
		if !m.tech.untouched() && r.Name != m.seen.Saved.Stable && r.Name != m.fresh.Name {
			total, _ := m.seen.Count(r)
			n += total
		}
	}
	return n
}
