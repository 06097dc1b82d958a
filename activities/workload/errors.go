package workload

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/activities/podword"
	"slipway.io/slipway/activities/trouble"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// What a request to the API server can fail of, as this package's decisions call it.
const (
	unreachable = trouble.Unreachable
	forbidden   = trouble.Forbidden
	missing     = trouble.Missing
	changed     = trouble.Changed
	rejected    = trouble.Rejected
	refused     = trouble.Refused
)

// text is an error of the API server as it is passed on.
func text(err error) string {
	said := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Message != "" && !strings.Contains(said, cause.Message) { // an answer may say no more than "rejected" by itself
				said += "; " + cause.Message
			}
		}
	}
	return podword.Line(said)
}

func unreachableFailure(req workloadops.Request, spent int64, err error) *failure.Error {
	e := failure.New(failure.Unreachable, "%s: its cluster has been out of reach for more than %d s: %s",
		req.Workload, req.UnreachableBudgetSeconds, text(err))
	e.SpentSeconds = spent
	return e
}

func forbiddenFailure(req workloadops.Request, spent int64, err error) *failure.Error {
	e := failure.New(failure.Forbidden, "%s: this party's worker lacks a permission, which has to be granted: %s", req.Workload, text(err))
	e.SpentSeconds = spent
	return e
}
