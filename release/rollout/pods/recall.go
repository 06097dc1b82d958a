package pods

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/rollout/strategy"
)

// This file is about releases that go back to an earlier revision: its pod template is where its cluster keeps it.

// Recall is the revision that the request goes back to: the one of the recorded pod template, else the one of the recorded name, since an API
// server that fills in other defaults by now makes another digest of the same template. false when the cluster doesn't keep it any more.
func (o Observed) Recall() (Revision, bool) {
	if o.Recalled == nil {
		return Revision{}, false
	}
	if r, there := o.Made(o.Recalled.Template); there {
		return r, true
	}
	return o.Find(o.Recalled.Name)
}

// mostKept is how many revisions a refusal names.
const mostKept = 8

// NotKept says that the revision to go back to is gone, and which ones are still there, newest first.
func NotKept(workload fmt.Stringer, seen Observed) string {
	var kept []string
	for _, r := range slices.Backward(seen.Revisions) {
		if len(kept) == mostKept {
			kept = append(kept, "…")
			break
		}
		kept = append(kept, fmt.Sprintf("%s (%s)", r.Name, strategy.ImageList(r.Images)))
	}
	return fmt.Sprintf("%s: its cluster doesn't keep that version any more (spec.revisionHistoryLimit), so there is no pod template to go back to. It keeps %s. "+
		"Start a rollout with the images of that version instead", workload, strings.Join(kept, ", "))
}
