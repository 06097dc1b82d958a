package scriptbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/utils/lru"

	"slipway.io/slipway/release/rollout/traffic/sandbox"
)

const (
	// startAllowance is how long the process may take on the clock beside what the script may take.
	startAllowance = 10 * time.Second
	// atOnce is how many scripts run at the same time.
	atOnce = 4
	// mostAnswers is how many answers are kept.
	mostAnswers = 1000
	// mostSaid bounds what is kept of the process's own words, in bytes.
	mostSaid = 4 << 10
)

// Runner runs scripts. The same script with the same input is run once; the answer is remembered. It is safe for concurrent use.
type Runner struct {
	command []string
	places  chan struct{}
	answers *lru.Cache
}

// NewRunner makes a runner that starts this command; none: the program that runs now, with Argument.
func NewRunner(command []string) (*Runner, error) {
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("the program does not find itself, and so cannot run scripts: %w", err)
		}
		command = []string{self, Argument}
	}
	return &Runner{command: command, places: make(chan struct{}, atOnce), answers: lru.New(mostAnswers)}, nil
}

// Run evaluates a script. An error means that the process could not be run; whatever is wrong with the script itself is in the response.
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
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	case <-ctx.Done():
		return sandbox.Response{}, ctx.Err()
	}
	answer, lasting, err := r.start(ctx, raw)
	if err == nil && lasting {
		r.answers.Add(key, answer)
	}
	return answer, err
}

// Here evaluates a script that is Slipway's own, in this process: one of its own takes as much of a processor as all else that a canary's step does.
func Here(ctx context.Context, req sandbox.Request) (answer sandbox.Response, err error) {
	own, cancel := context.WithTimeoutCause(ctx, mostClock, errTime)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the script %s panicked: %v", req.Script, value)
		}
	}()
	return sandbox.Prepare(own, req).Evaluate(), ctx.Err()
}

// start runs the process; lasting says that the answer would be the same again, which is not so for one that ran out of time on a busy
// machine.
func (r *Runner) start(ctx context.Context, input []byte) (answer sandbox.Response, lasting bool, err error) {
	own, cancel := context.WithTimeout(ctx, mostClock+startAllowance)
	defer cancel()
	// The command is the operator's own program, never a part of a request.
	process := exec.CommandContext(own, r.command[0], r.command[1:]...)
	process.Env = []string{}
	process.Stdin = bytes.NewReader(input)
	out, said := &bounded{most: sandbox.MaxOutput * 2}, &bounded{most: mostSaid}
	process.Stdout, process.Stderr = out, said
	err = process.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return answer, false, ctx.Err()
	case own.Err() != nil:
		return trouble(errTime), false, nil
	case err == nil:
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			return answer, false, fmt.Errorf("the script sandbox gave no answer that can be read: %w", err)
		}
		return answer, answer.Trouble == nil, nil
	case errors.As(err, &ended) &&
		(ended.ExitCode() == 2 && strings.Contains(said.String(), "out of memory") || strings.Contains(said.String(), "cannot allocate")):
		return trouble(errMemory), false, nil
	case errors.As(err, &ended) && ended.ExitCode() == -1:
		return trouble(errTime), false, nil // ended by the limit on its processor time
	default:
		return answer, false, fmt.Errorf("the script sandbox cannot be run: %w: %s", err, firstLine(said.String()))
	}
}

func trouble(err error) sandbox.Response {
	return sandbox.Response{Trouble: &sandbox.Trouble{Reason: err.Error()}}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.most - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
