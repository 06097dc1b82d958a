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

// crashCells are the rollouts during which the worker dies: a blue-green with traffic, two canaries with traffic, one by partition and one with an extra workload,
// and one without, whose claim and first pods are one write.
var crashCells = []cell{
	deploymentBy(strategy.StyleBlueGreen, harness.Nginx),
	deploymentBy(strategy.StylePartition, harness.Gateway),
	deploymentBy(strategy.StyleCanary, harness.Nginx),
	deploymentBy(strategy.StylePartition, harness.NoProvider),
}

// twoSteps make a rollout of two steps, one approval and no grace, so that many of them fit into a test.
func twoSteps(c cell) func(map[string]any, *harness.Rollout) {
	return func(object map[string]any, r *harness.Rollout) {
		if c.style == strategy.StylePartition {
			slowPods(object, time.Second) // so that each batch is held while its pods come
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

// stepsOf are the steps of a rollout that dies: one without traffic rests nowhere.
func stepsOf(c cell) func(map[string]any, *harness.Rollout) {
	return func(object map[string]any, r *harness.Rollout) {
		twoSteps(c)(object, r)
		if c.provider == harness.NoProvider {
			r.Strategy.Steps = []strategy.Step{harness.Timed(harness.Step("50%", -1), 0), harness.Step("100%", -1)}
		}
	}
}

// through runs a rollout to the new version, whatever happens to the worker meanwhile, and tells how often the workload's spec was changed.
func (c *supervised) through(t *testing.T, place cell, during func()) int64 {
	t.Helper()
	r := prepare(t, c.Engine, place, stepsOf(place))
	before := r.object().GetGeneration()
	r.StartRollout(r.rollout)
	if during != nil {
		during()
	}
	r.approveAll(1)
	r.endsNew()
	return r.object().GetGeneration() - before
}

// The worker dies before or after an external write of a rollout, and comes back: it ends right, under the observer's eyes, with as many changes of the workload
// as without a crash. This is one death in ten of a blue-green's.
func TestRolloutWorkerKilledAtFailpoints(t *testing.T) {
	t.Parallel()
	rolloutDiesInLane(t, crashCells[0], 0, fewLanes)
}

// One death in ten of a canary by partition, and one in three of a rollout without traffic, which writes less.
func TestLongRolloutWorkerKilledAtFailpoints(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	for place, lanes := range map[cell]int{crashCells[1]: fewLanes, crashCells[3]: 3} {
		t.Run(string(place.provider), func(t *testing.T) {
			t.Parallel()
			rolloutDiesInLane(t, place, 1, lanes)
		})
	}
}

// The worker dies before and after every external write of a blue-green and of canaries with traffic, each time once.
func TestSoakRolloutWorkerKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	for _, place := range crashCells {
		for lane := range rolloutLanes {
			t.Run(fmt.Sprintf("%s/%s/Lane%d", place.style, place.provider, lane+1), func(t *testing.T) {
				t.Parallel()
				rolloutDiesInLane(t, place, lane, rolloutLanes)
			})
		}
	}
}

// rolloutDiesInLane has the worker die at one in so many of the failpoints of a rollout.
func rolloutDiesInLane(t *testing.T, place cell, lane, lanes int) {
	t.Helper()
	c := newSupervised(t)
	clean := c.through(t, place, nil)
	points := c.points()
	require.Greater(t, len(points), lanes, "the run without a crash passes failpoints")
	kills := 0
	for n := lane; n < len(points); n += lanes {
		t.Run(fmt.Sprintf("%d %s", n+1, points[n]), func(t *testing.T) {
			died := c.dead()
			require.NoError(t, os.WriteFile(c.arm, fmt.Appendf(nil, `{"after":%d}`, n), 0o600))
			made := c.through(t, place, nil)
			require.Greater(t, c.dead(), died, "the worker never came by the failpoint")
			spared := int64(0)
			if place.style == strategy.StylePartition { // pods that came while nobody was there need not be held, and then nobody has to be asked about the gate
				spared = 2
			}
			require.LessOrEqual(t, made, clean, "each write is made once, or again without a change")
			require.GreaterOrEqual(t, made, clean-spared, "and none is left out")
		})
		kills++
	}
	harness.Covered(t, kills, "kills of a worker at failpoints of a rollout")
}

// rolloutLanes is how many engines share the failpoints of one rollout: a death is noticed after seconds, in which the machine has nothing to do.
const rolloutLanes = 5

// fewLanes is how many there are of which a test takes one. An odd number: each lane has points before a write and points after one.
const fewLanes = 11

// The worker dies at random moments of a rollout.
func TestLongRolloutWorkerKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killDuringRollouts(t, 3, func(t *testing.T) *supervised { return newSupervised(t) })
}

func TestSoakRolloutWorkerKilledAtRandom(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killDuringRollouts(t, 75, func(t *testing.T) *supervised { return newSupervised(t) })
}

// Server and worker are built with the race detector, which writes what it finds into files.
func TestLongRolloutWorkerKilledAtRandom_WithoutDataRaces(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	reports := filepath.Join(t.TempDir(), "race")
	t.Cleanup(func() { // after the cases, which are parallel
		found, err := filepath.Glob(reports + ".*")
		require.NoError(t, err)
		for _, file := range found {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			t.Errorf("the race detector of an engine reports:\n%s", text)
		}
	})
	killDuringRollouts(t, 1, func(t *testing.T) *supervised {
		return supervisedAs(t, harness.Options{Binary: "slipway-race", Env: []string{"GORACE=log_path=" + reports}})
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
					c.through(t, place, nil)
					if timer.Stop() {
						c.killNow() // it was over before: the worker dies at rest
						return
					}
					<-killed
				})
			}
		})
	}
}
