package operation_test

import (
	"encoding/json"
	"maps"
	"sort"

	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/workload"
)

// sync runs one step of the workload's controller. It acts on the spec that it read last, and only then reads the
// newest one: a change made meanwhile takes effect in the next step.
func (w *toyWorkload) sync() {
	spec, generation := w.spec, w.generation
	w.spec, w.generation = w.view, w.viewed
	switch w.kind {
	case operation.KindDeployment:
		w.syncDeployment()
	case operation.KindStatefulSet:
		w.syncStatefulSet()
	default:
		w.syncDaemonSet()
	}
	w.report()
	w.spec, w.generation = spec, generation
	w.refresh()
	w.version++
}

// refresh makes the controller read the newest spec.
func (w *toyWorkload) refresh() {
	w.view, w.viewed = w.spec, w.generation
	w.view.settings = maps.Clone(w.spec.settings)
}

func (w *toyWorkload) setting(path string) int32 {
	raw := string(w.spec.settings[path])
	if raw == `"100%"` {
		return w.spec.replicas
	}
	if raw == `"25%"` {
		return (w.spec.replicas + 3) / 4
	}
	var n int32
	if err := json.Unmarshal([]byte(raw), &n); err != nil {
		panic(err)
	}
	return n
}

func (w *toyWorkload) syncDeployment() {
	var fresh, old []*toyPod
	unreadyNew := int32(0)
	for _, p := range w.alive() {
		if p.marker == w.spec.marker {
			fresh = append(fresh, p)
			if !p.ready {
				unreadyNew++
			}
		} else {
			old = append(old, p)
		}
	}
	// Unready pods are removed first, like a ReplicaSet does.
	unreadyFirst := func(list []*toyPod) {
		sort.SliceStable(list, func(i, j int) bool { return !list[i].ready && list[j].ready })
	}
	unreadyFirst(fresh)
	unreadyFirst(old)
	total := int32(len(fresh) + len(old))
	if w.spec.updateType == workload.UpdateRecreate {
		w.recreate(fresh, old)
		return
	}
	surge, unavailable := w.setting(workload.PathDeploymentSurge), w.setting(workload.PathDeploymentUnavailable)
	if len(old) == 0 {
		w.resize(fresh)
		return
	}
	if int32(len(fresh)) < w.spec.replicas && total < w.spec.replicas+surge {
		w.create(0)
		return
	}
	floor := w.spec.replicas - unavailable
	room := total - floor - unreadyNew
	for _, p := range old {
		if room <= 0 || p.ready && w.ready() <= floor {
			return
		}
		w.delete(p)
		room--
	}
}

func (w *toyWorkload) resize(fresh []*toyPod) {
	for i := int32(0); i < int32(len(fresh))-w.spec.replicas; i++ {
		w.delete(fresh[i])
	}
	for i := int32(len(fresh)); i < w.spec.replicas; i++ {
		w.create(0)
	}
}

func (w *toyWorkload) recreate(fresh, old []*toyPod) {
	for _, p := range old {
		w.delete(p)
	}
	if len(fresh) == len(w.pods) {
		w.resize(fresh)
	}
}

func (w *toyWorkload) at(ordinal int32) *toyPod {
	for _, p := range w.pods {
		if p.ordinal == ordinal {
			return p
		}
	}
	return nil
}

func (w *toyWorkload) syncStatefulSet() {
	for i := int32(0); i < w.spec.replicas; i++ {
		p := w.at(i)
		if p == nil {
			w.create(i)
		}
		if w.ordered && (p == nil || p.deleting || !p.ready) {
			return
		}
	}
	for _, p := range w.alive() {
		if p.ordinal >= w.spec.replicas {
			w.delete(p)
			if w.ordered {
				return
			}
		}
	}
	if w.ordered {
		for _, p := range w.pods {
			if p.ordinal >= w.spec.replicas {
				return
			}
		}
	}
	if w.spec.updateType == workload.UpdateOnDelete {
		return
	}
	for i := w.spec.replicas - 1; i >= 0; i-- {
		switch p := w.at(i); {
		case p == nil:
			return
		case p.marker != w.spec.marker && !p.deleting:
			w.delete(p)
			return
		case p.deleting || !p.ready:
			return
		}
	}
}

func (w *toyWorkload) syncDaemonSet() {
	unavailable := int32(0)
	var old []*toyPod
	for i := int32(0); i < w.spec.replicas; i++ {
		switch p := w.at(i); {
		case p == nil:
			w.create(i)
			unavailable++
		case p.deleting || !p.ready:
			unavailable++
			if !p.deleting && p.marker != w.spec.marker && w.spec.updateType == workload.UpdateRolling {
				w.delete(p)
			}
		case p.marker != w.spec.marker:
			old = append(old, p)
		}
	}
	if w.spec.updateType == workload.UpdateOnDelete {
		return
	}
	for _, p := range old {
		if unavailable >= w.setting(workload.PathUpdateUnavailable) {
			return
		}
		w.delete(p)
		unavailable++
	}
}
