package rollout

import (
	"context"
	"time"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/kruise/v1beta1"
)

const (
	// otherControllerTTL is how long the answer about other controllers is cached: many releases may be about to begin
	// at once. It is less than kruise.AnnouncementDelay, so that a controller which existed when a workload was changed
	// is found before the release begins.
	otherControllerTTL = 2 * time.Second
	// otherControllerInterval is how often an object that is left to another controller is checked, and how often its
	// reason is written again: the other controller may overwrite it.
	otherControllerInterval = 30 * time.Second
)

// otherController caches whether another controller on the cluster releases the workloads of Rollouts.
type otherController struct{ answer recent.Cache }

// check returns what prevents a release from beginning; ask determines it.
func (b *otherController) check(ctx context.Context,
	ask func(context.Context) (reference.OtherController, error)) (reference.OtherController, error) {
	return recent.Get(ctx, &b.answer, "", otherControllerTTL, ask)
}

// leavesAlone reports whether an object is left alone for now because another controller manages it: neither the object
// nor its workload is written. Only the reason why a held change does not begin is shown. A running release still
// restores what it borrowed.
func (c *Controller) leavesAlone(ctx context.Context, r *v1beta1.Rollout, w *kruise.Workload, next kruise.NextAction,
	refused string) (bool, error) {
	if s := r.Status.Slipway; s != nil && s.Open { // a release in progress is controlled to its end
		return false, nil
	}
	switch next.Kind {
	case kruise.DoAddFinalizer, kruise.DoRemoveFinalizer, kruise.DoWriteHash, kruise.DoMark, kruise.DoWriteStatus:
	default:
		return false, nil
	}
	other, err := c.otherController.check(ctx, c.options.OtherController)
	// without a running controller no deletion has to wait
	if err != nil || other.Message == "" || next.Kind == kruise.DoRemoveFinalizer && !other.Runs {
		return false, err
	}
	switch {
	case w == nil || w.Held == nil || w.Claim != "" || next.Kind != kruise.DoWriteStatus:
		return true, nil
	case refused != other.Message:
		c.refuse(r, w, other.Message)
		return true, nil
	}
	return !c.memoryOf(r).shouldShow(other.Message, time.Now()), nil
}
