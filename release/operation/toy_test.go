package operation_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workload"
)

// toyPod is a pod of the toy cluster.
type toyPod struct {
	name    string
	uid     int
	version int
	ordinal int32
	// marker is the complete template that it was created from.
	marker   string
	ready    bool
	deleting bool
}

// toySpec is the part of a workload that its controller acts on.
type toySpec struct {
	replicas   int32
	updateType string
	settings   map[string]json.RawMessage
	// marker is the pod template: "<version>#<stamp of a restart>".
	marker string
}

func versionIn(marker string) string { version, _, _ := strings.Cut(marker, "#"); return version }

func stampIn(marker string) string { _, stamp, _ := strings.Cut(marker, "#"); return stamp }

// markerFor returns the marker of a template from the view of a request.
func markerFor(req operation.Request, template string) string {
	switch {
	case req.Operation == plan.Restart:
		return stampIn(template)
	case req.Restore != nil && req.Restore.Template != nil &&
		versionIn(template) == versionIn(req.Restore.Template.Template):
		return req.Marker
	case req.Restore != nil:
		return ""
	}
	return versionIn(template)
}

// templateFor returns the template that a request sets.
func templateFor(req operation.Request, now string) string {
	if req.Restore != nil {
		return req.Restore.Template.Template
	}
	return req.Marker + "#" + stampIn(now)
}

// toyWorkload is a workload with a controller that behaves like the one of Kubernetes, in small steps.
type toyWorkload struct {
	// request is the operation that reads the workload.
	request           operation.Request
	kind              string
	ordered           bool
	countsTerminating bool

	spec        toySpec
	generation  int64
	version     int
	annotations map[string]string
	labelled    bool

	pods    []*toyPod
	lastUID int

	// view and viewed are the spec that the controller has read and its generation; observed is the generation of its
	// status.
	view     toySpec
	viewed   int64
	observed int64
	status   operation.Observed

	// deletedNew are pods that were created since the restart began and deleted nevertheless: restarted twice. before
	// is the UID of the last older pod.
	deletedNew []string
	restarting bool
	before     int
}

func newToy(kind string, replicas int32) *toyWorkload {
	w := &toyWorkload{kind: kind, annotations: map[string]string{}, generation: 1}
	w.spec = toySpec{replicas: replicas, updateType: workload.UpdateRolling, settings: map[string]json.RawMessage{}}
	return w
}

// settle fills the workload with ready pods.
func (w *toyWorkload) settle() {
	for i := int32(0); i < w.spec.replicas; i++ {
		w.create(i).ready = true
	}
	w.report()
	w.refresh()
}

func (w *toyWorkload) create(ordinal int32) *toyPod {
	w.lastUID++
	p := &toyPod{uid: w.lastUID, ordinal: ordinal, marker: w.spec.marker}
	p.name = fmt.Sprintf("p-%d", w.lastUID)
	if w.kind != operation.KindDeployment {
		p.name = fmt.Sprintf("p-%d", ordinal)
	}
	w.pods = append(w.pods, p)
	return p
}

func (w *toyWorkload) delete(p *toyPod) {
	if p.deleting {
		return
	}
	if w.restarting && p.uid > w.before {
		w.deletedNew = append(w.deletedNew, fmt.Sprintf("%s (uid %d)", p.name, p.uid))
	}
	p.deleting = true
	p.version++
}

func (w *toyWorkload) alive() []*toyPod {
	var out []*toyPod
	for _, p := range w.pods {
		if !p.deleting {
			out = append(out, p)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ordinal > out[j].ordinal })
	return out
}

func (w *toyWorkload) ready() int32 {
	n := int32(0)
	for _, p := range w.alive() {
		if p.ready {
			n++
		}
	}
	return n
}

// out returns the number of requested pods that are not ready.
func (w *toyWorkload) out() int32 { return max(0, w.spec.replicas-w.ready()) }

// report writes the status from the pods, for the spec that the controller has read.
func (w *toyWorkload) report() {
	w.observed = w.generation
	s := operation.Observed{}
	terminating := int32(0)
	for _, p := range w.pods {
		if p.deleting && w.kind == operation.KindDeployment {
			terminating++
			continue
		}
		s.Total++
		if p.ready && !p.deleting {
			s.Ready++
			s.Available++
		}
		if p.marker == w.spec.marker && !p.deleting {
			s.Updated++
		}
	}
	if w.countsTerminating {
		s.Terminating = &terminating
	}
	w.status = s
}

// look reads the workload once.
func (w *toyWorkload) look(withPods bool) operation.Observed {
	s := w.status
	s.Claim = w.annotations[workload.AnnotationClaimedBy]
	if text, ok := w.annotations[workload.AnnotationOriginal]; ok {
		o, err := operation.ParseOriginal(text, borrowable)
		if err != nil {
			s.OriginalProblem = err.Error()
		}
		s.Original = o
	}
	s.Generation, s.ObservedGeneration = w.generation, w.observed
	s.Replicas, s.UpdateType, s.OrderedReady, s.Marker = w.spec.replicas, w.spec.updateType, w.ordered,
		markerFor(w.request, w.spec.marker)
	s.Settings = maps.Clone(w.spec.settings)
	s.Remembered, s.LeftAt = w.annotations[workload.AnnotationReplicas], w.annotations[workload.AnnotationLeftAt]
	s.Revision, s.Template = "rev-"+w.spec.marker, &revision.Revision{Template: w.spec.marker}
	s.Now = time.Unix(1_700_000_000, 0)
	if withPods {
		s.PodsSeen = true
		for _, p := range w.pods {
			s.Pods = append(s.Pods, workload.Pod{Name: p.name, UID: fmt.Sprint(p.uid),
				Version: fmt.Sprint(p.version), Revision: "rev-" + p.marker, Marker: markerFor(w.request, p.marker),
				Ordinal: p.ordinal,
				Ready:   p.ready, Available: p.ready, Deleting: p.deleting, Since: s.Now})
		}
	}
	return s
}

// write performs a write if its preconditions hold, and reports whether it did.
func (w *toyWorkload) write(in *workload.Write, version int) bool {
	if in.OnlyIfUnchanged && version != w.version ||
		w.annotations[workload.AnnotationClaimedBy] != in.ExpectedClaim {
		return false
	}
	if in.Replicas != nil && in.ExpectedReplicas != w.spec.replicas {
		return false
	}
	for _, s := range in.Settings {
		if now := w.spec.settings[s.Path]; string(now) != string(s.Expected) {
			return false
		}
	}
	w.version++
	before := w.specText()
	for _, s := range in.Settings {
		w.spec.settings[s.Path] = s.Value
		if s.Path == workload.PathUpdateStrategy {
			var strategy struct{ Type string }
			if err := json.Unmarshal(s.Value, &strategy); err != nil {
				panic(err)
			}
			w.spec.updateType = strategy.Type
		}
	}
	if in.Replicas != nil {
		w.spec.replicas = *in.Replicas
	}
	if in.Stamp != "" {
		w.spec.marker = versionIn(w.spec.marker) + "#" + in.Stamp
	}
	if in.Template != nil {
		w.spec.marker = templateFor(w.request, w.spec.marker)
	}
	maps.Copy(w.annotations, in.Annotations)
	for _, name := range in.Remove {
		delete(w.annotations, name)
	}
	if in.Claim != "" {
		w.annotations[workload.AnnotationClaimedBy], w.labelled = in.Claim, true
	}
	if in.Release {
		delete(w.annotations, workload.AnnotationClaimedBy)
		w.labelled = false
	}
	if w.specText() != before {
		w.generation++
	}
	return true
}

// specText returns the spec as one comparable text.
func (w *toyWorkload) specText() string {
	keys := slices.Sorted(maps.Keys(w.spec.settings))
	text := fmt.Sprint(w.spec.replicas, w.spec.updateType, w.spec.marker)
	for _, k := range keys {
		text += k + string(w.spec.settings[k])
	}
	return text
}

// kubelet makes one pod ready, or removes it if it is terminating.
func (w *toyWorkload) kubelet(pick func(n int) int) {
	if len(w.pods) == 0 {
		return
	}
	i := pick(len(w.pods))
	if w.pods[i].deleting {
		w.pods = slices.Delete(w.pods, i, i+1)
		w.version++
		return
	}
	w.pods[i].ready = true
	w.pods[i].version++
}
