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

// Three versions are released. An undo goes back to the second one without steps, since that is within the window; one to the first goes through the
// steps. Both end with everything as it was but for the pod template.
func TestUndo(t *testing.T) {
	t.Parallel()
	undoesTwice(t, harness.Shared(t), deploymentBy(strategy.StylePartition, harness.NoProvider))
}

// The other kinds, styles and providers.
func TestLongUndo(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, c := range []cell{deploymentBy(strategy.StylePartition, harness.Nginx), deploymentBy(strategy.StyleCanary, harness.Nginx),
		deploymentBy(strategy.StyleBlueGreen, harness.NoProvider), {harness.StatefulSet, strategy.StylePartition, harness.NoProvider},
		{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}, {harness.CloneSet, strategy.StyleBlueGreen, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			undoesTwice(t, e, c)
		})
	}
}

func undoesTwice(t *testing.T, e *harness.Engine, c cell) {
	r := place(t, e, c, func(_ map[string]any, r *harness.Rollout) {
		r.Policy = map[string]any{"rollbackWindow": map[string]any{"revisions": 1}}
	})
	name := r.rollout.Name
	first, second, third := harness.StableImage(name), "registry.test/"+name+":v2", "registry.test/"+name+":v3"
	for _, image := range []string{second, third} {
		r.rollout.Image = image
		r.StartRollout(r.rollout)
		r.WaitRest(name, 1)
		r.MustVerb(name, "stop", `{"to":"new"}`)
		r.WaitPhase(name, rollout.PhaseHealthy)
	}

	r.follow()
	r.watch.Finishing(t)
	fast := r.Undo(name, `{"actor":"ann","reason":"errors"}`)
	require.Equal(t, &strategy.Undo{ToRevision: 2, WithoutSteps: true}, fast.Undo, "it is the version before: within the window")
	healthy := r.WaitPhase(name, rollout.PhaseHealthy)
	require.Equal(t, map[string]string{"app": second}, healthy.Images, "nobody had to approve anything")
	r.Record(r.RolloutID(name), "rollout-undo-without-steps")
	r.requireHome(observer.End{Images: map[string]string{"app": second}})

	r.follow()
	r.rollout.Image = first
	slow := r.Undo(name, `{"toRevision":1}`)
	require.Equal(t, &strategy.Undo{ToRevision: 1}, slow.Undo, "two versions have served since")
	require.Contains(t, string(r.RolloutVerb(name, "undo", "").Body), "/rollback)", "while it is under way, it is rolled back, not undone")
	r.approveAll(1)
	r.endsNew()
	gone := r.RolloutVerb(name, "undo", `{"toRevision":5}`)
	require.Equal(t, http.StatusUnprocessableEntity, gone.Status, "%s", gone.Body)
	require.Contains(t, string(gone.Body), "is the version that serves now", "revision 5 is the last undo's, of the first version")
}

// What the cluster keeps no more cannot be gone back to: the refusal names what is there, and nothing was changed.
func TestLongUndoToARevisionThatIsGone(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := place(t, harness.Shared(t), deploymentBy(strategy.StylePartition, harness.NoProvider), func(object map[string]any, _ *harness.Rollout) {
		_ = unstructured.SetNestedField(object, int64(1), "spec", "revisionHistoryLimit")
	})
	name := r.rollout.Name
	for _, version := range []string{"v2", "v3", "v4"} {
		r.rollout.Image = "registry.test/" + name + ":" + version
		r.StartRollout(r.rollout)
		r.WaitRest(name, 1)
		r.MustVerb(name, "stop", `{"to":"new"}`)
		r.WaitPhase(name, rollout.PhaseHealthy)
	}
	var refused harness.Answer
	require.Eventually(t, func() bool { // the Deployment's controller drops old revisions after the release
		refused = r.RolloutVerb(name, "undo", `{"toRevision":1}`)
		return refused.Status == http.StatusUnprocessableEntity
	}, harness.Patience, harness.Tick, "the first version is never dropped")
	for _, kept := range []string{"doesn't keep that version any more", "app=registry.test/" + name + ":v4", "app=registry.test/" + name + ":v3"} {
		require.Contains(t, string(refused.Body), kept)
	}
	require.NotContains(t, string(refused.Body), ":v2", "only what is there is named")
	require.Empty(t, r.claim(), "nothing was written")
	r.Undo(name, "")
	r.WaitRest(name, 1)
}

// A release that kubectl has begun is undone over HTTP: the object shows it and takes its approvals, nothing begins a second time, the version that was
// undone waits for an approval when it is declared once more, and any other begins a release as ever.
func TestLongUndoUnderARolloutObject(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentBy(strategy.StylePartition, harness.Nginx), deploymentBy(strategy.StyleCanary, harness.Nginx),
		deploymentBy(strategy.StyleBlueGreen, harness.NoProvider), {harness.StatefulSet, strategy.StylePartition, harness.NoProvider},
		{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}, {harness.CloneSet, strategy.StylePartition, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			undoneUnderAnObject(t, declare(t, e, g, c, func(object map[string]any, _ *harness.Rollout) {
				_ = unstructured.SetNestedField(object, "7", "metadata", "labels", rollout.LabelRolloutID) // the number of what is undone
			}), c)
		})
	}
}

func undoneUnderAnObject(t *testing.T, d *declared, c cell) {
	name := d.rollout.Name
	before, released := harness.StableImage(name), d.rollout.NewestImage()
	d.setImage("alice", released)
	d.waitStep(1)
	d.watch.Finishing(t)
	d.MustVerb(name, "stop", `{"to":"new"}`)
	d.ends(true)
	d.endsNew()

	d.follow()
	d.rollout.Image = before
	require.Equal(t, &strategy.Undo{ToRevision: 1}, d.Undo(name, `{"actor":"ann","reason":"errors"}`).Undo)
	d.waitStep(1)
	d.requireKnownNames(c)
	for step := range d.rollout.Strategy.Steps {
		if d.waits(step + 1) {
			d.approve(step + 1)
		}
	}
	over := d.ends(true)
	require.Contains(t, d.history(), "undo by ann (http): accepted", "who has undone it is on record")
	require.Contains(t, d.history(), "approve by approver (kubectl): accepted", "its steps were approved by the object")
	d.endsNew()
	d.Record(d.RolloutID(name), "rollout-undo-declared")
	require.Equal(t, common(over).StableRevision, revisionShown(over), "what is new serves")
	require.Equal(t, int32(len(d.rollout.Strategy.Steps)), common(over).CurrentStepIndex, "it reads as complete")

	d.setImage("gitops", released)
	held := d.waitObject("waiting for an approval of what was undone", func(r *v1beta1.Rollout) bool { return common(r).CurrentStepState == "StepPaused" })
	require.Contains(t, held.Status.Message, "no pod has moved", "the version that was undone does not come back by itself")
	require.Equal(t, 3, d.releases(), "the release, its undo, and the one that waits: the undo itself has begun none")
	d.watch.Leaving(t)
	d.setImage("gitops", before)
	d.waitObject("at rest again", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy && !r.Status.Slipway.Open })
	d.setImage("alice", "registry.test/"+name+":v3")
	d.waitStep(1)
	require.Equal(t, map[string]string{"app": "registry.test/" + name + ":v3"}, d.Rollout(name).Images, "another version begins a release as ever")
}

// revisionShown is the newest revision that an object shows.
func revisionShown(r *v1beta1.Rollout) string {
	if r.Status.BlueGreenStatus != nil {
		return r.Status.BlueGreenStatus.UpdatedRevision
	}
	return r.Status.CanaryStatus.CanaryRevision
}

// Within the window that the object's policy names, an undo asks nobody. The object reads as complete at its end.
func TestLongUndoWithoutStepsUnderARolloutObject(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentBy(strategy.StylePartition, harness.Nginx), deploymentBy(strategy.StyleBlueGreen, harness.NoProvider),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			d := declare(t, e, g, c, nil)
			name := d.rollout.Name
			d.Kubectl("-n", d.Apps, "annotate", "rollouts.rollouts.kruise.io", name, "slipway.io/policy={rollbackWindow: {revisions: 2}}")
			d.setImage("alice", d.rollout.NewestImage())
			d.waitStep(1)
			d.watch.Finishing(t)
			d.MustVerb(name, "stop", `{"to":"new"}`)
			d.ends(true)
			d.endsNew()
			d.follow()
			d.watch.Finishing(t)
			d.rollout.Image = harness.StableImage(name)
			started := d.Undo(name, "")
			require.True(t, started.Undo.WithoutSteps, "the annotation says so")
			over := d.waitObject("showing the undo's end", func(r *v1beta1.Rollout) bool {
				return r.Status.Slipway.Release == started.Record && r.Status.Phase == v1beta1.PhaseHealthy && conditionOf(r, v1beta1.ConditionSucceeded).Status == "True"
			})
			require.Equal(t, int32(len(d.rollout.Strategy.Steps)), common(over).CurrentStepIndex, "it reads as complete")
			d.endsNew()
		})
	}
}

// midUndo is what happens in the middle of an undo under a Rollout object: the workload's pod template is the command then, too.
var midUndo = []struct {
	title string
	do    func(d *declared, undone string)
}{
	{"it is rolled back: what was undone serves again", func(d *declared, _ string) {
		d.verb("rollback", `{"actor":"bob"}`)
		d.ends(false)
		d.endsStable()
	}},
	{"what was undone is declared once more: it is rolled back by that", func(d *declared, undone string) {
		d.takeBack("alice", undone)
		require.Contains(d.t, d.history(), "rollback by alice (kubectl): accepted")
		d.endsStable()
	}},
	{"a third version is declared: it takes the place", func(d *declared, _ string) {
		d.declareThird("carol")
		d.approve(1)
		d.approve(2)
		d.toTheEnd()
		d.endsNew()
	}},
	{"the Rollout is disabled: the workload's own controller brings the pods to the template that it has", func(d *declared, _ string) {
		d.watch.Finishing(d.t)
		d.patchSpec("alice", map[string]any{"disabled": true})
		d.waitObject("Disabled", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseDisabled })
		d.requireHome(letGo(d))
	}},
}

func TestLongCommandsDuringAnUndoUnderARolloutObject(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentBy(strategy.StylePartition, harness.NoProvider), {harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
		for _, deed := range midUndo {
			t.Run(c.String()+": "+deed.title, func(t *testing.T) {
				t.Parallel()
				d := declare(t, e, g, c, nil)
				undone := d.rollout.NewestImage()
				d.setImage("alice", undone)
				d.waitStep(1)
				d.watch.Finishing(t)
				d.MustVerb(d.rollout.Name, "stop", `{"to":"new"}`)
				d.ends(true)
				d.endsNew()
				d.follow()
				d.rollout.Image = harness.StableImage(d.rollout.Name)
				d.Undo(d.rollout.Name, "")
				d.waitStep(1)
				d.watch.Resting(t, 1)
				deed.do(d, undone)
			})
		}
	}
}
