package cli_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
	clitask "slipway.io/slipway/cli/task"
	"slipway.io/slipway/cli/version"
)

func TestConfigShowsWhereValuesCameFrom(t *testing.T) {
	t.Parallel()
	path := write(t, "slipway.yaml", "kube-burst: 7\n")
	got := slipway(t, nil, "config", "--for", "client", "--api", "http://a:1").inFolder(path)
	require.Regexp(t, `^SETTING +VALUE +SOURCE +DESCRIPTION\napi-token-file +- +default +file with the token`, got.out)
	require.Regexp(t, `\napi +http://a:1 +flag --api +base URL of the Slipway API\n$`, got.out)
	require.Equal(t, "\nNo configuration file: neither --config nor SLIPWAY_CONFIG is set.\n", got.err)

	server := slipway(t, nil, "config", "--for", "server", "--config", path, "-o", "json").inFolder(path)
	require.Equal(t, app.ExitOK, server.code)
	var shown struct {
		Settings []struct{ Name, Value, Source string }
		File     string
	}
	require.NoError(t, json.Unmarshal([]byte(server.out), &shown))
	require.Equal(t, "slipway.yaml", shown.File)
	require.Contains(t, shown.Settings, struct{ Name, Value, Source string }{"kube-burst", "7", "file slipway.yaml:1"})

	dev := slipway(t, nil, "config", "--for", "dev")
	require.Regexp(t, `install-crds +true +default`, dev.out, "a command's own default is shown")
}

func TestConfig_ReportsInvalidSettings(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"WrongValues": {"All errors are listed below the table.", []string{"--listen", "x", "--kube-qps", "0"},
			"error: 2 invalid settings:\n"},
		"OtherCommand": {"A flag of another command is rejected.", []string{"--for", "server", "--party", "alice"},
			"error: --party is not a setting of server\n"},
		"UnknownCommand": {"A command without settings is rejected.", []string{"--for", "plan"},
			`error: invalid --for "plan": must be one of`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slipway(t, nil, append([]string{"config"}, c.args...)...)
			require.Equal(t, app.ExitUsage, got.code, c.reason)
			require.Contains(t, got.err, c.want, c.reason)
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^slipway \S+ \(go1\.\S+, \w+/\w+\)\n`, slipway(t, nil, "version").out)
	var b version.Build
	require.NoError(t, json.Unmarshal([]byte(slipway(t, nil, "version", "-o", "json").out), &b))
	require.Equal(t, version.This(), b)
}

func TestHelpIsGrouped(t *testing.T) {
	t.Parallel()
	help := slipway(t, nil).out
	require.Regexp(t, `(?s)Release:.*validate.*service.*plan.*task.*Run the engine:.*config.*Other:.*version`, help)
	require.Contains(t, slipway(t, nil, "task", "watch", "--help").out, clitask.WatchExitCodes,
		"exit codes are in the help")
}
