package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/v1alpha1"
)

// keepRecords is the default number of records kept per subject.
const keepRecords = 50

var recordResource = v1alpha1.GroupVersion.WithResource("releaserecords")

// CreateRecord writes the record of a release that begins. An existing record of that name is a Conflict.
func (s *Store) CreateRecord(ctx context.Context, record *v1alpha1.ReleaseRecord) error {
	err := s.records.create(ctx, record)
	if err == nil {
		s.awaitCached(ctx, record.Name, record.ResourceVersion)
	}
	return err
}

// GetRecord reads the complete record of a task.
func (s *Store) GetRecord(ctx context.Context, task string) (*v1alpha1.ReleaseRecord, error) {
	record, err := s.GetRelease(ctx, v1alpha1.RecordName(v1alpha1.KindTask, task))
	if failure.Is(err, failure.NotFound) {
		return nil, failure.New(failure.NotFound, "task %s does not exist, or its record is not kept any more", task)
	}
	return record, err
}

// GetRelease reads the complete record of that name. A record that is kept only for its Idempotency-Key is not found.
func (s *Store) GetRelease(ctx context.Context, name string) (*v1alpha1.ReleaseRecord, error) {
	record, err := s.records.get(ctx, name)
	if err == nil && record.Labels[v1alpha1.LabelKind] == v1alpha1.KindKey {
		return nil, failure.New(failure.NotFound, "record %s is not kept any more", name)
	}
	return record, err
}

// ListRecords lists the records with these labels, newest first, without Snapshot and Body. Once Run has synced, it
// reads from memory, which always contains this store's own writes. Callers must not modify the shared records.
func (s *Store) ListRecords(ctx context.Context, with map[string]string) ([]*v1alpha1.ReleaseRecord, error) {
	found, err := s.listRecords(ctx, with)
	return newestFirst(found), err
}

// ListNewest is ListRecords with only the newest record of each subject.
func (s *Store) ListNewest(ctx context.Context, with map[string]string) ([]*v1alpha1.ReleaseRecord, error) {
	found, err := s.listRecords(ctx, with)
	return newestFirst(newestOfEach(found)), err
}

// listRecords returns the records with these labels in any order, from memory if possible.
func (s *Store) listRecords(ctx context.Context, with map[string]string) ([]*v1alpha1.ReleaseRecord, error) {
	if s.Watching() {
		return s.cachedRecords(with), nil
	}
	return s.FindRecords(ctx, with)
}

// FindRecords is ListRecords from the API server: it includes the latest writes of other processes.
func (s *Store) FindRecords(ctx context.Context, with map[string]string) ([]*v1alpha1.ReleaseRecord, error) {
	found := []*v1alpha1.ReleaseRecord{}
	err := s.records.all(ctx, labels.SelectorFromSet(with).String(), func(record *v1alpha1.ReleaseRecord) {
		dropBodies(record)
		found = append(found, record)
	})
	return newestFirst(found), err
}

// SetInputDigest writes the digest of the input with which a release is started into its record.
func (s *Store) SetInputDigest(ctx context.Context, name, digest string) error {
	written, err := patch(ctx, s.records, name, map[string]any{"spec": map[string]any{"inputDigest": digest}})
	if err != nil {
		return asFailure(err, "record "+name)
	}
	s.awaitCached(ctx, written.Name, written.ResourceVersion)
	return nil
}

// CompleteRelease writes the outcome of a release into its record. The first outcome is kept: completing a complete
// record changes nothing.
func (s *Store) CompleteRelease(ctx context.Context, kind, name string, outcome v1alpha1.ReleaseOutcome) error {
	if written, err := s.addOutcome(ctx, kind, name, outcome); written || err != nil {
		return err
	}
	return failure.RetryOnConflict("record "+name, func() error {
		record, err := s.GetRelease(ctx, name)
		if err != nil || record.Outcome != nil {
			return err
		}
		return s.writeOutcome(ctx, record, outcome)
	})
}

// addOutcome writes the outcome into a record that has none, without reading it first. written is false if the record
// has an outcome, is of another kind, or does not exist.
func (s *Store) addOutcome(ctx context.Context, kind, name string, outcome v1alpha1.ReleaseOutcome) (written bool,
	err error) {
	record, err := patch(ctx, s.records, name, []jsonpatch.Op{jsonpatch.Test("/outcome", nil),
		jsonpatch.Test(jsonpatch.Label(v1alpha1.LabelKind), kind), jsonpatch.Add("/outcome", outcome),
		jsonpatch.Add(jsonpatch.Label(v1alpha1.LabelState), outcome.State)})
	if err == nil {
		s.awaitCached(ctx, record.Name, record.ResourceVersion)
		return true, nil
	}
	switch kube.Classify(err) {
	case kube.Rejected, kube.Missing, kube.Changed, kube.Refused:
		return false, nil
	default:
		return false, asFailure(err, "record "+name)
	}
}

func (s *Store) writeOutcome(ctx context.Context, record *v1alpha1.ReleaseRecord,
	outcome v1alpha1.ReleaseOutcome) error {
	written, err := patch(ctx, s.records, record.Name, map[string]any{
		"metadata": map[string]any{"resourceVersion": record.ResourceVersion,
			"labels": map[string]string{v1alpha1.LabelState: outcome.State}},
		"outcome": outcome,
	})
	if err != nil {
		return asFailure(err, "record "+record.Name)
	}
	s.awaitCached(ctx, written.Name, written.ResourceVersion)
	return nil
}

// DeleteRecord deletes the record of a task.
func (s *Store) DeleteRecord(ctx context.Context, task string) error {
	return s.DeleteRelease(ctx, v1alpha1.RecordName(v1alpha1.KindTask, task))
}

// DeleteRelease deletes the record of that name.
func (s *Store) DeleteRelease(ctx context.Context, name string) error {
	err := s.records.delete(ctx, name, nil)
	if err == nil {
		s.await(ctx, func() bool { return s.recordCache.Get(s.namespace, name) == nil })
	}
	return err
}

func newestFirst(records []*v1alpha1.ReleaseRecord) []*v1alpha1.ReleaseRecord {
	slices.SortFunc(records, byAge)
	return records
}

// byAge sorts a newer record before an older one.
func byAge(a, b *v1alpha1.ReleaseRecord) int {
	return cmp.Or(b.Spec.CreatedAt.Compare(a.Spec.CreatedAt.Time), cmp.Compare(b.Name, a.Name))
}

// newestOfEach returns the newest record of each subject, in any order.
func newestOfEach(records []*v1alpha1.ReleaseRecord) []*v1alpha1.ReleaseRecord {
	newest := map[string]*v1alpha1.ReleaseRecord{}
	for _, record := range records {
		if other, is := newest[record.Spec.Subject]; !is || byAge(record, other) < 0 {
			newest[record.Spec.Subject] = record
		}
	}
	return slices.Collect(maps.Values(newest))
}

// PruneRecords keeps the newest keep (0: keepRecords) complete records of a subject. Of older ones it keeps only what
// an Idempotency-Key needs while it is valid. It returns the number of pruned records. It never prunes an incomplete
// record, whose release may be running, nor except, the record that was just completed.
func (s *Store) PruneRecords(ctx context.Context, kind, subject, except string, keep int) (int, error) {
	complete, err := s.completeRecords(ctx, kind, subject)
	if err != nil {
		return 0, err
	}
	pruned, err := s.prune(ctx, slices.DeleteFunc(complete[min(cmp.Or(keep, keepRecords), len(complete)):],
		func(old metav1.PartialObjectMetadata) bool { return old.Name == except }))
	if err != nil {
		return pruned, err
	}
	// what is left of pruned records whose keys have expired
	keys, err := s.completeRecords(ctx, v1alpha1.KindKey, subject)
	if err == nil {
		_, err = s.prune(ctx, slices.DeleteFunc(keys, func(old metav1.PartialObjectMetadata) bool {
			return time.Since(old.CreationTimestamp.Time) <= v1alpha1.KeyLifetime
		}))
	}
	return pruned, err
}

// completeRecords returns the completed records of a subject, newest first, without their bodies. Creation timestamps
// have a resolution of one second: within one, the release numbers decide the order.
func (s *Store) completeRecords(ctx context.Context, kind, subject string) ([]metav1.PartialObjectMetadata, error) {
	selector := labels.SelectorFromSet(map[string]string{v1alpha1.LabelKind: kind,
		v1alpha1.LabelSubject: subject}).String() + "," + v1alpha1.LabelState
	list, err := s.metadata.Resource(recordResource).Namespace(s.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, asFailure(err, "the list of records")
	}
	slices.SortFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(v1alpha1.RevisionOf(&b),
			v1alpha1.RevisionOf(&a)), cmp.Compare(b.Name, a.Name))
	})
	return list.Items, nil
}

// emptyBody replaces a pruned body: the definition requires one.
var emptyBody = []byte("-")

// prune deletes records, or everything but their keys, and returns how many.
func (s *Store) prune(ctx context.Context, old []metav1.PartialObjectMetadata) (int, error) {
	for i, record := range old {
		if err := failure.Ignore(s.pruneOne(ctx, record), failure.NotFound); err != nil {
			return i, err
		}
	}
	return len(old), nil
}

func (s *Store) pruneOne(ctx context.Context, old metav1.PartialObjectMetadata) error {
	if old.Labels[v1alpha1.LabelIdempotencyKey] == "" || time.Since(old.CreationTimestamp.Time) > v1alpha1.KeyLifetime {
		return s.records.delete(ctx, old.Name, nil)
	}
	_, err := patch(ctx, s.records, old.Name, map[string]any{
		"metadata": map[string]any{"labels": map[string]string{v1alpha1.LabelKind: v1alpha1.KindKey}},
		"spec":     map[string]any{"snapshot": emptyBody},
		"outcome":  map[string]any{"body": emptyBody, "packages": nil},
	})
	return asFailure(err, "record "+old.Name)
}

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
	w := watch.New(watch.From(nil, func(string) records { return s.watchedRecords }),
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
