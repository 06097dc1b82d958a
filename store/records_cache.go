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
	// seenTimeout is how long a write waits for the watch to bring it back. A watch that is late costs a list that is late, not the write.
	seenTimeout = 2 * time.Second
	// seenPoll is how often it looks.
	seenPoll = 5 * time.Millisecond
)

// Run keeps the list of records in memory, and tells of changes of servings, until the context ends. Without it the store reads lists from
// the API server, and tells nothing.
func (s *Store) Run(ctx context.Context) {
	var watches sync.WaitGroup
	watches.Go(func() { s.seen.RunWithContext(ctx) })
	watches.Go(func() { s.events.informer.RunWithContext(ctx) })
	watches.Wait()
}

// newRecordInformer watches the records and keeps of each what a list shows: the bodies, most of their weight, are dropped on arrival.
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
			shareTexts(record)
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

// shareTexts has what many records say be in memory once: labels, and names of kinds, subjects and workflows, are a quarter of their weight.
func shareTexts(record *v1alpha1.ReleaseRecord) {
	spec := &record.Spec
	texts := []*string{&record.Kind, &record.APIVersion, &record.Namespace, &spec.Kind, &spec.Subject, &spec.Style, &spec.WorkflowID, &spec.Actor}
	if w := spec.Workload; w != nil {
		texts = append(texts, &w.APIVersion, &w.Kind, &w.Name)
	}
	if o := record.Outcome; o != nil {
		texts = append(texts, &o.State, &o.Reason)
	}
	for _, text := range texts {
		*text = shared(*text)
	}
	labelled := make(map[string]string, len(record.Labels))
	for label, value := range record.Labels {
		labelled[shared(label)] = shared(value)
	}
	record.Labels = labelled
}

// shared is the text as everybody has it; one that nobody has any more is forgotten.
func shared(text string) string { return unique.Make(text).Value() }

// byLabel finds records by a label's value.
func byLabel(label string) cache.IndexFunc {
	return func(value any) ([]string, error) {
		if record, ok := value.(*v1alpha1.ReleaseRecord); ok && record.Labels[label] != "" {
			return []string{record.Labels[label]}, nil
		}
		return nil, nil
	}
}

// seenRecords are the records with these labels, which the watch shares with everybody: they are not to be changed. Those of one subject
// are found among tens of thousands without a look at the others.
func (s *Store) seenRecords(with map[string]string) []*v1alpha1.ReleaseRecord {
	var found []*v1alpha1.ReleaseRecord
	selector := labels.SelectorFromSet(with)
	for _, value := range s.indexed(with) {
		if record, ok := value.(*v1alpha1.ReleaseRecord); ok && selector.Matches(labels.Set(record.Labels)) {
			found = append(found, record)
		}
	}
	return found
}

// indexed are the records among which those with these labels are.
func (s *Store) indexed(with map[string]string) []any {
	for _, label := range []string{v1alpha1.LabelIdempotencyKey, v1alpha1.LabelSubject, v1alpha1.LabelKind} {
		if value, asked := with[label]; asked {
			if found, err := s.seen.GetIndexer().ByIndex(label, value); err == nil {
				return found
			}
		}
	}
	return s.seen.GetStore().List()
}

// awaitSeen returns when the list in memory has the object at that version or a later one, so that whoever writes and then lists finds it.
func (s *Store) awaitSeen(ctx context.Context, name, version string) {
	s.await(ctx, func() bool {
		value, exists, err := s.seen.GetStore().GetByKey(s.namespace + "/" + name)
		record, ok := value.(*v1alpha1.ReleaseRecord)
		if err != nil || !exists || !ok {
			return false
		}
		order, err := resourceversion.CompareResourceVersion(record.ResourceVersion, version)
		return err == nil && order >= 0
	})
}

func (s *Store) awaitGone(ctx context.Context, name string) {
	s.await(ctx, func() bool {
		_, exists, err := s.seen.GetStore().GetByKey(s.namespace + "/" + name)
		return err == nil && !exists
	})
}

func (s *Store) await(ctx context.Context, done func() bool) {
	if !s.Watching() {
		return
	}
	// The write is done whether or not it was seen in time, so there is no error to give back.
	_ = wait.PollUntilContextTimeout(ctx, seenPoll, seenTimeout, true, func(context.Context) (bool, error) { return done(), nil })
}

// Watching says whether the list in memory is complete and kept up to date.
func (s *Store) Watching() bool { return s.seen.HasSynced() && !s.seen.IsStopped() }
