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
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
)

// The rollouts that are measured: Deployments of 5 pods, in 5 steps of 20 % that go on at once, without traffic.
const (
	rolloutPods  = 5
	rolloutSteps = 5
	// maxWrites is a promise: what one rollout may write to the API server.
	maxWrites = 17
	// clients is how many requests are sent at once.
	clients = 16
)

// setting is how many rollouts are measured, and of what.
type setting struct {
	// n Deployments of pods pods are released at once.
	n, pods int
	// rest is what each step but the last rests before the next one.
	rest time.Duration
	// idle Deployments without a pod stand in their namespace.
	idle int
	// shaped changes the Deployments before they are made; nil: they are as Kubernetes makes them.
	shaped func(d *appsv1.Deployment)
	// timed leaves out what counts requests, which takes time itself.
	timed bool
}

// stack is what they run on, and the tally of their requests.
func (s setting) stack(t *testing.T) (harness.Stack, tally) {
	if s.timed {
		return harness.SharedStack(t), tally{}
	}
	return stackOf(t, s.n)
}

// N rollouts at once, beside a plain rolling update of the same Deployments in the same run. What is promised of each rollout holds for few as well.
func TestLongRolloutsAtOnce(t *testing.T) {
	harness.Long(t)
	measureRollouts(t, setting{n: 20, pods: rolloutPods})
}

// As few as are counted, to be timed.
func TestSoakTwentyRolloutsAtOnce(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 20, pods: rolloutPods, timed: true})
}

// The size that the figures are told for.
func TestSoakRolloutsAtOnce(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 100, pods: rolloutPods})
}

// The gates between steps are on the bill.
func TestSoakRolloutsThatRest(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 100, pods: rolloutPods, rest: time.Second})
}

// What stands beside the workloads that are released costs them nothing.
func TestSoakRolloutsAmongMany(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 100, pods: rolloutPods, idle: 1000})
}

// Ten times as many take ten times as long.
func TestSoakThousandRolloutsAtOnce(t *testing.T) {
	harness.Soak(t)
	measureRollouts(t, setting{n: 1000, pods: 1})
}

func measureRollouts(t *testing.T, s setting) {
	n := s.n
	stack, counted := s.stack(t)
	e := harness.Start(t, harness.Options{Apart: true, Stack: &stack})
	each(s.idle, func(i int) { e.Deployment(idlePrefix+strconv.Itoa(i), 0, nil) })

	makeDeployments(t, e, s)
	servedFirst := requestsServed(t, e)
	plain := measure(t, e, func() {
		each(n, func(i int) { setImage(t, e, deploymentName(i), ":v2") })
		waitReleased(t, e, n, ":v2")
	})
	settle(t, e)
	servedPlain := requestsServed(t, e).since(servedFirst)
	clearAway(t, e, e.Apps)
	makeDeployments(t, e, s)
	servedFirst = requestsServed(t, e)
	before := counted.now()
	ours := measure(t, e, func() {
		each(n, func(i int) { startRollout(t, e, deploymentName(i), ":v2", s.rest) })
		waitReleased(t, e, n, ":v2")
	})
	waitClosed(t, e, n)
	settle(t, e)
	servedOurs := requestsServed(t, e).since(servedFirst)
	after := counted.now()
	events := e.Events(rollout.WorkflowID("", e.Apps, deploymentName(0)))
	noted(t, "events of each", float64(events))

	fmt.Printf("\n%d Deployments of %d pods, all changed at once; rollouts of %d steps that rest %s, no traffic; %d Deployments beside them\n", n, s.pods, rolloutSteps,
		s.rest, s.idle)
	printRatios(t, "rollouts", plain, ours)
	printStretches(t, e)
	printServed(n, servedPlain, servedOurs)
	fmt.Printf("  history: %d events, %.1f per step\n", events, float64(events)/rolloutSteps)
	printTypes(e.History(rollout.WorkflowID("", e.Apps, deploymentName(0))))
	fmt.Printf("  peak memory: server %d MiB, worker %d MiB\n\n", ours.serverRSS>>20, ours.workerRSS>>20)
	harness.Covered(t, n, "rollouts at once")
	after.check(t, before, n, maxWrites)
}

// makeDeployments makes what is released. Both find the same: Deployments of one revision.
func makeDeployments(t *testing.T, e *harness.Engine, s setting) {
	mark := func(d *appsv1.Deployment) {
		markCompared(d)
		if s.shaped != nil {
			s.shaped(d)
		}
	}
	each(s.n, func(i int) { e.Deployment(deploymentName(i), int32(s.pods), mark) })
	waitReleased(t, e, s.n, ":v1")
	settle(t, e)
}

// printRatios says what something took beside what is compared with it.
func printRatios(t *testing.T, what string, plain, ours usage) {
	fmt.Printf("  %-34s %10s %12s %10s\n", "", "plain", what, "ratio")
	row := func(what string, a, b float64) {
		ratio := "–"
		noted(t, what+", s", b)
		if a > 0.5 { // of next to nothing a ratio says nothing
			ratio = fmt.Sprintf("%.2f", b/a)
			noted(t, what+", ratio", b/a)
		}
		fmt.Printf("  %-34s %10.1f %12.1f %10s s\n", what, a, b, ratio)
	}
	row("wall time", plain.wall.Seconds(), ours.wall.Seconds())
	row("CPU of slipway (server + worker)", plain.slipway(), ours.slipway())
	row("CPU of Temporal", plain.temporal(), ours.temporal())
	row("CPU of the Kubernetes control plane", plain.control(), ours.control())
	for _, part := range append(append([]string{"temporal"}, oursParts...), controlParts...) {
		row("  "+part, plain.by[part], ours.by[part])
	}
}

// printStretches says when the workflows of rollouts began, and how long they took: what starts late has waited at the door, what takes long has waited inside.
func printStretches(t *testing.T, e *harness.Engine) {
	var begun []time.Time
	var took []time.Duration
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: e.TemporalNamespace, Query: "WorkflowType = 'Rollout'"}
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
	fmt.Printf("  the last one began after %.1f s; a rollout took %.1f s (median), %.1f s (the longest)\n", begun[len(begun)-1].Sub(begun[0]).Seconds(), took[len(took)/2].Seconds(), took[len(took)-1].Seconds())
}

// printTypes says of which types the events of a history are.
func printTypes(events []*historypb.HistoryEvent) {
	types := map[string]int{}
	for _, event := range events {
		types[event.GetEventType().String()]++
	}
	for _, of := range slices.Sorted(maps.Keys(types)) {
		fmt.Printf("    %d × %s\n", types[of], of)
	}
}

// Canaries with traffic by an Ingress, in three steps that are approved as soon as they wait.
func TestSoakFewCanariesByIngress(t *testing.T) {
	harness.Soak(t)
	measureCanaries(t, 10)
}

// The size that the figures are told for.
func TestSoakCanariesByIngress(t *testing.T) {
	harness.Soak(t)
	measureCanaries(t, 100)
}

// maxCanaryWrites is how often one of these canaries writes at most.
const maxCanaryWrites = 25

// canaryApprovals is how many of a canary's three steps wait for somebody: the last one is the whole.
const canaryApprovals = 2

func measureCanaries(t *testing.T, n int) {
	stack, counted := stackOf(t, n)
	e := harness.Start(t, harness.Options{Apart: true, Stack: &stack})
	each(n, func(i int) { e.Deployment(deploymentName(i), rolloutPods, nil) })
	waitReleased(t, e, n, ":v1")
	each(n, func(i int) { e.Route(harness.Nginx, deploymentName(i)) })
	before := counted.now()
	used := measure(t, e, func() {
		var canaries sync.WaitGroup
		for i := range n {
			canaries.Go(func() { releaseCanary(t, e, deploymentName(i)) })
		}
		canaries.Wait()
	})
	after := counted.now()
	events := e.History(rollout.WorkflowID("", e.Apps, deploymentName(0)))
	fmt.Printf("\n%d canaries of %d pods with traffic by Ingress, 3 steps, of which %d are approved at once\n", n, rolloutPods, canaryApprovals)
	noted(t, "wall time, s", used.wall.Seconds())
	noted(t, "events per stretch", float64(len(events))/(canaryApprovals+1))
	fmt.Printf("  wall time %.1f s; CPU: slipway %.1f s, Temporal %.1f s, control plane %.1f s\n", used.wall.Seconds(), used.slipway(), used.temporal(), used.control())
	fmt.Printf("  history: %d events, %.1f per stretch (the start and each approval)\n", len(events), float64(len(events))/(canaryApprovals+1))
	printTypes(events)
	fmt.Printf("  peak memory: server %d MiB, worker %d MiB\n\n", used.serverRSS>>20, used.workerRSS>>20)
	harness.Covered(t, n, "canaries with traffic")
	after.check(t, before, n, maxCanaryWrites)
}

// releaseCanary starts a canary, and approves each of its steps that waits.
func releaseCanary(t *testing.T, e *harness.Engine, name string) {
	steps := []strategy.Step{harness.Step("20%", 20), harness.Step("40%", 40), harness.Timed(harness.Step("100%", -1), 0)}
	post(t, e, harness.Rollout{Kind: harness.Deployment, Name: name, Image: image(name, ":v2"), Strategy: strategy.Strategy{Style: strategy.StylePartition,
		Steps: steps, Routings: e.RoutingOf(harness.Nginx, name)}})
	for step := range canaryApprovals {
		e.Approve(name, e.WaitRest(name, step+1))
	}
	e.WaitPhase(name, rollout.PhaseHealthy)
}

// waiting are rollouts that wait for somebody.
type waiting struct {
	n    int
	pods int32
	// watched is how long they are watched.
	watched time.Duration
	// counted has their requests be counted, by a proxy that takes as much of a processor as Slipway does.
	counted bool
}

// waitsWatched is how long those are watched that wait in numbers: what their start has taken of memory is given back in the first half of it.
const waitsWatched = 4 * time.Minute

// Rollouts that wait for somebody: what they cost.
func TestLongRolloutsWaiting(t *testing.T) {
	harness.Long(t)
	measureWaiting(t, waiting{n: 50, pods: 2, watched: 10 * time.Second, counted: true})
}

func TestSoakRolloutsWaiting(t *testing.T) {
	harness.Soak(t)
	measureWaiting(t, waiting{n: 500, pods: 2, watched: waitsWatched, counted: true})
}

func TestSoakFiveThousandRolloutsWaiting(t *testing.T) {
	harness.Soak(t)
	measureWaiting(t, waiting{n: 5_000, pods: 1, watched: waitsWatched})
}

// measureWaiting has rollouts wait, and watches them.
func measureWaiting(t *testing.T, w waiting) {
	stack := harness.SharedStack(t)
	var requests *harness.CountingProxy
	if w.counted {
		requests = harness.NewCountingProxy(t, stack)
		stack.Kubeconfig = requests.Kubeconfig
	}
	e := harness.Start(t, harness.Options{Apart: true, Stack: &stack})
	spread := spreadOver(t, e, (w.n-1)/mostTogether+1)
	each(w.n, func(i int) { spread[i%len(spread)].Deployment(deploymentName(i), w.pods, nil) })
	for i, one := range spread {
		waitReleased(t, one, (w.n-i-1)/len(spread)+1, ":v1")
	}
	defer showOthers(t, e)
	for started := 0; started < w.n; {
		next := min(started+startedTogether, w.n)
		each(next-started, func(i int) { startWaiting(t, spread[(started+i)%len(spread)], deploymentName(started+i)) })
		started = next
		waitApprovals(t, e, max(started-startedTogether, 0))
	}
	waitApprovals(t, e, w.n)

	if w.counted { // the events of the last ones' rests are written beside the work
		waitUnwritten(t, requests)
	}
	asked := askedBy(requests)
	timer := time.NewTimer(w.watched)
	used := measure(t, e, func() { <-timer.C })
	perMinute := w.watched.Minutes()
	fmt.Printf("\n%d rollouts that wait for an approval, over %s\n", w.n, w.watched)
	fmt.Printf("  CPU per minute: server %.2f s, worker %.2f s, Temporal %.2f s\n", used.by[oursParts[0]]/perMinute, used.by[oursParts[1]]/perMinute, used.temporal()/perMinute)
	writes := asked()
	fmt.Printf("  memory at most, and at the end: server %d, %d MiB, worker %d, %d MiB\n\n", used.serverRSS>>20, rss(e.Processes[0].PID())>>20, used.workerRSS>>20,
		rss(e.Processes[1].PID())>>20)
	harness.Covered(t, w.n, "rollouts that wait")
	if w.counted {
		require.Zero(t, writes, "a rollout that waits writes nothing")
	}
}

// startedTogether is how many rollouts start before those of before them have come to wait: a flood of thousands would be measured as a flood.
const startedTogether = 50

// waitApprovals waits until so many rollouts, or more, wait for an approval.
func waitApprovals(t *testing.T, e *harness.Engine, n int) {
	require.Eventually(t, func() bool { return count(e, "SlipwayWaitingFor = 'approval'") >= n }, 10*time.Minute, 200*time.Millisecond,
		"not %d rollouts came to wait for an approval", n)
}

// mostTogether is how many workloads that wait stand in one namespace at most.
const mostTogether = 500

// spreadOver is the engine with so many namespaces.
func spreadOver(t *testing.T, e *harness.Engine, namespaces int) []*harness.Engine {
	spread := []*harness.Engine{e}
	for len(spread) < namespaces {
		spread = append(spread, e.For(t))
	}
	return spread
}

// askedBy prints what was asked between its call and that of what it answers, which says how many writes there were. nil: nothing is counted.
func askedBy(p *harness.CountingProxy) (told func() (writes int)) {
	if p == nil {
		return func() int { return 0 }
	}
	writesBefore, readsBefore, watchesBefore := p.Requests()
	before, written := p.Asked("read"), p.Asked("write")
	return func() int {
		writes, reads, watches := p.Requests()
		fmt.Printf("  API requests of ours: %d writes, %d reads, %d watches begun\n", writes-writesBefore, reads-readsBefore, watches-watchesBefore)
		printAsked("read", before, p.Asked("read"))
		printAsked("write", written, p.Asked("write"))
		return writes - writesBefore
	}
}

// waitUnwritten returns when nothing has been written for two seconds.
func waitUnwritten(t *testing.T, p *harness.CountingProxy) {
	t.Helper()
	last, since := -1, time.Now()
	require.Eventually(t, func() bool {
		if writes, _, _ := p.Requests(); writes != last {
			last, since = writes, time.Now()
		}
		return time.Since(since) > 2*time.Second
	}, harness.Patience, harness.Tick, "there are still writes")
}

// showOthers says, when a test has failed, what some of the rollouts do that do not wait for an approval.
func showOthers(t *testing.T, e *harness.Engine) {
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

// idlePrefix begins the names of Deployments that nobody releases.
const idlePrefix = "idle-"

func deploymentName(i int) string { return fmt.Sprintf("d%d", i) }

// each does something for every number below n, a few at a time.
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
	_, err := e.Kube.AppsV1().Deployments(e.Apps).Patch(context.Background(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func startRollout(t *testing.T, e *harness.Engine, name, tag string, rest time.Duration) {
	var steps []strategy.Step
	for i := range rolloutSteps {
		if i == rolloutSteps-1 {
			rest = 0
		}
		steps = append(steps, harness.Timed(harness.Step(fmt.Sprintf("%d%%", 100*(i+1)/rolloutSteps), -1), rest))
	}
	post(t, e, harness.Rollout{Kind: harness.Deployment, Name: name, Image: image(name, tag), Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: steps}})
}

func startWaiting(t *testing.T, e *harness.Engine, name string) {
	steps := []strategy.Step{harness.Step("50%", -1), harness.Step("100%", -1)}
	post(t, e, harness.Rollout{Kind: harness.Deployment, Name: name, Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: steps}})
}

func post(t *testing.T, e *harness.Engine, r harness.Rollout) {
	body, err := json.Marshal(r.Body(e.Apps))
	require.NoError(t, err)
	a := e.Call(http.MethodPost, "/api/v1/rollouts", string(body))
	if a.Status == http.StatusServiceUnavailable {
		// A machine that is busy with hundreds of others has not answered in time: then nothing was started.
		require.Eventually(t, func() bool {
			a = e.Call(http.MethodPost, "/api/v1/rollouts", string(body))
			return a.Status != http.StatusServiceUnavailable
		}, time.Minute, time.Second, "%s", r.Name)
	}
	require.Equal(t, http.StatusAccepted, a.Status, "%s", a.Body)
}

// waitReleased waits until the Deployments that are released serve a version.
func waitReleased(t *testing.T, e *harness.Engine, n int, tag string) {
	t.Helper()
	waitFor(t, deploymentsOf(e, e.Apps), n, func(object runtime.Object) bool {
		d, is := object.(*appsv1.Deployment)
		return is && released(d, tag)
	})
}

// released says that a Deployment serves a version, and that no release holds it. Those that nobody releases serve none.
func released(d *appsv1.Deployment, tag string) bool {
	s := d.Status
	return !strings.HasPrefix(d.Name, idlePrefix) && d.Spec.Template.Spec.Containers[0].Image == image(d.Name, tag) &&
		d.Annotations[workloadops.AnnotationClaimedBy] == "" &&
		s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == *d.Spec.Replicas && s.AvailableReplicas == *d.Spec.Replicas && s.Replicas == *d.Spec.Replicas
}

func waitClosed(t *testing.T, e *harness.Engine, n int) {
	require.Eventually(t, func() bool { return count(e, "WorkflowType = 'Rollout' AND ExecutionStatus = 'Completed'") == n }, time.Minute, 200*time.Millisecond, "not all rollouts are over")
}

func count(e *harness.Engine, query string) int {
	answer, err := e.Workflows.CountWorkflow(context.Background(), &workflowservice.CountWorkflowExecutionsRequest{Namespace: e.TemporalNamespace, Query: query})
	if err != nil {
		return -1
	}
	return int(answer.GetCount())
}
