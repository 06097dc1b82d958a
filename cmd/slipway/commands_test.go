package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli"
	"slipway.io/slipway/cli/app"
)

// slipway runs a command line of the complete binary.
func slipway(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var printed, errors bytes.Buffer
	a := &app.App{In: &bytes.Buffer{}, Out: &printed, Err: &errors, Screen: func() (int, int, bool) {
		return 0, 0, false
	}}
	code = cli.Run(t.Context(), a, args, engineCommands(a)...)
	return printed.String(), errors.String(), code
}

func TestEngineCommandsCheckTheirSettingsFirst(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"server"}, {"worker"}, {"dev"}, {"package", "serve"}} {
		_, errs, code := slipway(t, append(command, "--log-level", "loud", "--shutdown-timeout", "0")...)
		require.Equal(t, app.ExitUsage, code, "%s does not start with wrong settings", command)
		require.Contains(t, errs, "error: 2 invalid settings:\n")
		_, _, code = slipway(t, append(command, "now")...)
		require.Equal(t, app.ExitUsage, code, "%s takes no arguments", command)
	}
}

// The parts of a process are found by their types when it starts: a missing one would be reported before the error of the
// part that is started last.
func TestEngineCommands_HaveAllTheirParts(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}],
contexts: [{name: a, context: {cluster: a}}], current-context: a}`), 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	server := "--listen=127.0.0.1:0 --kuscia-listen= --kuscia-grpc-listen= --webhook-listen= --webhook-url=https://a"
	health := "--metrics-listen=" + taken.Addr().String()
	for command, says := range map[string]string{
		"server " + server:                 "set --webhook-listen too",
		"dev " + server:                    "set --webhook-listen too",
		"worker " + health:                 "metrics-listen: listen tcp",
		"worker --party=alice=q " + health: "metrics-listen: listen tcp",
		"codec":                            "set --temporal-codec-key-dir",
		"package serve --package-bucket=s3://packages": "requires --package-token-file",
	} {
		args := strings.Fields(command)
		if args[0] != "codec" && args[0] != "package" {
			args = append(args, "--kubeconfig", kubeconfig, "--log-level", "error")
		}
		_, errs, code := slipway(t, args...)
		require.NotZero(t, code, command)
		require.Contains(t, errs, says, command)
	}
}

// A script gives --yes to every command that changes something, whether it asks or not.
func TestCommandsThatChange_AcceptYes(t *testing.T) {
	t.Parallel()
	for _, command := range strings.Split("service apply,service delete,party apply,party delete,"+
		"trafficrouting apply,trafficrouting delete,task delete,"+
		"plan apply,plan delete,plan run,task pause,"+
		"task resume,task stop,task approve,task rerun,task reverse,rollout start,rollout undo,rollout approve,"+
		"rollout pause,rollout resume,rollout rollback,rollout stop,rollout jump,rollout retry,rollout promote,"+
		"serving create,serving apply,serving update,serving delete,serving approve,serving pause,serving resume,"+
		"serving stop,appimage apply,appimage delete,repair,guard install,guard remove,package push", ",") {
		out, errs, code := slipway(t, append(strings.Fields(command), "--yes", "--help")...)
		require.Zero(t, code, "%s: %s", command, errs)
		require.Contains(t, out, "slipway "+command+" ", "it is the help of the command")
		require.Regexp(t, `-y, --yes +(skip|use)`, out, command)
	}
}

func TestEngineCommands_AreInHelp(t *testing.T) {
	t.Parallel()
	help, _, _ := slipway(t)
	require.Regexp(t, `(?s)Release:.*plan.*Run the engine:.*server.*worker.*dev.*config.*healthcheck.*Other:.*version`,
		help)
	levels, _, _ := slipway(t, "__complete", "server", "--log-level", "")
	require.Contains(t, levels, "debug\ninfo\nwarn\nerror\n", "shell completion lists the values of a setting")
}

func TestKubectlPlugin_ShowsItsNameInHelp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app.App{Name: "kubectl-slipway", In: &bytes.Buffer{}, Out: &out, Err: &out, Screen: func() (int, int, bool) {
		return 0, 0, false
	}}
	require.Zero(t, cli.Run(t.Context(), a, []string{"rollout", "approve", "--help"}, engineCommands(a)...))
	require.Contains(t, out.String(), "kubectl slipway rollout approve", "its help shows what to type")
}

// The help mentions an existing flag, and the help of a boolean flag shows no value.
func TestHelpNamesFlagsOfTheCommand(t *testing.T) {
	t.Parallel()
	for command, example := range map[string]string{"server": "(SLIPWAY_LISTEN for --listen)",
		"worker": "(SLIPWAY_ALLOWED_HOSTS for --allowed-hosts)",
		"dev":    "(SLIPWAY_LISTEN for --listen)", "package serve": "(SLIPWAY_ALLOWED_HOSTS for --allowed-hosts)"} {
		help, _, _ := slipway(t, append(strings.Fields(command), "--help")...)
		require.Contains(t, help, example, command)
	}
	help, _, _ := slipway(t, "package", "push", "--help")
	require.NotContains(t, help, "--unpack =false")
	require.Regexp(t, `--unpack +check that pods`, help)
}

// `go install slipway.io/slipway/cmd/slipway@VERSION`, as docs/first-canary.md has it, refuses a module that replaces or
// excludes others.
func TestModule_ReplacesNoOther(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.NotRegexp(t, `(?m)^\s*(replace|exclude)\b`, string(text))
}
