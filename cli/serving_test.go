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
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/audit"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
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
			Workflow:  &audit.WorkflowRef{ID: "serving/serving-01/2", RunID: "run-1", URL: "http://ui/serving"}}}
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

// stored is the answer to a PUT of a serving or an AppImage.
func stored(name string, generation int64, created, changed bool) answer {
	status := http.StatusOK
	if changed {
		status = http.StatusAccepted
	}
	return answerJSON(status, client.PutDeclaredResult{Name: name, Generation: generation, Created: created,
		Changed: changed})
}

// appImage is an AppImage with a container that has a port with a number, which Kuscia's request cannot express.
func appImage(name, tag string) client.AppImage {
	return client.AppImage{Name: name, Generation: 3, CreatedAt: noon, Spec: kuscia.AppImageSpec{
		Image: kuscia.AppImageInfo{Name: "registry/serving", Tag: tag},
		DeployTemplates: []kuscia.DeployTemplate{{Name: "serving", Role: "server", Spec: kuscia.PodTemplate{
			Containers: []kuscia.Container{{Name: "c", Ports: []kuscia.ContainerPort{
				{Name: "service", Port: 53509, Protocol: "HTTP", Scope: "Cluster"}}}}}},
			{Name: "other", Spec: kuscia.PodTemplate{Containers: []kuscia.Container{{Name: "serving"}}}}}}}
}

// servingAPI accepts the servings and AppImages of the tests; it has the AppImages, and the serving serving-01.
func servingAPI(t *testing.T) *fakeAPI {
	t.Helper()
	api := newFakeAPI(t)
	for _, id := range []string{"one", "serving-01", "secretflow-serving"} {
		api.on("PUT /api/v1/servings/"+id, func(request) answer { return stored(id, 1, true, true) })
	}
	for _, name := range []string{"image", "sf-serving-image", "secretflow-serving-image"} {
		api.on("GET /api/v1/appimages/"+name, func(request) answer {
			return answerJSON(http.StatusOK, appImage(name, "v1"))
		})
		api.on("PUT /api/v1/appimages/"+name, func(request) answer { return stored(name, 1, true, true) })
	}
	api.on("GET /api/v1/servings/serving-01", func(request) answer {
		return answerJSON(http.StatusOK, withSpec(twoParties()))
	})
	return api
}

// withSpec adds the spec of two parties to a serving.
func withSpec(v serving.View) serving.View {
	v.Spec = &kuscia.KusciaDeploymentSpec{Initiator: "alice", InputConfig: "{}", Parties: []kuscia.Party{
		{DomainID: "alice", AppImageRef: "sf-serving-image"},
		{DomainID: "bob", AppImageRef: "sf-serving-image", ServiceNamePrefix: "svc"}}}
	return v
}

// sentSpec decodes the spec in the last request.
func sentSpec[T any](t *testing.T, api *fakeAPI, path string) (spec T) {
	t.Helper()
	last := api.requests()[len(api.requests())-1]
	require.Equal(t, "PUT "+path, last.method+" "+strings.TrimSuffix(last.path+"?"+last.query, "?"))
	require.NoError(t, yaml.UnmarshalStrict([]byte(last.body), &spec), last.body)
	return spec
}

func TestServingRequests_AreSentAsSpecs(t *testing.T) {
	t.Parallel()
	api := servingAPI(t)
	got := slipway(t, api, "serving", "create", "-f", write(t, "serving.json", documentText(t, "create.json")))
	require.Equal(t, outcome{out: "serving serving-01 created\n",
		err: "To watch it: slipway serving watch serving-01\n"}, got)
	spec := sentSpec[kuscia.KusciaDeploymentSpec](t, api, "/api/v1/servings/serving-01?generation=0")
	require.Equal(t, "alice", spec.Initiator)
	require.True(t, strings.HasPrefix(spec.InputConfig, `{"partyConfigs":{"alice":`), spec.InputConfig)
	alice := spec.Parties[0]
	require.Equal(t, []any{"alice", "sf-serving-image", int32(1), "25%"}, []any{alice.DomainID, alice.AppImageRef,
		*alice.Template.Replicas, alice.Template.Strategy.RollingUpdate.MaxSurge.StrVal})
	container := alice.Template.Spec.Containers[0]
	require.Equal(t, "serving", container.Name, "resources for all containers are those of the AppImage's container")
	require.Equal(t, "100m", container.Resources.Limits.Cpu().String())

	api.on("PUT /api/v1/servings/serving-01", func(request) answer { return stored("serving-01", 3, false, true) })
	got = slipway(t, api, "serving", "update", "-f", write(t, "serving.json", documentText(t, "update.json")))
	require.Equal(t, "serving serving-01 updated\n", got.out, got.err)
	spec = sentSpec[kuscia.KusciaDeploymentSpec](t, api, "/api/v1/servings/serving-01?generation=2")
	require.Equal(t, "svc", spec.Parties[1].ServiceNamePrefix, "an update keeps what the request does not have")
	require.Equal(t, "200Mi", spec.Parties[1].Template.Spec.Containers[0].Resources.Limits.Memory().String())
	got = slipwayWith(t, api, "serving_id: serving-01\nparties:\n- {domain_id: alice, replicas: 3}\n", "serving",
		"update", "-f", "-")
	require.Equal(t, app.ExitOK, got.code, got.err)
	spec = sentSpec[kuscia.KusciaDeploymentSpec](t, api, "/api/v1/servings/serving-01?generation=2")
	require.Equal(t, []any{"{}", int32(3), "bob"}, []any{spec.InputConfig, *spec.Parties[0].Template.Replicas,
		spec.Parties[1].DomainID}, "an update changes only its fields, of its parties")
}

func TestKusciaDeployment_IsSentAsItsSpec(t *testing.T) {
	t.Parallel()
	api := servingAPI(t)
	text := documentText(t, "deployment-full.yaml")
	got := slipway(t, api, "serving", "create", "-f", write(t, "kd.yaml", text))
	require.Equal(t, app.ExitOK, got.code, got.err)
	var object kuscia.KusciaDeployment
	require.NoError(t, yaml.Unmarshal([]byte(text), &object))
	require.Equal(t, object.Spec,
		sentSpec[kuscia.KusciaDeploymentSpec](t, api, "/api/v1/servings/secretflow-serving?generation=0"))
	require.True(t, strings.HasPrefix(api.requests()[0].body, "\n\n\n\n\n\n\n"), "its lines are those of the file")
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

func TestServingCreate_RejectsInvalidFiles(t *testing.T) {
	t.Parallel()
	const image = "apiVersion: kuscia.secretflow/v1alpha1\nkind: AppImage\nmetadata: {name: image}\nspec:\n  image: " +
		"{name: x, tag: v1}\n  deployTemplates:\n  - name: t\n    spec:\n      containers:\n      - name: c\n        " +
		"ports:\n        - {name: service, port: 53509, scope: Cluster}\n"
	cases := map[string]struct{ reason, text, want string }{
		"Label": {"Labels cannot be set.", strings.Replace(smallServing, "name: one", "name: one, labels: {team: a}",
			1),
			"f.yaml:3: metadata.labels.team: cannot be set through the API: remove it, or use kubectl"},
		"Policy": {"Annotations of Slipway cannot be set.", strings.Replace(smallServing, "name: one",
			"name: one, annotations: {slipway.io/policy: '{}'}", 1),
			"metadata.annotations.slipway.io/policy: cannot be set"},
		"Namespace": {"The namespace cannot be set.",
			strings.Replace(smallServing, "name: one", "name: one, namespace: shop", 1),
			"f.yaml:3: metadata.namespace: cannot be set through the API"},
		"OtherApp": {"Through the API everything is a serving.",
			strings.Replace(smallServing, "name: one", "name: one, labels: {kuscia.secretflow/app-type: job}", 1),
			"f.yaml:3: metadata.labels.kuscia.secretflow/app-type: cannot be set"},
		"WrongType": {"Types are checked.", smallServing + "    template: {replicas: many}\n",
			`f.yaml:9: parties[0].template.replicas: must be a whole number, not the text "many"`},
		"AllErrors": {"All errors are listed.", strings.Replace(smallServing, "appImageRef", "appImage", 1) + "  colour: red\n",
			`f.yaml:7: parties[0].appImageRef: is missing
f.yaml:8: parties[0].appImage: unknown key "appImage"`},
		"NoName": {"A name is required.", strings.Replace(smallServing, "name: one", "", 1),
			"metadata.name: is missing"},
		"NoSpec": {"A spec is required.", smallServing[:strings.Index(smallServing, "spec:")], "spec: is missing"},
		"OtherKind": {"Other kinds are rejected.", "apiVersion: kuscia.secretflow/v1alpha1\nkind: DomainRoute\n",
			`f.yaml:2: kind: must be KusciaDeployment or AppImage, not "DomainRoute"`},
		"Version": {"Other versions are rejected.", "apiVersion: v1\nkind: KusciaDeployment\n",
			"f.yaml:1: apiVersion: must be kuscia.secretflow/v1alpha1"},
		"Misspelt": {"Unknown fields are rejected.", `{"serving_id":"one","partiez":[]}`,
			`is not a Kuscia CreateServingRequest: unknown field "partiez"`},
		"Quantity": {"A resource must be a quantity, in any AppImage.",
			`{"serving_id":"one","parties":[{"domain_id":"alice","app_image":"image","resources":[{"min_cpu":"many"}]}]}`,
			"f.yaml:1: resource min_cpu many format is invalid for party domain_id/role alice/"},
		"Strategy": {"A strategy needs a type, also in a later document.",
			`{"serving_id":"one"}` + "\n---\n" + `{"serving_id":"two","parties":[{"domain_id":"alice","update_strategy":{}}]}`,
			"f.yaml:3: update strategy type should be Recreate or RollingUpdate for party/role alice/"},
		"NoID":      {"An ID is required.", `{"initiator":"alice"}`, "serving_id: is missing"},
		"Garbage":   {"A list is rejected.", "- a\n- b\n", "f.yaml:1: is not an object"},
		"Nothing":   {"An empty file is rejected.", "# nothing\n", "the file is empty"},
		"ImageOnly": {"At least one serving is required.", image, "there is no serving in the files: use Kuscia's request, or a KusciaDeployment"},
		"ImageTypo": {"Unknown fields of an AppImage are rejected.", strings.Replace(image, "tag: v1", "tagg: v1", 1),
			`f.yaml:5: image.tagg: unknown key "tagg": did you mean "tag"?`},
		"ImageLabel": {"Labels of AppImages cannot be set.",
			strings.Replace(image, "{name: image}", "{name: image, labels: {a: b}}", 1),
			"f.yaml:3: metadata.labels.a: cannot be set"},
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
		"{name: x, tag: v1}, deployTemplates: [{name: t, spec: {containers: [{name: c, ports: [{name: p, port: 80}]}]}}]}\n"
	path := write(t, "f.yaml", smallServing+"---\n"+image)
	api := servingAPI(t)
	got := slipway(t, api, "serving", "create", "-f", path)
	require.Equal(t, "AppImage image created\nserving one created\n", got.out, got.err)
	require.Equal(t, []string{"/api/v1/appimages/image", "/api/v1/servings/one"},
		[]string{api.requests()[0].path, api.requests()[1].path})
	require.Contains(t, api.requests()[0].body, "port: 80", "the whole spec is sent")
	require.Equal(t, "generation=0", api.requests()[0].query, "create changes no AppImage")

	api.on("PUT /api/v1/appimages/image", func(request) answer { return stored("image", 1, false, false) })
	require.Equal(t, "AppImage image unchanged\nserving one created\n",
		slipway(t, api, "serving", "create", "-f", path).out, "the AppImage exists unchanged")
	api.on("PUT /api/v1/appimages/image", func(request) answer {
		return problem(http.StatusConflict, "AppImage image exists already, with other content: choose another name, "+
			"or change it with PUT /api/v1/appimages/image")
	})
	before := len(api.requests())
	other := slipway(t, api, "serving", "create", "-f", path)
	require.Equal(t, outcome{code: app.ExitFailure, err: "error: AppImage image: AppImage image exists already, with " +
		"other content: choose another name, or change it with slipway appimage apply -f FILE\n"}, other)
	require.Len(t, api.requests(), before+1, "the serving was not sent")

	api.on("PUT /api/v1/appimages/image", func(request) answer { return stored("image", 2, false, true) })
	require.Equal(t, "AppImage image replaced\nserving one created\n",
		slipway(t, api, "serving", "apply", "-f", path).out, "apply replaces the AppImage")
	require.Empty(t, api.requests()[before+1].query)
}

func TestServingProblems_NameTheFile(t *testing.T) {
	t.Parallel()
	path := write(t, "kd.yaml", smallServing)
	api := servingAPI(t)
	api.on("PUT /api/v1/servings/one", func(request) answer {
		return problem(http.StatusUnprocessableEntity, "serving one cannot run: parties[0].domainID: domain alice is "+
			"not known (and 1 more)",
			client.FieldProblem{Field: "parties[0].domainID", Reason: "domain alice is not known"},
			client.FieldProblem{Reason: "affinity mode x is not known"})
	})
	got := slipway(t, api, "serving", "apply", "-f", path).inFolder(path)
	require.Equal(t, outcome{code: app.ExitFailure, err: "error: serving one: serving one cannot run\n" +
		"  kd.yaml:7: parties[0].domainID: domain alice is not known\n  kd.yaml: affinity mode x is not known\n"}, got)

	api.on("PUT /api/v1/servings/one", func(request) answer {
		return problem(http.StatusConflict, "serving one exists already: change it with PUT /api/v1/servings/one, or "+
			"choose another ID")
	})
	require.Equal(t, "error: serving one: serving one exists already: change it with slipway serving apply -f FILE, or "+
		"choose another ID\n", slipway(t, api, "serving", "create", "-f", path).err)

	api.on("GET /api/v1/appimages/image", func(request) answer {
		return problem(http.StatusNotFound, "AppImage image does not exist: GET /api/v1/appimages lists those that do, "+
			"and PUT /api/v1/appimages/image creates it")
	})
	text := "serving_id: one\ninitiator: alice\nparties:\n- {domain_id: alice, app_image: image}\n"
	require.Equal(t, "error: serving one: AppImage image does not exist: slipway appimage list lists those that do, and "+
		"slipway appimage apply -f FILE creates it\n", slipwayWith(t, api, text, "serving", "apply", "-f", "-").err)
}

func TestServingDelete(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	for _, id := range []string{"one", "two"} {
		api.on("DELETE /api/v1/servings/"+id, func(request) answer { return answer{status: http.StatusNoContent} })
	}
	api.on("DELETE /api/v1/servings/none", func(request) answer {
		return problem(http.StatusNotFound, "serving none does not exist: GET /api/v1/servings lists those that do")
	})
	got := slipway(t, api, "serving", "delete", "one", "none", "two")
	require.Equal(t, outcome{code: app.ExitFailure, out: "serving one deleted\nserving two deleted\n",
		err: "error: serving none does not exist: slipway serving list lists those that do\n"}, got,
		"the others are deleted")
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

func TestServingGet(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/servings/serving-01", func(request) answer {
		return answerJSON(http.StatusOK, withSpec(updating()))
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
	require.Equal(t, "alice Progressing {}\n", slipway(t, api, "serving", "get", "serving-01", "-o",
		"jsonpath={.initiator} {.phase} {.spec.inputConfig}").out, "with its spec")
	api.on("GET /api/v1/servings/none", func(request) answer {
		return problem(http.StatusNotFound, "serving none does not exist")
	})
	for _, form := range []string{"json", "table"} {
		require.Equal(t, app.ExitFailure, slipway(t, api, "serving", "get", "none", "-o", form).code, form)
	}
	require.Equal(t, app.ExitUsage, slipway(t, api, "serving", "get", "a/b").code, "the ID is invalid")
}
