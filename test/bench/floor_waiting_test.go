package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/party"
	"slipway.io/slipway/test/harness"
)

const (
	// idleWorker is set for a process of this program that is a worker with nothing to do: it names the namespace that it polls.
	idleWorker = "SLIPWAY_BENCH_IDLE_WORKER"
	// idlePollers is how many ask for tasks of one kind and queue at once, as Slipway's workers do.
	idlePollers = 4
)

// What a worker of Temporal's SDK takes that has nothing to do, and tells as often as Slipway's that it is there: what one that waits can't go below.
func TestSoakWaitingFloor(t *testing.T) {
	harness.Soak(t)
	stack := harness.SharedStack(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), idleWorker+"="+stack.TemporalNamespace(t), "SLIPWAY_TEST_TEMPORAL_ADDRESS="+stack.TemporalAddress)
	cmd.Stderr = os.Stderr
	alive, err := cmd.StdinPipe()
	require.NoError(t, err)
	ready, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, alive.Close())
		require.NoError(t, cmd.Wait())
	}()
	_, err = ready.Read(make([]byte, 1))
	require.NoError(t, err, "the worker did not start")

	began := cpu(cmd.Process.Pid)
	peak := watchRSS(cmd.Process.Pid)
	<-time.NewTimer(waitsWatched).C
	used := (cpu(cmd.Process.Pid) - began) / waitsWatched.Minutes()
	fmt.Printf("\na worker that has nothing to do, over %s\n", waitsWatched)
	fmt.Printf("  CPU per minute %.2f s; memory at most %d MiB\n\n", used, peak()>>20)
	noted(t, "CPU a minute, s", used)
	require.Positive(t, used, "nothing was measured")
	harness.Covered(t, 1, "workers with nothing to do")
}

// waitIdle is the worker of TestSoakWaitingFloor: it has a queue for workflows and one for a party, and lives until the test closes its input.
func waitIdle(namespace string) error {
	silent := log.NewStructuredLogger(slog.New(slog.DiscardHandler)) // what is printed says that it is ready
	c, err := client.Dial(client.Options{HostPort: os.Getenv("SLIPWAY_TEST_TEMPORAL_ADDRESS"), Namespace: namespace, Logger: silent,
		WorkerHeartbeatInterval: party.Interval})
	if err != nil {
		return err
	}
	defer c.Close()
	for _, queue := range []string{floorQueue, floorParty} {
		w := worker.New(c, queue, worker.Options{DisableWorkflowWorker: queue == floorParty,
			MaxConcurrentActivityTaskPollers: idlePollers, MaxConcurrentWorkflowTaskPollers: idlePollers})
		if queue == floorQueue {
			w.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: "Nothing"})
		}
		w.RegisterActivity(func(context.Context) error { return nil })
		if err := w.Start(); err != nil {
			return err
		}
		defer w.Stop()
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
