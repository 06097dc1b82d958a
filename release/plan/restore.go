package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/strictyaml"
)

// Restoration is what RESTORE brings one workload back to. What a task has left as it was is left as it is.
type Restoration struct {
	// Task is the task whose changes are taken back.
	Task      string `json:"task"`
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Template is the revision whose pod template comes back; nil leaves the template.
	Template *revision.Revision `json:"template,omitempty"`
	// Replicas is the size that comes back; nil leaves the size. Left is the size that the task has left: one that somebody has set since then,
	// an autoscaler for instance, stays as it is.
	Replicas *int32 `json:"replicas,omitempty"`
	Left     *int32 `json:"left,omitempty"`
}

func (r Restoration) is(w catalog.Workload) bool { return r.status().is(w) }

func (r Restoration) status() WorkloadStatus {
	return WorkloadStatus{Party: r.Party, Namespace: r.Namespace, Kind: r.Kind, Name: r.Name}
}

// reversible says whether the changes of an operation can be taken back. RESTART leaves nothing that could be.
func reversible(operation Operation) bool { return operation != Restart }

// Restorations are what takes back what the task did to a service: by item n, counted from 1, or, with 0, by all of its items. The notes say in
// sentences what can't be taken back.
func (t Task) Restorations(service ServiceID, n int) (all []Restoration, notes []string) {
	merged := map[string]*changes{}
	var order []string
	for _, i := range t.executed() {
		status := t.Services[i]
		if status.ServiceID != service || n > 0 && i+1 != n || !reversible(status.Deployment) {
			continue
		}
		for _, w := range status.Workloads {
			if !w.Changed {
				continue
			}
			if merged[w.name()] == nil {
				merged[w.name()] = &changes{}
				order = append(order, w.name())
			}
			merged[w.name()].add(status.Deployment, w)
		}
	}
	for _, name := range order {
		r, note := merged[name].reverse(t.ID)
		if note != "" {
			notes = append(notes, fmt.Sprintf("%s of service %s: %s", name, service, note))
		}
		if r.Template != nil || r.Replicas != nil {
			all = append(all, r)
		}
	}
	return all, notes
}

// executed are the task's services, as indexes, in the order in which their waves were executed.
func (t Task) executed() []int {
	var order []int
	for _, wave := range t.Waves() {
		order = append(order, wave.Items...)
	}
	return order
}

// changes are what the items of one task have done to one workload, one after the other.
type changes struct {
	workload            WorkloadStatus
	before, after       *revision.Revision
	beforeSize, left    *int32
	unknownVersion      bool
	templated, rescaled bool
}

func (c *changes) add(operation Operation, w WorkloadStatus) {
	c.workload = w
	switch {
	case operation == Start || operation == Stop:
	case w.Before == nil || w.After == nil:
		c.unknownVersion = c.unknownVersion || operation != Restore
	case !sameRevision(w.Before, w.After):
		if !c.templated {
			c.before, c.templated = w.Before, true
		}
		c.after = w.After
	}
	if w.FromReplicas != nil && w.ToReplicas != nil && *w.FromReplicas != *w.ToReplicas {
		if !c.rescaled {
			c.beforeSize, c.rescaled = w.FromReplicas, true
		}
		c.left = w.ToReplicas
	}
}

// reverse is what takes the changes back, and why a part of them can't be.
func (c *changes) reverse(task string) (r Restoration, note string) {
	w := c.workload
	r = Restoration{Task: task, Party: cmp.Or(w.Party, catalog.DefaultParty), Namespace: w.Namespace, Kind: w.Kind, Name: w.Name}
	if c.unknownVersion {
		note = "the record doesn't say which pod template it had before, since an earlier version of Slipway wrote it"
	} else if c.templated && !sameRevision(c.before, c.after) {
		r.Template = c.before
	}
	if c.rescaled && *c.beforeSize != *c.left {
		r.Replicas, r.Left = c.beforeSize, c.left
	}
	return r, note
}

// sameRevision says whether two revisions are of one pod template, as far as they are known.
func sameRevision(a, b *revision.Revision) bool {
	if a.Template != "" && b.Template != "" {
		return a.Template == b.Template
	}
	return a.Name == b.Name
}

// Recorded is a task as its record has it, or why there is none to restore from.
type Recorded struct {
	Task    Task
	Problem string
}

// RestoredTasks are the tasks whose records the document's RESTORE items need, each once.
func (d Document) RestoredTasks() []string {
	var ids []string
	for _, item := range d.Items {
		if item.Deployment == Restore && IsTaskID(item.RestoreTask) && !slices.Contains(ids, item.RestoreTask) {
			ids = append(ids, item.RestoreTask)
		}
	}
	return ids
}

// Reverses is the task whose changes the document takes back and nothing else, "" when it isn't such a plan.
func (d Document) Reverses() string {
	if len(d.Items) == 0 {
		return ""
	}
	task := d.Items[0].RestoreTask
	for _, item := range d.Items {
		if item.Deployment != Restore || item.RestoreTask != task {
			return ""
		}
	}
	return task
}

// ResolveRestorations says what the RESTORE items of a valid plan bring back, by the items' numbers, counted from 1, and what of them can't be done.
// records has an entry for each of RestoredTasks.
func ResolveRestorations(d Document, services map[ServiceID]catalog.Service, records map[string]Recorded) (map[int][]Restoration, strictyaml.Errors) {
	r := &restorer{records: records, found: &strictyaml.Findings{}}
	resolved := map[int][]Restoration{}
	for i, item := range d.Items {
		service, known := services[item.ServiceID]
		if item.Deployment != Restore || !known || !IsTaskID(item.RestoreTask) {
			continue // said by the document's own rules, or by Resolve
		}
		if restorations := r.item(i, item, service); len(restorations) > 0 {
			resolved[i+1] = restorations
		}
	}
	if len(resolved) == 0 {
		resolved = nil
	}
	return resolved, r.found.Sorted()
}

type restorer struct {
	records map[string]Recorded
	found   *strictyaml.Findings
}

func (r *restorer) refuse(i int, key, format string, args ...any) {
	r.found.Refuse(i+1, itemField(i, key), format, args...)
}

func (r *restorer) item(i int, item Item, service catalog.Service) []Restoration {
	record := r.records[item.RestoreTask]
	if record.Problem != "" {
		r.refuse(i, keyRestoreTask, "%s", record.Problem)
		return nil
	}
	if !r.names(i, item, record.Task) {
		return nil
	}
	all, notes := record.Task.Restorations(item.ServiceID, int(item.RestoreItem))
	for _, note := range notes {
		r.refuse(i, keyRestoreTask, "%s", note)
	}
	if len(notes) > 0 {
		return nil
	}
	if len(all) == 0 {
		r.refuse(i, keyRestoreTask, "task %s has changed nothing of service %s that could be taken back: take the item out", item.RestoreTask, item.ServiceID)
		return nil
	}
	return r.selected(i, item, service, all)
}

// names says whether the task has the item that is asked for.
func (r *restorer) names(i int, item Item, task Task) bool {
	ids := make([]string, 0, len(task.Services))
	for _, status := range task.Services {
		if !slices.Contains(ids, string(status.ServiceID)) {
			ids = append(ids, string(status.ServiceID))
		}
	}
	switch n := int(item.RestoreItem); {
	case !slices.Contains(ids, string(item.ServiceID)):
		r.refuse(i, keyRestoreTask, "task %s has no service %s: it has %s", task.ID, item.ServiceID, strings.Join(ids[:min(len(ids), mostNumbers)], ", "))
	case n > len(task.Services):
		r.refuse(i, keyRestoreItem, "task %s has no item %d: it has %d", task.ID, n, len(task.Services))
	case n > 0 && task.Services[n-1].ServiceID != item.ServiceID:
		r.refuse(i, keyRestoreItem, "item %d of task %s is of service %s, not of %s", n, task.ID, task.Services[n-1].ServiceID, item.ServiceID)
	default:
		return true
	}
	return false
}

// selected keeps what deployLabel selects. A workload that the catalogue doesn't have any more can't be restored through it.
func (r *restorer) selected(i int, item Item, service catalog.Service, all []Restoration) []Restoration {
	var kept []Restoration
	gone := false
	selected := item.selected(service.Workloads)
	for _, restoration := range all {
		switch {
		case slices.ContainsFunc(selected, restoration.is):
			kept = append(kept, restoration)
		case !slices.ContainsFunc(service.Workloads, restoration.is):
			gone = true
			r.refuse(i, keyServiceID, "%s, which task %s changed, is not among the workloads of service %s in the catalogue any more: add it again",
				restoration.status().name(), item.RestoreTask, item.ServiceID)
		}
	}
	if len(kept) == 0 && !gone {
		r.refuse(i, keyDeployLabel, "selects nothing that task %s changed: leave it out", item.RestoreTask)
	}
	return kept
}
