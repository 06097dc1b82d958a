package workload

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// followed keeps the newest version of each workload with a running attempt, complete, as the watch has shown it. Of
// all other workloads the watch keeps only what is compared (claimedWorkload), so that its memory does not grow with
// waiting releases.
type followed struct {
	mu      sync.Mutex
	objects map[target]*followedObject
}

// followedObject is one of them; object is nil until the watch has shown it. left is true when the watch no longer
// shows it.
type followedObject struct {
	followers int
	object    *unstructured.Unstructured
	left      bool
}

// begin keeps these workloads from their next event on. end must be called.
func (f *followed) begin(targets []target) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range targets {
		if f.objects[t] == nil {
			f.objects[t] = &followedObject{}
		}
		f.objects[t].followers++
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, t := range targets {
			if f.objects[t].followers--; f.objects[t].followers == 0 {
				delete(f.objects, t)
			}
		}
	}
}

// keep stores a version of a workload that the watch shows.
func (f *followed) keep(kind string, o *unstructured.Unstructured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.objects[target{kind, o.GetNamespace(), o.GetName()}]; kept != nil {
		kept.object, kept.left = o, false
	}
}

// drop marks a workload as removed from the watch.
func (f *followed) drop(t target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.objects[t]; kept != nil {
		kept.object, kept.left = nil, true
	}
}

// get is the newest version of a workload that the watch has shown, nil if none, and whether it has left the watch. The
// object must not be changed.
func (f *followed) get(t target) (o *unstructured.Unstructured, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.objects[t]; kept != nil {
		return kept.object, kept.left
	}
	return nil, false
}

// has reports whether an attempt of this process works on a workload.
func (f *followed) has(t target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[t] != nil
}

// newer is the newer of two versions of an object, by resourceVersion; false when they cannot be compared. Versions of
// one resource are increasing numbers (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func newer(a, b *unstructured.Unstructured) (*unstructured.Unstructured, bool) {
	switch {
	case a == nil:
		return b, b != nil
	case b == nil:
		return a, true
	}
	versionA, errA := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	versionB, errB := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	if errA != nil || errB != nil || a.GetUID() != b.GetUID() {
		return nil, false
	}
	if versionA >= versionB {
		return a, true
	}
	return b, true
}
