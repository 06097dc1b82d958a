// Package bench measures Slipway against plain API calls that make the same changes, in the same run: `make bench`
// prints the figures.
package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/memory"
)

// The measured size of the plan engine: 200 services of 3 pods in 10 waves, at most 50 at once.
const (
	services    = 200
	pods        = 3
	waves       = 10
	maxParallel = 50
	// maxEvents and maxRSS are promised limits.
	maxEvents = 5000
	maxRSS    = 200 << 20
)

func TestSoakTwoHundredServices(t *testing.T) {
	harness.Soak(t)
	e := harness.Start(t, harness.Options{SeparateWorker: true})
	prepare(t, e)

	waitSettled(t, e)
	before := requestsServed(t, e)
	plain := measure(t, e, func() { plainLoop(t, e) })
	waitSettled(t, e)
	between := requestsServed(t, e)
	var id string
	var task plan.Task
	ours := measure(t, e, func() {
		id = e.Execute("large")
		// Polling the task would add load: wait on the workflow instead.
		require.NoError(t, e.Workflows.GetWorkflow(t.Context(), plan.WorkflowID(id), "").Get(t.Context(), nil))
		task = e.WaitTaskUntil(id, "an end", func(task plan.Task) bool { return task.FinishedAt != nil })
	})
	waitSettled(t, e)
	served := requestsServed(t, e).since(between)
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	events := history(t, e, plan.WorkflowID(id))
	child := history(t, e, plan.ItemWorkflowID(id, 1, "s0"))

	fmt.Printf("\n%d services of %d pods, %d waves, at most %d at once: RESTART, PARALLEL, compared with plain "+
		"client-go calls wave by wave\n", services, pods, waves, maxParallel)
	ratio := ours.wall.Seconds() / plain.wall.Seconds()
	recordFigure(t, "wall time, ratio", ratio)
	fmt.Printf("  wall time %.1f s, %.1f s, ratio %.2f\n", plain.wall.Seconds(), ours.wall.Seconds(), ratio)
	fmt.Printf("  CPU: slipway %.1f s, Temporal %.1f s, control plane %.1f s and %.1f s\n", ours.slipway(),
		ours.temporal(), plain.control(), ours.control())
	printServed(services, between.since(before), served)
	fmt.Printf("  history events: task %d, one service %d\n", events, child)
	rss := ours.workerRSS
	fmt.Printf("  worker's peak memory: %d MiB\n\n", rss>>20)
	require.Less(t, events, maxEvents, "the task's history is too long")
	require.Less(t, rss, int64(maxRSS), "the worker uses too much memory")
}

func prepare(t *testing.T, e *harness.Engine) {
	var document strings.Builder
	document.WriteString("deployPlanItems:\n")
	var wg sync.WaitGroup
	for n := range services {
		name := fmt.Sprintf("s%d", n)
		e.Deployment(name, pods, nil)
		wg.Go(func() { e.PutService(name, "", "Deployment/"+name) })
		fmt.Fprintf(&document, "- {serviceId: %s, priority: %d, deployment: RESTART}\n", name, waves-n/(services/waves))
	}
	wg.Wait()
	e.PutPlan("large", document.String())
	require.Eventually(t, func() bool {
		return readyDeployments(e) == services
	}, harness.Patience, harness.Tick, "the deployments never became ready")
}

// plainLoop makes the changes of the plan with client-go alone: it patches each template of a wave, waits for the wave,
// and continues.
func plainLoop(t *testing.T, e *harness.Engine) {
	started := time.Now()
	perWave := services / waves
	for w := range waves {
		for n := w * perWave; n < (w+1)*perWave; n++ {
			patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"bench":"%d"}}}}}`,
				started.UnixNano())
			_, err := e.Kube.AppsV1().Deployments(e.Apps).Patch(context.Background(), fmt.Sprintf("s%d", n),
				types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			return readyDeployments(e) == services
		}, harness.Patience, harness.Tick, "wave %d never became ready", w)
	}
}

func readyDeployments(e *harness.Engine) int {
	list, err := e.Kube.AppsV1().Deployments(e.Apps).List(context.Background(),
		metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0
	}
	ready := 0
	for _, d := range list.Items {
		s := d.Status
		if s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == pods && s.AvailableReplicas == pods &&
			s.Replicas == pods {
			ready++
		}
	}
	return ready
}

func history(t *testing.T, e *harness.Engine, workflowID string) int {
	events := 0
	it := e.Workflows.GetWorkflowHistory(context.Background(), workflowID, "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		_, err := it.Next()
		require.NoError(t, err)
		events++
	}
	return events
}

// watchRSS samples a process's memory. The returned function ends that and returns the peak, in bytes.
func watchRSS(pid int) func() int64 {
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		var peak int64
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				done <- peak
				return
			case <-ticker.C:
				peak = max(peak, memory.Of(pid, memory.Resident))
			}
		}
	}()
	return func() int64 { close(stop); return <-done }
}
