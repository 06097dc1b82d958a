package rollout

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// remembered is what is known of objects besides what they show, until they are gone. It only spares work: a process that has just started knows nothing
// of it. The queue hands an object to one worker at a time, so that nobody else writes between a get and a put.
type remembered[V any] struct {
	mu    sync.Mutex
	known map[cache.ObjectName]V
}

func (r *remembered[V]) get(name cache.ObjectName) (v V, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, is = r.known[name]
	return v, is
}

func (r *remembered[V]) put(name cache.ObjectName, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[cache.ObjectName]V{}
	}
	r.known[name] = v
}

func (r *remembered[V]) forget(name cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, name)
}
