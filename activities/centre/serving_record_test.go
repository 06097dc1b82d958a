package centre_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
)

// fakeInputs returns the input of serving operations; err is the error of reading it.
type fakeInputs struct {
	input serving.Input
	err   error
}

func (s fakeInputs) Input(context.Context, serving.Source) (serving.Input, error) {
	return s.input, s.err
}

func (s fakeInputs) Packed(context.Context, serving.Source) (packed []byte, digest string, err error) {
	return s.input.Target, s.input.TargetDigest, s.err
}

// updateInput is the input of an update of alice.
func updateInput(t *testing.T, id string) serving.Input {
	t.Helper()
	target, err := serving.Version{ID: id, Spec: kuscia.KusciaDeploymentSpec{Initiator: "alice",
		Parties: []kuscia.Party{{DomainID: "alice", AppImageRef: "app"}}},
		AppImages: map[string]kuscia.AppImageSpec{"app": {Image: kuscia.AppImageInfo{Name: "registry.test/app",
			Tag: "v2"}}}}.Pack()
	require.NoError(t, err)
	return serving.Input{ID: id, UID: "u", Generation: 2, Kind: serving.KindUpdate, Target: target, TargetDigest: "new",
		Previous: []byte("large"), PreviousDigest: "old",
		Parties: []serving.PartyTarget{{Domain: "alice", Deployment: id, Queue: "q"}}}
}

// servingRecords returns the complete records of a serving, newest first.
func servingRecords(t *testing.T, store *store.Store, id string) (complete []*v1alpha1.ReleaseRecord) {
	t.Helper()
	records, err := store.FindRecords(testContext(t),
		map[string]string{v1alpha1.LabelKind: v1alpha1.KindServing, v1alpha1.LabelSubject: v1alpha1.SubjectLabel(id)})
	require.NoError(t, err)
	for _, r := range records {
		one, err := store.GetRelease(testContext(t), r.Name)
		require.NoError(t, err)
		complete = append(complete, one)
	}
	return complete
}

func releaseIn(t *testing.T, record *v1alpha1.ReleaseRecord) (r serving.Release) {
	t.Helper()
	require.NotNil(t, record.Outcome, "the record is complete")
	require.NoError(t, v1alpha1.DecodeBody(record.Outcome.Body, &r))
	return r
}

func newServing(t *testing.T, store *store.Store) *kuscia.KusciaDeployment {
	t.Helper()
	ctx, id := testContext(t), "serving-"+rand.String(8)
	require.NoError(t, store.CreateServing(ctx, &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec: kuscia.KusciaDeploymentSpec{
			Initiator: "alice", Parties: []kuscia.Party{{DomainID: "alice", AppImageRef: "app"}}}}))
	kd, err := store.GetServing(ctx, id)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.DeleteServing(context.Background(), kd) })
	return kd
}

func TestServingOperation_IsRecorded(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	kd := newServing(t, store)
	activities := centre.NewActivities(store, nil, fakeInputs{input: updateInput(t, kd.Name)}, 0).TrustInputs()
	note := operationOn(kd, serving.KindUpdate, "r1")
	for range 2 { // an attempt that was killed after the first write is repeated
		result, err := activities.BeginServing(ctx, note)
		require.NoError(t, err)
		require.Empty(t, result.Unrecorded)
	}
	records := servingRecords(t, store, kd.Name)
	require.Len(t, records, 1)
	require.Equal(t, []string{"serving-r1", v1alpha1.KindServing, kd.Name, "update, generation 2"},
		[]string{records[0].Name, records[0].Spec.Kind, records[0].Spec.Subject, records[0].Spec.Comment})
	var snapshot serving.ReleaseRequest
	require.NoError(t, v1alpha1.DecodeBody(records[0].Spec.Snapshot, &snapshot))
	require.Equal(t, updateInput(t, kd.Name).Target, snapshot.Input.Target, "the request can be shown later")
	require.Empty(t, snapshot.Input.Previous, "the previous version is in an earlier record")

	require.NoError(t, activities.NoteServing(ctx, note))
	require.Nil(t, servingRecords(t, store, kd.Name)[0].Outcome, "the operation has not ended")
	end := serving.Ending{State: serving.StateRolledBack, Reason: serving.ReasonUpdateRolledBack, Message: "bad image",
		At: time.Now().UTC().Truncate(time.Microsecond)}
	note.Operation.Done, note.Ending = true, &end
	for range 2 {
		require.NoError(t, activities.NoteServing(ctx, note))
	}
	record := servingRecords(t, store, kd.Name)[0]
	require.Equal(t, []string{"RolledBack", serving.ReasonUpdateRolledBack, "r1", "RolledBack"},
		[]string{record.Outcome.State, record.Outcome.Reason, record.Outcome.RunID, record.Labels[v1alpha1.LabelState]})
	release := releaseIn(t, record)
	require.Equal(t, []string{kd.Name, serving.KindUpdate, "new", "old", "bad image"},
		[]string{release.ID, release.Kind, release.Version, release.Previous, release.Message})
	require.Equal(t, []serving.ReleaseParty{{Domain: "alice", AppImage: "app", Image: "registry.test/app:v2"}},
		release.Parties)
	require.Equal(t, end.At, *release.FinishedAt)
	require.Empty(t, release.History)

	late := end
	late.State, late.At = serving.StateSucceeded, end.At.Add(time.Second)
	note.Ending = &late
	require.NoError(t, activities.NoteServing(ctx, note))
	require.Equal(t, "RolledBack", servingRecords(t, store, kd.Name)[0].Outcome.State, "the first ending is kept")
	late.State, late.History = serving.StateRolledBack,
		[]kuscia.AuditEntry{{Actor: "ann", Verb: "stop", Outcome: "refused", Message: "it is over"}}
	require.NoError(t, activities.NoteServing(ctx, note))
	require.Len(t, releaseIn(t, servingRecords(t, store, kd.Name)[0]).History, 1, "a late refusal is still recorded")
}

func TestServingOperation_IsNotRecorded_WhenItDoesNotBegin(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	kd := newServing(t, store)
	activities := centre.NewActivities(store, nil, fakeInputs{input: updateInput(t, kd.Name)}, 0).TrustInputs()
	other, older := operationOn(kd, serving.KindUpdate, "r1"), operationOn(kd, serving.KindUpdate, "r2")
	other.UID, older.Operation.Generation = "another", 0
	for _, in := range []serving.NoteRequest{other, older} {
		_, err := activities.BeginServing(ctx, in)
		require.NoError(t, err)
	}
	require.Empty(t, servingRecords(t, store, kd.Name))
}

func TestServingOperation_Continues_WhenRecordIsRefused(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	kd := newServing(t, store)
	refusing := centre.NewActivities(store, nil, fakeInputs{err: failure.New(failure.Forbidden, "may not be read")},
		0).TrustInputs()
	note := operationOn(kd, serving.KindUpdate, "r1")
	result, err := refusing.BeginServing(ctx, note)
	require.NoError(t, err, "the operation continues")
	require.Equal(t, "may not be read", result.Unrecorded)
	require.Empty(t, servingRecords(t, store, kd.Name))

	note.Operation.Done, note.Ending = true, &serving.Ending{State: serving.StateSucceeded, Message: "it is done",
		At: time.Now()}
	require.ErrorContains(t, refusing.NoteServing(ctx, note), "may not be read")
	now, err := store.GetServing(ctx, kd.Name)
	require.NoError(t, err)
	require.True(t, now.Status.Operation.Done, "the status is written anyway")

	unreachable := centre.NewActivities(store, nil, fakeInputs{err: failure.New(failure.Unreachable, "is unreachable")},
		0).TrustInputs()
	_, err = unreachable.BeginServing(ctx, operationOn(kd, serving.KindUpdate, "r2"))
	require.ErrorContains(t, err, "is unreachable", "an unreachable home cluster is retried")

	working := centre.NewActivities(store, nil, fakeInputs{input: updateInput(t, kd.Name)}, 0).TrustInputs()
	require.NoError(t, working.NoteServing(ctx, note))
	require.Equal(t, serving.StateSucceeded, releaseIn(t, servingRecords(t, store, kd.Name)[0]).State,
		"the record that was refused at the start is written at the end")
}

func TestServingDeletion_IsCompletedAtItsEnd(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	kd := newServing(t, store)
	require.NoError(t, store.GuardServing(ctx, kd, true))
	require.NoError(t, store.DeleteServing(ctx, kd))
	in := serving.Input{ID: kd.Name, Kind: serving.KindDelete, Generation: 3,
		Parties: []serving.PartyTarget{{Domain: "alice", Deployment: kd.Name}}}
	activities := centre.NewActivities(store, nil, fakeInputs{input: in}, 0).TrustInputs()
	note := operationOn(kd, serving.KindDelete, "r1")
	note.Operation.Generation = 3
	_, err := activities.BeginServing(ctx, note)
	require.NoError(t, err)
	require.NoError(t, activities.ReleaseServing(ctx, note))
	_, err = store.GetServing(ctx, kd.Name)
	require.True(t, failure.Is(err, failure.NotFound), "got %v", err)
	require.Nil(t, servingRecords(t, store, kd.Name)[0].Outcome, "an unreachable party still has to be cleaned up")
	note.Ending = &serving.Ending{State: serving.StateSucceeded, Message: "it is done", At: time.Now()}
	require.NoError(t, activities.ReleaseServing(ctx, note))
	release := releaseIn(t, servingRecords(t, store, kd.Name)[0])
	require.Equal(t, serving.StateSucceeded, release.State)
	require.Equal(t, []serving.ReleaseParty{{Domain: "alice"}}, release.Parties, "a deletion has no version")
}

func TestServingRecords_KeepsNewest(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	begun := time.Now().Add(-time.Hour)
	record := func(id string, n int) string {
		run := fmt.Sprintf("%s-r%d", id, n)
		require.NoError(t, store.RecordServing(ctx,
			serving.NewReleaseRequest(updateInput(t, id), kuscia.Operation{WorkflowID: "w", RunID: run},
				begun.Add(time.Duration(n)*time.Minute))))
		return v1alpha1.RecordName(v1alpha1.KindServing, run)
	}
	other, open := record("other", 0), record("one", 0)
	require.NoError(t, store.CompleteServing(ctx, other, serving.Ending{State: serving.StateSucceeded, At: begun}, 2))
	for n := 1; n <= 4; n++ {
		require.NoError(t, store.CompleteServing(ctx, record("one", n),
			serving.Ending{State: serving.StateSucceeded, At: begun}, 2))
	}
	var left []string
	for _, r := range servingRecords(t, store, "one") {
		left = append(left, r.Name)
	}
	require.Equal(t, []string{"serving-one-r4", "serving-one-r3", open}, left,
		"the newest, and the one that may be running")
	require.Len(t, servingRecords(t, store, "other"), 1, "each serving has its own limit")
}

// To find records that exceed the limit the API server has to read the records of all subjects, so the search is
// skipped when there cannot be any.
func TestServingRecords_AreNotSearchedUnnecessarily(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	const keep = 20
	n := 0
	operation := func(kind string, generation int64) {
		n++
		in := updateInput(t, "one")
		in.Kind, in.Generation = kind, generation
		run := fmt.Sprintf("one-r%d", n)
		begun := time.Now().Add(time.Duration(n-100) * time.Minute)
		require.NoError(t, store.RecordServing(ctx,
			serving.NewReleaseRequest(in, kuscia.Operation{WorkflowID: "w", RunID: run}, begun)))
		require.NoError(t, store.CompleteServing(ctx, v1alpha1.RecordName(v1alpha1.KindServing, run),
			serving.Ending{State: serving.StateSucceeded, At: begun}, keep))
	}
	for range keep + 2 { // an ID that is used repeatedly, and never deleted
		operation(serving.KindUpdate, 2)
	}
	require.Len(t, servingRecords(t, store, "one"), keep+2,
		"generation 2 cannot have that many records, so no search is made")
	operation(serving.KindUpdate, 3)
	require.Len(t, servingRecords(t, store, "one"), keep)
	operation(serving.KindCreate, 1)
	require.Len(t, servingRecords(t, store, "one"), keep+1)
	operation(serving.KindDelete, 1)
	require.Len(t, servingRecords(t, store, "one"), keep, "leftover records are deleted with the next deletion")
}
