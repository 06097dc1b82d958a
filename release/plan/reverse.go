package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/catalog"
)

// Reverse is how to take back what a task did. Somebody has to create and execute this plan.
type Reverse struct {
	// Document is a plan that restores what the task changed, in reverse order; absent when there is nothing that a plan could restore.
	Document *Document `json:"document,omitempty"`
	// Notes say in sentences what the plan leaves out and why. They are never empty when there is no plan.
	Notes []string `json:"notes,omitempty"`
}

// reverser gathers the reverse of one task.
type reverser struct {
	items []Item
	notes []string
	// without are the services that were changed by a deployment that has no reverse.
	without map[Operation][]string
}

func newReverse(t Task, waves []Wave, snap Snapshot) Reverse {
	r := &reverser{without: map[Operation][]string{}}
	if !t.State.Final() {
		r.note("The task is %s: this covers what it has done so far.", t.State)
	}
	// The last wave is taken back first. Waves are numbered from 1, so the number of the wave is a priority that turns their order round.
	for number := len(waves); number > 0; number-- {
		for _, i := range waves[number-1].Items {
			r.service(t.Services[i], int64(number), snap)
		}
	}
	r.noteDeploymentsWithout()
	if len(r.items) == 0 {
		r.note("Nothing is to be reversed by a plan.")
		return Reverse{Notes: r.notes}
	}
	comment := fmt.Sprintf("reverse of task %s of plan %s", t.ID, t.Plan)
	return Reverse{Document: &Document{Comment: comment, Items: r.items}, Notes: r.notes}
}

func (r *reverser) service(status ServiceStatus, priority int64, snap Snapshot) {
	if status.Deployment != Start && status.Deployment != Stop {
		if slices.ContainsFunc(status.Workloads, func(w WorkloadStatus) bool { return w.Changed }) {
			r.without[status.Deployment] = append(r.without[status.Deployment], string(status.ServiceID))
		}
		return
	}
	r.noteUncertain(status)
	restorable := r.restorable(status)
	if len(restorable) == 0 {
		return
	}
	item, known := snap.item(status)
	if !known {
		r.note("What was done to service %s cannot be reversed by a plan: the record of what the task ran is missing.", status.ServiceID)
		return
	}
	labels, ok := exactLabels(item, snap.Services[status.ServiceID].Workloads, restorable)
	if !ok {
		r.note("%s of service %s cannot be reversed by a plan: it changed %s and nothing else, which no deployLabel tells "+
			"from the service's other workloads.", status.Deployment, status.ServiceID, names(restorable))
		return
	}
	r.items = append(r.items, Item{
		ServiceID: item.ServiceID, Priority: priority, Deployment: opposite(item.Deployment),
		ContainerExecMethod: item.ContainerExecMethod, DeployLabel: labels,
	})
}

// restorable are the workloads that the opposite operation brings back to where they were.
func (r *reverser) restorable(status ServiceStatus) []WorkloadStatus {
	var all []WorkloadStatus
	for _, w := range status.Workloads {
		switch {
		case !w.Changed:
		case status.Deployment == Start && w.FromReplicas != nil && *w.FromReplicas > 0:
			r.note("START of service %s took %s from %d pods to more: STOP would take it to none, so scale it back to %d by hand.",
				status.ServiceID, w.name(), *w.FromReplicas, *w.FromReplicas)
		default:
			all = append(all, w)
		}
	}
	return all
}

// noteUncertain names workloads whose operation began and did not end well, without word of a change.
func (r *reverser) noteUncertain(status ServiceStatus) {
	for _, w := range status.Workloads {
		if !w.Changed && (w.State == ItemFailed || w.State == ItemRunning) {
			r.note("%s of service %s on %s is %s and no change is on record: look at it before you reverse it by hand.",
				status.Deployment, status.ServiceID, w.name(), w.State)
		}
	}
}

func (r *reverser) noteDeploymentsWithout() {
	for _, operation := range operations {
		services := r.without[operation]
		switch {
		case len(services) == 0:
		case operation == Restart:
			r.note("RESTART has no reverse: %s have new pods of the same version.", serviceList(services))
		default:
			r.note("%s is reversed by deploying the version before, which this plan does not know: %s were deployed.",
				operation, serviceList(services))
		}
	}
}

func (r *reverser) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// item is the document's item of a status. Service and priority name it: no service is twice in one wave.
func (s Snapshot) item(status ServiceStatus) (Item, bool) {
	for _, item := range s.Document.Items {
		if item.ServiceID == status.ServiceID && item.Priority == status.Priority {
			return item, true
		}
	}
	return Item{}, false
}

// exactLabels is a deployLabel that selects exactly these workloads: the item's own if it does, else labels that only they carry.
func exactLabels(item Item, workloads []catalog.Workload, wanted []WorkloadStatus) (labels string, ok bool) {
	isWanted := func(w catalog.Workload) bool {
		return slices.ContainsFunc(wanted, func(status WorkloadStatus) bool { return status.is(w) })
	}
	unwanted := func(w catalog.Workload) bool { return !isWanted(w) }
	if selected := item.selected(workloads); len(selected) == len(wanted) && !slices.ContainsFunc(selected, unwanted) {
		return item.DeployLabel, true
	}
	var foreign []string
	for _, w := range workloads {
		if unwanted(w) {
			foreign = append(foreign, w.Labels...)
		}
	}
	var chosen []string
	for _, w := range workloads {
		if unwanted(w) || slices.ContainsFunc(w.Labels, func(l string) bool { return slices.Contains(chosen, l) }) {
			continue
		}
		own := slices.IndexFunc(w.Labels, func(l string) bool { return !slices.Contains(foreign, l) })
		if own < 0 {
			return "", false
		}
		chosen = append(chosen, w.Labels[own])
	}
	return strings.Join(chosen, ","), len(chosen) > 0
}

// is says whether the status is that of this workload.
func (w WorkloadStatus) is(workload catalog.Workload) bool {
	return cmp.Or(w.Party, catalog.DefaultParty) == workload.PartyOrDefault() && w.Namespace == workload.Namespace &&
		w.Kind == workload.WorkloadRef.Kind && w.Name == workload.WorkloadRef.Name
}

// name is the workload as people read it.
func (w WorkloadStatus) name() string {
	ref := catalog.WorkloadRef{Kind: w.Kind, Name: w.Name}
	return catalog.Workload{Party: w.Party, Namespace: w.Namespace, WorkloadRef: ref}.String()
}

func opposite(operation Operation) Operation {
	if operation == Start {
		return Stop
	}
	return Start
}

func names(workloads []WorkloadStatus) string {
	texts := make([]string, len(workloads))
	for i, w := range workloads {
		texts[i] = w.name()
	}
	return strings.Join(texts, ", ")
}

func serviceList(ids []string) string {
	if len(ids) == 1 {
		return "the workloads of service " + ids[0]
	}
	return "the workloads of services " + strings.Join(ids, ", ")
}
