package admission_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/serving/admission"
)

func TestCheckInvitation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		labels map[string]string
		says   string
	}{
		"invited": {reason: "the label with that value invites", labels: map[string]string{"slipway.io/servings": "allowed", "team": "risk"}},
		"no label": {reason: "a namespace that says nothing takes no servings; the refusal has the command", labels: map[string]string{"team": "risk"},
			says: "namespace alice does not take servings: it has no label slipway.io/servings=allowed. To invite servings, run " +
				"`kubectl label namespace alice slipway.io/servings=allowed`, then send the serving again"},
		"another value": {reason: "only that value invites, and kubectl needs to be told to replace the other one", labels: map[string]string{"slipway.io/servings": "true"},
			says: "namespace alice does not take servings: its label slipway.io/servings is \"true\", not \"allowed\". To invite servings, run " +
				"`kubectl label namespace alice slipway.io/servings=allowed --overwrite`, then send the serving again"},
		"an empty value": {reason: "a label without a value is none that invites", labels: map[string]string{"slipway.io/servings": ""},
			says: `its label slipway.io/servings is "", not "allowed"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := admission.CheckInvitation(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "alice", Labels: tc.labels}})
			if tc.says == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.True(t, failure.Is(err, failure.Refused), tc.reason)
			require.ErrorContains(t, err, tc.says, tc.reason)
		})
	}
}

func TestNeedsInvitation(t *testing.T) {
	t.Parallel()
	standing := func(uid, version string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "risk", Annotations: map[string]string{serving.AnnotationVersion: version},
			Labels: map[string]string{kuscia.LabelController: kuscia.ControllerName, kuscia.LabelDeploymentName: "risk", kuscia.LabelDeploymentUID: uid}}}
	}
	foreign := standing("u1", "v2")
	delete(foreign.Labels, kuscia.LabelController)
	for name, tc := range map[string]struct {
		reason string
		is     *appsv1.Deployment
		back   bool
		want   bool
	}{
		"creation":           {reason: "what comes in has to be invited", want: true},
		"update":             {reason: "so has a new version of what is there", is: standing("u1", "v1"), want: true},
		"restoration":        {reason: "what others changed of a version that runs there is put back", is: standing("u1", "v2")},
		"way back":           {reason: "an update is undone even if the label went meanwhile", is: standing("u1", "v3"), back: true},
		"way back to none":   {reason: "nothing stands there any more, so that it would come in anew", back: true, want: true},
		"of a former one":    {reason: "a former serving of the name was invited, this one was not", is: standing("u0", "v2"), want: true},
		"of somebody else":   {reason: "a Deployment of somebody else invites nobody", is: foreign, want: true},
		"back over a former": {reason: "neither does a former one on the way back", is: standing("u0", "v2"), back: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := serving.PartyRequest{ID: "risk", UID: "u1", Version: "v2", Source: serving.Source{Previous: tc.back}}
			require.Equal(t, tc.want, admission.NeedsInvitation(tc.is, step), tc.reason)
		})
	}
}
