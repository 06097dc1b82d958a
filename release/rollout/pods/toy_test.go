package pods_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workload"
)

const (
	stableTemplate, newTemplate = "t-stable", "t-new"
	// hungTemplate makes pods that never get ready.
	hungTemplate = "t-hung"
	ourClaim     = "rollout/default/shop/web@run-1"
)

// toySet is one ReplicaSet. available is its status, which lags behind the pods and behind its minReadySeconds.
type toySet struct {
	template  string
	number    int64
	asked     int32
	pods      []bool // ready
	gated     bool
	available int32
	total     int32
	ready     int32
	// heard is the status as the Deployment's controller has it cached: Deployments and ReplicaSets reach it by
	// separate watches.
	heard cachedStatus
	// rest is the annotation that the controller has copied from the Deployment.
	rest string
}

// copies copies the annotation if the controller's write to the ReplicaSet succeeds: it has the latest version of it.
func (s *toySet) copies(w *toy) {
	if s.heard == (cachedStatus{s.total, s.ready, s.available}) {
		s.rest = w.annotations[rollout.AnnotationSettled]
	}
}

type cachedStatus struct{ total, ready, available int32 }

func (s *toySet) hear() { s.heard = cachedStatus{s.total, s.ready, s.available} }

// hear updates the cache of the Deployment's controller.
func (w *toy) hear() {
	for _, s := range w.sets {
		s.hear()
	}
}

func (s *toySet) report() {
	s.total, s.ready = int32(len(s.pods)), 0
	for _, r := range s.pods {
		if r {
			s.ready++
		}
	}
	s.available = s.ready
	if s.gated {
		s.available = 0
	}
}

// toy is a Deployment with its controller, its ReplicaSets and its pods, each of which moves on its own.
type toy struct {
	replicas             int32
	template             string
	settings             map[string]json.RawMessage
	annotations          map[string]string
	claim                string
	generation, observed int64
	sets                 []*toySet
	// total, ready, available and updated are the counts of the status.
	total, ready, available, updated int32
}

func newToy(replicas int32, strategy string) *toy {
	w := &toy{replicas: replicas, template: stableTemplate, annotations: map[string]string{}, generation: 1,
		observed: 1,
		settings: map[string]json.RawMessage{"/spec/strategy": json.RawMessage(strategy),
			"/spec/progressDeadlineSeconds": json.RawMessage("600")}}
	s := &toySet{template: stableTemplate, number: 1, asked: replicas, pods: make([]bool, replicas)}
	for i := range s.pods {
		s.pods[i] = true
	}
	s.report()
	s.hear()
	w.sets = []*toySet{s}
	w.noteSize()
	w.report()
	return w
}

func (w *toy) report() {
	w.total, w.ready, w.available, w.updated = 0, 0, 0, 0
	for _, s := range w.sets {
		w.total, w.ready, w.available = w.total+s.heard.total, w.ready+s.heard.ready, w.available+s.heard.available
		if s.template == w.template {
			w.updated = s.heard.total
		}
	}
}

func (w *toy) set(template string) *toySet {
	for _, s := range w.sets {
		if s.template == template {
			return s
		}
	}
	return nil
}

// limits resolves the strategy as the real controller does.
func (w *toy) limits() (unavailable, surge int32) {
	var s struct {
		RollingUpdate struct{ MaxUnavailable, MaxSurge intstr.IntOrString }
	}
	if err := json.Unmarshal(w.settings["/spec/strategy"], &s); err != nil {
		panic(err)
	}
	g, err := intstr.GetScaledValueFromIntOrPercent(&s.RollingUpdate.MaxSurge, int(w.replicas), true)
	if err != nil {
		panic(err)
	}
	u, err := intstr.GetScaledValueFromIntOrPercent(&s.RollingUpdate.MaxUnavailable, int(w.replicas), false)
	if err != nil {
		panic(err)
	}
	if g == 0 && u == 0 {
		u = 1
	}
	return min(int32(u), w.replicas), int32(g)
}

// syncPaused is a pass over a paused Deployment: its template makes no ReplicaSet, and only its size is applied.
func (w *toy) syncPaused() {
	fresh := w.set(w.template)
	if fresh != nil {
		fresh.gated = string(w.settings["/spec/minReadySeconds"]) == "2147483646"
		fresh.copies(w)
	}
	var active []*toySet
	all := int32(0)
	for _, s := range w.sets {
		if s.asked > 0 {
			active = append(active, s)
			all += s.asked
		}
	}
	_, surge := w.limits()
	switch {
	case len(active) == 0 && fresh != nil:
		fresh.asked = w.replicas
	case len(active) == 0:
		w.sets[len(w.sets)-1].asked = w.replicas
	case len(active) == 1:
		active[0].asked = w.replicas
	case fresh != nil && fresh.asked == w.replicas && fresh.heard.available == w.replicas &&
		w.scaledFor() == w.replicas:
		for _, s := range active {
			if s != fresh {
				s.asked = 0
			}
		}
	default:
		want := w.replicas + surge
		if w.replicas == 0 {
			want = 0
		}
		w.spread(active, all, want)
	}
	w.noteSize()
	w.report()
	w.observed = w.generation
}

// sync is one pass of the Deployment's controller.
func (w *toy) sync() {
	if string(w.settings["/spec/paused"]) == "true" {
		w.syncPaused()
		return
	}
	fresh := w.set(w.template)
	gated := string(w.settings["/spec/minReadySeconds"]) == "2147483646"
	if fresh == nil {
		fresh = &toySet{template: w.template, number: int64(len(w.sets) + 1)}
		w.sets = append(w.sets, fresh)
	}
	fresh.gated = gated
	fresh.copies(w)
	w.rescale(fresh)
	unavailable, surge := w.limits()
	all := int32(0)
	for _, s := range w.sets {
		all += s.asked
	}
	switch {
	case fresh.asked > w.replicas:
		fresh.asked = w.replicas
	case fresh.asked < w.replicas && all < w.replicas+surge:
		fresh.asked += min(w.replicas+surge-all, w.replicas-fresh.asked)
	default:
		w.shrink(fresh, all, unavailable)
	}
	w.report()
	w.observed = w.generation
}

// rescale spreads a new size over the ReplicaSets when there is more than one, as the controller does after a scaling.
func (w *toy) rescale(fresh *toySet) {
	all := int32(0)
	for _, s := range w.sets {
		all += s.asked
	}
	_, surge := w.limits()
	if all == fresh.asked {
		fresh.asked = w.replicas
		w.noteSize()
		return
	}
	if w.replicas == w.scaledFor() {
		return
	}
	w.spread(w.sets, all, w.replicas+surge)
	w.noteSize()
}

// spread scales all pods together from all to want, in proportion.
func (w *toy) spread(sets []*toySet, all, want int32) {
	rest := want - all
	sets = slices.Clone(sets)
	slices.SortStableFunc(sets, func(a, b *toySet) int { return int(b.asked - a.asked) })
	for _, s := range sets {
		if s.asked == 0 || all == 0 {
			continue
		}
		share := (s.asked*want + all/2) / all
		delta := share - s.asked
		if rest >= 0 {
			delta = min(max(delta, 0), rest)
		} else {
			delta = max(min(delta, 0), rest)
		}
		s.asked += delta
		rest -= delta
	}
	sets[0].asked = max(sets[0].asked+rest, 0)
}

func (w *toy) scaledFor() int32 {
	var n int32
	if json.Unmarshal([]byte(w.annotations["size"]), &n) != nil {
		return w.replicas
	}
	return n
}

func (w *toy) noteSize() {
	raw, _ := json.Marshal(w.replicas)
	w.annotations["size"] = string(raw)
}

func (w *toy) shrink(fresh *toySet, all, unavailable int32) {
	floor := w.replicas - unavailable
	room := all - floor - (fresh.asked - fresh.heard.available)
	if room <= 0 {
		return
	}
	for _, s := range w.sets {
		if s == fresh || room <= 0 {
			continue
		}
		unhealthy := min(s.asked-s.heard.available, room)
		s.asked, room = s.asked-unhealthy, room-unhealthy
	}
	available := int32(0)
	for _, s := range w.sets {
		available += min(s.heard.available, s.asked)
	}
	spare := available - floor
	for _, s := range w.sets {
		if s == fresh || spare <= 0 {
			continue
		}
		n := min(s.asked, spare)
		s.asked, spare = s.asked-n, spare-n
	}
}

// settle is one pass of a ReplicaSet's controller: unready pods go first.
func (s *toySet) settle() {
	slices.SortFunc(s.pods, func(a, b bool) int {
		if a == b {
			return 0
		}
		if a {
			return -1
		}
		return 1
	})
	for int32(len(s.pods)) > s.asked {
		s.pods = s.pods[:len(s.pods)-1]
	}
	for int32(len(s.pods)) < s.asked {
		s.pods = append(s.pods, false)
	}
	s.report()
}

func (w *toy) observe() pods.Observed {
	seen := pods.Observed{Snapshot: workload.Snapshot{Claim: w.claim, Generation: w.generation,
		ObservedGeneration: w.observed, Replicas: w.replicas, Settings: maps.Clone(w.settings), Total: w.total,
		Ready: w.ready, Available: w.available, Updated: w.updated, PodsSeen: true}, Template: w.template,
		Expected: newTemplate}
	if raw, ok := w.annotations[workload.AnnotationRollout]; ok {
		saved, err := rollout.ParseSaved(raw)
		if err != nil {
			panic(err)
		}
		seen.Saved = saved
	}
	var rest rollout.SettledState
	if json.Unmarshal([]byte(w.annotations[rollout.AnnotationSettled]), &rest) == nil {
		seen.Rest = &rest
	}
	if w.template == hungTemplate {
		seen.Progress.Reason = "ReplicaSetUpdated"
		seen.Pods = []workload.Pod{{Name: "broken", Revision: hungTemplate, Reason: "ImagePullBackOff"}}
	}
	for _, s := range w.sets {
		seen.Revisions = append(seen.Revisions, pods.Revision{Name: s.template, Hash: s.template, Number: s.number,
			Template: s.template, HasCounts: true,
			Desired: s.asked, Total: s.total, Ready: s.ready, Available: s.available, Rest: s.rest})
	}
	return seen
}

// write applies a write as the API server would, to the generation that was read; false if it is refused.
func (w *toy) write(in *workload.Write, generation int64) bool {
	if in.ExpectedClaim != w.claim || generation != w.generation {
		return false
	}
	before := w.spec() + w.notes()
	for _, s := range in.Settings {
		if len(s.Value) == 0 || string(s.Value) == "null" {
			delete(w.settings, s.Path)
		} else {
			w.settings[s.Path] = s.Value
		}
	}
	if in.Template != nil {
		if w.template = in.Template.Revision; w.template == "" {
			w.template = newTemplate
		}
	}
	maps.Copy(w.annotations, in.Annotations)
	for _, name := range in.Remove {
		delete(w.annotations, name)
	}
	if in.Claim != "" {
		w.claim = in.Claim
	}
	if in.Release {
		w.claim = ""
	}
	if w.spec()+w.notes() != before { // a Deployment's generation counts changes of its annotations as well
		w.generation++
	}
	return true
}

// notes are its annotations except for the toy's own.
func (w *toy) notes() string {
	text := ""
	for _, k := range slices.Sorted(maps.Keys(w.annotations)) {
		if k != "size" {
			text += k + w.annotations[k]
		}
	}
	return text
}

// pods describes how many pods of each version are desired.
func (w *toy) pods() string {
	text := ""
	for _, s := range w.sets {
		if s.asked > 0 {
			text += fmt.Sprintf("%d of %s ", s.asked, s.template)
		}
	}
	return text
}

func (w *toy) spec() string {
	text := w.template
	for _, k := range slices.Sorted(maps.Keys(w.settings)) {
		text += k + string(w.settings[k])
	}
	raw, _ := json.Marshal(w.replicas)
	return text + string(raw)
}

func subject() rollout.Subject {
	return rollout.Subject{Name: "web", Claim: ourClaim, DeadlineSeconds: 600,
		Workload: catalog.Workload{Namespace: "shop",
			WorkloadRef: catalog.WorkloadRef{APIVersion: catalog.APIVersion, Kind: "Deployment", Name: "web"}}}
}
