package kruise

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// ActionKind is the kind of the next action for a Rollout object.
type ActionKind string

// The kinds of actions. Each is one write or one command, and is safe to repeat; afterwards the object is read and
// decided again.
const (
	// DoNothing waits for the next change, or until NextAction.At.
	DoNothing ActionKind = "nothing"
	// DoAddFinalizer adds the finalizer to the object and names the engine that manages it; DoRemoveFinalizer removes
	// the finalizer.
	DoAddFinalizer    ActionKind = "guard"
	DoRemoveFinalizer ActionKind = "unguard"
	// DoWriteHash writes the hash of the object's strategy to its annotation.
	DoWriteHash ActionKind = "hash"
	// DoMark marks the workload as named by the object. DoUnhold restores the fields that hold a change of its pod
	// template (it ends the hold); DoUnmark does that and also removes the mark.
	DoMark   ActionKind = "mark"
	DoUnhold ActionKind = "release"
	DoUnmark ActionKind = "letGo"
	// DoWriteStatus writes NextAction.Status.
	DoWriteStatus ActionKind = "show"
	// DoReport finds out whether a change of the workload's pod template was not held (NotHeld), reports it, and shows
	// the workload's current state.
	DoReport ActionKind = "report"
	// DoStart starts a release, DoSupersede one that replaces the release in progress.
	DoStart     ActionKind = "begin"
	DoSupersede ActionKind = "supersede"
	// DoCommand sends NextAction.Command to the release, DoReplan the object's current strategy.
	DoCommand ActionKind = "command"
	DoReplan  ActionKind = "replan"
)

// NextAction is the next action, and the reason for it.
type NextAction struct {
	Kind   ActionKind
	Reason string
	// At is when to decide again even if nothing changes; zero: never.
	At time.Time
	// Status is for DoWriteStatus.
	Status *v1beta1.RolloutStatus
	// Workload is the workload to act on: not always the one that the object names now.
	Workload *Workload
	// Command is for DoCommand and DoReplan. Key is its idempotency key, also that of DoStart and DoSupersede. First is
	// a command that is sent before it.
	Command rollout.Command
	First   *rollout.Command
	Key     string
	// Declared is the pod template to release. By is the user that changed it, "" if unknown. Confirm is why the
	// release needs an approval before it starts; "": it needs none.
	Declared strategy.Declared
	By       string
	Confirm  string
	// NameSource is where the names in By, Command and First were read; "" without names.
	NameSource NameSource
}

// Snapshot is the state from which the next action is decided.
type Snapshot struct {
	Object *v1beta1.Rollout
	// Workload is the one that the object names; nil if it does not exist. Strays are other workloads that carry the
	// object's mark.
	Workload *Workload
	Strays   []*Workload
	// Extra is the extra workload of the release in progress; nil if it has none.
	Extra *Extra
	// Refused is why the last attempt to start a release failed; "" if none is known to have failed. RetryAt is when
	// the next attempt is due.
	Refused string
	RetryAt time.Time
	// Unchecked is why nothing proves that the authors of the object may change what it refers to; "" if it is proved.
	Unchecked string
	Now       time.Time
}

// Decide returns the next action for an object. It depends only on the snapshot, so any number of processes may call
// it.
func Decide(s Snapshot) NextAction {
	o := s.Object
	guarded := slices.Contains(o.Finalizers, v1beta1.Finalizer)
	_, named := Manages(workload.Engine{}, o)
	switch {
	case o.DeletionTimestamp != nil && !guarded:
		return NextAction{Kind: DoNothing}
	// an object of the other product's controller already has the finalizer, but names no engine
	case !guarded || o.DeletionTimestamp == nil && !named:
		return NextAction{Kind: DoAddFinalizer, Reason: "the Rollout lacks the finalizer or the name of its engine"}
	case o.DeletionTimestamp == nil && o.Annotations[AnnotationHash] != StrategyHash(o.Spec.Strategy):
		return NextAction{Kind: DoWriteHash, Reason: "the strategy hash is out of date"}
	case s.wantsDetach() && s.releaseInProgress():
		return s.detach()
	case len(s.Strays) > 0 && !s.releaseInProgress():
		return NextAction{Kind: DoUnmark, Workload: s.Strays[0], Reason: "the Rollout names another workload"}
	case s.wantsDetach():
		return s.unmark()
	case s.releaseInProgress():
		return s.duringRelease()
	case s.Workload == nil: // the gate marks it at its creation; poll for it in case the API server has no gate
		next := s.showIdle()
		next.At = s.Now.Add(missingWorkloadInterval)
		return next
	case !Marked(s.Object, s.Workload):
		return NextAction{Kind: DoMark, Workload: s.Workload,
			Reason: "the workload has no mark yet: its pod template changes are held once it has"}
	}
	return s.decideIdle()
}

// wantsDetach reports whether the object no longer controls its workload: it is being deleted or disabled.
func (s Snapshot) wantsDetach() bool {
	return s.Object.DeletionTimestamp != nil || s.Object.Spec.Disabled
}

// releaseInProgress reports whether a release of the object is in progress.
func (s Snapshot) releaseInProgress() bool { return s.engine().Open }

// engine returns the engine's own fields of the status.
func (s Snapshot) engine() v1beta1.EngineStatus {
	return ptr.Deref(s.Object.Status.Slipway, v1beta1.EngineStatus{})
}

// key returns a command's idempotency key, made from the state that the command reacts to: several processes that see
// the same state send one command.
func (s Snapshot) key(what string, of any) string {
	return fmt.Sprintf("%s/%s/%v", s.Object.UID, what, of)
}

// detach makes the release give up the workload.
func (s Snapshot) detach() NextAction {
	reason := "the Rollout was disabled"
	if s.Object.DeletionTimestamp != nil {
		reason = "the Rollout was deleted"
	}
	return NextAction{Kind: DoCommand, Reason: reason, Key: s.onceKey("detach", s.Object.Generation),
		NameSource: NamedOnRollout,
		Command: rollout.Command{Verb: rollout.VerbDetach,
			Actor: editorOf(s.Object), Reason: reason, Generation: s.Object.Generation}}
}

// commandOf identifies a command among those of a release: the state that it reacts to and, since a state may carry
// several jumps one after the other, its step.
func commandOf(c rollout.Command) string {
	if c.Verb == rollout.VerbJump {
		return fmt.Sprintf("%d/%d", c.State, c.ToStep)
	}
	return fmt.Sprint(c.State)
}

// onceKey returns the idempotency key of a command that a release gets once for each reason. A stalled release gets it
// again for each status that it shows.
func (s Snapshot) onceKey(what string, why any) string {
	of := fmt.Sprintf("%s/%v", s.Object.Status.Slipway.Release, why)
	if conditionOf(s.Object.Status.Conditions, v1beta1.ConditionStalled).Type != "" {
		of = fmt.Sprintf("%s/%d", of, s.engine().Seq)
	}
	return s.key(what, of)
}

// unmark removes the object's marks and holds from the workload; then the object shows that, or loses its finalizer.
func (s Snapshot) unmark() NextAction {
	if w := s.Workload; w != nil && w.DeletionTimestamp == nil && (Marked(s.Object, w) || w.Held != nil && w.Claim == "") {
		return NextAction{Kind: DoUnmark, Workload: w, Reason: "the workload's own controller takes over again"}
	}
	if s.Object.DeletionTimestamp != nil {
		return NextAction{Kind: DoRemoveFinalizer, Reason: "no marks or releases of the Rollout are left"}
	}
	return s.showIdle()
}

// showIdle shows the workload's current state.
func (s Snapshot) showIdle() NextAction {
	return s.writeStatus(IdleStatus(s.Object, s.Workload, s.Now), "")
}

// writeStatus returns DoWriteStatus if the status differs from the stored one, else DoNothing.
func (s Snapshot) writeStatus(status v1beta1.RolloutStatus, reason string) NextAction {
	showUnchecked(&status, s.Object.Status.Conditions, s.Unchecked, s.Now)
	if SameStatus(status, s.Object.Status) {
		return NextAction{Kind: DoNothing, Reason: reason}
	}
	return NextAction{Kind: DoWriteStatus, Status: &status, Reason: reason}
}

// SameStatus reports whether two statuses are equal, apart from the sequence number.
func SameStatus(a, b v1beta1.RolloutStatus) bool {
	if a.Slipway != nil && b.Slipway != nil {
		x, y := *a.Slipway, *b.Slipway
		x.Seq, y.Seq = 0, 0
		a.Slipway, b.Slipway = &x, &y
	}
	return reflect.DeepEqual(a, b)
}

// missingWorkloadInterval is how often a workload that does not exist yet is read.
const missingWorkloadInterval = 15 * time.Second

// decideIdle checks for a change of the pod template or the rollout-id, which starts a release.
func (s Snapshot) decideIdle() NextAction {
	w, known := s.Workload, s.engine().Template
	declared := w.Template
	if w.Held == nil && w.Next != "" { // declared during a release that ended early because of it
		declared = w.Next
	}
	switch {
	case w.Claim != "" || w.Saved != nil: // another release has claimed it, or this one is about to end
		return NextAction{Kind: DoNothing, Reason: "a release has claimed the workload"}
	case w.Held == nil && rolloutIDChanged(s.Object, w):
		return s.begin(declared)
	case w.Held == nil && w.Next == "" && s.mayHavePassed():
		return NextAction{Kind: DoReport, Workload: w, Reason: "nothing may have held a change of its pod template"}
	case w.Held == nil && w.Next == "":
		return s.showIdle()
	// a change that was held before the engine first saw the Rollout is released like any other
	case w.Held != nil && w.Next == "" && (declared == known || known == "" && w.AllUpdated()) &&
		!rolloutIDChanged(s.Object, w):
		return NextAction{Kind: DoUnhold, Workload: w, Reason: "its pod template is the stable one again"}
	case string(w.Held["/spec/paused"]) == "true":
		return s.writeStatus(AnnouncedStatus(s.Object, w,
			"the workload is paused by its owner: resume it to start its release", s.Now), "the workload is paused")
	}
	return s.begin(declared)
}

// begin announces a release, and starts it after AnnouncementDelay.
func (s Snapshot) begin(declared string) NextAction {
	if s.Refused != "" {
		next := s.writeStatus(AnnouncedStatus(s.Object, s.Workload, s.Refused, s.Now), s.Refused)
		next.At = s.RetryAt
		return next
	}
	since, announced := announcedAt(s.Object.Status)
	if !announced || s.Object.Generation > s.Object.Status.ObservedGeneration {
		return s.writeStatus(AnnouncedStatus(s.Object, s.Workload, "", s.Now), "its pod template has changed")
	}
	if at := since.Add(AnnouncementDelay); s.Now.Before(at) {
		return NextAction{Kind: DoNothing, At: at, Reason: "the Rollout may still be edited"}
	}
	return s.release(DoStart, declared, s.engine().Seq)
}

// announcedAt returns when the pending release was announced; false if none is.
func announcedAt(s v1beta1.RolloutStatus) (since time.Time, is bool) {
	c := conditionOf(s.Conditions, v1beta1.ConditionProgressing)
	return c.LastTransitionTime.Time, c.Reason == v1beta1.ReasonInitializing && s.Phase == v1beta1.PhaseProgressing
}

// release returns the action that starts a release of a pod template.
func (s Snapshot) release(do ActionKind, declared string, of any) NextAction {
	next := NextAction{Kind: do, Workload: s.Workload, Key: s.key(string(do), of) + "/" + declared,
		Reason: "the workload's pod template has changed",
		By:     s.Workload.By, NameSource: NamedOnWorkload,
		Declared: strategy.Declared{Template: declared, Images: s.Workload.Images,
			NewID: rolloutIDChanged(s.Object, s.Workload)}}
	if s.Workload.Held == nil && next.Declared.NewID { // no policy records who changes a label
		next.Reason, next.By = "the workload's rollout-id has changed", ""
	}
	if s.Object.Status.Slipway != nil && s.engine().RolledBack == declared {
		next.Confirm = "this version was rolled back before and is declared again"
	}
	return next
}

// duringRelease forwards requests to the release in progress. They come from changes of the object's status, the
// object's spec, or the workload.
func (s Snapshot) duringRelease() NextAction {
	o := s.Object
	if c := pending(o.Status); c != nil {
		return NextAction{Kind: DoCommand, Command: *c, Key: s.key(string(c.Verb), commandOf(*c)),
			NameSource: NamedInStatus, Reason: "the status was changed"}
	}
	w := s.Workload
	if w == nil || w.DeletionTimestamp != nil {
		return NextAction{Kind: DoCommand, Key: s.onceKey("detach", "gone"), Reason: "the workload was deleted",
			Command: rollout.Command{Verb: rollout.VerbDetach, Reason: "the workload was deleted"}}
	}
	if o.Generation > o.Status.ObservedGeneration {
		return s.edited()
	}
	// it was unpaused before the status showed its pause
	if !o.Spec.Strategy.Paused && isPaused(o) && s.engine().PausedByObject {
		return NextAction{Kind: DoCommand, Key: s.key("resume",
			fmt.Sprintf("%s/%d", o.Status.Slipway.Release, o.Generation)), Reason: "the Rollout was edited",
			NameSource: NamedOnRollout,
			Command:    rollout.Command{Verb: rollout.VerbResume, Actor: editorOf(o), Reason: "spec.strategy.paused"}}
	}
	if next := s.redeclared(); next.Kind != DoNothing {
		return next
	}
	return s.follow()
}

// edited forwards a change of the object's spec: first its pause, then its steps.
func (s Snapshot) edited() NextAction {
	o := s.Object
	paused := isPaused(o)
	next := NextAction{Kind: DoReplan, Key: s.key("replan", o.Generation), Reason: "the Rollout was edited",
		NameSource: NamedOnRollout,
		Command:    rollout.Command{Verb: rollout.VerbReplan, Actor: editorOf(o), Generation: o.Generation}}
	switch {
	case o.Spec.Strategy.Paused && !paused:
		next.First = &rollout.Command{Verb: rollout.VerbPause, Actor: editorOf(o), Reason: "spec.strategy.paused"}
	case !o.Spec.Strategy.Paused && paused && s.engine().PausedByObject:
		next.First = &rollout.Command{Verb: rollout.VerbResume, Actor: editorOf(o), Reason: "spec.strategy.paused"}
	}
	return next
}

// isPaused reports whether the object's status shows a pause. Only one that came from the object's spec ends with an
// edit of the object: a pause sent another way (CLI, API) survives it.
func isPaused(o *v1beta1.Rollout) bool {
	return conditionOf(o.Status.Conditions, v1beta1.ConditionProgressing).Reason == v1beta1.ReasonPaused
}

// editorOf returns the user that edited the object last.
func editorOf(o *v1beta1.Rollout) string { return o.Annotations[gate.AnnotationEditor] }

// redeclared forwards a change of the workload's pod template during its release.
func (s Snapshot) redeclared() NextAction {
	w, engine := s.Workload, s.Object.Status.Slipway
	saved := w.Saved
	if saved == nil || saved.Name != s.Object.Name || saved.Declared == "" {
		// The change is held and its release has not claimed the workload yet. A release that has ended, but not shown
		// that yet, holds nothing any more.
		if w.Held != nil && w.Claim == "" && w.Saved == nil && w.Template != engine.Template {
			return NextAction{Kind: DoCommand, Key: s.key("stop", engine.Release),
				Reason: "the pod template was changed again before its release started", NameSource: NamedOnWorkload,
				Command: rollout.Command{Verb: rollout.VerbStop, Actor: w.By,
					Reason: "the workload's pod template was changed again"}}
		}
		return NextAction{Kind: DoNothing}
	}
	// the release itself wrote the stable template
	byRelease := saved.FinalTemplateBy != "" || saved.RollingBack || w.Next == saved.Declared
	switch w.Template {
	case saved.Declared:
		// If another version was declared and reverted before the release read it, the workload looks as the release
		// left it: only this condition shows that the release needs a retry.
		if conditionOf(s.Object.Status.Conditions, v1beta1.ConditionStalled).Reason != reasonRedeclared {
			return NextAction{Kind: DoNothing}
		}
		return NextAction{Kind: DoCommand, Key: s.onceKey("again", ""),
			Reason: "the workload declares the released version again", NameSource: NamedOnWorkload,
			Command: rollout.Command{Verb: rollout.VerbRetry, Actor: w.By,
				Reason: "the workload declares the released pod template again"}}
	case saved.StableTemplate:
		if byRelease {
			return NextAction{Kind: DoNothing}
		}
		return NextAction{Kind: DoCommand, Key: s.onceKey("rollback", ""),
			Reason: "the workload was set back to its stable template", NameSource: NamedOnWorkload,
			Command: rollout.Command{Verb: rollout.VerbRollback, Actor: w.By,
				Reason: "the workload was set back to its stable pod template"}}
	}
	// a release of a new rollout-id has only one version
	if s.Object.Spec.Strategy.BlueGreen != nil && saved.Declared != saved.StableTemplate {
		return NextAction{Kind: DoNothing, Reason: "a blue-green release cannot take a third version"}
	}
	return s.release(DoSupersede, w.Template, engine.Release)
}
