// Package trouble sorts what a request to an API server can fail of, in one place.
package trouble

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Kind is what a request failed of.
type Kind int

// The kinds.
const (
	// Unreachable: the server did not answer, or not with a verdict; it is asked again.
	Unreachable Kind = iota
	// Forbidden: who we are may not do this.
	Forbidden
	// Missing: the object is not there.
	Missing
	// Changed: the object is not what it was when the write was decided, or is there already; look again.
	Changed
	// Rejected: the server does not accept the object as it would be, or a test of the patch has failed.
	Rejected
	// Refused: a rule of the cluster (an admission webhook, a policy, a quota) forbids it.
	Refused
)

// lacksPermission is how RBAC says no; an admission rule's no is a 403 too.
var lacksPermission = regexp.MustCompile(`User ".*" cannot \w+ `)

// Sort says what kind of trouble an error of the API server, or on the way to it, is.
func Sort(err error) Kind {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Unreachable
	}
	switch code := status.Status().Code; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden && lacksPermission.MatchString(status.Status().Message):
		return Forbidden
	case code == http.StatusNotFound:
		return Missing
	case code == http.StatusConflict:
		return Changed
	case code == http.StatusUnprocessableEntity, code == http.StatusBadRequest:
		return Rejected
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500, code == 0:
		return Unreachable
	default:
		return Refused
	}
}

// Text is an error as it is passed on: in one line.
func Text(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
