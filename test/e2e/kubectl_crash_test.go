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

// kubectlScenario is the history of a Rollout object from its creation to its deletion, during which the engine's only
// process is killed.
type kubectlScenario struct {
	title string
	cell  cell
	// run performs the actions of the users and waits until the release has ended.
	run func(d *declared)
	// history lists the recorded commands of the newest release, releases counts the recorded releases.
	history  []string
	releases int
	// end is the expected end state of the workload.
	end func(d *declared) observer.End
	// steps replace the default two steps.
	steps []strategy.Step
}

func atNewImage(d *declared) observer.End {
	return observer.End{Images: map[string]string{"app": d.rollout.NewestImage()}}
}

func atNewImageReleased(d *declared) observer.End {
	end := atNewImage(d)
	end.Released = true
	return end
}

// kubectlScenarios cover every write of a Rollout object and of its releases, and every command.
var kubectlScenarios = []kubectlScenario{
	{"a release to the end", deploymentCell(strategy.StylePartition, harness.NoProvider), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.approve(1)
		d.waitEnd(true)
	}, []string{"start by alice", "approve by approver"}, 1, atNewImage, nil},
	{"a change that is reverted before its release begins", deploymentCell(strategy.StyleCanary, harness.Nginx),
		func(d *declared) {
			d.setImage("alice", d.rollout.NewestImage())
			d.setImage("alice", harness.StableImage(d.rollout.Name))
			require.Eventually(d.t, func() bool {
				return d.object().GetAnnotations()[gate.AnnotationHeld] == ""
			}, harness.Patience, harness.Tick)
			d.setImage("alice", d.rollout.NewestImage())
			d.approve(1)
			d.waitEnd(true)
		}, []string{"start by alice", "approve by approver"}, 1, atNewImage, nil},
	{"a rollback by the workload", deploymentCell(strategy.StylePartition, harness.Nginx), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.revertImage("bob", harness.StableImage(d.rollout.Name))
	}, []string{"start by alice", "rollback by bob"}, 1, func(*declared) observer.End { return observer.End{} }, nil},
	{"a pause, and a jump", deploymentCell(strategy.StylePartition, harness.NoProvider), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.patchSpec("bob", map[string]any{"strategy": map[string]any{"paused": true}})
		d.waitReason(v1beta1.ReasonPaused)
		d.patchSpec("carol", map[string]any{"strategy": map[string]any{"paused": false}})
		d.waitReason(v1beta1.ReasonInRolling)
		d.watch.AllowStep(d.t, 3)
		d.patchStatus("dana", map[string]any{"nextStepIndex": 3})
		d.waitEnd(true)
	}, []string{"start by alice", "pause by bob", "resume by carol", "jump by dana"}, 1, atNewImage,
		[]strategy.Step{harness.Step("25%", -1), harness.Step("50%", -1), harness.Step("100%", -1)}},
	{"a third version", deploymentCell(strategy.StylePartition, harness.NoProvider), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.declareThirdVersion("carol")
		d.approve(1)
		d.waitEnd(true)
	}, []string{"start by carol", "approve by approver"}, 2, atNewImage, nil},
	{"disabled during a release", deploymentCell(strategy.StylePartition, harness.Nginx), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.watch.AllowFinish(d.t)
		d.patchSpec("bob", map[string]any{"disabled": true})
		d.waitObject("Disabled", func(r *v1beta1.Rollout) bool { // first as the release's end, then as an idle Rollout
			return r.Status.Phase == v1beta1.PhaseDisabled && strings.HasPrefix(r.Status.Message, "disabled: ")
		})
	}, []string{"start by alice", "detach by bob"}, 1, atNewImageReleased, nil},
	{"deleted during a release", deploymentCell(strategy.StyleCanary, harness.NoProvider), func(d *declared) {
		d.setImage("alice", d.rollout.NewestImage())
		d.waitStep(1)
		d.watch.AllowFinish(d.t)
	}, []string{"start by alice", "detach by unknown"}, 1, atNewImageReleased, nil},
}

// undoScenario is a release by kubectl that is undone over HTTP; the undo is retried until it is accepted. beforeUndo
// is called in between.
func undoScenario(beforeUndo func()) kubectlScenario {
	return kubectlScenario{"a release, and its undo", deploymentCell(strategy.StylePartition, harness.NoProvider),
		func(d *declared) {
			d.setImage("alice", d.rollout.NewestImage())
			d.approve(1)
			d.waitEnd(true)
			d.requirePromoted()
			d.startObserver()
			d.rollout.Image = harness.StableImage(d.rollout.Name)
			beforeUndo()
			path := "/api/v1/rollouts/" + d.Apps + "/" + d.rollout.Name + "/undo"
			require.Eventually(d.t, func() bool {
				a, err := d.TryCall(http.MethodPost, path,
					fmt.Sprintf(`{"actor":"ann","reason":"errors","key":%q}`, d.Apps))
				return err == nil && a.Status == http.StatusAccepted
			}, harness.Patience, harness.Tick, "the undo never begins")
			d.approve(1)
			d.waitEnd(true)
		}, []string{"undo by ann (http)", "approve by approver"}, 2, func(d *declared) observer.End {
			return observer.End{Images: map[string]string{"app": harness.StableImage(d.rollout.Name)}}
		}, nil}
}

// undoKills returns a kill at the first time that an undo passes each failpoint.
func undoKills(t *testing.T) (kills []kubectlKill) {
	t.Helper()
	c := newSupervisedGuarded(t)
	before := map[string]int{}
	c.runScenario(t, undoScenario(func() {
		for _, point := range c.passedFailpoints() {
			before[point]++
		}
	}))
	hits := map[string]int{}
	for _, point := range c.passedFailpoints() {
		if hits[point] == before[point] {
			kills = append(kills, kubectlKill{undoScenario(func() {}), point, before[point]})
		}
		hits[point]++
	}
	return kills
}

// The engine dies at every failpoint that an undo passes.
func TestSoakKubectlUndo_IsRecordedOnce_WhenEngineKilled(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	runKubectlKills(t, undoKills(t))
}

// kubectlKill is a kill at a failpoint of a scenario, after that many earlier hits of it.
type kubectlKill struct {
	scenario kubectlScenario
	point    string
	after    int
}

// supervisedGuarded is an engine of one process behind a guard, which is killed and restarted.
type supervisedGuarded struct {
	*supervised
	guard *harness.Guard
}

func newSupervisedGuarded(t *testing.T) *supervisedGuarded {
	t.Helper()
	c := newUnstartedSupervised(t)
	o := harness.Options{Binary: "slipway-failpoints", Env: c.env()}
	var g *harness.Guard
	c.Engine, g = harness.StartGuardedWith(t, o)
	c.process, c.restart = c.Processes[0], func() *harness.Process { return c.Dev(o) }
	c.superviseUntilTheEnd()
	return &supervisedGuarded{c, g}
}

// runScenario takes a Rollout object through a scenario in which the engine is killed at each of the failpoints, and
// requires that everything is recorded once and restored.
func (c *supervisedGuarded) runScenario(t *testing.T, life kubectlScenario, kills ...kubectlKill) {
	t.Helper()
	died := c.deathCount()
	allDead := c.armInTurn(t, kills)
	d := declare(t, c.Engine, c.guard, life.cell, func(object map[string]any, r *harness.Rollout) {
		twoSteps(life.cell)(object, r)
		if life.steps != nil {
			r.Strategy.Steps = life.steps
		}
	})
	life.run(d)
	require.NoError(t, d.rolloutClient("erin").Delete(context.Background(), d.rollout.Name, metav1.DeleteOptions{}))
	d.waitDeleted() // no finalizer remains
	allDead()
	require.Equal(t, died+len(kills), c.deathCount(), "the engine dies at the chosen failpoints and nowhere else")
	c.WaitReady()
	d.requireRestored(life.end(d))
	require.Empty(t, d.claim(), "the claim is released")
	for _, mark := range []string{gate.AnnotationHeld, gate.AnnotationWhy, gate.AnnotationBy} {
		require.NotContains(t, d.object().GetAnnotations(), mark, "the gate's marks are removed")
	}
	require.Equal(t, life.releases, d.releaseCount(), "each release is recorded once: %s", d.allHistory())
	require.NotContains(t, d.allHistory(), "refused", "no command is refused")
	want := make([]string, len(life.history))
	for i, entry := range life.history {
		if want[i] = entry + ": accepted"; !strings.Contains(entry, "(") {
			want[i] = entry + " (kubectl): accepted"
		}
	}
	var history []string
	require.Eventually(t, func() bool {
		history = d.history()
		return slices.Equal(want, history)
	}, harness.Patience/4, harness.Tick, "%s", lazily(func() string {
		// the record is complete only after a worker has answered
		return fmt.Sprintf("each command is recorded once, with its actor: %v instead of %v: %s", history, want,
			d.allHistory())
	}))
}

// armInTurn arms one kill after another. The returned function waits for the last.
func (c *supervisedGuarded) armInTurn(t *testing.T, kills []kubectlKill) (allDead func()) {
	t.Helper()
	before, done := c.deathCount(), make(chan struct{})
	arm := func(k kubectlKill) error {
		return os.WriteFile(c.armFile, fmt.Appendf(nil, `{"name":%q,"after":%d}`, k.point, k.after), 0o600)
	}
	if len(kills) > 0 {
		require.NoError(t, arm(kills[0]))
	}
	ctx := t.Context()
	go func() {
		defer close(done)
		for n := 0; n < len(kills) && ctx.Err() == nil; {
			if c.deathCount() > before+n {
				if n++; n < len(kills) && arm(kills[n]) != nil {
					return
				}
			}
			time.Sleep(harness.Tick)
		}
	}()
	return func() {
		t.Helper()
		require.Eventually(t, func() bool {
			return c.deathCount() >= before+len(kills)
		}, harness.Patience/4, harness.Tick, "the engine never reached a failpoint of %v", failpointsOf(kills))
		<-done
	}
}

func failpointsOf(kills []kubectlKill) (all []string) {
	for _, k := range kills {
		all = append(all, k.point)
	}
	return all
}

// The engine dies between the record of a release and its workflow, and again after an approval was accepted but not
// answered: one release is recorded, with one approval.
func TestLongKubectlRelease_IsRecordedOnce_WhenEngineKilledTwice(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	life := kubectlScenarios[0]
	newSupervisedGuarded(t).runScenario(t, life, kubectlKill{life, "start.record.after", 0},
		kubectlKill{life, "command.approve.accepted", 0})
}

// This test takes every eleventh kill of TestSoakKubectlRelease_IsRecordedOnce_WhenEngineKilledAtEveryFailpoint.
func TestLongKubectlRelease_IsRecordedOnce_WhenEngineKilledAtFailpoints(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	runKubectlKills(t, oneInEleven(kubectlKills(t)))
}

func oneInEleven(kills []kubectlKill) (few []kubectlKill) {
	for n := 0; n < len(kills); n += fewLanes {
		few = append(few, kills[n])
	}
	return few
}

// The engine dies once at every failpoint that a scenario passes.
func TestSoakKubectlRelease_IsRecordedOnce_WhenEngineKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	runKubectlKills(t, kubectlKills(t))
}

func runKubectlKills(t *testing.T, kills []kubectlKill) {
	t.Helper()
	harness.Covered(t, len(kills), "kills of an engine at failpoints of releases by kubectl")
	for lane := range kubectlLanes {
		t.Run(fmt.Sprintf("Lane%d", lane+1), func(t *testing.T) {
			t.Parallel()
			c := newSupervisedGuarded(t)
			for n := lane; n < len(kills); n += kubectlLanes {
				k := kills[n]
				t.Run(fmt.Sprintf("%s, %s after %d", k.scenario.title, k.point, k.after), func(t *testing.T) {
					c.runScenario(t, k.scenario, k)
				})
			}
		})
	}
}

// kubectlLanes is the number of engines that share the kills.
const kubectlLanes = 4

// maxHits bounds the hits of one failpoint in one scenario at which the engine is killed, in one run each: later hits
// write the same way.
const maxHits = 3

// kubectlKills returns the kills at the failpoints that the scenarios pass. A failpoint that several scenarios pass is
// used in the first only, except for the writes of each release.
func kubectlKills(t *testing.T) (kills []kubectlKill) {
	t.Helper()
	c := newSupervisedGuarded(t)
	known, before := map[string]bool{}, 0
	for _, life := range kubectlScenarios {
		t.Run("Without a kill: "+life.title, func(t *testing.T) { c.runScenario(t, life) })
		hit := c.passedFailpoints()
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
			for after := range min((n+1)/2, maxHits) { // the number of hits varies between runs
				kills = append(kills, kubectlKill{life, point, after})
			}
		}
	}
	slices.SortFunc(kills, func(a, b kubectlKill) int {
		return strings.Compare(a.scenario.title+a.point, b.scenario.title+b.point)
	})
	return kills
}
