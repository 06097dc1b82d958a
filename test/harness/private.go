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

// privateStacks bounds how many private stacks there are at once: each is a control plane that takes a core while it starts. Two tests that have two of them
// each can never wait for one another.
var privateStacks = make(chan struct{}, 3)

// NewPrivateStack brings up a stack of the test's own, on ports of its own, which ends with the test.
func NewPrivateStack(t testing.TB) *PrivateStack {
	t.Helper()
	shared := SharedStack(t)
	p := &PrivateStack{dir: t.TempDir(), t: t}
	privateStacks <- struct{}{}
	t.Cleanup(func() {
		defer func() { <-privateStacks }()
		p.control("down", "--delete")
	})
	p.control("up")
	env := p.env()
	p.Stack = NewStack(t, env["SLIPWAY_DEV_KUBECONFIG"], env["SLIPWAY_DEV_TEMPORAL_ADDRESS"], env["SLIPWAY_DEV_TEMPORAL_UI"])
	p.Bin = shared.Bin
	return p
}

// Kill ends a part as a crash does.
func (p *PrivateStack) Kill(part string) { p.control("kill", part) }

// StartPart starts a part again with its data and waits until it serves.
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
