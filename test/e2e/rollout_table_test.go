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
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
)

// A row of the table: something that a rollout borrows or makes, what somebody else does to it, and in which state of a step.
type row struct {
	cell
	state string
	// field is a borrowed field of the workload by its JSON Pointer; "": object is an object beside the workload.
	field  string
	object lent
	// deleted: the field, or the object, is taken away; otherwise it is changed.
	deleted bool
}

func (r row) String() string {
	deed, what := "Changed", r.object.String()
	if r.deleted {
		deed = "Deleted"
	}
	if r.field != "" {
		what = strings.ReplaceAll(strings.TrimPrefix(r.field, "/"), "/", ".")
	}
	return fmt.Sprintf("%s/%s/%s/%s", r.cell, r.state, what, deed)
}

// lent is an object beside the workload that carries the label of borrowed ones.
type lent struct {
	resource schema.GroupVersionResource
	canary   bool
}

func (l lent) String() string {
	if l.canary {
		return l.resource.Resource + "-canary"
	}
	return l.resource.Resource
}

func (l lent) name() string {
	if l.canary {
		return "order" + strategy.CanarySuffix
	}
	return "order"
}

// theirFields are what somebody else writes into a borrowed field: the first that changes anything. A technique that borrows another field has to be given its
// line here.
var theirFields = map[string][]string{
	"/spec/strategy":                {`{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"60%","maxSurge":1}}}}`},
	"/spec/minReadySeconds":         {`{"spec":{"minReadySeconds":5}}`},
	"/spec/progressDeadlineSeconds": {`{"spec":{"progressDeadlineSeconds":700}}`},
	"/spec/paused":                  {`{"spec":{"paused":false}}`, `{"spec":{"paused":true}}`},
	"/spec/revisionHistoryLimit":    {`{"spec":{"revisionHistoryLimit":1}}`},
	"/spec/updateStrategy":          {`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`, `{"spec":{"updateStrategy":{"maxSurge":1}}}`},
}

var (
	servicesResource  = corev1.SchemeGroupVersion.WithResource("services")
	ingressesResource = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	scalersResource   = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
)

// theirObjects are what somebody else changes of an object. A kind that a rollout borrows or makes besides has to be given its line here.
var theirObjects = map[lent]string{
	{servicesResource, false}:        `{"spec":{"selector":{"pod-template-hash":null,"controller-revision-hash":null}}}`,
	{servicesResource, true}:         `{"spec":{"selector":{"app":"nobody"}}}`,
	{ingressesResource, true}:        `{"metadata":{"annotations":{"nginx.ingress.kubernetes.io/canary-weight":"77"}}}`,
	{harness.HTTPRoutes, false}:      `{"spec":{"rules":[{"backendRefs":[{"name":"order","port":80}]}]}}`,
	{harness.VirtualServices, false}: `{"spec":{"http":[{"route":[{"destination":{"host":"order"}}]}]}}`,
	{scalersResource, false}:         `{"spec":{"minReplicas":3,"maxReplicas":9}}`,
	{harness.Deployment.GVR, true}:   `{"spec":{"replicas":0}}`,
}

// notOurs are objects of the user's that a release cannot make again: it waits for a person who does.
func (r row) notOurs() bool {
	return r.deleted && r.field == "" && !r.object.canary && r.object.resource != scalersResource
}

// watched are the kinds of object in which those are looked for that carry the label.
var watchedKinds = []schema.GroupVersionResource{servicesResource, ingressesResource, harness.HTTPRoutes, harness.VirtualServices, scalersResource,
	harness.Deployment.GVR}

// lentOf are the objects beside the workload that carry the label of borrowed ones now.
func (r *release) lentOf() (found []lent) {
	r.t.Helper()
	for _, kind := range watchedKinds {
		list, err := r.Dynamic(r.t).Resource(kind).Namespace(r.Apps).List(context.Background(), metav1.ListOptions{LabelSelector: workloadops.SelectClaimed})
		if apierrors.IsNotFound(err) {
			continue
		}
		require.NoError(r.t, err)
		for _, o := range list.Items {
			if o.GetName() == r.rollout.Name && kind == r.rollout.Kind.GVR {
				continue // the workload itself
			}
			found = append(found, lent{kind, strings.HasSuffix(o.GetName(), strategy.CanarySuffix)})
		}
	}
	return found
}

// fieldRows are the rows of the borrowed fields of a technique, in every state.
func fieldRows(t *testing.T) (rows []row) {
	t.Helper()
	for _, place := range matrix() {
		if place.provider != harness.Nginx {
			continue // whoever brings the traffic, the fields are the same
		}
		technique, known := pods.TechniqueOf(place.kind.Ref("order"), place.style)
		require.True(t, known)
		for _, field := range technique.Pointers() {
			require.Contains(t, theirFields, field, "a field that a technique borrows has no row: say in theirFields what somebody else writes into it")
			rows = append(rows, inEveryState(row{cell: place.cell, field: field})...)
		}
	}
	return rows
}

// objectRows are the rows of the objects that a rollout of a Deployment borrows or makes with a provider: those that carry the label when a step rests.
func objectRows(t *testing.T, e *harness.Engine) (rows []row) {
	t.Helper()
	for _, c := range styles {
		for _, provider := range harness.Providers {
			t.Run("Found/"+string(c.style)+"/"+string(provider), func(t *testing.T) {
				r := begin(t, e, deploymentBy(c.style, provider), nil)
				r.approve(1)
				r.rest(2)
				for _, object := range r.lentOf() {
					require.Contains(t, theirObjects, object, "an object that a rollout borrows or makes has no row: say in theirObjects what somebody else changes of it")
					rows = append(rows, inEveryState(row{cell: deploymentBy(c.style, provider), object: object})...)
				}
				require.GreaterOrEqual(t, len(r.lentOf()), 3, "the Services and what routes to them carry the label")
				r.verb("rollback", "")
				r.endsStable()
			})
		}
	}
	return rows
}

func inEveryState(base row) (rows []row) {
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

// Every borrowed field and object, changed or deleted by somebody else in every state of a step: no request meets nobody, no pod goes below the floor, and what
// the rollout wrote is put back and on record, or it waits for a person.
func TestSoakRolloutTableOfFields(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e := harness.Shared(t)
	runRows(t, e, fieldRows(t))
}

func TestSoakRolloutTableOfObjects(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e := harness.Shared(t)
	runRows(t, e, objectRows(t, e))
}

// A route.
func TestRolloutBorrowedObjectsAmongNeighbours(t *testing.T) {
	t.Parallel()
	runRows(t, harness.Shared(t), []row{
		{cell: deploymentBy(strategy.StyleCanary, harness.Nginx), state: "Paused", object: lent{ingressesResource, true}, deleted: true},
	})
}

// One row of each other kind of object.
func TestLongRolloutBorrowedObjectsAmongNeighbours(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	runRows(t, harness.Shared(t), []row{
		{cell: deploymentBy(strategy.StylePartition, harness.Gateway), state: "AtRest", object: lent{servicesResource, false}},
		{cell: deploymentBy(strategy.StylePartition, harness.Gateway), state: "AtRest", object: lent{harness.HTTPRoutes, false}},
		{cell: deploymentBy(strategy.StyleCanary, harness.Istio), state: "AtRest", object: lent{harness.Deployment.GVR, true}, deleted: true},
		{cell: deploymentBy(strategy.StyleBlueGreen, harness.Istio), state: "AtRest", object: lent{scalersResource, false}},
	})
}

func runRows(t *testing.T, e *harness.Engine, rows []row) {
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
	harness.Covered(t, int(done.Load()), "things that somebody else changed or deleted in the middle of a rollout")
}

// run goes through a row. false: in this state there is nothing to change or to delete, or the API server refuses it.
func (r row) run(t *testing.T, e *harness.Engine) bool {
	t.Helper()
	state := stepStates[r.state]
	rel := begin(t, e, r.cell, state.prepare)
	state.reach(rel)
	kind, name := r.object.resource, r.object.name()
	if r.field != "" {
		kind, name = rel.rollout.Kind.GVR, rel.rollout.Name
	}
	before := rel.written(kind, name, r.field)
	rel.watch.SomebodyElse(t)
	if state.moves && rel.rollout.Kind.Kind == "DaemonSet" {
		// Its own controller replaces unready old pods beside as many as may be out, and does not see at once what the engine has just taken.
		rel.watch.PodTaken(t)
	}
	did := (before != nil || r.field != "" && !r.deleted) && r.does(rel, kind, name, before)
	switch {
	case state.back:
		rel.endsStableAfter()
	case state.through:
		rel.endsEitherWay()
	case did:
		rel.isMended(r, state, kind, name, before)
		rel.MustVerb(rel.rollout.Name, "rollback", "")
		rel.endsStableAfter()
	default:
		rel.MustVerb(rel.rollout.Name, "stop", "")
		rel.endsStableAfter()
	}
	return did
}

// isMended waits until what somebody else has done is put back, or a person is waited for.
func (r *release) isMended(one row, state stepState, kind schema.GroupVersionResource, name string, before any) {
	r.t.Helper()
	theirs := r.written(kind, name, one.field)
	status := r.WaitRollout(r.rollout.Name, "put back, or waiting for a person", func(s rollout.Status) bool {
		return r.heldByThem(s) || state.moves && s.CurrentStepState == rollout.StatePaused || one.told(s) || one.harmless() ||
			one.recorded(s) && !one.madeLater()
	})
	held := r.heldByThem(status) || one.told(status) && !one.madeLater()
	if !held && !one.madeLater() && !one.harmless() && !state.moves {
		now := theirs
		require.Eventually(r.t, func() bool {
			now = r.written(kind, name, one.field)
			// Half way through a step a partition is put to where the pods are by then.
			return reflect.DeepEqual(before, now) || one.field == "/spec/updateStrategy" && one.state == "HeldHalfWay" && !reflect.DeepEqual(theirs, now)
		}, harness.Patience, harness.Tick, "it is not put back to %v", before)
	}
	require.Equal(r.t, one.notOurs(), held, "only what cannot be made again waits for a person: %s", status.Reason)
	r.watch.WaitStill(r.t)
	r.watch.RequirePromises(r.t)
}

// harmless is what nothing has to follow from: an autoscaler that is gone scales nothing.
func (r row) harmless() bool {
	return r.deleted && r.field == "" && r.object.resource == scalersResource
}

// recorded says whether the history tells that it was put back.
func (r row) recorded(s rollout.Status) bool {
	return slices.ContainsFunc(s.History, func(e audit.Entry) bool { return e.Verb == "restored" || e.Verb == "rerouted" })
}

// told says whether the history of a rollout that waits for a person already, since it has failed, tells what was deleted besides.
func (r row) told(s rollout.Status) bool {
	return slices.ContainsFunc(s.History, func(e audit.Entry) bool {
		return r.state == "Failed" && strings.Contains(e.Message, "was deleted by somebody else") || r.madeLater() && strings.Contains(e.Message, "it is made again")
	})
}

// madeLater says that it is an extra Deployment that is deleted while somebody holds the rollout, or it has failed: how large it is to be is decided when it goes on.
func (r row) madeLater() bool {
	return r.deleted && r.object == lent{harness.Deployment.GVR, true} && (r.state == "HeldHalfWay" || r.state == "Failed")
}

func (r *release) heldByThem(s rollout.Status) bool {
	return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
}

// does what somebody else does; false: it changes nothing, or the API server refuses it, as a progressDeadlineSeconds below the gate.
func (r row) does(rel *release, kind schema.GroupVersionResource, name string, before any) bool {
	rel.t.Helper()
	objects := rel.Dynamic(rel.t).Resource(kind).Namespace(rel.Apps)
	gone := func(err error) bool { return apierrors.IsNotFound(err) && stepStates[r.state].back } // the way back takes the traffic first
	if r.field == "" && r.deleted {
		err := objects.Delete(context.Background(), name, metav1.DeleteOptions{})
		if gone(err) {
			return false
		}
		require.NoError(rel.t, err)
		return true
	}
	for _, patch := range r.patches() {
		patched, err := objects.Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "neighbour"})
		if apierrors.IsInvalid(err) || gone(err) {
			continue
		}
		require.NoError(rel.t, err)
		if !reflect.DeepEqual(before, writtenOf(patched, r.field)) {
			return true
		}
	}
	return false
}

func (r row) patches() []string {
	last := r.field[strings.LastIndexByte(r.field, '/')+1:]
	switch {
	case r.field == "":
		return []string{theirObjects[r.object]}
	case r.deleted:
		return []string{fmt.Sprintf(`{"spec":{%q:null}}`, last)}
	case r.kind == harness.CloneSet:
		return append([]string{strings.ReplaceAll(theirFields[r.field][0], `{"rollingUpdate":{"partition":0}}`, `{"partition":0}`)}, theirFields[r.field][1:]...)
	default:
		return theirFields[r.field]
	}
}

// written is what stands in a field, or of an object but its metadata; nil when it is not there.
func (r *release) written(kind schema.GroupVersionResource, name, field string) any {
	r.t.Helper()
	o, err := r.Dynamic(r.t).Resource(kind).Namespace(r.Apps).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r.t, err)
	return writtenOf(o, field)
}

// writtenOf is what stands in a field, or of an object. Of metadata the annotations of routes count.
func writtenOf(o *unstructured.Unstructured, field string) any {
	if field != "" {
		value, _, _ := unstructured.NestedFieldCopy(o.Object, strings.Split(strings.TrimPrefix(field, "/"), "/")...)
		return value
	}
	if _, claimed := o.GetLabels()[workloadops.LabelClaimed]; !claimed {
		return nil
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	for _, given := range []string{"clusterIP", "clusterIPs"} {
		delete(spec, given) // by the API server, to an object that is made again
	}
	return map[string]any{"spec": spec, "weight": o.GetAnnotations()["nginx.ingress.kubernetes.io/canary-weight"]}
}

// endsEitherWay waits for the end at the new version, or for a person, who then goes back.
func (r *release) endsEitherWay() {
	r.t.Helper()
	status := r.WaitRollout(r.rollout.Name, "the end, or a person", func(s rollout.Status) bool { return s.Phase.Final() || r.heldByThem(s) })
	if status.Phase.Final() {
		require.Equal(r.t, rollout.PhaseHealthy, status.Phase, status.Reason)
		r.watch.RequirePromises(r.t)
		r.watch.RequireNothingOfOurs(r.t)
		return
	}
	r.MustVerb(r.rollout.Name, "rollback", "")
	r.endsStableAfter()
}

// endsStableAfter waits for the end at the stable version. What somebody else has deleted of theirs is not there.
func (r *release) endsStableAfter() {
	r.t.Helper()
	r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
	r.watch.RequirePromises(r.t)
	r.watch.RequireNothingOfOurs(r.t)
}
