package e2e

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

// driftRow is a case of the drift table: a field or object that a rollout borrows or creates, the change that another
// client makes to it, and the state of the step.
type driftRow struct {
	cell
	state string
	// field is the JSON Pointer of a borrowed field of the workload; "" if the case is about object.
	field string
	// object is an object other than the workload.
	object borrowedObject
	// deleted is true when the field or object is deleted, false when it is changed.
	deleted bool
}

func (r driftRow) String() string {
	change, what := "Changed", r.object.String()
	if r.deleted {
		change = "Deleted"
	}
	if r.field != "" {
		what = strings.ReplaceAll(strings.TrimPrefix(r.field, "/"), "/", ".")
	}
	return fmt.Sprintf("%s/%s/%s/%s", r.cell, r.state, what, change)
}

// borrowedObject is an object other than the workload that carries the label of borrowed objects.
type borrowedObject struct {
	resource schema.GroupVersionResource
	canary   bool
}

func (l borrowedObject) String() string {
	if l.canary {
		return l.resource.Resource + "-canary"
	}
	return l.resource.Resource
}

func (l borrowedObject) name() string {
	if l.canary {
		return "order" + strategy.CanarySuffix
	}
	return "order"
}

// foreignFieldPatches are the patches that another client sends for a borrowed field, by JSON Pointer; the first one
// that changes the field is used. A technique that borrows another field needs an entry here.
var foreignFieldPatches = map[string][]string{
	"/spec/strategy": {
		`{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"60%","maxSurge":1}}}}`},
	"/spec/minReadySeconds":         {`{"spec":{"minReadySeconds":5}}`},
	"/spec/progressDeadlineSeconds": {`{"spec":{"progressDeadlineSeconds":700}}`},
	"/spec/paused":                  {`{"spec":{"paused":false}}`, `{"spec":{"paused":true}}`},
	"/spec/revisionHistoryLimit":    {`{"spec":{"revisionHistoryLimit":1}}`},
	"/spec/updateStrategy": {`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`,
		`{"spec":{"updateStrategy":{"maxSurge":1}}}`},
}

var (
	servicesResource  = corev1.SchemeGroupVersion.WithResource("services")
	ingressesResource = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	scalersResource   = schema.GroupVersionResource{Group: "autoscaling", Version: "v2",
		Resource: "horizontalpodautoscalers"}
)

// foreignObjectPatches are the patches that another client sends for an object. Another kind that a rollout borrows or
// creates needs an entry here.
var foreignObjectPatches = map[borrowedObject]string{
	{servicesResource,
		false}: `{"spec":{"selector":{"pod-template-hash":null,"controller-revision-hash":null}}}`,
	{servicesResource, true}:         `{"spec":{"selector":{"app":"nobody"}}}`,
	{ingressesResource, true}:        `{"metadata":{"annotations":{"nginx.ingress.kubernetes.io/canary-weight":"77"}}}`,
	{harness.HTTPRoutes, false}:      `{"spec":{"rules":[{"backendRefs":[{"name":"order","port":80}]}]}}`,
	{harness.VirtualServices, false}: `{"spec":{"http":[{"route":[{"destination":{"host":"order"}}]}]}}`,
	{scalersResource, false}:         `{"spec":{"minReplicas":3,"maxReplicas":9}}`,
	{harness.Deployment.GVR, true}:   `{"spec":{"replicas":0}}`,
}

// cannotRecreate reports whether the case deletes an object of the user that a release cannot create again; the release
// waits for the user.
func (r driftRow) cannotRecreate() bool {
	return r.deleted && r.field == "" && !r.object.canary && r.object.resource != scalersResource
}

// watchedKinds are the kinds in which borrowedObjects searches for the label.
var watchedKinds = []schema.GroupVersionResource{servicesResource, ingressesResource, harness.HTTPRoutes,
	harness.VirtualServices, scalersResource,
	harness.Deployment.GVR}

// borrowedObjects returns the objects other than the workload that currently carry the label of borrowed objects.
func (r *release) borrowedObjects() (found []borrowedObject) {
	r.t.Helper()
	for _, kind := range watchedKinds {
		list, err := r.Dynamic(r.t).Resource(kind).Namespace(r.Apps).List(context.Background(),
			metav1.ListOptions{LabelSelector: workload.SelectClaimed})
		if apierrors.IsNotFound(err) {
			continue
		}
		require.NoError(r.t, err)
		for _, o := range list.Items {
			if o.GetName() == r.rollout.Name && kind == r.rollout.Kind.GVR {
				continue // the workload itself
			}
			found = append(found, borrowedObject{kind, strings.HasSuffix(o.GetName(), strategy.CanarySuffix)})
		}
	}
	return found
}

// fieldRows returns the cases for the borrowed fields of every technique, in every state.
func fieldRows(t *testing.T) (rows []driftRow) {
	t.Helper()
	for _, place := range matrix() {
		if place.provider != harness.Nginx {
			continue // the borrowed fields do not depend on the traffic provider
		}
		technique, known := pods.TechniqueOf(place.kind.Ref("order"), place.style)
		require.True(t, known)
		for _, field := range technique.Pointers() {
			require.Contains(t, foreignFieldPatches, field,
				"a field that a technique borrows has no case: add the patch of another client to foreignFieldPatches")
			rows = append(rows, inEveryState(driftRow{cell: place.cell, field: field})...)
		}
	}
	return rows
}

// objectRows returns the cases for the objects that a rollout of a Deployment borrows or creates with each provider:
// those that carry the label while a step waits.
func objectRows(t *testing.T, e *harness.Engine) (rows []driftRow) {
	t.Helper()
	for _, c := range styles {
		for _, provider := range harness.Providers {
			t.Run("Found/"+string(c.style)+"/"+string(provider), func(t *testing.T) {
				r := startRelease(t, e, deploymentCell(c.style, provider), nil)
				r.approve(1)
				r.waitPaused(2)
				for _, object := range r.borrowedObjects() {
					require.Contains(t, foreignObjectPatches, object,
						"an object that a rollout borrows or creates has no case: add the patch of another client to "+
							"foreignObjectPatches")
					rows = append(rows, inEveryState(
						driftRow{cell: deploymentCell(c.style, provider), object: object})...)
				}
				require.GreaterOrEqual(t, len(r.borrowedObjects()), 3, "the Services and their routes carry the label")
				r.sendVerb("rollback", "")
				r.requireRolledBack()
			})
		}
	}
	return rows
}

func inEveryState(base driftRow) (rows []driftRow) {
	for _, name := range slices.Sorted(maps.Keys(stepStates)) {
		if fits := stepStates[name].fits; fits != nil && !fits(base.cell) {
			continue
		}
		for _, deleted := range []bool{false, true} {
			r := base
			r.state, r.deleted = name, deleted
			rows = append(rows, r)
		}
	}
	return rows
}

// Another client changes or deletes every borrowed field and object in every state of a step. Every request finds a
// ready pod, the number of ready pods stays above the limit, and the rollout restores and records its own value, or
// waits for the user.
func TestSoakRolloutRestoresBorrowedFields_InEveryState(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e := harness.Shared(t)
	runRows(t, e, fieldRows(t))
}

func TestSoakRolloutRestoresBorrowedObjects_InEveryState(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e := harness.Shared(t)
	runRows(t, e, objectRows(t, e))
}

// The canary Ingress.
func TestRolloutRestoresCanaryIngress_WhenDeletedWhilePaused(t *testing.T) {
	t.Parallel()
	runRows(t, harness.Shared(t), []driftRow{
		{cell: deploymentCell(strategy.StyleCanary, harness.Nginx), state: "Paused",
			object: borrowedObject{ingressesResource, true}, deleted: true},
	})
}

// One case of each other kind of object.
func TestLongRolloutRestoresBorrowedObjects_OneCasePerKind(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	runRows(t, harness.Shared(t), []driftRow{
		{cell: deploymentCell(strategy.StylePartition, harness.Gateway), state: "AtApproval",
			object: borrowedObject{servicesResource, false}},
		{cell: deploymentCell(strategy.StylePartition, harness.Gateway), state: "AtApproval",
			object: borrowedObject{harness.HTTPRoutes, false}},
		{cell: deploymentCell(strategy.StyleCanary, harness.Istio), state: "AtApproval",
			object: borrowedObject{harness.Deployment.GVR, true}, deleted: true},
		{cell: deploymentCell(strategy.StyleBlueGreen, harness.Istio), state: "AtApproval",
			object: borrowedObject{scalersResource, false}},
	})
}

func runRows(t *testing.T, e *harness.Engine, rows []driftRow) {
	t.Helper()
	var done atomic.Int32
	t.Run("rows", func(t *testing.T) {
		for _, one := range rows {
			t.Run(one.String(), func(t *testing.T) {
				t.Parallel()
				if one.run(t, e) {
					done.Add(1)
				}
			})
		}
	})
	harness.Covered(t, int(done.Load()), "changes and deletions by another client during a rollout")
}

// run executes the case. It returns false if there was nothing to change or delete in this state, or the API server
// refused the change.
func (r driftRow) run(t *testing.T, e *harness.Engine) bool {
	t.Helper()
	state := stepStates[r.state]
	rel := startRelease(t, e, r.cell, state.prepare)
	state.reach(rel)
	kind, name := r.object.resource, r.object.name()
	if r.field != "" {
		kind, name = rel.rollout.Kind.GVR, rel.rollout.Name
	}
	before := rel.readValue(kind, name, r.field)
	rel.watch.ForeignChange(t)
	if state.podsMoving && rel.rollout.Kind.Kind == "DaemonSet" {
		// Its controller replaces unready old pods in addition to maxUnavailable, and does not see at once which pods
		// the engine has just deleted.
		rel.watch.ForeignPodDeletion(t)
	}
	changed := (before != nil || r.field != "" && !r.deleted) && r.applyForeignChange(rel, kind, name, before)
	switch {
	case state.rollingBack:
		rel.endsStableAfter()
	case state.promoting:
		rel.endsEitherWay()
	case changed:
		rel.requireReverted(r, state, kind, name, before)
		rel.MustVerb(rel.rollout.Name, "rollback", "")
		rel.endsStableAfter()
	default:
		rel.MustVerb(rel.rollout.Name, "stop", "")
		rel.endsStableAfter()
	}
	return changed
}

// requireReverted waits until the foreign change is reverted, or the rollout waits for the user.
func (r *release) requireReverted(one driftRow, state stepState, kind schema.GroupVersionResource, name string,
	before any) {
	r.t.Helper()
	theirs := r.readValue(kind, name, one.field)
	status := r.WaitRollout(r.rollout.Name, "the change to be reverted, or a wait for the user",
		func(s rollout.Status) bool {
			return r.waitsForDrift(s) || state.podsMoving && s.CurrentStepState == rollout.StatePaused ||
				one.deletionRecorded(s) || one.harmless() ||
				one.recorded(s) && !one.recreatedOnResume()
		})
	held := r.waitsForDrift(status) || one.deletionRecorded(status) && !one.recreatedOnResume()
	if !held && !one.recreatedOnResume() && !one.harmless() && !state.podsMoving {
		now := theirs
		require.Eventually(r.t, func() bool {
			now = r.readValue(kind, name, one.field)
			// In the middle of a step the partition is set to match the pods that are new by then.
			return reflect.DeepEqual(before, now) || one.field == "/spec/updateStrategy" &&
				one.state == "PausedMidStep" && !reflect.DeepEqual(theirs, now)
		}, harness.Patience, harness.Tick, "it is not restored to %v", before)
	}
	require.Equal(r.t, one.cannotRecreate(), held,
		"the rollout waits for the user only if it cannot recreate the object: %s", status.Reason)
	r.watch.WaitSettled(r.t)
	r.watch.RequirePromises(r.t)
}

// harmless reports whether the case needs no reaction: a deleted autoscaler scales nothing.
func (r driftRow) harmless() bool {
	return r.deleted && r.field == "" && r.object.resource == scalersResource
}

// recorded reports whether the history has an entry of the restore.
func (r driftRow) recorded(s rollout.Status) bool {
	return slices.ContainsFunc(s.History, func(e audit.Entry) bool {
		return e.Verb == "restored" || e.Verb == "rerouted"
	})
}

// deletionRecorded reports whether the history of a rollout that already waits for the user has an entry of the
// deletion.
func (r driftRow) deletionRecorded(s rollout.Status) bool {
	return slices.ContainsFunc(s.History, func(e audit.Entry) bool {
		return r.state == "Failed" && strings.Contains(e.Message, "was deleted by another client") ||
			r.recreatedOnResume() && strings.Contains(e.Message, "it is created again")
	})
}

// recreatedOnResume reports whether the case deletes the canary Deployment while the rollout is paused in mid-step or
// has failed. Its size is decided when the rollout continues.
func (r driftRow) recreatedOnResume() bool {
	return r.deleted && r.object == borrowedObject{harness.Deployment.GVR, true} &&
		(r.state == "PausedMidStep" || r.state == "Failed")
}

// waitsForDrift reports whether the rollout waits because of a change by another client.
func (r *release) waitsForDrift(s rollout.Status) bool {
	return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
}

// applyForeignChange makes the change of the other client. It returns false if that changes nothing or the API server
// refuses it, for example a progressDeadlineSeconds that does not exceed minReadySeconds.
func (r driftRow) applyForeignChange(rel *release, kind schema.GroupVersionResource, name string, before any) bool {
	rel.t.Helper()
	objects := rel.Dynamic(rel.t).Resource(kind).Namespace(rel.Apps)
	// a rollback removes the traffic objects first
	missing := func(err error) bool { return apierrors.IsNotFound(err) && stepStates[r.state].rollingBack }
	if r.field == "" && r.deleted {
		err := objects.Delete(context.Background(), name, metav1.DeleteOptions{})
		if missing(err) {
			return false
		}
		require.NoError(rel.t, err)
		return true
	}
	for _, patch := range r.patches() {
		patched, err := objects.Patch(context.Background(), name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{FieldManager: "neighbour"})
		if apierrors.IsInvalid(err) || missing(err) {
			continue
		}
		require.NoError(rel.t, err)
		if !reflect.DeepEqual(before, valueOf(patched, r.field)) {
			return true
		}
	}
	return false
}

func (r driftRow) patches() []string {
	last := r.field[strings.LastIndexByte(r.field, '/')+1:]
	switch {
	case r.field == "":
		return []string{foreignObjectPatches[r.object]}
	case r.deleted:
		return []string{fmt.Sprintf(`{"spec":{%q:null}}`, last)}
	case r.kind == harness.CloneSet:
		return append([]string{strings.ReplaceAll(foreignFieldPatches[r.field][0], `{"rollingUpdate":{"partition":0}}`,
			`{"partition":0}`)}, foreignFieldPatches[r.field][1:]...)
	default:
		return foreignFieldPatches[r.field]
	}
}

// readValue reads the object and returns its valueOf; nil if the object does not exist.
func (r *release) readValue(kind schema.GroupVersionResource, name, field string) any {
	r.t.Helper()
	o, err := r.Dynamic(r.t).Resource(kind).Namespace(r.Apps).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r.t, err)
	return valueOf(o, field)
}

// valueOf returns the value of the field, or, if field is "", the spec and the canary weight annotation of an object
// that carries the label of borrowed objects.
func valueOf(o *unstructured.Unstructured, field string) any {
	if field != "" {
		value, _, _ := unstructured.NestedFieldCopy(o.Object, strings.Split(strings.TrimPrefix(field, "/"), "/")...)
		return value
	}
	if _, claimed := o.GetLabels()[workload.LabelClaimed]; !claimed {
		return nil
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	for _, assigned := range []string{"clusterIP", "clusterIPs"} {
		delete(spec, assigned) // the API server assigns new ones to a recreated object
	}
	return map[string]any{"spec": spec, "weight": o.GetAnnotations()["nginx.ingress.kubernetes.io/canary-weight"]}
}

// endsEitherWay waits until the release ends at the new version, or waits for the user; it then rolls back.
func (r *release) endsEitherWay() {
	r.t.Helper()
	status := r.WaitRollout(r.rollout.Name, "the end, or a wait for the user", func(s rollout.Status) bool {
		return s.Phase.Final() || r.waitsForDrift(s)
	})
	if status.Phase.Final() {
		require.Equal(r.t, rollout.PhaseHealthy, status.Phase, status.Reason)
		r.watch.RequirePromises(r.t)
		r.watch.RequireNoLeftovers(r.t)
		return
	}
	r.MustVerb(r.rollout.Name, "rollback", "")
	r.endsStableAfter()
}

// endsStableAfter waits for the end at the stable version. It does not require the objects of the user that another
// client deleted.
func (r *release) endsStableAfter() {
	r.t.Helper()
	r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
	r.watch.RequirePromises(r.t)
	r.watch.RequireNoLeftovers(r.t)
}
