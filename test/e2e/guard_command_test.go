package e2e

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/test/harness"
)

// guardCommand runs `slipway guard` with a kubeconfig, and answers with its exit code and output.
func guardCommand(t *testing.T, s harness.Stack, kubeconfig string, args ...string) (code int, out string) {
	t.Helper()
	command := exec.Command(s.Binary("slipway"), append([]string{"guard"}, append(args, "--kubeconfig", kubeconfig)...)...)
	raw, err := command.CombinedOutput()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return command.ProcessState.ExitCode(), string(raw)
}

// Install, status and remove work with a kubeconfig alone, can be repeated, and say what is so.
func TestGuardCommands(t *testing.T) {
	t.Parallel()
	s := harness.SharedStack(t)
	name := harness.RandomName("guard")
	run := func(want int, args ...string) string {
		t.Helper()
		code, out := guardCommand(t, s, s.Kubeconfig, append(args, "--name", name)...)
		require.Equal(t, want, code, "%v: %s", args, out)
		return out
	}
	require.Contains(t, run(0, "remove"), "is not installed: nothing to remove")
	install := []string{"install", "--engine-identity", "engine", "--namespace-selector", "slipway.io/guard=" + name}
	t.Cleanup(func() { run(0, "remove") })
	out := run(0, append(install, "--object", "canaries.mesh.example.com")...)
	require.Regexp(t, `passes for +engine\n`, out)
	require.Regexp(t, `namespaces +slipway.io/guard=`+name, out)
	require.Regexp(t, `deployments.apps +yes +v1 +spec.minReadySeconds, spec.paused, spec.progressDeadlineSeconds, spec.revisionHistoryLimit, spec.strategy\n`, out)
	require.Regexp(t, `canaries.mesh.example.com +yes`, out)
	require.NotContains(t, run(0, install...), "canaries.mesh.example.com", "what is no longer asked for is taken away")
	first := run(0, install...)
	require.Equal(t, first, run(0, install...), "it can be repeated")

	_, err := exec.Command(s.Binary("kubectl"), "--kubeconfig", s.Kubeconfig, "delete", "mutatingadmissionpolicybinding", name+"-services").Output()
	require.NoError(t, err)
	code, out := guardCommand(t, s, s.Kubeconfig, "status")
	require.Equal(t, 3, code, "not everything is guarded")
	require.Regexp(t, `services +no: its binding is missing`, out)
	run(0, install...)
	require.Contains(t, run(0, "remove"), "The guard "+name+" is removed")
	_, out = guardCommand(t, s, s.Kubeconfig, "status")
	require.NotContains(t, out, name)
}

// Wrong usage and missing rights are said as such.
func TestGuardCommandErrors(t *testing.T) {
	t.Parallel()
	s := harness.SharedStack(t)
	config, err := clientcmd.LoadFromFile(s.Kubeconfig)
	require.NoError(t, err)
	for _, info := range config.AuthInfos {
		info.Impersonate = "anna"
	}
	anna := t.TempDir() + "/kubeconfig"
	require.NoError(t, clientcmd.WriteToFile(*config, anna))
	for name, c := range map[string]struct {
		reason, kubeconfig, says string
		code                     int
		args                     []string
	}{
		"Install":  {"Who may not write policies is told whom to ask.", anna, "you may not install the guard on this cluster: ask an administrator", 1, []string{"install", "--name", "annas"}},
		"Status":   {"Who may not read them neither.", anna, "you may not read the guard on this cluster", 1, []string{"status"}},
		"Selector": {"A selector that is none.", s.Kubeconfig, "is no label selector", 2, []string{"install", "--namespace-selector", "a=b=c"}},
		"Object":   {"A kind without its group.", s.Kubeconfig, "names no kind of custom object", 2, []string{"install", "--object", "canaries"}},
		"Nowhere":  {"A cluster that does not answer.", nowhere(t), "can't be reached", 1, []string{"install"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := guardCommand(t, s, c.kubeconfig, c.args...)
			require.Contains(t, out, c.says, c.reason)
			require.Equal(t, c.code, code, "%s: %s", c.reason, out)
		})
	}
}

// nowhere is the kubeconfig of a cluster that does not answer.
func nowhere(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(harness.SharedStack(t).Kubeconfig)
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server = "https://127.0.0.1:" + harness.FreePort(t)
	}
	path := t.TempDir() + "/kubeconfig"
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}
