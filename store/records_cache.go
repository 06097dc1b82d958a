package store

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

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
	watches.Go(func() { s.recordCache.RunWithContext(ctx) })
	watches.Go(func() { s.events.informer.RunWithContext(ctx) })
	watches.Wait()
}

// newRecordInformer watches the records and keeps what a list shows: the bodies, most of their size, are dropped on
// arrival.
func (s *Store) newRecordInformer() (cache.SharedIndexInformer, error) {
	watcher := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return s.records.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return s.records.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedIndexInformer(watcher, &v1alpha1.ReleaseRecord{}, 0, cache.Indexers{
		v1alpha1.LabelKind: byLabel(v1alpha1.LabelKind), v1alpha1.LabelSubject: byLabel(v1alpha1.LabelSubject),
		v1alpha1.LabelIdempotencyKey: byLabel(v1alpha1.LabelIdempotencyKey)})
	err := informer.SetTransform(func(value any) (any, error) {
		if record, ok := value.(*v1alpha1.ReleaseRecord); ok {
			dropBodies(record)
			internTexts(record)
		}
		return value, nil
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the watch on records: %w", err)
	}
	return informer, nil
}

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

// byLabel indexes records by a label's value.
func byLabel(label string) cache.IndexFunc {
	return func(value any) ([]string, error) {
		if record, ok := value.(*v1alpha1.ReleaseRecord); ok && record.Labels[label] != "" {
			return []string{record.Labels[label]}, nil
		}
		return nil, nil
	}
}

// cachedRecords returns the records with these labels from memory. They are shared and must not be modified. The
// records of one subject are found by an index.
func (s *Store) cachedRecords(with map[string]string) []*v1alpha1.ReleaseRecord {
	var found []*v1alpha1.ReleaseRecord
	selector := labels.SelectorFromSet(with)
	for _, value := range s.indexed(with) {
		if record, ok := value.(*v1alpha1.ReleaseRecord); ok && selector.Matches(labels.Set(record.Labels)) {
			found = append(found, record)
		}
	}
	return found
}

// indexed returns a superset of the records with these labels, by an index if possible.
func (s *Store) indexed(with map[string]string) []any {
	for _, label := range []string{v1alpha1.LabelIdempotencyKey, v1alpha1.LabelSubject, v1alpha1.LabelKind} {
		if value, asked := with[label]; asked {
			if found, err := s.recordCache.GetIndexer().ByIndex(label, value); err == nil {
				return found
			}
		}
	}
	return s.recordCache.GetStore().List()
}

// awaitCached waits until the list in memory has the object at that version or a later one, so that a list after the
// write contains it.
func (s *Store) awaitCached(ctx context.Context, name, version string) {
	s.await(ctx, func() bool {
		value, exists, err := s.recordCache.GetStore().GetByKey(s.namespace + "/" + name)
		record, ok := value.(*v1alpha1.ReleaseRecord)
		if err != nil || !exists || !ok {
			return false
		}
		order, err := resourceversion.CompareResourceVersion(record.ResourceVersion, version)
		return err == nil && order >= 0
	})
}

func (s *Store) awaitRemoved(ctx context.Context, name string) {
	s.await(ctx, func() bool {
		_, exists, err := s.recordCache.GetStore().GetByKey(s.namespace + "/" + name)
		return err == nil && !exists
	})
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
func (s *Store) Watching() bool { return s.recordCache.HasSynced() && !s.recordCache.IsStopped() }
