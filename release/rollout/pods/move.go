package pods

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

type move struct {
	tech Technique
	req  rollout.MoveRequest
	seen Observed
	// newTemplate is the digest of the new template, as far as it is known; newRevision is its revision, empty until it
	// exists.
	newTemplate string
	newRevision Revision
	task        task
	numbers     rollout.MoveResult
}

// Move decides on the next action towards a step's number of pods.
func Move(tech Technique, req rollout.MoveRequest, seen Observed) NextAction {
	if d, stop := checkClaim(req.Subject, seen); stop {
		return d
	}
	m := &move{tech: tech, req: req, seen: seen, newTemplate: cmp.Or(req.Template, seen.Expected, seen.Declared)}
	if (tech.CountsPods() || m.onlyNumbers()) && !seen.PodsSeen {
		return readPods("read which revision its pods belong to")
	}
	m.plan() // a drift failure carries the pod counts as well
	d := m.next()
	return d.withNumbers(m.numbers)
}

func (m *move) next() NextAction {
	switch {
	case m.onlyNumbers():
		return m.numberStep()
	case m.req.Halt:
		if d, pins := m.pinAutoscaler(); pins { // it could scale the halted workload
			return d
		}
		return m.halt()
	case m.alreadyPromoted():
		return done(m.progress())
	case m.drifted():
		return failTemplateDrift(m.req.Subject, m.seen)
	case m.seen.EditConflict.Times > rollout.MaxRestores:
		return failEditConflict(m.req.Subject, m.seen.EditConflict)
	case m.seen.Lagging() && m.seen.Creation.Message != "":
		return m.wait("")
	case m.seen.Lagging():
		return m.wait("its controller has not seen the last change yet")
	}
	for _, decide := range []func() (NextAction, bool){m.undoEdits, m.recordNewAutoscalers, m.pinAutoscaler} {
		if d, due := decide(); due {
			return d
		}
	}
	d := m.techniqueAction()
	switch d.Action {
	case workload.ActWrite:
		return m.completeWrite(d)
	case workload.ActWait:
		return m.wait(d.Reason)
	case workload.ActDone:
		return m.endMove()
	case workload.ActDelete:
		if m.seen.BlockedByBudget != "" {
			return m.waitForBudget()
		}
	}
	return d
}

// waitForBudget waits while a PodDisruptionBudget prevents deletions. At the deadline it fails and names the budget.
func (m *move) waitForBudget() NextAction {
	m.numbers.Message = m.progress()
	d := next(workload.Waiting{Snapshot: m.seen.Snapshot, Workload: m.req.Workload, Progress: m.numbers.Message,
		Deadline: deadlineOf(m.req.Subject), CanFail: func(workload.Pod) bool { return false },
		PodReason: m.seen.BlockedByBudget, Explanation: m.seen.BlockedByBudget}.Next())
	d.RecheckAfter = workload.BudgetRetryInterval
	return m.reportStuck(d, m.seen.BlockedByBudget)
}

// reportStuck ends a move that waits, if the request wants to know why it is stuck.
func (m *move) reportStuck(d NextAction, why string) NextAction {
	if m.req.ReportStuck && d.Action == workload.ActWait {
		d.Action = workload.ActDone
		m.numbers.Stuck, m.numbers.SpentSeconds = why, int64(m.seen.Elapsed/time.Second)
	}
	return d
}

// techniqueAction returns the technique's next action, or the write that lets the workload's own controller go to the
// end.
func (m *move) techniqueAction() NextAction {
	if d, clears := m.tech.removeHung(m.task, m.seen); clears {
		return d
	}
	if !m.req.Native {
		return m.tech.next(m.task, m.seen)
	}
	if w := m.task.write("native", m.seen.settingsToWrite(nativeSettings(m.tech, m.seen)...)); !empty(w) {
		return set("let its own controller bring every pod to that version", w)
	}
	return done("")
}

// alreadyPromoted reports whether Finish already promoted the template, but its result was lost and the last step is
// being repeated. The extra pods serve until Finish ends.
func (m *move) alreadyPromoted() bool {
	mark := m.req.Claim + " " + string(rollout.SideNew)
	return m.tech.usesExtraWorkload() && !m.req.Back && m.newTemplate != "" && m.seen.Template == m.newTemplate &&
		m.seen.Saved.FinalTemplateBy == mark
}

// drifted reports whether another client has edited the template. It may be the stable one before the first Move and on
// a rollback.
func (m *move) drifted() bool {
	saved, live := m.seen.Saved, m.seen.Template
	isOurs, isStable := live == m.newTemplate && m.newTemplate != "", live == saved.StableTemplate
	switch {
	case m.req.OverwriteDrift:
		return false
	case m.tech.usesExtraWorkload() && saved.Declared == "":
		return !isStable
	}
	leaves := m.req.Back || saved.RollingBack || m.seen.leftOnStable()
	if saved.Declared == "" {
		leaves = leaves || m.req.Template == ""
	} else {
		leaves = leaves || m.seen.Next == m.newTemplate // it is kept in an annotation until its pods may start
	}
	return !isOurs && (!isStable || !leaves)
}

// failTemplateDrift fails because another client has edited the template.
func failTemplateDrift(s rollout.Subject, seen Observed) NextAction {
	if seen.Template == seen.Saved.StableTemplate {
		return failDrift(s, "set its pod template back to the stable version")
	}
	return failDrift(s, "changed its pod template")
}

func (m *move) plan() {
	seen, saved := m.seen, m.seen.Saved
	size := seen.Replicas
	stable, _ := seen.RevisionByName(saved.Stable)
	m.newRevision = newRevisionOf(m.tech, seen, m.newTemplate)
	if m.onlyNumbers() {
		m.newRevision = stable
	}
	target := strategy.Target(m.req.Style, m.req.Replicas, size)
	if m.req.KeepStable {
		target = max(min(target, size-1), 0)
	}
	t := task{Request: m.req, Size: size, Target: target, Aim: m.newRevision,
		Placed: seen.Template == m.newTemplate && m.newTemplate != ""}
	asked := t.Target
	if m.req.Back {
		asked = max(min(m.req.From, size)-strategy.RollbackTarget(m.req.Replicas, m.req.From), 0)
		t.Target, t.Aim, t.Placed = size-asked, stable, seen.Template == saved.StableTemplate
		t.Template.Revision = saved.Stable
	} else if !m.tech.usesExtraWorkload() {
		t.Template.Revision = m.newRevision.Name
	}
	t.Total, t.Ready = seen.Count(t.Aim)
	if e := seen.Extra; m.tech.usesExtraWorkload() && e != nil && !e.Lagging() && !m.onlyNumbers() {
		t.Total, t.Ready = e.Total, e.Ready
	}
	if m.req.Native && m.req.Halt { // its own controller may have moved beyond the step
		t.Target = size
	}
	t.Tolerated = strategy.ToleratedUnready(m.req.FailureThreshold, t.Target)
	m.task = t
	m.numbers = numbersOf(seen, m.newRevision, stable)
	m.numbers.Target = asked
	if m.tech.usesExtraWorkload() {
		m.numbers.Updated, m.numbers.UpdatedReady = t.Total, t.Ready
	}
	if t.Placed || m.req.Template != "" || m.tech.usesExtraWorkload() && seen.Extra != nil {
		m.numbers.Template = m.newTemplate
	}
}

// newRevisionOf returns the revision of the new version, empty until it exists.
func newRevisionOf(tech Technique, seen Observed, ours string) Revision {
	if tech.usesExtraWorkload() {
		if seen.Extra == nil {
			return Revision{}
		}
		return Revision{Name: seen.Extra.Hash, Hash: seen.Extra.Hash, Images: seen.Extra.Images}
	}
	if r, ok := seen.RevisionByTemplate(ours); ok && r.Name != seen.Saved.Stable {
		return r
	}
	r, _ := seen.RevisionByName(seen.Saved.Canary)
	return r
}

func numbersOf(seen Observed, fresh, stable Revision) rollout.MoveResult {
	n := rollout.MoveResult{Replicas: seen.Replicas, Canary: fresh.Name, CanaryHash: fresh.Hash,
		Generation: seen.Generation, Images: fresh.Images}
	n.Updated, n.UpdatedReady = seen.Count(fresh)
	_, n.StableReady = seen.Count(stable)
	return n
}

// recordNewAutoscalers records autoscalers that were added to a blue-green workload meanwhile, before they are pinned,
// so that they are restored later.
func (m *move) recordNewAutoscalers() (NextAction, bool) {
	saved := *m.seen.Saved
	for _, a := range m.seen.Autoscalers {
		if saved.Style == strategy.StyleBlueGreen && !slices.Contains(saved.Autoscalers, a.Name) {
			saved.Autoscalers = append(slices.Clone(saved.Autoscalers), a.Name)
		}
	}
	if len(saved.Autoscalers) == len(m.seen.Saved.Autoscalers) {
		return NextAction{}, false
	}
	return set("record an autoscaler that another client has added", &workload.Write{Step: "autoscaler",
		ExpectedClaim: m.req.Claim, Annotations: map[string]string{workload.AnnotationRollout: saved.String(),
			rollout.AnnotationRecover: rollout.RecoverText(saved, m.req.Workload)}}), true
}

// pinAutoscaler pins an autoscaler of a blue-green workload before the first pod starts, and again after another client
// has changed its limits. A halted move pins none for the first time.
func (m *move) pinAutoscaler() (d NextAction, pins bool) {
	i := slices.IndexFunc(m.seen.Autoscalers, func(a Autoscaler) bool {
		return slices.Contains(m.seen.Saved.Autoscalers, a.Name) && (a.Pinned && a.Edited || !a.Pinned && !m.req.Halt)
	})
	if i < 0 {
		return NextAction{}, false
	}
	name, size := m.seen.Autoscalers[i].Name, m.seen.Replicas
	return changeAutoscaler(AutoscalerChange{Name: name, Pin: &size},
		"pin the autoscaler %s to %d pods while both versions run", name, size), true
}

// completeWrite adds to a technique's write what is common to all techniques: the claim, and what is saved.
func (m *move) completeWrite(d NextAction) NextAction {
	w := d.Write
	w.ExpectedClaim = m.req.Claim
	next := *m.seen.Saved
	if m.numbers.Canary != "" && !m.req.Back { // the new revision's name, once it is known
		next.Canary = m.numbers.Canary
	}
	next.RollingBack = m.req.Back
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	if next.String() != m.seen.Saved.String() {
		w.Annotations[workload.AnnotationRollout] = next.String()
	}
	// the workload itself has it from now on
	if w.Template != nil && !m.req.Back && w.KeepTemplate == "" && m.seen.Next != "" && m.seen.Next == m.newTemplate {
		w.Remove = append(w.Remove, rollout.AnnotationNext)
	}
	if _, rests := w.Annotations[rollout.AnnotationSettled]; !rests && m.seen.Rest != nil &&
		len(m.seen.Rest.Settings) > 0 && len(w.Settings) > 0 {
		moving := *m.seen.Rest // later changes are the rollout's own
		moving.Settings = nil
		w.Annotations[rollout.AnnotationSettled] = moving.String()
	}
	return d
}

// endMove ends the move, or waits for pods that are not ready yet. If the step pauses, it first writes what the pause
// needs.
func (m *move) endMove() NextAction {
	t := m.task
	unready := m.req.Native && t.Ready < t.Target || !m.req.Native && !t.settled()
	if unready || t.Total < t.Target || t.Placed && t.Aim.Hash == "" && t.Target > 0 {
		return m.wait("")
	}
	m.numbers.Message = m.progress()
	if d, numbers := numberPods(m.req.Batch, m.numbers.CanaryHash, m.task.Aim, m.seen, m.req.Style); numbers {
		d.Ends = d.Number != nil && !m.req.Settle
		return d
	}
	if !m.req.Settle {
		return done(m.numbers.Message)
	}
	settings := m.tech.pauseSettings(t, m.seen)
	w := &workload.Write{Step: "rest", Settings: m.seen.settingsToWrite(slices.Clone(settings)...),
		Annotations: map[string]string{}}
	rest := rollout.SettledState{Template: m.seen.Template, Replicas: m.seen.Replicas, Surge: m.tech.surplus(m.seen),
		Settings: m.recordedSettings(settings)}
	m.record(w, rest)
	// other tools read this of the new pods of a Deployment under a Rollout object
	if text := rollout.ExtraStatus(m.numbers.UpdatedReady, m.numbers.Target); m.seen.Saved.Declared != "" &&
		m.req.Workload.WorkloadRef.Lookup().Means == workload.Limits && m.seen.ExtraStatus != text {
		w.Annotations[rollout.AnnotationExtraStatus] = text
	}
	return m.finalWrite(w, m.numbers.Message+": paused")
}

// record adds the pause record to a write, unless the workload has it already.
func (m *move) record(w *workload.Write, rest rollout.SettledState) {
	if m.seen.Rest == nil || m.seen.Rest.String() != rest.String() {
		w.Annotations[rollout.AnnotationSettled] = rest.String()
	}
}

// recordedSettings returns the borrowed fields as these settings leave them, in canonical JSON, as the annotation
// stores them.
func (m *move) recordedSettings(settings []workload.Setting) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	for _, path := range m.tech.Pointers() {
		fields[path] = workload.Canonical(m.seen.Settings[path])
	}
	for _, s := range settings {
		fields[s.Path] = workload.Canonical(s.Value)
	}
	return fields
}

// stableWhileEmpty gives a workload without pods the stable template. Its controller would create all its next pods
// from the live one: a paused Deployment does, and so does a controller that takes an update for done when there are no
// pods to update.
func stableWhileEmpty(seen Observed) NextAction {
	keep := ""
	if seen.mustKeepTemplate() {
		keep = rollout.AnnotationNext
	}
	rest := rollout.SettledState{Template: seen.Saved.StableTemplate}
	if seen.Rest != nil {
		rest.Settings = seen.Rest.Settings
	}
	return set("set the stable template while it has no pods: otherwise its next pods would all be new",
		&workload.Write{Step: "empty", Template: &workload.Template{Revision: seen.Saved.Stable}, KeepTemplate: keep,
			Annotations: map[string]string{rollout.AnnotationSettled: rest.String()}})
}

// undoEdits restores the fields that another client has changed during a pause. A technique with pause settings of its
// own handles them in its next action.
func (m *move) undoEdits() (NextAction, bool) {
	if !m.req.Inspect && !m.req.OverwriteDrift || m.seen.Rest == nil || m.tech.pauseSettings(m.task, m.seen) != nil {
		return NextAction{}, false
	}
	settings := m.fieldsToRestore()
	if len(settings) == 0 {
		return NextAction{}, false
	}
	return set("restore the fields that another client has changed during the pause",
		&workload.Write{Step: "undisturb", Settings: settings, ExpectedClaim: m.req.Claim}), true
}

// fieldsToRestore returns the fields that another client has changed during a pause, with their recorded values.
func (m *move) fieldsToRestore() (settings []workload.Setting) {
	// what holds another template's pods stays
	if m.seen.Rest == nil || m.seen.Saved.Declared != "" && m.seen.Template != m.newTemplate {
		return nil
	}
	for _, path := range m.seen.Rest.ChangedFields(m.seen.Settings) {
		settings = append(settings, workload.Setting{Path: path, Value: m.seen.Rest.Settings[path]})
	}
	return settings
}

// halt pauses the workload after an interrupted Move, at any point: no pod moves until a decision is made. The state is
// recorded as at the end of a step, unless nothing of the new version is on the workload yet.
func (m *move) halt() NextAction {
	m.numbers.Message = m.progress() + ": halted"
	if d, shrunk := m.rescaleExtra(); shrunk {
		return d
	}
	settings := m.tech.pauseSettings(m.task, m.seen)
	if settings == nil {
		settings = m.fieldsToRestore()
	}
	w := &workload.Write{Step: "halt", Settings: m.seen.settingsToWrite(slices.Clone(settings)...),
		Annotations: map[string]string{}}
	rest := rollout.SettledState{Surge: m.tech.surplus(m.seen)}
	begun := m.task.Placed || settings != nil || m.tech.usesExtraWorkload() && m.seen.Extra != nil
	if begun {
		rest.Template, rest.Replicas, rest.Settings = m.seen.Template, m.seen.Replicas, m.recordedSettings(settings)
	}
	if begun || rest.Surge != recordedSurplus(m.seen) {
		m.record(w, rest)
	}
	return m.finalWrite(w, m.numbers.Message)
}

// rescaleExtra restores the size of an extra Deployment that another client has scaled down while the rollout is
// halted.
func (m *move) rescaleExtra() (NextAction, bool) {
	e := m.seen.Extra
	if !m.tech.usesExtraWorkload() || e == nil || e.Deleting || e.CanaryOf != strategy.CanaryOf(
		m.req.Workload.WorkloadRef.Name) || e.Replicas >= min(e.RecordedSize, m.task.Size) {
		return NextAction{}, false
	}
	size := min(e.RecordedSize, m.task.Size) // any client may edit the recorded size
	return changeExtra(ExtraChange{Replicas: &size}, "scale %s back to %d pods", e.Name, size), true
}

// finalWrite ends the move with a write, or at once if there is nothing to write.
func (m *move) finalWrite(w *workload.Write, reason string) NextAction {
	if len(w.Settings) == 0 && len(w.Annotations) == 0 {
		return done(m.numbers.Message)
	}
	d := m.completeWrite(set(reason, w))
	d.Ends = true
	return d
}

func (m *move) wait(text string) NextAction {
	progress := m.progress()
	if text == "" && m.task.Target > 0 && m.task.Ready >= m.task.Target {
		text = m.missing()
	}
	if text != "" {
		progress += ", " + text
	}
	m.numbers.Message = progress
	job := waiting(m.req.Subject, m.seen, m.task.Aim.Hash, progress, m.task.Tolerated)
	d := next(job.Next())
	if d.Action != workload.ActWait {
		return d
	}
	in, troubled := job.ReportIn()
	late := m.seen.PodsSeen && m.seen.StalledFor >= min(deadlineOf(m.req.Subject)/2, reportStuckAfter)
	switch {
	case troubled && in == 0 || late:
		return m.reportStuck(d, explain(m.seen, m.task.Aim.Hash))
	case troubled && m.req.ReportStuck && (d.RecheckAfter == 0 || in < d.RecheckAfter):
		d.RecheckAfter = in
	}
	return d
}

// missing names what a move waits for whose number of new pods is reached.
func (m *move) missing() string {
	switch {
	case m.task.Ready < m.task.Total:
		return phrase.CountOf(int(m.task.Total-m.task.Ready), "more is", "more are") + " not ready yet"
	case m.seen.Saved.Style != strategy.StyleBlueGreen && desiredPods(m.seen) > m.task.Size:
		return "pods that they replace are still to be removed"
	}
	return "its controller has not finished the change yet"
}

// reportStuckAfter is how long pods may make no progress before the move is reported as stuck, in any status; half the
// deadline if that is shorter.
const reportStuckAfter = 5 * time.Minute

// progress describes how far the move is: "step 2: 3 of 5 new pods are ready".
func (m *move) progress() string {
	if m.req.Back {
		return fmt.Sprintf("step %d: %d of %d pods are back on the stable version and ready, %d new ones are left",
			m.req.Step, m.task.Ready, m.task.Size, m.numbers.Updated)
	}
	if m.onlyNumbers() {
		return fmt.Sprintf("step %d: %d of the %d pods that get the rollout-id %s are ready", m.req.Step,
			min(m.task.Ready, m.task.Target), m.task.Target, m.req.Batch.RolloutID)
	}
	text := fmt.Sprintf("step %d: %d of %d new pods are ready", m.req.Step, m.task.Ready, m.task.Target)
	if m.task.Total > m.task.Target {
		text += fmt.Sprintf(" (%d are new)", m.task.Total)
	}
	if n := m.foreignPods(); n > 0 {
		left := "another client's edit"
		if m.seen.Saved.Over != "" {
			left = "the update that hung"
		}
		text += fmt.Sprintf(", %d of neither version, left by %s, stay until more pods move", n, left)
	}
	return text
}

// foreignPods returns how many pods are of neither version. They stay: the native controller would remove stable pods
// instead.
func (m *move) foreignPods() int32 {
	n := int32(0)
	for _, r := range m.seen.Revisions {
		if !m.tech.usesExtraWorkload() && r.Name != m.seen.Saved.Stable && r.Name != m.newRevision.Name {
			total, _ := m.seen.Count(r)
			n += total
		}
	}
	return n
}
