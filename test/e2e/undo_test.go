package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// Three versions are released. An undo to the second one needs no steps, because it is within the rollback window; an
// undo to the first goes through the steps. Both restore everything and change only the pod template.
func TestUndo_SkipsSteps_WithinRollbackWindow(t *testing.T) {
	t.Parallel()
	testTwoUndos(t, harness.Shared(t), deploymentCell(strategy.StylePartition, harness.NoProvider))
}

// The other kinds, styles and providers.
func TestLongUndo_SkipsSteps_WithinRollbackWindow(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, c := range []cell{deploymentCell(strategy.StylePartition, harness.Nginx),
		deploymentCell(strategy.StyleCanary, harness.Nginx),
		deploymentCell(strategy.StyleBlueGreen, harness.NoProvider),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider},
		{harness.DaemonSet, strategy.StylePartition, harness.NoProvider},
		{harness.CloneSet, strategy.StyleBlueGreen, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			testTwoUndos(t, e, c)
		})
	}
}

func testTwoUndos(t *testing.T, e *harness.Engine, c cell) {
	r := prepareUnobserved(t, e, c, func(_ map[string]any, r *harness.Rollout) {
		r.Policy = map[string]any{"rollbackWindow": map[string]any{"revisions": 1}}
	})
	name := r.rollout.Name
	first, second, third := harness.StableImage(name), "registry.test/"+name+":v2", "registry.test/"+name+":v3"
	for _, image := range []string{second, third} {
		r.rollout.Image = image
		r.StartRollout(r.rollout)
		r.WaitForApproval(name, 1)
		r.MustVerb(name, "stop", `{"to":"new"}`)
		r.WaitPhase(name, rollout.PhaseHealthy)
	}

	r.startObserver()
	r.watch.AllowFinish(t)
	fast := r.Undo(name, `{"actor":"ann","reason":"errors"}`)
	require.Equal(t, &strategy.Undo{ToRevision: 2, WithoutSteps: true}, fast.Undo,
		"the previous version is within the window")
	healthy := r.WaitPhase(name, rollout.PhaseHealthy)
	require.Equal(t, map[string]string{"app": second}, healthy.Images, "no approval was needed")
	r.requireRestored(observer.End{Images: map[string]string{"app": second}})

	r.startObserver()
	r.rollout.Image = first
	slow := r.Undo(name, `{"toRevision":1}`)
	require.Equal(t, &strategy.Undo{ToRevision: 1}, slow.Undo,
		"the first version is outside the window: two versions have served since")
	require.Contains(t, string(r.RolloutVerb(name, "undo", "").Body), "/rollback)",
		"a running release is rolled back, not undone")
	r.approveAll(1)
	r.requirePromoted()
	missing := r.RolloutVerb(name, "undo", `{"toRevision":5}`)
	require.Equal(t, http.StatusUnprocessableEntity, missing.Status, "%s", missing.Body)
	require.Contains(t, string(missing.Body), "is the version that serves now",
		"revision 5 belongs to the last undo, of the first version")
}

// An undo to a revision that the cluster no longer keeps is refused; the answer names the kept revisions, and nothing
// is changed.
func TestLongUndo_IsRefused_WhenRevisionIsNoLongerKept(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := prepareUnobserved(t, harness.Shared(t), deploymentCell(strategy.StylePartition, harness.NoProvider),
		func(object map[string]any, _ *harness.Rollout) {
			_ = unstructured.SetNestedField(object, int64(1), "spec", "revisionHistoryLimit")
		})
	name := r.rollout.Name
	for _, version := range []string{"v2", "v3", "v4"} {
		r.rollout.Image = "registry.test/" + name + ":" + version
		r.StartRollout(r.rollout)
		r.WaitForApproval(name, 1)
		r.MustVerb(name, "stop", `{"to":"new"}`)
		r.WaitPhase(name, rollout.PhaseHealthy)
	}
	var refused harness.Answer
	require.Eventually(t, func() bool { // the Deployment's controller deletes old revisions after the release
		refused = r.RolloutVerb(name, "undo", `{"toRevision":1}`)
		return refused.Status == http.StatusUnprocessableEntity
	}, harness.Patience, harness.Tick, "the first revision is never deleted")
	for _, kept := range []string{"doesn't keep that version any more", "app=registry.test/" + name + ":v4",
		"app=registry.test/" + name + ":v3"} {
		require.Contains(t, string(refused.Body), kept)
	}
	require.NotContains(t, string(refused.Body), ":v2", "only kept revisions are named")
	require.Empty(t, r.claim(), "nothing was written")
	r.Undo(name, "")
	r.WaitForApproval(name, 1)
}

// A release that kubectl started is undone over HTTP. The Rollout object shows the undo and accepts its approvals, and
// no second release starts. The undone version waits for an approval when it is declared again; any other version
// starts a release as usual.
func TestLongUndoUnderRolloutObject_IsShownAndApprovedThere(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentCell(strategy.StylePartition, harness.Nginx),
		deploymentCell(strategy.StyleCanary, harness.Nginx),
		deploymentCell(strategy.StyleBlueGreen, harness.NoProvider),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider},
		{harness.DaemonSet, strategy.StylePartition, harness.NoProvider},
		{harness.CloneSet, strategy.StylePartition, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			testUndoUnderRolloutObject(t, declare(t, e, g, c, func(object map[string]any, _ *harness.Rollout) {
				// the rollout ID of the undone version
				_ = unstructured.SetNestedField(object, "7", "metadata", "labels", rollout.LabelRolloutID)
			}), c)
		})
	}
}

func testUndoUnderRolloutObject(t *testing.T, d *declared, c cell) {
	name := d.rollout.Name
	before, released := harness.StableImage(name), d.rollout.NewestImage()
	d.setImage("alice", released)
	d.waitStep(1)
	d.watch.AllowFinish(t)
	d.MustVerb(name, "stop", `{"to":"new"}`)
	d.waitEnd(true)
	d.requirePromoted()

	d.startObserver()
	d.rollout.Image = before
	require.Equal(t, &strategy.Undo{ToRevision: 1}, d.Undo(name, `{"actor":"ann","reason":"errors"}`).Undo)
	d.waitStep(1)
	d.requireKruiseKeys(c)
	for step := range d.rollout.Strategy.Steps {
		if d.needsApproval(step + 1) {
			d.approve(step + 1)
		}
	}
	over := d.waitEnd(true)
	require.Contains(t, d.history(), "undo by ann (http): accepted", "the record names the actor of the undo")
	require.Contains(t, d.history(), "approve by approver (kubectl): accepted", "the steps were approved on the object")
	d.requirePromoted()
	require.Equal(t, commonStatus(over).StableRevision, revisionShown(over), "the version of the undo serves")
	require.Equal(t, int32(len(d.rollout.Strategy.Steps)), commonStatus(over).CurrentStepIndex,
		"the object shows the last step")

	d.setImage("gitops", released)
	held := d.waitObject("waiting for an approval of the undone version", func(r *v1beta1.Rollout) bool {
		return commonStatus(r).CurrentStepState == "StepPaused"
	})
	require.Contains(t, held.Status.Message, "no pod has moved",
		"the undone version is not released again without approval")
	require.Equal(t, 3, d.releaseCount(), "the release, its undo, and the waiting one: the undo itself starts no "+
		"release")
	d.watch.MarkMoving(t)
	d.setImage("gitops", before)
	d.waitObject("Healthy and not open", func(r *v1beta1.Rollout) bool {
		return r.Status.Phase == v1beta1.PhaseHealthy && !r.Status.Slipway.Open
	})
	d.setImage("alice", "registry.test/"+name+":v3")
	d.waitStep(1)
	require.Equal(t, map[string]string{"app": "registry.test/" + name + ":v3"}, d.Rollout(name).Images,
		"another version starts a release as usual")
}

// revisionShown returns the newest revision in an object's status.
func revisionShown(r *v1beta1.Rollout) string {
	if r.Status.BlueGreenStatus != nil {
		return r.Status.BlueGreenStatus.UpdatedRevision
	}
	return r.Status.CanaryStatus.CanaryRevision
}

// Within the rollback window of the object's policy, an undo needs no approval. At its end the object shows the last
// step.
func TestLongUndoUnderRolloutObject_SkipsSteps_WithinRollbackWindow(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentCell(strategy.StylePartition, harness.Nginx),
		deploymentCell(strategy.StyleBlueGreen, harness.NoProvider),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			d := declare(t, e, g, c, nil)
			name := d.rollout.Name
			d.Kubectl("-n", d.Apps, "annotate", "rollouts.rollouts.kruise.io", name,
				"slipway.io/policy={rollbackWindow: {revisions: 2}}")
			d.setImage("alice", d.rollout.NewestImage())
			d.waitStep(1)
			d.watch.AllowFinish(t)
			d.MustVerb(name, "stop", `{"to":"new"}`)
			d.waitEnd(true)
			d.requirePromoted()
			d.startObserver()
			d.watch.AllowFinish(t)
			d.rollout.Image = harness.StableImage(name)
			started := d.Undo(name, "")
			require.True(t, started.Undo.WithoutSteps, "the annotation says so")
			over := d.waitObject("showing the end of the undo", func(r *v1beta1.Rollout) bool {
				return r.Status.Slipway.Release == started.Record && r.Status.Phase == v1beta1.PhaseHealthy &&
					conditionOf(r, v1beta1.ConditionSucceeded).Status == "True"
			})
			require.Equal(t, int32(len(d.rollout.Strategy.Steps)), commonStatus(over).CurrentStepIndex,
				"the object shows the last step")
			d.requirePromoted()
		})
	}
}

// midUndo are commands in the middle of an undo under a Rollout object; a change of the workload's pod template is a
// command then, too.
var midUndo = []struct {
	title string
	do    func(d *declared, undone string)
}{
	{"rollback: the undone version serves again", func(d *declared, _ string) {
		d.sendVerb("rollback", `{"actor":"bob"}`)
		d.waitEnd(false)
		d.requireRolledBack()
	}},
	{"the undone version is declared again: the undo is rolled back", func(d *declared, undone string) {
		d.revertImage("alice", undone)
		require.Contains(d.t, d.history(), "rollback by alice (kubectl): accepted")
		d.requireRolledBack()
	}},
	{"a third version is declared: it supersedes the undo", func(d *declared, _ string) {
		d.declareThirdVersion("carol")
		d.approve(1)
		d.approve(2)
		d.approveRemaining()
		d.requirePromoted()
	}},
	{"the Rollout is disabled: the workload's own controller updates the pods to the current template",
		func(d *declared, _ string) {
			d.watch.AllowFinish(d.t)
			d.patchSpec("alice", map[string]any{"disabled": true})
			d.waitObject("Disabled", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseDisabled })
			d.requireRestored(atNewImageReleased(d))
		}},
}

// Every command of midUndo ends the undo as described.
func TestLongUndoUnderRolloutObject_ObeysCommandsMidUndo(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentCell(strategy.StylePartition, harness.NoProvider),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
		for _, command := range midUndo {
			t.Run(c.String()+": "+command.title, func(t *testing.T) {
				t.Parallel()
				d := declare(t, e, g, c, nil)
				undone := d.rollout.NewestImage()
				d.setImage("alice", undone)
				d.waitStep(1)
				d.watch.AllowFinish(t)
				d.MustVerb(d.rollout.Name, "stop", `{"to":"new"}`)
				d.waitEnd(true)
				d.requirePromoted()
				d.startObserver()
				d.rollout.Image = harness.StableImage(d.rollout.Name)
				d.Undo(d.rollout.Name, "")
				d.waitStep(1)
				d.watch.MarkPaused(t, 1)
				command.do(d, undone)
			})
		}
	}
}
