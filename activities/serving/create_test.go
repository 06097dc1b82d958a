package serving_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	partyservings "slipway.io/slipway/activities/serving"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// pair returns a site of two parties with one worker.
func pair(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.also = harness.SharedStack(t).Namespace(t, "also")
	s.operation(1, "one", "")
	return s
}

// create makes a worker check both parties, and apply the version of the first operation.
func (s *site) create(wrap func(http.RoundTripper) http.RoundTripper) serving.GroupResult {
	s.t.Helper()
	req := s.step(1, false)
	other := req
	other.Domain = s.also
	result, err := s.execute((*partyservings.Activities).Create, wrap, req, other)
	require.NoError(s.t, err)
	return result
}

// looksAtDeployments counts reads of Deployments.
func looksAtDeployments() *harness.Counter {
	return &harness.Counter{Match: func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/deployments/")
	}}
}

// after calls do after the dry run of a party, or of any, before its response is returned.
type after struct {
	next   http.RoundTripper
	domain string
	do     func()
}

func (a after) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(r)
	if r.Method == http.MethodPatch && r.URL.Query().Has("dryRun") &&
		strings.Contains(r.URL.Path, "/namespaces/"+a.domain) {
		a.do()
	}
	return response, err
}

// What was read by the check is not read again before the write.
func TestCreate_ChecksAndAppliesInOneStep(t *testing.T) {
	s := pair(t)
	looks := looksAtDeployments()
	result := s.create(looks.Wrap)
	require.Equal(t, serving.StepApply, result.Through)
	for i, domain := range s.domains() {
		s.requireRunsIn(domain, "one")
		outcome := result.Parties[i]
		require.True(t, outcome.Done)
		require.NotNil(t, outcome.Snapshot, "the result contains the snapshot")
		require.Equal(t, s.step(1, false).Version, outcome.Snapshot.Version)
		require.Equal(t, []int32{1, 1, 0}, []int32{outcome.Snapshot.UpdatedReplicas, outcome.Snapshot.AvailableReplicas,
			outcome.Snapshot.UnavailableReplicas})
	}
	require.Equal(t, 2, looks.Count(), "once per party")

	require.Equal(t, serving.StepApply, s.create(nil).Through, "a repetition finds it done")
	s.requireRuns("one")
}

// If one party cannot run the version, nothing is written in the other.
func TestCreate_WritesNothing_WhenAPartyFailsTheCheck(t *testing.T) {
	s := pair(t)
	_, err := s.kube.CoreV1().ConfigMaps(s.also).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "s1-configtemplate"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	result := s.create(nil)
	require.Equal(t, serving.StepPrepare, result.Through)
	require.True(t, result.Parties[0].Done, "this party passed the check")
	require.Equal(t, failure.Refused, result.Parties[1].Kind)
	require.Contains(t, result.Parties[1].Message, "configmap s1-configtemplate already exist")
	ours := metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=s1"}
	for _, domain := range s.domains() {
		deployments, err := s.kube.AppsV1().Deployments(domain).List(t.Context(), ours)
		require.NoError(t, err)
		services, err := s.kube.CoreV1().Services(domain).List(t.Context(), ours)
		require.NoError(t, err)
		maps, err := s.kube.CoreV1().ConfigMaps(domain).List(t.Context(), ours)
		require.NoError(t, err)
		require.Empty(t, deployments.Items)
		require.Empty(t, services.Items)
		require.Empty(t, maps.Items)
	}
}

// A Deployment that another client creates between the check and the write stays theirs.
func TestCreate_RefusesDeploymentCreatedAfterTheCheck(t *testing.T) {
	s := pair(t)
	theirs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "s1"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "theirs"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "theirs"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "theirs"}}}}}}
	made := make(chan error, 1)
	result := s.create(func(next http.RoundTripper) http.RoundTripper {
		return after{next, s.also, func() {
			_, err := s.kube.AppsV1().Deployments(s.also).Create(t.Context(), theirs, metav1.CreateOptions{})
			made <- err
		}}
	})
	require.NoError(t, <-made)
	require.Equal(t, serving.StepApply, result.Through)
	require.Equal(t, failure.Refused, result.Parties[1].Kind)
	d, err := s.kube.AppsV1().Deployments(s.also).Get(t.Context(), "s1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "theirs", d.Spec.Template.Spec.Containers[0].Image)
}

// A check that is older than tokenMaxAge is repeated before the first write.
func TestCreate_ReadsAgain_WhenCheckIsTooOld(t *testing.T) {
	s := pair(t)
	looks := looksAtDeployments()
	slow := func() { time.Sleep(2100 * time.Millisecond) } // delays the reply of the API server
	result := s.create(func(next http.RoundTripper) http.RoundTripper { return looks.Wrap(after{next, "", slow}) })
	require.Equal(t, serving.StepApply, result.Through)
	require.True(t, result.Parties[0].Done && result.Parties[1].Done)
	require.Equal(t, 4, looks.Count(), "twice per party")
}
