package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// The home cluster's state is dumped, deleted and restored by the commands of docs/operations.md while a canary waits.
// The canary continues; the catalogue, plans, records and servings are restored and can be released again.
func TestLongWaitingCanary_Continues_AfterHomeClusterRestore(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t) // the commands cover all namespaces
	e := harness.Start(t, harness.Options{Stack: &p.Stack, SeparateWorker: true})
	u := newTwoParties(t, e)
	u.create("score", serving.Policy{})
	u.WaitServing("score", "Available", harness.ServingAvailable)
	u.update("score", u.better, u.better)
	u.WaitServing("score", "the update", harness.ServingAvailable)
	r := prepareUnobserved(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	r.StartRollout(r.rollout)
	gate := r.WaitForApproval(r.rollout.Name, 1).WaitingFor.Gate
	e.Deployment("web", 1, nil)
	e.WaitReadyPods("web", 1)
	e.PutService("1", "", "Deployment/web")
	e.PutPlan("restart", "deployPlanItems: [{serviceId: 1, deployment: RESTART}]")
	task := e.Execute("restart")
	e.WaitTask(task, plan.TaskSucceeded)

	b := backup{t: t, e: e, folder: t.TempDir()}
	b.run(b.commands("{ kubectl get"))
	for _, process := range e.Processes {
		require.NoError(t, process.Stop())
	}
	b.deleteHomeState()
	b.run(b.commands("kubectl apply --server-side"))
	for _, party := range []string{u.alice, u.bob} {
		b.run(strings.ReplaceAll(b.commands("kubectl -n NAMESPACE delete"), "NAMESPACE", party))
	}
	o := harness.Options{Stack: &p.Stack}
	e.Server(o)
	e.Worker(o)
	e.WaitReady()

	require.Equal(t, plan.TaskSucceeded, e.Task(task).State, "records are restored")
	e.WaitTask(e.Execute("restart"), plan.TaskSucceeded)
	status := r.WaitForApproval(r.rollout.Name, 1)
	require.Equal(t, gate, status.WaitingFor.Gate)
	for step := 1; step < len(r.rollout.Strategy.Steps); step++ {
		r.Approve(r.rollout.Name, r.WaitForApproval(r.rollout.Name, step))
	}
	r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
	u.WaitServing("score", "Available", harness.ServingAvailable)
	u.update("score", u.good, u.good)
	u.WaitServing("score", "another update", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingAvailable(kd) && u.tag(u.alice, "score") == "v1" && u.tag(u.bob, "score") == "v1"
	})
	u.remove("score")
	require.Eventually(t, func() bool { return u.Serving(u.Home, "score") == nil }, harness.Patience, harness.Tick)
}

// backup runs commands from the documentation.
type backup struct {
	t      *testing.T
	e      *harness.Engine
	folder string
}

// commands returns the code block of docs/operations.md that starts with first, with the namespaces of the test's
// engine.
func (b backup) commands(first string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "docs/operations.md"))
	require.NoError(b.t, err)
	_, block, found := strings.Cut(string(text), "```sh\n"+first)
	require.True(b.t, found, first)
	block, _, _ = strings.Cut(first+block, "```")
	return strings.NewReplacer("-n slipway ", "-n "+b.e.Home+" ", "-n cross-domain ", "-n "+b.e.Home+" ").Replace(block)
}

func (b backup) run(commands string) {
	b.t.Helper()
	shell := exec.Command("bash", "-euo", "pipefail", "-c", commands)
	shell.Dir = b.folder
	shell.Env = append(os.Environ(), "KUBECONFIG="+b.e.Kubeconfig, "PATH="+b.e.Bin+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	require.NoError(b.t, err, "%s\n%s", commands, out)
}

// deleteHomeState deletes everything that the engine stores in the home cluster.
func (b backup) deleteHomeState() {
	b.run(strings.ReplaceAll(`
kubectl -n HOME patch kusciadeployment score --type merge -p '{"metadata":{"finalizers":null}}'
kubectl -n HOME delete releaseservices.slipway.io,deployplans.slipway.io,parties.slipway.io,releaserecords.slipway.io,kusciadeployments.kuscia.secretflow --all
kubectl -n HOME delete configmap slipway-engine
kubectl delete appimages.kuscia.secretflow --all
`, "HOME", b.e.Home))
	require.Empty(b.t, strings.TrimSpace(b.e.Kubectl("-n", b.e.Home, "get", "releaserecords", "-o", "name")))
}
