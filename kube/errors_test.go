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
		"refused connection": {"nobody answers", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, kube.Unreachable},
		"request":            {"nobody answers a client", request(errors.New("dial tcp 127.0.0.1:6443: connect: connection refused")), kube.Unreachable},
		"timeout":            {"nobody answers in time", fmt.Errorf("list pods: %w", context.DeadlineExceeded), kube.Unreachable},
		"cut off":            {"half an answer is none", fmt.Errorf("read the answer: %w", io.ErrUnexpectedEOF), kube.Unreachable},
		"stream":             {"nor is half an answer over HTTP/2, of which client-go says this", fmt.Errorf("stream error when reading response body, may be caused by closed connection. Please retry. Original error: %w", errors.New("stream error: stream ID 7; INTERNAL_ERROR")), kube.Unreachable},
		"certificate":        {"a certificate that does not fit is trouble of the system", request(x509.UnknownAuthorityError{}), kube.Unreachable},
		"held back":          {"a request whose turn did not come was not answered", errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline"), kube.Unreachable},
		"500":                {"an error of the server is no verdict", apierrors.NewInternalError(errors.New("etcd")), kube.Unreachable},
		"503":                {"nor is being overloaded", apierrors.NewServiceUnavailable("x"), kube.Unreachable},
		"429":                {"nor is being told to come later", apierrors.NewTooManyRequests("x", 1), kube.Unreachable},
		"504":                {"nor is a timeout of the server", apierrors.NewTimeoutError("x", 1), kube.Unreachable},
		"401":                {"the server does not know us any more", apierrors.NewUnauthorized("x"), kube.Forbidden},
		"403":                {"no review has said that we have the permission", apierrors.NewForbidden(deployments, "order", errors.New("denied")), kube.Forbidden},
		"404":                {"it is not there", apierrors.NewNotFound(deployments, "order"), kube.Missing},
		"409":                {"somebody was faster", apierrors.NewConflict(deployments, "order", errors.New("x")), kube.Changed},
		"410":                {"a list has changed too much since its page was read", apierrors.NewResourceExpired("x"), kube.Changed},
		"422":                {"a test of the patch failed, or the change breaks a rule", status(http.StatusUnprocessableEntity, "testing value"), kube.Rejected},
		"405":                {"anything else is a verdict", status(http.StatusMethodNotAllowed, "x"), kube.Refused},
		"wrapped":            {"an error is found below others", fmt.Errorf("while reading: %w", apierrors.NewNotFound(deployments, "order")), kube.Missing},
		"cancelled":          {"we have given up ourselves", request(context.Canceled), kube.Internal},
		"Temporal":           {"Temporal that does not answer says nothing about a cluster", serviceerror.NewUnavailable("connection refused"), kube.Internal},
		"Temporal in time":   {"nor does Temporal that is late", serviceerror.NewDeadlineExceeded("context deadline exceeded"), kube.Internal},
		"decoding":           {"an object that cannot be read is a mistake of ours", fmt.Errorf("read Deployment order: %w", &json.SyntaxError{}), kube.Internal},
		"unknown":            {"what is not known is not blamed on a cluster", errors.New("index out of range"), kube.Internal},
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
	require.Equal(t, "rejected; replicas: must not be negative", kube.Text(rejected), "the causes say what the message does not")
	require.LessOrEqual(t, len(kube.Line(strings.Repeat("é", 1000))), 504, "a long text is cut")
}
