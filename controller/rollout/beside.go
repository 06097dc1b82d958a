package rollout

import (
	"context"
	"sync"
	"time"
)

// besideKept is how long an answer to what else releases on the cluster is taken as true: many releases may be about to begin at once.
const besideKept = 5 * time.Second

// beside is what else releases what Rollouts name.
type beside struct {
	mu   sync.Mutex
	said string
	at   time.Time
}

// look is why no release may begin, "" when nothing keeps it; ask finds that out.
func (b *beside) look(ctx context.Context, ask func(context.Context) (string, error)) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock() // who asks meanwhile wants the same answer
	if time.Since(b.at) < besideKept {
		return b.said, nil
	}
	said, err := ask(ctx)
	if err != nil {
		return "", err
	}
	b.said, b.at = said, time.Now()
	return said, nil
}
