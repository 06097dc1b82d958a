package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/compose"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// Three servers and four workers share one Temporal on PostgreSQL and are killed at random times. Every release
// completes, and none runs twice.
func TestLongSeveralServersAndWorkers_RunEveryReleaseOnce_WhenKilled(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testSeveralUnderKills(t, 8)
}

func TestSoakSeveralServersAndWorkers_RunEveryReleaseOnce_WhenKilled(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	testSeveralUnderKills(t, 200)
}

// severalProcesses is an engine of three servers and four workers, each of which is killed and restarted.
type severalProcesses struct {
	*harness.Engine
	t         *testing.T
	processes []*restartable
	// writes is the number of writes per kind of object in a round without kills.
	writes map[string]int64
	// parties are two parties with AppImages that are registered before the first kill.
	parties *twoParties
}

const (
	severalServers = 3
	severalWorkers = 4
)

func startSeveral(t *testing.T, stack *harness.Stack) *severalProcesses {
	t.Helper()
	o := harness.Options{SeparateWorker: true, Stack: stack}
	first := harness.Start(t, o)
	servers := []*harness.Engine{first}
	s := &severalProcesses{t: t, writes: map[string]int64{},
		processes: []*restartable{newRestartable(first.Processes[0], func() *harness.Process {
			return first.Server(o)
		})}}
	for len(servers) < severalServers {
		other, process := first.SecondServer(o)
		servers = append(servers, other)
		s.processes = append(s.processes, newRestartable(process, func() *harness.Process { return other.Server(o) }))
	}
	for range severalWorkers - 1 {
		s.processes = append(s.processes, newRestartable(first.Worker(o), func() *harness.Process {
			return first.Worker(o)
		}))
	}
	s.processes = append(s.processes, newRestartable(first.Processes[1], func() *harness.Process {
		return first.Worker(o)
	}))
	for _, server := range servers {
		server.WaitReady()
	}
	s.parties, s.Engine = newTwoParties(t, first), first.Balanced(servers...)
	return s
}

func testSeveralUnderKills(t *testing.T, kills int) {
	t.Helper()
	temporal := compose.StartTemporal(t)
	s := startSeveral(t, &temporal.Stack)
	random := harness.Random(t)
	rounds := []func(t *testing.T, name string){s.restartsOnce, s.rollsOut, s.serves}
	for n, round := range rounds {
		round(t, fmt.Sprintf("clean-%d", n))
	}
	var finished atomic.Bool
	var wg sync.WaitGroup
	for n, round := range rounds {
		wg.Go(func() {
			for i := 0; !finished.Load() && !t.Failed(); i++ {
				round(t, fmt.Sprintf("round-%d-%d", n, i))
			}
		})
	}
	for n := range kills {
		if t.Failed() {
			break
		}
		timer := time.NewTimer(500*time.Millisecond + time.Duration(random.Int64N(int64(3*time.Second))))
		<-timer.C
		victim := random.IntN(len(s.processes))
		t.Logf("%s: kill %d of %d, process %d", time.Now().Format("15:04:05.000"), n+1, kills, victim)
		s.processes[victim].kill()
	}
	finished.Store(true)
	wg.Wait()
	s.requireEachOnce()
	harness.Covered(t, kills, "random kills of three servers and four workers")
}

// restartsOnce executes a plan with a RESTART; a request whose server is killed is repeated with its idempotency key.
func (s *severalProcesses) restartsOnce(t *testing.T, name string) {
	e := s.ForTest(t)
	e.Deployment("restarted", 3, nil)
	e.WaitReadyPods("restarted", 3)
	s.retryUntil("service", func() bool {
		a := e.Call(http.MethodPut, "/api/v1/services/"+name,
			fmt.Sprintf("workloads: [{namespace: %s, workloadRef: {apiVersion: apps/v1, kind: Deployment, name: "+
				"restarted}}]", e.Apps))
		return a.Status == http.StatusOK || a.Status == http.StatusCreated
	})
	s.retryUntil("plan", func() bool {
		a := e.Call(http.MethodPut, "/api/v1/plans/"+name,
			"deployPlanItems: [{serviceId: "+name+", deployment: RESTART, containerExecMethod: SEQUENTIAL}]")
		return a.Status == http.StatusOK || a.Status == http.StatusCreated
	})
	generation := e.DeploymentGeneration("restarted")
	watch := observer.Start(t, e.Kube, e.Apps)
	defer watch.Stop()
	task := e.WaitTask(e.Execute(name, "Idempotency-Key", name), plan.TaskSucceeded, plan.TaskFailed,
		plan.TaskInterrupted)
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	seen := watch.Timeline(t)
	require.Len(t, seen.Created[observer.Name{Kind: "Deployment", Name: "restarted"}], 3,
		"each of three pods is replaced once:\n%s", seen)
	s.requireSameWrites("restarted Deployment", e.DeploymentGeneration("restarted")-generation)
}

// testRollouts runs a canary with traffic and an approval at each step.
func (s *severalProcesses) rollsOut(t *testing.T, name string) {
	r := prepare(t, s.Engine, deploymentCell(strategy.StyleCanary, harness.Nginx), nil)
	body, err := json.Marshal(r.rollout.Body(r.Apps))
	require.NoError(t, err)
	s.retryUntil("start", func() bool {
		a := r.Call(http.MethodPost, "/api/v1/rollouts", string(body), "Idempotency-Key", name)
		require.Contains(t, []int{http.StatusAccepted, http.StatusOK, http.StatusServiceUnavailable,
			http.StatusUnprocessableEntity}, a.Status, "%s", a.Body)
		return a.Status == http.StatusAccepted || a.Status == http.StatusOK
	})
	r.approveAll(1)
	r.requirePromoted()
	r.watch.RequirePromises(t)
}

// serves applies a serving, which the controllers of all three servers watch, waits until it is Available, and deletes
// it.
func (s *severalProcesses) serves(t *testing.T, name string) {
	u := s.parties
	seen := map[string]*observer.Observer{}
	for _, party := range []string{u.alice, u.bob} {
		seen[party] = observer.Start(t, u.Kube, party)
		defer seen[party].Stop()
	}
	u.Kubectl("apply", "-f", writeFile(t, fmt.Sprintf(
		`{"apiVersion":"kuscia.secretflow/v1alpha1","kind":"KusciaDeployment","metadata":{"name":%q,"namespace":%q},
		"spec":{"initiator":%q,"parties":[{"domainID":%q,"appImageRef":%q,"template":{"replicas":2}},{"domainID":%q,"appImageRef":%q,"template":{"replicas":2}}]}}`,
		name, u.Home, u.alice, u.alice, u.good, u.bob, u.good)))
	u.WaitServing(name, "Available", harness.ServingAvailable)
	for _, party := range []string{u.alice, u.bob} {
		made := seen[party].Timeline(t).Created[observer.Name{Kind: "Deployment", Name: u.deployment(party, name).Name}]
		require.Len(t, made, 2, "%s creates each of two pods once", party)
	}
	u.Kubectl("delete", "kd", name, "-n", u.Home)
	for _, party := range []string{u.alice, u.bob} {
		require.Eventually(t, func() bool {
			return u.deployment(party, name) == nil
		}, harness.Patience, harness.Tick, "the Deployment of %s is deleted", party)
	}
}

// requireSameWrites requires the same number of writes of an object as in the first round, which has no kills. A
// repeated identical write leaves the generation unchanged.
func (s *severalProcesses) requireSameWrites(what string, writes int64) {
	s.t.Helper()
	if _, known := s.writes[what]; !known {
		s.writes[what] = writes
	}
	require.Equal(s.t, s.writes[what], writes, "writes of the %s", what)
}

// retryUntil repeats a request until it returns true.
func (s *severalProcesses) retryUntil(what string, request func() bool) {
	s.t.Helper()
	require.Eventually(s.t, request, harness.Patience, harness.Tick, "%s: still no successful answer", what)
}

// requireEachOnce requires exactly one completed workflow per task, rollout and operation on a serving.
func (s *severalProcesses) requireEachOnce() {
	s.t.Helper()
	var listed *workflowservice.ListWorkflowExecutionsResponse
	s.retryUntil("visibility", func() bool {
		var err error
		listed, err = s.Workflows.ListWorkflow(s.t.Context(),
			&workflowservice.ListWorkflowExecutionsRequest{Query: "ExecutionStatus != 'Completed'"})
		return err == nil && len(listed.Executions) == 0
	})
	listed, err := s.Workflows.ListWorkflow(s.t.Context(),
		&workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000,
			Query: "WorkflowType IN ('DeployPlan', 'Rollout', 'Serving')"})
	require.NoError(s.t, err)
	var ids []string
	for _, x := range listed.Executions {
		ids = append(ids, x.GetExecution().GetWorkflowId())
	}
	slices.Sort(ids)
	require.Equal(s.t, slices.Compact(slices.Clone(ids)), ids, "no workflow ID occurs twice")
	s.t.Logf("%d releases", len(ids))
	require.NotEmpty(s.t, ids)
}
