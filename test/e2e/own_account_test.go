package e2e

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/release/account"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/test/harness"
)

// personal is an engine on a person's kubeconfig, and that person.
type personal struct {
	*harness.Engine
	t *testing.T
	// person is the person's user name.
	person string
}

// A person starts an engine with their own kubeconfig: first `slipway dev`, then server and worker apart. What the same
// person edits is held and restored in both cases. Afterwards an engine with another account is the only one that the
// guard lets pass.
func TestLongPersonsKubeconfig_IsHeldLikeEveryOther(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := harness.NewPrivateStack(t) // the guard is for the whole cluster
	options := harness.Options{Stack: &stack.Stack, Env: []string{harness.OwnAccount},
		Args: []string{"--install-guard=true"}}
	p := personal{Engine: harness.Start(t, options), t: t}
	p.person = strings.TrimSpace(p.Kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"))
	p.waitLog(p.Processes[0], "the guard is installed")
	p.requireAllowed(account.User(p.Home, "slipway"), account.User(p.Home, "slipway-dev"))
	p.declare()

	p.requireHeld("v2")
	require.NoError(t, p.Processes[0].Stop())
	options.Args = nil
	p.Processes = []*harness.Process{p.Server(options), p.Worker(options)}
	p.WaitReady()
	for _, process := range p.Processes {
		p.waitLog(process, "this process acts as a service account of its own")
	}
	p.requireHeld("v3")
	p.requireAllowed(account.User(p.Home, "slipway"), account.User(p.Home, "slipway-dev"))
	p.requireRights()
	for _, process := range p.Processes {
		require.NoError(t, process.Stop())
	}

	other := harness.Start(t, harness.Options{Stack: &stack.Stack, Args: []string{"--install-guard=true"},
		Kubeconfig: func(e *harness.Engine) string { return administrator(t, e) }})
	mine := account.User(other.Home, "release")
	p.waitLog(other.Processes[0], "no longer on the list of users whose edits pass: "+account.User(p.Home, "slipway"))
	p.requireAllowed(mine)
	require.NoError(t, other.Processes[0].Stop())

	loud := harness.Start(t, harness.Options{Stack: &stack.Stack, Args: []string{"--install-guard=true",
		"--engine-identity", mine}})
	p.waitLog(loud.Processes[0], "this process acts as "+p.person+", who is no service account")
	require.Contains(t, loud.Processes[0].Output(), "--own-account is off")
	p.waitLog(loud.Processes[0], "the guard is installed")
	_, status := runGuardCommand(t, stack.Stack, stack.Kubeconfig, "status")
	require.Contains(t, status, "WARNING      "+p.person+" is no service account: nothing that "+p.person+
		" edits is held, restored or refused")
	require.Regexp(t, `allowed +.*`+mine, status)
}

// administrator returns the kubeconfig of a service account that may do everything.
func administrator(t *testing.T, e *harness.Engine) string {
	t.Helper()
	e.Kubectl("-n", e.Home, "create", "serviceaccount", "release")
	e.Kubectl("create", "clusterrolebinding", e.Home, "--clusterrole", "cluster-admin", "--serviceaccount",
		e.Home+":release")
	return e.Login(t, e.Home, "release").Kubeconfig
}

func (p personal) waitLog(process *harness.Process, text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(process.Output(), text) }, harness.Patience,
		harness.Tick, "the log lacks %q", text)
}

// requireAllowed requires that the guard lets exactly these users pass, and that its status says so.
func (p personal) requireAllowed(users ...string) {
	p.t.Helper()
	code, status := runGuardCommand(p.t, p.Stack, p.Kubeconfig, "status")
	require.Zero(p.t, code, status)
	require.Regexp(p.t, `allowed +`+strings.Join(users, ", ")+`\n`, status)
	require.Regexp(p.t, `written +by .+ with slipway dev in the namespace home-.+, 20.+Z\n`, status)
	require.NotContains(p.t, status, "WARNING")
}

const workloadOfPerson = "web"

// declare creates a Deployment and a Rollout for it, by kubectl.
func (p personal) declare() {
	p.t.Helper()
	harness.LabelNamespace(p.t, p.Kube, p.Apps, guard.LabelGuard, "")
	p.Deployment(workloadOfPerson, 4, nil)
	p.WaitReadyPods(workloadOfPerson, 4)
	command := exec.Command(p.Binary("kubectl"), "-n", p.Apps, "apply", "-f", "-", "--kubeconfig", p.Kubeconfig)
	command.Stdin = strings.NewReader(`
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: web}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  strategy: {canary: {steps: [{replicas: 25%, pause: {}}, {replicas: 100%}]}}
`)
	out, err := command.CombinedOutput()
	require.NoError(p.t, err, "%s", out)
	p.waitRollout("{.status.phase}", "Healthy")
	require.Eventually(p.t, func() bool { // API servers enforce new policies after some seconds
		return p.setImage("v2", "--dry-run=server", "-o", "jsonpath={.spec.paused}") == "true"
	}, harness.Patience, harness.Tick, "the gate is not in force")
}

// setImage changes the image of the Deployment as the person.
func (p personal) setImage(version string, args ...string) string {
	p.t.Helper()
	return p.Kubectl(append([]string{"-n", p.Apps, "set", "image", "deployment/web", "*=registry.test/web:" + version},
		args...)...)
}

func (p personal) waitRollout(field, want string) {
	p.t.Helper()
	got := ""
	require.Eventually(p.t, func() bool {
		got = p.TryKubectl("-n", p.Apps, "get", "rollouts.rollouts.kruise.io", "web", "-o", "jsonpath="+field)
		return got == want
	}, harness.Patience, harness.Tick, "%s is not %s, but %v", field, want, lazily(func() string { return got }))
}

// requireHeld releases an image by `kubectl set image`: one pod of four is replaced, and the fields that the release has
// borrowed stay as they are. Then it lets the release end.
func (p personal) requireHeld(version string) {
	p.t.Helper()
	before := p.PodUIDs(workloadOfPerson)
	p.setImage(version)
	p.waitRollout("{.status.currentStepState}", "StepPaused")
	p.WaitReadyPods(workloadOfPerson, 4)
	kept := 0
	for uid := range p.PodUIDs(workloadOfPerson) {
		if before[uid] != "" {
			kept++
		}
	}
	require.Equal(p.t, 3, kept, "the gate holds what %s edits", p.person)
	const strategy = "jsonpath={.spec.strategy}{.spec.paused}"
	borrowed := p.Kubectl("-n", p.Apps, "get", "deployment", "web", "-o", strategy)
	p.Kubectl("-n", p.Apps, "patch", "deployment", "web", "--type=merge", "-p",
		`{"spec":{"paused":null,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"100%"}}}}`)
	require.Equal(p.t, borrowed, p.Kubectl("-n", p.Apps, "get", "deployment", "web", "-o", strategy),
		"the guard restores what %s edits", p.person)
	require.Contains(p.t, p.TryKubectl("-n", p.Apps, "annotate", "deployment", "web", "slipway.io/claimed-by-"),
		"belongs to the running release", "%s may not edit the marks", p.person)
	p.Kubectl("-n", p.Apps, "patch", "rollouts.rollouts.kruise.io", "web", "--subresource=status", "--type=merge",
		"-p", `{"status":{"canaryStatus":{"currentStepState":"StepReady"}}}`)
	p.waitRollout(`{.status.conditions[?(@.type=="Succeeded")].status}{.status.phase}`, "TrueHealthy")
}

// requireRights requires that the accounts are bound to their own roles alone, and that a server has no right on
// workloads.
func (p personal) requireRights() {
	p.t.Helper()
	bindings, err := p.Kube.RbacV1().ClusterRoleBindings().List(context.Background(),
		metav1.ListOptions{LabelSelector: account.Label})
	require.NoError(p.t, err)
	require.NotEmpty(p.t, bindings.Items)
	for _, b := range bindings.Items {
		require.Equal(p.t, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: p.Home,
			Name: b.Labels[account.Label]}}, b.Subjects)
		require.True(p.t, strings.HasPrefix(b.RoleRef.Name, p.Home+":"), b.RoleRef.Name)
	}
	server, worker := p.Login(p.t, p.Home, "slipway-server"), p.Login(p.t, p.Home, "slipway")
	require.False(p.t, server.May(p.t, "patch", "apps/deployments", p.Apps))
	require.True(p.t, worker.May(p.t, "patch", "apps/deployments", p.Apps))
	for _, one := range []harness.Account{worker, server} {
		require.False(p.t, one.May(p.t, "patch", "admissionregistration.k8s.io/mutatingadmissionpolicies", ""))
		require.False(p.t, one.May(p.t, "create", "rbac.authorization.k8s.io/clusterrolebindings", ""))
	}
}

// A person who may not make accounts is said so, and what does not hold.
func TestPersonWithoutRights_IsWarned(t *testing.T) {
	t.Parallel()
	e := harness.NewWithoutProcesses(t)
	config, err := clientcmd.LoadFromFile(e.Kubeconfig)
	require.NoError(t, err)
	for _, info := range config.AuthInfos {
		info.Impersonate = "otto"
	}
	path := t.TempDir() + "/kubeconfig"
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	worker := harness.Run(t, e.Binary("slipway"), []string{"worker", "--party", "alice", "--watch-namespaces", e.Apps,
		"--kubeconfig", path, "--temporal-address", e.TemporalAddress, "--temporal-namespace",
		"default"}, []string{harness.OwnAccount})
	p := personal{Engine: e, t: t}
	p.waitLog(worker, "this process acts as otto, who is no service account")
	require.Contains(t, worker.Output(),
		"it can't make itself the service account system:serviceaccount:slipway-party:slipway-party")
	require.Contains(t, worker.Output(), "level=WARN")
}
