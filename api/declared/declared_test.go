package declared

import (
	"context"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// home is a Home in memory, with the parties alice and bob.
type home struct {
	serving *kuscia.KusciaDeployment
	image   *kuscia.AppImage
	// lostRaces is how many of the next writes lose a race against another client.
	lostRaces, writes int
	// followed is true if the controller writes the status right after each change of the serving.
	followed bool
}

func (h *home) write() error {
	if h.lostRaces > 0 {
		h.lostRaces--
		return failure.New(failure.Conflict, "it was changed")
	}
	h.writes++
	return nil
}

func (h *home) GetServing(context.Context, string) (*kuscia.KusciaDeployment, error) {
	if h.serving == nil {
		return nil, failure.New(failure.NotFound, "no such serving")
	}
	return h.serving.DeepCopy(), nil
}

func (h *home) CreateServing(_ context.Context, kd *kuscia.KusciaDeployment) error {
	if err := h.write(); err != nil {
		return err
	}
	h.serving = kd.DeepCopy()
	h.serving.Generation, h.serving.UID, h.serving.ResourceVersion = 1, types.UID("u"), "1"
	return nil
}

func (h *home) UpdateServing(_ context.Context, kd *kuscia.KusciaDeployment) error {
	if err := h.write(); err != nil {
		return err
	}
	if kd.ResourceVersion != h.serving.ResourceVersion {
		return failure.New(failure.Conflict, "it was changed")
	}
	if !sameSpec(kd, h.serving) {
		kd.Generation = h.serving.Generation + 1
	}
	kd.ResourceVersion = "after " + h.serving.ResourceVersion
	h.serving = kd.DeepCopy()
	if h.followed {
		h.serving.ResourceVersion += " and its status"
	}
	return nil
}

func (h *home) GetAppImage(_ context.Context, name string) (*kuscia.AppImage, error) {
	if h.image == nil || h.image.Name != name {
		return nil, failure.New(failure.NotFound, "no such AppImage")
	}
	return h.image.DeepCopy(), nil
}

func (h *home) CreateAppImage(_ context.Context, image *kuscia.AppImage) error {
	if err := h.write(); err != nil {
		return err
	}
	h.image = image.DeepCopy()
	h.image.Generation = 1
	return nil
}

func (h *home) UpdateAppImage(ctx context.Context, image *kuscia.AppImage) error {
	if err := h.write(); err != nil {
		return err
	}
	err := h.TryAppImage(ctx, image)
	h.image = image.DeepCopy()
	return err
}

func (h *home) TryAppImage(_ context.Context, image *kuscia.AppImage) error {
	*image = *image.DeepCopy() // the request's own spec has no defaults
	for i, port := range image.Spec.DeployTemplates[0].Spec.Containers[0].Ports {
		if port.Protocol == "" { // the default of the definition
			image.Spec.DeployTemplates[0].Spec.Containers[0].Ports[i].Protocol = kuscia.ProtocolHTTP
		}
	}
	if !equality.Semantic.DeepEqual(image.Spec, h.image.Spec) {
		image.Generation++
	}
	return nil
}

func (h *home) Queue(_ context.Context, party string) (string, bool, error) {
	return "", party == "alice" || party == "bob", nil
}

func imageSpec(tag string, ports ...kuscia.ContainerPort) kuscia.AppImageSpec {
	return kuscia.AppImageSpec{Image: kuscia.AppImageInfo{Name: "registry.test/x", Tag: tag},
		DeployTemplates: []kuscia.DeployTemplate{{Name: "t", Spec: kuscia.PodTemplate{
			Containers: []kuscia.Container{{Name: "c", Ports: ports}}}}}}
}

// newHome has the AppImage "image" in generation 1.
func newHome() (*home, Writer) {
	h := &home{image: &kuscia.AppImage{Spec: imageSpec("v1")}}
	h.image.Name, h.image.Generation = "image", 1
	return h, Writer{Home: h}
}

func request(config string, domains ...string) ServingRequest {
	r := ServingRequest{ID: "one", Spec: kuscia.KusciaDeploymentSpec{Initiator: "alice", InputConfig: config}}
	for _, domain := range domains {
		r.Spec.Parties = append(r.Spec.Parties, kuscia.Party{DomainID: domain, AppImageRef: "image"})
	}
	return r
}

// served makes the stored serving one whose version all parties run.
func (h *home) served(t *testing.T) {
	t.Helper()
	version := serving.Snapshot(h.serving, map[string]kuscia.AppImageSpec{"image": h.image.Spec})
	digest, err := version.Digest()
	require.NoError(t, err)
	packed, err := version.Pack()
	require.NoError(t, err)
	h.serving.Status.ObservedGeneration = h.serving.Generation
	h.serving.Status.Served = &kuscia.Served{Generation: h.serving.Generation, Digest: digest, Version: packed}
}

func statusOf(t *testing.T, err error) int {
	t.Helper()
	var answer *problem.Error
	require.ErrorAs(t, err, &answer)
	return answer.Status
}

func TestPutServing(t *testing.T) {
	t.Parallel()
	h, w := newHome()
	put := func(r ServingRequest) schema.PutDeclaredResult {
		t.Helper()
		result, err := w.PutServing(t.Context(), r)
		require.NoError(t, err)
		return result
	}
	first := request("a", "alice", "bob")
	first.AffinityMode, first.Spec.Revision = "none", "mine"
	require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: 1, Created: true, Changed: true}, put(first))
	require.Equal(t, map[string]string{kuscia.LabelAppType: kuscia.AppTypeServing}, h.serving.Labels)
	require.Equal(t, []string{kuscia.Finalizer}, h.serving.Finalizers)
	require.Equal(t, "none", h.serving.Annotations[kuscia.AnnotationAffinityMode])
	require.Empty(t, h.serving.Spec.Revision, "the revision is the engine's")

	h.served(t)
	require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: 1}, put(request("a", "alice", "bob")),
		"nothing changes")
	require.Equal(t, 1, h.writes)
	require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: 2, Changed: true},
		put(request("b", "alice", "bob")))
	require.Equal(t, "none", h.serving.Annotations[kuscia.AnnotationAffinityMode], "without a new one it is kept")

	h.served(t)
	other := request("b", "alice", "bob")
	other.AffinityMode = "affinity"
	require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: 3, Changed: true}, put(other),
		"another affinity mode is an update")
	require.NotEmpty(t, h.serving.Spec.Revision)
	require.Equal(t, "affinity", h.serving.Annotations[kuscia.AnnotationAffinityMode])

	h.served(t)
	h.image.Spec.Image.Tag = "v2"
	require.True(t, put(request("b", "alice", "bob")).Changed, "the AppImage was edited")
	h.served(t)
	require.False(t, put(request("b", "alice", "bob")).Changed, "the revision is kept")
}

func TestPutServing_RepeatsARolledBackUpdate(t *testing.T) {
	t.Parallel()
	h, w := newHome()
	_, err := w.PutServing(t.Context(), request("a", "alice"))
	require.NoError(t, err)
	h.served(t)
	_, err = w.PutServing(t.Context(), request("b", "alice"))
	require.NoError(t, err)
	h.followed = true
	for generation := int64(2); generation < 5; generation++ {
		h.serving.Status.ObservedGeneration, h.serving.Status.Reason = generation, serving.ReasonUpdateRolledBack
		again := request("b", "alice")
		again.Generation = &generation
		result, err := w.PutServing(t.Context(), again)
		require.NoError(t, err, "the request is based on the current generation, whatever writes the status meanwhile")
		require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: generation + 1, Changed: true}, result,
			"one write, which starts an operation")
		require.Equal(t, "b", h.serving.Spec.InputConfig)
	}
}

func TestPutServing_StartsAnOperation_WhenOnlyTheAffinityModeChanges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		status kuscia.KusciaDeploymentStatus
	}{
		"NotStarted": {"the controller may be starting the creation without the new mode", kuscia.KusciaDeploymentStatus{}},
		"Creating": {"the running creation does not use the new mode", kuscia.KusciaDeploymentStatus{ObservedGeneration: 1,
			Operation: &kuscia.Operation{Kind: serving.KindCreate, Generation: 1}}},
		"Outdated": {"the next operation may be starting without the new mode",
			kuscia.KusciaDeploymentStatus{ObservedGeneration: 1, Operation: &kuscia.Operation{Generation: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, w := newHome()
			put := func(mode string) schema.PutDeclaredResult {
				r := request("a", "alice", "bob")
				r.AffinityMode = mode
				result, err := w.PutServing(t.Context(), r)
				require.NoError(t, err)
				return result
			}
			put("none")
			if name == "Outdated" {
				h.serving.Generation = 2
			}
			h.serving.Status = tc.status
			for _, mode := range []string{"affinity", "none", "affinity"} {
				next := h.serving.Generation + 1
				require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: next, Changed: true}, put(mode), tc.reason)
				require.Equal(t, mode, h.serving.Annotations[kuscia.AnnotationAffinityMode])
				require.False(t, put(mode).Changed, "it is requested already")
				require.False(t, put("").Changed, "the mode is kept")
			}
		})
	}
}

func TestPutServing_ListsEveryReason(t *testing.T) {
	t.Parallel()
	h, w := newHome()
	wrong := request("a", "alice", "carol")
	wrong.Spec.Parties[0].Template.Replicas, wrong.Spec.Parties[1].AppImageRef = new(int32(-1)), "none"
	_, err := w.PutServing(t.Context(), wrong)
	var refusal Refusal
	require.ErrorAs(t, err, &refusal)
	var fields []string
	for _, one := range refusal {
		fields = append(fields, one.Field+": "+one.Reason)
	}
	require.Equal(t, []string{
		"parties[1].domainID: domain carol is not known: create a Party object or a namespace of that name in the home " +
			"cluster",
		"parties[0]: party alice: replicas must not be negative, but -1 are requested",
		`parties[1]: can not get appimage none from cluster, appimages.kuscia.secretflow "none" not found`,
	}, fields)
	require.Zero(t, h.writes)

	_, err = w.PutServing(t.Context(), request("a", "alice"))
	require.NoError(t, err)
	h.served(t)
	_, err = w.PutServing(t.Context(), request("a", "alice", "bob"))
	require.ErrorAs(t, err, &refusal)
	require.Contains(t, err.Error(), "bob is new: the parties of a serving cannot be changed")
	require.Equal(t, "parties", refusal[0].Field)
}

func TestPutServing_Conflicts(t *testing.T) {
	t.Parallel()
	h, w := newHome()
	based := func(r ServingRequest, generation int64) ServingRequest {
		r.Generation = &generation
		return r
	}
	_, err := w.PutServing(t.Context(), based(request("a", "alice"), 1))
	require.Equal(t, http.StatusNotFound, statusOf(t, err), "it does not exist")
	h.lostRaces = 1
	_, err = w.PutServing(t.Context(), based(request("a", "alice"), 0))
	require.NoError(t, err, "a lost race is repeated")
	_, err = w.PutServing(t.Context(), based(request("a", "alice"), 0))
	require.Equal(t, http.StatusConflict, statusOf(t, err), "it exists, even if nothing would change")
	require.Contains(t, err.Error(), "serving one exists already: change it with PUT /api/v1/servings/one, or choose")
	_, err = w.PutServing(t.Context(), based(request("b", "alice"), 2))
	require.Equal(t, http.StatusConflict, statusOf(t, err))
	require.Contains(t, err.Error(), "its generation is 1, not 2; read it again and repeat the change")
	h.lostRaces = 1
	result, err := w.PutServing(t.Context(), based(request("b", "alice"), 1))
	require.NoError(t, err)
	require.Equal(t, schema.PutDeclaredResult{Name: "one", Generation: 2, Changed: true}, result)

	h.lostRaces = failure.MaxConflictAttempts
	_, err = w.PutServing(t.Context(), request("c", "alice"))
	require.True(t, failure.Is(err, failure.Conflict), "%v", err)
	require.Contains(t, err.Error(), "serving one keeps being changed by other clients: try again")

	h.serving.DeletionTimestamp = &h.serving.CreationTimestamp
	_, err = w.PutServing(t.Context(), request("c", "alice"))
	require.Equal(t, http.StatusConflict, statusOf(t, err))
	require.Contains(t, err.Error(), "serving one is being deleted")
}

func TestPutAppImage(t *testing.T) {
	t.Parallel()
	h, w := newHome()
	put := func(name string, spec kuscia.AppImageSpec, generation *int64) (schema.PutDeclaredResult, error) {
		return w.PutAppImage(t.Context(), name, spec, generation)
	}
	ported := imageSpec("v1", kuscia.ContainerPort{Name: "p"})
	for i, c := range []struct {
		reason     string
		spec       kuscia.AppImageSpec
		generation *int64
		want       schema.PutDeclaredResult
	}{
		{"equal content, which may exist", imageSpec("v1"), new(int64(0)),
			schema.PutDeclaredResult{Name: "image", Generation: 1}},
		{"new content", ported, new(int64(1)), schema.PutDeclaredResult{Name: "image", Generation: 2, Changed: true}},
		{"equal but for the API server's defaults", ported, nil, schema.PutDeclaredResult{Name: "image", Generation: 2}},
		{"the same, and it may exist", ported, new(int64(0)), schema.PutDeclaredResult{Name: "image", Generation: 2}},
		{"the same, based on an older one", ported, new(int64(1)), schema.PutDeclaredResult{Name: "image", Generation: 2}},
	} {
		got, err := put("image", c.spec, c.generation)
		require.NoError(t, err, c.reason)
		require.Equal(t, c.want, got, strconv.Itoa(i)+": "+c.reason)
	}
	h.writes = 0
	_, err := put("image", imageSpec("v3"), new(int64(0)))
	require.Equal(t, http.StatusConflict, statusOf(t, err))
	require.Contains(t, err.Error(), "AppImage image exists already, with other content: choose another name")
	_, err = put("image", imageSpec("v3"), new(int64(1)))
	require.Equal(t, http.StatusConflict, statusOf(t, err), "it has another generation")
	require.Zero(t, h.writes, "a refused request writes nothing")
	_, err = put("other", imageSpec("v3"), new(int64(1)))
	require.Equal(t, http.StatusNotFound, statusOf(t, err), "it does not exist")
	h.lostRaces = 1
	got, err := put("other", imageSpec("v3"), nil)
	require.NoError(t, err, "a lost race is repeated")
	require.Equal(t, schema.PutDeclaredResult{Name: "other", Generation: 1, Created: true, Changed: true}, got)
}
