package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/programs"
)

// newcomer is a person with a cluster and Temporal's own command line, who types what docs/first-canary.md says.
type newcomer struct {
	harness.Stack
	t *testing.T
	// folder is where the person is; env is the environment there, without the ports of the page.
	folder string
	env    []string
}

// commandPatience is how long commands of the page may take together: each waits for the one before.
const commandPatience = 3 * harness.Patience

// The blocks of the page, in their order.
const (
	blockCanary = iota
	blockSignal
	blockRemoval
	blockAdministrator
	blockPerson
	blocks
)

// A newcomer gets from nothing to a canary by the commands of the page, with Temporal's official development server, on
// a cluster that has nothing of Slipway. A second one may not write definitions and policies: an administrator has done
// that once.
func TestLongFirstCanary_GoesAsThePageSays(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := harness.NewPrivateStack(t).Stack
	page := readPage(t)

	n := newNewcomer(t, stack)
	n.temporal()
	end := n.run("canary", page[blockCanary])
	n.requireReleased("nginx:1.28")
	require.Contains(t, n.do("slipway guard status"), "slipway:slipway-dev", "the guard lets the engine's account pass")
	n.do("slipway rollout start -n hello --workload deployment/hello --image nginx=nginx:1.29 " +
		"--strategy-file canary.yaml")
	n.do("slipway rollout wait hello/hello --for paused --timeout 2m")
	n.do(page[blockSignal])
	n.do("slipway rollout wait hello/hello --timeout 2m")
	n.requireReleased("nginx:1.29")
	described := n.do("temporal workflow describe --workflow-id rollout/default/hello/hello -o json")
	require.Contains(t, described, "WORKFLOW_EXECUTION_STATUS_COMPLETED")
	end()
	n.do(page[blockRemoval])
	require.Empty(t, n.do("kubectl get crds,clusterroles,mutatingadmissionpolicies,validatingadmissionpolicies "+
		"-o name | grep -i slipway || true"), "nothing of it is left")

	newNewcomer(t, stack).releasesWithoutRights(page)
}

// readPage returns the blocks of commands of the page.
func readPage(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "docs/first-canary.md"))
	require.NoError(t, err)
	var found []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		found = append(found, block[1])
	}
	require.Len(t, found, blocks, "the page has other blocks: this test has to know them")
	return found
}

func newNewcomer(t *testing.T, stack harness.Stack) *newcomer {
	t.Helper()
	n := &newcomer{Stack: stack, t: t, folder: t.TempDir()}
	address := func() string { return net.JoinHostPort("127.0.0.1", harness.FreePort(t)) }
	api, temporal := address(), address()
	n.env = append(os.Environ(), "HOME="+n.folder, "KUBECONFIG="+n.file("kubeconfig"),
		"PATH="+n.folder+":"+stack.Bin+":"+os.Getenv("PATH"), "SLIPWAY_LISTEN="+api, "SLIPWAY_API=http://"+api,
		"SLIPWAY_KUSCIA_LISTEN="+address(), "SLIPWAY_KUSCIA_GRPC_LISTEN="+address(),
		"SLIPWAY_TEMPORAL_ADDRESS="+temporal, "TEMPORAL_ADDRESS="+temporal)
	config, err := os.ReadFile(stack.Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(n.file("kubeconfig"), config, 0o600))
	return n
}

func (n *newcomer) file(name string) string { return filepath.Join(n.folder, name) }

// temporal puts Temporal's own command line on the PATH. Its server listens on ports of this test.
func (n *newcomer) temporal() {
	n.t.Helper()
	_, port, err := net.SplitHostPort(n.value("TEMPORAL_ADDRESS"))
	require.NoError(n.t, err)
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1 $2\" != \"server start-dev\" ] || set -- \"$@\" --port %s --ui-port %s\n"+
		"exec %s \"$@\"\n", port, harness.FreePort(n.t), filepath.Join(programs.Folder(n.t, "newcomer"), "temporal"))
	require.NoError(n.t, os.WriteFile(n.file("temporal"), []byte(script), 0o700)) //nolint:gosec // it is executed
}

// value returns a variable of the person's environment.
func (n *newcomer) value(name string) (value string) {
	for _, pair := range n.env {
		if rest, is := strings.CutPrefix(pair, name+"="); is {
			value = rest
		}
	}
	return value
}

// start starts commands, whose output is in a file. end ends them and all that they have started.
func (n *newcomer) start(name, commands string) (command *exec.Cmd, end func()) {
	n.t.Helper()
	out, err := os.Create(n.file(name + ".out"))
	require.NoError(n.t, err)
	command = exec.Command("bash", "-euo", "pipefail", "-c", commands)
	command.Dir, command.Env, command.Stdout, command.Stderr = n.folder, n.env, out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(n.t, command.Start())
	end = func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	n.t.Cleanup(func() {
		end()
		out.Close()
		if !n.t.Failed() {
			return
		}
		for _, file := range []string{name + ".out", "slipway.log"} {
			text, _ := os.ReadFile(n.file(file))
			n.t.Logf("%s:\n%s", file, text[max(0, len(text)-4000):])
		}
	})
	return command, end
}

// run runs commands to their end. What they have started in the background runs until end.
func (n *newcomer) run(name, commands string) (end func()) {
	n.t.Helper()
	command, end := n.start(name, commands)
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	select {
	case err := <-done:
		require.NoError(n.t, err, "%s", n.output(name))
	case <-time.After(commandPatience):
		require.Fail(n.t, "the commands do not end", "%s", n.output(name))
	}
	return end
}

func (n *newcomer) output(name string) string {
	text, err := os.ReadFile(n.file(name + ".out"))
	require.NoError(n.t, err)
	return string(text)
}

// do runs commands and returns their output.
func (n *newcomer) do(commands string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), commandPatience)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	command.Dir, command.Env = n.folder, n.env
	out, err := command.CombinedOutput()
	require.NoError(n.t, err, "%s\n%s", commands, out)
	return string(out)
}

// requireReleased requires that all pods run an image, and that the release says so.
func (n *newcomer) requireReleased(image string) {
	n.t.Helper()
	require.Equal(n.t, "Healthy\n", n.do("slipway rollout get hello/hello -o jsonpath={.phase}"))
	require.Eventually(n.t, func() bool { // an old pod that terminates is listed for a moment
		pods := n.do("kubectl -n hello get pods -o jsonpath='{range .items[*]}{.spec.containers[0].image}{\"\\n\"}{end}'")
		return pods == strings.Repeat(image+"\n", 5)
	}, harness.Patience, harness.Tick, "not all pods run %s, or others are left", image)
}

// releasesWithoutRights is the second part of the page: an administrator does once what the person may not do, and the
// person releases with the token of an account.
func (n *newcomer) releasesWithoutRights(page []string) {
	t := n.t
	admin := newNewcomer(t, n.Stack)
	require.NoError(t, os.Symlink(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy"), admin.file("deploy")))
	admin.do("kubectl create namespace hello")
	lines := strings.Split(strings.TrimSpace(page[blockAdministrator]), "\n")
	require.Len(t, lines, 4)
	admin.do(lines[0] + "\n" + lines[1])
	_, end := admin.start("once", lines[2])
	require.Eventually(t, func() bool {
		return strings.Contains(admin.output("once"), "acts as a service account of its own")
	}, harness.Patience, harness.Tick, "the account is not made")
	end()
	admin.do(lines[3])
	token, err := os.ReadFile(admin.file("slipway.token"))
	require.NoError(t, err)

	n.become("otto")
	require.NoError(t, os.WriteFile(n.file("slipway.token"), token, 0o600))
	n.temporal()
	_, endTemporal := n.start("temporal", "temporal server start-dev --log-level error")
	defer endTemporal()
	person := strings.Split(strings.TrimSpace(page[blockPerson]), "\n")
	n.do(strings.Join(person[:len(person)-1], "\n"))
	for _, context := range []string{"", " --context slipway"} {
		for _, what := range []string{"customresourcedefinitions", "validatingadmissionpolicies", "clusterroles"} {
			require.Equal(t, "no\n", n.do("kubectl auth can-i create "+what+context+" 2>/dev/null || true"), what)
		}
	}
	_, endEngine := n.start("engine", person[len(person)-1])
	defer endEngine()
	canary := strings.SplitAfter(page[blockCanary], "\n")
	n.do("until slipway healthcheck >/dev/null 2>&1; do sleep 1; done\n" +
		"kubectl -n hello create deployment hello --image=nginx:1.27 --replicas=5\n" +
		"kubectl -n hello rollout status deployment/hello")
	n.do(strings.Join(canary[len(canary)-6:len(canary)-3], "")) // from canary.yaml to the first pause
	n.requireHeld()
	n.do(strings.Join(canary[len(canary)-3:], ""))
	n.requireReleased("nginx:1.28")
}

// become makes the person a user who may edit only the namespace hello.
func (n *newcomer) become(user string) {
	n.t.Helper()
	config, err := clientcmd.LoadFromFile(n.file("kubeconfig"))
	require.NoError(n.t, err)
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	require.NoError(n.t, clientcmd.WriteToFile(*config, n.file("kubeconfig")))
	_, err = n.Kube.RbacV1().RoleBindings("hello").Create(context.Background(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	require.NoError(n.t, err)
}

// requireHeld requires that what the person edits during the release is restored, as the page's table says.
func (n *newcomer) requireHeld() {
	n.t.Helper()
	const borrowed = "kubectl -n hello get deployment hello -o jsonpath='{.spec.strategy}{.spec.paused}" +
		"{.spec.minReadySeconds}'"
	before := n.do(borrowed)
	n.do(`kubectl -n hello patch deployment hello --type=merge -p '{"spec":{"paused":null,"minReadySeconds":null,` +
		`"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"100%"}}}}'`)
	require.Equal(n.t, before, n.do(borrowed), "the guard holds what the person edits")
}
