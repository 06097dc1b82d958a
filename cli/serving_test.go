package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/serving"
)

// documentText is an example of Kuscia's documents: create.json, update.json, deployment.yaml or deployment-full.yaml.
func documentText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "serving", name))
	require.NoError(t, err)
	return string(text)
}

// twoParties is the serving of alice and bob, both with all their pods.
func twoParties() serving.View {
	party := serving.PartyView{Queue: "slipway.party.default", AppImage: "sf-serving-image", Deployment: "serving-01",
		Phase:    kuscia.PhaseAvailable,
		Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	alice, bob := party, party
	alice.Domain, bob.Domain, bob.Role, bob.Deployment = "alice", "bob", "server", "serving-01-server"
	alice.Endpoints = []serving.Endpoint{{PortName: "service", Scope: "Cluster", Endpoint: "serving-01-service.alice.svc", Port: 53509}}
	bob.Endpoints = []serving.Endpoint{}
	return serving.View{ID: "serving-01", Generation: 2, ServedGeneration: 2, Initiator: "alice", Phase: kuscia.PhaseAvailable,
		TotalParties: 2, AvailableParties: 2,
		Parties: []serving.PartyView{alice, bob}, CreatedAt: before(time.Hour),
		Operation: &serving.OperationView{Kind: serving.KindUpdate, Generation: 2, Done: true, StartedAt: beforeP(time.Minute),
			Workflow: &plan.WorkflowRef{ID: "serving/serving-01/2", RunID: "run-1", URL: "http://ui/serving"}}}
}

// updating is the serving while bob gets new pods, one of which does not start.
func updating() serving.View {
	v := twoParties()
	v.Phase, v.Reason, v.Message, v.AvailableParties, v.ServedGeneration = kuscia.PhaseProgressing, "ImagePullBackOff",
		"party bob/server: manifest unknown", 1, 1
	v.Operation.Done = false
	v.Parties[1].Phase, v.Parties[1].Reason, v.Parties[1].Message = kuscia.PhaseProgressing, "ImagePullBackOff", "manifest unknown"
	v.Parties[1].UpdatedReplicas, v.Parties[1].AvailableReplicas = 1, 1
	return v
}

// ended is the serving when its operation ended so.
func ended(phase kuscia.Phase, reason string) serving.View {
	v := twoParties()
	v.Phase, v.Operation.Reason, v.Reason = phase, reason, reason
	return v
}

func kusciaOK(data any) answer {
	return answerJSON(http.StatusOK, map[string]any{"status": map[string]any{"code": 0, "message": "success", "details": []any{}},
		"data": data})
}

func kusciaRefusal(code int, message string) answer {
	return answerJSON(http.StatusOK, map[string]any{"status": map[string]any{"code": code, "message": message, "details": []any{}}})
}

// servingAPI answers Kuscia's create and update, and remembers nothing.
func servingAPI(t *testing.T) *fakeAPI {
	t.Helper()
	api := newFakeAPI(t)
	for _, path := range []string{"serving/create", "serving/update", "serving/delete", "appimage/create", "appimage/update"} {
		api.on("POST /api/v1/"+path, func(request) answer { return kusciaOK(nil) })
	}
	return api
}

func TestServingsOfTheDocumentAreSentUnchanged(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"create", "update"} {
		api, text := servingAPI(t), documentText(t, verb+".json")
		got := slipway(t, api, "serving", verb, "-f", write(t, "serving.json", text))
		require.Equal(t, outcome{out: "serving serving-01 " + verb + "d\n", err: "Follow it with: slipway serving watch serving-01\n"}, got)
		sent := api.requests()[0]
		require.Equal(t, "/api/v1/serving/"+verb, sent.path)
		require.Equal(t, strings.TrimSpace(text), sent.body, "byte for byte")
	}
}

func TestAKusciaDeploymentBecomesARequest(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, file, parties string }{
		"Short": {"What the document leaves out the request leaves out.", "deployment.yaml",
			`[{"domain_id":"alice","app_image":"secretflow-serving-image"},{"domain_id":"bob","app_image":"secretflow-serving-image"}]`},
		"Whole": {"Everything that the document has can be said; its status is the server's.", "deployment-full.yaml",
			`[{"domain_id":"alice","app_image":"secretflow-serving-image","replicas":1,
			   "update_strategy":{"type":"RollingUpdate","max_surge":"30%","max_unavailable":"30%"},
			   "resources":[{"container_name":"serving","min_cpu":"100m","max_cpu":"100m","min_memory":"100Mi","max_memory":"100Mi"}]},
			  {"domain_id":"bob","app_image":"secretflow-serving-image"}]`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := servingAPI(t)
			got := slipway(t, api, "serving", "create", "-f", write(t, "kd.yaml", documentText(t, c.file)))
			require.Equal(t, app.ExitOK, got.code, "%s\n%s", c.reason, got.err)
			var sent struct {
				ID        string          `json:"serving_id"`
				Initiator string          `json:"initiator"`
				Config    string          `json:"serving_input_config"`
				Parties   json.RawMessage `json:"parties"`
			}
			require.NoError(t, json.Unmarshal([]byte(api.requests()[0].body), &sent))
			require.Equal(t, "secretflow-serving", sent.ID)
			require.Equal(t, "alice", sent.Initiator)
			require.True(t, strings.HasPrefix(sent.Config, `{"partyConfigs":{"alice":`), sent.Config)
			require.JSONEq(t, c.parties, string(sent.Parties), c.reason)
		})
	}
}

const smallServing = `apiVersion: kuscia.secretflow/v1alpha1
kind: KusciaDeployment
metadata: {name: one}
spec:
  initiator: alice
  parties:
  - domainID: alice
    appImageRef: image
`

func TestTheRevisionOfAServingIsTheServers(t *testing.T) {
	t.Parallel()
	api := servingAPI(t)
	got := slipway(t, api, "serving", "create", "-f", write(t, "kd.yaml", smallServing+"  revision: two\n"))
	require.Equal(t, app.ExitOK, got.code, "an object that comes from kubectl may have one: every request has edited AppImages run "+
		"by itself\n%s", got.err)
	require.NotContains(t, api.requests()[0].body, "two")
}

func TestServingFilesThatCannotBeSent(t *testing.T) {
	t.Parallel()
	const image = "apiVersion: kuscia.secretflow/v1alpha1\nkind: AppImage\nmetadata: {name: image}\nspec:\n  image: {name: x, tag: " +
		"v1}\n  deployTemplates:\n" +
		"  - name: t\n    spec:\n      containers:\n      - name: c\n        ports:\n        - {name: service, port: 53509, scope: Cluster}\n"
	cases := map[string]struct{ reason, text, want string }{
		"Affinity": {"A request has no affinity.", smallServing + "    template: {spec: {affinity: {}}}\n",
			"f.yaml:9: spec.parties[0].template.spec.affinity: cannot be said in Kuscia's request: remove it, or use kubectl apply"},
		"Image": {"Nor the image of a container.", smallServing +
			"    template:\n      spec:\n        containers:\n        - {name: c, image: x}\n",
			"f.yaml:12: spec.parties[0].template.spec.containers[0].image: cannot be said"},
		"Label": {"Nor labels.", strings.Replace(smallServing, "name: one", "name: one, labels: {team: a}", 1),
			"f.yaml:3: metadata.labels.team: cannot be said"},
		"Policy": {"Nor annotations of ours.", strings.Replace(smallServing, "name: one",
			"name: one, annotations: {slipway.io/policy: '{}'}", 1), "metadata.annotations.slipway.io/policy: cannot be said"},
		"Namespace": {"The engine has a namespace for servings.",
			strings.Replace(smallServing, "name: one", "name: one, namespace: shop", 1),
			"f.yaml:3: metadata.namespace: cannot be chosen over the API"},
		"OtherApp": {"Over the API everything is a serving.",
			strings.Replace(smallServing, "name: one", "name: one, labels: {kuscia.secretflow/app-type: job}", 1), "must be serving over the API"},
		"WrongType": {"Types are checked.", smallServing + "    template: {replicas: many}\n", "is no KusciaDeployment"},
		"NoName":    {"A serving has a name.", strings.Replace(smallServing, "name: one", "", 1), "metadata.name: is missing"},
		"OtherKind": {"Only two kinds are taken.", "apiVersion: kuscia.secretflow/v1alpha1\nkind: DomainRoute\n",
			"f.yaml:1: kind: must be KusciaDeployment or AppImage"},
		"Version":  {"Of one version.", "apiVersion: v1\nkind: KusciaDeployment\n", "f.yaml:1: apiVersion: must be kuscia.secretflow/v1alpha1"},
		"Misspelt": {"What the engine would leave aside is a mistake.", `{"serving_id":"one","partiez":[]}`, `is no CreateServingRequest of Kuscia: unknown field "partiez"`},
		"NoID":     {"A request has an ID.", `{"initiator":"alice"}`, "serving_id: is missing"},
		"Garbage":  {"What is no object is nothing.", "- a\n- b\n", "f.yaml:1: is no object"},
		"Nothing":  {"An empty file is a mistake.", "# nothing\n", "the file holds no document"},
		"Port": {"The number of a port cannot be registered over HTTP.", image + "---\n" + smallServing,
			"f.yaml:12: spec.deployTemplates[0].spec.containers[0].ports[0].port: cannot be said in Kuscia's request for an AppImage"},
		"ImageOnly": {"There is a command for servings only.", strings.Replace(image, "port: 53509, ", "", 1),
			"there is no serving among the documents"},
		"ImageTypo": {"An AppImage is read strictly.", strings.Replace(image, "tag: v1", "tagg: v1", 1), `is no AppImage: unknown field "tagg"`},
		"ImageLabel": {"An AppImage has no labels over HTTP.",
			strings.Replace(image, "{name: image}", "{name: image, labels: {a: b}}", 1), "f.yaml:3: metadata.labels: cannot be said"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, "f.yaml", c.text)
			api := newFakeAPI(t)
			got := slipway(t, api, "serving", "create", "-f", path).inFolder(path)
			require.Equal(t, app.ExitFailure, got.code, "%s\n%s", c.reason, got.err)
			require.Contains(t, got.err, c.want, c.reason)
			require.Contains(t, got.err, "nothing was sent")
			require.Empty(t, api.requests(), "and nothing was")
		})
	}
}

func TestAnAppImageOfTheFileIsRegisteredFirst(t *testing.T) {
	t.Parallel()
	const image = "apiVersion: kuscia.secretflow/v1alpha1\nkind: AppImage\nmetadata: {name: image}\nspec: {image: {name: x, tag: " +
		"v1}, deployTemplates: [{name: t, spec: {containers: [{name: c}]}}]}\n"
	path := write(t, "f.yaml", smallServing+"---\n"+image)
	api := servingAPI(t)
	got := slipway(t, api, "serving", "create", "-f", path)
	require.Equal(t, "AppImage image created\nserving one created\n", got.out, got.err)
	require.Equal(t, []string{"/api/v1/appimage/create", "/api/v1/serving/create"}, []string{api.requests()[0].path, api.requests()[1].path})
	require.Contains(t, api.requests()[0].body, `"tag":"v1"`)

	there := func(tag string) *fakeAPI {
		api := servingAPI(t)
		api.on("POST /api/v1/appimage/create", func(request) answer {
			return kusciaRefusal(13106, `appimages.kuscia.secretflow "image" already exists`)
		})
		api.on("POST /api/v1/appimage/query", func(request) answer {
			return kusciaOK(map[string]any{"name": "image", "image": map[string]any{"name": "x", "tag": tag},
				"deploy_templates": []any{map[string]any{"name": "t", "containers": []any{map[string]any{"name": "c", "command": []any{}}}}}})
		})
		return api
	}
	require.Equal(t, "AppImage image unchanged\nserving one created\n", slipway(t, there("v1"), "serving", "create", "-f", path).out,
		"it is there as it should be")
	api = there("v2")
	other := slipway(t, api, "serving", "create", "-f", path)
	require.Equal(t, app.ExitFailure, other.code)
	require.Contains(t, other.err, "AppImage image: there is one of that name, and it is another one")
	require.Equal(t, "/api/v1/appimage/query", api.requests()[len(api.requests())-1].path, "the serving was not sent")

	api = there("v2")
	api.on("POST /api/v1/serving/query", func(request) answer {
		return kusciaOK(map[string]any{"initiator": "alice", "parties": []any{map[string]any{"domain_id": "alice", "app_image": "image"}}})
	})
	require.Equal(t, "AppImage image replaced\nserving one updated\n", slipway(t, api, "serving", "update", "-f", path).out,
		"an update changes it")
}

func TestAKusciaDeploymentThatNoUpdateCanReach(t *testing.T) {
	t.Parallel()
	now := map[string]any{"initiator": "alice", "serving_input_config": "{}", "parties": []any{
		map[string]any{"domain_id": "alice", "replicas": 3, "service_name_prefix": "svc"},
		map[string]any{"domain_id": "carol", "role": "client"}}}
	query := func(request) answer { return kusciaOK(now) }
	api := servingAPI(t)
	api.on("POST /api/v1/serving/query", query)
	path := write(t, "kd.yaml", strings.Replace(smallServing, "initiator: alice", "initiator: bob",
		1)+"  - {domainID: bob, appImageRef: image}\n")
	got := slipway(t, api, "serving", "update", "-f", path).inFolder(path)
	require.Equal(t, `kd.yaml:5: spec.initiator: is alice for the serving that there is, and an update cannot change it: use kubectl apply
kd.yaml:5: spec.inputConfig: is absent, and an update cannot take it away: use kubectl apply
kd.yaml:7: spec.parties[0].serviceNamePrefix: is "svc" for the serving that there is, and an update cannot change it: use kubectl apply
kd.yaml:9: spec.parties[1]: bob is no party of the serving that there is, and an update cannot add it: use kubectl apply
kd.yaml:7: spec.parties: leaves out carol/client, which is a party of the serving that there is, and an update cannot remove it: use kubectl apply
error: 5 errors; serving one was not changed
`, got.err, "what it would leave as it is in silence is refused")
	require.Equal(t, app.ExitFailure, got.code)

	api = servingAPI(t)
	api.on("POST /api/v1/serving/query", query)
	now["parties"] = []any{map[string]any{"domain_id": "alice", "replicas": 3}}
	whole := strings.Replace(smallServing, "initiator: alice", "initiator: alice\n  inputConfig: '{}'", 1)
	got = slipwayWith(t, api, whole, "serving", "update", "-f", "-")
	require.Contains(t, got.err, "standard input:8: spec.parties[0].template.replicas: is absent, and an update cannot take back "+
		"the 3 that there are: say how many")
	got = slipwayWith(t, api, whole+"    template: {replicas: 2}\n", "serving", "update", "-f", "-")
	require.Equal(t, app.ExitOK, got.code, got.err)
	sent := api.requests()[len(api.requests())-1]
	require.Contains(t, sent.body, `"update_strategy":{"type":"RollingUpdate"}`, "a strategy that is left out is the default one")
	require.NotContains(t, sent.body, "initiator", "which an update does not have")
}

func TestWhatKusciaRefusesIsAnError(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		code    int
		message string
		want    string
	}{
		"Exists": {"A name that is taken.", 11600, `serving "cross-domain/serving-01" already exists, please ensure that the name is not duplicated`,
			"error: serving serving-01: serving \"cross-domain/serving-01\" already exists, please ensure that the name is not " +
				"duplicated (code 11600)\nChange it with `slipway serving update -f FILE`, or choose another serving_id."},
		"NoAppImage": {"An AppImage that is not there.", 11600,
			"can not get appimage x from cluster, appimages.kuscia.secretflow \"x\" not found", "Register the AppImage first"},
		"NoDomain": {"A domain that nobody knows.", 11600,
			"domain x is not known: create a Party object or a namespace of that name in the home cluster", "`slipway party list`"},
		"Malformed": {"What no state of things could make good.", 11100, "initiator can not be empty",
			"Nothing was changed: correct the request"},
		"Unexpected": {"What the engine did not expect.", 11101, "boom", "The engine's log has more."},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.on("POST /api/v1/serving/create", func(request) answer { return kusciaRefusal(c.code, c.message) })
			got := slipway(t, api, "serving", "create", "-f", write(t, "serving.json", documentText(t, "create.json")))
			require.Equal(t, app.ExitFailure, got.code, c.reason)
			require.Contains(t, got.err, c.want, c.reason)
			require.Empty(t, got.out)
		})
	}
}

func TestTheTokenOfKusciasAPI(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/serving/delete", func(r request) answer {
		if r.header.Get("Token") != "secret" {
			return answer{status: http.StatusUnauthorized}
		}
		return kusciaOK(nil)
	})
	refused := slipway(t, api, "serving", "delete", "one")
	require.Equal(t, app.ExitFailure, refused.code)
	require.Contains(t, refused.err, "--token-file")
	shown := slipway(t, api, "serving", "delete", "one", "--token-file", write(t, "token", "secret\n"))
	require.Equal(t, outcome{out: "serving one deleted\n"}, shown)
}

func TestServingDelete(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/serving/delete", func(r request) answer {
		if r.field(t, "serving_id") == "none" {
			return kusciaRefusal(11604, `kusciadeployments.kuscia.secretflow "none" not found`)
		}
		return kusciaOK(nil)
	})
	got := slipway(t, api, "serving", "delete", "one", "none", "two")
	require.Equal(t, "serving one deleted\nserving two deleted\n", got.out, "one that cannot be deleted does not keep the others")
	require.Contains(t, got.err, "`slipway serving list` shows the servings that there are.")
	require.Equal(t, app.ExitFailure, got.code)
}

func TestServingList(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/servings", func(r request) answer {
		if !strings.Contains(r.query, "cursor=more") {
			return answerJSON(http.StatusOK, client.ServingList{Items: []serving.View{twoParties()}, NextCursor: "more"})
		}
		second := updating()
		second.ID, second.DeletedAt = "serving-02", beforeP(time.Second)
		return answerJSON(http.StatusOK, client.ServingList{Items: []serving.View{second}})
	})
	require.Equal(t, `ID           STATE                        PARTIES   OPERATION                        WAITS FOR   SINCE   AGE     REASON
serving-01   Available                    2/2       update of generation 2 is done   -           -       1h00m   -
serving-02   Progressing, being deleted   1/2       update of generation 2 runs      -           -       1h00m   ImagePullBackOff: party bob/server: manifest unknown
`, slipway(t, api, "serving", "list").out)
	var listed client.ServingList
	require.NoError(t, json.Unmarshal([]byte(slipway(t, api, "serving", "list", "-o", "json").out), &listed))
	require.Len(t, listed.Items, 2, "every page of it")
	completed := newSession(t, "").run("__complete", "serving", "watch", "--api", api.URL, "")
	require.Contains(t, completed.out, "serving-01\tAvailable\n", "a shell is told the IDs")

	api.on("GET /api/v1/servings", func(request) answer { return answerJSON(http.StatusOK, client.ServingList{Items: []serving.View{}}) })
	require.Equal(t, outcome{err: "There are no servings: declare one with `slipway serving create -f FILE`.\n"},
		slipway(t, api, "serving", "list"))
}

func TestServingQuery(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/servings/serving-01", func(request) answer { return answerJSON(http.StatusOK, updating()) })
	api.on("POST /api/v1/serving/query", func(request) answer {
		return kusciaOK(map[string]any{"initiator": "alice", "status": map[string]any{"state": "Available"}})
	})
	require.Equal(t, `serving serving-01 of alice, generation 2
Progressing: ImagePullBackOff: party bob/server: manifest unknown
update of generation 2 runs, 1m00s since it began; generation 1 serves

  alice        Available     2 of 2 available
  bob/server   Progressing   1 of 2 available, 1 new   ImagePullBackOff: manifest unknown

  PARTY   PORT      SCOPE     ENDPOINT                       LISTENS ON
  alice   service   Cluster   serving-01-service.alice.svc   53509

workflow serving/serving-01/2  http://ui/serving
`, slipway(t, api, "serving", "get", "serving-01").out)
	require.Equal(t, "initiator: alice\nstatus:\n  state: Available\n",
		slipway(t, api, "serving", "get", "serving-01", "-o", "yaml").out, "the data of Kuscia's query")
	api.on("POST /api/v1/serving/query", func(request) answer {
		return kusciaRefusal(11601, `kusciadeployments.kuscia.secretflow "none" not found`)
	})
	api.on("GET /api/v1/servings/none", func(request) answer { return problem(http.StatusNotFound, "serving none does not exist") })
	for _, form := range []string{"json", "table"} {
		require.Equal(t, app.ExitFailure, slipway(t, api, "serving", "get", "none", "-o", form).code, form)
	}
	require.Equal(t, app.ExitUsage, slipway(t, api, "serving", "get", "a/b").code, "nothing can be called so")
}
