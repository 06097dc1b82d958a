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

// KusciaAnswer is an answer of Kuscia's API as JSON.
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

// MustKuscia is Kuscia for what has to succeed.
func (e *Engine) MustKuscia(path, body string) KusciaAnswer {
	e.t.Helper()
	a := e.Kuscia(path, body)
	require.Zero(e.t, a.Status.Code, "%s: %s", path, a.Text)
	return a
}

// Serving reads a KusciaDeployment; nil when there is none.
func (e *Engine) Serving(namespace, id string) *kuscia.KusciaDeployment {
	e.t.Helper()
	objects, err := dynamic.NewForConfig(e.REST)
	require.NoError(e.t, err)
	found, err := objects.Resource(kuscia.KusciaDeploymentResource).Namespace(namespace).Get(context.Background(), id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(e.t, err)
	kd := &kuscia.KusciaDeployment{}
	require.NoError(e.t, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, kd))
	return kd
}

// WaitServing returns a serving of the engine's own namespace when it is as asked.
func (e *Engine) WaitServing(id, what string, is func(*kuscia.KusciaDeployment) bool) *kuscia.KusciaDeployment {
	e.t.Helper()
	return e.WaitServingIn(e.Home, id, what, is)
}

// WaitServingIn returns a serving when it is as asked.
func (e *Engine) WaitServingIn(namespace, id, what string, is func(*kuscia.KusciaDeployment) bool) *kuscia.KusciaDeployment {
	e.t.Helper()
	var last *kuscia.KusciaDeployment
	if !assert.Eventually(e.t, func() bool {
		last = e.Serving(namespace, id)
		return last != nil && is(last)
	}, Patience, Tick, "serving %s never came to %s", id, what) {
		text, _ := json.MarshalIndent(last, "", " ")
		e.t.Fatalf("serving %s last was %s", id, text)
	}
	return last
}

// ServingDone says that the newest generation of a serving was brought about, whatever came of it.
func ServingDone(kd *kuscia.KusciaDeployment) bool {
	op := kd.Status.Operation
	return op != nil && op.Done && op.Generation == kd.Generation
}

// ServingAvailable says that the newest generation of a serving runs, whole.
func ServingAvailable(kd *kuscia.KusciaDeployment) bool {
	return ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable && kd.Status.Reason == ""
}

// NamedNamespace makes a namespace of that very name, which goes away with the test.
func (s Stack) NamedNamespace(t testing.TB, name string) {
	t.Helper()
	makeNamespace(t, s.Kube, name)
	t.Cleanup(func() { removeNamespace(s.Kube, name) })
}
