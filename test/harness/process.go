package harness

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

// Process is one run of a program. It is killed when the test ends.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	log  *logBuffer
}

// logBuffer keeps the output of a process for the failure message.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// ownAccountOff makes the engines of tests act as the user of their kubeconfig: hundreds of them would make themselves
// accounts with roles for the whole cluster.
const ownAccountOff = "SLIPWAY_OWN_ACCOUNT=off"

// OwnAccount is the variable with which a process makes itself an account, as it does by default.
const OwnAccount = "SLIPWAY_OWN_ACCOUNT=auto"

// Run starts a program with these arguments and additional environment variables.
func Run(t testing.TB, path string, args, env []string) *Process {
	t.Helper()
	p := &Process{cmd: exec.Command(path, args...), done: make(chan struct{}), log: &logBuffer{}}
	p.cmd.Env = append(append(os.Environ(), ownAccountOff), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	// The kernel kills the process when the test process dies.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("output of %s %v:\n%s", path, args, tail(p.log.String()))
		}
	})
	return p
}

// Kill kills the process, like a crash, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop sends SIGTERM to the process and waits for its end.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
	return p.err
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Output returns what the process has written so far.
func (p *Process) Output() string { return p.log.String() }

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

const tailBytes = 8000

func tail(s string) string {
	if len(s) > tailBytes {
		return "…" + s[len(s)-tailBytes:]
	}
	return s
}
