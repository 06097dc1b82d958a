package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
)

// Reverse describes how to reverse a task. A user has to create and execute its plan.
type Reverse struct {
	// Document is a plan that restores what the task changed, in reverse order; absent if a plan can restore nothing.
	Document *Document `json:"document,omitempty"`
	// Notes are sentences on what the plan leaves out and why. They are never empty if there is no plan.
	Notes []string `json:"notes,omitempty"`
}

// digestLength is the length of the digest in a reverse plan's name; maxPlanName is the maximum length of a plan's
// name.
const digestLength, maxPlanName = 10, 63

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ReverseName returns the name of the plan that reverses a task. Each task has one.
func ReverseName(plan, task string) string {
	digest := sha256.Sum256([]byte(task))
	suffix := "-reverse-" + lowerBase32.EncodeToString(digest[:])[:digestLength]
	return strings.TrimRight(plan[:min(len(plan), maxPlanName-len(suffix))], "-._") + suffix
}

// reverser collects the reverse of one task.
type reverser struct {
	task  Task
	snap  Snapshot
	items []Item
	notes []string
	// restarted are the services that have new pods of the same version.
	restarted []string
}

func newReverse(t Task, waves []Wave, snap Snapshot) Reverse {
	r := &reverser{task: t, snap: snap}
	if !t.State.Final() {
		r.note("The task is %s: this covers what it has done so far.", t.State)
	}
	// The last wave is reversed first: the number of a wave, counted from 1, is the priority of its items in the
	// reverse plan.
	for number := len(waves); number > 0; number-- {
		for _, i := range waves[number-1].Items {
			r.service(i, int64(number))
		}
	}
	if len(r.restarted) > 0 {
		r.note("RESTART has no reverse: the workloads of %s have new pods of the same version.",
			nameServices(r.restarted, len(r.restarted)))
	}
	if len(r.items) == 0 {
		r.note("Nothing is to be reversed by a plan.")
		return Reverse{Notes: r.notes}
	}
	if !t.State.Final() {
		r.note("The plan can be executed once the task has ended.")
	}
	comment := fmt.Sprintf("reverse of task %s of plan %s", t.ID, t.Plan)
	return Reverse{Document: &Document{Comment: comment, Items: r.items}, Notes: r.notes}
}

func (r *reverser) service(i int, priority int64) {
	status := r.task.Services[i]
	if !reversible(status.Deployment) {
		if slices.ContainsFunc(status.Workloads, func(w WorkloadStatus) bool { return w.Changed }) {
			r.restarted = append(r.restarted, string(status.ServiceID))
		}
		return
	}
	r.noteUncertain(status)
	restorations, notes := r.task.Restorations(status.ServiceID, i+1)
	for _, note := range notes {
		r.note("%s: deploy the version that it had by hand.", note)
	}
	if len(restorations) == 0 || len(notes) > 0 {
		return
	}
	item := Item{ServiceID: status.ServiceID, Priority: priority, Deployment: Restore,
		ContainerExecMethod: status.Method, RestoreTask: r.task.ID}
	// select the same workloads, so that services that share one do not conflict
	if original, known := r.snap.item(status); known {
		item.ContainerExecMethod, item.DeployLabel = original.ContainerExecMethod, original.DeployLabel
	}
	for other, s := range r.task.Services {
		if other != i && s.ServiceID == status.ServiceID {
			item.RestoreItem = int64(i + 1)
		}
	}
	r.items = append(r.items, item)
}

// noteUncertain notes workloads whose operation began and did not succeed, without a recorded change, unless they are
// known to be unchanged.
func (r *reverser) noteUncertain(status ServiceStatus) {
	for _, w := range status.Workloads {
		if !w.Changed && (w.State == ItemFailed || w.State == ItemRunning) && !untouched(status, w) {
			r.note("%s of service %s on %s is %s and no change is on record: check it before you reverse it by hand.",
				status.Deployment, status.ServiceID, w.name(), w.State)
		}
	}
}

// untouched reports whether the workload's rollout left it unchanged: it was rolled back, or never began.
func untouched(status ServiceStatus, w WorkloadStatus) bool {
	switch {
	case w.State != ItemFailed:
		return false
	case w.Rollout != nil:
		return w.Rollout.Phase == rolloutRolledBack
	}
	return status.RollOut
}

func (r *reverser) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// item returns the document's item of a status. Service and priority identify it, since no service occurs twice in one
// wave.
func (s Snapshot) item(status ServiceStatus) (Item, bool) {
	for _, item := range s.Document.Items {
		if item.ServiceID == status.ServiceID && item.Priority == status.Priority {
			return item, true
		}
	}
	return Item{}, false
}

// matches reports whether the status is that of this workload.
func (w WorkloadStatus) matches(workload catalog.Workload) bool {
	return cmp.Or(w.Party, catalog.DefaultParty) == workload.PartyOrDefault() && w.Namespace == workload.Namespace &&
		w.Kind == workload.WorkloadRef.Kind && w.Name == workload.WorkloadRef.Name
}

// name returns the workload's name for messages.
func (w WorkloadStatus) name() string {
	ref := catalog.WorkloadRef{Kind: w.Kind, Name: w.Name}
	return catalog.Workload{Party: w.Party, Namespace: w.Namespace, WorkloadRef: ref}.String()
}

// Rerun returns the plan of those items of a task that did not succeed, unchanged and in the same order of waves. It
// fails with Conflict if the task has not ended or has succeeded.
func Rerun(t Task, snap Snapshot) (Document, error) {
	switch {
	case t.State == TaskSucceeded:
		return Document{}, failure.New(failure.Conflict,
			"task %s succeeded, so nothing of it is to be run again: execute plan %s instead", t.ID, t.Plan)
	case !t.State.Final():
		return Document{}, failure.New(failure.Conflict,
			"task %s is %s: only a task that has ended can be run again; stop it first, or wait", t.ID, t.State)
	case len(t.Services) != len(snap.Document.Items):
		return Document{}, fmt.Errorf("the record of task %s has %d items and %d services", t.ID,
			len(snap.Document.Items), len(t.Services))
	}
	document := snap.Document // its windows and freezes, too
	n := 0
	document.Items = slices.DeleteFunc(slices.Clone(document.Items), func(Item) bool {
		n++
		return t.Services[n-1].State == ItemSucceeded
	})
	return document, nil
}
