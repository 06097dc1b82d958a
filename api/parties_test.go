package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"slipway.io/slipway/api/schema"
	presence "slipway.io/slipway/release/party"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

const aliceDocument = "queue: alice.own\nnamespace: shop\nlabels: {region: eu}\n"

func (e *engine) partyState(name string) schema.PartyState {
	e.t.Helper()
	return decode[schema.PartyState](e.call("GET", "/api/v1/parties/"+name, "").is(http.StatusOK, "the party exists"))
}

// poll starts an idle worker, which sends heartbeats as often as Temporal allows.
func (e *engine) poll(queue string) (stop func()) {
	e.t.Helper()
	stack := harness.SharedStack(e.t)
	reporter, err := client.NewLazyClient(client.Options{HostPort: stack.TemporalAddress, Namespace: e.namespace,
		Logger: quiet, Identity: "worker-of-" + queue,
		WorkerHeartbeatInterval: time.Second})
	require.NoError(e.t, err)
	w := worker.New(reporter, queue, worker.Options{DisableWorkflowWorker: true})
	w.RegisterActivity(func(context.Context) error { return nil })
	require.NoError(e.t, w.Start())
	stopped := false
	stop = func() {
		if !stopped {
			w.Stop()
			reporter.Close()
		}
		stopped = true
	}
	e.t.Cleanup(stop)
	return stop
}

func (e *engine) waitReachable(name string, want presence.Reachability) schema.PartyState {
	e.t.Helper()
	var last schema.PartyState
	require.Eventually(e.t, func() bool {
		last = e.partyState(name)
		return last.Reachable == want
	}, waitTimeout, pollInterval, "party %s does not reach %s; it is %+v", name, want, &last)
	return last
}

func TestParties_CRUD(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	const path = "/api/v1/parties/alice"
	e.call("GET", path, "").is(http.StatusNotFound, "it does not exist")
	e.call("DELETE", path, "").is(http.StatusNotFound, "it does not exist")
	e.call("GET", "/api/v1/parties/A_b", "").is(http.StatusNotFound, "the name is illegal")
	created := e.call("PUT", path, aliceDocument, yamlBody).is(http.StatusCreated, "it is new")
	require.Equal(t, schema.PutPartyResult{Name: "alice", Changed: true}, decode[schema.PutPartyResult](created))
	before := e.storedVersion("alice")
	same := e.call("PUT", path, `{"labels":{"region":"eu"},"namespace":"shop","queue":"alice.own"}`,
		jsonBody).is(http.StatusOK, "it is unchanged")
	require.False(t, decode[schema.PutPartyResult](same).Changed)
	require.Equal(t, before, e.storedVersion("alice"), "nothing was written")

	got := e.partyState("alice")
	require.Equal(t, "alice.own", got.Queue)
	require.Equal(t, "shop", got.Namespace)
	require.Equal(t, map[string]string{"region": "eu"}, got.Labels)
	require.WithinDuration(t, time.Now(), *got.CreatedAt, time.Minute)
	changed := e.call("PUT", path, "{}", jsonBody).is(http.StatusOK, "it is replaced, not merged")
	require.True(t, decode[schema.PutPartyResult](changed).Changed)
	got = e.partyState("alice")
	require.Equal(t, "slipway.party.alice", got.Queue, "the default queue")
	require.Empty(t, got.Namespace)

	wrong := e.call("PUT", path, "queue: a b\nnamespace: A\nlabels: {x: 'y z'}\ncolour: red\n",
		yamlBody).is(http.StatusBadRequest, "four mistakes")
	require.Len(t, wrong.problem().Errors, 4, "all at once: %s", wrong.body)
	require.Contains(t, wrong.reasons(), "0 namespace (line 2)")
	e.call("PUT", path, "queue: a\n", jsonBody).is(http.StatusBadRequest, "the body is declared as JSON, but is not")
	e.call("PUT", path, "", yamlBody).is(http.StatusBadRequest, "the body is empty")
	e.call("PUT", "/api/v1/parties/A_b", "{}", jsonBody).is(http.StatusBadRequest, "the name is illegal")
	e.call("PUT", "/api/v1/parties/"+strings.Repeat("a", 64), "{}", jsonBody).is(http.StatusBadRequest, "64 characters")
	e.call("DELETE", path, "").is(http.StatusNoContent, "no release names it")
	e.call("GET", path, "").is(http.StatusNotFound, "it was deleted")
}

// Two parties with one queue would take each other's work.
func TestParty_QueueOfAnother_IsRefused(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	e.call("PUT", "/api/v1/parties/alice", aliceDocument, yamlBody).is(http.StatusCreated, "it is new")
	refused := e.call("PUT", "/api/v1/parties/bob", "queue: alice.own\n", yamlBody).is(http.StatusConflict,
		"it is alice's queue")
	require.Contains(t, refused.problem().Detail, "its queue alice.own is that of party alice")
	written := `{"apiVersion":"slipway.io/v1alpha1","kind":"Party","metadata":{"name":"bob"},` +
		`"spec":{"queue":"alice.own"}}`
	require.NoError(t, harness.SharedStack(t).Kube.CoreV1().RESTClient().Post().AbsPath("/apis/slipway.io/v1alpha1/"+
		"namespaces/"+e.store.Namespace()+"/parties").Body([]byte(written)).Do(t.Context()).Error())
	require.Contains(t, e.partyState("bob").Unusable, "is that of party alice")
	require.Empty(t, e.partyState("alice").Unusable)
	for _, item := range decode[schema.PartyList](e.call("GET", "/api/v1/parties", "")).Items {
		require.Equal(t, item.Name == "bob", item.Unusable != "", item.Name)
	}
}

func (e *engine) storedVersion(name string) string {
	e.t.Helper()
	object, err := e.store.GetParty(e.t.Context(), name)
	require.NoError(e.t, err)
	return object.ResourceVersion
}

func TestPartyDefault_AlwaysExists(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	const path = "/api/v1/parties/default"
	got := e.partyState("default")
	require.Equal(t, "slipway.party.default", got.Queue)
	require.Nil(t, got.CreatedAt, "it has no object")
	refused := e.call("DELETE", path, "").is(http.StatusConflict, "there is nothing to delete")
	require.Contains(t, refused.problem().Detail, "the party default always exists")
	e.call("PUT", path, "namespace: shop\n", yamlBody).is(http.StatusCreated, "the party gets an object")
	require.Equal(t, "shop", e.partyState("default").Namespace)
	e.call("DELETE", path, "").is(http.StatusNoContent, "the object can be deleted")
	require.Empty(t, e.partyState("default").Namespace, "the party has its defaults again")
}

func TestNamespaceOfHomeCluster_IsParty(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	namespace := harness.SharedStack(t).Namespace(t, "party")
	e.call("PUT", "/api/v1/parties/default", "queue: its.own\n", yamlBody)
	got := e.partyState(namespace)
	require.Equal(t, "default", got.ServedBy)
	require.Equal(t, "its.own", got.Queue, "the worker of the party default does its work")
	require.Contains(t, got.Reason, "the party default serves it")
	refused := e.call("DELETE", "/api/v1/parties/"+namespace, "").is(http.StatusConflict, "it is not an object")
	require.Contains(t, refused.problem().Detail, "is a namespace of the home cluster")
	list := decode[schema.PartyList](e.call("GET", "/api/v1/parties", ""))
	require.Len(t, list.Items, 1, "lists contain objects and default")
	e.call("PUT", "/api/v1/parties/"+namespace, "{}", jsonBody).is(http.StatusCreated,
		"it may become a party of its own")
	require.Empty(t, e.partyState(namespace).ServedBy)
}

func TestListParties_SortedPages(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	for _, name := range []string{"zoe", "alice", "bob", "e.dot"} {
		e.call("PUT", "/api/v1/parties/"+name, "{}", jsonBody).is(http.StatusCreated, "it is new")
	}
	var names []string
	for cursor := ""; ; {
		page := decode[schema.PartyList](e.call("GET", "/api/v1/parties?limit=2&cursor="+cursor, "").is(http.StatusOK,
			"a page"))
		require.LessOrEqual(t, len(page.Items), 2)
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"alice", "bob", "default", "e.dot", "zoe"}, names, "default is sorted among the others")
	e.call("PUT", "/api/v1/parties/default", "{}", jsonBody)
	require.Len(t, decode[schema.PartyList](e.call("GET", "/api/v1/parties", "")).Items, 5,
		"default is not listed twice")
	e.call("GET", "/api/v1/parties?cursor=!!", "").is(http.StatusBadRequest, "not a cursor of this list")
	e.call("GET", "/api/v1/parties?cursor=QV9i", "").is(http.StatusBadRequest, "a cursor with an illegal party name")
	e.call("GET", "/api/v1/parties?limit=0", "").is(http.StatusBadRequest, "a page has at least one item")
}

func TestParty_ShowsItsWorkers(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	e.call("PUT", "/api/v1/parties/alice", aliceDocument, yamlBody)
	never := e.partyState("alice")
	require.Equal(t, presence.Unreachable, never.Reachable)
	require.Nil(t, never.LastSeenAt)
	require.Contains(t, never.Reason, "no worker of queue alice.own was ever seen")

	stop := e.poll("alice.own")
	there := e.waitReachable("alice", presence.Reachable)
	require.Len(t, there.Workers, 1)
	require.Equal(t, "worker-of-alice.own", there.Workers[0].Identity)
	require.NotEmpty(t, there.Workers[0].Host)
	require.WithinDuration(t, time.Now(), there.Workers[0].StartedAt, time.Minute)
	require.WithinDuration(t, time.Now(), *there.LastSeenAt, 20*time.Second)
	byName := map[string]presence.Reachability{}
	for _, item := range decode[schema.PartyList](e.call("GET", "/api/v1/parties", "")).Items {
		byName[item.Name] = item.Reachable
	}
	require.Equal(t, map[string]presence.Reachability{"alice": presence.Reachable, "default": presence.Unreachable},
		byName, "each has its own workers")

	stop()
	stopped := e.waitReachable("alice", presence.Unreachable)
	require.Contains(t, stopped.Reason, "was stopped at", "a worker that stops is unreachable at once")
	require.Empty(t, stopped.Workers)
	require.NotNil(t, stopped.LastSeenAt)
}

func TestParty_ReachableIsUnknown_WhenWorkersCannotBeListed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, sentence string
		answer           error
	}{
		{"an older server does not support ListWorkers", "does not keep workers' heartbeats",
			serviceerror.ToStatus(serviceerror.NewUnimplemented("unknown method ListWorkers")).Err()},
		{"Temporal is unavailable", "deadline exceeded", context.DeadlineExceeded},
	} {
		e := newEngine(t)
		e.listWorkers.Store(&c.answer)
		got := e.partyState("default")
		require.Equal(t, presence.Unknown, got.Reachable, c.reason)
		require.Contains(t, got.Reason, c.sentence, c.reason)
		require.Empty(t, got.Workers, c.reason)
		list := decode[schema.PartyList](e.call("GET", "/api/v1/parties", "").is(http.StatusOK,
			"the list is returned nevertheless"))
		require.Equal(t, presence.Unknown, list.Items[0].Reachable, c.reason)
	}
}

func TestDeleteParty_Refused_WhileReleaseNamesIt(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	e.createParty("alice")
	e.createParty("bob")
	e.createParty("carol")
	named, many := plan.WorkflowID("named"), plan.WorkflowID("many")
	e.openNaming(named, "alice", "default")
	refused := e.inUse("alice", named)
	require.Contains(t, refused.problem().Detail, "while the release task/named, which names it, is running")
	e.call("DELETE", "/api/v1/parties/bob", "").is(http.StatusNoContent, "no release names it")

	require.NoError(t, e.temporal.TerminateWorkflow(t.Context(), named, "", "over"))
	e.call("DELETE", "/api/v1/parties/alice", "").is(http.StatusNoContent,
		"Temporal's lists lag behind, but the workflow is described again")

	e.openNaming(many, "alice", "…")
	require.Contains(t, e.inUse("carol", many).problem().Detail, "names too many parties to list them",
		"its list is truncated: it may contain carol")
}

// openNaming opens a workflow that names these parties and does nothing.
func (e *engine) openNaming(workflowID string, parties ...string) {
	e.t.Helper()
	_, err := e.temporal.ExecuteWorkflow(e.t.Context(), client.StartWorkflowOptions{ID: workflowID, TaskQueue: "nobody",
		TypedSearchAttributes: temporal.NewSearchAttributes(workflows.AttributeParties.ValueSet(parties))},
		workflows.TypeDeployPlan)
	require.NoError(e.t, err)
	e.t.Cleanup(func() { _ = e.temporal.TerminateWorkflow(context.Background(), workflowID, "", "the test has ended") })
	query := fmt.Sprintf("WorkflowId = '%s' AND ExecutionStatus = 'Running'", workflowID)
	require.Eventually(e.t, func() bool {
		found, err := e.temporal.CountWorkflow(e.t.Context(),
			&workflowservice.CountWorkflowExecutionsRequest{Namespace: e.namespace, Query: query})
		return err == nil && found.GetCount() == 1
	}, waitTimeout, pollInterval, "Temporal's lists contain it")
}

func (e *engine) inUse(name, workflowID string) answer {
	e.t.Helper()
	refused := e.call("DELETE", "/api/v1/parties/"+name, "").is(http.StatusConflict, "a release names it")
	require.Equal(e.t, workflowID, refused.problem().Holder, "the problem names the release")
	return refused
}
