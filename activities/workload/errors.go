package workload

import (
	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/trouble"
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
func text(err error) string { return attempt.Text(err) }
