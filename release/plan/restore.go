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

// Restoration is what RESTORE restores on one workload: only what the task changed.
type Restoration struct {
	// Task is the task whose changes are reversed.
	Task      string `json:"task"`
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Template is the revision whose pod template is restored; nil leaves the template.
	Template *revision.Revision `json:"template,omitempty"`
	// Replicas is the size that is restored; nil leaves the size. SizeAfter is the size after the task: if another
	// client (an autoscaler, for instance) has changed the size since, it is kept.
	Replicas  *int32 `json:"replicas,omitempty"`
	SizeAfter *int32 `json:"left,omitempty"`
}

func (r Restoration) matches(w catalog.Workload) bool { return r.status().matches(w) }

func (r Restoration) status() WorkloadStatus {
	return WorkloadStatus{Party: r.Party, Namespace: r.Namespace, Kind: r.Kind, Name: r.Name}
}

// reversible reports whether the changes of an operation can be reversed. RESTART leaves nothing to reverse.
func reversible(operation Operation) bool { return operation != Restart }

// Restorations returns what reverses the task's changes of a service: those of item n, counted from 1, or with 0 those
// of all its items. The notes describe in sentences what cannot be reversed.
func (t Task) Restorations(service ServiceID, n int) (all []Restoration, notes []string) {
	merged := map[string]*changes{}
	var order []string
	var executed []int
	for _, wave := range t.Waves() {
		executed = append(executed, wave.Items...)
	}
	for _, i := range executed {
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

// changes are the combined changes of one task's items to one workload.
type changes struct {
	workload                     WorkloadStatus
	before, after                *revision.Revision
	beforeSize, sizeAfter        *int32
	unknownVersion               bool
	templateChanged, sizeChanged bool
}

func (c *changes) add(operation Operation, w WorkloadStatus) {
	c.workload = w
	switch {
	case operation == Start || operation == Stop:
	case w.Before == nil || w.After == nil:
		c.unknownVersion = c.unknownVersion || operation != Restore
	case !sameRevision(w.Before, w.After):
		if !c.templateChanged {
			c.before, c.templateChanged = w.Before, true
		}
		c.after = w.After
	}
	if w.FromReplicas != nil && w.ToReplicas != nil && *w.FromReplicas != *w.ToReplicas {
		if !c.sizeChanged {
			c.beforeSize, c.sizeChanged = w.FromReplicas, true
		}
		c.sizeAfter = w.ToReplicas
	}
}

// reverse returns what reverses the changes, and a note if a part of them cannot be reversed.
func (c *changes) reverse(task string) (r Restoration, note string) {
	w := c.workload
	r = Restoration{Task: task, Party: cmp.Or(w.Party, catalog.DefaultParty), Namespace: w.Namespace, Kind: w.Kind,
		Name: w.Name}
	if c.unknownVersion {
		note = "the record doesn't say which pod template it had before, since an earlier version of Slipway wrote it"
	} else if c.templateChanged && !sameRevision(c.before, c.after) {
		r.Template = c.before
	}
	if c.sizeChanged && *c.beforeSize != *c.sizeAfter {
		r.Replicas, r.SizeAfter = c.beforeSize, c.sizeAfter
	}
	return r, note
}

// sameRevision reports whether two revisions have the same pod template, as far as is known.
func sameRevision(a, b *revision.Revision) bool {
	if a.Template != "" && b.Template != "" {
		return a.Template == b.Template
	}
	return a.Name == b.Name
}

// Recorded is a task from its record, or the reason why it cannot be restored from.
type Recorded struct {
	Task    Task
	Problem string
}

// RestoredTasks returns the tasks whose records the document's RESTORE items need, each once.
func (d Document) RestoredTasks() []string {
	var ids []string
	for _, item := range d.Items {
		if item.Deployment == Restore && IsTaskID(item.RestoreTask) && !slices.Contains(ids, item.RestoreTask) {
			ids = append(ids, item.RestoreTask)
		}
	}
	return ids
}

// ReversedTask returns the task that the document reverses, "" if it does not only reverse one task.
func (d Document) ReversedTask() string {
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

// ResolveRestorations returns what the RESTORE items of a valid plan restore, by the items' numbers, counted from 1,
// and their problems. records has an entry for each of RestoredTasks.
func ResolveRestorations(d Document, services map[ServiceID]catalog.Service,
	records map[string]Recorded) (map[int][]Restoration, strictyaml.Errors) {
	r := &restorer{records: records, found: &strictyaml.Findings{}}
	resolved := map[int][]Restoration{}
	for i, item := range d.Items {
		service, known := services[item.ServiceID]
		if item.Deployment != Restore || !known || !IsTaskID(item.RestoreTask) {
			continue // reported by the document's own rules, or by Resolve
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
	if !r.checkItem(i, item, record.Task) {
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
		r.refuse(i, keyRestoreTask, "task %s has changed nothing of service %s that can be reversed: remove the item",
			item.RestoreTask, item.ServiceID)
		return nil
	}
	return r.selected(i, item, service, all)
}

// checkItem reports whether the task has the item's service and the requested item.
func (r *restorer) checkItem(i int, item Item, task Task) bool {
	ids := make([]string, 0, len(task.Services))
	for _, status := range task.Services {
		if !slices.Contains(ids, string(status.ServiceID)) {
			ids = append(ids, string(status.ServiceID))
		}
	}
	switch n := int(item.RestoreItem); {
	case !slices.Contains(ids, string(item.ServiceID)):
		r.refuse(i, keyRestoreTask, "task %s has no service %s: it has %s", task.ID, item.ServiceID,
			strings.Join(ids[:min(len(ids), maxListed)], ", "))
	case n > len(task.Services):
		r.refuse(i, keyRestoreItem, "task %s has no item %d: it has %d", task.ID, n, len(task.Services))
	case n > 0 && task.Services[n-1].ServiceID != item.ServiceID:
		r.refuse(i, keyRestoreItem, "item %d of task %s is of service %s, not of %s", n, task.ID,
			task.Services[n-1].ServiceID, item.ServiceID)
	default:
		return true
	}
	return false
}

// selected returns the restorations that deployLabel selects. It refuses workloads that are no longer in the catalogue.
func (r *restorer) selected(i int, item Item, service catalog.Service, all []Restoration) []Restoration {
	var kept []Restoration
	missing := false
	selected := item.selected(service.Workloads)
	for _, restoration := range all {
		switch {
		case slices.ContainsFunc(selected, restoration.matches):
			kept = append(kept, restoration)
		case !slices.ContainsFunc(service.Workloads, restoration.matches):
			missing = true
			r.refuse(i, keyServiceID, "%s, which task %s changed, is no longer among the workloads of service %s in "+
				"the catalogue: add it again", restoration.status().name(), item.RestoreTask, item.ServiceID)
		}
	}
	if len(kept) == 0 && !missing {
		r.refuse(i, keyDeployLabel, "selects nothing that task %s changed: leave it out", item.RestoreTask)
	}
	return kept
}
