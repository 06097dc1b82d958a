package store_test

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

func requireKind(t *testing.T, err error, kind failure.Kind, reason string) {
	t.Helper()
	var typed *failure.Error
	require.ErrorAs(t, err, &typed, "%s: got %v", reason, err)
	require.Equal(t, kind, typed.Kind, "%s: got %v", reason, err)
}

func service(name string) catalog.Service {
	return catalog.Service{DisplayName: name, Workloads: []catalog.Workload{{
		Namespace: "shop", WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "order"},
		Labels: []string{"label1"},
	}}}
}

func document(items int) plan.Document {
	d := plan.Document{Comment: "release of the shop"}
	for i := range items {
		d.Items = append(d.Items, plan.Item{ServiceID: plan.ServiceID(fmt.Sprint(i)), Priority: int64(i % 10),
			Deployment: plan.Restart, ContainerExecMethod: plan.Sequential})
	}
	return d
}

func TestEnsureCRDsIsRepeatable(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	require.NoError(t, store.EnsureCRDs(ctx))
	require.NoError(t, store.EnsureCRDs(ctx), "a restarted server applies the same definitions")
	definitions, err := apiextensions.NewForConfig(harness.SharedStack(t).REST)
	require.NoError(t, err)
	const name, path = "releaseservices.slipway.io", "/spec/versions/0/schema/openAPIV3Schema/description"
	edited, err := definitions.CustomResourceDefinitions().Patch(ctx, name, types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"`+path+`","value":"of another version"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, store.EnsureCRDs(ctx))
	restored, err := definitions.CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEqual(t, edited.Spec, restored.Spec, "a definition of another version is updated")
	require.NoError(t, store.EnsureNamespace(ctx), "the namespace may exist")
	require.NoError(t, store.CheckCRDs(ctx))
	require.NoError(t, store.CheckCluster(ctx))
}

func TestChecksNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	config := harness.SharedStack(t).REST
	absent, err := store.New(config, "absent-"+rand.String(8), "")
	require.NoError(t, err)
	requireKind(t, absent.CheckCluster(testContext(t)), failure.NotFound, "the engine's namespace does not exist")

	dead := rest.CopyConfig(config)
	dead.Host = "https://127.0.0.1:1"
	missing, err := store.New(dead, "", "")
	require.NoError(t, err)
	requireKind(t, missing.CheckCluster(testContext(t)), failure.Unreachable, "no server listens there")
	_, err = missing.GetPlan(testContext(t), "shop")
	requireKind(t, err, failure.Unreachable, "no server listens there")
}

func TestServices(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)

	created, changed, err := store.PutService(ctx, "111", service("order"))
	require.NoError(t, err)
	require.True(t, created && changed, "the first put creates")

	before, err := store.GetService(ctx, "111")
	require.NoError(t, err)
	require.Equal(t, service("order"), before.Spec)

	created, changed, err = store.PutService(ctx, "111", service("order"))
	require.NoError(t, err)
	require.False(t, created || changed, "an equal service writes nothing")
	after, err := store.GetService(ctx, "111")
	require.NoError(t, err)
	require.Equal(t, before.ResourceVersion, after.ResourceVersion, "an equal service writes nothing")

	created, changed, err = store.PutService(ctx, "111", service("orders"))
	require.NoError(t, err)
	require.True(t, !created && changed, "another service replaces it")

	require.NoError(t, store.DeleteService(ctx, "111"))
	requireKind(t, store.DeleteService(ctx, "111"), failure.NotFound, "it is deleted")
	_, err = store.GetService(ctx, "111")
	requireKind(t, err, failure.NotFound, "it is deleted")
}

func TestPutService_ComparesRawJSONByMeaning(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	built := service("order")
	built.Build = &catalog.Build{Image: "registry/app:{{commit}}",
		JobTemplate: apiextensionsv1.JSON{Raw: []byte(`{"spec": {"z": 1, "a": [1, 2]}}`)}}
	_, _, err := store.PutService(ctx, "built", built)
	require.NoError(t, err)
	built.Build.JobTemplate.Raw = []byte(`{"spec":{"a":[1,2],"z":1}}`)
	_, changed, err := store.PutService(ctx, "built", built)
	require.NoError(t, err)
	require.False(t, changed, "the order of keys and white space do not matter")
}

func TestCapitalLettersKeepTheirSpelling(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	for _, id := range []string{"Order", "order", "ORDER"} {
		created, _, err := store.PutService(ctx, id, service(id))
		require.NoError(t, err)
		require.True(t, created, "%s is a distinct ID", id)
	}
	found, err := store.GetServices(ctx, []plan.ServiceID{"Order", "order", "ORDER", "oRDER"})
	require.NoError(t, err)
	require.Len(t, found, 3)
	for id, spec := range found {
		require.Equal(t, string(id), spec.DisplayName, "each ID has its own entry")
	}
	items, _, err := store.ListServices(ctx, 10, "")
	require.NoError(t, err)
	ids := []string{}
	for i := range items {
		ids = append(ids, v1alpha1.IDOf(&items[i]))
	}
	require.ElementsMatch(t, []string{"Order", "order", "ORDER"}, ids)
	require.NoError(t, store.DeleteService(ctx, "ORDER"))
	_, err = store.GetService(ctx, "Order")
	require.NoError(t, err, "deleting one spelling leaves the others")
}

func TestListsComeInPages(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	for i := range 7 {
		_, _, err := store.PutService(ctx, fmt.Sprintf("s%d", i), service("x"))
		require.NoError(t, err)
	}
	var names []string
	for cursor, first := "", true; first || cursor != ""; first = false {
		items, next, err := store.ListServices(ctx, 3, cursor)
		require.NoError(t, err)
		require.LessOrEqual(t, len(items), 3)
		for _, item := range items {
			names = append(names, item.Name)
		}
		cursor = next
	}
	require.Equal(t, []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6"}, names)
	_, _, err := store.ListServices(ctx, 3, "nonsense")
	requireKind(t, err, failure.Refused, "an invalid cursor is the caller's mistake")
}

func TestGetServices_OfAThousand(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	var wg sync.WaitGroup
	ids := make([]plan.ServiceID, 1000)
	slots := make(chan struct{}, 20)
	for i := range ids {
		ids[i] = plan.ServiceID(fmt.Sprint(i))
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			_, _, err := store.PutService(ctx, fmt.Sprint(i), service("x"))
			if err != nil {
				t.Errorf("put service %d: %v", i, err)
			}
		})
	}
	wg.Wait()

	want := document(1000)
	_, _, err := store.PutPlan(ctx, "big", want)
	require.NoError(t, err)
	got, err := store.GetPlan(ctx, "big")
	require.NoError(t, err)
	require.Equal(t, want, got.Spec)

	began := time.Now()
	found, err := store.GetServices(ctx, append(ids, "absent"))
	require.NoError(t, err)
	require.Len(t, found, 1000, "unknown IDs are absent")
	t.Logf("1,000 services were read in %s", time.Since(began).Round(time.Millisecond))
}

func TestGetPlan_WithNumericServiceIDs(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	object := fmt.Sprintf(
		`{"apiVersion":"slipway.io/v1alpha1","kind":"DeployPlan","metadata":{"name":"by-hand","namespace":%q},
		"spec":{"deployPlanItems":[{"serviceId":111,"deployment":"STOP"}]}}`, store.Namespace())
	err := harness.SharedStack(t).Kube.CoreV1().RESTClient().Post().
		AbsPath("/apis/slipway.io/v1alpha1/namespaces/" + store.Namespace() +
			"/deployplans").Body([]byte(object)).Do(ctx).Error()
	require.NoError(t, err)
	got, err := store.GetPlan(ctx, "by-hand")
	require.NoError(t, err)
	require.Equal(t, plan.ServiceID("111"), got.Spec.Items[0].ServiceID, "kubectl apply sends a number")
}

func TestTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	big := service(strings.Repeat("x", 2<<20))
	_, _, err := store.PutService(testContext(t), "big", big)
	requireKind(t, err, failure.Refused, "it exceeds etcd's limit")
}

func TestClaimPlan_OneOfTwentyWins(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	_, _, err := store.PutPlan(ctx, "Shop", document(2))
	require.NoError(t, err)
	read, err := store.GetPlan(ctx, "Shop")
	require.NoError(t, err)

	var wg sync.WaitGroup
	results := make([]error, 20)
	for i := range results {
		wg.Go(func() { results[i] = store.ClaimPlan(ctx, "Shop", read.ResourceVersion, fmt.Sprintf("task-%d", i)) })
	}
	wg.Wait()
	winner := ""
	for i, err := range results {
		if err == nil {
			require.Empty(t, winner, "two claims of one version won")
			winner = fmt.Sprintf("task-%d", i)
			continue
		}
		requireKind(t, err, failure.Conflict, "the others are refused")
	}
	live, _, err := store.LiveTask(ctx, "Shop")
	require.NoError(t, err)
	require.Equal(t, winner, live)
	claimed, err := store.GetPlan(ctx, "Shop")
	require.NoError(t, err)
	require.Equal(t, document(2), claimed.Spec, "a claim does not change the spec")
	require.NotNil(t, claimed.Status.TaskClaimedAt)

	_, _, err = store.PutPlan(ctx, "Shop", document(3))
	require.NoError(t, err)
	live, _, err = store.LiveTask(ctx, "Shop")
	require.NoError(t, err)
	require.Equal(t, winner, live, "replacing a plan keeps its task")
	requireKind(t, store.DeletePlan(ctx, "Shop", claimed.ResourceVersion), failure.Conflict,
		"changed since it was read")
	require.NoError(t, store.DeletePlan(ctx, "Shop", ""))
	live, _, err = store.LiveTask(ctx, "Shop")
	require.NoError(t, err)
	require.Empty(t, live, "a deleted plan has no task")
}

func record(t *testing.T, task string, createdAt time.Time) *v1alpha1.ReleaseRecord {
	t.Helper()
	snapshot, err := v1alpha1.EncodeBody(plan.Snapshot{Task: task, Plan: "shop", CreatedAt: createdAt,
		Document: document(3)})
	require.NoError(t, err)
	return &v1alpha1.ReleaseRecord{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RecordName(v1alpha1.KindTask, task), Labels: map[string]string{
			v1alpha1.LabelKind: v1alpha1.KindTask, v1alpha1.LabelSubject: "shop"}},
		Spec: v1alpha1.ReleaseRecordSpec{Kind: v1alpha1.KindTask, Subject: "shop", WorkflowID: plan.WorkflowID(task),
			CreatedAt: instant.MicroOf(createdAt), Snapshot: snapshot},
	}
}

func finished(task string, at time.Time) plan.Task {
	return plan.Task{ID: task, Plan: "shop", State: plan.TaskSucceeded, Reason: "all is done", CreatedAt: at,
		StartedAt: &at, FinishedAt: &at,
		Services: []plan.ServiceStatus{{ServiceID: "111", State: plan.ItemSucceeded}},
		Workflow: &audit.WorkflowRef{ID: plan.WorkflowID(task), RunID: "run"}}
}

func TestRecordsFromMemoryAndFromTheServer(t *testing.T) {
	t.Parallel()
	for name, watched := range map[string]bool{"with the watch": true, "without the watch": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			ctx := testContext(t)
			if watched {
				go store.Run(ctx)
				require.Eventually(t, store.Watching, 10*time.Second, 5*time.Millisecond)
			}
			checkRecords(t, store)
		})
	}
}

// A restored or hand-written record may have a time without a fraction of a second. Once, such a record kept the server
// from listing any later record.
func TestListRecords_ContainsHandWrittenRecord(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	go store.Run(ctx)
	require.Eventually(t, store.Watching, 10*time.Second, 5*time.Millisecond)
	now := time.Now().UTC().Truncate(time.Second)
	byHand := record(t, "by-hand", now)
	object := fmt.Sprintf(
		`{"apiVersion":"slipway.io/v1alpha1","kind":"ReleaseRecord","metadata":{"name":%q,"namespace":%q,"labels":{%q:"task",%q:"shop"}},
		"spec":{"kind":"task","subject":"shop","workflowId":"task/by-hand","createdAt":%q,"snapshot":%q}}`, byHand.Name, store.Namespace(), v1alpha1.LabelKind,
		v1alpha1.LabelSubject, now.Format(time.RFC3339), base64.StdEncoding.EncodeToString(byHand.Spec.Snapshot))
	err := harness.SharedStack(t).Kube.CoreV1().RESTClient().Post().
		AbsPath("/apis/slipway.io/v1alpha1/namespaces/" + store.Namespace() +
			"/releaserecords").Body([]byte(object)).Do(ctx).Error()
	require.NoError(t, err)
	require.NoError(t, store.CreateRecord(ctx, record(t, "after-it", now.Add(time.Second))))
	require.Equal(t, []string{"task-after-it", "task-by-hand"}, listed(t, store))
}

func checkRecords(t *testing.T, store *store.Store) {
	ctx := testContext(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	for i, task := range []string{"a", "b", "c"} {
		require.NoError(t, store.CreateRecord(ctx, record(t, task, now.Add(time.Duration(i)*time.Microsecond))))
	}
	requireKind(t, store.CreateRecord(ctx, record(t, "a", now)), failure.Conflict, "it exists already")
	require.Equal(t, []string{"task-c", "task-b", "task-a"}, listed(t, store),
		"newest first, immediately after the writes")
	requireNewestOfEach(t, store, now)

	snapshot, err := store.Snapshot(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, plan.Snapshot{Task: "b", Plan: "shop", CreatedAt: now.Add(time.Microsecond),
		Document: document(3)}, snapshot)
	subject, err := store.PlanOfTask(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, "shop", subject)
	subject, err = store.PlanOfTask(ctx, "absent")
	require.NoError(t, err)
	require.Empty(t, subject)

	require.NoError(t, store.CompleteTask(ctx, finished("b", now), 0))
	other := finished("b", now)
	other.State = plan.TaskFailed
	require.NoError(t, store.CompleteTask(ctx, other, 0), "it may be repeated")
	whole, err := store.GetRecord(ctx, "b")
	require.NoError(t, err)
	var task plan.Task
	require.NoError(t, v1alpha1.DecodeBody(whole.Outcome.Body, &task))
	require.Equal(t, finished("b", now), task, "the first outcome is kept")
	require.Equal(t, "Succeeded", whole.Labels[v1alpha1.LabelState])

	records, err := store.ListRecords(ctx, map[string]string{v1alpha1.LabelSubject: "shop"})
	require.NoError(t, err)
	for _, r := range records {
		require.Empty(t, r.Spec.Snapshot, "lists carry no bodies")
		if r.Name == "task-b" {
			require.Equal(t, "Succeeded", r.Outcome.State)
			require.Empty(t, r.Outcome.Body, "lists carry no bodies")
		}
	}
	require.NoError(t, store.DeleteRecord(ctx, "a"))
	requireKind(t, store.DeleteRecord(ctx, "a"), failure.NotFound, "it is deleted")
	require.Equal(t, []string{"task-c", "task-b"}, listed(t, store))
}

// requireNewestOfEach adds a record of another plan to the existing ones, which were written after now.
func requireNewestOfEach(t *testing.T, store *store.Store, now time.Time) {
	t.Helper()
	ctx := testContext(t)
	other := record(t, "d", now)
	other.Spec.Subject = "order"
	other.Labels[v1alpha1.LabelSubject] = "order"
	require.NoError(t, store.CreateRecord(ctx, other))
	newest, err := store.ListNewest(ctx, map[string]string{v1alpha1.LabelKind: v1alpha1.KindTask})
	require.NoError(t, err)
	require.Equal(t, []string{"task-c", "task-d"}, namesOf(newest), "one of each plan, newest first")
	require.NoError(t, store.DeleteRecord(ctx, "d"))
}

func listed(t *testing.T, store *store.Store) []string {
	t.Helper()
	records, err := store.ListRecords(testContext(t), map[string]string{v1alpha1.LabelKind: v1alpha1.KindTask})
	require.NoError(t, err)
	return namesOf(records)
}

func namesOf(records []*v1alpha1.ReleaseRecord) (names []string) {
	for _, r := range records {
		names = append(names, r.Name)
	}
	return names
}

func TestOldRecordsArePruned(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	require.NoError(t, store.CreateRecord(ctx, record(t, "running", now)))
	for i := range 4 {
		task := fmt.Sprintf("t%d", i)
		require.NoError(t, store.CreateRecord(ctx, record(t, task, now.Add(time.Duration(i+1)*time.Second))))
		require.NoError(t, store.CompleteTask(ctx, finished(task, now), 2))
	}
	require.Equal(t, []string{"task-t3", "task-t2", "task-running"}, listed(t, store),
		"the two newest complete records stay, and those that may be running")
}

func TestPartiesAndTheirQueues(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	kube := harness.SharedStack(t).Kube
	own := harness.NewNamespace(t, kube, "party-ns")
	for name, queue := range map[string]string{"alice": "", "bob": "bobs.queue"} {
		object := fmt.Sprintf(
			`{"apiVersion":"slipway.io/v1alpha1","kind":"Party","metadata":{"name":%q},"spec":{"queue":%q}}`, name,
			queue)
		err := kube.CoreV1().RESTClient().Post().AbsPath("/apis/slipway.io/v1alpha1/namespaces/" + store.Namespace() +
			"/parties").Body([]byte(object)).Do(ctx).Error()
		require.NoError(t, err)
	}
	for _, c := range []struct {
		party, queue string
		known        bool
		reason       string
	}{
		{"default", "slipway.party.default", true, "the engine's own cluster is always a party"},
		{"", "slipway.party.default", true, "no party means the default one"},
		{"alice", "slipway.party.alice", true, "a Party object without a queue has the default queue"},
		{"bob", "bobs.queue", true, "a Party object names its queue"},
		{own, "slipway.party.default", true, "a namespace of the home cluster is served by the default party"},
		{"nobody-" + rand.String(6), "", false, "neither a Party object nor a namespace"},
	} {
		queue, known, err := store.Queue(ctx, c.party)
		require.NoError(t, err, c.reason)
		require.Equal(t, c.known, known, c.reason)
		require.Equal(t, c.queue, queue, c.reason)
	}
}

func TestParties(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	_, err := store.GetParty(ctx, "alice")
	requireKind(t, err, failure.NotFound, "it does not exist")
	for _, name := range []string{"bob", "alice"} {
		created, changed, err := store.PutParty(ctx, name, v1alpha1.PartySpec{Namespace: "shop"})
		require.NoError(t, err)
		require.True(t, created && changed, "it is new")
	}
	created, changed, err := store.PutParty(ctx, "alice", v1alpha1.PartySpec{Namespace: "shop"})
	require.NoError(t, err)
	require.False(t, created || changed, "it is equal already")
	stale, err := store.GetParty(ctx, "alice")
	require.NoError(t, err)
	_, changed, err = store.PutParty(ctx, "alice",
		v1alpha1.PartySpec{Queue: "own", Labels: map[string]string{"a": "b"}})
	require.NoError(t, err)
	require.True(t, changed, "it is replaced")
	all, err := store.ListParties(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, v1alpha1.PartySpec{Queue: "own", Labels: map[string]string{"a": "b"}}, all[0].Spec,
		"in order of name")
	requireKind(t, store.DeleteParty(ctx, stale), failure.Conflict, "changed since it was read")
	require.NoError(t, store.DeleteParty(ctx, &all[0]))
	requireKind(t, store.DeleteParty(ctx, &all[0]), failure.NotFound, "it is deleted")
}

func TestPruneRecords_OrdersReleasesWithinASecond(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	names := []string{"z", "y", "x", "w", "v"} // against the order of creation
	subject := ""
	for i, name := range names {
		r := record(t, name, time.Now().UTC())
		r.Labels[v1alpha1.LabelRevision] = strconv.Itoa(9 + i) // of one digit, and of two
		subject = r.Spec.Subject
		require.NoError(t, store.CreateRecord(ctx, r))
	}
	for _, name := range names {
		require.NoError(t, store.CompleteRelease(ctx, v1alpha1.KindTask, v1alpha1.RecordName(v1alpha1.KindTask, name),
			v1alpha1.ReleaseOutcome{State: "Succeeded", Body: []byte("body")}))
	}
	pruned, err := store.PruneRecords(ctx, v1alpha1.KindTask, subject, "", 2)
	require.NoError(t, err)
	require.Equal(t, 3, pruned)
	left, err := store.FindRecords(ctx, nil)
	require.NoError(t, err)
	var kept []string
	for _, r := range left {
		kept = append(kept, r.Labels[v1alpha1.LabelRevision])
	}
	require.ElementsMatch(t, []string{"12", "13"}, kept, "the last two of the five")
}

func TestPruneRecords_KeepsIdempotencyKeys(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	for i, task := range []string{"keyed", "plain", "newest"} {
		r := record(t, task, now.Add(time.Duration(i)*time.Second))
		if task == "keyed" {
			r.Labels[v1alpha1.LabelIdempotencyKey] = "k1"
		}
		require.NoError(t, store.CreateRecord(ctx, r))
		require.NoError(t, store.CompleteRelease(ctx, v1alpha1.KindTask, v1alpha1.RecordName(v1alpha1.KindTask, task),
			v1alpha1.ReleaseOutcome{State: "Succeeded", Body: []byte("body")}))
	}
	all, err := store.FindRecords(ctx, nil)
	require.NoError(t, err)
	except := v1alpha1.RecordName(v1alpha1.KindTask, "newest")
	_, err = store.PruneRecords(ctx, v1alpha1.KindTask, all[0].Spec.Subject, except, 1)
	require.NoError(t, err)

	listed, err := store.FindRecords(ctx, map[string]string{v1alpha1.LabelKind: v1alpha1.KindTask})
	require.NoError(t, err)
	for _, r := range listed {
		require.Empty(t, r.Labels[v1alpha1.LabelIdempotencyKey], "a pruned record is in no list of tasks")
	}
	_, err = store.GetRecord(ctx, "keyed")
	requireKind(t, err, failure.NotFound, "a pruned task is no longer shown")
	byKey, err := store.FindRecords(ctx, map[string]string{v1alpha1.LabelIdempotencyKey: "k1"})
	require.NoError(t, err)
	require.Len(t, byKey, 1, "its key is still known")
	require.NotNil(t, byKey[0].Outcome)
	_, err = store.GetRecord(ctx, "newest")
	require.NoError(t, err, "the record just completed is never pruned")
}

// Two parties with one queue would take each other's work.
func TestPartyQueue_BelongsToOneParty(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	put := func(name, queue string) error {
		_, _, err := store.PutParty(ctx, name, v1alpha1.PartySpec{Queue: queue})
		return err
	}
	require.NoError(t, put("alice", ""))
	for _, queue := range []string{"slipway.party.alice", "slipway.party.default"} {
		requireKind(t, put("bob", queue), failure.Conflict, queue)
	}
	require.ErrorContains(t, put("bob", "slipway.party.alice"), "is that of party alice")
	require.NoError(t, put("bob", ""))
	requireKind(t, put("alice", "slipway.party.bob"), failure.Conflict, "nor can a party take another's later")
	object := `{"apiVersion":"slipway.io/v1alpha1","kind":"Party","metadata":{"name":"zoe"},` +
		`"spec":{"queue":"slipway.party.alice"}}`
	path := "/apis/slipway.io/v1alpha1/namespaces/" + store.Namespace() + "/parties"
	client := harness.SharedStack(t).Kube.CoreV1().RESTClient()
	require.NoError(t, client.Post().AbsPath(path).Body([]byte(object)).Do(ctx).Error())
	require.Eventually(t, func() bool {
		_, _, err := store.FindQueue(ctx, "zoe")
		return failure.Is(err, failure.Refused)
	}, 10*time.Second, 100*time.Millisecond, "the younger object can't be used")
	_, known, err := store.Queue(ctx, "alice")
	require.NoError(t, err, "the older one can")
	require.True(t, known)
	require.NoError(t, put("alice", ""), "an unchanged one is no conflict")
}
