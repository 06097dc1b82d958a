package plan

import (
	"fmt"
	"slices"

	"slipway.io/slipway/release/failure"
)

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
