package cli_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/v1alpha1"
)

func partiesOfTheTests() []client.PartyState {
	return []client.PartyState{
		{Name: "alice", Queue: "alice.own", Namespace: "shop", Labels: map[string]string{"tier": "1", "region": "eu"},
			CreatedAt: beforeP(time.Hour),
			Reachable: party.Reachable, LastSeenAt: beforeP(3 * time.Second),
			Reason: "worker w polls queue alice.own, last seen 3s ago",
			Workers: []client.PartyWorker{{Identity: "w", Host: "node-1", Policy: "baseline",
				Account: "system:serviceaccount:slipway-party:slipway-party", Guard: party.GuardUnlisted,
				StartedAt: before(time.Minute), LastSeenAt: before(3 * time.Second)}}},
		{Name: "bob", Queue: "slipway.party.bob", CreatedAt: beforeP(2 * time.Hour), Reachable: party.Unreachable,
			LastSeenAt: beforeP(10 * time.Minute),
			Reason:     "the last worker of queue slipway.party.bob stopped responding",
			Workers:    []client.PartyWorker{}},
		{Name: "default", Queue: "slipway.party.default", Reachable: party.Unknown, Reason: "Temporal is unreachable",
			Workers: []client.PartyWorker{}},
	}
}

func TestPartyListAndGet(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	all := partiesOfTheTests()
	api.on("GET /api/v1/parties", func(request) answer {
		return answerJSON(http.StatusOK, client.PartyList{Items: all})
	})
	for _, one := range all {
		api.on("GET /api/v1/parties/"+one.Name, func(request) answer { return answerJSON(http.StatusOK, one) })
	}
	require.Equal(t, outcome{out: `NAME      REACHABLE   LAST SEEN   QUEUE                   NAMESPACE   AGE
alice     yes         3s          alice.own               shop        1h00m
bob       no          10m00s      slipway.party.bob       -           2h00m
default   unknown     -           slipway.party.default   -           -
`}, slipway(t, api, "party", "list"))
	require.Equal(t, outcome{out: `party alice is reachable: worker w polls queue alice.own, last seen 3s ago
workers poll queue: alice.own
default namespace of workloads: shop
labels: region=eu, tier=1

WORKER   HOST     BUILD   UP      LAST SEEN   POLICY     GUARD      ACCOUNT
w        node-1   -       1m00s   3s          baseline   unlisted   system:serviceaccount:slipway-party:slipway-party

The guard of its cluster did not know the account of worker w when it started: its releases are refused. ` +
		"Run `slipway guard install` there with --engine-identity system:serviceaccount:slipway-party:slipway-party, and " +
		"with those of the cluster's other engines and parties.\n"}, slipway(t, api, "party", "get", "alice"))
	require.Equal(t, outcome{out: "party bob is unreachable: the last worker of queue slipway.party.bob stopped " +
		"responding\nworkers poll queue: slipway.party.bob\n"},
		slipway(t, api, "party", "get", "bob"))
	require.Contains(t, slipway(t, api, "party", "get", "default").out,
		"party default may be reachable: Temporal is unreachable\n")
	require.Contains(t, slipway(t, api, "party", "get", "alice", "-o", "yaml").out, "reachable: \"yes\"\n",
		"programs get the API's response; yes is a string")
	require.Contains(t, slipway(t, api, "parties", "list", "-o", "json").out, `"name": "bob"`)
	require.Contains(t, newSession(t, "").run("__complete", "party", "get", "--api", api.URL, "").out,
		"alice\talice.own\n")
}

func TestPartyApply(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, file, text string
		args, names        []string
		want               []v1alpha1.PartySpec
	}{
		"ByFileName": {"a bare spec is named after its file", "alice.yaml", "namespace: shop\n", nil, []string{"alice"},
			[]v1alpha1.PartySpec{{Namespace: "shop"}}},
		"ByFlag": {"--name takes precedence over the file's name", "x.yaml", "queue: q\n", []string{"--name", "alice"},
			[]string{"alice"},
			[]v1alpha1.PartySpec{{Queue: "q"}}},
		"Objects": {
			"several objects are sent one by one, each as its spec", "parties.yaml",
			object("Party", "alice", "namespace: shop") + "---\n" + object("Party", "bob", "labels: {a: b}"), nil,
			[]string{"alice", "bob"},
			[]v1alpha1.PartySpec{{Namespace: "shop"}, {Labels: map[string]string{"a": "b"}}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			lines := ""
			for _, name := range c.names {
				api.on("PUT /api/v1/parties/"+name, func(request) answer {
					return answerJSON(http.StatusCreated, client.PutPartyResult{Name: name, Changed: true})
				})
				lines += "party " + name + " created\n"
			}
			require.Equal(t, outcome{out: lines}, slipway(t, api,
				append([]string{"party", "apply", "-f", write(t, c.file, c.text)}, c.args...)...), c.reason)
			for n, want := range c.want {
				sent, wrong := party.Decode([]byte(api.requests()[n].body))
				require.Empty(t, wrong, c.reason)
				require.Equal(t, want, sent, c.reason)
			}
		})
	}
}

func TestPartyApply_SendsNothing_WhenInvalid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ reason, file, text, want string }{
		"Spec": {"each error has its line", "alice.yaml", "# who\nqueue: a b\nnamespase: shop\n",
			"alice.yaml:2: queue: \"a b\" is not the name of a queue: it contains a blank, a quote or a backslash\n" +
				"alice.yaml:3: namespase: unknown key \"namespase\": did you mean \"namespace\"?\nerror: 2 errors; " +
				"nothing was sent\n"},
		"Name": {"a party's name must be an object name", "parties.yaml", object("Party", "Alice", "queue: q"),
			"this document has an invalid name: \"Alice\" is not a legal name"},
		"Kind": {"a service is not a party", "s.yaml", object("ReleaseService", "111", cartService),
			"is a ReleaseService, not a Party: apply it with its own command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := write(t, c.file, c.text)
			got := slipway(t, newFakeAPI(t), "party", "apply", "-f", file).inFolder(file)
			require.Equal(t, app.ExitFailure, got.code, c.reason)
			require.Contains(t, got.err, c.want, c.reason)
		})
	}
}

func TestPartyDelete(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("DELETE /api/v1/parties/alice", func(request) answer { return answer{status: http.StatusNoContent} })
	api.on("DELETE /api/v1/parties/bob", func(request) answer {
		return problem(http.StatusConflict, "a release names it")
	})
	require.Equal(t, outcome{code: app.ExitFailure, out: "party alice deleted\n", err: "error: a release names it\n"},
		slipway(t, api, "party", "delete", "bob", "alice"))
}
