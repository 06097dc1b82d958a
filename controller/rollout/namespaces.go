package rollout

import (
	"context"
	"sync"
	"time"

	"slipway.io/slipway/release/kruise"
)

// engineTTL is how long the engine named by a namespace is cached.
const engineTTL = time.Minute

// namespaceEngines caches the engines named by namespaces. They are only needed for Rollouts that no engine manages
// yet.
type namespaceEngines struct {
	mu    sync.Mutex
	known map[string]cachedEngine
}

type cachedEngine struct {
	engine string
	at     time.Time
}

// engineOf returns the engine named by a namespace, "" for none.
func (n *namespaceEngines) engineOf(ctx context.Context, namespace string,
	labels func(context.Context, string) (map[string]string, error)) (string, error) {
	n.mu.Lock()
	last, is := n.known[namespace]
	n.mu.Unlock()
	if is && time.Since(last.at) < engineTTL {
		return last.engine, nil
	}
	found, err := labels(ctx, namespace)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]cachedEngine{}
	}
	n.known[namespace] = cachedEngine{found[kruise.KeyEngine], time.Now()}
	return found[kruise.KeyEngine], nil
}
