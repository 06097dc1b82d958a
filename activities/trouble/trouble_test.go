package trouble_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/activities/trouble"
)

func TestSort(t *testing.T) {
	t.Parallel()
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	cases := map[string]struct {
		reason string
		err    error
		want   trouble.Kind
	}{
		"refused connection": {"nobody answers", errors.New("dial tcp 127.0.0.1:6443: connect: connection refused"), trouble.Unreachable},
		"timeout":            {"nobody answers in time", context.DeadlineExceeded, trouble.Unreachable},
		"certificate":        {"a certificate that does not fit is trouble of the system", x509.UnknownAuthorityError{}, trouble.Unreachable},
		"500":                {"an error of the server is no verdict", apierrors.NewInternalError(errors.New("etcd")), trouble.Unreachable},
		"503":                {"nor is being overloaded", apierrors.NewServiceUnavailable("x"), trouble.Unreachable},
		"429":                {"nor is being told to come later", apierrors.NewTooManyRequests("x", 1), trouble.Unreachable},
		"504":                {"nor is a timeout of the server", apierrors.NewTimeoutError("x", 1), trouble.Unreachable},
		"401":                {"nobody knows us any more", apierrors.NewUnauthorized("x"), trouble.Forbidden},
		"RBAC": {"we lack a permission", status(http.StatusForbidden,
			`deployments.apps "order" is forbidden: User "system:serviceaccount:a:b" cannot patch resource "deployments" in API group "apps" in the namespace "shop"`), trouble.Forbidden},
		"webhook": {"an admission webhook does not like the change", status(http.StatusForbidden, `admission webhook "policy.example.com" denied the request: no`), trouble.Refused},
		"policy":  {"nor does a policy", apierrors.NewForbidden(deployments, "order", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")), trouble.Refused},
		"quota":   {"nor does a quota", apierrors.NewForbidden(deployments, "order", errors.New("exceeded quota: q")), trouble.Refused},
		"404":     {"it is not there", apierrors.NewNotFound(deployments, "order"), trouble.Missing},
		"409":     {"somebody was faster", apierrors.NewConflict(deployments, "order", errors.New("x")), trouble.Changed},
		"422":     {"a test of the patch failed, or the change breaks a rule", apierrors.NewGenericServerResponse(422, "", deployments, "order", "testing value", 0, false), trouble.Rejected},
		"405":     {"anything else is a verdict", status(http.StatusMethodNotAllowed, "x"), trouble.Refused},
		"wrapped": {"an error is found below others", fmt.Errorf("while reading: %w", apierrors.NewNotFound(deployments, "order")), trouble.Missing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, trouble.Sort(tc.err), tc.reason)
		})
	}
}
