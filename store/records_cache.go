package store

import (
	"context"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/v1alpha1"
)

const (
	// cacheTimeout is how long a write waits until the watch delivers it. A slow watch delays lists, but does not fail
	// the write.
	cacheTimeout = 2 * time.Second
	// cachePoll is how often the cache is checked meanwhile.
	cachePoll = 5 * time.Millisecond
)

// Run keeps the list of records in memory and notifies about changes of servings, until the context ends. Without it
// the store lists from the API server, and notifies about nothing.
func (s *Store) Run(ctx context.Context) {
	var watches sync.WaitGroup
	watches.Go(func() { s.recordCache.Run(ctx) })
	watches.Go(func() { s.servingEvents.Run(ctx) })
	watches.Wait()
}

// watchRecords watches the records and keeps what a list shows: the bodies, most of their size, are dropped on arrival.
func (s *Store) watchRecords() *watch.Watch[*v1alpha1.ReleaseRecord] {
	w := watch.New(watch.From(nil, everywhere(s.records)),
		func(record *v1alpha1.ReleaseRecord) (*v1alpha1.ReleaseRecord, error) {
			dropBodies(record)
			internTexts(record)
			return record, nil
		}, watch.Options{Namespaces: []string{s.namespace}})
	for _, label := range indexedLabels {
		w.Index(label, func(record *v1alpha1.ReleaseRecord) []string { return []string{record.Labels[label]} })
	}
	return w
}

// indexedLabels are the labels by which records are indexed, the most selective first.
var indexedLabels = []string{v1alpha1.LabelIdempotencyKey, v1alpha1.LabelSubject, v1alpha1.LabelKind}

// everywhere returns a client that is the same for every namespace.
func everywhere[C any](client C) func(namespace string) C { return func(string) C { return client } }

func dropBodies(record *v1alpha1.ReleaseRecord) {
	record.ManagedFields = nil
	record.Spec.Snapshot = nil
	if record.Outcome != nil {
		record.Outcome.Body = nil
	}
}

// internTexts stores equal texts of many records once: labels, and names of kinds, subjects and workflows, are a
// quarter of their size.
func internTexts(record *v1alpha1.ReleaseRecord) {
	spec := &record.Spec
	texts := []*string{&record.Kind, &record.APIVersion, &record.Namespace, &spec.Kind, &spec.Subject, &spec.Style,
		&spec.WorkflowID, &spec.Actor}
	if w := spec.Workload; w != nil {
		texts = append(texts, &w.APIVersion, &w.Kind, &w.Name)
	}
	if o := record.Outcome; o != nil {
		texts = append(texts, &o.State, &o.Reason)
	}
	for _, text := range texts {
		*text = intern(*text)
	}
	labelled := make(map[string]string, len(record.Labels))
	for label, value := range record.Labels {
		labelled[intern(label)] = intern(value)
	}
	record.Labels = labelled
}

// intern returns the shared copy of a text; a copy without references is freed.
func intern(text string) string { return unique.Make(text).Value() }

// cachedRecords returns the records with these labels from memory. They are shared and must not be modified. The
// records of one subject are found by an index.
func (s *Store) cachedRecords(with map[string]string) []*v1alpha1.ReleaseRecord {
	var found []*v1alpha1.ReleaseRecord
	selector := labels.SelectorFromSet(with)
	for _, record := range s.indexed(with) {
		if selector.Matches(labels.Set(record.Labels)) {
			found = append(found, record)
		}
	}
	return found
}

// indexed returns a superset of the records with these labels, by an index if possible.
func (s *Store) indexed(with map[string]string) []*v1alpha1.ReleaseRecord {
	for _, label := range indexedLabels {
		if value, asked := with[label]; asked {
			return s.recordCache.By(label, value)
		}
	}
	return s.recordCache.List()
}

// awaitCached waits until the list in memory has the object at that version or a later one, so that a list after the
// write contains it.
func (s *Store) awaitCached(ctx context.Context, name, version string) {
	s.await(ctx, func() bool {
		record := s.recordCache.Get(s.namespace, name)
		if record == nil {
			return false
		}
		order, err := resourceversion.CompareResourceVersion(record.ResourceVersion, version)
		return err == nil && order >= 0
	})
}

func (s *Store) awaitRemoved(ctx context.Context, name string) {
	s.await(ctx, func() bool { return s.recordCache.Get(s.namespace, name) == nil })
}

func (s *Store) await(ctx context.Context, done func() bool) {
	if !s.Watching() {
		return
	}
	// The write has succeeded even if the watch is slow, so there is no error to return.
	_ = wait.PollUntilContextTimeout(ctx, cachePoll, cacheTimeout, true, func(context.Context) (bool, error) {
		return done(), nil
	})
}

// Watching reports whether the list in memory is complete and up to date.
func (s *Store) Watching() bool { return s.recordCache.Synced() }
