package serving_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	partyservings "slipway.io/slipway/activities/serving"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

// told is what an observer has told, and how Temporal says that operations stand.
type told struct {
	mu     sync.Mutex
	seen   []serving.Seen
	status enumspb.WorkflowExecutionStatus
}

func (o *told) DescribeWorkflowExecution(_ context.Context, id, run string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: run}, FirstRunId: "r", Status: o.status}}, nil
}

// end ends the operations.
func (o *told) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
}

// drifts says of each time when something was told whether it was changed by somebody else.
func (o *told) drifts() (drifts []bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seen := range o.seen {
		drifts = append(drifts, len(seen.Drift) > 0)
	}
	return drifts
}

func (o *told) SignalWithStartWorkflow(_ context.Context, _, _ string, arg any, _ client.StartWorkflowOptions, _ any, _ ...any) (client.WorkflowRun, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range arg.([]serving.Observation) {
		o.seen = append(o.seen, one.Seen)
	}
	return nil, nil
}

// The check of what should be there is another test's.
func (o *told) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun, error) {
	return nil, nil
}

// words are the reasons of the pods that were told, in order.
func (o *told) words() (words []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seen := range o.seen {
		words = append(words, seen.PodReason)
	}
	return words
}

// deploymentOf is a serving's Deployment of one pod, of which so many are available.
func deploymentOf(available int32) *appsv1.Deployment {
	app := map[string]string{"app": "s1"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "s1", Namespace: "alice", UID: "d1", ResourceVersion: "1", Annotations: map[string]string{serving.AnnotationEngine: "engine"},
			Labels: map[string]string{kuscia.LabelController: kuscia.ControllerName, kuscia.LabelWorkload: "s1", kuscia.LabelDeploymentName: "s1", kuscia.LabelDeploymentUID: "u1"}},
		Spec:   appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app}},
		Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: available, UnavailableReplicas: 1 - available},
	}
}

// waitingPod is the pod of deploymentOf, which does not run yet for this reason.
func waitingPod(reason string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "s1-pod", Namespace: "alice", Labels: map[string]string{"app": "s1"}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "main",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}}
}

// observe has the serving of a cluster observed, in the time of a synctest bubble. asked is how often anybody has asked for its pods.
func observe(t *testing.T, cluster *fake.Clientset) (out *told, asked func() int) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	watch, err := partyservings.NewWatch(cluster, nil, log)
	require.NoError(t, err)
	out = &told{status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}
	observer := partyservings.NewObserver(partyservings.New(cluster, nil, watch, partyservings.Options{Engine: "engine", Logger: log}), out)
	require.NoError(t, observer.Start(t.Context()))
	require.NoError(t, watch.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, observer.Stop(context.Background()))
		require.NoError(t, watch.Stop(context.Background()))
	})
	return out, func() (n int) {
		for _, action := range cluster.Actions() {
			if action.Matches("list", "pods") {
				n++
			}
		}
		return n
	}
}

func TestTheWordOfAPodIsToldWhenItChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset(deploymentOf(0), waitingPod("ContainerCreating"))
		out, asked := observe(t, cluster)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"ContainerCreating"}, out.words(), "the same word is told once, however often the pods are asked")

		_, err := cluster.CoreV1().Pods("alice").UpdateStatus(t.Context(), waitingPod("ImagePullBackOff"), metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(6 * time.Second)
		require.Equal(t, []string{"ContainerCreating", "ImagePullBackOff"}, out.words(), "the Deployment does not change when its pod says something else")

		whole := deploymentOf(1)
		whole.ResourceVersion = "2"
		_, err = cluster.AppsV1().Deployments("alice").UpdateStatus(t.Context(), whole, metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"ContainerCreating", "ImagePullBackOff", ""}, out.words())
		before := asked()
		time.Sleep(time.Hour)
		require.Equal(t, before, asked(), "at rest nobody is asked")
	})
}

func TestAQuestionToThePodsThatFailsIsNoNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset(deploymentOf(0), waitingPod("ImagePullBackOff"))
		var busy atomic.Bool
		cluster.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return busy.Load(), nil, errors.New("busy") })
		out, _ := observe(t, cluster)
		time.Sleep(time.Minute)
		busy.Store(true)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"ImagePullBackOff"}, out.words(), "what the pods said last is the best that is known")
	})
}

// Anybody who may edit a Deployment can write a claim onto it: that of a workflow which is no operation on the serving hides nothing, however long it runs.
func TestAForgedClaimHidesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claimed := deploymentOf(1)
		claimed.Annotations[workloadops.AnnotationClaimedBy] = workloadops.Holder{WorkflowID: "rollout/default/shop/web", RunID: "r"}.String()
		claimed.Annotations[serving.AnnotationApplied] = "of what was applied"
		out, _ := observe(t, fake.NewClientset(claimed))
		time.Sleep(time.Minute)
		require.Equal(t, []bool{true}, out.drifts())
	})
}

// An operation puts back what others change. One that is over does not, although its claim is left when it could not be given back.
func TestWhatOthersChangeBehindAClaimIsToldWhenItsOperationIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claimed := deploymentOf(1)
		claimed.Annotations[workloadops.AnnotationClaimedBy] = workloadops.Holder{WorkflowID: serving.WorkflowPrefix("s1") + "1", RunID: "r"}.String()
		claimed.Annotations[serving.AnnotationApplied] = "of what was applied"
		out, _ := observe(t, fake.NewClientset(claimed))
		time.Sleep(10 * time.Minute)
		require.Equal(t, []bool{false}, out.drifts(), "the operation is under way")
		out.end()
		time.Sleep(time.Minute)
		require.Equal(t, []bool{false, true}, out.drifts())
	})
}
