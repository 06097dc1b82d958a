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
	"slipway.io/slipway/release/workload"
)

// reports records the reports of an observer, and answers the status of operations.
type reports struct {
	client.Client
	mu     sync.Mutex
	seen   []serving.DeploymentSnapshot
	status enumspb.WorkflowExecutionStatus
}

func (o *reports) DescribeWorkflowExecution(_ context.Context, id,
	run string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: run}, FirstRunId: "r", Status: o.status}}, nil
}

// end ends the operations.
func (o *reports) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
}

// drifts returns for each report whether it has drift.
func (o *reports) drifts() (drifts []bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seen := range o.seen {
		drifts = append(drifts, len(seen.Drift) > 0)
	}
	return drifts
}

func (o *reports) SignalWithStartWorkflow(_ context.Context, _, _ string, arg any, _ client.StartWorkflowOptions, _ any,
	_ ...any) (client.WorkflowRun, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range arg.([]serving.Observation) {
		o.seen = append(o.seen, one.Snapshot)
	}
	return nil, nil
}

// Checks of expected Deployments are tested elsewhere.
func (o *reports) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun,
	error) {
	return nil, nil
}

// words returns the pod reasons of the reports, in order.
func (o *reports) podReasons() (words []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seen := range o.seen {
		words = append(words, seen.PodReason)
	}
	return words
}

// deploymentOf returns a serving's Deployment of one pod, with that number of available pods.
func deploymentOf(available int32) *appsv1.Deployment {
	app := map[string]string{"app": "s1"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "s1", Namespace: "alice", UID: "d1", ResourceVersion: "1",
			Annotations: map[string]string{serving.AnnotationEngine: "engine"},
			Labels: map[string]string{kuscia.LabelController: kuscia.ControllerName, kuscia.LabelWorkload: "s1",
				kuscia.LabelDeploymentName: "s1", kuscia.LabelDeploymentUID: "u1"}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app}},
		Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: available,
			UnavailableReplicas: 1 - available},
	}
}

// waitingPod is the pod of deploymentOf, which does not run yet for this reason.
func waitingPod(reason string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "s1-pod", Namespace: "alice",
		Labels: map[string]string{"app": "s1"}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "main",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}}
}

// observe runs an observer of a cluster, in the time of a synctest bubble. asked returns how often pods were listed.
func observe(t *testing.T, cluster *fake.Clientset) (out *reports, asked func() int) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	watch := partyservings.NewWatch(cluster, nil, log)
	out = &reports{status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}
	observer := partyservings.NewObserver(partyservings.New(cluster, nil, watch,
		partyservings.Options{Engine: "engine", Logger: log}), out)
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

func TestObserver_ReportsPodReason_WhenItChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset(deploymentOf(0), waitingPod("ContainerCreating"))
		out, asked := observe(t, cluster)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"ContainerCreating"}, out.podReasons(),
			"the same reason is reported once, however often the pods are read")

		_, err := cluster.CoreV1().Pods("alice").UpdateStatus(t.Context(), waitingPod("ImagePullBackOff"),
			metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(6 * time.Second)
		require.Equal(t, []string{"ContainerCreating", "ImagePullBackOff"}, out.podReasons(),
			"the Deployment does not change with the status of its pod")

		whole := deploymentOf(1)
		whole.ResourceVersion = "2"
		_, err = cluster.AppsV1().Deployments("alice").UpdateStatus(t.Context(), whole, metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"ContainerCreating", "ImagePullBackOff", ""}, out.podReasons())
		before := asked()
		time.Sleep(time.Hour)
		require.Equal(t, before, asked(), "without incomplete Deployments no pods are read")
	})
}

func TestObserver_KeepsPodReason_WhenPodsCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset(deploymentOf(0), waitingPod("ImagePullBackOff"))
		var busy atomic.Bool
		cluster.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return busy.Load(), nil, errors.New("busy")
		})
		out, _ := observe(t, cluster)
		time.Sleep(time.Minute)
		busy.Store(true)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"ImagePullBackOff"}, out.podReasons(), "the last known reason is kept")
	})
}

// Every client that may edit a Deployment can forge a claim on it. The claim of a workflow that is not an operation on
// the serving hides nothing, however long that runs.
func TestObserver_ReportsDrift_DespiteForgedClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claimed := deploymentOf(1)
		claimed.Annotations[workload.AnnotationClaimedBy] =
			workload.Holder{WorkflowID: "rollout/default/shop/web", RunID: "r"}.String()
		claimed.Annotations[serving.AnnotationApplied] = "of what was applied"
		out, _ := observe(t, fake.NewClientset(claimed))
		time.Sleep(time.Minute)
		require.Equal(t, []bool{true}, out.drifts())
	})
}

// A running operation reverts changes by other clients. One that has ended does not, although its claim may remain if
// it could not be released.
func TestObserver_ReportsDrift_WhenClaimingOperationHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claimed := deploymentOf(1)
		claimed.Annotations[workload.AnnotationClaimedBy] = workload.Holder{WorkflowID: serving.WorkflowPrefix(
			"s1") + "1", RunID: "r"}.String()
		claimed.Annotations[serving.AnnotationApplied] = "of what was applied"
		out, _ := observe(t, fake.NewClientset(claimed))
		time.Sleep(10 * time.Minute)
		require.Equal(t, []bool{false}, out.drifts(), "the operation is running")
		out.end()
		time.Sleep(time.Minute)
		require.Equal(t, []bool{false, true}, out.drifts())
	})
}
