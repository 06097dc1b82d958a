package observer

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/rollout/strategy"
)

// Rollout is the definition of an observed rollout.
type Rollout struct {
	Workload Name
	Style    strategy.Style
	Steps    []strategy.Step
	Routings []strategy.Routing
}

// extraWorkload returns the name of the extra workload that the style canary creates.
func (r Rollout) extraWorkload() Name {
	return Name{r.Workload.Kind, r.Workload.Name + strategy.CanarySuffix}
}

// target returns the number of new pods that a step asks for at a size, with percentages rounded up. It does not use
// the product's code, whose mistakes the observer must find.
func (r Rollout) target(step int, size int32) int32 {
	asked := r.Steps[step-1].Replicas
	if asked.Type == intstr.Int {
		return min(asked.IntVal, size)
	}
	n := scaled(asked, size, true)
	if r.Style == strategy.StylePartition && asked.StrVal != "100%" && size > 1 {
		n = min(n, size-1)
	}
	return n
}

// reach returns the furthest step that a rollout reaches without approval once it may go to a step; len(Steps)+1 means
// that it finishes.
func (r Rollout) reach(step int) int {
	for step <= len(r.Steps) && r.passesAutomatically(step) {
		step++
	}
	return step
}

// passesAutomatically reports whether a step needs no approval: it has a timer, or it is a canary's last one at 100 %.
func (r Rollout) passesAutomatically(step int) bool {
	s := r.Steps[step-1]
	last := step == len(r.Steps)
	if r.Style == strategy.StyleBlueGreen {
		return !last && s.PauseSeconds != nil
	}
	return s.PauseSeconds != nil || last && s.Replicas == intstr.FromString("100%")
}

// mark is what the test has declared at a moment: how far the rollout may go, whether it waits at a step, or that
// another client interferes.
type mark struct {
	version uint64
	reach   int
	// pausedAt is the step at which the rollout waits, 0 while it moves.
	pausedAt int
	// foreign is true if another client has changed the workload or its routes.
	foreign bool
	// deletedPods is the number of pods that another client has deleted so far.
	deletedPods int32
	// grace is how long requests may have no endpoint after another client's change, if that is longer than
	// protectWithin.
	grace time.Duration
}

// Breach is one broken promise.
type Breach struct {
	Version       uint64
	Promise, What string
}

func (b Breach) String() string { return fmt.Sprintf("%d: %s: %s", b.Version, b.Promise, b.What) }

// The promises (issue: the observer).
const (
	PromiseAvailable      = "never fewer ready pods than the workload's own maxUnavailable allows"
	PromiseSurge          = "never more pods than surge allows"
	PromiseBatch          = "never more new pods than the steps so far ask for"
	PromisePaused         = "while waiting, exactly the requested number of new pods"
	PromiseOrder          = "pods are moved before traffic"
	PromiseTraffic        = "while waiting, the traffic is split as requested"
	PromiseReachable      = "no traffic to a Service without ready pods"
	PromiseWorkloadExists = "the workload is never deleted"
)

// moment is one point of a replay: the version and mark in force, and what changed.
type moment struct {
	mark
	what string
	// seen is the time of the moment; zero if it is not known.
	seen time.Time
}

// judge replays a rollout and collects the breaches.
type judge struct {
	Rollout
	limits    Limits
	stable    string
	marks     []mark
	evaluator *trafficEvaluator

	broken []Breach
	trace  []string
	// lastTrace is the last traced line by subject.
	lastTrace map[string]string
	// unreachable holds since when requests of a kind have no endpoint.
	unreachable map[string]unreachableSince
	// size is the workload's size at the previous moment; sizedFrom is its size before another client changed it at
	// sizedAt.
	size, sizedFrom int32
	sizedAt         time.Time
	// kills are the times at which the worker was killed.
	kills []time.Time
	// seen is the time at which the change of a version arrived.
	seen map[uint64]time.Time
	// newReady is the number of ready new pods at the previous moment; newBefore is the number before it fell, at fellAt.
	// Pods that stop being ready within maxReadAge fall together.
	newReady, newBefore int32
	fellAt              time.Time
	// sent is the share of each kind of request that went to the new version at the previous moment.
	sent map[string]float64
	// deployment is the workload at the previous moment; reversed is true after another client changed its template in
	// the middle of an update.
	deployment *appsv1.Deployment
	reversed   bool
	// updatedAt is the last time at which more than one of its ReplicaSets had pods.
	updatedAt time.Time
	// floor, ceiling, most and mostExtra follow the size of the workload.
	floor, ceiling, most, mostExtra bound
}

func newJudge(asked Rollout, limits Limits, stable string, marks []mark) *judge {
	return &judge{Rollout: asked, limits: limits, stable: stable, marks: marks, evaluator: newTrafficEvaluator(),
		lastTrace: map[string]string{}, sent: map[string]float64{},
		unreachable: map[string]unreachableSince{}}
}

// bound is a limit that depends on the size. After a change of size it waits until the pods have followed.
type bound struct {
	value int32
	known bool
}

// atLeast returns the limit for a number that must not fall below it: lowered at once, raised once the number has
// reached it.
func (b *bound) atLeast(limit, count int32) int32 {
	if !b.known || limit <= b.value || count >= limit {
		b.value, b.known = limit, true
	}
	return b.value
}

// atMost returns the limit for a number that must not exceed it: raised at once, lowered once the number has fallen to
// it.
func (b *bound) atMost(limit, count int32) int32 {
	if !b.known || limit >= b.value || count <= limit {
		b.value, b.known = limit, true
	}
	return b.value
}

// judge replays what has happened until now. Each mark is judged at its own moment, whether or not something changes
// afterwards.
func (j *judge) judge(first []runtime.Object, changes []change, seen map[uint64]time.Time) {
	j.seen = maps.Clone(seen)
	j.seen[math.MaxUint64] = time.Now()
	moments := slices.Clone(changes)
	for _, m := range j.marks {
		moments = append(moments, change{version: m.version})
	}
	moments = append(moments, change{version: math.MaxUint64})
	replay(first, moments, j.judgeMoment)
}

func (j *judge) breach(at moment, promise, format string, args ...any) {
	j.broken = append(j.broken, Breach{at.version, promise, fmt.Sprintf(format, args...) + ", after " + at.what})
}

// markAt returns the mark in force at a version.
func (j *judge) markAt(version uint64) mark {
	now := mark{reach: j.reach(1)}
	for _, m := range j.marks {
		if m.version <= version {
			now = m
		}
	}
	now.version = version
	return now
}

// judgeMoment judges one moment.
func (j *judge) judgeMoment(version uint64, what string, w world) {
	at := moment{j.markAt(version), what, j.seen[version]}
	obj := w.workload(j.Workload)
	if obj == nil {
		j.breach(at, PromiseWorkloadExists, "%s is deleted", j.Workload)
		return
	}
	size, c, extra := sizeOf(obj), w.count(j.Workload, j.stable), w.count(j.extraWorkload(), "")
	j.traceLine(at, "pods", fmt.Sprintf("asked %d, stable %d (%d ready), new %d (%d ready), extra %d (%d ready)",
		size, c.Stable, c.StableReady, c.New, c.NewReady, extra.All(), extra.Ready()))
	j.traceFields(at, obj)
	j.noteReversal(at, obj, w, c, size)
	sizes := j.sizesFor(at, size)
	dismissed := w.surplusPods(j.Workload)
	// Another client's change of the template makes a third revision. A Deployment's controller counts the pods of
	// ReplicaSets as its cache has them, which may be without its own last growth of one of the others.
	if at.foreign && w.revisionsOf(j.Workload) > 2 {
		dismissed += j.limits.MaxSurge(size)
	}
	j.judgePods(at, sizes, c, dismissed)
	if j.Style == strategy.StyleCanary {
		if most := j.mostExtra.atMost(j.largest(min(at.reach, len(j.Steps)), size), extra.All()); extra.All() > most {
			j.breach(at, PromiseBatch, "%s has %d pods, at most %d are allowed", j.extraWorkload(), extra.All(), most)
		}
		c.New, c.NewReady = c.New+extra.New, c.NewReady+extra.NewReady
	}
	falls := j.newBefore > j.newReady && at.seen.Sub(j.fellAt) <= maxReadAge
	if c.NewReady < j.newReady && !falls {
		j.newBefore, j.fellAt = j.newReady, at.seen
	}
	j.newReady = c.NewReady
	j.judgePaused(at, size, c)
	j.judgeTraffic(at, w, sizes.least, c)
}

// sizes are a workload's size and its bounds. For a moment after another client has changed the size, controllers may
// still use the previous one.
type sizes struct{ asked, least, most int32 }

func (j *judge) sizesFor(at moment, size int32) sizes {
	if size != j.size {
		j.sizedFrom, j.sizedAt, j.size = j.size, at.seen, size
	}
	if at.foreign && j.sizedFrom > 0 && at.seen.Sub(j.sizedAt) < resizeLag {
		return sizes{size, min(size, j.sizedFrom), max(size, j.sizedFrom)}
	}
	return sizes{size, size, size}
}

// judgePaused checks the counts while the rollout waits: the requested new pods and the remaining stable ones, all
// ready.
func (j *judge) judgePaused(at moment, size int32, c Count) {
	if at.pausedAt == 0 {
		return
	}
	want := Count{New: j.target(at.pausedAt, size), Stable: size}
	if j.Style == strategy.StylePartition {
		want.Stable -= want.New
	}
	want.NewReady, want.StableReady = want.New, want.Stable
	if c != want {
		j.breach(at, PromisePaused, "step %d asks for %d new and %d stable pods, there are %d new (%d ready) and %d "+
			"stable (%d ready)",
			at.pausedAt, want.New, want.Stable, c.New, c.NewReady, c.Stable, c.StableReady)
	}
}

func (j *judge) judgePods(at moment, sizes sizes, c Count, dismissed int32) {
	size := sizes.asked
	if floor := j.floor.atLeast(sizes.least-j.limits.MaxUnavailable(size)-j.reversalAllowance(size)-at.deletedPods,
		c.Ready()); c.Ready() < floor {
		j.breach(at, PromiseAvailable, "%d of %d pods are ready, at least %d must be", c.Ready(), size, floor)
	}
	over := j.limits.MaxSurge(size)
	if j.Style == strategy.StyleBlueGreen {
		over = max(over, j.largest(min(at.reach, len(j.Steps)), size))
	}
	all := c.All() - dismissed
	if ceiling := j.ceiling.atMost(sizes.most+over, all); all > ceiling {
		j.breach(at, PromiseSurge, "there are %d pods, at most %d are allowed", all, ceiling)
	}
	// another client's pods, of any version, count with the surge
	if most := j.most.atMost(j.mostNew(at, size), c.New); c.New > most && !at.foreign {
		j.breach(at, PromiseBatch, "%s has %d new pods, at most %d are allowed", j.Workload, c.New, most)
	}
}

// mostNew returns how many new pods the workload itself may have: those of the steps so far, or all once the rollout
// finishes. With the style canary the new version runs in the extra workload until then.
func (j *judge) mostNew(at moment, size int32) int32 {
	switch {
	case at.reach > len(j.Steps):
		return size + j.limits.MaxSurge(size)
	case j.Style == strategy.StyleCanary:
		return 0
	default:
		return j.largest(at.reach, size)
	}
}

// largest returns the largest target of the steps up to upTo.
func (j *judge) largest(upTo int, size int32) int32 {
	most := int32(0)
	for step := 1; step <= upTo; step++ {
		most = max(most, j.target(step, size))
	}
	return most
}

// traceLine keeps one line per change of a subject. The lines are printed when a promise is broken.
func (j *judge) traceLine(at moment, about, line string) {
	if j.lastTrace[about] == line {
		return
	}
	j.lastTrace[about] = line
	j.trace = append(j.trace, fmt.Sprintf("%d %s → %s: %s", at.version, at.what, about, line))
}

// traceFields keeps a line for each change of the fields by which a Deployment's own controller moves pods.
func (j *judge) traceFields(at moment, obj runtime.Object) {
	d, ok := obj.(*appsv1.Deployment)
	if !ok {
		return
	}
	limits := ""
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		limits = fmt.Sprintf(", maxUnavailable %s, maxSurge %s", r.MaxUnavailable, r.MaxSurge)
	}
	var images []string
	for _, c := range d.Spec.Template.Spec.Containers {
		images = append(images, c.Image)
	}
	j.traceLine(at, j.Workload.Name, fmt.Sprintf("paused %t, minReadySeconds %d%s, images %v", d.Spec.Paused,
		d.Spec.MinReadySeconds, limits, images))
}
