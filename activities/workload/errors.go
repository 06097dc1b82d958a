package workload

import (
	"errors"
	"net/http"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
)

// trouble sorts what a request to the API server can fail of.
type trouble int

const (
	// unreachable: the server did not answer, or not with a verdict; it is asked again.
	unreachable trouble = iota
	// forbidden: who we are may not do this.
	forbidden
	// missing: the object is not there.
	missing
	// changed: the object is no longer what it was when the change was decided; look again.
	changed
	// rejected: the server does not accept the change; either it is no longer what it was, or the change breaks a rule.
	rejected
	// refused: a rule of the cluster forbids the change (an admission webhook, a policy, a quota).
	refused
)

// deniedByRBAC is how the API server says that the account lacks a permission, in contrast to an admission rule that does not like the change; both are 403.
var deniedByRBAC = regexp.MustCompile(`User ".*" cannot \w+ `)

// sort says what kind of trouble an error of the API server, or on the way to it, is.
func sortTrouble(err error) trouble {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unreachable
	}
	switch code := status.Status().Code; {
	case code == http.StatusUnauthorized:
		return forbidden
	case code == http.StatusForbidden && deniedByRBAC.MatchString(status.Status().Message):
		return forbidden
	case code == http.StatusForbidden:
		return refused
	case code == http.StatusNotFound:
		return missing
	case code == http.StatusConflict:
		return changed
	case code == http.StatusUnprocessableEntity || code == http.StatusBadRequest:
		return rejected
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500 || code == 0:
		return unreachable
	default:
		return refused
	}
}

// text is an error of the API server as it is passed on.
func text(err error) string { return oneLine(err.Error()) }

func unreachableFailure(req operation.Request, spent int64, err error) *failure.Error {
	e := failure.New(failure.Unreachable, "%s: its cluster has been out of reach for more than %d s: %s",
		req.Workload, req.UnreachableBudgetSeconds, text(err))
	e.SpentSeconds = spent
	return e
}

func forbiddenFailure(req operation.Request, spent int64, err error) *failure.Error {
	e := failure.New(failure.Forbidden, "%s: this party's worker lacks a permission, which has to be granted: %s", req.Workload, text(err))
	e.SpentSeconds = spent
	return e
}
