// Package scriptbox runs a Lua script of a traffic provider in a process of its own, bounded in time and memory, so that no script can do
// anything but compute, and none can take the worker along when it breaks. Child is that process, Runner is who starts it.
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

// Argument is what the process is started with instead of a command of its own.
const Argument = "script-sandbox"

const (
	// timeLimit is how much of a processor's time a script may take, and hardTime is when it is ended from outside, deep in one call. It is
	// not the time on the clock: on a busy machine that would fail a script for what others do.
	timeLimit, hardTime = time.Second, 1200 * time.Millisecond
	// mostClock bounds the time on the clock as well.
	mostClock = 10 * time.Second
	// memoryLimit is how many bytes a script may hold; hardMemory is how many more than at its start the process may get at all, when one
	// step of a script takes more at once than a look can notice. The runtime maps addresses well ahead of what it uses, so that those have
	// a limit of their own.
	memoryLimit, hardMemory, hardMapped = 64 << 20, 512 << 20, 2 << 30
	// lookEvery is how often the memory is looked at.
	lookEvery = 2 * time.Millisecond
)

var (
	errTime   = fmt.Errorf("it ran longer than %s", timeLimit)
	errMemory = fmt.Errorf("it needed more than %d MiB of memory", memoryLimit>>20)
)

// Child reads one sandbox.Request as JSON, evaluates it and writes the sandbox.Response. It returns the process's exit code.
func Child(in io.Reader, out io.Writer) int {
	// Well above what a script may hold: near its limit the collector takes all the time that there is.
	debug.SetMemoryLimit(2 * memoryLimit)
	var req sandbox.Request
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return 3
	}
	if err := bound(); err != nil {
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
	look, clock, before := time.NewTicker(lookEvery), time.NewTimer(mostClock), taken()
	defer look.Stop()
	for {
		select {
		case response := <-done:
			return response
		case <-look.C:
			if held() > memoryLimit {
				cancel(errMemory)
			}
			if taken()-before > timeLimit {
				cancel(errTime)
			}
			if taken()-before <= hardTime {
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

// held is how many bytes are in use. What is garbage already is collected before it is held against the script, unless there is too much
// of that too.
func held() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.HeapAlloc > memoryLimit && stats.HeapAlloc < 2*memoryLimit {
		runtime.GC()
		runtime.ReadMemStats(&stats)
	}
	return stats.HeapAlloc
}
