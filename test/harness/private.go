package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// PrivateStack is a stack that one test may break.
type PrivateStack struct {
	Stack
	dir string
	t   testing.TB
}

// The parts of a stack that tests break.
const (
	PartTemporal  = "temporal"
	PartAPIServer = "kube-apiserver"
)

// privateStacks limits the number of simultaneous private stacks: each is a control plane that takes a core while it
// starts. With 3 slots, two tests with two stacks each cannot deadlock.
var privateStacks = make(chan struct{}, 3)

// NewPrivateStack starts a separate stack on its own ports. It ends with the test.
func NewPrivateStack(t testing.TB) *PrivateStack {
	t.Helper()
	shared := SharedStack(t)
	p := &PrivateStack{dir: t.TempDir(), t: t}
	privateStacks <- struct{}{}
	t.Cleanup(func() {
		defer func() { <-privateStacks }()
		if t.Failed() {
			p.logTails()
		}
		p.control("down", "--delete")
	})
	p.control("up")
	env := p.env()
	p.Stack = NewStack(t, env["SLIPWAY_DEV_KUBECONFIG"], env["SLIPWAY_DEV_TEMPORAL_ADDRESS"],
		env["SLIPWAY_DEV_TEMPORAL_UI_UPSTREAM"])
	p.Bin = shared.Bin
	return p
}

// logTails logs the end of each part's log before the stack is deleted.
func (p *PrivateStack) logTails() {
	files, _ := filepath.Glob(filepath.Join(p.dir, "logs", "*.log"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			p.t.Logf("the end of %s:\n%s", filepath.Base(file), text[max(0, len(text)-logTailBytes):])
		}
	}
}

// logTailBytes is the number of bytes of a log's end that are logged.
const logTailBytes = 3000

// Kill kills a part, like a crash.
func (p *PrivateStack) Kill(part string) { p.control("kill", part) }

// StartPart starts a part again with its data and waits until it serves; for the API server, also what depends on it.
func (p *PrivateStack) StartPart(part string) { p.control("start", part) }

func (p *PrivateStack) control(args ...string) {
	p.t.Helper()
	script := filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy", "dev", "stack.sh")
	out, err := exec.Command(script, append(args, "--dir", p.dir)...).CombinedOutput()
	require.NoError(p.t, err, "%s %v: %s", script, args, out)
}

func (p *PrivateStack) env() map[string]string {
	raw, err := os.ReadFile(filepath.Join(p.dir, "env"))
	require.NoError(p.t, err)
	env := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env[strings.TrimPrefix(key, "export ")] = strings.Trim(value, `"'`)
		}
	}
	return env
}
