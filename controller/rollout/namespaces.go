package rollout

import (
	"context"
	"sync"
	"time"

	"slipway.io/slipway/release/kruise"
)

// nameKept is how long the engine that a namespace names is taken as true.
const nameKept = time.Minute

// namespaces are the engines that namespaces name. Only Rollouts that no engine looks after yet are asked about.
type namespaces struct {
	mu    sync.Mutex
	known map[string]named
}

type named struct {
	engine string
	at     time.Time
}

// engineOf is the engine that a namespace names, "" for none.
func (n *namespaces) engineOf(ctx context.Context, namespace string, labels func(context.Context, string) (map[string]string, error)) (string, error) {
	n.mu.Lock()
	last, is := n.known[namespace]
	n.mu.Unlock()
	if is && time.Since(last.at) < nameKept {
		return last.engine, nil
	}
	found, err := labels(ctx, namespace)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]named{}
	}
	n.known[namespace] = named{found[kruise.KeyEngine], time.Now()}
	return found[kruise.KeyEngine], nil
}
