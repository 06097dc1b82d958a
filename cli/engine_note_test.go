package cli_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The context is already cancelled, so the note is printed but no request is sent to the default address.
func TestWriteCommand_PrintsEngine_WhenDefaultIsUsed(t *testing.T) {
	t.Parallel()
	const note = "engine: http://127.0.0.1:8080 (default; change it with --api or SLIPWAY_API)\n"
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	chosen := []string{"--api", "http://127.0.0.1:1"}
	plan := write(t, "shop.yaml", shopPlan)
	config := write(t, "slipway.yaml", "api: http://127.0.0.1:1\n")
	writing := [][]string{{"plan", "apply", "-f", plan}, {"plan", "run", "shop"}, {"plan", "delete", "shop"},
		{"service", "delete", "1"},
		{"service", "apply", "-f", write(t, "111.yaml", orderService)}, {"task", "delete", "x"}, {"task", "pause", "x"},
		{"task", "resume", "x"}, {"task", "stop", "x"}}
	for _, args := range writing {
		run := func(terminal bool, more ...string) string {
			s := newSession(t, "")
			s.app.ErrIsTerminal = terminal
			s.ctx = cancelled
			return s.run(append(args, more...)...).err
		}
		require.True(t, strings.HasPrefix(run(true), note), "%s: the user set no engine, so its address is printed",
			args)
		require.NotContains(t, run(false), "engine: ", "%s: not printed in a pipeline", args)
		require.NotContains(t, run(true, chosen...), "engine: ", "%s: not printed if the user set the engine", args)
		require.NotContains(t, run(true, "--config", config), "engine: ", "%s: nor if the configuration file sets it",
			args)
	}
	reading := newSession(t, "")
	reading.app.ErrIsTerminal = true
	reading.ctx = cancelled
	require.NotContains(t, reading.run("task", "list").err, "engine: ", "not printed by commands that only read")
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	flag := slipway(t, nil, "--version")
	require.Equal(t, outcome{out: slipway(t, nil, "version").out}, flag, "the flag prints the same as the command")
	require.True(t, strings.HasPrefix(flag.out, "slipway "), flag.out)
}
