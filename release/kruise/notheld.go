package kruise

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/strategy"
)

// reasonNotHeld is the reason of ConditionNotHeld, and of the conditions that say how the last release ended: a change
// that passed is no success.
const reasonNotHeld = "ChangeNotHeld"

// youngFor is how long after the creation of a Rollout and its workload the first look at both asks whether a change of
// the pod template came between.
const youngFor = 10 * time.Minute

// mayHavePassed reports whether pods of an idle workload may have moved to another template although the Rollout was
// there: an API server that has just started may not apply the gate yet, and some clusters have none. NotHeld decides.
func (s Snapshot) mayHavePassed() bool {
	w, status := s.Workload, s.Object.Status
	if !w.Moves || w.Size == 0 || status.Phase == v1beta1.PhaseDisabled || status.Phase == v1beta1.PhaseDisabling {
		return false
	}
	if known := s.engine().Template; known != "" {
		// the digest of an unchanged template may differ after an upgrade of the engine
		return known != w.Template && w.Generation > commonOf(status).ObservedWorkloadGeneration
	}
	if status.Phase != "" && status.Phase != v1beta1.PhaseInitial { // another controller or a release has seen both
		return false
	}
	return s.Now.Sub(bothSince(s.Object, w).Time) < youngFor || w.Updated < w.Total
}

// bothSince returns since when a Rollout and its workload exist.
func bothSince(r *v1beta1.Rollout, w metav1.Object) metav1.Time {
	since, created := r.CreationTimestamp, w.GetCreationTimestamp()
	if since.Before(&created) {
		return created
	}
	return since
}

// NotHeld is a change of a workload's pod template that moved pods without a release.
type NotHeld struct {
	// Manager is the field manager of the client that made it, as far as it is known, At the time of the change.
	Manager string
	At      time.Time
}

// FindNotHeld returns the change of the workload's pod template that nothing held since its Rollout was there, or since
// the template in the Rollout's status served; nil if there is none, or if a release of Slipway made it. Times are in
// whole seconds: a change in the second in which the Rollout was made counts, for it may have come after it.
func FindNotHeld(r *v1beta1.Rollout, w metav1.Object) *NotHeld {
	manager, at := fieldmanager.Last(w, "/spec/template")
	known := r.Status.Slipway != nil && r.Status.Slipway.Template != ""
	made, created := r.CreationTimestamp, w.GetCreationTimestamp()
	after := created.Before(&at) && !at.Before(&made)
	if manager == fieldmanager.Slipway || !known && !after {
		return nil
	}
	return &NotHeld{Manager: manager, At: at.Time}
}

// Text says what changed, and why nothing held it.
func (n NotHeld) Text(w *Workload, why string) string {
	by := ""
	if n.Manager != "" {
		by = fmt.Sprintf(" by the client %q at %s", n.Manager, n.At.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("the pod template of %s %s was changed%s (%s), and nothing held the change: %s. Its pods move "+
		"to it without the steps of this Rollout. The next change is held: the template before, set again, goes through "+
		"the steps", w.Ref.Kind, w.Name, by, strategy.ImageList(w.Images), why)
}

// Reported returns the action that shows the workload once it is known whether a change of its pod template was not
// held: text says what changed, "" if every change was held.
func (s Snapshot) Reported(w *Workload, text string) NextAction {
	s.Workload = w
	if text == "" {
		return s.showIdle()
	}
	return s.writeStatus(notHeldStatus(s.Object, w, text, s.Now), text)
}

// notHeldStatus returns the status of an object whose workload moves without a release. Conditions by which clients
// recognise the end of a release show no success.
func notHeldStatus(object *v1beta1.Rollout, w *Workload, text string, now time.Time) v1beta1.RolloutStatus {
	all := conditionList{before: object.Status.Conditions, now: now}
	all.set(v1beta1.ConditionProgressing, false, reasonNotHeld, text)
	all.set(v1beta1.ConditionSucceeded, false, reasonNotHeld, text)
	all.set(v1beta1.ConditionNotHeld, true, reasonNotHeld, text)
	shown := object.DeepCopy()
	shown.Status.Conditions = all.list
	return IdleStatus(shown, w, now)
}

// showMoved adds to the message of a change that nothing held how many pods have it.
func showMoved(status *v1beta1.RolloutStatus, w *Workload) {
	if w != nil && conditionOf(status.Conditions, v1beta1.ConditionNotHeld).Type != "" {
		status.Message += fmt.Sprintf(". %d of %d pods have it", min(w.Updated, w.Size), w.Size)
	}
}
