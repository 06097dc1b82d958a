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
	// idleWorker is set for a process of this program that is an idle worker. Its value is the namespace that the
	// worker polls.
	idleWorker = "SLIPWAY_BENCH_IDLE_WORKER"
	// idlePollers is the number of pollers per kind of task and queue, as in Slipway's workers.
	idlePollers = 4
)

// TestSoakWaitingFloor measures an idle worker of Temporal's SDK with the heartbeat interval of Slipway's workers: a
// lower bound for an idle Slipway worker.
func TestSoakWaitingFloor(t *testing.T) {
	harness.Soak(t)
	stack := harness.SharedStack(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), idleWorker+"="+stack.TemporalNamespace(t),
		"SLIPWAY_TEST_TEMPORAL_ADDRESS="+stack.TemporalAddress)
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
	<-time.NewTimer(waitingObserved).C
	used := (cpu(cmd.Process.Pid) - began) / waitingObserved.Minutes()
	fmt.Printf("\nan idle worker, over %s\n", waitingObserved)
	fmt.Printf("  CPU per minute %.2f s; memory at most %d MiB\n\n", used, peak()>>20)
	recordFigure(t, "CPU a minute, s", used)
	require.Positive(t, used, "nothing was measured")
	harness.Covered(t, 1, "idle workers")
}

// runIdleWorker is the worker of TestSoakWaitingFloor. It has a queue for workflows and one for a party, and runs until
// the test closes its input.
func runIdleWorker(namespace string) error {
	// the only output is the line that reports readiness
	silent := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.Dial(client.Options{HostPort: os.Getenv("SLIPWAY_TEST_TEMPORAL_ADDRESS"), Namespace: namespace,
		Logger:                  silent,
		WorkerHeartbeatInterval: party.HeartbeatInterval})
	if err != nil {
		return err
	}
	defer c.Close()
	for _, queue := range []string{floorQueue, floorParty} {
		w := worker.New(c, queue, worker.Options{DisableWorkflowWorker: queue == floorParty,
			MaxConcurrentActivityTaskPollers: idlePollers, MaxConcurrentWorkflowTaskPollers: idlePollers})
		if queue == floorQueue {
			w.RegisterWorkflowWithOptions(func(workflow.Context) error {
				return nil
			}, workflow.RegisterOptions{Name: "Nothing"})
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
