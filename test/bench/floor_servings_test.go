package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

// servedProbe is the name of the observed serving. It occurs in the recorded writes and is replaced there.
const servedProbe = "servedprobe"

var (
	servicesResource   = corev1.SchemeGroupVersion.WithResource("services")
	configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// TestSoakServingsFloor measures the floor of TestSoakServingsAtOnce: what remains of a serving when nothing is
// decided.
//
//   - «plain» are the plain objects that all others are compared with.
//   - «writes» is a loop that writes what the creation of an observed serving wrote: the serving and its status, its
//     record and the record's end, a dry run of each party's Deployment, all objects of the parties, with their field
//     manager, and the release of the claim on each Deployment. It waits for all Deployments of a party through one
//     watch.
//   - «workflows» is that loop's body as the only activity of a workflow, on a worker within the benchmark.
//   - «checked» are these workflows with the remaining promises: conflicting objects are looked for before the first
//     write; the workers of parties have their own queue; progress is reported every two seconds; the centre's writes
//     are separate local activities; all objects are watched.
//   - «servings» are Slipway's.
func TestSoakServingsFloor(t *testing.T) {
	harness.Soak(t)
	const n = 200
	e := harness.Start(t, harness.Options{SeparateWorker: true})
	parties := []string{e.Namespace(t, "alice"), e.Namespace(t, "bob")}
	image := servingImage(t, e)
	seen := observeServing(t, e, parties, image)
	fmt.Printf("\nthe floor of %d servings of 2 parties, 1 pod each, created at once\n", n)
	ways := []way{
		{name: "plain", do: func(context.Context) {
			each(n, func(i int) { createPlain(t, e, parties, fmt.Sprintf("plain-%d", i)) })
			for _, party := range parties {
				waitFor(t, deploymentsOf(e, party), n, isAvailable)
			}
		}},
		{name: "writes", do: func(ctx context.Context) { seen.watching(ctx, t, e).loop(t, n) }},
		{name: "workflows", do: func(ctx context.Context) { seen.watching(ctx, t, e).workflows(t, e, n) }},
	}
	ways = append(ways, alternate(
		way{name: "checked", do: func(ctx context.Context) {
			seen.watching(ctx, t, e).withPromises(ctx, t, image).workflows(t, e, n)
		}},
		way{name: "servings", do: func(context.Context) { createServings(t, e, parties, image, n) }},
	)...)
	var plain usage
	for _, w := range withWarmUp(ways) {
		waitSettled(t, e)
		plain = w.measure(t, e, plain)
		removeServings(t, e)
		for _, party := range parties {
			deleteCompared(t, e, party)
		}
	}
	harness.Covered(t, n, "servings at once, and their floor")
}

// applied is what Slipway applied of an object.
type applied struct {
	resource schema.GroupVersionResource
	name     string
	body     []byte
}

// servingFloor is what the creation of one serving wrote: the serving, its record, and for each party the Deployment
// and the supporting objects applied before it.
type servingFloor struct {
	*floor
	serving     *unstructured.Unstructured
	parties     []string
	supporting  map[string][]applied
	deployments map[string]applied
	// image is the AppImage that is read for each serving; with "" none is read, and the further promises are not kept.
	image string
}

// observeServing creates one serving and returns what was written for it.
func observeServing(t *testing.T, e *harness.Engine, parties []string, image string) *servingFloor {
	createServing(e, servedProbe, parties, image)
	waitFor(t, servingsOf(t, e), 1, servingIsAvailable)
	kd, err := e.Dynamic(t).Resource(kuscia.KusciaDeploymentResource).Namespace(e.Home).Get(t.Context(), servedProbe,
		metav1.GetOptions{})
	require.NoError(t, err)
	records, err := e.Dynamic(t).Resource(recordsResource).Namespace(e.Home).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, records.Items, 1)
	s := &servingFloor{floor: newUnwatchedFloor(t, e, probeWrites{record: records.Items[0]}), serving: kd,
		parties: parties, supporting: map[string][]applied{}, deployments: map[string]applied{}}
	for _, party := range parties {
		s.collect(t, party)
	}
	removeServings(t, e)
	return s
}

// removeServings deletes all of Slipway's servings and waits until they are deleted.
func removeServings(t *testing.T, e *harness.Engine) {
	there := func(ctx context.Context) ([]string, error) {
		list, err := servingsOf(t, e).list(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var names []string
		err = meta.EachListItem(list, func(o runtime.Object) error {
			named, err := meta.Accessor(o)
			names = append(names, named.GetName())
			return err
		})
		return names, err
	}
	names, err := there(t.Context())
	require.NoError(t, err)
	each(len(names), func(i int) { e.MustKuscia("/api/v1/serving/delete", fmt.Sprintf(`{"serving_id":%q}`, names[i])) })
	require.Eventually(t, func() bool {
		left, err := there(t.Context())
		return err == nil && len(left) == 0
	}, maxWait, time.Second, "deleted servings still exist")
}

// collect adds the fields of a party's objects that Slipway applied.
func (s *servingFloor) collect(t *testing.T, party string) {
	of := metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=" + servedProbe}
	services, err := s.kube.CoreV1().Services(party).List(t.Context(), of)
	require.NoError(t, err)
	for i := range services.Items {
		body, err := corev1ac.ExtractService(&services.Items[i], serving.FieldManager)
		require.NoError(t, err)
		s.supporting[party] = append(s.supporting[party], bodyOf(t, servicesResource, services.Items[i].Name, body))
	}
	maps, err := s.kube.CoreV1().ConfigMaps(party).List(t.Context(), of)
	require.NoError(t, err)
	for i := range maps.Items {
		body, err := corev1ac.ExtractConfigMap(&maps.Items[i], serving.FieldManager)
		require.NoError(t, err)
		s.supporting[party] = append(s.supporting[party], bodyOf(t, configMapsResource, maps.Items[i].Name, body))
	}
	deployments, err := s.kube.AppsV1().Deployments(party).List(t.Context(), of)
	require.NoError(t, err)
	require.Len(t, deployments.Items, 1)
	body, err := appsv1ac.ExtractDeployment(&deployments.Items[0], serving.FieldManager)
	require.NoError(t, err)
	body.WithAnnotations(map[string]string{workload.AnnotationClaimedBy: serving.WorkflowPrefix(servedProbe) + "1"})
	s.deployments[party] = bodyOf(t, deploymentsResource, deployments.Items[0].Name, body)
}

// bodyOf returns what is applied of an object. The object and its pods get the comparison label and another
// controller's name, so that Slipway leaves them alone.
func bodyOf(t *testing.T, resource schema.GroupVersionResource, name string, fields any) applied {
	raw, err := json.Marshal(fields)
	require.NoError(t, err)
	var tree map[string]any
	require.NoError(t, json.Unmarshal(raw, &tree))
	marked := [][]string{{"metadata", "labels", comparisonLabel}}
	if resource == deploymentsResource {
		marked = append(marked, []string{"spec", "template", "metadata", "labels", comparisonLabel})
	}
	for _, path := range marked {
		require.NoError(t, unstructured.SetNestedField(tree, "", path...))
	}
	raw, err = json.Marshal(tree)
	require.NoError(t, err)
	return applied{resource: resource, name: name,
		body: []byte(strings.ReplaceAll(string(raw), fmt.Sprintf("%q", kuscia.ControllerName), `"Floor"`))}
}

// watching returns a copy that watches the parties' Deployments until the context ends.
func (s *servingFloor) watching(ctx context.Context, t *testing.T, e *harness.Engine) *servingFloor {
	f := *s
	f.floor = newUnwatchedFloor(t, e, s.seen)
	for _, party := range s.parties {
		f.watchObjects(ctx, t, deploymentsResource, party, func(d *unstructured.Unstructured) {
			if available, _, _ := unstructured.NestedInt64(d.Object, "status", "availableReplicas"); available > 0 {
				f.markReady(party + "/" + d.GetName())
			}
		})
	}
	return &f
}

// withPromises makes the floor keep the further promises, and watch the parties' other objects for them.
func (s *servingFloor) withPromises(ctx context.Context, t *testing.T, image string) *servingFloor {
	s.image = image
	for _, party := range s.parties {
		for _, resource := range []schema.GroupVersionResource{servicesResource, configMapsResource} {
			s.watchObjects(ctx, t, resource, party, func(*unstructured.Unstructured) {})
		}
	}
	return s
}

// loop creates n servings at once.
func (s *servingFloor) loop(t *testing.T, n int) {
	var all errgroup.Group
	for i := range n {
		all.Go(func() error {
			name := s.name(i)
			for _, do := range []func(context.Context, string) error{s.create, s.deploy, s.end} {
				if err := do(t.Context(), name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
}

func (s *servingFloor) name(i int) string { return fmt.Sprintf("%s-%d", s.id, i) }

// create creates the serving and its record, in a namespace in which Slipway does not serve.
func (s *servingFloor) create(ctx context.Context, name string) error {
	if s.image != "" {
		if _, err := s.objects.Resource(kuscia.AppImageResource).Get(ctx, s.image, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	kd := s.serving.DeepCopy()
	kd.Object["metadata"] = map[string]any{"name": name, "namespace": s.parties[0]}
	delete(kd.Object, "status")
	if _, err := s.servings().Create(ctx, kd, metav1.CreateOptions{}); err != nil {
		return err
	}
	return s.record(ctx, name)
}

func (s *servingFloor) servings() dynamic.ResourceInterface {
	return s.objects.Resource(kuscia.KusciaDeploymentResource).Namespace(s.parties[0])
}

// status writes the status of a serving with this phase.
func (s *servingFloor) status(ctx context.Context, name string, phase kuscia.Phase) error {
	kd, err := s.servings().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	status, _, _ := unstructured.NestedMap(s.serving.Object, "status")
	status["phase"] = string(phase)
	kd.Object["status"] = status
	_, err = s.servings().UpdateStatus(ctx, kd, metav1.UpdateOptions{})
	return err
}

// prepare makes a dry run of each party's Deployment.
func (s *servingFloor) prepare(ctx context.Context, name string) error {
	return s.forEachParty(ctx, func(ctx context.Context, party string) error {
		if err := s.requireAbsent(ctx, party, name, s.all(party)...); err != nil {
			return err
		}
		return s.apply(ctx, party, name, s.deployments[party], metav1.DryRunAll)
	})
}

// all returns the objects of a party, the Deployment last.
func (s *servingFloor) all(party string) []applied {
	return append(slices.Clone(s.supporting[party]), s.deployments[party])
}

// requireAbsent returns an error if one of the objects exists. Without promises it does not check.
func (s *servingFloor) requireAbsent(ctx context.Context, party, name string, objects ...applied) error {
	if s.image == "" {
		return nil
	}
	for _, o := range objects {
		_, err := s.objects.Resource(o.resource).Namespace(party).Get(ctx, s.renamed(o.name, name), metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("%s %s/%s already exists", o.resource.Resource, party, s.renamed(o.name, name))
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// deploy checks and creates each party's objects, waits for its pods, and releases the claim on its Deployment.
func (s *servingFloor) deploy(ctx context.Context, name string) error {
	for _, do := range []func(context.Context, string) error{s.markProgressing, s.prepare, s.createAndWait} {
		if err := do(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// deployParties is the part of deploy that a party's worker does.
func (s *servingFloor) deployParties(ctx context.Context, name string) error {
	if err := s.prepare(ctx, name); err != nil {
		return err
	}
	return s.createAndWait(ctx, name)
}

// markProgressing writes the phase Progressing.
func (s *servingFloor) markProgressing(ctx context.Context, name string) error {
	return s.status(ctx, name, kuscia.PhaseProgressing)
}

// createAndWait creates each party's objects, waits for its pods, and releases the claim on its Deployment.
func (s *servingFloor) createAndWait(ctx context.Context, name string) error {
	return s.forEachParty(ctx, func(ctx context.Context, party string) error {
		for _, o := range s.all(party) {
			if err := s.apply(ctx, party, name, o); err != nil {
				return err
			}
		}
		deployment := s.renamed(s.deployments[party].name, name)
		select {
		case <-s.whenReady(party + "/" + deployment):
		case <-ctx.Done():
			return ctx.Err()
		}
		free := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, workload.AnnotationClaimedBy)
		_, err := s.objects.Resource(deploymentsResource).Namespace(party).Patch(ctx, deployment, types.MergePatchType,
			[]byte(free), metav1.PatchOptions{FieldManager: floorQueue})
		return err
	})
}

// end writes the phase Available and completes the record.
func (s *servingFloor) end(ctx context.Context, name string) error {
	if err := s.status(ctx, name, kuscia.PhaseAvailable); err != nil {
		return err
	}
	return s.complete(ctx, name)
}

func (s *servingFloor) forEachParty(ctx context.Context, do func(ctx context.Context, party string) error) error {
	each, ctx := errgroup.WithContext(ctx)
	for _, party := range s.parties {
		each.Go(func() error { return do(ctx, party) })
	}
	return each.Wait()
}

func (s *servingFloor) renamed(text, name string) string {
	return strings.ReplaceAll(text, servedProbe, name)
}

func (s *servingFloor) apply(ctx context.Context, party, name string, o applied, dry ...string) error {
	body := []byte(s.renamed(string(o.body), name))
	_, err := s.objects.Resource(o.resource).Namespace(party).Patch(ctx, s.renamed(o.name, name), types.ApplyPatchType,
		body,
		metav1.PatchOptions{FieldManager: floorQueue, DryRun: dry})
	return err
}

// workflows creates n servings at once, each with a workflow of one activity.
func (s *servingFloor) workflows(t *testing.T, e *harness.Engine, n int) {
	w := floorWorker(e, floorQueue, n)
	w.RegisterWorkflowWithOptions(servingWorkflow, workflow.RegisterOptions{Name: "Serve"})
	w.RegisterWorkflowWithOptions(checkedServing, workflow.RegisterOptions{Name: "ServeChecked"})
	w.RegisterActivityWithOptions(s.withHeartbeats(s.deploy, heartbeatInterval),
		activity.RegisterOptions{Name: "Bring"})
	w.RegisterActivityWithOptions(s.markProgressing, activity.RegisterOptions{Name: "Begin"})
	w.RegisterActivityWithOptions(s.end, activity.RegisterOptions{Name: "End"})
	require.NoError(t, w.Start())
	defer w.Stop()
	party := floorWorker(e, floorParty, n)
	party.RegisterActivityWithOptions(s.withHeartbeats(s.deployParties, progressInterval),
		activity.RegisterOptions{Name: "Serve"})
	require.NoError(t, party.Start())
	defer party.Stop()
	kind := "Serve"
	if s.image != "" {
		kind = "ServeChecked"
	}
	allClosed(t, n, func(i int) (client.WorkflowRun, error) {
		if err := s.create(t.Context(), s.name(i)); err != nil {
			return nil, err
		}
		options := client.StartWorkflowOptions{TaskQueue: floorQueue, ID: s.name(i),
			TypedSearchAttributes: temporal.NewSearchAttributes(floorState.ValueSet("Preparing"))}
		return e.Workflows.ExecuteWorkflow(t.Context(), options, kind, s.name(i))
	})
}

// withHeartbeats returns the step with heartbeats at this interval.
func (s *servingFloor) withHeartbeats(step func(context.Context, string) error,
	every time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go s.heartbeat(ctx, every)
		return step(ctx, name)
	}
}

func servingWorkflow(ctx workflow.Context, name string) error {
	ctx = stepOptions(ctx, floorQueue)
	if err := workflow.ExecuteActivity(ctx, "Bring", name).Get(ctx, nil); err != nil {
		return err
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, floorState.ValueSet("Succeeded")); err != nil {
		return err
	}
	return localStep(ctx, "End", name)
}

// checkedServing issues the same commands as the workflow that creates a serving.
func checkedServing(ctx workflow.Context, name string) error {
	workflow.GetVersion(ctx, "floor", workflow.DefaultVersion, 1)
	if err := localStep(ctx, "Begin", name); err != nil {
		return err
	}
	party := stepOptions(ctx, floorParty)
	if err := workflow.ExecuteActivity(party, "Serve", name).Get(party, nil); err != nil {
		return err
	}
	return localStep(ctx, "End", name)
}

// stepOptions returns a context for activities of one attempt with heartbeats.
func stepOptions(ctx workflow.Context, queue string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: queue, StartToCloseTimeout: maxWait,
		HeartbeatTimeout: heartbeatTimeout,
		RetryPolicy:      &temporal.RetryPolicy{MaximumAttempts: 1}})
}

// localStep runs a write of the centre as a local activity.
func localStep(ctx workflow.Context, step, name string) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: maxWait})
	return workflow.ExecuteLocalActivity(ctx, step, name).Get(ctx, nil)
}
