package rollout

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/kruise/v1beta1"
)

const (
	// besideKept is how long an answer to what else releases on the cluster is taken as true: many releases may be about to begin at once. It is
	// less than kruise.Beginning, so that what was there when a workload was changed is found before its release begins.
	besideKept = 2 * time.Second
	// besideAgain is how often objects are looked at that are left to something else meanwhile, and how often one says so: another controller
	// may write over it.
	besideAgain = 30 * time.Second
)

// beside is what else releases what Rollouts name.
type beside struct {
	mu    sync.Mutex
	found reference.Beside
	at    time.Time
	told  remembered[told]
}

// told is what an object was made to say, and when.
type told struct {
	text string
	at   time.Time
}

// look is what keeps a release from beginning; ask finds that out.
func (b *beside) look(ctx context.Context, ask func(context.Context) (reference.Beside, error)) (reference.Beside, error) {
	b.mu.Lock()
	defer b.mu.Unlock() // who asks meanwhile wants the same answer
	if time.Since(b.at) < besideKept {
		return b.found, nil
	}
	found, err := ask(ctx)
	if err != nil {
		return reference.Beside{}, err
	}
	b.found, b.at = found, time.Now()
	return found, nil
}

// tell says whether an object is to say a text once more; if so, that is noted.
func (b *beside) tell(name cache.ObjectName, text string, now time.Time) bool {
	if last, _ := b.told.get(name); last.text == text && now.Sub(last.at) < besideAgain {
		return false
	}
	b.told.put(name, told{text, now})
	return true
}

// leaves says whether an object is left alone for now, since something else works on what Rollouts name: neither is it written to, nor its
// workload marked. It only says why no release of a change begins that is held. What a release has borrowed is given back as always.
func (c *Controller) leaves(ctx context.Context, r *v1beta1.Rollout, w *kruise.Workload, next kruise.NextAction, refused string) (bool, error) {
	if s := r.Status.Slipway; s != nil && s.Open { // a release that is under way is steered to its end
		return false, nil
	}
	switch next.Do {
	case kruise.DoGuard, kruise.DoUnguard, kruise.DoHash, kruise.DoMark, kruise.DoShow:
	default:
		return false, nil
	}
	other, err := c.beside.look(ctx, c.options.Beside)
	if err != nil || other.Says == "" || next.Do == kruise.DoUnguard && !other.Runs { // no deletion waits for what isn't there
		return false, err
	}
	name := cache.ObjectName{Namespace: r.Namespace, Name: r.Name}
	switch {
	case w == nil || w.Held == nil || w.Claim != "" || next.Do != kruise.DoShow:
		return true, nil
	case refused != other.Says:
		c.refuse(r, w, other.Says)
		return true, nil
	}
	return !c.beside.tell(name, other.Says, time.Now()), nil
}
