package kube_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/kube"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	request := func(err error) error { return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api", Err: err} }
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	cases := map[string]struct {
		reason string
		err    error
		want   kube.Class
	}{
		"refused connection": {"no server answers", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
			kube.Unreachable},
		"request": {"no server answers the client",
			request(errors.New("dial tcp 127.0.0.1:6443: connect: connection refused")), kube.Unreachable},
		"timeout": {"no server answers in time", fmt.Errorf("list pods: %w", context.DeadlineExceeded),
			kube.Unreachable},
		"cut off": {"a truncated answer is no answer",
			fmt.Errorf("read the answer: %w", io.ErrUnexpectedEOF), kube.Unreachable},
		"stream": {"nor is one over HTTP/2, with this text of client-go",
			fmt.Errorf("stream error when reading response body, may be caused by closed connection. Please retry. "+
				"Original error: %w", errors.New("stream error: stream ID 7; INTERNAL_ERROR")), kube.Unreachable},
		"certificate": {"an untrusted certificate is system trouble", request(x509.UnknownAuthorityError{}),
			kube.Unreachable},
		"held back": {"a request stopped by the rate limiter was not answered",
			errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline"),
			kube.Unreachable},
		"500": {"a server error is no decision", apierrors.NewInternalError(errors.New("etcd")),
			kube.Unreachable},
		"503": {"nor is an overload", apierrors.NewServiceUnavailable("x"), kube.Unreachable},
		"429": {"nor is a request to retry later", apierrors.NewTooManyRequests("x", 1),
			kube.Unreachable},
		"504": {"nor is a server timeout", apierrors.NewTimeoutError("x", 1), kube.Unreachable},
		"401": {"the server no longer accepts our identity", apierrors.NewUnauthorized("x"),
			kube.Forbidden},
		"403": {"no review has confirmed the permission",
			apierrors.NewForbidden(deployments, "order", errors.New("denied")), kube.Forbidden},
		"404": {"the object does not exist", apierrors.NewNotFound(deployments, "order"), kube.Missing},
		"409": {"another client was faster",
			apierrors.NewConflict(deployments, "order", errors.New("x")), kube.Changed},
		"410": {"the list's next page has expired", apierrors.NewResourceExpired("x"), kube.Changed},
		"422": {"a test of the patch failed, or the change breaks a rule",
			status(http.StatusUnprocessableEntity, "testing value"), kube.Rejected},
		"405": {"anything else is a decision", status(http.StatusMethodNotAllowed, "x"), kube.Refused},
		"wrapped": {"a wrapped error is found",
			fmt.Errorf("while reading: %w", apierrors.NewNotFound(deployments, "order")), kube.Missing},
		"cancelled": {"the caller has cancelled", request(context.Canceled), kube.Internal},
		"Temporal": {"an error of Temporal means nothing about a cluster",
			serviceerror.NewUnavailable("connection refused"), kube.Internal},
		"Temporal in time": {"nor does a timeout of Temporal",
			serviceerror.NewDeadlineExceeded("context deadline exceeded"), kube.Internal},
		"decoding": {"an unreadable object is our own mistake",
			fmt.Errorf("read Deployment order: %w", &json.SyntaxError{}), kube.Internal},
		"unknown": {"an unknown error is not attributed to a cluster", errors.New("index out of range"),
			kube.Internal},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, kube.Classify(tc.err), tc.reason)
		})
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	rejected := &apierrors.StatusError{ErrStatus: metav1.Status{Message: "rejected", Details: &metav1.StatusDetails{
		Causes: []metav1.StatusCause{{Message: "replicas: must not\nbe negative"}, {Message: "rejected"}}}}}
	require.Equal(t, "rejected; replicas: must not be negative", kube.Text(rejected),
		"the causes add what the message lacks")
	require.LessOrEqual(t, len(kube.Line(strings.Repeat("é", 1000))), 500, "a long text is cut")
}
