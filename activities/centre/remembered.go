package centre

import "k8s.io/utils/lru"

// writeCache keeps objects as this process last wrote them. An object can be taken once: a write onto it is refused if
// another client has changed the object since, and then it is read again.
type writeCache[T any] struct{ objects *lru.Cache }

func newWriteCache[T any](most int) writeCache[T] { return writeCache[T]{lru.New(most)} }

func (r writeCache[T]) keep(key string, object T) { r.objects.Add(key, object) }

// take removes and returns an object; false if it is not cached.
func (r writeCache[T]) take(key string) (object T, known bool) {
	found, known := r.objects.Get(key)
	if !known {
		return object, false
	}
	r.objects.Remove(key)
	return found.(T), true
}
