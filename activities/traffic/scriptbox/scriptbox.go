// Package scriptbox runs a Lua script of a traffic provider in a separate process with limited time and memory, so that
// a script can do nothing but compute, and cannot crash the worker. Child is the process, Runner starts it.
package scriptbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/utils/lru"

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
	// may get at all: one call of a script can allocate more at once than a poll can notice. The Go runtime maps
	// addresses far ahead of its use, so they have a limit of their own (hardMapped).
	memoryLimit, hardMemory, hardMapped = 64 << 20, 96 << 20, 2 << 30
	// collectAt is how many bytes more than at its start the process takes before it collects garbage whenever it
	// needs room: below hardMemory, so that garbage doesn't end a script that stays within memoryLimit.
	collectAt = 80 << 20
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
	preferOnShortage()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	debug.SetMemoryLimit(int64(stats.Sys-stats.HeapReleased) + collectAt)
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

// heapInUse returns how many bytes are in use. It collects garbage before it counts it against the script.
func heapInUse() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.HeapAlloc > memoryLimit {
		runtime.GC()
		runtime.ReadMemStats(&stats)
	}
	return stats.HeapAlloc
}

const (
	// startAllowance is how long the process may take in addition to the script's own time.
	startAllowance = 10 * time.Second
	// maxScripts is how many scripts run at once: together they may take less memory than the chart's limit for a
	// worker leaves free.
	maxScripts = 2
	// maxAnswers is how many responses are cached.
	maxAnswers = 1000
	// maxStderr limits how many bytes of the process's stderr are kept.
	maxStderr = 4 << 10
)

// Runner runs scripts. It runs the same script with the same input once and caches the response. It is safe for
// concurrent use.
type Runner struct {
	command []string
	slots   chan struct{}
	answers *lru.Cache
}

// NewRunner returns a runner that starts this command; empty: the current program, with Argument.
func NewRunner(command []string) (*Runner, error) {
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("the program cannot find its own executable, which runs scripts: %w", err)
		}
		command = []string{self, Argument}
	}
	return &Runner{command: command, slots: make(chan struct{}, maxScripts), answers: lru.New(maxAnswers)}, nil
}

// Run evaluates a script. An error means that the process could not run; problems of the script itself are in the
// response.
func (r *Runner) Run(ctx context.Context, req sandbox.Request) (sandbox.Response, error) {
	raw, err := json.Marshal(req)
	if err != nil {
		return sandbox.Response{}, err
	}
	key := sha256.Sum256(raw)
	if answer, known := r.answers.Get(key); known {
		return answer.(sandbox.Response), nil
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return sandbox.Response{}, ctx.Err()
	}
	answer, lasting, err := r.start(ctx, raw)
	if err == nil && lasting {
		r.answers.Add(key, answer)
	}
	return answer, err
}

// RunInProcess evaluates one of Slipway's own scripts in this process: a process per script uses as much CPU as the
// rest of a canary's step.
func RunInProcess(ctx context.Context, req sandbox.Request) (answer sandbox.Response, err error) {
	own, cancel := context.WithTimeoutCause(ctx, maxWallTime, errTime)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the script %s panicked: %v", req.Script, value)
		}
	}()
	return sandbox.Prepare(own, req).Evaluate(), ctx.Err()
}

// start runs the process. lasting means that the same input would give the same response, which is not so if the
// process ran out of time on a busy machine.
func (r *Runner) start(ctx context.Context, input []byte) (answer sandbox.Response, lasting bool, err error) {
	own, cancel := context.WithTimeout(ctx, maxWallTime+startAllowance)
	defer cancel()
	// The command is part of the configuration, never of a request.
	process := exec.CommandContext(own, r.command[0], r.command[1:]...)
	process.Env = []string{}
	process.Stdin = bytes.NewReader(input)
	out, stderr := &limitedBuffer{limit: sandbox.MaxOutput * 2}, &limitedBuffer{limit: maxStderr}
	process.Stdout, process.Stderr = out, stderr
	err = process.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return answer, false, ctx.Err()
	case own.Err() != nil:
		return trouble(errTime), false, nil
	case err == nil:
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			return answer, false, fmt.Errorf("the script sandbox returned an invalid response: %w", err)
		}
		return answer, answer.Trouble == nil, nil
	case errors.As(err, &ended) && (ended.ExitCode() == 2 && strings.Contains(stderr.String(), "out of memory") ||
		strings.Contains(stderr.String(), "cannot allocate")):
		return trouble(errMemory), false, nil
	case errors.As(err, &ended) && ended.ExitCode() == -1:
		return trouble(errTime), false, nil // killed by the limit on its CPU time
	default:
		first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return answer, false, fmt.Errorf("the script sandbox cannot be run: %w: %s", err, first)
	}
}

func trouble(err error) sandbox.Response {
	return sandbox.Response{Trouble: &sandbox.Trouble{Reason: err.Error()}}
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := b.limit - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
