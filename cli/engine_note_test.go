package cli_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The note comes before the request, which the context that is over keeps from being sent: whatever listens there is left alone.
func TestWritingToTheDefaultEngineSaysSo(t *testing.T) {
	t.Parallel()
	const note = "engine: http://127.0.0.1:8080 (the default; --api or SLIPWAY_API names another)\n"
	over, cancel := context.WithCancel(t.Context())
	cancel()
	chosen := []string{"--api", "http://127.0.0.1:1"}
	plan := write(t, "shop.yaml", shopPlan)
	config := write(t, "slipway.yaml", "api: http://127.0.0.1:1\n")
	writing := [][]string{{"plan", "apply", "-f", plan}, {"plan", "run", "shop"}, {"plan", "delete", "shop"}, {"service", "delete", "1"},
		{"service", "apply", "-f", write(t, "111.yaml", orderService)}, {"task", "delete", "x"}, {"task", "pause", "x"},
		{"task", "resume", "x"}, {"task", "stop", "x"}}
	for _, args := range writing {
		run := func(terminal bool, more ...string) string {
			s := newSession(t, "")
			s.app.ErrIsTerminal = terminal
			s.ctx = over
			return s.run(append(args, more...)...).err
		}
		require.True(t, strings.HasPrefix(run(true), note), "%s goes to an engine that nobody named: a person is told which", args)
		require.NotContains(t, run(false), "engine: ", "%s in a pipeline says nothing of it", args)
		require.NotContains(t, run(true, chosen...), "engine: ", "%s: whoever named the engine knows it", args)
		require.NotContains(t, run(true, "--config", config), "engine: ", "%s: a file names it too", args)
	}
	reading := newSession(t, "")
	reading.app.ErrIsTerminal = true
	reading.ctx = over
	require.NotContains(t, reading.run("task", "list").err, "engine: ", "reading changes nothing, so there is nothing to be careful about")
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	flag := slipway(t, nil, "--version")
	require.Equal(t, outcome{out: slipway(t, nil, "version").out}, flag, "the flag that everybody tries says the same as the command")
	require.True(t, strings.HasPrefix(flag.out, "slipway "), flag.out)
}
