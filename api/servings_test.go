package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/instant"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// servingEngine returns an engine whose cluster has Kuscia's CRDs, and an AppImage of this test.
func servingEngine(t *testing.T) (e *engine, image string) {
	t.Helper()
	e = newEngine(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, e.store.EnsureCRDs(ctx))
	image = "image-" + rand.String(8)
	require.NoError(t, e.store.CreateAppImage(ctx,
		&kuscia.AppImage{ObjectMeta: metav1.ObjectMeta{Name: image}, Spec: kuscia.AppImageSpec{
			Image: kuscia.AppImageInfo{Name: "registry.test/serving", Tag: "v1"},
			DeployTemplates: []kuscia.DeployTemplate{{Name: "serving", Replicas: new(int32(2)),
				Spec: kuscia.PodTemplate{Containers: []kuscia.Container{{
					Name: "serving", Ports: []kuscia.ContainerPort{
						{Name: "service", Port: 53509, Scope: kuscia.ScopeCluster},
						{Name: "internal", Port: 53510, Scope: kuscia.ScopeDomain},
						{Name: "metrics", Port: 9000, Scope: kuscia.ScopeLocal}}}}}}}}}))
	t.Cleanup(func() { _ = e.store.DeleteAppImage(context.Background(), image) })
	return e, image
}

// createServing creates a serving of the parties alice and bob; the domain of alice is a namespace of the home cluster,
// the domain of bob does not exist.
func (e *engine) createServing(id, image string) *kuscia.KusciaDeployment {
	e.t.Helper()
	alice := e.store.Namespace()
	require.NoError(e.t, e.store.CreateServing(e.t.Context(), &kuscia.KusciaDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{kuscia.LabelAppType: kuscia.AppTypeServing}},
		Spec: kuscia.KusciaDeploymentSpec{Initiator: alice, Parties: []kuscia.Party{
			{DomainID: alice, AppImageRef: image}, {DomainID: "nobody-" + alice, Role: "server", AppImageRef: image}}},
	}))
	e.t.Cleanup(func() {
		if kd, err := e.store.GetServing(context.Background(), id); err == nil {
			_ = e.store.DeleteServing(context.Background(), kd)
		}
	})
	return e.storedServing(id)
}

func (e *engine) storedServing(id string) *kuscia.KusciaDeployment {
	e.t.Helper()
	kd, err := e.store.GetServing(e.t.Context(), id)
	require.NoError(e.t, err)
	return kd
}

func (e *engine) serving(id string) serving.View {
	e.t.Helper()
	return decode[serving.View](e.call("GET", "/api/v1/servings/"+id, "").is(http.StatusOK, "the serving exists"))
}

func TestGetServing(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	e.call("GET", "/api/v1/servings/none", "").is(http.StatusNotFound, "it does not exist")
	e.call("GET", "/api/v1/servings/A_b", "").is(http.StatusNotFound, "the ID is illegal")
	require.Empty(t, decode[schema.ServingList](e.call("GET", "/api/v1/servings", "").is(http.StatusOK,
		"an empty list is not an error")).Items)
	kd := e.createServing("one", image)

	got := e.serving("one")
	alice := kd.Spec.Initiator
	require.Equal(t, serving.DisplayedPending, got.Phase, "the engine has not processed it yet")
	require.Equal(t, []int{2, 0}, []int{got.TotalParties, got.AvailableParties})
	require.Equal(t, &serving.Policy{ProgressDeadlineSeconds: 600, PartyDeadlineSeconds: 600,
		Order: serving.OrderParallel, Approval: serving.ApprovalNone}, got.Policy, "the defaults")
	require.WithinDuration(t, time.Now(), got.CreatedAt, time.Minute)
	require.Equal(t, serving.PartyView{Domain: alice, Queue: "slipway.party.default", AppImage: image,
		Deployment: "one", Phase: serving.DisplayedPending, Replicas: 2,
		Endpoints: []serving.Endpoint{{PortName: "service", Scope: "Cluster", Endpoint: "one-service." + alice + ".svc",
			Port: 53509},
			{PortName: "internal", Scope: "Domain", Endpoint: "one-internal." + alice + ".svc:53510", Port: 53510}}},
		got.Parties[0])
	require.Equal(t, "one-server", got.Parties[1].Deployment, "the role is a part of its name")
	require.Empty(t, got.Parties[1].Queue, "the domain does not exist")

	now := instant.MicroOf(time.Now())
	kd.Status = kuscia.KusciaDeploymentStatus{ObservedGeneration: kd.Generation, Phase: kuscia.PhaseProgressing,
		Reason: "ImagePullBackOff", Message: "manifest unknown",
		Operation: &kuscia.Operation{Kind: serving.KindCreate, Generation: kd.Generation, WorkflowID: "serving/one/1",
			RunID: "run-1"},
		PartyDeploymentStatuses: map[string]map[string]kuscia.PartyDeploymentStatus{alice: {"one": {Phase: kuscia.PhaseProgressing, Reason: "ImagePullBackOff",
			Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1, ObservedAt: &now, Version: "abc",
			Missing: []string{"Service/one-service"}}}}}
	require.NoError(t, e.store.UpdateServingStatus(t.Context(), kd))
	got = e.serving("one")
	require.Equal(t, "ImagePullBackOff", got.Reason)
	require.Equal(t, &audit.WorkflowRef{ID: "serving/one/1", RunID: "run-1", URL: got.Operation.Workflow.URL},
		got.Operation.Workflow)
	require.Contains(t, got.Operation.Workflow.URL, "http://ui.example/", "with its page in the Temporal UI")
	require.EqualValues(t, 1, got.Parties[0].AvailableReplicas)
	require.Equal(t, []string{"Service/one-service"}, got.Parties[0].Missing)

	kd.Spec.InputConfig = "other"
	require.NoError(t, e.store.UpdateServing(t.Context(), kd))
	got = e.serving("one")
	require.Equal(t, kuscia.PhaseProgressing, got.Phase)
	require.Equal(t, "no operation has started for generation 2 of the spec yet", got.Message,
		"the status belongs to the previous generation")
	require.Zero(t, got.Parties[0].UpdatedReplicas, "counts from before an update do not count after it")
}

func TestPutServing(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	const path = "/api/v1/servings/one"
	alice := e.store.Namespace()
	spec := "initiator: " + alice + "\nparties:\n- {domainID: " + alice + ", appImageRef: " + image + "}\n"
	put := func(query, body string, status int, reason string) answer {
		t.Helper()
		return e.call("PUT", path+query, body, yamlBody).is(status, reason)
	}
	stored := func(a answer) schema.PutDeclaredResult { return decode[schema.PutDeclaredResult](a) }

	wrong := put("", "initiator: 1\nparties:\n- {domainID: "+alice+", template: {replicas: many, spec: {colour: red}}}\n",
		http.StatusBadRequest, "four mistakes")
	require.Len(t, wrong.problem().Errors, 4, "all at once: %s", wrong.body)
	require.Contains(t, wrong.reasons(), "initiator (line 1)")
	require.Contains(t, wrong.reasons(), "parties[0].template.replicas (line 3)")
	put("", "", http.StatusBadRequest, "the body is empty")
	e.call("PUT", path, spec, jsonBody).is(http.StatusBadRequest, "the body is declared as JSON, but is not")
	e.call("PUT", path, spec, "Content-Type: text/plain").is(http.StatusUnsupportedMediaType, "no document")
	e.call("PUT", path, strings.Repeat("x", 5<<20), yamlBody).is(http.StatusRequestEntityTooLarge, "5 MiB")
	e.call("PUT", "/api/v1/servings/A_b", spec, yamlBody).is(http.StatusBadRequest, "the ID is illegal")
	refused := put("", strings.Replace(spec, image, "none", 1)+"- {domainID: unknown, appImageRef: none}\n",
		http.StatusUnprocessableEntity, "an unknown AppImage and an unknown domain")
	require.Equal(t, []string{"parties[1].domainID", "parties[0]", "parties[1]"}, []string{
		refused.problem().Errors[0].Field, refused.problem().Errors[1].Field, refused.problem().Errors[2].Field})
	put("?generation=1", spec, http.StatusNotFound, "it does not exist")

	require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: 1, Created: true, Changed: true},
		stored(put("?generation=0&affinityMode=none", spec, http.StatusAccepted, "it is created")))
	t.Cleanup(func() {
		if kd, err := e.store.GetServing(context.Background(), "one"); err == nil {
			_ = e.store.GuardServing(context.Background(), kd, false)
			_ = e.store.DeleteServing(context.Background(), e.storedServing("one"))
		}
	})
	put("?generation=0", spec, http.StatusConflict, "it exists")
	require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: 1},
		stored(put("", spec, http.StatusOK, "it is unchanged")))
	got := e.serving("one")
	require.Equal(t, "none", got.AffinityMode)
	back, err := json.Marshal(got.Spec)
	require.NoError(t, err)
	require.False(t, stored(e.call("PUT", path, string(back), jsonBody).is(http.StatusOK,
		"what is read can be sent back")).Changed)
	require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: 2, Changed: true},
		stored(put("?generation=1", spec+"inputConfig: '{}'\n", http.StatusAccepted, "it is changed")))
	put("?generation=1", spec, http.StatusConflict, "another client has changed it")
	require.Equal(t, "{}", e.storedServing("one").Spec.InputConfig)

	e.call("DELETE", path, "").is(http.StatusNoContent, "it exists")
	put("", spec, http.StatusConflict, "it is being deleted")
	e.call("DELETE", path, "").is(http.StatusNoContent, "it is being deleted already")
	require.NoError(t, e.store.GuardServing(t.Context(), e.storedServing("one"), false))
	e.call("DELETE", path, "").is(http.StatusNotFound, "it was deleted")
	e.call("DELETE", "/api/v1/servings/A_b", "").is(http.StatusNotFound, "the ID is illegal")
}

func TestAppImages_CRUD(t *testing.T) {
	t.Parallel()
	e, other := servingEngine(t)
	name := "image-" + rand.String(8)
	path := "/api/v1/appimages/" + name
	t.Cleanup(func() { _ = e.store.DeleteAppImage(context.Background(), name) })
	const spec = `image: {name: registry.test/x, tag: v1}
deployTemplates:
- name: t
  spec:
    containers:
    - {name: c, ports: [{name: p, port: 80}]}
`
	put := func(query, body string, status int, reason string) schema.PutDeclaredResult {
		t.Helper()
		return decode[schema.PutDeclaredResult](e.call("PUT", path+query, body, yamlBody).is(status, reason))
	}
	missing := e.call("GET", path, "").is(http.StatusNotFound, "it does not exist").problem()
	require.Contains(t, missing.Detail, "PUT "+path+" creates it")
	e.call("DELETE", path, "").is(http.StatusNotFound, "it does not exist")
	wrong := e.call("PUT", path, "image: {name: x}\ndeployTemplates:\n- {name: t, role: 1, spec: {}}\n", yamlBody).is(
		http.StatusBadRequest, "three mistakes")
	require.Len(t, wrong.problem().Errors, 3, "all at once: %s", wrong.body)
	require.Contains(t, wrong.reasons(), "deployTemplates[0].spec.containers (line 3)")
	e.call("PUT", path, strings.Replace(spec, "port: 80", "port: 80, scope: World", 1), yamlBody).is(
		http.StatusBadRequest, "the definition does not allow it")
	e.call("PUT", "/api/v1/appimages/A_b", spec, yamlBody).is(http.StatusBadRequest, "an illegal name")

	require.Equal(t, schema.PutDeclaredResult{Name: name, Generation: 1, Created: true, Changed: true},
		put("", spec, http.StatusAccepted, "it is created"))
	require.Equal(t, schema.PutDeclaredResult{Name: name, Generation: 1},
		put("", spec, http.StatusOK, "the defaults of the definition are no change"))
	require.Equal(t, schema.PutDeclaredResult{Name: name, Generation: 1},
		put("?generation=0", spec, http.StatusOK, "it exists with this content"))
	changed := strings.Replace(spec, "v1", "v2", 1)
	e.call("PUT", path+"?generation=0", changed, yamlBody).is(http.StatusConflict, "it exists")
	require.Equal(t, schema.PutDeclaredResult{Name: name, Generation: 2, Changed: true},
		put("?generation=1", changed, http.StatusAccepted, "it is changed"))
	e.call("PUT", path+"?generation=1", spec, yamlBody).is(http.StatusConflict, "another client has changed it")

	got := decode[schema.AppImage](e.call("GET", path, "").is(http.StatusOK, "it exists"))
	require.Equal(t, []any{name, int64(2), "v2", kuscia.ScopeLocal}, []any{got.Name, got.Generation, got.Spec.Image.Tag,
		got.Spec.DeployTemplates[0].Spec.Containers[0].Ports[0].Scope})
	back, err := json.Marshal(got.Spec)
	require.NoError(t, err)
	e.call("PUT", path, string(back), jsonBody).is(http.StatusOK, "what is read can be sent back")
	var names []string
	for cursor := "first"; cursor != ""; {
		list := decode[schema.AppImageList](e.call("GET", "/api/v1/appimages?limit=1&cursor="+
			strings.TrimPrefix(cursor, "first"), "").is(http.StatusOK, "a page"))
		for _, one := range list.Items {
			names = append(names, one.Name)
		}
		cursor = list.NextCursor
	}
	require.Subset(t, names, []string{name, other})
	e.call("DELETE", path, "").is(http.StatusNoContent, "it exists")
	e.call("GET", path, "").is(http.StatusNotFound, "it was deleted")
}

func TestListServings_Pages(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	for _, id := range []string{"c", "a", "b"} {
		e.createServing(id, image)
	}
	first := decode[schema.ServingList](e.call("GET", "/api/v1/servings?limit=2", "").is(http.StatusOK, "a page"))
	require.Equal(t, []string{"a", "b"}, []string{first.Items[0].ID, first.Items[1].ID}, "by ID")
	second := decode[schema.ServingList](e.call("GET", "/api/v1/servings?limit=2&cursor="+first.NextCursor,
		"").is(http.StatusOK, "the next one"))
	require.Len(t, second.Items, 1)
	require.Equal(t, "c", second.Items[0].ID)
	require.Empty(t, second.NextCursor)
	e.call("GET", "/api/v1/servings?limit=0", "").is(http.StatusBadRequest, "a limit of 0 is illegal")
	e.call("GET", "/api/v1/servings?cursor=x", "").is(http.StatusBadRequest, "the cursor is illegal")
}

func TestPutServingPolicy(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	const path = "/api/v1/servings/one/policy"
	e.call("PUT", path, "{}", jsonBody).is(http.StatusNotFound, "there is no such serving")
	kd := e.createServing("one", image)
	wrong := e.call("PUT", path, "progressDeadlineSeconds: 0\norder: random\ncolour: red\n",
		yamlBody).is(http.StatusBadRequest, "three mistakes")
	require.Len(t, wrong.problem().Errors, 3, "all at once: %s", wrong.body)
	require.Contains(t, wrong.reasons(), "order (line 2)")
	e.call("PUT", path, "", yamlBody).is(http.StatusBadRequest, "the body is empty")
	e.call("PUT", path, "order: parallel\n", jsonBody).is(http.StatusBadRequest,
		"the body is declared as JSON, but is not")
	stranger := e.call("PUT", path, `{"order":"sequential","parties":["carol"]}`,
		jsonBody).is(http.StatusUnprocessableEntity, "carol is not a party")
	require.Equal(t, []schema.FieldProblem{{Field: "parties[0]", Reason: "carol is not a party of the serving"}},
		stranger.problem().Errors)
	require.Empty(t, e.storedServing("one").Annotations[serving.AnnotationPolicy], "nothing was saved")

	alice := kd.Spec.Initiator
	body := `{"order":"sequential","parties":["` + alice + `"],"progressDeadlineSeconds":60}`
	created := e.call("PUT", path, body, jsonBody).is(http.StatusCreated, "it had none")
	require.Equal(t, schema.PutServingPolicyResult{ID: "one", Changed: true},
		decode[schema.PutServingPolicyResult](created))
	stored := e.storedServing("one")
	require.Equal(t, kd.Generation, stored.Generation, "it starts no operation")
	require.Equal(t, &serving.Policy{ProgressDeadlineSeconds: 60, PartyDeadlineSeconds: 600,
		Order: serving.OrderSequential, Approval: serving.ApprovalNone, Parties: []string{alice}},
		e.serving("one").Policy)
	same := e.call("PUT", path, body, jsonBody).is(http.StatusOK, "it is unchanged")
	require.False(t, decode[schema.PutServingPolicyResult](same).Changed)
	require.Equal(t, stored.ResourceVersion, e.storedServing("one").ResourceVersion, "nothing was written")
	require.True(t, decode[schema.PutServingPolicyResult](
		e.call("PUT", path, "{}", jsonBody).is(http.StatusOK, "it is replaced, not merged")).Changed)
	require.EqualValues(t, 600, e.serving("one").Policy.ProgressDeadlineSeconds)

	require.NoError(t, e.store.AnnotateServing(t.Context(), e.storedServing("one"), serving.AnnotationPolicy,
		"order: random"))
	require.Nil(t, e.serving("one").Policy, "another client has written an invalid policy")
	e.call("PUT", path, "{}", jsonBody).is(http.StatusOK, "a valid policy replaces it")

	require.NoError(t, e.store.GuardServing(t.Context(), e.storedServing("one"), true))
	require.NoError(t, e.store.DeleteServing(t.Context(), e.storedServing("one")))
	e.call("PUT", path, "{}", jsonBody).is(http.StatusConflict, "it is being deleted")
	require.NotNil(t, e.serving("one").DeletedAt, "it is shown until it is deleted")
	require.NoError(t, e.store.GuardServing(t.Context(), e.storedServing("one"), false))
	e.call("GET", "/api/v1/servings/one", "").is(http.StatusNotFound, "it was deleted")
}

func (one event) serving(t *testing.T) serving.View {
	t.Helper()
	var view serving.View
	require.NoError(t, json.Unmarshal([]byte(one.data), &view))
	return view
}

func TestServingEvents(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	e.call("GET", "/api/v1/servings/none/events", "").is(http.StatusNotFound, "it does not exist")
	kd := e.createServing("one", image)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	path := "/api/v1/servings/one"
	events, others := e.streamOf(ctx, path), e.streamOf(ctx, path)
	require.Equal(t, serving.DisplayedPending, next(t, events, "state").serving(t).Phase,
		"the current state comes first")
	next(t, others, "state")

	kd.Status.Phase, kd.Status.ObservedGeneration = kuscia.PhaseAvailable, kd.Generation
	kd.Status.Operation = &kuscia.Operation{Kind: serving.KindCreate, Generation: 1, WorkflowID: "serving/one/1",
		RunID: "run-1", Done: true}
	require.NoError(t, e.store.UpdateServingStatus(t.Context(), kd))
	for _, stream := range []<-chan event{events, others} {
		one := next(t, stream, "state")
		require.Equal(t, kuscia.PhaseAvailable, one.serving(t).Phase)
		require.Regexp(t, `^run-1\.\d+$`, one.id)
	}

	require.NoError(t, e.store.DeleteServing(t.Context(), kd))
	for _, stream := range []<-chan event{events, others} {
		for range stream { // its last state may be sent once more; the stream ends when the serving is deleted
		}
	}
}
