package traffic

import (
	"errors"
	"regexp"

	"slipway.io/slipway/kube"
)

// classify is kube.Classify, but what is not there any more has changed, like all else that was decided on.
func classify(err error) kube.Class {
	if kind := kube.Classify(err); kind != kube.Missing {
		return kind
	}
	return kube.Changed
}

// dryRunWords is how the API server says that it cannot make a dry run.
var dryRunWords = regexp.MustCompile(`does not support dry run`)

// errLookAgain says that somebody was faster: what was decided has to be decided anew.
var errLookAgain = errors.New("the object has changed in the meantime")
