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

// gitopsCells are the releases that a GitOps tool syncs over: every kind and every style, each with traffic.
var gitopsCells = []cell{
	deploymentCell(strategy.StylePartition, harness.Nginx),
	deploymentCell(strategy.StyleCanary, harness.Nginx),
	deploymentCell(strategy.StyleBlueGreen, harness.Nginx),
	{harness.StatefulSet, strategy.StylePartition, harness.Gateway},
	{harness.DaemonSet, strategy.StylePartition, harness.Nginx},
	{harness.CloneSet, strategy.StylePartition, harness.Nginx},
	{harness.CloneSet, strategy.StyleBlueGreen, harness.Gateway},
	{harness.AdvancedStatefulSet, strategy.StylePartition, harness.Istio},
	{harness.AdvancedDaemonSet, strategy.StylePartition, harness.Nginx},
}

// commit selects the image in the manifest while the release runs.
type commit string

const (
	oldImage commit = "OldImage"
	newImage commit = "NewImage"
	// mergedImage: the tool begins to sync when the first step waits, with the new image, as when the change is merged
	// during a release.
	mergedImage commit = "MergedImage"
)

// gitopsRow is a release during which a GitOps tool applies the whole manifest every second.
type gitopsRow struct {
	cell
	tool     harness.Tool
	commit   commit
	rollback bool
}

func (row gitopsRow) String() string {
	end := "Through"
	if row.rollback {
		end = "Back"
	}
	return fmt.Sprintf("%s/%s/%s/%s", row.cell, row.tool.Title, row.commit, end)
}

// gitopsRows are all rows: each cell with each tool and each image in the manifest, to the new version and rolled back.
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

// gitopsRelease is a release of objects that a GitOps tool applied first and keeps applying.
type gitopsRelease struct {
	*release
	tool     *harness.Applier
	manifest []*unstructured.Unstructured
}

func newGitopsRelease(t *testing.T, e *harness.Engine, c cell, tool harness.Tool,
	change func(object map[string]any, r *harness.Rollout)) *gitopsRelease {
	t.Helper()
	r := prepareUnobserved(t, e, c, change)
	manifest := r.Manifest(c.kind, r.rollout.Name, c.provider)
	n := r.StartApplier(t, tool, manifest)
	n.Sync(t)
	require.Empty(t, n.Diff(t), "the objects match the manifest")
	r.startObserver()
	return &gitopsRelease{r, n, manifest}
}

// commitImage commits an image.
func (a *gitopsRelease) commitImage(image string) {
	a.t.Helper()
	a.tool.Declare(a.t, harness.WithImage(a.manifest, image))
}

// waitThreeSyncs waits for three more syncs, pauses the tool and waits until nothing changes any more.
func (a *gitopsRelease) waitThreeSyncs(row string) {
	a.t.Helper()
	rounds := a.tool.Rounds()
	require.Eventually(a.t, func() bool {
		return a.tool.Rounds() > rounds+2
	}, harness.Patience, harness.Tick, "%s: three syncs", row)
	a.tool.Pause()
	a.watch.WaitSettled(a.t)
}

// approveUntilDone approves each step until the rollout has ended or waits for a decision.
func (a *gitopsRelease) approveUntilDone() rollout.Status {
	a.t.Helper()
	approved := ""
	for {
		status := a.WaitRollout(a.rollout.Name, "an approval, a decision or the end", func(s rollout.Status) bool {
			if s.Phase.Final() || s.WaitingFor == nil {
				return s.Phase.Final()
			}
			kind := s.WaitingFor.Kind
			return kind == rollout.WaitDrift || kind == rollout.WaitResume || kind == rollout.WaitApproval &&
				s.WaitingFor.Gate != approved
		})
		if status.WaitingFor == nil || status.WaitingFor.Kind != rollout.WaitApproval {
			return status
		}
		gate := status.WaitingFor.Gate
		body := fmt.Sprintf(`{"actor":"ann","step":%d,"gate":%q}`, status.CurrentStepIndex, gate)
		// otherwise the rollout has moved on; read it again
		if a.RolloutVerb(a.rollout.Name, "approve", body).Status == http.StatusOK {
			approved = gate
		}
	}
}

// A GitOps tool applies the whole manifest every second during a release with traffic, while the engine runs: each kind
// and style with each tool, with the old and with the new image in the manifest, to the new version and rolled back.
func TestSoakRelease_KeepsPromises_DuringGitOpsSyncs(t *testing.T) {
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

// run executes a row. The tool breaks no promise about pods and traffic. The release ends as requested, or waits for a
// user and names the tool; then the tool is paused and the release continues. If the manifest has the final image, the
// next sync changes nothing; otherwise it writes its image, and the sync after that changes nothing.
func (row gitopsRow) run(t *testing.T, e *harness.Engine, guard *harness.Guard) {
	t.Helper()
	a := newGitopsRelease(t, e, row.cell, row.tool, nil)
	if guard != nil {
		guard.EnforceOn(t, a.Apps)
	}
	if row.commit == mergedImage {
		a.StartRollout(a.rollout)
		a.waitPaused(1)
	}
	a.watch.ForeignChanges(t)
	if row.commit != mergedImage {
		a.tool.SyncEvery(time.Second)
		a.StartRollout(a.rollout)
		a.WaitRollout(a.rollout.Name, "its first pods", func(s rollout.Status) bool {
			return s.CanaryReplicas > 0 || s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
		})
	}
	git, end, image := harness.StableImage(a.rollout.Name), rollout.PhaseHealthy, a.rollout.NewestImage()
	if row.commit != oldImage {
		git = a.rollout.NewestImage()
		a.commitImage(git)
	}
	if row.commit == mergedImage {
		a.tool.SyncEvery(time.Second)
	}
	if row.rollback {
		end, image = rollout.PhaseRolledBack, harness.StableImage(a.rollout.Name)
		a.MustVerb(a.rollout.Name, "rollback", `{"actor":"ann"}`)
	}
	status := a.approveUntilDone()
	t.Logf("with syncs: %s, step %d: %s", status.Phase, status.CurrentStepIndex, status.Reason)
	for !status.Phase.Final() {
		require.Contains(t, status.Reason, row.tool.Manager, "the reason names the tool")
		a.tool.Pause()
		a.watch.WaitSettled(t)
		a.watch.TrafficProtected(t)
		a.MustVerb(a.rollout.Name, "retry", `{"actor":"ann","reason":"the tool is paused"}`)
		status = a.approveUntilDone()
		t.Logf("without syncs: %s, step %d: %s", status.Phase, status.CurrentStepIndex, status.Reason)
	}
	a.tool.Pause()
	a.watch.RequirePromises(t)
	require.Equal(t, end, status.Phase, status.Reason)
	if git != image {
		a.commitImage(image)
		a.tool.Sync(t)
		a.watch.WaitSettled(t) // kubectl's diff includes the status, which changes with the pods
	}
	require.Empty(t, a.tool.Diff(t), "the next sync changes nothing")
}

// One release with each library, to the end.
func TestLongRelease_KeepsPromises_DuringGitOpsSyncs(t *testing.T) {
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

// With the engine dead no process restores fields, and a Deployment that waits in place needs none: a GitOps tool that
// applies the whole manifest every second, with the old or the new image, moves no pod of it, and every request finds a
// ready pod. The manifest's maxSurge adds one pod, which the engine's next write removes. After a restart the engine
// continues, or reports which client wrote.
func TestLongWaitingDeployment_KeepsPods_DuringGitOpsSyncsWithoutEngine(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	syncWithoutEngine(t, harness.Flux)
}

// This test covers the other tools.
func TestSoakWaitingDeployment_KeepsPods_DuringGitOpsSyncsWithoutEngine(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	syncWithoutEngine(t, harness.KubectlApply, harness.ArgoServerSide, harness.KubectlForce, harness.ArgoClientSide)
}

func syncWithoutEngine(t *testing.T, tools ...harness.Tool) {
	t.Helper()
	o := harness.Options{}
	e := harness.Start(t, o)
	rows := map[string]*gitopsRelease{}
	for _, tool := range tools {
		for _, commit := range []commit{oldImage, newImage} {
			row := gitopsRow{gitopsCells[0], tool, commit, false}
			a := newGitopsRelease(t, e, row.cell, tool, nil)
			a.StartRollout(a.rollout)
			a.approve(1)
			a.waitPaused(2)
			rows[row.String()] = a
			if commit == newImage {
				a.commitImage(a.rollout.NewestImage())
			}
		}
	}
	e.Processes[0].Kill()
	made := map[string]int{}
	for row, a := range rows {
		made[row] = a.watch.PodsCreated(t)
		a.watch.ForeignChanges(t)
		a.tool.SyncEvery(time.Second)
	}
	for row, a := range rows {
		a.waitThreeSyncs(row)
		require.Contains(t, []observer.Count{{Stable: 2, StableReady: 2, New: 2, NewReady: 2},
			{Stable: 2, StableReady: 2, New: 3, NewReady: 3},
			{Stable: 3, StableReady: 3, New: 2, NewReady: 2}}, a.watch.Count(t), "%s: no pod moves", row)
		require.LessOrEqual(t, a.watch.PodsCreated(t), made[row]+1, "%s: no pod is replaced", row)
		a.watch.RequirePromises(t)
	}
	e.Dev(o)
	e.WaitReady()
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		a := rows[row]
		status := a.approveUntilDone()
		t.Logf("%s: %s, step %d: %s", row, status.Phase, status.CurrentStepIndex, status.Reason)
		if !status.Phase.Final() {
			a.MustVerb(a.rollout.Name, "retry", `{"actor":"ann"}`)
			status = a.approveUntilDone()
		}
		require.Equal(t, rollout.PhaseHealthy, status.Phase, status.Reason)
		a.watch.RequirePromises(t)
	}
}
