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
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
)

// servedProbe is the name of the serving that is looked at: it stands in what was written, and is replaced there.
const servedProbe = "servedprobe"

var (
	servicesResource   = corev1.SchemeGroupVersion.WithResource("services")
	configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// The floor of TestSoakServingsAtOnce: what of a serving is left when nothing is decided.
//
//   - «plain» are the objects that everything is compared with.
//   - «writes» is a loop that writes what the creation of a serving was seen to write: the serving and its status, its record and that one's end, a trial of each
//     party's Deployment, all objects of the parties, each of which belongs to whoever made it, and the end of the claim on each Deployment. It waits for all
//     Deployments of a party by one watch.
//   - «workflows» is that loop's body as the only activity of a workflow, on a worker within the benchmark.
//   - «checked» are these workflows with what is promised besides: what stands in the way is read before anything is written; parties' workers have a queue of their
//     own; steps are told every two seconds; the centre's writes are its own; all objects are watched.
//   - «servings» are Slipway's.
func TestSoakServingsFloor(t *testing.T) {
	harness.Soak(t)
	const n = 200
	e := harness.Start(t, harness.Options{Apart: true})
	parties := []string{e.Namespace(t, "alice"), e.Namespace(t, "bob")}
	image := servingImage(t, e)
	seen := servedOf(t, e, parties, image)
	fmt.Printf("\nthe floor of %d servings of 2 parties, 1 pod each, created at once\n", n)
	ways := []way{
		{name: "plain", do: func(context.Context) {
			each(n, func(i int) { createPlain(t, e, parties, fmt.Sprintf("plain-%d", i)) })
			for _, party := range parties {
				waitFor(t, deploymentsOf(e, party), n, isAvailable)
			}
		}},
		{name: "writes", do: func(ctx context.Context) { seen.following(ctx, t, e).loop(t, n) }},
		{name: "workflows", do: func(ctx context.Context) { seen.following(ctx, t, e).workflows(t, e, n) }},
	}
	ways = append(ways, inTurns(
		way{name: "checked", do: func(ctx context.Context) { seen.following(ctx, t, e).promising(ctx, t, image).workflows(t, e, n) }},
		way{name: "servings", do: func(context.Context) { createServings(t, e, parties, image, n) }},
	)...)
	var plain usage
	for _, w := range between(ways) {
		settle(t, e)
		plain = w.measure(t, e, plain)
		removeServings(t, e)
		for _, party := range parties {
			clearAway(t, e, party)
		}
	}
	harness.Covered(t, n, "servings at once, and their floor")
}

// applied is what Slipway has applied of an object.
type applied struct {
	resource schema.GroupVersionResource
	name     string
	body     []byte
}

// servedOnce is what the creation of one serving has written: the serving, its record, and of each party the Deployment and what is applied before it.
type servedOnce struct {
	*floor
	serving     *unstructured.Unstructured
	parties     []string
	rest        map[string][]applied
	deployments map[string]applied
	// image is the AppImage that is read for each; "": none is, nor anything else that is promised.
	image string
}

// servedOf has one serving created.
func servedOf(t *testing.T, e *harness.Engine, parties []string, image string) *servedOnce {
	createServing(e, servedProbe, parties, image)
	waitFor(t, servingsOf(t, e), 1, servingIsAvailable)
	kd, err := e.Dynamic(t).Resource(kuscia.KusciaDeploymentResource).Namespace(e.Home).Get(t.Context(), servedProbe, metav1.GetOptions{})
	require.NoError(t, err)
	records, err := e.Dynamic(t).Resource(recordsResource).Namespace(e.Home).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, records.Items, 1)
	s := &servedOnce{floor: unwatched(t, e, seen{record: records.Items[0]}), serving: kd, parties: parties, rest: map[string][]applied{}, deployments: map[string]applied{}}
	for _, party := range parties {
		s.keep(t, party)
	}
	removeServings(t, e)
	return s
}

// removeServings deletes all servings of Slipway's, and returns when they are gone.
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
	}, longestWait, time.Second, "servings that were deleted do not go")
}

// keep keeps what a party has of the serving, as far as Slipway has applied it.
func (s *servedOnce) keep(t *testing.T, party string) {
	of := metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=" + servedProbe}
	services, err := s.kube.CoreV1().Services(party).List(t.Context(), of)
	require.NoError(t, err)
	for i := range services.Items {
		body, err := corev1ac.ExtractService(&services.Items[i], serving.FieldManager)
		require.NoError(t, err)
		s.rest[party] = append(s.rest[party], bodyOf(t, servicesResource, services.Items[i].Name, body))
	}
	maps, err := s.kube.CoreV1().ConfigMaps(party).List(t.Context(), of)
	require.NoError(t, err)
	for i := range maps.Items {
		body, err := corev1ac.ExtractConfigMap(&maps.Items[i], serving.FieldManager)
		require.NoError(t, err)
		s.rest[party] = append(s.rest[party], bodyOf(t, configMapsResource, maps.Items[i].Name, body))
	}
	deployments, err := s.kube.AppsV1().Deployments(party).List(t.Context(), of)
	require.NoError(t, err)
	require.Len(t, deployments.Items, 1)
	body, err := appsv1ac.ExtractDeployment(&deployments.Items[0], serving.FieldManager)
	require.NoError(t, err)
	body.WithAnnotations(map[string]string{workloadops.AnnotationClaimedBy: serving.WorkflowPrefix(servedProbe) + "1"})
	s.deployments[party] = bodyOf(t, deploymentsResource, deployments.Items[0].Name, body)
}

// bodyOf is what is applied of an object. It and its pods are marked as compared, and as another controller's than Slipway's, which would look after it.
func bodyOf(t *testing.T, resource schema.GroupVersionResource, name string, fields any) applied {
	raw, err := json.Marshal(fields)
	require.NoError(t, err)
	var tree map[string]any
	require.NoError(t, json.Unmarshal(raw, &tree))
	marked := [][]string{{"metadata", "labels", compared}}
	if resource == deploymentsResource {
		marked = append(marked, []string{"spec", "template", "metadata", "labels", compared})
	}
	for _, path := range marked {
		require.NoError(t, unstructured.SetNestedField(tree, "", path...))
	}
	raw, err = json.Marshal(tree)
	require.NoError(t, err)
	return applied{resource: resource, name: name, body: []byte(strings.ReplaceAll(string(raw), fmt.Sprintf("%q", kuscia.ControllerName), `"Floor"`))}
}

// following watches the parties' Deployments, until its context ends.
func (s *servedOnce) following(ctx context.Context, t *testing.T, e *harness.Engine) *servedOnce {
	f := *s
	f.floor = unwatched(t, e, s.seen)
	for _, party := range s.parties {
		f.follow(ctx, t, deploymentsResource, party, func(d *unstructured.Unstructured) {
			if available, _, _ := unstructured.NestedInt64(d.Object, "status", "availableReplicas"); available > 0 {
				f.isReady(party + "/" + d.GetName())
			}
		})
	}
	return &f
}

// promising keeps the promises too, and watches what else the parties have for them.
func (s *servedOnce) promising(ctx context.Context, t *testing.T, image string) *servedOnce {
	s.image = image
	for _, party := range s.parties {
		for _, resource := range []schema.GroupVersionResource{servicesResource, configMapsResource} {
			s.follow(ctx, t, resource, party, func(*unstructured.Unstructured) {})
		}
	}
	return s
}

// loop creates n at once.
func (s *servedOnce) loop(t *testing.T, n int) {
	var all errgroup.Group
	for i := range n {
		all.Go(func() error {
			name := s.name(i)
			for _, do := range []func(context.Context, string) error{s.create, s.bring, s.end} {
				if err := do(t.Context(), name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
}

func (s *servedOnce) name(i int) string { return fmt.Sprintf("%s-%d", s.id, i) }

// create makes the serving and its record, where Slipway does not look for servings.
func (s *servedOnce) create(ctx context.Context, name string) error {
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

func (s *servedOnce) servings() dynamic.ResourceInterface {
	return s.objects.Resource(kuscia.KusciaDeploymentResource).Namespace(s.parties[0])
}

// status writes the status of a serving, in its phase.
func (s *servedOnce) status(ctx context.Context, name string, phase kuscia.Phase) error {
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

// prepare tries each party's Deployment.
func (s *servedOnce) prepare(ctx context.Context, name string) error {
	return s.ofEach(ctx, func(ctx context.Context, party string) error {
		if err := s.absent(ctx, party, name, s.all(party)...); err != nil {
			return err
		}
		return s.apply(ctx, party, name, s.deployments[party], metav1.DryRunAll)
	})
}

// all is what a party has, the Deployment last.
func (s *servedOnce) all(party string) []applied {
	return append(slices.Clone(s.rest[party]), s.deployments[party])
}

// absent reads whether somebody has objects already, where that is promised.
func (s *servedOnce) absent(ctx context.Context, party, name string, objects ...applied) error {
	if s.image == "" {
		return nil
	}
	for _, o := range objects {
		_, err := s.objects.Resource(o.resource).Namespace(party).Get(ctx, s.renamed(o.name, name), metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("%s %s/%s is there already", o.resource.Resource, party, s.renamed(o.name, name))
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// bring tries and makes what each party has, waits for its pods, and gives its Deployment free.
func (s *servedOnce) bring(ctx context.Context, name string) error {
	for _, do := range []func(context.Context, string) error{s.progresses, s.prepare, s.pods} {
		if err := do(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// serve is what a party's worker does of that.
func (s *servedOnce) serve(ctx context.Context, name string) error {
	if err := s.prepare(ctx, name); err != nil {
		return err
	}
	return s.pods(ctx, name)
}

// progresses writes that it has begun.
func (s *servedOnce) progresses(ctx context.Context, name string) error {
	return s.status(ctx, name, kuscia.PhaseProgressing)
}

// pods makes what each party has, waits for its pods, and gives its Deployment free.
func (s *servedOnce) pods(ctx context.Context, name string) error {
	return s.ofEach(ctx, func(ctx context.Context, party string) error {
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
		free := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, workloadops.AnnotationClaimedBy)
		_, err := s.objects.Resource(deploymentsResource).Namespace(party).Patch(ctx, deployment, types.MergePatchType, []byte(free), metav1.PatchOptions{FieldManager: floorQueue})
		return err
	})
}

// end writes that it is there.
func (s *servedOnce) end(ctx context.Context, name string) error {
	if err := s.status(ctx, name, kuscia.PhaseAvailable); err != nil {
		return err
	}
	return s.complete(ctx, name)
}

func (s *servedOnce) ofEach(ctx context.Context, do func(ctx context.Context, party string) error) error {
	each, ctx := errgroup.WithContext(ctx)
	for _, party := range s.parties {
		each.Go(func() error { return do(ctx, party) })
	}
	return each.Wait()
}

func (s *servedOnce) renamed(text, name string) string {
	return strings.ReplaceAll(text, servedProbe, name)
}

func (s *servedOnce) apply(ctx context.Context, party, name string, o applied, dry ...string) error {
	body := []byte(s.renamed(string(o.body), name))
	_, err := s.objects.Resource(o.resource).Namespace(party).Patch(ctx, s.renamed(o.name, name), types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: floorQueue, DryRun: dry})
	return err
}

// workflows creates n at once, each by a workflow of one activity.
func (s *servedOnce) workflows(t *testing.T, e *harness.Engine, n int) {
	w := floorWorker(e, floorQueue, n)
	w.RegisterWorkflowWithOptions(servingWorkflow, workflow.RegisterOptions{Name: "Serve"})
	w.RegisterWorkflowWithOptions(checkedServing, workflow.RegisterOptions{Name: "ServeChecked"})
	w.RegisterActivityWithOptions(s.telling(s.bring, floorTells), activity.RegisterOptions{Name: "Bring"})
	w.RegisterActivityWithOptions(s.progresses, activity.RegisterOptions{Name: "Begin"})
	w.RegisterActivityWithOptions(s.end, activity.RegisterOptions{Name: "End"})
	require.NoError(t, w.Start())
	defer w.Stop()
	party := floorWorker(e, floorParty, n)
	party.RegisterActivityWithOptions(s.telling(s.serve, floorShown), activity.RegisterOptions{Name: "Serve"})
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
		options := client.StartWorkflowOptions{TaskQueue: floorQueue, ID: s.name(i), TypedSearchAttributes: temporal.NewSearchAttributes(floorState.ValueSet("Preparing"))}
		return e.Workflows.ExecuteWorkflow(t.Context(), options, kind, s.name(i))
	})
}

// telling is a step that tells that it is there.
func (s *servedOnce) telling(step func(context.Context, string) error, every time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		ctx, over := context.WithCancel(ctx)
		defer over()
		go s.keepTelling(ctx, every)
		return step(ctx, name)
	}
}

func servingWorkflow(ctx workflow.Context, name string) error {
	ctx = stepOf(ctx, floorQueue)
	if err := workflow.ExecuteActivity(ctx, "Bring", name).Get(ctx, nil); err != nil {
		return err
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, floorState.ValueSet("Succeeded")); err != nil {
		return err
	}
	return atCentre(ctx, "End", name)
}

// checkedServing has the commands of a creation.
func checkedServing(ctx workflow.Context, name string) error {
	workflow.GetVersion(ctx, "floor", workflow.DefaultVersion, 1)
	if err := atCentre(ctx, "Begin", name); err != nil {
		return err
	}
	party := stepOf(ctx, floorParty)
	if err := workflow.ExecuteActivity(party, "Serve", name).Get(party, nil); err != nil {
		return err
	}
	return atCentre(ctx, "End", name)
}

// stepOf is for steps of one attempt, which tell that they are there.
func stepOf(ctx workflow.Context, queue string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: queue, StartToCloseTimeout: longestWait, HeartbeatTimeout: floorMissed,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
}

// atCentre does a write of the centre by a local activity.
func atCentre(ctx workflow.Context, step, name string) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: longestWait})
	return workflow.ExecuteLocalActivity(ctx, step, name).Get(ctx, nil)
}
