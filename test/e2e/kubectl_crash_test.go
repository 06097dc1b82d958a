package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// kubectlLife is what becomes of a Rollout object from its creation to its deletion while the engine's only process dies.
type kubectlLife struct {
	title string
	cell  cell
	// lives does what people do, and waits until the release is over.
	lives func(d *declared)
	// history is what the newest release has on record then, and releases how many there are on record.
	history  []string
	releases int
	// end is what has become of the workload.
	end func(d *declared) observer.End
	// steps are its steps, if they are not two.
	steps []strategy.Step
}

func atNewImage(d *declared) observer.End {
	return observer.End{Images: map[string]string{"app": d.rollout.NewestImage()}}
}

func letGo(d *declared) observer.End {
	end := atNewImage(d)
	end.LetGo = true
	return end
}

// kubectlLives have every write of a Rollout object and of its releases, and every command.
var kubectlLives = []kubectlLife{
	{"a release to the end", deploymentBy(strategy.StylePartition, harness.NoProvider), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.approve(1)
		d.ends(true)
	}, []string{"start by alice", "approve by approver"}, 1, atNewImage, nil},
	{"a change that is taken back before its release begins", deploymentBy(strategy.StyleCanary, harness.Nginx), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.setImage("alice", harness.StableImage(d.rollout.Name))
		require.Eventually(d.t, func() bool { return d.object().GetAnnotations()[gate.AnnotationHeld] == "" }, harness.Patience, harness.Tick)
		d.setImage("alice", d.rollout.NewestImage())
		d.approve(1)
		d.ends(true)
	}, []string{"start by alice", "approve by approver"}, 1, atNewImage, nil},
	{"a rollback by the workload", deploymentBy(strategy.StylePartition, harness.Nginx), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.takeBack("bob", harness.StableImage(d.rollout.Name))
	}, []string{"start by alice", "rollback by bob"}, 1, func(*declared) observer.End { return observer.End{} }, nil},
	{"a pause, and a jump", deploymentBy(strategy.StylePartition, harness.NoProvider), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.patchSpec("bob", map[string]any{"strategy": map[string]any{"paused": true}})
		d.waitReason(v1beta1.ReasonPaused)
		d.patchSpec("carol", map[string]any{"strategy": map[string]any{"paused": false}})
		d.waitReason(v1beta1.ReasonInRolling)
		d.watch.GoTo(d.t, 3)
		d.patchStatus("dana", map[string]any{"nextStepIndex": 3})
		d.ends(true)
	}, []string{"start by alice", "pause by bob", "resume by carol", "jump by dana"}, 1, atNewImage, []strategy.Step{harness.Step("25%", -1), harness.Step("50%", -1), harness.Step("100%", -1)}},
	{"a third version", deploymentBy(strategy.StylePartition, harness.NoProvider), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.declareThird("carol")
		d.approve(1)
		d.ends(true)
	}, []string{"start by carol", "approve by approver"}, 2, atNewImage, nil},
	{"disabled in mid-release", deploymentBy(strategy.StylePartition, harness.Nginx), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.watch.Finishing(d.t)
		d.patchSpec("bob", map[string]any{"disabled": true})
		d.waitObject("Disabled", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseDisabled })
	}, []string{"start by alice", "detach by bob"}, 1, letGo, nil},
	{"deleted in mid-release", deploymentBy(strategy.StyleCanary, harness.NoProvider), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.watch.Finishing(d.t)
	}, []string{"start by alice", "detach by unknown"}, 1, letGo, nil},
}

// undoLife is a release by kubectl, which is undone over HTTP as often as it takes. beforeUndo is called in between.
func undoLife(beforeUndo func()) kubectlLife {
	return kubectlLife{"a release, and its undo", deploymentBy(strategy.StylePartition, harness.NoProvider), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.approve(1)
		d.ends(true)
		d.endsNew()
		d.follow()
		d.rollout.Image = harness.StableImage(d.rollout.Name)
		beforeUndo()
		path := "/api/v1/rollouts/" + d.Apps + "/" + d.rollout.Name + "/undo"
		require.Eventually(d.t, func() bool {
			a, err := d.TryCall(http.MethodPost, path, fmt.Sprintf(`{"actor":"ann","reason":"errors","key":%q}`, d.Apps))
			return err == nil && a.Status == http.StatusAccepted
		}, harness.Patience, harness.Tick, "the undo never begins")
		d.approve(1)
		d.ends(true)
	}, []string{"undo by ann (http)", "approve by approver"}, 2, func(d *declared) observer.End {
		return observer.End{Images: map[string]string{"app": harness.StableImage(d.rollout.Name)}}
	}, nil}
}

// undoDeaths are the deaths at the first time that an undo comes by each point.
func undoDeaths(t *testing.T) (deaths []kubectlDeath) {
	t.Helper()
	c := newMortalGuarded(t)
	before := map[string]int{}
	c.live(t, undoLife(func() {
		for _, point := range c.points() {
			before[point]++
		}
	}))
	hits := map[string]int{}
	for _, point := range c.points() {
		if hits[point] == before[point] {
			deaths = append(deaths, kubectlDeath{undoLife(func() {}), point, before[point]})
		}
		hits[point]++
	}
	return deaths
}

// It dies at every failpoint that an undo comes by.
func TestSoakKubectlEngineKilledInAnUndo(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	dieByKubectl(t, undoDeaths(t))
}

// kubectlDeath is a death at a point of a life: at the first hit, or after some.
type kubectlDeath struct {
	life  kubectlLife
	point string
	after int
}

// mortalGuarded is an engine of one process behind a guard, which dies and comes back.
type mortalGuarded struct {
	*supervised
	guard *harness.Guard
}

func newMortalGuarded(t *testing.T) *mortalGuarded {
	t.Helper()
	c := aboutToDie(t)
	o := harness.Options{Binary: "slipway-failpoints", Env: c.env()}
	var g *harness.Guard
	c.Engine, g = harness.StartGuardedAs(t, o)
	c.process, c.again = c.Processes[0], func() *harness.Process { return c.Dev(o) }
	c.superviseUntilTheEnd()
	return &mortalGuarded{c, g}
}

// live takes a Rollout object through a life in which the engine dies so often, and wants everything to be on record once and given back.
func (c *mortalGuarded) live(t *testing.T, life kubectlLife, deaths ...kubectlDeath) {
	t.Helper()
	died := c.dead()
	allDead := c.dieInTurn(t, deaths)
	d := declare(t, c.Engine, c.guard, life.cell, func(object map[string]any, r *harness.Rollout) {
		twoSteps(life.cell)(object, r)
		if life.steps != nil {
			r.Strategy.Steps = life.steps
		}
	})
	life.lives(d)
	require.NoError(t, d.objects("erin").Delete(context.Background(), d.rollout.Name, metav1.DeleteOptions{}))
	d.gone() // no finalizer is left
	allDead()
	require.Equal(t, died+len(deaths), c.dead(), "it dies where it is to, and nowhere else")
	c.WaitReady()
	d.requireHome(life.end(d))
	require.Empty(t, d.claim(), "nobody holds the workload")
	for _, mark := range []string{gate.AnnotationHeld, gate.AnnotationWhy, gate.AnnotationBy} {
		require.NotContains(t, d.object().GetAnnotations(), mark, "the gate is gone")
	}
	require.Equal(t, life.releases, d.releases(), "each release is on record once: %s", d.past())
	require.NotContains(t, d.past(), "refused", "what was asked could be done")
	want := make([]string, len(life.history))
	for i, entry := range life.history {
		if want[i] = entry + ": accepted"; !strings.Contains(entry, "(") {
			want[i] = entry + " (kubectl): accepted"
		}
	}
	var history []string
	require.Eventually(t, func() bool { history = d.history(); return slices.Equal(want, history) }, harness.Patience/4, harness.Tick, "%s", lazily(func() string {
		return fmt.Sprintf("each command is on record once, with who gave it: %v instead of %v: %s", history, want, d.past()) // a worker has to answer first
	}))
}

// dieInTurn arms one death after another; the answer waits for the last.
func (c *mortalGuarded) dieInTurn(t *testing.T, deaths []kubectlDeath) (allDead func()) {
	t.Helper()
	before, done := c.dead(), make(chan struct{})
	arm := func(k kubectlDeath) error {
		return os.WriteFile(c.arm, fmt.Appendf(nil, `{"name":%q,"after":%d}`, k.point, k.after), 0o600)
	}
	if len(deaths) > 0 {
		require.NoError(t, arm(deaths[0]))
	}
	ctx := t.Context()
	go func() {
		defer close(done)
		for n := 0; n < len(deaths) && ctx.Err() == nil; {
			if c.dead() > before+n {
				if n++; n < len(deaths) && arm(deaths[n]) != nil {
					return
				}
			}
			time.Sleep(harness.Tick)
		}
	}()
	return func() {
		t.Helper()
		require.Eventually(t, func() bool { return c.dead() >= before+len(deaths) }, harness.Patience/4, harness.Tick, "it never came by a failpoint of %v", points(deaths))
		<-done
	}
}

func points(deaths []kubectlDeath) (all []string) {
	for _, k := range deaths {
		all = append(all, k.point)
	}
	return all
}

// The engine dies between the record of a release and its workflow, and again when an approval was accepted and is not answered yet: one release
// is on record, with one approval.
func TestLongKubectlEngineKilledTwice(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	life := kubectlLives[0]
	newMortalGuarded(t).live(t, life, kubectlDeath{life, "start.record.after", 0}, kubectlDeath{life, "command.approve.accepted", 0})
}

// One death in eleven of those that a life without a death comes by.
func TestLongKubectlEngineKilledAtFailpoints(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	dieByKubectl(t, oneInEleven(kubectlDeaths(t)))
}

func oneInEleven(deaths []kubectlDeath) (few []kubectlDeath) {
	for n := 0; n < len(deaths); n += fewLanes {
		few = append(few, deaths[n])
	}
	return few
}

// The engine dies at every failpoint that a life without a death comes by, each time once.
func TestSoakKubectlEngineKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	dieByKubectl(t, kubectlDeaths(t))
}

func dieByKubectl(t *testing.T, deaths []kubectlDeath) {
	t.Helper()
	harness.Covered(t, len(deaths), "kills of an engine at failpoints of releases by kubectl")
	for lane := range kubectlLanes {
		t.Run(fmt.Sprintf("Lane%d", lane+1), func(t *testing.T) {
			t.Parallel()
			c := newMortalGuarded(t)
			for n := lane; n < len(deaths); n += kubectlLanes {
				k := deaths[n]
				t.Run(fmt.Sprintf("%s, %s after %d", k.life.title, k.point, k.after), func(t *testing.T) { c.live(t, k.life, k) })
			}
		})
	}
}

// kubectlLanes is how many engines share the deaths.
const kubectlLanes = 4

// mostHits is at how many hits of one point in one life the engine dies, each time anew: what is written later is written the same way.
const mostHits = 3

// kubectlDeaths are the deaths at the points that the lives come by: those that several come by are the first one's, but for what is written of
// each release.
func kubectlDeaths(t *testing.T) (deaths []kubectlDeath) {
	t.Helper()
	c := newMortalGuarded(t)
	known, before := map[string]bool{}, 0
	for _, life := range kubectlLives {
		t.Run("Without a death: "+life.title, func(t *testing.T) { c.live(t, life) })
		hit := c.points()
		hits := map[string]int{}
		for _, point := range hit[before:] {
			hits[point]++
		}
		before = len(hit)
		for point, n := range hits {
			if known[point] {
				continue
			}
			known[point] = !strings.HasPrefix(point, "rollout.publish.")
			for after := range min((n+1)/2, mostHits) { // the last hits of many are not the same in each run
				deaths = append(deaths, kubectlDeath{life, point, after})
			}
		}
	}
	slices.SortFunc(deaths, func(a, b kubectlDeath) int { return strings.Compare(a.life.title+a.point, b.life.title+b.point) })
	return deaths
}
