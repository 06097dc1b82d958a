package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/memory"
)

// The measured rollouts: Deployments of 5 pods, in 5 steps of 20 % without pauses and without traffic.
const (
	rolloutPods  = 5
	rolloutSteps = 5
	// maxWrites is the promised maximum of writes to the API server per rollout.
	maxWrites = 17
	// clients is the number of requests that are sent at once.
	clients = 16
)

// setting defines the rollouts of one measurement.
type setting struct {
	// n Deployments of pods pods are released at once.
	n, pods int
	// pause is the timed pause of each step but the last.
	pause time.Duration
	// idle is the number of additional Deployments without pods in the namespace.
	idle int
	// change alters the Deployments before they are created; nil: no change.
	change func(d *appsv1.Deployment)
	// timed omits the counting of requests, which takes time itself.
	timed bool
}

// stack returns the stack and the tally of requests.
func (s setting) stack(t *testing.T) (harness.Stack, tally) {
	if s.timed {
		return harness.SharedStack(t), tally{}
	}
	return stackOf(t, s.n)
}

// TestLongRolloutsAtOnce measures n rollouts at once next to a plain rolling update of the same Deployments in the same
// run. The promises per rollout hold for few as well.
func TestLongRolloutsAtOnce(t *testing.T) {
	harness.Long(t)
	measureRollouts(t, setting{n: 20, pods: rolloutPods})
}

// TestSoakTwentyRolloutsAtOnce has the size of the counted measurement, but only measures times.
func TestSoakTwentyRolloutsAtOnce(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 20, pods: rolloutPods, timed: true})
}

// TestSoakRolloutsAtOnce has the size for which figures are published.
func TestSoakRolloutsAtOnce(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 100, pods: rolloutPods})
}

// TestSoakRolloutsWithPauses includes the cost of the pauses between steps.
func TestSoakRolloutsWithPauses(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 100, pods: rolloutPods, pause: time.Second})
}

// TestSoakRolloutsAmongIdleDeployments checks that other Deployments in the namespace cost the released ones nothing.
func TestSoakRolloutsAmongIdleDeployments(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 100, pods: rolloutPods, idle: 1000})
}

// TestSoakThousandRolloutsAtOnce checks that ten times as many rollouts take ten times as long.
func TestSoakThousandRolloutsAtOnce(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 1000, pods: 1})
}

func measureRollouts(t *testing.T, s setting) {
	n := s.n
	stack, counted := s.stack(t)
	e := harness.Start(t, harness.Options{SeparateWorker: true, Stack: &stack})
	each(s.idle, func(i int) { e.Deployment(idlePrefix+strconv.Itoa(i), 0, nil) })

	makeDeployments(t, e, s)
	servedFirst := requestsServed(t, e)
	plain := measure(t, e, func() {
		each(n, func(i int) { setImage(t, e, deploymentName(i), ":v2") })
		waitReleased(t, e, n, ":v2")
	})
	waitSettled(t, e)
	servedPlain := requestsServed(t, e).since(servedFirst)
	deleteCompared(t, e, e.Apps)
	makeDeployments(t, e, s)
	servedFirst = requestsServed(t, e)
	before := counted.snapshot()
	ours := measure(t, e, func() {
		each(n, func(i int) { startRollout(t, e, deploymentName(i), ":v2", s.pause) })
		waitReleased(t, e, n, ":v2")
	})
	waitClosed(t, e, n)
	waitSettled(t, e)
	servedOurs := requestsServed(t, e).since(servedFirst)
	after := counted.snapshot()
	events := e.Events(rollout.WorkflowID("", e.Apps, deploymentName(0)))
	recordFigure(t, "events of each", float64(events))

	fmt.Printf("\n%d Deployments of %d pods, all changed at once; rollouts of %d steps with pauses of %s, no "+
		"traffic; %d other Deployments\n", n, s.pods, rolloutSteps,
		s.pause, s.idle)
	printRatios(t, "rollouts", plain, ours)
	printTimings(t, e)
	printServed(n, servedPlain, servedOurs)
	fmt.Printf("  history: %d events, %.1f per step\n", events, float64(events)/rolloutSteps)
	printTypes(e.History(rollout.WorkflowID("", e.Apps, deploymentName(0))))
	fmt.Printf("  peak memory: server %d MiB, worker %d MiB\n\n", ours.serverRSS>>20, ours.workerRSS>>20)
	harness.Covered(t, n, "rollouts at once")
	after.check(t, before, n, maxWrites)
}

// makeDeployments creates the Deployments and waits for them. Both measured ways start with Deployments of one
// revision.
func makeDeployments(t *testing.T, e *harness.Engine, s setting) {
	mark := func(d *appsv1.Deployment) {
		markCompared(d)
		if s.change != nil {
			s.change(d)
		}
	}
	each(s.n, func(i int) { e.Deployment(deploymentName(i), int32(s.pods), mark) })
	waitReleased(t, e, s.n, ":v1")
	waitSettled(t, e)
}

// printRatios prints a usage next to the plain usage, with the ratio.
func printRatios(t *testing.T, what string, plain, ours usage) {
	fmt.Printf("  %-34s %10s %12s %10s\n", "", "plain", what, "ratio")
	row := func(what string, a, b float64) {
		ratio := "–"
		recordFigure(t, what+", s", b)
		if a > 0.5 { // a ratio of a tiny value is meaningless
			ratio = fmt.Sprintf("%.2f", b/a)
			recordFigure(t, what+", ratio", b/a)
		}
		fmt.Printf("  %-34s %10.1f %12.1f %10s s\n", what, a, b, ratio)
	}
	row("wall time", plain.wall.Seconds(), ours.wall.Seconds())
	row("CPU of slipway (server + worker)", plain.slipway(), ours.slipway())
	row("CPU of Temporal", plain.temporal(), ours.temporal())
	row("CPU of the Kubernetes control plane", plain.control(), ours.control())
	for _, part := range append(append([]string{"temporal"}, slipwayParts...), controlParts...) {
		row("  "+part, plain.by[part], ours.by[part])
	}
}

// printTimings prints when the last workflow of a rollout began, and how long they took: a late start was time in the
// queue, a long run was time within the rollout.
func printTimings(t *testing.T, e *harness.Engine) {
	var begun []time.Time
	var took []time.Duration
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: e.TemporalNamespace,
		Query: "WorkflowType = 'Rollout'"}
	for {
		answer, err := e.Workflows.ListWorkflow(t.Context(), request)
		require.NoError(t, err)
		for _, info := range answer.GetExecutions() {
			begun = append(begun, info.GetStartTime().AsTime())
			took = append(took, info.GetCloseTime().AsTime().Sub(info.GetStartTime().AsTime()))
		}
		if request.NextPageToken = answer.GetNextPageToken(); len(request.NextPageToken) == 0 {
			break
		}
	}
	slices.SortFunc(begun, time.Time.Compare)
	slices.Sort(took)
	fmt.Printf("  the last one began after %.1f s; a rollout took %.1f s (median), %.1f s (the longest)\n",
		begun[len(begun)-1].Sub(begun[0]).Seconds(), took[len(took)/2].Seconds(), took[len(took)-1].Seconds())
}

// printTypes prints the number of history events by type.
func printTypes(events []*historypb.HistoryEvent) {
	types := map[string]int{}
	for _, event := range events {
		types[event.GetEventType().String()]++
	}
	for _, of := range slices.Sorted(maps.Keys(types)) {
		fmt.Printf("    %d × %s\n", types[of], of)
	}
}

// TestSoakFewCanariesByIngress measures canaries with traffic through an Ingress, in three steps of which two are
// approved as soon as they wait.
func TestSoakFewCanariesByIngress(t *testing.T) {
	harness.Soak(t)
	measureCanaries(t, 10)
}

// TestSoakCanariesByIngress has the size for which figures are published.
func TestSoakCanariesByIngress(t *testing.T) {
	harness.Soak(t)
	measureCanaries(t, 100)
}

// maxCanaryWrites is the maximum of writes of one of these canaries.
const maxCanaryWrites = 25

// canaryApprovals is the number of a canary's three steps that wait for approval; the last step completes the rollout.
const canaryApprovals = 2

func measureCanaries(t *testing.T, n int) {
	stack, counted := stackOf(t, n)
	e := harness.Start(t, harness.Options{SeparateWorker: true, Stack: &stack})
	each(n, func(i int) { e.Deployment(deploymentName(i), rolloutPods, nil) })
	waitReleased(t, e, n, ":v1")
	each(n, func(i int) { e.Route(harness.Nginx, deploymentName(i)) })
	before := counted.snapshot()
	used := measure(t, e, func() {
		var canaries sync.WaitGroup
		for i := range n {
			canaries.Go(func() { releaseCanary(t, e, deploymentName(i)) })
		}
		canaries.Wait()
	})
	after := counted.snapshot()
	events := e.History(rollout.WorkflowID("", e.Apps, deploymentName(0)))
	fmt.Printf("\n%d canaries of %d pods with traffic by Ingress, 3 steps, of which %d are approved at once\n", n,
		rolloutPods, canaryApprovals)
	recordFigure(t, "wall time, s", used.wall.Seconds())
	recordFigure(t, "events per stretch", float64(len(events))/(canaryApprovals+1))
	fmt.Printf("  wall time %.1f s; CPU: slipway %.1f s, Temporal %.1f s, control plane %.1f s\n", used.wall.Seconds(),
		used.slipway(), used.temporal(), used.control())
	fmt.Printf("  history: %d events, %.1f per stretch (the start and each approval)\n", len(events),
		float64(len(events))/(canaryApprovals+1))
	printTypes(events)
	fmt.Printf("  peak memory: server %d MiB, worker %d MiB\n\n", used.serverRSS>>20, used.workerRSS>>20)
	harness.Covered(t, n, "canaries with traffic")
	after.check(t, before, n, maxCanaryWrites)
}

// releaseCanary starts a canary and approves each waiting step.
func releaseCanary(t *testing.T, e *harness.Engine, name string) {
	steps := []strategy.Step{harness.Step("20%", 20), harness.Step("40%", 40),
		harness.TimedStep(harness.Step("100%", -1), 0)}
	postRollout(t, e, harness.Rollout{Kind: harness.Deployment, Name: name, Image: image(name, ":v2"),
		Strategy: strategy.Strategy{Style: strategy.StylePartition,
			Steps: steps, Routings: e.RoutingOf(harness.Nginx, name)}})
	for step := range canaryApprovals {
		e.Approve(name, e.WaitForApproval(name, step+1))
	}
	e.WaitPhase(name, rollout.PhaseHealthy)
}

// waitingSetting defines a measurement of rollouts that wait for approval.
type waitingSetting struct {
	n    int
	pods int32
	// watched is the length of the measurement.
	watched time.Duration
	// counted counts their requests with a proxy, which takes as much CPU as Slipway does.
	counted bool
}

// waitingObserved is the length of the measurement for many waiting rollouts; memory used by their start is returned in
// its first half.
const waitingObserved = 4 * time.Minute

// TestLongRolloutsWaiting measures the cost of rollouts that wait for approval.
func TestLongRolloutsWaiting(t *testing.T) {
	harness.Long(t)
	measureWaiting(t, waitingSetting{n: 50, pods: 2, watched: 10 * time.Second, counted: true})
}

func TestSoakRolloutsWaiting(t *testing.T) {
	harness.Soak(t)
	measureWaiting(t, waitingSetting{n: 500, pods: 2, watched: waitingObserved, counted: true})
}

func TestSoakFiveThousandRolloutsWaiting(t *testing.T) {
	harness.Soak(t)
	measureWaiting(t, waitingSetting{n: 5_000, pods: 1, watched: waitingObserved})
}

// measureWaiting makes rollouts wait and measures them.
func measureWaiting(t *testing.T, w waitingSetting) {
	stack := harness.SharedStack(t)
	var requests *harness.CountingProxy
	if w.counted {
		requests = harness.NewCountingProxy(t, stack)
		stack.Kubeconfig = requests.Kubeconfig
	}
	e := harness.Start(t, harness.Options{SeparateWorker: true, Stack: &stack})
	spread := spreadOver(t, e, (w.n-1)/maxPerNamespace+1)
	each(w.n, func(i int) { spread[i%len(spread)].Deployment(deploymentName(i), w.pods, nil) })
	for i, one := range spread {
		waitReleased(t, one, (w.n-i-1)/len(spread)+1, ":v1")
	}
	defer logNotWaiting(t, e)
	for started := 0; started < w.n; {
		next := min(started+startBatch, w.n)
		each(next-started, func(i int) { startWaiting(t, spread[(started+i)%len(spread)], deploymentName(started+i)) })
		started = next
		waitApprovals(t, e, max(started-startBatch, 0))
	}
	waitApprovals(t, e, w.n)

	if w.counted { // the events of the last rollouts are written asynchronously
		waitNoWrites(t, requests)
	}
	asked := countRequests(requests)
	timer := time.NewTimer(w.watched)
	used := measure(t, e, func() { <-timer.C })
	perMinute := w.watched.Minutes()
	fmt.Printf("\n%d rollouts that wait for approval, over %s\n", w.n, w.watched)
	fmt.Printf("  CPU per minute: server %.2f s, worker %.2f s, Temporal %.2f s\n", used.by[slipwayParts[0]]/perMinute,
		used.by[slipwayParts[1]]/perMinute, used.temporal()/perMinute)
	writes := asked()
	fmt.Printf("  memory at most, and at the end: server %d, %d MiB, worker %d, %d MiB\n\n", used.serverRSS>>20,
		memory.Of(e.Processes[0].PID(), memory.Resident)>>20, used.workerRSS>>20,
		memory.Of(e.Processes[1].PID(), memory.Resident)>>20)
	harness.Covered(t, w.n, "rollouts that wait")
	if w.counted {
		require.Zero(t, writes, "a waiting rollout must not write")
	}
}

// startBatch is the number of rollouts that start before the previous ones wait: thousands at once would measure the
// start instead.
const startBatch = 50

// waitApprovals waits until at least n rollouts wait for approval.
func waitApprovals(t *testing.T, e *harness.Engine, n int) {
	require.Eventually(t, func() bool {
		return countWorkflows(e, "SlipwayWaitingFor = 'approval'") >= n
	}, 10*time.Minute, 200*time.Millisecond,
		"fewer than %d rollouts wait for approval", n)
}

// maxPerNamespace is the maximum number of waiting workloads in one namespace.
const maxPerNamespace = 500

// spreadOver returns the engine with the given number of namespaces, the first being its own.
func spreadOver(t *testing.T, e *harness.Engine, namespaces int) []*harness.Engine {
	spread := []*harness.Engine{e}
	for len(spread) < namespaces {
		spread = append(spread, e.ForTest(t))
	}
	return spread
}

// countRequests returns a function that prints the requests since the call of countRequests and returns the number of
// writes. With p nil nothing is counted.
func countRequests(p *harness.CountingProxy) (report func() (writes int)) {
	if p == nil {
		return func() int { return 0 }
	}
	writesBefore, readsBefore, watchesBefore := p.Requests()
	before, written := p.RequestsByResource("read"), p.RequestsByResource("write")
	return func() int {
		writes, reads, watches := p.Requests()
		fmt.Printf("  API requests of ours: %d writes, %d reads, %d watches begun\n", writes-writesBefore,
			reads-readsBefore, watches-watchesBefore)
		printRequests("read", before, p.RequestsByResource("read"))
		printRequests("write", written, p.RequestsByResource("write"))
		return writes - writesBefore
	}
}

// waitNoWrites returns when nothing has been written for two seconds.
func waitNoWrites(t *testing.T, p *harness.CountingProxy) {
	t.Helper()
	last, since := -1, time.Now()
	require.Eventually(t, func() bool {
		if writes, _, _ := p.Requests(); writes != last {
			last, since = writes, time.Now()
		}
		return time.Since(since) > 2*time.Second
	}, harness.Patience, harness.Tick, "writes do not stop")
}

// logNotWaiting logs up to five rollouts that do not wait for approval, if the test has failed.
func logNotWaiting(t *testing.T, e *harness.Engine) {
	if !t.Failed() {
		return
	}
	for i, d := 0, 0; i < 5; d++ {
		a, err := e.TryCall(http.MethodGet, "/api/v1/rollouts/"+e.Apps+"/"+deploymentName(d), "")
		if err != nil || a.Status == http.StatusNotFound {
			return
		}
		if !strings.Contains(string(a.Body), `"kind":"approval"`) {
			t.Logf("%s", a.Body)
			i++
		}
	}
}

// idlePrefix begins the names of Deployments that are not released.
const idlePrefix = "idle-"

func deploymentName(i int) string { return fmt.Sprintf("d%d", i) }

// each calls do for every number below n, at most clients at a time.
func each(n int, do func(i int)) {
	var doing errgroup.Group
	doing.SetLimit(clients)
	for i := range n {
		doing.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = doing.Wait()
}

func image(name, tag string) string { return "registry.test/" + name + tag }

func setImage(t *testing.T, e *harness.Engine, name, tag string) {
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q}]}}}}`, image(name, tag))
	_, err := e.Kube.AppsV1().Deployments(e.Apps).Patch(context.Background(), name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func startRollout(t *testing.T, e *harness.Engine, name, tag string, pause time.Duration) {
	var steps []strategy.Step
	for i := range rolloutSteps {
		if i == rolloutSteps-1 {
			pause = 0
		}
		steps = append(steps, harness.TimedStep(harness.Step(fmt.Sprintf("%d%%", 100*(i+1)/rolloutSteps), -1), pause))
	}
	postRollout(t, e, harness.Rollout{Kind: harness.Deployment, Name: name, Image: image(name, tag),
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: steps}})
}

func startWaiting(t *testing.T, e *harness.Engine, name string) {
	steps := []strategy.Step{harness.Step("50%", -1), harness.Step("100%", -1)}
	postRollout(t, e, harness.Rollout{Kind: harness.Deployment, Name: name,
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: steps}})
}

func postRollout(t *testing.T, e *harness.Engine, r harness.Rollout) {
	body, err := json.Marshal(r.Body(e.Apps))
	require.NoError(t, err)
	a := e.Call(http.MethodPost, "/api/v1/rollouts", string(body))
	if a.Status == http.StatusServiceUnavailable {
		// A machine that is busy with hundreds of others did not answer in time. Nothing was started then.
		require.Eventually(t, func() bool {
			a = e.Call(http.MethodPost, "/api/v1/rollouts", string(body))
			return a.Status != http.StatusServiceUnavailable
		}, time.Minute, time.Second, "%s", r.Name)
	}
	require.Equal(t, http.StatusAccepted, a.Status, "%s", a.Body)
}

// waitReleased waits until n Deployments are released with a version.
func waitReleased(t *testing.T, e *harness.Engine, n int, tag string) {
	t.Helper()
	waitFor(t, deploymentsOf(e, e.Apps), n, func(object runtime.Object) bool {
		d, is := object.(*appsv1.Deployment)
		return is && released(d, tag)
	})
}

// released reports whether a Deployment runs a version completely and is unclaimed. It is false for idle Deployments.
func released(d *appsv1.Deployment, tag string) bool {
	s := d.Status
	return !strings.HasPrefix(d.Name, idlePrefix) && d.Spec.Template.Spec.Containers[0].Image == image(d.Name, tag) &&
		d.Annotations[workload.AnnotationClaimedBy] == "" &&
		s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == *d.Spec.Replicas &&
		s.AvailableReplicas == *d.Spec.Replicas && s.Replicas == *d.Spec.Replicas
}

func waitClosed(t *testing.T, e *harness.Engine, n int) {
	require.Eventually(t, func() bool {
		return countWorkflows(e, "WorkflowType = 'Rollout' AND ExecutionStatus = 'Completed'") == n
	}, time.Minute, 200*time.Millisecond, "not all rollouts have ended")
}

func countWorkflows(e *harness.Engine, query string) int {
	answer, err := e.Workflows.CountWorkflow(context.Background(),
		&workflowservice.CountWorkflowExecutionsRequest{Namespace: e.TemporalNamespace, Query: query})
	if err != nil {
		return -1
	}
	return int(answer.GetCount())
}
