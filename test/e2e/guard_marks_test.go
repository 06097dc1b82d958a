package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
	"slipway.io/slipway/test/routes"
)

// marksOf returns Slipway's labels and annotations of an object.
func marksOf(o *unstructured.Unstructured) map[string]string {
	marks := map[string]string{}
	for part, entries := range map[string]map[string]string{"label ": o.GetLabels(), "": o.GetAnnotations()} {
		for name, value := range entries {
			if strings.HasPrefix(name, hold.Prefix) {
				marks[part+name] = value
			}
		}
	}
	return marks
}

// withoutMarks returns an object without Slipway's labels and annotations, as a client has it that read it before the
// release.
func withoutMarks(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	isMark := func(name, _ string) bool { return strings.HasPrefix(name, hold.Prefix) }
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	maps.DeleteFunc(labels, isMark)
	maps.DeleteFunc(annotations, isMark)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	return o
}

// wholeWrite is a write of a whole object (PUT) by another client.
type wholeWrite struct {
	reason string
	// marks changes Slipway's labels and annotations of the object that is written, rest something else.
	marks, rest func(o *unstructured.Unstructured)
}

func oldMarks(o *unstructured.Unstructured) {
	annotations := o.GetAnnotations()
	annotations[workload.AnnotationClaimedBy] = "rollout/default/shop/web@earlier"
	annotations[rollout.AnnotationHeldBy] = "rollout/default/shop/web@earlier"
	annotations[rollout.AnnotationSettled] = `{"template":"x"}`
	o.SetAnnotations(annotations)
	setLabel(o, workload.LabelRollout, "earlier")
}

func noMarks(o *unstructured.Unstructured) { o.Object = withoutMarks(o).Object }

func noLabelsAndAnnotations(o *unstructured.Unstructured) {
	o.SetLabels(nil)
	o.SetAnnotations(nil)
}

func label(o *unstructured.Unstructured) { setLabel(o, "edit", "theirs") }

func setLabel(o *unstructured.Unstructured, name, value string) {
	jsonpatch.Put(o.Object, jsonpatch.Label(name), value)
}

func finalizer(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.org/theirs"}) }

// The API server puts Slipway's marks back when another client writes a whole object with older marks or with none, and
// the rest of the write goes through, for each kind of object. A write of nothing but marks is refused, and passes on
// an object that a user takes over.
func TestGuard_PutsMarksBack_OnWriteOfWholeObject(t *testing.T) {
	t.Parallel()
	stack := harness.SharedStack(t)
	routes.Install(t, stack.REST)
	kruise.Install(t, stack.REST)
	g := harness.SharedGuard(t)
	namespace := stack.Namespace(t, "guarded")
	g.EnforceOn(t, namespace)
	engine, err := dynamic.NewForConfig(stack.Impersonate(harness.EngineUser))
	require.NoError(t, err)
	for _, c := range slices.Concat(workloadsToGuard(t), routesToGuard()) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := &borrowed{t: t, guarded: c, namespace: namespace, otherClient: stack.Dynamic(t), engine: engine}
			b.checkWholeWrites()
		})
	}
}

func (b *borrowed) checkWholeWrites() {
	object := (&unstructured.Unstructured{Object: b.object}).DeepCopy()
	object.SetName(harness.RandomName("web"))
	object, err := b.in(b.engine).Create(context.Background(), object, metav1.CreateOptions{})
	require.NoError(b.t, err)
	want := marksOf(object)
	require.NotEmpty(b.t, want)
	edits := []wholeWrite{
		{"without marks, with a label", noMarks, label},
		{"with older marks, without the label", oldMarks, func(o *unstructured.Unstructured) {
			jsonpatch.Drop(o.Object, jsonpatch.Label("edit"))
		}},
		{"without any label and annotation, with a finalizer", noLabelsAndAnnotations, finalizer},
		{"without the finalizer", noMarks, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }},
	}
	for pointer, value := range b.fields {
		edits = append(edits, wholeWrite{"without marks, with a change of " + pointer + ", which is borrowed", noMarks,
			func(o *unstructured.Unstructured) { jsonpatch.Put(o.Object, pointer, value) }})
	}
	for _, edit := range edits {
		wrote, after, err := b.writeWhole(object.GetName(), edit)
		require.NoError(b.t, err, edit.reason)
		require.Equal(b.t, want, marksOf(after), edit.reason)
		require.Equal(b.t, wrote.GetFinalizers(), after.GetFinalizers(), "%s: the rest goes through", edit.reason)
		require.Equal(b.t, wrote.GetLabels()["edit"], after.GetLabels()["edit"], edit.reason)
	}
	for reason, marks := range map[string]func(*unstructured.Unstructured){"without marks": noMarks,
		"with others": oldMarks} {
		_, _, err := b.writeWhole(object.GetName(), wholeWrite{reason, marks, func(*unstructured.Unstructured) {}})
		require.True(b.t, apierrors.IsForbidden(err), "a write of nothing but marks, %s: %v", reason, err)
		require.ErrorContains(b.t, err, "belongs to the running release rollout/default/shop/web: keep in the edit")
	}
	taken, after, err := b.writeWhole(object.GetName(), wholeWrite{"", noMarks, func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{rollout.AnnotationRepair: "anna"})
	}})
	require.NoError(b.t, err, "a user who takes the object over may edit the marks")
	require.Equal(b.t, marksOf(taken), marksOf(after))
}

// writeWhole reads an object and writes it as a whole, again if its controller has written meanwhile.
func (b *borrowed) writeWhole(name string, edit wholeWrite) (wrote, after *unstructured.Unstructured, err error) {
	for {
		wrote, err = b.in(b.otherClient).Get(context.Background(), name, metav1.GetOptions{})
		require.NoError(b.t, err)
		edit.marks(wrote)
		edit.rest(wrote)
		after, err = b.in(b.otherClient).Update(context.Background(), wrote, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return wrote, after, err
		}
	}
}

// A cluster without mutating policies refuses a write of a whole object without its marks; the message says what to
// keep.
func TestGuard_RefusesWriteWithoutMarks_WithoutMutatingPolicies(t *testing.T) {
	t.Parallel()
	stack := harness.SharedStack(t)
	namespace := stack.Namespace(t, "guarded")
	name := harness.RandomName("guard")
	policies := stack.Dynamic(t)
	for _, o := range guard.Policies(guard.Options{Name: name, NoGate: true, NoRollouts: true,
		Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{guard.LabelGuard: name}}}, "", "v1") {
		gvr := o.GroupVersionKind().GroupVersion().WithResource(map[string]string{
			"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
			"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings"}[o.GetKind()])
		_, err := policies.Resource(gvr).Create(context.Background(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = policies.Resource(gvr).Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})
		})
	}
	harness.LabelNamespace(t, stack.Kube, namespace, guard.LabelGuard, name)
	b := &borrowed{t: t, guarded: routesToGuard()[0], namespace: namespace, otherClient: stack.Dynamic(t)}
	object := (&unstructured.Unstructured{Object: b.object}).DeepCopy()
	object.SetName("web")
	object, err := b.in(b.otherClient).Create(context.Background(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	write := withoutMarks(object)
	label(write)
	require.Eventually(t, func() bool {
		_, err = b.in(b.otherClient).Update(context.Background(), write,
			metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	}, harness.Patience, harness.Tick, "the guard is not in force")
	require.ErrorContains(t, err, "keep in the edit what the object has of slipway.io, or end the release first")
	label(object)
	_, err = b.in(b.otherClient).Update(context.Background(), object, metav1.UpdateOptions{})
	require.NoError(t, err, "with its marks it passes")
}

// A release goes through while a client that has read the workload before it scales the workload by replacing it
// (kubectl replace), and while a GitOps tool replaces all of its objects.
func TestGuardedRelease_GoesThrough_WhenItsObjectsAreReplaced(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{gitopsCells[0], gitopsCells[1], gitopsCells[3]} {
		t.Run(c.String(), func(t *testing.T) {
			a := newGitopsRelease(t, e.ForTest(t), c, harness.ArgoClientSide, nil)
			g.EnforceOn(t, a.Apps)
			a.StartRollout(a.rollout)
			a.waitPaused(1)
			held := marksOf(a.object())
			a.watch.ForeignChanges(t)
			scaled := harness.WithImage(a.manifest, a.manifestImage(c))[0]
			require.NoError(t, unstructured.SetNestedField(scaled.Object, int64(5), "spec", "replicas"))
			a.Replace(scaled)
			require.EqualValues(t, 5, valueAt(a.object(), "/spec/replicas"), "the scale goes through")
			require.Equal(t, held[workload.AnnotationClaimedBy], marksOf(a.object())[workload.AnnotationClaimedBy])
			require.Equal(t, held[workload.AnnotationRollout], marksOf(a.object())[workload.AnnotationRollout])

			replaced := harness.WithImage(a.manifest, a.manifestImage(c))
			for i, o := range replaced {
				replaced[i] = o.DeepCopy()
				replaced[i].SetAnnotations(map[string]string{"team": "shop",
					"argocd.argoproj.io/sync-options": "Replace=true"})
			}
			a.tool.Declare(t, replaced)
			a.tool.SyncEvery(time.Second) // a sync fails if a controller writes at the same time
			require.Eventually(t, func() bool {
				return valueAt(a.object(), "/spec/replicas") == int64(harness.SubjectSize)
			}, harness.Patience, harness.Tick, "the tool's size goes through")
			a.tool.Pause()
			require.Equal(t, held[workload.AnnotationClaimedBy], marksOf(a.object())[workload.AnnotationClaimedBy])
			status := a.approveUntilDone()
			require.Equal(t, rollout.PhaseHealthy, status.Phase, status.Reason)
			require.Empty(t, marksOf(a.object()))
		})
	}
}

// manifestImage is the image of the workload's own template while its first step waits: another one would be an edit.
func (a *gitopsRelease) manifestImage(c cell) string {
	a.t.Helper()
	containers, _, err := unstructured.NestedSlice(a.object().Object, "spec", "template", "spec", "containers")
	require.NoError(a.t, err, c)
	return containers[0].(map[string]any)["image"].(string)
}
