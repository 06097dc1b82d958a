package workload

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// followed keeps, as they are, the newest objects that the watch has told of workloads whose attempts are under way. Of all others the
// watch keeps what is compared (resting), so that its memory does not grow with what waits.
type followed struct {
	mu      sync.Mutex
	objects map[target]*followedObject
}

// followedObject is one of them; object is nil until the watch has told of it. It has left when the watch shows it no more.
type followedObject struct {
	followers int
	object    *unstructured.Unstructured
	left      bool
}

// begin has workloads kept from their next event on. end must be called.
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

// keep takes in what the watch tells of a workload.
func (f *followed) keep(kind string, o *unstructured.Unstructured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.objects[target{kind, o.GetNamespace(), o.GetName()}]; kept != nil {
		kept.object, kept.left = o, false
	}
}

// drop forgets a workload that has left the watch.
func (f *followed) drop(t target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.objects[t]; kept != nil {
		kept.object, kept.left = nil, true
	}
}

// get is a workload as the watch has told of it last, nil when it has not, and whether it has left. It is not to be changed.
func (f *followed) get(t target) (o *unstructured.Unstructured, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kept := f.objects[t]; kept != nil {
		return kept.object, kept.left
	}
	return nil, false
}

// has says whether an attempt of this process is at work on a workload.
func (f *followed) has(t target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[t] != nil
}

// newer is the newer one of two objects of one name, by their resourceVersion; false when that cannot be told. Versions of one resource are
// numbers that grow (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
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
