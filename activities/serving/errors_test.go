package serving_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/test/harness"
)

// A worker that may not write lacks a permission: the operation waits for it, and the version is not refused.
func TestApply_IsForbidden_WhenPermissionIsMissing(t *testing.T) {
	s := newSite(t)
	s.config = rest.CopyConfig(s.config)
	s.config.Impersonate = rest.ImpersonationConfig{UserName: "nobody-" + s.domain,
		Groups: []string{"system:authenticated"}}
	err := s.apply(s.step(1, false), nil)
	requireKind(t, failure.Forbidden, err)
	require.ErrorContains(t, err, "lacks a permission, which has to be granted")
}

// A quota denies with the same code, 403, but refuses the version.
func TestApply_IsRefused_WhenQuotaIsExceeded(t *testing.T) {
	s := newSite(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/deployments.apps": resource.MustParse("0")}}}
	_, err := s.kube.CoreV1().ResourceQuotas(s.domain).Create(t.Context(), quota, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		found, err := s.kube.CoreV1().ResourceQuotas(s.domain).Get(t.Context(), "none", metav1.GetOptions{})
		return err == nil && len(found.Status.Hard) > 0
	}, harness.Patience, harness.Tick, "the quota is not in force")
	err = s.apply(s.step(1, false), nil)
	requireKind(t, failure.Refused, err)
	require.ErrorContains(t, err, "exceeded quota")
}

// An error of Temporal says nothing about the party's cluster.
func TestApply_DoesNotReportClusterUnreachable_WhenTemporalFails(t *testing.T) {
	s := newSite(t)
	s.temporal.err = serviceerror.NewUnavailable("connection refused")
	req := s.step(1, false)
	req.UnreachableBudgetSeconds = 1
	err := s.apply(req, nil)
	require.ErrorContains(t, err, "from Temporal")
	require.NotContains(t, err.Error(), "out of reach")
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.False(t, app.NonRetryable(), "it is retried")
}
