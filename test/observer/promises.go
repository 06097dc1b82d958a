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

// Rollout says what an observed rollout was asked to do.
type Rollout struct {
	Workload Name
	Style    strategy.Style
	Steps    []strategy.Step
	Routings []strategy.Routing
}

// extra is the name of the extra workload that the style canary makes.
func (r Rollout) extra() Name { return Name{r.Workload.Kind, r.Workload.Name + strategy.CanarySuffix} }

// target is how many new pods a step asks for at a size: the share rounded up, computed here once more, since the observer is to find the product's mistakes.
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

// reach is the furthest step that a rollout comes to by itself once it is let go on to a step; beyond the last: it finishes.
func (r Rollout) reach(step int) int {
	for step <= len(r.Steps) && r.passes(step) {
		step++
	}
	return step
}

// passes says whether a step needs nobody: it has a timer, or it is a canary's last at 100 %.
func (r Rollout) passes(step int) bool {
	s := r.Steps[step-1]
	last := step == len(r.Steps)
	if r.Style == strategy.StyleBlueGreen {
		return !last && s.PauseSeconds != nil
	}
	return s.PauseSeconds != nil || last && s.Replicas == intstr.FromString("100%")
}

// mark is what the test knew at a moment: that the rollout may go as far as a step, that it rests there, or that it is on its way to an end.
type mark struct {
	version uint64
	reach   int
	// resting is the step at which the rollout rests, 0 while it moves.
	resting int
	// foreign says that somebody else has changed the workload or what routes to it.
	foreign bool
	// taken is how many pods somebody else has deleted so far.
	taken int32
	// grace is how long requests may meet nobody after somebody else's change, where that is longer than shelterWithin.
	grace time.Duration
}

// Broken is one breach of a promise.
type Broken struct {
	Version       uint64
	Promise, What string
}

func (b Broken) String() string { return fmt.Sprintf("%d: %s: %s", b.Version, b.Promise, b.What) }

// The promises (issue: the observer).
const (
	PromiseAvailable = "never fewer ready pods than the workload's own maxUnavailable allows"
	PromiseSurge     = "never more pods than surge allows"
	PromiseBatch     = "never more new pods than the steps so far ask for"
	PromiseRest      = "at rest exactly the asked number of new pods"
	PromiseOrder     = "pods are moved before traffic"
	PromiseTraffic   = "at rest the traffic is split as asked"
	PromiseNowhere   = "no traffic to a Service that serves nobody"
	PromiseWhole     = "the workload stays where it is"
)

// moment is where a replay stands: a version, what changed, and what the test knew.
type moment struct {
	mark
	what string
	// seen is when it was; the zero time where that is not known.
	seen time.Time
}

// judge replays a rollout and collects the breaches.
type judge struct {
	Rollout
	limits Limits
	stable string
	marks  []mark
	scene  *scene

	broken []Broken
	drawn  []string
	// last is what was drawn last about a subject.
	last map[string]string
	// nowhere is since when requests of a kind meet nobody.
	nowhere map[string]lostSince
	// size is the workload's at the moment before, sizedFrom what it was before somebody else changed it at sizedAt.
	size, sizedFrom int32
	sizedAt         time.Time
	// kills are when the worker was killed.
	kills []time.Time
	// seen is when the change of a version arrived.
	seen map[uint64]time.Time
	// newReady is how many new pods were ready at the moment before; newBefore how many before some of them went, at fellAt.
	newReady, newBefore int32
	fellAt              time.Time
	// sent is the share of each kind of request that went to the new version at the moment before.
	sent map[string]float64
	// deployment is the workload as it was at the moment before, turned that somebody else has turned it round in the middle of an update.
	deployment *appsv1.Deployment
	turned     bool
	// updatedAt is when more than one of its ReplicaSets last had pods.
	updatedAt time.Time
	// floor, ceiling, most and mostExtra move with the size of the workload.
	floor, ceiling, most, mostExtra bound
}

func newJudge(asked Rollout, limits Limits, stable string, marks []mark) *judge {
	return &judge{Rollout: asked, limits: limits, stable: stable, marks: marks, scene: newScene(), last: map[string]string{}, sent: map[string]float64{},
		nowhere: map[string]lostSince{}}
}

// bound is a limit that depends on a size: once somebody scales the workload, the pods need a moment to follow.
type bound struct {
	value int32
	known bool
}

// atLeast is the limit for a number that must not fall below: lowered at once, raised when the number has come up to it.
func (b *bound) atLeast(limit, count int32) int32 {
	if !b.known || limit <= b.value || count >= limit {
		b.value, b.known = limit, true
	}
	return b.value
}

// atMost is the limit for a number that must not rise above: raised at once, lowered when the number has come down to it.
func (b *bound) atMost(limit, count int32) int32 {
	if !b.known || limit >= b.value || count <= limit {
		b.value, b.known = limit, true
	}
	return b.value
}

// judge replays what happened until now, and when. What the test knew of a moment is looked at in that moment, whether or not something changes afterwards.
func (j *judge) judge(first []runtime.Object, changes []change, seen map[uint64]time.Time) {
	j.seen = maps.Clone(seen)
	j.seen[math.MaxUint64] = time.Now()
	moments := slices.Clone(changes)
	for _, m := range j.marks {
		moments = append(moments, change{version: m.version})
	}
	moments = append(moments, change{version: math.MaxUint64})
	replay(first, moments, j.show)
}

func (j *judge) breach(at moment, promise, format string, args ...any) {
	j.broken = append(j.broken, Broken{at.version, promise, fmt.Sprintf(format, args...) + ", after " + at.what})
}

// markAt is the mark that holds at a version.
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

// show judges one moment.
func (j *judge) show(version uint64, what string, w world) {
	at := moment{j.markAt(version), what, j.seen[version]}
	obj := w.workload(j.Workload)
	if obj == nil {
		j.breach(at, PromiseWhole, "%s is gone", j.Workload)
		return
	}
	size, c, extra := sizeOf(obj), w.count(j.Workload, j.stable), w.count(j.extra(), "")
	j.drawLine(at, "pods", fmt.Sprintf("asked %d, stable %d (%d ready), new %d (%d ready), extra %d (%d ready)",
		size, c.Stable, c.StableReady, c.New, c.NewReady, extra.All(), extra.Ready()))
	j.drawFields(at, obj)
	j.noteTurn(at, obj, w, c, size)
	sizes := j.sizesFor(at, size)
	j.judgePods(at, sizes, c, w.dismissed(j.Workload))
	if j.Style == strategy.StyleCanary {
		if most := j.mostExtra.atMost(j.largest(min(at.reach, len(j.Steps)), size), extra.All()); extra.All() > most {
			j.breach(at, PromiseBatch, "%s has %d pods, %d are asked for at most", j.extra(), extra.All(), most)
		}
		c.New, c.NewReady = c.New+extra.New, c.NewReady+extra.NewReady
	}
	if c.NewReady < j.newReady {
		j.newBefore, j.fellAt = j.newReady, at.seen
	}
	j.newReady = c.NewReady
	j.judgeRest(at, size, c)
	j.judgeTraffic(at, w, sizes.least, c)
}

// sizes are a workload's size and those that others may go by: for a moment after somebody else has changed it that may be the one before.
type sizes struct{ asked, least, most int32 }

func (j *judge) sizesFor(at moment, size int32) sizes {
	if size != j.size {
		j.sizedFrom, j.sizedAt, j.size = j.size, at.seen, size
	}
	if at.foreign && j.sizedFrom > 0 && at.seen.Sub(j.sizedAt) < followsWithin {
		return sizes{size, min(size, j.sizedFrom), max(size, j.sizedFrom)}
	}
	return sizes{size, size, size}
}

// judgeRest counts while the test knows the rollout to rest: the new pods that were asked for, all ready, and the old ones that belong beside them.
func (j *judge) judgeRest(at moment, size int32, c Count) {
	if at.resting == 0 {
		return
	}
	want := Count{New: j.target(at.resting, size), Stable: size}
	if j.Style == strategy.StylePartition {
		want.Stable -= want.New
	}
	want.NewReady, want.StableReady = want.New, want.Stable
	if c != want {
		j.breach(at, PromiseRest, "step %d asks for %d new pods beside %d, there are %d (%d ready) beside %d (%d ready)",
			at.resting, want.New, want.Stable, c.New, c.NewReady, c.Stable, c.StableReady)
	}
}

func (j *judge) judgePods(at moment, sizes sizes, c Count, dismissed int32) {
	size := sizes.asked
	if floor := j.floor.atLeast(sizes.least-j.limits.Out(size)-j.excused(size)-at.taken, c.Ready()); c.Ready() < floor {
		j.breach(at, PromiseAvailable, "%d of %d pods are ready, at least %d must be", c.Ready(), size, floor)
	}
	over := j.limits.Over(size)
	if j.Style == strategy.StyleBlueGreen {
		over = max(over, j.largest(min(at.reach, len(j.Steps)), size))
	}
	all := c.All() - dismissed
	if ceiling := j.ceiling.atMost(sizes.most+over, all); all > ceiling {
		j.breach(at, PromiseSurge, "there are %d pods, at most %d may be", all, ceiling)
	}
	if most := j.most.atMost(j.mostNew(at, size), c.New); c.New > most && !at.foreign { // theirs, of whatever version, count with the surge
		j.breach(at, PromiseBatch, "%s has %d new pods, %d are asked for at most", j.Workload, c.New, most)
	}
}

// mostNew is how many new pods the workload itself may have: what the steps so far ask for, or all once the rollout finishes.
// With the style canary the new version belongs into the extra workload until then.
func (j *judge) mostNew(at moment, size int32) int32 {
	switch {
	case at.reach > len(j.Steps):
		return size + j.limits.Over(size)
	case j.Style == strategy.StyleCanary:
		return 0
	default:
		return j.largest(at.reach, size)
	}
}

// largest is the largest target of the steps up to one of them.
func (j *judge) largest(upTo int, size int32) int32 {
	most := int32(0)
	for step := 1; step <= upTo; step++ {
		most = max(most, j.target(step, size))
	}
	return most
}

// drawLine keeps one line for each moment at which something about a subject changed, to be printed when a promise is broken.
func (j *judge) drawLine(at moment, about, line string) {
	if j.last[about] == line {
		return
	}
	j.last[about] = line
	j.drawn = append(j.drawn, fmt.Sprintf("%d %s → %s: %s", at.version, at.what, about, line))
}

// drawFields keeps a line for each change of the fields by which a Deployment's own controller moves pods.
func (j *judge) drawFields(at moment, obj runtime.Object) {
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
	j.drawLine(at, j.Workload.Name, fmt.Sprintf("paused %t, minReadySeconds %d%s, images %v", d.Spec.Paused, d.Spec.MinReadySeconds, limits, images))
}
