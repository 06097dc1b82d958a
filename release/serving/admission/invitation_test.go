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
		"invited": {reason: "the label with that value invites",
			labels: map[string]string{"slipway.io/servings": "allowed", "team": "risk"}},
		"no label": {reason: "a namespace without the label takes no servings; the refusal contains the command",
			labels: map[string]string{"team": "risk"},
			says: "namespace alice does not take servings: it has no label slipway.io/servings=allowed. To invite " +
				"servings, run `kubectl label namespace alice slipway.io/servings=allowed`, then send the serving " +
				"again"},
		"another value": {reason: "only that value invites, and kubectl needs --overwrite to replace it",
			labels: map[string]string{"slipway.io/servings": "true"},
			says: "namespace alice does not take servings: its label slipway.io/servings is \"true\", not " +
				"\"allowed\". To invite servings, run `kubectl label namespace alice slipway.io/servings=allowed " +
				"--overwrite`, then send the serving again"},
		"an empty value": {reason: "an empty label does not invite",
			labels: map[string]string{"slipway.io/servings": ""},
			says:   `its label slipway.io/servings is "", not "allowed"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := admission.CheckInvitation(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "alice",
				Labels: tc.labels}})
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
	deployment := func(uid, version string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "risk",
			Annotations: map[string]string{serving.AnnotationVersion: version},
			Labels: map[string]string{kuscia.LabelController: kuscia.ControllerName, kuscia.LabelDeploymentName: "risk",
				kuscia.LabelDeploymentUID: uid}}}
	}
	foreign := deployment("u1", "v2")
	delete(foreign.Labels, kuscia.LabelController)
	for name, tc := range map[string]struct {
		reason string
		is     *appsv1.Deployment
		back   bool
		want   bool
	}{
		"creation": {reason: "a new serving has to be invited", want: true},
		"update":   {reason: "so has a new version", is: deployment("u1", "v1"), want: true},
		"restoration": {reason: "changes by other clients to the running version are reverted",
			is: deployment("u1", "v2")},
		"rollback": {reason: "an update is rolled back even if the label was removed",
			is: deployment("u1", "v3"), back: true},
		"rollback to none": {reason: "the Deployment does not exist any more, so it would be a new serving",
			back: true, want: true},
		"of a former one": {reason: "a deleted serving of the name was invited, this one was not",
			is: deployment("u0", "v2"), want: true},
		"of another client": {reason: "a Deployment of another client is no invitation", is: foreign, want: true},
		"rollback, former": {reason: "nor is that of a deleted serving in a rollback", is: deployment("u0", "v2"),
			back: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := serving.PartyRequest{ID: "risk", UID: "u1", Version: "v2",
				Source: serving.Source{Previous: tc.back}}
			require.Equal(t, tc.want, admission.NeedsInvitation(tc.is, step), tc.reason)
		})
	}
}
