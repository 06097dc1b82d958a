// Package scriptbox runs a Lua script of a traffic provider in a separate process with limited time and memory, so that
// a script can do nothing but compute, and cannot crash the worker. Child is the process, Runner starts it.
package scriptbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"slipway.io/slipway/release/rollout/traffic/sandbox"
)

// Argument is the command-line argument that makes the program run Child.
const Argument = "script-sandbox"

const (
	// timeLimit is how much CPU time a script may use; after hardTime the process ends the evaluation even in the
	// middle of one call. CPU time, since on a busy machine wall-clock time would fail scripts for the load of others.
	timeLimit, hardTime = time.Second, 1200 * time.Millisecond
	// maxWallTime limits the wall-clock time as well.
	maxWallTime = 10 * time.Second
	// memoryLimit is how many bytes a script may use. hardMemory is how many more bytes than at its start the process
	// may get at all, in case one step allocates more at once than a poll can notice. The Go runtime maps addresses far
	// ahead of its use, so they have a limit of their own (hardMapped).
	memoryLimit, hardMemory, hardMapped = 64 << 20, 512 << 20, 2 << 30
	// memoryPollInterval is how often the memory and CPU time are checked.
	memoryPollInterval = 2 * time.Millisecond
)

var (
	errTime   = fmt.Errorf("it ran longer than %s", timeLimit)
	errMemory = fmt.Errorf("it needed more than %d MiB of memory", memoryLimit>>20)
)

// Child reads a sandbox.Request as JSON, evaluates it and writes the sandbox.Response. It returns the process's exit
// code.
func Child(in io.Reader, out io.Writer) int {
	// Well above a script's limit: near its limit the garbage collector would use all CPU time.
	debug.SetMemoryLimit(2 * memoryLimit)
	var req sandbox.Request
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return 3
	}
	if err := setLimits(); err != nil {
		return 4
	}
	if err := json.NewEncoder(out).Encode(evaluate(req)); err != nil {
		return 5
	}
	return 0
}

func evaluate(req sandbox.Request) sandbox.Response {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	run := sandbox.Prepare(ctx, req)
	done := make(chan sandbox.Response, 1)
	go func() { done <- run.Evaluate() }()
	look, clock, before := time.NewTicker(memoryPollInterval), time.NewTimer(maxWallTime), cpuTime()
	defer look.Stop()
	for {
		select {
		case response := <-done:
			return response
		case <-look.C:
			if heapInUse() > memoryLimit {
				cancel(errMemory)
			}
			if cpuTime()-before > timeLimit {
				cancel(errTime)
			}
			if cpuTime()-before <= hardTime {
				continue
			}
		case <-clock.C:
		}
		return sandbox.Response{Trouble: &sandbox.Trouble{Line: run.Line(), Reason: reason(ctx)}}
	}
}

func reason(ctx context.Context) string {
	if cause := context.Cause(ctx); errors.Is(cause, errMemory) {
		return cause.Error()
	}
	return errTime.Error()
}

// heapInUse returns how many bytes are in use. It collects garbage before it counts it against the script, unless there
// is more than 2*memoryLimit.
func heapInUse() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.HeapAlloc > memoryLimit && stats.HeapAlloc < 2*memoryLimit {
		runtime.GC()
		runtime.ReadMemStats(&stats)
	}
	return stats.HeapAlloc
}
