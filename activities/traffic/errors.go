package traffic

import (
	"errors"
	"regexp"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/trouble"
)

// What a request to the API server can fail of, as this package's decisions call it.
const (
	unreachable = trouble.Unreachable
	forbidden   = trouble.Forbidden
	changed     = trouble.Changed
	rejected    = trouble.Rejected
	refused     = trouble.Refused
)

// sortTrouble is trouble.Sort, but what is not there any more has changed, like all else that was decided on.
func sortTrouble(err error) trouble.Kind {
	if kind := trouble.Sort(err); kind != trouble.Missing {
		return kind
	}
	return changed
}

// dryRunWords is how the API server says that it cannot make a dry run.
var dryRunWords = regexp.MustCompile(`does not support dry run`)

// text is an error as it is passed on: in one line.
func text(err error) string { return attempt.Text(err) }

// errLookAgain says that somebody was faster: what was decided has to be decided anew.
var errLookAgain = errors.New("the object has changed in the meantime")
