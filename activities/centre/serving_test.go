package centre_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/release/instant"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// operationOn returns the note of an operation on a serving.
func operationOn(kd *kuscia.KusciaDeployment, kind, run string) serving.NoteRequest {
	return serving.NoteRequest{ID: kd.Name, UID: string(kd.UID), Started: time.Now(),
		Source: serving.Source{WorkflowID: serving.WorkflowPrefix(kd.Name) + "1", RunID: run},
		Operation: kuscia.Operation{Kind: kind, Generation: kd.Generation,
			WorkflowID: serving.WorkflowPrefix(kd.Name) + "1", RunID: run, Version: "v"}}
}

func TestServingStatus_FollowsOperations(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	putAlice(t, store)
	activities := centre.NewActivities(store, nil, fakeInputs{}, 1)
	kd := newServing(t, store)
	id := kd.Name
	now := func() kuscia.KusciaDeploymentStatus {
		kd, err := store.GetServing(ctx, id)
		require.NoError(t, err)
		return kd.Status
	}
	begin := func(in serving.NoteRequest) serving.BeginResult {
		result, err := activities.BeginServing(ctx, in)
		require.NoError(t, err)
		return result
	}
	entry := func() kuscia.PartyDeploymentStatus { return now().PartyDeploymentStatuses["alice"][id] }

	update := operationOn(kd, serving.KindUpdate, "r1")
	require.Equal(t, serving.BeginResult{}, begin(update), "it has no predecessor")
	update.Operation.Done, update.Operation.Reason, update.Operation.Message = true, serving.ReasonUpdateRolledBack,
		"bad image"
	update.Parties = []serving.PartyTarget{{Domain: "alice", Deployment: id}}
	update.Failures = map[int]string{0: "it cannot go back"}
	require.NoError(t, activities.NoteServing(ctx, update))
	require.Equal(t, "it cannot go back", entry().Failure)

	recreation := operationOn(kd, serving.KindRecreate, "r2")
	require.Equal(t, serving.BeginResult{}, begin(recreation), "the predecessor has ended")
	require.Equal(t, "bad image", now().Operation.Message,
		"that an update was rolled back is shown until the next successful one")
	require.Empty(t, entry().Failure, "the recreation repairs it")
	require.NoError(t, activities.NoteServing(ctx, update), "a note of a replaced operation is ignored")
	require.Empty(t, entry().Failure)

	missing := serving.Observation{ID: id, UID: string(kd.UID), Domain: "alice", Deployment: id,
		Snapshot: serving.DeploymentSnapshot{ObservedDeployment: serving.ObservedDeployment{DeploymentUID: "d",
			Replicas: 1}, Missing: []string{"Service/a"}}}
	seen := time.Now()
	observe(t, activities, serving.ObserveRequest{ID: id, Observations: []serving.Observation{missing}, At: seen})
	recreation.Operation.Done = true
	recreation.Parties = update.Parties
	recreation.Complete = map[int]time.Time{0: seen.Add(-time.Second)}
	require.NoError(t, activities.NoteServing(ctx, recreation))
	require.Equal(t, []string{"Service/a"}, entry().Missing, "it was deleted after the recreation observed it")
	require.Equal(t, serving.ReasonUpdateRolledBack, now().Operation.Reason)

	next := operationOn(kd, serving.KindUpdate, "r3")
	require.Equal(t, serving.BeginResult{}, begin(next))
	require.Empty(t, now().Operation.Reason)
	next.Operation.WaitingFor = &kuscia.WaitingFor{Kind: serving.WaitApproval, Since: metav1.Now(),
		Message: "approve it"}
	next.Operation.History = []kuscia.AuditEntry{{At: metav1.Now(), Actor: "ann", Via: "cli", Verb: "approve",
		Outcome: "refused", Message: "too early"}}
	require.NoError(t, activities.NoteServing(ctx, next))
	last := operationOn(kd, serving.KindUpdate, "r4")
	require.Equal(t, "r3", begin(last).Predecessor.RunID, "the running operation is the predecessor")
	former := begin(last).Predecessor
	require.Equal(t, "r3", former.RunID, "a repetition returns the same")
	require.Nil(t, former.WaitingFor, "the predecessor's waits and commands are dropped")
	require.Empty(t, former.History)

	other := last
	other.UID = "another"
	require.True(t, begin(other).NotFound)
	older := last
	older.Operation.Generation, older.Operation.RunID = 0, "r0"
	require.True(t, begin(older).Outdated)
}

// The last observation of an operation is written with its end: a later identical report changes nothing, and an older
// observation than the stored one is ignored, however late it arrives.
func TestServingStatus_IsObservedAtOperationEnd(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	putAlice(t, store)
	activities := centre.NewActivities(store, nil, fakeInputs{}, 1)
	kd := newServing(t, store)
	at := time.Now()
	made := at.Truncate(time.Second)
	look := func(version string, available int32, at time.Time) serving.ObserveRequest {
		return serving.ObserveRequest{ID: kd.Name, At: at,
			Observations: []serving.Observation{{ID: kd.Name, UID: string(kd.UID), Domain: "alice", Deployment: kd.Name,
				Snapshot: serving.DeploymentSnapshot{
					ObservedDeployment: serving.ObservedDeployment{DeploymentUID: "d", CreatedAt: made,
						ResourceVersion: version, Replicas: 1}, UpdatedReplicas: 1, AvailableReplicas: available,
					UnavailableReplicas: 1 - available, Version: "v"}}}}
	}
	note := operationOn(kd, serving.KindCreate, "r1")
	note.Parties = []serving.PartyTarget{{Domain: "alice", Deployment: kd.Name}}
	_, err := activities.BeginServing(ctx, note)
	require.NoError(t, err)
	note.Operation.Done, note.Observed = true, []serving.ObserveRequest{look("7", 1, at)}
	require.NoError(t, activities.NoteServing(ctx, note))
	current, err := store.GetServing(ctx, kd.Name)
	require.NoError(t, err)
	require.Equal(t, kuscia.PhaseAvailable, current.Status.PartyDeploymentStatuses["alice"][kd.Name].Phase)

	observe(t, activities, look("8", 1, at.Add(time.Second)))
	same, err := store.GetServing(ctx, kd.Name)
	require.NoError(t, err)
	require.Equal(t, current.ResourceVersion, same.ResourceVersion, "nothing is written if nothing changed")

	deleted := look("7", 0, at.Add(time.Minute))
	deleted.Observations[0].Snapshot = deleted.Observations[0].Snapshot.Deleted(kd.Name)
	observe(t, activities, deleted)
	require.NoError(t, activities.NoteServing(ctx, note))
	current, err = store.GetServing(ctx, kd.Name)
	require.NoError(t, err)
	require.NotEmpty(t, current.Status.PartyDeploymentStatuses["alice"][kd.Name].Missing,
		"a deletion carries the object's last version, and is kept")

	observe(t, activities, look("9", 0, at.Add(time.Hour)))
	require.NoError(t, activities.NoteServing(ctx, note))
	current, err = store.GetServing(ctx, kd.Name)
	require.NoError(t, err)
	require.Zero(t, current.Status.PartyDeploymentStatuses["alice"][kd.Name].AvailableReplicas,
		"an older observation is ignored")
}

func TestBeginServing_ChecksServedVersion(t *testing.T) {
	t.Parallel()
	served := &kuscia.Served{Digest: "v1", Version: []byte("packed")}
	cases := map[string]struct {
		reason   string
		kind     string
		target   string
		previous string
		served   *kuscia.Served
		restart  bool
	}{
		"creation": {"no version serves yet", serving.KindCreate, "v2", "", nil, false},
		"creation after all": {"the previous operation has succeeded in the meantime: now there is a version to roll " +
			"back to", serving.KindCreate, "v2", "", served, true},
		"update": {"it would roll back to the serving version", serving.KindUpdate, "v2", "v1", served,
			false},
		"update of another": {"it would roll back to a version that no longer serves", serving.KindUpdate, "v2",
			"v0", served, true},
		"recreation": {"it restores the serving version", serving.KindRecreate, "v1", "", served, false},
		"recreation of another": {"it would restore a version that no longer serves", serving.KindRecreate, "v0", "",
			served, true},
		"deletion": {"a deletion has no rollback", serving.KindDelete, "", "", served, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, ctx := newStore(t), testContext(t)
			id := "serving-" + rand.String(8)
			require.NoError(t, store.CreateServing(ctx,
				&kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: kuscia.KusciaDeploymentSpec{
					Initiator: "alice", Parties: []kuscia.Party{{DomainID: "alice", AppImageRef: "image"}}}}))
			kd, err := store.GetServing(ctx, id)
			require.NoError(t, err)
			t.Cleanup(func() { _ = store.DeleteServing(context.Background(), kd) })
			kd.Status.Served = tc.served
			require.NoError(t, store.UpdateServingStatus(ctx, kd))
			in := operationOn(kd, tc.kind, "r1")
			in.Operation.Version, in.Previous = tc.target, tc.previous
			in.Parties = []serving.PartyTarget{{Domain: "alice", Deployment: id, Queue: "q"}}
			activities := centre.NewActivities(store, nil, fakeInputs{}, 1)
			for range 2 { // a repetition returns the same
				result, err := activities.BeginServing(ctx, in)
				require.NoError(t, err)
				require.Equal(t, tc.restart, result.Served != nil, tc.reason)
			}
			now, err := store.GetServing(ctx, id)
			require.NoError(t, err)
			if tc.restart {
				require.Nil(t, now.Status.Operation, "it has not begun")
				return
			}
			require.Equal(t, "r1", now.Status.Operation.RunID)
			require.Equal(t, "q", now.Status.PartyDeploymentStatuses["alice"][id].Queue,
				"the party's queue is recorded")
		})
	}
}

// expiredCursors answers every list with a cursor with 410 Expired, without a new cursor.
type expiredCursors struct{ next http.RoundTripper }

func (f expiredCursors) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("continue") == "" {
		return f.next.RoundTrip(r)
	}
	status, err := json.Marshal(apierrors.NewResourceExpired("the provided continue parameter is too old").ErrStatus)
	return &http.Response{StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}},
		Request: r,
		Body:    io.NopCloser(bytes.NewReader(status))}, err
}

// A starting worker gets everything that it should find, except in namespaces that it does not serve.
func TestExpectedServings(t *testing.T) {
	t.Parallel()
	stack := harness.SharedStack(t)
	own, ctx := stack.Namespace(t, "centre"), testContext(t)
	config := rest.CopyConfig(stack.REST)
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return expiredCursors{next} }
	home, err := store.New(config, own, own)
	require.NoError(t, err)
	require.NoError(t, home.EnsureCRDs(ctx))
	require.NoError(t, home.CreateServing(ctx, &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: "s1"},
		Spec: kuscia.KusciaDeploymentSpec{
			Initiator: "alice", Parties: []kuscia.Party{{DomainID: "alice", AppImageRef: "image"},
				{DomainID: "bob", AppImageRef: "image"}}}}))
	kd, err := home.GetServing(ctx, "s1")
	require.NoError(t, err)
	seen := instant.MicroOf(time.Now())
	entry := map[string]kuscia.PartyDeploymentStatus{"s1": {Queue: "q", ObservedAt: &seen, DeploymentUID: "d"}}
	kd.Status.PartyDeploymentStatuses = map[string]map[string]kuscia.PartyDeploymentStatus{"alice": entry, "bob": entry}
	require.NoError(t, home.UpdateServingStatus(ctx, kd))
	for _, tc := range []struct {
		reason  string
		request serving.ExpectedRequest
		want    []string
	}{
		{"everything", serving.ExpectedRequest{Queue: "q"}, []string{"alice", "bob"}},
		{"of the namespaces that it serves", serving.ExpectedRequest{Queue: "q", Namespaces: []string{"bob"}},
			[]string{"bob"}},
		{"from the beginning when the cursor has expired", serving.ExpectedRequest{Queue: "q", Cursor: "forgotten"},
			[]string{"alice", "bob"}},
	} {
		page, err := centre.NewActivities(home, nil, fakeInputs{}, 1).ExpectedServings(ctx, tc.request)
		require.NoError(t, err, tc.reason)
		var domains []string
		for _, e := range page.Expected {
			domains = append(domains, e.Domain)
		}
		require.Equal(t, tc.want, domains, tc.reason)
	}
}

// An operation that has begun, and waits for its predecessor in a further run, is not cancelled by a newer spec: the
// newer operation waits for it.
func TestBeginServing_Repeated_SurvivesNewerSpec(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	activities := centre.NewActivities(store, nil, fakeInputs{}, 1)
	kd := newServing(t, store)
	id := kd.Name
	first, late := operationOn(kd, serving.KindUpdate, "r1"), operationOn(kd, serving.KindUpdate, "r2")
	_, err := activities.BeginServing(ctx, first)
	require.NoError(t, err)
	kd, err = store.GetServing(ctx, id)
	require.NoError(t, err)
	kd.Spec.InputConfig = "{}"
	require.NoError(t, store.UpdateServing(ctx, kd))
	again, err := activities.BeginServing(ctx, first)
	require.NoError(t, err)
	require.False(t, again.Outdated, "it has begun, so newer operations wait for it")
	other, err := activities.BeginServing(ctx, late)
	require.NoError(t, err)
	require.True(t, other.Outdated, "an operation that has not begun yields to the newer spec")
}

// A worker of bob's queue reports about alice's Deployment: that changes nothing, while alice's own report does.
func TestObserveServings_IgnoresReportsOfAnotherQueue(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t), testContext(t)
	putAlice(t, store)
	activities := centre.NewActivities(store, nil, fakeInputs{}, 1)
	kd := newServing(t, store)
	seen := serving.Observation{ID: kd.Name, UID: string(kd.UID), Domain: "alice", Deployment: kd.Name,
		Snapshot: serving.DeploymentSnapshot{ObservedDeployment: serving.ObservedDeployment{DeploymentUID: "d",
			Replicas: 1}, AvailableReplicas: 1}}
	about := []serving.ObserveRequest{{ID: kd.Name, At: time.Now(), Observations: []serving.Observation{seen}}}
	report := func(queue string) serving.ObserveManyResult {
		return report(t, activities, serving.StatusesWorkflowID(queue), about...)
	}
	statuses := func() map[string]map[string]kuscia.PartyDeploymentStatus {
		now, err := store.GetServing(ctx, kd.Name)
		require.NoError(t, err)
		return now.Status.PartyDeploymentStatuses
	}
	forged := report("slipway.party.bob")
	require.Len(t, forged.Unwritten, 1)
	require.True(t, forged.Unwritten[0].Final, "it is logged, and not repeated")
	require.Contains(t, forged.Unwritten[0].Message,
		"the report of alice/"+kd.Name+" by serving-statuses/slipway.party.bob")
	require.Empty(t, statuses())
	require.Empty(t, report("slipway.party.alice").Unwritten)
	require.EqualValues(t, 1, statuses()["alice"][kd.Name].AvailableReplicas)
}

// putAlice registers the party "alice", with the queue of her name.
func putAlice(t *testing.T, store *store.Store) {
	t.Helper()
	_, _, err := store.PutParty(testContext(t), "alice", v1alpha1.PartySpec{})
	require.NoError(t, err)
}

// observe writes observations of alice's workers into the status of a serving.
func observe(t *testing.T, activities *centre.Activities, in serving.ObserveRequest) {
	t.Helper()
	require.Empty(t, report(t, activities, serving.StatusesWorkflowID("slipway.party.alice"), in).Unwritten)
}

// report has a workflow with this ID write observations.
func report(t *testing.T, activities *centre.Activities, workflowID string,
	in ...serving.ObserveRequest) (result serving.ObserveManyResult) {
	t.Helper()
	env := (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: workflowID})
	env.RegisterActivity(activities.ObserveServings)
	env.ExecuteWorkflow(func(ctx workflow.Context) (result serving.ObserveManyResult, err error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		err = workflow.ExecuteActivity(ctx, activities.ObserveServings,
			serving.ObserveManyRequest{Servings: in}).Get(ctx, &result)
		return result, err
	})
	require.NoError(t, env.GetWorkflowResult(&result))
	return result
}
