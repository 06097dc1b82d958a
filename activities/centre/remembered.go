package centre

import "k8s.io/utils/lru"

// remembered keeps objects as this process wrote them last. Each is taken once: whoever takes it writes onto it, and if somebody has changed the object since,
// the write is refused, and it is read.
type remembered[T any] struct{ objects *lru.Cache }

func rememberedOf[T any](most int) remembered[T] { return remembered[T]{lru.New(most)} }

func (r remembered[T]) keep(key string, object T) { r.objects.Add(key, object) }

// take is an object as it was written last; false when it is not known.
func (r remembered[T]) take(key string) (object T, known bool) {
	found, known := r.objects.Get(key)
	if !known {
		return object, false
	}
	r.objects.Remove(key)
	return found.(T), true
}
