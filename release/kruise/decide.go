package kruise

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// Do says what is to be done next about a Rollout.
type Do string

// What can be done. Each is one write, or one command, that can be made again; the object is looked at anew afterwards.
const (
	// DoNothing waits for the next change, or until NextAction.At.
	DoNothing Do = "nothing"
	// DoGuard puts the finalizer on the object, DoUnguard takes it off.
	DoGuard   Do = "guard"
	DoUnguard Do = "unguard"
	// DoHash notes the hash of the object's strategy on it.
	DoHash Do = "hash"
	// DoMark marks the workload as one that the object names; DoRelease gives what holds its change of template back; DoLetGo does both: it
	// takes the mark off as well.
	DoMark    Do = "mark"
	DoRelease Do = "release"
	DoLetGo   Do = "letGo"
	// DoShow writes NextAction.Status.
	DoShow Do = "show"
	// DoBegin begins a release, DoSupersede one that takes the place of the one under way.
	DoBegin     Do = "begin"
	DoSupersede Do = "supersede"
	// DoCommand sends NextAction.Command to the release, DoReplan its strategy as the object has it now.
	DoCommand Do = "command"
	DoReplan  Do = "replan"
)

// NextAction is what is to be done next, and why.
type NextAction struct {
	Do     Do
	Reason string
	// At is when to look again although nothing changes; zero: not at all.
	At time.Time
	// Status is for DoShow.
	Status *v1beta1.RolloutStatus
	// Workload is the one that is meant: not always the one that the object names now.
	Workload *Workload
	// Command is for DoCommand and DoReplan, Key its idempotency key; it is that of DoBegin and DoSupersede too. First is sent before it.
	Command rollout.Command
	First   *rollout.Command
	Key     string
	// Declared is the pod template to release; By is who has changed it, "" where nobody knows; Confirm why somebody has to approve that first.
	Declared strategy.Declared
	By       string
	Confirm  string
}

// Seen is what is known about an object when it is decided what to do.
type Seen struct {
	Object *v1beta1.Rollout
	// Workload is the one that the object names; nil when there is none. Strays are others that are marked as named by it.
	Workload *Workload
	Strays   []*Workload
	// Refused is why the last try to begin did not begin; "" when it is not known that it did not. RetryAt is when the next one is due.
	Refused string
	RetryAt time.Time
	Now     time.Time
}

// Decide says what is to be done next about an object. It goes by what is, so that any number of processes may ask.
func Decide(s Seen) NextAction {
	o := s.Object
	guarded := hasFinalizer(o)
	switch {
	case o.DeletionTimestamp != nil && !guarded:
		return NextAction{Do: DoNothing}
	case !guarded || o.DeletionTimestamp == nil && !isNamed(o): // one that another product's controller looked after has the finalizer
		return NextAction{Do: DoGuard, Reason: "it is to be told before it goes, and who looks after it"}
	case o.DeletionTimestamp == nil && o.Annotations[AnnotationHash] != StrategyHash(o.Spec.Strategy):
		return NextAction{Do: DoHash, Reason: "other tools compare it with the status"}
	case s.letsGo() && s.open():
		return s.detach()
	case len(s.Strays) > 0 && !s.open():
		return NextAction{Do: DoLetGo, Workload: s.Strays[0], Reason: "the Rollout names another workload"}
	case s.letsGo():
		return s.letGo()
	case s.open():
		return s.duringRelease()
	case s.Workload == nil: // whoever makes it marks it, unless the API server has no gate
		next := s.rest()
		next.At = s.Now.Add(lookForWorkload)
		return next
	case !s.marked():
		return NextAction{Do: DoMark, Workload: s.Workload, Reason: "changes of its pod template are held from now on"}
	}
	return s.atRest()
}

func hasFinalizer(o *v1beta1.Rollout) bool {
	for _, f := range o.Finalizers {
		if f == v1beta1.Finalizer {
			return true
		}
	}
	return false
}

// letsGo says that the object wants nothing of its workload any more.
func (s Seen) letsGo() bool { return s.Object.DeletionTimestamp != nil || s.Object.Spec.Disabled }

// open says that a release of the object is under way.
func (s Seen) open() bool { return s.Object.Status.Slipway != nil && s.Object.Status.Slipway.Open }

func (s Seen) marked() bool {
	return s.Workload.Labels[gate.Label] == gate.LabelValue(s.Object.Name)
}

// key names a command by what it was the answer to, so that several processes that see the same thing send one command.
func (s Seen) key(what string, of any) string {
	return fmt.Sprintf("%s/%s/%v", s.Object.UID, what, of)
}

// seq is the newest state that the engine has written.
func (s Seen) seq() int64 {
	if s.Object.Status.Slipway == nil {
		return 0
	}
	return s.Object.Status.Slipway.Seq
}

// detach has the release let go of the workload.
func (s Seen) detach() NextAction {
	reason := "the Rollout was disabled"
	if s.Object.DeletionTimestamp != nil {
		reason = "the Rollout was deleted"
	}
	return NextAction{Do: DoCommand, Reason: reason, Key: s.once("detach", s.Object.Generation), Command: rollout.Command{Verb: rollout.VerbDetach,
		Actor: editorOf(s.Object), Reason: reason, Generation: s.Object.Generation}}
}

// once names what a release is asked once, for each reason. One that is stuck is asked again in each state that it shows.
func (s Seen) once(what string, why any) string {
	of := fmt.Sprintf("%s/%v", s.Object.Status.Slipway.Release, why)
	for _, c := range s.Object.Status.Conditions {
		if c.Type == v1beta1.ConditionStalled {
			of = fmt.Sprintf("%s/%d", of, s.seq())
		}
	}
	return s.key(what, of)
}

// letGo takes everything of the object's off the workloads; then the object shows it, or goes.
func (s Seen) letGo() NextAction {
	if w := s.Workload; w != nil && w.DeletionTimestamp == nil && (s.marked() || w.Held != nil && w.Claim == "") {
		return NextAction{Do: DoLetGo, Workload: w, Reason: "its own controller goes on"}
	}
	if s.Object.DeletionTimestamp != nil {
		return NextAction{Do: DoUnguard, Reason: "nothing of it is left"}
	}
	return s.rest()
}

// rest shows the workload as it is.
func (s Seen) rest() NextAction { return s.show(Resting(s.Object, s.Workload, s.Now), "") }

// show writes a status that differs from the one that stands.
func (s Seen) show(status v1beta1.RolloutStatus, reason string) NextAction {
	if Same(status, s.Object.Status) {
		return NextAction{Do: DoNothing, Reason: reason}
	}
	return NextAction{Do: DoShow, Status: &status, Reason: reason}
}

// Same says whether two statuses say the same. The number of the state is no difference.
func Same(a, b v1beta1.RolloutStatus) bool {
	if a.Slipway == nil || b.Slipway == nil {
		return a.Slipway == b.Slipway && reflect.DeepEqual(a, b)
	}
	x, y := *a.Slipway, *b.Slipway
	x.Seq, y.Seq = 0, 0
	a.Slipway, b.Slipway = nil, nil
	return x == y && reflect.DeepEqual(a, b)
}

// lookForWorkload is how often a workload that does not exist yet is looked for.
const lookForWorkload = 15 * time.Second

// atRest looks for the change of the pod template that begins a release.
func (s Seen) atRest() NextAction {
	w, engine := s.Workload, s.Object.Status.Slipway
	declared := w.Template
	if w.Held == nil && w.Next != "" { // what was declared in the middle of a release that made way for it
		declared = w.Next
	}
	switch {
	case w.Claim != "" || w.Saved != nil: // another release works on it, or this one is about to close
		return NextAction{Do: DoNothing, Reason: "a release works on the workload"}
	case w.Held == nil && renumbered(s.Object, w):
		return s.begin(declared)
	case w.Held == nil && w.Next == "" || engine == nil:
		return s.rest()
	case w.Held != nil && w.Next == "" && (declared == engine.Template || engine.Template == "" && w.Whole()) && !renumbered(s.Object, w):
		return NextAction{Do: DoRelease, Workload: w, Reason: "its pod template is what it was"}
	case string(w.Held["/spec/paused"]) == "true":
		return s.show(Announced(s.Object, w, "its owner has paused the workload: its release begins when it is resumed", s.Now), "it is paused")
	}
	return s.begin(declared)
}

// begin announces a release, and begins it when its time has come.
func (s Seen) begin(declared string) NextAction {
	if s.Refused != "" {
		next := s.show(Announced(s.Object, s.Workload, s.Refused, s.Now), s.Refused)
		next.At = s.RetryAt
		return next
	}
	since, announced := announcedAt(s.Object.Status)
	if !announced || s.Object.Generation > s.Object.Status.ObservedGeneration {
		return s.show(Announced(s.Object, s.Workload, "", s.Now), "its pod template has changed")
	}
	if at := since.Add(Beginning); s.Now.Before(at) {
		return NextAction{Do: DoNothing, At: at, Reason: "the Rollout may still be edited"}
	}
	return s.release(DoBegin, declared, s.seq())
}

// announcedAt is since when the release has been about to begin.
func announcedAt(s v1beta1.RolloutStatus) (since time.Time, is bool) {
	for _, c := range s.Conditions {
		if c.Type == v1beta1.ConditionProgressing && c.Reason == v1beta1.ReasonInitializing && s.Phase == v1beta1.PhaseProgressing {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// release is a release of a pod template.
func (s Seen) release(do Do, declared string, of any) NextAction {
	next := NextAction{Do: do, Workload: s.Workload, Key: s.key(string(do), of) + "/" + declared, Reason: "the workload's pod template has changed",
		By: s.Workload.By, Declared: strategy.Declared{Template: declared, Images: s.Workload.Images}}
	if s.Workload.Held == nil && renumbered(s.Object, s.Workload) { // nothing notes who changes a label
		next.Reason, next.By = "the workload's rollout-id has changed", ""
	}
	if engine := s.Object.Status.Slipway; engine != nil && engine.RolledBack == declared {
		next.Confirm = "this version was rolled back, and is declared once more"
	}
	return next
}

// duringRelease passes on what clients and owners ask while a release is under way: by the status, by the object's spec, by the workload.
func (s Seen) duringRelease() NextAction {
	o := s.Object
	if c := Pending(o.Status); c != nil {
		command := rollout.Command{Verb: c.Verb, Actor: c.By, ToStep: c.ToStep, State: c.State, Gate: c.Gate}
		return NextAction{Do: DoCommand, Command: command, Key: s.key(string(c.Verb), c.State), Reason: "the status was changed"}
	}
	w := s.Workload
	if w == nil || w.DeletionTimestamp != nil {
		return NextAction{Do: DoCommand, Key: s.once("detach", "gone"), Reason: "the workload is gone",
			Command: rollout.Command{Verb: rollout.VerbDetach, Reason: "the workload was deleted"}}
	}
	if o.Generation > o.Status.ObservedGeneration {
		return s.edited()
	}
	if !o.Spec.Strategy.Paused && isPaused(o) && declaredPaused(o) { // it was unpaused before its pause was shown
		return NextAction{Do: DoCommand, Key: s.key("resume", fmt.Sprintf("%s/%d", o.Status.Slipway.Release, o.Generation)), Reason: "the Rollout was edited",
			Command: rollout.Command{Verb: rollout.VerbResume, Actor: editorOf(o), Reason: "spec.strategy.paused"}}
	}
	if next := s.redeclared(); next.Do != DoNothing {
		return next
	}
	return s.follow()
}

// edited passes on what the object's spec says now: its pause first, then its steps.
func (s Seen) edited() NextAction {
	o := s.Object
	paused := isPaused(o)
	next := NextAction{Do: DoReplan, Key: s.key("replan", o.Generation), Reason: "the Rollout was edited",
		Command: rollout.Command{Verb: rollout.VerbReplan, Actor: editorOf(o), Generation: o.Generation}}
	switch {
	case o.Spec.Strategy.Paused && !paused:
		next.First = &rollout.Command{Verb: rollout.VerbPause, Actor: editorOf(o), Reason: "spec.strategy.paused"}
	case !o.Spec.Strategy.Paused && paused && declaredPaused(o):
		next.First = &rollout.Command{Verb: rollout.VerbResume, Actor: editorOf(o), Reason: "spec.strategy.paused"}
	}
	return next
}

// isPaused says that the object shows a pause.
func isPaused(o *v1beta1.Rollout) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c v1beta1.Condition) bool {
		return c.Type == v1beta1.ConditionProgressing && c.Reason == v1beta1.ReasonPaused
	})
}

// declaredPaused says that the pause was the object's own: one that somebody has sent by another way stays when the object is edited.
func declaredPaused(o *v1beta1.Rollout) bool {
	return o.Status.Slipway != nil && o.Status.Slipway.PausedByObject
}

// editorOf is who has edited an object last.
func editorOf(o *v1beta1.Rollout) string { return o.Annotations[gate.AnnotationEditor] }

// redeclared passes on what a change of the workload's pod template asks for in the middle of its release.
func (s Seen) redeclared() NextAction {
	w, engine := s.Workload, s.Object.Status.Slipway
	saved := w.Saved
	if saved == nil || saved.Name != s.Object.Name || saved.Declared == "" {
		// What is held has not begun yet; a release that is over, and is about to show that, has given everything back.
		if w.Held != nil && w.Claim == "" && w.Saved == nil && w.Template != engine.Template {
			return NextAction{Do: DoCommand, Key: s.key("stop", engine.Release), Reason: "its pod template was changed again before it began",
				Command: rollout.Command{Verb: rollout.VerbStop, Actor: w.By, Reason: "the workload's pod template was changed again"}}
		}
		return NextAction{Do: DoNothing}
	}
	own := saved.Homeward != "" || saved.Retracting || w.Next == saved.Declared // the release itself has set the stable template
	switch w.Template {
	case saved.Declared:
		if !isRedeclared(s.Object.Status) {
			return NextAction{Do: DoNothing}
		}
		return NextAction{Do: DoCommand, Key: s.once("again", ""), Reason: "the workload declares what is released once more",
			Command: rollout.Command{Verb: rollout.VerbRetry, Actor: w.By, Reason: "the workload's pod template is what is released once more"}}
	case saved.StableTemplate:
		if own {
			return NextAction{Do: DoNothing}
		}
		return NextAction{Do: DoCommand, Key: s.once("rollback", ""), Reason: "the workload was set back to its stable template",
			Command: rollout.Command{Verb: rollout.VerbRollback, Actor: w.By, Reason: "the workload was set back to its stable pod template"}}
	}
	if s.Object.Spec.Strategy.BlueGreen != nil {
		return NextAction{Do: DoNothing, Reason: "a blue-green release has no room for a third version"}
	}
	return s.release(DoSupersede, w.Template, engine.Release)
}

// isRedeclared says that a release waits since its workload declares another version. Where that has been taken back before anybody looked,
// nothing on the workload differs from what the release left, so that nobody else tells it.
func isRedeclared(s v1beta1.RolloutStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == v1beta1.ConditionStalled && c.Reason == reasonRedeclared {
			return true
		}
	}
	return false
}
