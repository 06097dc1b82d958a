package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// gitopsCells are the releases that a neighbour works against: every kind and every style, each with traffic.
var gitopsCells = []cell{
	deploymentBy(strategy.StylePartition, harness.Nginx),
	deploymentBy(strategy.StyleCanary, harness.Nginx),
	deploymentBy(strategy.StyleBlueGreen, harness.Nginx),
	{harness.StatefulSet, strategy.StylePartition, harness.Gateway},
	{harness.DaemonSet, strategy.StylePartition, harness.Nginx},
	{harness.CloneSet, strategy.StylePartition, harness.Nginx},
	{harness.CloneSet, strategy.StyleBlueGreen, harness.Gateway},
	{harness.AdvancedStatefulSet, strategy.StylePartition, harness.Istio},
	{harness.AdvancedDaemonSet, strategy.StylePartition, harness.Nginx},
}

// commit is what the manifest says of the image while the release runs.
type commit string

const (
	oldImage commit = "OldImage"
	newImage commit = "NewImage"
	// mergedImage: the neighbour begins when the first step rests, with the new image, as when the change is merged while a release waits.
	mergedImage commit = "MergedImage"
)

// gitopsRow is a release with a neighbour who applies the whole manifest every second.
type gitopsRow struct {
	cell
	tool   harness.Tool
	commit commit
	back   bool
}

func (row gitopsRow) String() string {
	end := "Through"
	if row.back {
		end = "Back"
	}
	return fmt.Sprintf("%s/%s/%s/%s", row.cell, row.tool.Title, row.commit, end)
}

// gitopsRows are all: each cell with each tool, the old and the new image in the manifest, through and back.
func gitopsRows() []gitopsRow {
	var rows []gitopsRow
	for _, c := range gitopsCells {
		for _, tool := range harness.Tools {
			for _, commit := range []commit{oldImage, newImage, mergedImage} {
				rows = append(rows, gitopsRow{c, tool, commit, false}, gitopsRow{c, tool, commit, true})
			}
		}
	}
	return rows
}

// among is a release in a neighbour's reach: its manifest is what the neighbour has applied first.
type among struct {
	*release
	neighbour *harness.Neighbour
	manifest  []*unstructured.Unstructured
}

func amongNeighbours(t *testing.T, e *harness.Engine, c cell, tool harness.Tool, change func(object map[string]any, r *harness.Rollout)) *among {
	t.Helper()
	r := place(t, e, c, change)
	manifest := r.Manifest(c.kind, r.rollout.Name, c.provider)
	n := r.Neighbour(t, tool, manifest)
	n.Sync(t)
	require.Empty(t, n.Diff(t), "what was applied is what is there")
	r.follow()
	return &among{r, n, manifest}
}

// declare commits an image.
func (a *among) declare(image string) {
	a.t.Helper()
	a.neighbour.Declare(a.t, harness.WithImage(a.manifest, image))
}

// threeRounds has the neighbour go round three times more, and then waits until nothing moves.
func (a *among) threeRounds(row string) {
	a.t.Helper()
	rounds := a.neighbour.Rounds()
	require.Eventually(a.t, func() bool { return a.neighbour.Rounds() > rounds+2 }, harness.Patience, harness.Tick, "%s: three rounds", row)
	a.neighbour.Pause()
	a.watch.WaitStill(a.t)
}

// along approves each step until the rollout is over, or waits for somebody to decide.
func (a *among) along() rollout.Status {
	a.t.Helper()
	approved := ""
	for {
		status := a.WaitRollout(a.rollout.Name, "an approval, a decision or the end", func(s rollout.Status) bool {
			if s.Phase.Final() || s.WaitingFor == nil {
				return s.Phase.Final()
			}
			kind := s.WaitingFor.Kind
			return kind == rollout.WaitDrift || kind == rollout.WaitResume || kind == rollout.WaitApproval && s.WaitingFor.Gate != approved
		})
		if status.WaitingFor == nil || status.WaitingFor.Kind != rollout.WaitApproval {
			return status
		}
		gate := status.WaitingFor.Gate
		body := fmt.Sprintf(`{"actor":"ann","step":%d,"gate":%q}`, status.CurrentStepIndex, gate)
		if a.RolloutVerb(a.rollout.Name, "approve", body).Status == http.StatusOK { // else it has moved on: it is looked at again
			approved = gate
		}
	}
}

// A neighbour that applies the whole manifest every second through a release, with traffic, with the engine alive: each kind and style with each tool, with
// the old and with the new image in the manifest, to the new version and back.
func TestSoakGitops(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e := harness.Shared(t)
	t.Run("rows", func(t *testing.T) {
		for _, row := range gitopsRows() {
			t.Run(row.String(), func(t *testing.T) {
				t.Parallel()
				row.run(t, e, nil)
			})
		}
	})
}

// run goes through a row. Whatever the neighbour does, no promise about pods and traffic is broken. The release ends as asked, or waits for somebody and
// names the neighbour; then the neighbour is told to leave it alone, and the release goes on. Where the neighbour's image is that of the end, the next sync is
// quiet; else it brings its image back, and is quiet after that.
func (row gitopsRow) run(t *testing.T, e *harness.Engine, guard *harness.Guard) {
	t.Helper()
	a := amongNeighbours(t, e, row.cell, row.tool, nil)
	if guard != nil {
		guard.Over(t, a.Apps)
	}
	if row.commit == mergedImage {
		a.StartRollout(a.rollout)
		a.rest(1)
	}
	a.watch.Neighbour(t)
	if row.commit != mergedImage {
		a.neighbour.Every(time.Second)
		a.StartRollout(a.rollout)
		a.WaitRollout(a.rollout.Name, "its first pods", func(s rollout.Status) bool {
			return s.CanaryReplicas > 0 || s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
		})
	}
	git, end, image := harness.StableImage(a.rollout.Name), rollout.PhaseHealthy, a.rollout.NewestImage()
	if row.commit != oldImage {
		git = a.rollout.NewestImage()
		a.declare(git)
	}
	if row.commit == mergedImage {
		a.neighbour.Every(time.Second)
	}
	if row.back {
		end, image = rollout.PhaseRolledBack, harness.StableImage(a.rollout.Name)
		a.MustVerb(a.rollout.Name, "rollback", `{"actor":"ann"}`)
	}
	status := a.along()
	t.Logf("with the neighbour: %s, step %d: %s", status.Phase, status.CurrentStepIndex, status.Reason)
	for !status.Phase.Final() {
		require.Contains(t, status.Reason, row.tool.Manager, "it says who is in its way")
		a.neighbour.Pause()
		a.watch.WaitStill(t)
		a.watch.Sheltered(t)
		a.MustVerb(a.rollout.Name, "retry", `{"actor":"ann","reason":"the neighbour leaves it alone now"}`)
		status = a.along()
		t.Logf("without: %s, step %d: %s", status.Phase, status.CurrentStepIndex, status.Reason)
	}
	a.neighbour.Pause()
	a.watch.RequirePromises(t)
	require.Equal(t, end, status.Phase, status.Reason)
	if git != image {
		a.declare(image)
		a.neighbour.Sync(t)
		a.watch.WaitStill(t) // kubectl's diff has the status in it, which changes with the pods
	}
	require.Empty(t, a.neighbour.Diff(t), "the next sync is quiet")
}

// One release with each library, to the end.
func TestLongGitops(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	t.Run("rows", func(t *testing.T) {
		for _, tool := range []harness.Tool{harness.KubectlApply, harness.Flux, harness.ArgoServerSide} {
			row := gitopsRow{gitopsCells[0], tool, mergedImage, false}
			t.Run(row.String(), func(t *testing.T) {
				t.Parallel()
				row.run(t, e, nil)
			})
		}
	})
}

// With the engine dead nobody puts anything back, and a Deployment that rests in place needs nobody: a neighbour that applies the whole manifest every second
// moves no pod of it, with the old and with the new image, and no request meets nothing. Its maxSurge adds one, which goes again with the next write of the
// engine. When the engine is back, it goes on, or says who was there.
func TestLongGitopsWithoutTheEngine(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	withoutTheEngine(t, harness.Flux)
}

// The other tools.
func TestSoakGitopsWithoutTheEngine(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	withoutTheEngine(t, harness.KubectlApply, harness.ArgoServerSide, harness.KubectlForce, harness.ArgoClientSide)
}

func withoutTheEngine(t *testing.T, tools ...harness.Tool) {
	t.Helper()
	o := harness.Options{}
	e := harness.Start(t, o)
	rows := map[string]*among{}
	for _, tool := range tools {
		for _, commit := range []commit{oldImage, newImage} {
			row := gitopsRow{gitopsCells[0], tool, commit, false}
			a := amongNeighbours(t, e, row.cell, tool, nil)
			a.StartRollout(a.rollout)
			a.approve(1)
			a.rest(2)
			rows[row.String()] = a
			if commit == newImage {
				a.declare(a.rollout.NewestImage())
			}
		}
	}
	e.Processes[0].Kill()
	made := map[string]int{}
	for row, a := range rows {
		made[row] = a.watch.Made(t)
		a.watch.Neighbour(t)
		a.neighbour.Every(time.Second)
	}
	for row, a := range rows {
		a.threeRounds(row)
		require.Contains(t, []observer.Count{{Stable: 2, StableReady: 2, New: 2, NewReady: 2}, {Stable: 2, StableReady: 2, New: 3, NewReady: 3},
			{Stable: 3, StableReady: 3, New: 2, NewReady: 2}}, a.watch.Count(t), "%s: no pod moves", row)
		require.LessOrEqual(t, a.watch.Made(t), made[row]+1, "%s: no pod is made anew", row)
		a.watch.RequirePromises(t)
	}
	e.Dev(o)
	e.WaitReady()
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		a := rows[row]
		status := a.along()
		t.Logf("%s: %s, step %d: %s", row, status.Phase, status.CurrentStepIndex, status.Reason)
		if !status.Phase.Final() {
			a.MustVerb(a.rollout.Name, "retry", `{"actor":"ann"}`)
			status = a.along()
		}
		require.Equal(t, rollout.PhaseHealthy, status.Phase, status.Reason)
		a.watch.RequirePromises(t)
	}
}
