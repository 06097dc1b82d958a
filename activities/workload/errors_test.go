package workload

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
)

func TestSortTrouble(t *testing.T) {
	t.Parallel()
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	cases := map[string]struct {
		reason string
		err    error
		want   trouble
	}{
		"refused connection": {"nobody answers", errors.New("dial tcp 127.0.0.1:6443: connect: connection refused"), unreachable},
		"timeout":            {"nobody answers in time", context.DeadlineExceeded, unreachable},
		"certificate":        {"a certificate that does not fit is trouble of the system", x509.UnknownAuthorityError{}, unreachable},
		"500":                {"an error of the server is no verdict", apierrors.NewInternalError(errors.New("etcd")), unreachable},
		"503":                {"nor is being overloaded", apierrors.NewServiceUnavailable("x"), unreachable},
		"429":                {"nor is being told to come later", apierrors.NewTooManyRequests("x", 1), unreachable},
		"504":                {"nor is a timeout of the server", apierrors.NewTimeoutError("x", 1), unreachable},
		"401":                {"nobody knows us any more", apierrors.NewUnauthorized("x"), forbidden},
		"RBAC": {"we lack a permission", status(http.StatusForbidden,
			`deployments.apps "order" is forbidden: User "system:serviceaccount:a:b" cannot patch resource "deployments" in API group "apps" in the namespace "shop"`), forbidden},
		"webhook": {"an admission webhook does not like the change", status(http.StatusForbidden, `admission webhook "policy.example.com" denied the request: no`), refused},
		"policy":  {"nor does a policy", apierrors.NewForbidden(deployments, "order", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")), refused},
		"quota":   {"nor does a quota", apierrors.NewForbidden(deployments, "order", errors.New("exceeded quota: q")), refused},
		"404":     {"it is not there", apierrors.NewNotFound(deployments, "order"), missing},
		"409":     {"somebody was faster", apierrors.NewConflict(deployments, "order", errors.New("x")), changed},
		"422":     {"a test of the patch failed, or the change breaks a rule", apierrors.NewGenericServerResponse(422, "", deployments, "order", "testing value", 0, false), rejected},
		"405":     {"anything else is a verdict", status(http.StatusMethodNotAllowed, "x"), refused},
		"wrapped": {"an error is found below others", fmt.Errorf("while reading: %w", apierrors.NewNotFound(deployments, "order")), missing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, sortTrouble(tc.err), tc.reason)
		})
	}
}
