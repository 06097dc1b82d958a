package pods

import (
	"maps"
	"slices"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// mustAsk reports whether the centre is to be asked about a saved state that no release holds, before it is taken over.
func mustAsk(req rollout.BeginRequest, seen Observed) bool {
	return req.AskSaved && seen.Saved != nil && seen.Claim == "" && seen.Saved.Claim != "" &&
		seen.Saved.Claim != req.TakeOver
}

// staleMarks returns the annotations of an earlier release that this one neither follows nor replaces: a copy has
// brought them.
func staleMarks(seen Observed, saved rollout.Saved) []string {
	stale := []string{rollout.AnnotationSettled, rollout.AnnotationExtraStatus, workload.AnnotationOriginal}
	if seen.Next == "" {
		stale = append(stale, rollout.AnnotationNext)
	}
	if saved.Declared == "" {
		stale = append(stale, rollout.AnnotationInProgressing, rollout.AnnotationOriginalStrategy)
	}
	return stale
}

// annotate adds annotations to a write, which then does not remove them as stale.
func annotate(w *workload.Write, annotations map[string]string) {
	maps.Copy(w.Annotations, annotations)
	w.Remove = slices.DeleteFunc(w.Remove, func(name string) bool {
		_, set := annotations[name]
		return set
	})
}

// withoutEnded returns the snapshot without what a release has left on the workload that has ended and given everything
// back: another client has brought it back with an older copy of the workload.
func withoutEnded(s rollout.Subject, seen Observed) Observed {
	left := seen.Claim
	if left == "" && seen.Saved != nil {
		left = seen.Saved.Claim
	}
	if !s.Ended || left == "" || left != s.TakeOver {
		return seen
	}
	seen.Saved, seen.SavedProblem, seen.Rest, seen.Busy, seen.Next, seen.ExtraStatus, seen.Extra = nil, "", nil, "", "",
		"", nil
	return seen
}
