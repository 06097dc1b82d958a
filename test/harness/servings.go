package harness

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// KusciaAnswer is a response of Kuscia's API as JSON.
type KusciaAnswer struct {
	Text   string `json:"-"`
	Status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
	Data json.RawMessage `json:"data"`
}

// Kuscia posts a body to Kuscia's API, as its clients do.
func (e *Engine) Kuscia(path, body string) KusciaAnswer {
	e.t.Helper()
	request, err := http.NewRequest(http.MethodPost, e.KusciaURL+path, strings.NewReader(body))
	require.NoError(e.t, err)
	request.Header.Set("Content-Type", "application/json")
	e.authorize(request)
	response, err := http.DefaultClient.Do(request)
	require.NoError(e.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(e.t, err)
	require.Equal(e.t, http.StatusOK, response.StatusCode, "%s", text)
	a := KusciaAnswer{Text: string(text)}
	require.NoError(e.t, json.Unmarshal(text, &a), "%s", text)
	return a
}

// MustKuscia is Kuscia for a request that must succeed.
func (e *Engine) MustKuscia(path, body string) KusciaAnswer {
	e.t.Helper()
	a := e.Kuscia(path, body)
	require.Zero(e.t, a.Status.Code, "%s: %s", path, a.Text)
	return a
}

// Serving reads a KusciaDeployment; nil if it does not exist.
func (e *Engine) Serving(namespace, id string) *kuscia.KusciaDeployment {
	e.t.Helper()
	objects, err := dynamic.NewForConfig(e.REST)
	require.NoError(e.t, err)
	found, err := objects.Resource(kuscia.KusciaDeploymentResource).Namespace(namespace).Get(context.Background(), id,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(e.t, err)
	kd := &kuscia.KusciaDeployment{}
	require.NoError(e.t, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, kd))
	return kd
}

// WaitServing returns a serving of the engine's own namespace when is reports true.
func (e *Engine) WaitServing(id, what string, is func(*kuscia.KusciaDeployment) bool) *kuscia.KusciaDeployment {
	e.t.Helper()
	return e.WaitServingIn(e.Home, id, what, is)
}

// WaitServingIn returns a serving when is reports true. what describes that state in the failure message.
func (e *Engine) WaitServingIn(namespace, id, what string,
	is func(*kuscia.KusciaDeployment) bool) *kuscia.KusciaDeployment {
	e.t.Helper()
	var last *kuscia.KusciaDeployment
	if !assert.Eventually(e.t, func() bool {
		last = e.Serving(namespace, id)
		return last != nil && is(last)
	}, Patience, Tick, "serving %s never reached %s", id, what) {
		text, _ := json.MarshalIndent(last, "", " ")
		e.t.Fatalf("serving %s last was %s", id, text)
	}
	return last
}

// ServingDone reports whether the operation for the newest generation of a serving is done, successfully or not.
func ServingDone(kd *kuscia.KusciaDeployment) bool {
	op := kd.Status.Operation
	return op != nil && op.Done && op.Generation == kd.Generation
}

// ServingAvailable reports whether the newest generation of a serving is available in all parties.
func ServingAvailable(kd *kuscia.KusciaDeployment) bool {
	return ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable && kd.Status.Reason == ""
}

// NamedNamespace creates a namespace of exactly that name and deletes it when the test ends.
func (s Stack) NamedNamespace(t testing.TB, name string) {
	t.Helper()
	ensureNamespace(t, s.Kube, name)
	t.Cleanup(func() { removeNamespace(s.Kube, name) })
}
