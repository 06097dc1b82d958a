package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// crashCells are the rollouts during which the worker is killed: a blue-green with traffic, a partition and a canary
// with traffic, and a partition without traffic, which claims the workload and moves its first pods in one write.
var crashCells = []cell{
	deploymentCell(strategy.StyleBlueGreen, harness.Nginx),
	deploymentCell(strategy.StylePartition, harness.Gateway),
	deploymentCell(strategy.StyleCanary, harness.Nginx),
	deploymentCell(strategy.StylePartition, harness.NoProvider),
}

// twoSteps changes a rollout to two steps with one approval and no grace period, to keep its many repetitions short.
func twoSteps(c cell) func(map[string]any, *harness.Rollout) {
	return func(object map[string]any, r *harness.Rollout) {
		if c.style == strategy.StylePartition {
			slowPods(object, time.Second) // slow pods make the engine hold each batch until its pods are ready
		}
		r.Strategy.Steps = []strategy.Step{harness.Step("50%", 50), harness.Step("100%", -1)}
		if c.style != strategy.StylePartition {
			r.Strategy.Steps[1] = harness.Step("100%", 100)
		}
		for i := range r.Strategy.Routings {
			r.Strategy.Routings[i].GraceSeconds = 0
		}
	}
}

// crashSteps is twoSteps, but without an approval if the rollout has no traffic.
func crashSteps(c cell) func(map[string]any, *harness.Rollout) {
	return func(object map[string]any, r *harness.Rollout) {
		twoSteps(c)(object, r)
		if c.provider == harness.NoProvider {
			r.Strategy.Steps = []strategy.Step{harness.TimedStep(harness.Step("50%", -1), 0), harness.Step("100%", -1)}
		}
	}
}

// runRollout runs a rollout to the new version despite kills of the worker, and returns the number of changes of the
// workload's spec.
func (c *supervised) runRollout(t *testing.T, place cell, during func()) int64 {
	t.Helper()
	r := prepare(t, c.Engine, place, crashSteps(place))
	before := r.object().GetGeneration()
	r.StartRollout(r.rollout)
	if during != nil {
		during()
	}
	r.approveAll(1)
	r.requirePromoted()
	return r.object().GetGeneration() - before
}

// The worker dies before or after an external write of a rollout and restarts: the rollout ends correctly, checked by
// the observer, with as many changes of the workload as without a crash. This test takes every eleventh kill of a
// blue-green.
func TestRolloutCompletes_WhenWorkerKilledAtFailpoints(t *testing.T) {
	t.Parallel()
	killRolloutWorkerInLane(t, crashCells[0], 0, fewLanes)
}

// This test takes every eleventh kill of a partition with traffic, and every third of a rollout without traffic, which
// has fewer writes.
func TestLongRolloutCompletes_WhenWorkerKilledAtFailpoints(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for place, lanes := range map[cell]int{crashCells[1]: fewLanes, crashCells[3]: 3} {
		t.Run(string(place.provider), func(t *testing.T) {
			t.Parallel()
			killRolloutWorkerInLane(t, place, 1, lanes)
		})
	}
}

// The worker dies once before and once after every external write of each of the crashCells.
func TestSoakRolloutCompletes_WhenWorkerKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	for _, place := range crashCells {
		for lane := range rolloutLanes {
			t.Run(fmt.Sprintf("%s/%s/Lane%d", place.style, place.provider, lane+1), func(t *testing.T) {
				t.Parallel()
				killRolloutWorkerInLane(t, place, lane, rolloutLanes)
			})
		}
	}
}

// killRolloutWorkerInLane kills the worker at every lanes-th failpoint of a rollout, starting with number lane.
func killRolloutWorkerInLane(t *testing.T, place cell, lane, lanes int) {
	t.Helper()
	c := newSupervised(t)
	clean := c.runRollout(t, place, nil)
	points := c.passedFailpoints()
	require.Greater(t, len(points), lanes, "the run without a crash passes failpoints")
	kills := 0
	for n := lane; n < len(points); n += lanes {
		t.Run(fmt.Sprintf("%d %s", n+1, points[n]), func(t *testing.T) {
			died := c.deathCount()
			require.NoError(t, os.WriteFile(c.armFile, fmt.Appendf(nil, `{"after":%d}`, n), 0o600))
			made := c.runRollout(t, place, nil)
			require.Greater(t, c.deathCount(), died, "the worker never reached the failpoint")
			spared := int64(0)
			// pods that became ready while no worker ran need no hold, which saves the two writes that set and remove
			// it
			if place.style == strategy.StylePartition {
				spared = 2
			}
			require.LessOrEqual(t, made, clean, "each write is made once, or repeated without a change")
			require.GreaterOrEqual(t, made, clean-spared, "and none is omitted")
		})
		kills++
	}
	harness.Covered(t, kills, "kills of a worker at failpoints of a rollout")
}

// rolloutLanes is the number of engines that share the failpoints of one rollout. Temporal notices a death only after
// seconds, during which the machine is idle.
const rolloutLanes = 5

// fewLanes is the number of lanes of which a shorter test takes one. It is odd, so that each lane has failpoints before
// a write and after one.
const fewLanes = 11

// The worker dies at random moments of a rollout.
func TestLongRolloutCompletes_WhenWorkerKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killDuringRollouts(t, 3, func(t *testing.T) *supervised { return newSupervised(t) })
}

func TestSoakRolloutCompletes_WhenWorkerKilledAtRandom(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killDuringRollouts(t, 75, func(t *testing.T) *supervised { return newSupervised(t) })
}

// Server and worker are built with the race detector, which writes its reports into files.
func TestLongRolloutHasNoDataRaces_WhenWorkerKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	reports := filepath.Join(t.TempDir(), "race")
	t.Cleanup(func() { // runs after the parallel cases
		found, err := filepath.Glob(reports + ".*")
		require.NoError(t, err)
		for _, file := range found {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			t.Errorf("the race detector of an engine reports:\n%s", text)
		}
	})
	killDuringRollouts(t, 1, func(t *testing.T) *supervised {
		return newSupervisedWith(t, harness.Options{Binary: "slipway-race",
			Env: []string{"GORACE=log_path=" + reports}})
	})
}

func killDuringRollouts(t *testing.T, kills int, start func(*testing.T) *supervised) {
	t.Helper()
	for _, place := range crashCells[:2] {
		t.Run(string(place.style), func(t *testing.T) {
			t.Parallel()
			random := harness.Random(t)
			c := start(t)
			harness.Covered(t, kills, "random kills of a worker during a rollout")
			for kill := range kills {
				moment := time.Duration(random.Int64N(int64(6 * time.Second)))
				t.Run(fmt.Sprintf("%d after %s", kill+1, moment.Round(time.Millisecond)), func(t *testing.T) {
					killed := make(chan struct{})
					timer := time.AfterFunc(moment, func() { c.killNow(); close(killed) })
					c.runRollout(t, place, nil)
					if timer.Stop() {
						c.killNow() // the rollout ended first: kill the idle worker
						return
					}
					<-killed
				})
			}
		})
	}
}
