package rollout

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// objectMemory stores what is known of objects in addition to their content, until they are deleted. It only saves
// work: a new process starts empty. The queue gives an object to one worker at a time, so no other worker writes
// between a get and a put.
type objectMemory[V any] struct {
	mu    sync.Mutex
	known map[cache.ObjectName]V
}

func (r *objectMemory[V]) get(name cache.ObjectName) (v V, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, is = r.known[name]
	return v, is
}

func (r *objectMemory[V]) put(name cache.ObjectName, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[cache.ObjectName]V{}
	}
	r.known[name] = v
}

func (r *objectMemory[V]) forget(name cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, name)
}
