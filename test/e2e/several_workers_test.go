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

// Three servers and four workers over one Temporal on PostgreSQL, killed at any time: nothing is lost and nothing happens twice.
func TestLongSeveralServersAndWorkers(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	severalUnderKills(t, 8)
}

func TestSoakSeveralServersAndWorkers(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	severalUnderKills(t, 200)
}

// several is an engine of three servers and four workers, of which each is killed and started again.
type several struct {
	*harness.Engine
	t    *testing.T
	pets []*pet
	// writes are how often what a round makes is written when nothing is killed.
	writes map[string]int64
	// union is two parties, with images from before anything is killed.
	union *union
}

const (
	severalServers = 3
	severalWorkers = 4
)

func startSeveral(t *testing.T, stack *harness.Stack) *several {
	t.Helper()
	o := harness.Options{Apart: true, Stack: stack}
	first := harness.Start(t, o)
	servers := []*harness.Engine{first}
	s := &several{t: t, writes: map[string]int64{}, pets: []*pet{newPet(first.Processes[0], func() *harness.Process { return first.Server(o) })}}
	for len(servers) < severalServers {
		other, process := first.Beside(o)
		servers = append(servers, other)
		s.pets = append(s.pets, newPet(process, func() *harness.Process { return other.Server(o) }))
	}
	for range severalWorkers - 1 {
		s.pets = append(s.pets, newPet(first.Worker(o), func() *harness.Process { return first.Worker(o) }))
	}
	s.pets = append(s.pets, newPet(first.Processes[1], func() *harness.Process { return first.Worker(o) }))
	for _, server := range servers {
		server.WaitReady()
	}
	s.union, s.Engine = unite(t, first), first.Balanced(servers...)
	return s
}

func severalUnderKills(t *testing.T, kills int) {
	t.Helper()
	temporal := compose.StartTemporal(t)
	s := startSeveral(t, &temporal.Stack)
	random := harness.Random(t)
	rounds := []func(t *testing.T, name string){s.restartsOnce, s.rollsOut, s.serves}
	for n, round := range rounds {
		round(t, fmt.Sprintf("clean-%d", n))
	}
	var over atomic.Bool
	var wg sync.WaitGroup
	for n, round := range rounds {
		wg.Go(func() {
			for i := 0; !over.Load() && !t.Failed(); i++ {
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
		victim := random.IntN(len(s.pets))
		t.Logf("%s: kill %d of %d, process %d", time.Now().Format("15:04:05.000"), n+1, kills, victim)
		s.pets[victim].kill()
	}
	over.Store(true)
	wg.Wait()
	s.requireEachOnce()
	harness.Covered(t, kills, "random kills of three servers and four workers")
}

// restartsOnce executes a plan; a request whose server dies is sent again with its key.
func (s *several) restartsOnce(t *testing.T, name string) {
	e := s.For(t)
	e.Deployment("restarted", 3, nil)
	e.WaitReadyPods("restarted", 3)
	s.again("service", func() bool {
		a := e.Call(http.MethodPut, "/api/v1/services/"+name, fmt.Sprintf("workloads: [{namespace: %s, workloadRef: {apiVersion: apps/v1, kind: Deployment, name: restarted}}]", e.Apps))
		return a.Status == http.StatusOK || a.Status == http.StatusCreated
	})
	s.again("plan", func() bool {
		a := e.Call(http.MethodPut, "/api/v1/plans/"+name, "deployPlanItems: [{serviceId: "+name+", deployment: RESTART, containerExecMethod: SEQUENTIAL}]")
		return a.Status == http.StatusOK || a.Status == http.StatusCreated
	})
	generation := e.DeploymentGeneration("restarted")
	watch := observer.Start(t, e.Kube, e.Apps)
	defer watch.Stop()
	task := e.WaitTask(e.Execute(name, "Idempotency-Key", name), plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted)
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	seen := watch.Timeline(t)
	require.Len(t, seen.Made[observer.Name{Kind: "Deployment", Name: "restarted"}], 3, "each of three pods is replaced once:\n%s", seen)
	s.asWithoutKills("restarted Deployment", e.DeploymentGeneration("restarted")-generation)
}

// rollsOut goes through a canary with traffic, with an approval at each step.
func (s *several) rollsOut(t *testing.T, name string) {
	r := prepare(t, s.Engine, deploymentBy(strategy.StyleCanary, harness.Nginx), nil)
	body, err := json.Marshal(r.rollout.Body(r.Apps))
	require.NoError(t, err)
	s.again("start", func() bool {
		a := r.Call(http.MethodPost, "/api/v1/rollouts", string(body), "Idempotency-Key", name)
		require.Contains(t, []int{http.StatusAccepted, http.StatusOK, http.StatusServiceUnavailable, http.StatusUnprocessableEntity}, a.Status, "%s", a.Body)
		return a.Status == http.StatusAccepted || a.Status == http.StatusOK
	})
	r.approveAll(1)
	r.endsNew()
	r.watch.RequirePromises(t)
}

// serves has a serving declared, which the controllers of all three servers see, and waits for it to come up and go away.
func (s *several) serves(t *testing.T, name string) {
	u := s.union
	seen := map[string]*observer.Observer{}
	for _, party := range []string{u.alice, u.bob} {
		seen[party] = observer.Start(t, u.Kube, party)
		defer seen[party].Stop()
	}
	u.Kubectl("apply", "-f", writeFile(t, fmt.Sprintf(`{"apiVersion":"kuscia.secretflow/v1alpha1","kind":"KusciaDeployment","metadata":{"name":%q,"namespace":%q},
		"spec":{"initiator":%q,"parties":[{"domainID":%q,"appImageRef":%q,"template":{"replicas":2}},{"domainID":%q,"appImageRef":%q,"template":{"replicas":2}}]}}`,
		name, u.Home, u.alice, u.alice, u.good, u.bob, u.good)))
	u.WaitServing(name, "up", harness.ServingAvailable)
	for _, party := range []string{u.alice, u.bob} {
		made := seen[party].Timeline(t).Made[observer.Name{Kind: "Deployment", Name: u.deployment(party, name).Name}]
		require.Len(t, made, 2, "%s makes each of two pods once", party)
	}
	u.Kubectl("delete", "kd", name, "-n", u.Home)
	for _, party := range []string{u.alice, u.bob} {
		require.Eventually(t, func() bool { return u.deployment(party, name) == nil }, harness.Patience, harness.Tick, "what %s served is gone", party)
	}
}

// asWithoutKills wants as many writes of an object as the first time, when nothing was killed. A repeated write leaves the generation unchanged.
func (s *several) asWithoutKills(what string, writes int64) {
	s.t.Helper()
	if _, known := s.writes[what]; !known {
		s.writes[what] = writes
	}
	require.Equal(s.t, s.writes[what], writes, "writes of the %s", what)
}

func (s *several) again(what string, ask func() bool) {
	s.t.Helper()
	require.Eventually(s.t, ask, harness.Patience, harness.Tick, "%s: still nobody answers", what)
}

// requireEachOnce wants one workflow for each task and rollout, and for each operation on a serving, all of them completed.
func (s *several) requireEachOnce() {
	s.t.Helper()
	var listed *workflowservice.ListWorkflowExecutionsResponse
	s.again("visibility", func() bool {
		var err error
		listed, err = s.Workflows.ListWorkflow(s.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: "ExecutionStatus != 'Completed'"})
		return err == nil && len(listed.Executions) == 0
	})
	listed, err := s.Workflows.ListWorkflow(s.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000, Query: "WorkflowType IN ('DeployPlan', 'Rollout', 'Serving')"})
	require.NoError(s.t, err)
	var ids []string
	for _, x := range listed.Executions {
		ids = append(ids, x.GetExecution().GetWorkflowId())
	}
	slices.Sort(ids)
	require.Equal(s.t, slices.Compact(slices.Clone(ids)), ids, "each once")
	s.t.Logf("%d releases", len(ids))
	require.NotEmpty(s.t, ids)
}
