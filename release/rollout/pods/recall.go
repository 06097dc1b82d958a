package pods

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/rollout/strategy"
)

// This file is about releases that return to an earlier revision, whose pod template is kept in its cluster.

// RecalledRevision returns the revision that the request returns to: the one of the recorded pod template, else the one
// of the recorded name, since an API server with newer defaults gives the same template another digest. false if the
// cluster no longer keeps it.
func (o Observed) RecalledRevision() (Revision, bool) {
	if o.Recalled == nil {
		return Revision{}, false
	}
	if r, there := o.RevisionByTemplate(o.Recalled.Template); there {
		return r, true
	}
	return o.RevisionByName(o.Recalled.Name)
}

// maxKeptNamed is how many revisions a refusal names.
const maxKeptNamed = 8

// NotKeptReason explains that the revision to return to no longer exists, and lists those that do, newest first.
func NotKeptReason(workload fmt.Stringer, seen Observed) string {
	var kept []string
	for _, r := range slices.Backward(seen.Revisions) {
		if len(kept) == maxKeptNamed {
			kept = append(kept, "…")
			break
		}
		kept = append(kept, fmt.Sprintf("%s (%s)", r.Name, strategy.ImageList(r.Images)))
	}
	return fmt.Sprintf("%s: its cluster doesn't keep that version any more (spec.revisionHistoryLimit), so there is "+
		"no pod template to go back to. It keeps %s. "+
		"Start a rollout with the images of that version instead", workload, strings.Join(kept, ", "))
}
