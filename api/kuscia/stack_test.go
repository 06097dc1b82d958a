package kuscia_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/rand"

	"slipway.io/slipway/api/kuscia"
	v1alpha1 "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// stack is Kuscia's API on the home cluster of the local stack, with two parties that are namespaces of that cluster.
type stack struct {
	t          *testing.T
	url        string
	store      *store.Store
	alice, bob string
}

func newStack(t *testing.T) *stack {
	t.Helper()
	local := harness.SharedStack(t)
	s := &stack{t: t}
	own := local.Namespace(t, "kuscia")
	var err error
	s.store, err = store.New(local.REST, own, own)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, s.store.EnsureCRDs(ctx))
	require.NoError(t, s.store.EnsureNamespace(ctx))
	s.alice, s.bob = local.Namespace(t, "alice"), local.Namespace(t, "bob")
	server := httptest.NewServer(kuscia.NewHandler(kuscia.NewService(s.store, slog.New(slog.DiscardHandler)),
		kuscia.Security{}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// answer is the part of responses that this test reads.
type answer struct {
	Status struct {
		Code    int32  `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
	Data struct {
		Parties []struct {
			Resources []map[string]string `json:"resources"`
			Replicas  *int32              `json:"replicas"`
		} `json:"parties"`
		Status struct {
			State string `json:"state"`
		} `json:"status"`
		Templates []struct {
			Containers []struct {
				Ports []map[string]string `json:"ports"`
			} `json:"containers"`
		} `json:"deploy_templates"`
	} `json:"data"`
}

func (s *stack) ask(path, body string) (a answer) {
	s.t.Helper()
	response, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	require.NoError(s.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(raw, &a), string(raw))
	return a
}

func (s *stack) succeeds(path, body string) answer {
	s.t.Helper()
	a := s.ask(path, body)
	require.Equal(s.t, "success", a.Status.Message)
	return a
}

func TestKusciaAPI_OnCluster(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	image, id := "image-"+rand.String(8), "serving-"+rand.String(8)
	t.Cleanup(func() {
		_ = s.store.DeleteAppImage(context.Background(), image)
		if kd, err := s.store.GetServing(context.Background(), id); err == nil {
			_ = s.store.DeleteServing(context.Background(), kd)
		}
	})
	named := `{"name":"` + image + `"`
	s.succeeds("/api/v1/appimage/create",
		named+`,"image":{"name":"registry.test/app","tag":"v1"},"deploy_templates":[{"name":"web","containers":[
		{"name":"main","ports":[{"name":"service","scope":"Cluster"}],"resources":{"requests":{"cpu":"0.1"}}}]}]}`)
	require.EqualValues(t, 13106, s.ask("/api/v1/appimage/create",
		named+`,"image":{"name":"x"},"deploy_templates":[{"name":"web","containers":[{"name":"c"}]}]}`).Status.Code)
	bad := s.ask("/api/v1/appimage/update", named+
		`,"image":{"name":"x"},"deploy_templates":[{"name":"web","containers":[{"name":"c","ports":[{"name":"p","scope":"World"}]}]}]}`)
	require.EqualValues(t, 13102, bad.Status.Code, "a value that the CRD does not allow is refused")
	require.Contains(t, bad.Status.Message, `Unsupported value: "World"`)
	require.Equal(t, "HTTP", s.succeeds("/api/v1/appimage/query",
		named+"}").Data.Templates[0].Containers[0].Ports[0]["protocol"])

	create := `{"serving_id":"` + id + `","initiator":"` + s.alice + `","parties":[{"domain_id":"` + s.alice +
		`","app_image":"` + image + `"},{"domain_id":"` +
		s.bob + `","app_image":"` + image + `","resources":[{"min_cpu":"0.2","max_memory":"1Gi"}]}]}`
	require.Contains(t, s.ask("/api/v1/serving/create",
		strings.ReplaceAll(create, s.bob, "nobody-"+s.bob)).Status.Message, "domain nobody-"+s.bob+" is not known")
	s.succeeds("/api/v1/serving/create", create)
	require.EqualValues(t, 11600, s.ask("/api/v1/serving/create", create).Status.Code)

	byID := `{"serving_id":"` + id + `"`
	shown := s.succeeds("/api/v1/serving/query", byID+"}").Data
	require.Equal(t, "Pending", shown.Status.State)
	require.Nil(t, shown.Parties[0].Replicas)
	require.Equal(t, map[string]string{"container_name": "main", "min_cpu": "200m", "max_cpu": "", "min_memory": "",
		"max_memory": "1Gi"}, shown.Parties[1].Resources[0])

	s.succeeds("/api/v1/serving/update", byID+`,"serving_input_config":"{}","parties":[{"domain_id":"`+s.bob+
		`","replicas":0,"resources":[{"max_cpu":"1"}]}]}`)
	kd, err := s.store.GetServing(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 2, kd.Generation)
	require.EqualValues(t, 0, *kd.Spec.Parties[1].Template.Replicas)
	require.Equal(t, "1", kd.Spec.Parties[1].Template.Spec.Containers[0].Resources.Limits.Cpu().String())
	s.succeeds("/api/v1/serving/update", byID+`,"serving_input_config":"{}","parties":[{"domain_id":"`+s.bob+
		`","replicas":0,"resources":[{"max_cpu":"1000m"}]}]}`)
	kd, err = s.store.GetServing(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 2, kd.Generation, "an unchanged update creates no new generation")

	kd.Finalizers = []string{v1alpha1.Finalizer}
	require.NoError(t, s.store.UpdateServing(t.Context(), kd))
	s.succeeds("/api/v1/serving/delete", byID+"}")
	require.EqualValues(t, 11604, s.ask("/api/v1/serving/delete", byID+"}").Status.Code)
	require.EqualValues(t, 11601, s.ask("/api/v1/serving/query", byID+"}").Status.Code)
	require.Contains(t, s.ask("/api/v1/serving/create", create).Status.Message, "already exists")
	kd, err = s.store.GetServing(t.Context(), id)
	require.NoError(t, err)
	kd.Finalizers = nil
	require.NoError(t, s.store.UpdateServing(t.Context(), kd))
	s.succeeds("/api/v1/serving/create", create)
	s.succeeds("/api/v1/serving/delete", byID+"}")
	s.succeeds("/api/v1/appimage/delete", named+"}")
	require.EqualValues(t, 13105, s.ask("/api/v1/appimage/query", named+"}").Status.Code)
}
