package serving_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Leftovers of an operation that never wrote its Deployment are deleted by the next one, although no Deployment lists
// them.
func TestApply_PrunesLeftovers_WithoutDeployment(t *testing.T) {
	s := newSite(t)
	services := s.kube.CoreV1().Services(s.domain)
	_, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s1-former",
		Labels: map[string]string{
			kuscia.LabelController: kuscia.ControllerName, kuscia.LabelDeploymentName: "s1",
			kuscia.LabelDeploymentUID: "u1", kuscia.LabelWorkload: "s1"}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, s.apply(s.step(1, false), nil))
	s.requireRuns("one")
	_, err = services.Get(t.Context(), "s1-former", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = services.Get(t.Context(), "s1-service", metav1.GetOptions{})
	require.NoError(t, err)
}

// lookCounter counts reads of Services and ConfigMaps.
type lookCounter struct {
	next http.RoundTripper
	n    *atomic.Int32
}

func (c lookCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && (strings.Contains(r.URL.Path, "/services/") ||
		strings.Contains(r.URL.Path, "/configmaps/")) {
		c.n.Add(1)
	}
	return c.next.RoundTrip(r)
}

func TestApply_ReadsNoDependents_OnCreation(t *testing.T) {
	s := newSite(t)
	var looks atomic.Int32
	require.NoError(t, s.apply(s.step(1, false), func(next http.RoundTripper) http.RoundTripper {
		return lookCounter{next, &looks}
	}))
	s.requireRuns("one")
	require.Zero(t, looks.Load(), "the apply itself reveals whether an object exists")
}
