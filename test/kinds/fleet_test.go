// Package kinds checks that one entry in the table of release/workload is all that another kind of workload needs.
package kinds_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/definition"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

var (
	fleets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "fleets"}
	ref    = catalog.WorkloadRef{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web"}
	twin   = catalog.WorkloadRef{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web"}
)

// A Fleet, which Slipway does not know, gets one entry: it behaves like a CloneSet. Everything that users can do with a
// CloneSet then works with a Fleet.
func TestNewKind_NeedsOneEntry(t *testing.T) {
	_, err := app.ParseWorkload("fleet/web")
	require.Error(t, err, "there is no such kind yet")
	known := workload.Kinds
	workload.Kinds = append(slices.Clone(known), workload.Kind{Resource: fleets, Kind: "Fleet", Short: "fl",
		Controller: workload.Of("apps.kruise.io", "CloneSet").Controller})
	t.Cleanup(func() { workload.Kinds = known })
	t.Run("Name", nameFleet)
	t.Run("Styles", stylesOfFleet)
	t.Run("Definition", fleetInDefinition)
	t.Run("Gate", fleetIsHeld)
	t.Run("Object", fleetOfObject)
	t.Run("Recovery", fleetIsRecovered)
	t.Run("Rollout", rollOutFleet)
}

// Users name a Fleet in every form in which they name other kinds.
func nameFleet(t *testing.T) {
	for _, text := range []string{"fleet/web", "fleets/web", "fl/web", "Fleet.example.com/web",
		"fleets.example.com/web"} {
		got, err := app.ParseWorkload(text)
		require.NoError(t, err, text)
		require.Equal(t, ref, got, text)
	}
	require.Equal(t, fleets, ref.Lookup().Resource)
	_, err := app.ParseWorkload("pod/web")
	require.ErrorContains(t, err, "cloneset, advancedstatefulset, advanceddaemonset, fleet", "the error lists it")
}

func decode(kind, strategyText string) strategy.Errors {
	_, errs := strategy.DecodeRequest([]byte("workloadRef: {" + kind + ", name: web}\nimages: {app: 'x:2'}\nstrategy: " +
		strategyText + "\n"))
	return errs
}

// A Fleet has the styles of a CloneSet, and what is refused for other kinds names it.
func stylesOfFleet(t *testing.T) {
	const kind, steps = "apiVersion: example.com/v1, kind: Fleet", "steps: [{replicas: 1}]"
	require.Empty(t, decode(kind, "{canary: {"+steps+"}}"))
	require.Empty(t, decode(kind, "{blueGreen: {"+steps+"}}"))
	require.ErrorContains(t, decode(kind, "{canary: {enableExtraWorkloadForCanary: true, "+steps+"}}"),
		"exists for Deployments only, not for a Fleet")
	require.ErrorContains(t, decode("apiVersion: apps/v1, kind: DaemonSet", "{blueGreen: {"+steps+"}}"),
		"blue-green exists for Deployments, CloneSets and Fleets only")
	require.ErrorContains(t, decode("apiVersion: example.com/v2, kind: Fleet", "{canary: {"+steps+"}}"),
		"write apiVersion: example.com/v1", "of another version")
	require.ErrorContains(t, decode("apiVersion: batch/v1, kind: Job", "{canary: {"+steps+"}}"),
		"StatefulSet of apps.kruise.io/v1beta1 and v1alpha1, Fleet of example.com/v1")
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		want, supported := pods.TechniqueOf(twin, style)
		got, ok := pods.TechniqueOf(ref, style)
		require.Equal(t, supported, ok, style)
		require.Equal(t, want, got, style)
	}
	require.True(t, pods.Borrows(ref, "/spec/minReadySeconds"), "a blue-green borrows it")
	require.False(t, pods.Borrows(ref, "/spec/paused"))
}

// The API server accepts Rollouts of Fleets by the rules of the definition.
func fleetInDefinition(t *testing.T) {
	text, err := os.ReadFile("../../deploy/crds/rollouts.kruise.io_rollouts.yaml")
	require.NoError(t, err)
	text, err = definition.Complete(text)
	require.NoError(t, err)
	oneLine := strings.Join(strings.Fields(string(text)), " ")
	for _, want := range []string{
		"'DaemonSet'] || self.apiVersion.startsWith('example.com/') && self.kind in ['Fleet']",
		"or a CloneSet, StatefulSet or DaemonSet of apps.kruise.io, or a Fleet of example.com",
		"self.workloadRef.apiVersion.startsWith('example.com/') && self.workloadRef.kind == 'Fleet'",
	} {
		require.Contains(t, oneLine, want)
	}
}

// The guard and the gate have their policies for Fleets, with the partition of a CloneSet.
func fleetIsHeld(t *testing.T) {
	texts := map[string]string{}
	for _, p := range guard.Policies(guard.Options{}, "v1", "v1") {
		texts[p.GetKind()+" "+p.GetName()] = fmt.Sprint(p.Object)
	}
	for _, name := range []string{"gate-", "rollouts-", ""} {
		got := texts["MutatingAdmissionPolicy slipway-guard-"+name+"fleets.example.com"]
		want := texts["MutatingAdmissionPolicy slipway-guard-"+name+"clonesets.apps.kruise.io"]
		require.Contains(t, got, `[JSONPatch{op: "add", path: "/spec/updateStrategy/partition", value: '100%'}]`)
		require.Equal(t, strings.NewReplacer("clonesets", "fleets", "CloneSet", "Fleet", "apps.kruise.io",
			"example.com").Replace(want), got, "the policies of a CloneSet, with other names")
	}
	old, edited := fleet("x:1").Object, fleet("x:2").Object
	named := v1beta1.Rollout{Spec: v1beta1.RolloutSpec{WorkloadRef: v1beta1.ObjectRef{APIVersion: ref.APIVersion,
		Kind: ref.Kind, Name: ref.Name}}}
	named.Name = "shop"
	held := jsonpatch.Apply(edited, hold.Kind(ref.Lookup()).Decide(hold.Edit{Old: old, New: edited, User: "anna",
		Rollouts: []v1beta1.Rollout{named}}))
	partition, _ := jsonpatch.At(held, "/spec/updateStrategy/partition")
	require.Equal(t, "100%", partition, "no pod moves")
	require.True(t, hold.Holds("example.com", "Fleet", held, "/spec/updateStrategy"))
	note, _ := jsonpatch.At(held, jsonpatch.Annotation(gate.AnnotationWhy))
	require.Contains(t, note, "holds this Fleet")
}

// A Rollout object shows the numbers and the revision of its Fleet.
func fleetOfObject(t *testing.T) {
	object := &v1beta1.Rollout{Spec: v1beta1.RolloutSpec{WorkloadRef: v1beta1.ObjectRef{APIVersion: "example.com/v1",
		Kind: "Fleet", Name: "web"}}}
	object.Spec.Strategy.Canary = &v1beta1.CanaryStrategy{}
	w := kruise.ReadWorkload(fleet("x:1"))
	require.True(t, kruise.References(object, w))
	require.Equal(t, []int32{4, 4, 4, 4}, []int32{w.Size, w.Total, w.Updated, w.Ready})
	status := kruise.IdleStatus(object, w, now)
	require.Equal(t, "aaa", status.CanaryStatus.PodTemplateHash, "as CloneSets label their pods")
}

// The commands for an emergency name the Fleet's resource, and wait for the field that its controller reports.
func fleetIsRecovered(t *testing.T) {
	text := rollout.RecoverText(rollout.Saved{Name: "web", Style: strategy.StylePartition, Stable: "web-aaa",
		Replicas: 4}, catalog.Workload{Namespace: "shop", WorkloadRef: ref})
	require.Contains(t, text, "kubectl -n shop patch fleets.example.com web")
	require.Contains(t, text, "get controllerrevisions.apps web-aaa")
	require.Contains(t, text, "wait fleets.example.com/web --for=jsonpath='{.status.updatedReadyReplicas}'=4")
}

// A rollout claims a Fleet and brings a quarter of its pods to the new version by its partition.
func rollOutFleet(t *testing.T) {
	h := newHarbour(t)
	subject := rollout.Subject{Workload: catalog.Workload{Namespace: "shop", WorkloadRef: ref}, Name: "web",
		Claim: "rollout/default/shop/web@run-1", DeadlineSeconds: 60, UnreachableBudgetSeconds: 30}
	change := strategy.Change{Images: map[string]string{"app": "x:2"}}
	var begun rollout.BeginResult
	h.call("begin", rollout.BeginRequest{Subject: subject, Change: change,
		Strategy: strategy.Strategy{Style: strategy.StylePartition,
			Steps: []strategy.Step{{Replicas: intstr.FromString("25%")}}}}, &begun)
	require.Equal(t, int32(4), begun.Replicas)
	require.Equal(t, "aaa", begun.StableHash)
	subject.UID = "u-web"
	var moved rollout.MoveResult
	h.call("move", rollout.MoveRequest{Subject: subject, Step: 1, Style: strategy.StylePartition,
		Replicas: intstr.FromString("25%"), Change: change, Settle: true}, &moved)
	require.Equal(t, int32(1), moved.UpdatedReady, moved.Message)
	require.Equal(t, "bbb", moved.CanaryHash, "the traffic is routed by this value")
	partition, _ := jsonpatch.At(h.fleet().Object, "/spec/updateStrategy/partition")
	require.Equal(t, "75%", partition)
	require.Equal(t, subject.Claim, h.fleet().GetAnnotations()["slipway.io/claimed-by"])
}
