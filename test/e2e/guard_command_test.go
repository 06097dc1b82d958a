package e2e

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/test/harness"
)

// runGuardCommand runs `slipway guard` with a kubeconfig and returns its exit code and output.
func runGuardCommand(t *testing.T, s harness.Stack, kubeconfig string, args ...string) (code int, out string) {
	t.Helper()
	command := exec.Command(s.Binary("slipway"), append([]string{"guard"},
		append(args, "--kubeconfig", kubeconfig)...)...)
	raw, err := command.CombinedOutput()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return command.ProcessState.ExitCode(), string(raw)
}

// install, status and remove need only a kubeconfig, are idempotent and report the result.
func TestGuardCommands(t *testing.T) {
	t.Parallel()
	s := harness.SharedStack(t)
	name := harness.RandomName("guard")
	run := func(want int, args ...string) string {
		t.Helper()
		code, out := runGuardCommand(t, s, s.Kubeconfig, append(args, "--name", name)...)
		require.Equal(t, want, code, "%v: %s", args, out)
		return out
	}
	require.Contains(t, run(0, "remove"), "is not installed; nothing to remove")
	install := []string{"install", "--engine-identity", "engine", "--namespace-selector", "slipway.io/guard=" + name}
	t.Cleanup(func() { run(0, "remove") })
	out := run(0, append(install, "--object", "canaries.mesh.example.com")...)
	require.Regexp(t, `allowed +engine\n`, out)
	require.Regexp(t, `namespaces +slipway.io/guard=`+name, out)
	require.Regexp(t,
		`deployments.apps +yes +v1 +spec.minReadySeconds, spec.paused, spec.progressDeadlineSeconds, spec.revisionHistoryLimit, spec.strategy\n`, out)
	require.Regexp(t, `canaries.mesh.example.com +yes`, out)
	require.NotContains(t, run(0, install...), "canaries.mesh.example.com", "objects no longer listed are removed")
	first := run(0, install...)
	require.Equal(t, first, run(0, install...), "install is idempotent")
	require.Regexp(t, `written +by .+ with slipway guard install, 20.+Z\n`, first)
	require.Contains(t, first, "WARNING      engine is no service account: nothing that engine edits is held")

	other := run(0, "install", "--engine-identity", "other", "--namespace-selector", "slipway.io/guard="+name)
	require.Contains(t, other, "no longer on the list of users whose edits pass: engine. If an engine")
	require.Regexp(t, `allowed +other\n`, other, "no identity of the installed guard stays")
	require.Contains(t, run(0, install...), "no longer on the list of users whose edits pass: other")

	_, err := exec.Command(s.Binary("kubectl"), "--kubeconfig", s.Kubeconfig, "delete",
		"mutatingadmissionpolicybinding", name+"-services").Output()
	require.NoError(t, err)
	code, out := runGuardCommand(t, s, s.Kubeconfig, "status")
	require.Equal(t, 3, code, "not everything is guarded")
	require.Regexp(t, `services +no: its binding is missing`, out)
	run(0, install...)
	require.Contains(t, run(0, "remove"), "The guard "+name+" was removed")
	_, out = runGuardCommand(t, s, s.Kubeconfig, "status")
	require.NotContains(t, out, name)
}

// Wrong usage and missing permissions are reported as such.
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
		"Install": {"A user who may not write policies is referred to an administrator.", anna,
			"you are not allowed to install the guard in this cluster: ask a cluster administrator", 1,
			[]string{"install", "--name", "annas"}},
		"Status": {"So is a user who may not read them.", anna,
			"you are not allowed to read the guard in this cluster", 1, []string{"status"}},
		"Selector": {"An invalid selector.", s.Kubeconfig, "is not a label selector", 2,
			[]string{"install", "--namespace-selector", "a=b=c"}},
		"Object": {"A kind without its group.", s.Kubeconfig, "is not a custom resource", 2,
			[]string{"install", "--object", "canaries"}},
		"EveryNamespace": {"The administrators of a namespace may act as its accounts.", s.Kubeconfig, "is a pattern", 2,
			[]string{"install", "--engine-identity", "system:serviceaccount:{namespace}:slipway-party"}},
		"Unreachable": {"A cluster that does not answer.", unreachableKubeconfig(t), "cannot reach the cluster", 1,
			[]string{"install"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := runGuardCommand(t, s, c.kubeconfig, c.args...)
			require.Contains(t, out, c.says, c.reason)
			require.Equal(t, c.code, code, "%s: %s", c.reason, out)
		})
	}
}

// unreachableKubeconfig returns a kubeconfig of a cluster that does not answer.
func unreachableKubeconfig(t *testing.T) string {
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
