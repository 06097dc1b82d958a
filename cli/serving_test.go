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

// documentText returns an example from Kuscia's documentation: create.json, update.json, deployment.yaml or
// deployment-full.yaml.
func documentText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "serving", name))
	require.NoError(t, err)
	return string(text)
}

// twoParties is a serving of alice and bob with all pods available.
func twoParties() serving.View {
	party := serving.PartyView{Queue: "slipway.party.default", AppImage: "sf-serving-image", Deployment: "serving-01",
		Phase:    kuscia.PhaseAvailable,
		Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	alice, bob := party, party
	alice.Domain, bob.Domain, bob.Role, bob.Deployment = "alice", "bob", "server", "serving-01-server"
	alice.Endpoints = []serving.Endpoint{{PortName: "service", Scope: "Cluster",
		Endpoint: "serving-01-service.alice.svc", Port: 53509}}
	bob.Endpoints = []serving.Endpoint{}
	return serving.View{ID: "serving-01", Generation: 2, ServedGeneration: 2, Initiator: "alice",
		Phase:        kuscia.PhaseAvailable,
		TotalParties: 2, AvailableParties: 2,
		Parties: []serving.PartyView{alice, bob}, CreatedAt: before(time.Hour),
		Operation: &serving.OperationView{Kind: serving.KindUpdate, Generation: 2, Done: true,
			StartedAt: beforeP(time.Minute),
			Workflow:  &plan.WorkflowRef{ID: "serving/serving-01/2", RunID: "run-1", URL: "http://ui/serving"}}}
}

// updating is the serving while bob is updated and one of its pods does not start.
func updating() serving.View {
	v := twoParties()
	v.Phase, v.Reason, v.Message, v.AvailableParties, v.ServedGeneration = kuscia.PhaseProgressing, "ImagePullBackOff",
		"party bob/server: manifest unknown", 1, 1
	v.Operation.Done = false
	v.Parties[1].Phase, v.Parties[1].Reason, v.Parties[1].Message = kuscia.PhaseProgressing, "ImagePullBackOff",
		"manifest unknown"
	v.Parties[1].UpdatedReplicas, v.Parties[1].AvailableReplicas = 1, 1
	return v
}

// ended is the serving after its operation ended with this phase and reason.
func ended(phase kuscia.Phase, reason string) serving.View {
	v := twoParties()
	v.Phase, v.Operation.Reason, v.Reason = phase, reason, reason
	return v
}

func kusciaOK(data any) answer {
	return answerJSON(http.StatusOK, map[string]any{"status": map[string]any{"code": 0, "message": "success",
		"details": []any{}},
		"data": data})
}

func kusciaRefusal(code int, message string) answer {
	return answerJSON(http.StatusOK, map[string]any{"status": map[string]any{"code": code, "message": message,
		"details": []any{}}})
}

// servingAPI accepts Kuscia's create, update and delete requests.
func servingAPI(t *testing.T) *fakeAPI {
	t.Helper()
	api := newFakeAPI(t)
	for _, path := range []string{"serving/create", "serving/update", "serving/delete", "appimage/create",
		"appimage/update"} {
		api.on("POST /api/v1/"+path, func(request) answer { return kusciaOK(nil) })
	}
	return api
}

func TestServingRequests_AreSentUnchanged(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"create", "update"} {
		api, text := servingAPI(t), documentText(t, verb+".json")
		got := slipway(t, api, "serving", verb, "-f", write(t, "serving.json", text))
		require.Equal(t, outcome{out: "serving serving-01 " + verb + "d\n",
			err: "To watch it: slipway serving watch serving-01\n"}, got)
		sent := api.requests()[0]
		require.Equal(t, "/api/v1/serving/"+verb, sent.path)
		require.Equal(t, strings.TrimSpace(text), sent.body, "byte for byte")
	}
}

func TestKusciaDeployment_IsTranslatedToRequest(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, file, parties string }{
		"Short": {"Missing fields are missing in the request.", "deployment.yaml",
			`[{"domain_id":"alice","app_image":"secretflow-serving-image"},{"domain_id":"bob","app_image":"secretflow-serving-image"}]`},
		"Whole": {"All fields are translated; the status is ignored.", "deployment-full.yaml",
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

func TestKusciaDeployment_RevisionIsIgnored(t *testing.T) {
	t.Parallel()
	api := servingAPI(t)
	got := slipway(t, api, "serving", "create", "-f", write(t, "kd.yaml", smallServing+"  revision: two\n"))
	require.Equal(t, app.ExitOK, got.code, "objects from kubectl may have a revision; every update rolls out edited "+
		"AppImages "+
		"anyway\n%s", got.err)
	require.NotContains(t, api.requests()[0].body, "two")
}

func TestServingCreate_RejectsInvalidFiles(t *testing.T) {
	t.Parallel()
	const image = "apiVersion: kuscia.secretflow/v1alpha1\nkind: AppImage\nmetadata: {name: image}\nspec:\n  image: " +
		"{name: x, tag: v1}\n  deployTemplates:\n  - name: t\n    spec:\n      containers:\n      - name: c\n        " +
		"ports:\n        - {name: service, port: 53509, scope: Cluster}\n"
	cases := map[string]struct{ reason, text, want string }{
		"Affinity": {"Requests have no affinity.", smallServing + "    template: {spec: {affinity: {}}}\n",
			"f.yaml:9: spec.parties[0].template.spec.affinity: is not supported by Kuscia's request: remove it, or " +
				"use kubectl apply"},
		"Image": {"Requests have no container images.", smallServing +
			"    template:\n      spec:\n        containers:\n        - {name: c, image: x}\n",
			"f.yaml:12: spec.parties[0].template.spec.containers[0].image: is not supported"},
		"Label": {"Requests have no labels.", strings.Replace(smallServing, "name: one", "name: one, labels: {team: a}",
			1),
			"f.yaml:3: metadata.labels.team: is not supported"},
		"Policy": {"Requests have no Slipway annotations.", strings.Replace(smallServing, "name: one",
			"name: one, annotations: {slipway.io/policy: '{}'}", 1),
			"metadata.annotations.slipway.io/policy: is not supported"},
		"Namespace": {"The namespace cannot be set.",
			strings.Replace(smallServing, "name: one", "name: one, namespace: shop", 1),
			"f.yaml:3: metadata.namespace: cannot be set through the API"},
		"OtherApp": {"Through the API everything is a serving.",
			strings.Replace(smallServing, "name: one", "name: one, labels: {kuscia.secretflow/app-type: job}", 1),
			"must be serving: correct it"},
		"WrongType": {"Types are checked.", smallServing + "    template: {replicas: many}\n",
			"is not a valid KusciaDeployment"},
		"NoName": {"A name is required.", strings.Replace(smallServing, "name: one", "", 1),
			"metadata.name: is missing"},
		"OtherKind": {"Other kinds are rejected.", "apiVersion: kuscia.secretflow/v1alpha1\nkind: DomainRoute\n",
			"f.yaml:1: kind: must be KusciaDeployment or AppImage"},
		"Version": {"Other versions are rejected.", "apiVersion: v1\nkind: KusciaDeployment\n",
			"f.yaml:1: apiVersion: must be kuscia.secretflow/v1alpha1"},
		"Misspelt": {"Unknown fields are rejected.", `{"serving_id":"one","partiez":[]}`,
			`is not a Kuscia CreateServingRequest: unknown field "partiez"`},
		"NoID":    {"An ID is required.", `{"initiator":"alice"}`, "serving_id: is missing"},
		"Garbage": {"A list is rejected.", "- a\n- b\n", "f.yaml:1: is not an object"},
		"Nothing": {"An empty file is rejected.", "# nothing\n", "the file is empty"},
		"Port": {"Requests for AppImages have no port numbers.", image + "---\n" + smallServing,
			"f.yaml:12: spec.deployTemplates[0].spec.containers[0].ports[0].port: is not supported by Kuscia's " +
				"request for an AppImage"},
		"ImageOnly": {"At least one serving is required.", strings.Replace(image, "port: 53509, ", "", 1),
			"there is no serving in the files"},
		"ImageTypo": {"Unknown fields of an AppImage are rejected.", strings.Replace(image, "tag: v1", "tagg: v1", 1),
			`is not a valid AppImage: unknown field "tagg"`},
		"ImageLabel": {"Requests for AppImages have no labels.",
			strings.Replace(image, "{name: image}", "{name: image, labels: {a: b}}", 1),
			"f.yaml:3: metadata.labels: is not supported"},
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
			require.Empty(t, api.requests(), "no request was sent")
		})
	}
}

func TestServingCreate_RegistersAppImageFirst(t *testing.T) {
	t.Parallel()
	const image = "apiVersion: kuscia.secretflow/v1alpha1\nkind: AppImage\nmetadata: {name: image}\nspec: {image: " +
		"{name: x, tag: v1}, deployTemplates: [{name: t, spec: {containers: [{name: c}]}}]}\n"
	path := write(t, "f.yaml", smallServing+"---\n"+image)
	api := servingAPI(t)
	got := slipway(t, api, "serving", "create", "-f", path)
	require.Equal(t, "AppImage image created\nserving one created\n", got.out, got.err)
	require.Equal(t, []string{"/api/v1/appimage/create", "/api/v1/serving/create"},
		[]string{api.requests()[0].path, api.requests()[1].path})
	require.Contains(t, api.requests()[0].body, `"tag":"v1"`)

	there := func(tag string) *fakeAPI {
		api := servingAPI(t)
		api.on("POST /api/v1/appimage/create", func(request) answer {
			return kusciaRefusal(13106, `appimages.kuscia.secretflow "image" already exists`)
		})
		api.on("POST /api/v1/appimage/query", func(request) answer {
			return kusciaOK(map[string]any{"name": "image", "image": map[string]any{"name": "x", "tag": tag},
				"deploy_templates": []any{map[string]any{"name": "t",
					"containers": []any{map[string]any{"name": "c", "command": []any{}}}}}})
		})
		return api
	}
	require.Equal(t, "AppImage image unchanged\nserving one created\n",
		slipway(t, there("v1"), "serving", "create", "-f", path).out,
		"the AppImage exists unchanged")
	api = there("v2")
	other := slipway(t, api, "serving", "create", "-f", path)
	require.Equal(t, app.ExitFailure, other.code)
	require.Contains(t, other.err, "AppImage image: an AppImage of that name exists with other content")
	require.Equal(t, "/api/v1/appimage/query", api.requests()[len(api.requests())-1].path, "the serving was not sent")

	api = there("v2")
	api.on("POST /api/v1/serving/query", func(request) answer {
		return kusciaOK(map[string]any{"initiator": "alice",
			"parties": []any{map[string]any{"domain_id": "alice", "app_image": "image"}}})
	})
	require.Equal(t, "AppImage image replaced\nserving one updated\n",
		slipway(t, api, "serving", "update", "-f", path).out,
		"an update replaces the AppImage")
}

func TestServingUpdate_RejectsUnsupportedChanges(t *testing.T) {
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
	require.Equal(t,
		`kd.yaml:5: spec.initiator: is alice in the existing serving, and an update cannot change it: use kubectl apply
kd.yaml:5: spec.inputConfig: is missing, but an update cannot remove it: use kubectl apply
kd.yaml:7: spec.parties[0].serviceNamePrefix: is "svc" in the existing serving, and an update cannot change it: use kubectl apply
kd.yaml:9: spec.parties[1]: bob is not a party of the existing serving, and an update cannot add it: use kubectl apply
kd.yaml:7: spec.parties: does not contain carol/client, a party of the existing serving, but an update cannot remove it: use kubectl apply
error: 5 errors; serving one was not changed
`, got.err, "changes that would be ignored are rejected")
	require.Equal(t, app.ExitFailure, got.code)

	api = servingAPI(t)
	api.on("POST /api/v1/serving/query", query)
	now["parties"] = []any{map[string]any{"domain_id": "alice", "replicas": 3}}
	whole := strings.Replace(smallServing, "initiator: alice", "initiator: alice\n  inputConfig: '{}'", 1)
	got = slipwayWith(t, api, whole, "serving", "update", "-f", "-")
	require.Contains(t, got.err, "standard input:8: spec.parties[0].template.replicas: is missing, but an update "+
		"cannot unset "+
		"the current 3: set it")
	got = slipwayWith(t, api, whole+"    template: {replicas: 2}\n", "serving", "update", "-f", "-")
	require.Equal(t, app.ExitOK, got.code, got.err)
	sent := api.requests()[len(api.requests())-1]
	require.Contains(t, sent.body, `"update_strategy":{"type":"RollingUpdate"}`, "a missing strategy means the default")
	require.NotContains(t, sent.body, "initiator", "update requests have no initiator")
}

func TestKusciaErrors_HaveHints(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		code    int
		message string
		want    string
	}{
		"Exists": {"The ID exists.", 11600,
			`serving "cross-domain/serving-01" already exists, please ensure that the name is not duplicated`,
			"error: serving serving-01: serving \"cross-domain/serving-01\" already exists, please ensure that the " +
				"name is not duplicated (code 11600)\nChange it with `slipway serving update -f FILE`, or choose " +
				"another serving_id."},
		"NoAppImage": {"The AppImage does not exist.", 11600,
			"can not get appimage x from cluster, appimages.kuscia.secretflow \"x\" not found",
			"Register the AppImage first"},
		"NoDomain": {"The domain is unknown.", 11600,
			"domain x is not known: create a Party object or a namespace of that name in the home cluster",
			"`slipway party list`"},
		"Malformed": {"The request is invalid.", 11100, "initiator can not be empty",
			"Nothing was changed: correct the request"},
		"Unexpected": {"The engine failed unexpectedly.", 11101, "boom", "See the engine's log for details."},
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

func TestKusciaToken(t *testing.T) {
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
	require.Equal(t, "serving one deleted\nserving two deleted\n", got.out, "the others are deleted")
	require.Contains(t, got.err, "`slipway serving list` lists the servings.")
	require.Equal(t, app.ExitFailure, got.code)
}

func TestServingList(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/servings", func(r request) answer {
		if !strings.Contains(r.query, "cursor=more") {
			return answerJSON(http.StatusOK, client.ServingList{Items: []serving.View{twoParties()},
				NextCursor: "more"})
		}
		second := updating()
		second.ID, second.DeletedAt = "serving-02", beforeP(time.Second)
		return answerJSON(http.StatusOK, client.ServingList{Items: []serving.View{second}})
	})
	require.Equal(t,
		`ID           STATE                        PARTIES   OPERATION                           WAITS FOR   SINCE   AGE     REASON
serving-01   Available                    2/2       update of generation 2 completed    -           -       1h00m   -
serving-02   Progressing, being deleted   1/2       update of generation 2 is running   -           -       1h00m   ImagePullBackOff: party bob/server: manifest unknown
`, slipway(t, api, "serving", "list").out)
	var listed client.ServingList
	require.NoError(t, json.Unmarshal([]byte(slipway(t, api, "serving", "list", "-o", "json").out), &listed))
	require.Len(t, listed.Items, 2, "all pages are listed")
	completed := newSession(t, "").run("__complete", "serving", "watch", "--api", api.URL, "")
	require.Contains(t, completed.out, "serving-01\tAvailable\n", "shell completion lists the IDs")

	api.on("GET /api/v1/servings", func(request) answer {
		return answerJSON(http.StatusOK, client.ServingList{Items: []serving.View{}})
	})
	require.Equal(t, outcome{err: "There are no servings. Create one with `slipway serving create -f FILE`.\n"},
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
update of generation 2 is running, started 1m00s ago; generation 1 serves

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
	api.on("GET /api/v1/servings/none", func(request) answer {
		return problem(http.StatusNotFound, "serving none does not exist")
	})
	for _, form := range []string{"json", "table"} {
		require.Equal(t, app.ExitFailure, slipway(t, api, "serving", "get", "none", "-o", form).code, form)
	}
	require.Equal(t, app.ExitUsage, slipway(t, api, "serving", "get", "a/b").code, "the ID is invalid")
}
