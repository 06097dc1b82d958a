package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// With everything of ours dead, `slipway repair` and the commands of slipway.io/recover bring the workload home to either side, from the rest of each step: whole,
// with nothing of ours left, and no traffic meets an empty Service on the way. The two take turns: between them they meet each kind, style and provider, and
// TestRepair and TestRecoverCommands take every state of a Deployment both ways.
func TestRolloutRepair(t *testing.T) {
	t.Parallel()
	ways := []struct {
		name  string
		bring func(r *release, to rollout.Side)
	}{{"repair", (*release).repair}, {"recover", (*release).recover}}
	for i, place := range matrix() {
		if place.reason == "" && !long() {
			continue
		}
		for step := 1; step <= 3; step++ {
			if step == 3 && place.style != rollout.StyleBlueGreen {
				continue // a canary's last step passes by itself
			}
			for n, to := range []rollout.Side{rollout.SideStable, rollout.SideNew} {
				turn := i + step + n
				if !long() && turn%4 != 0 {
					continue
				}
				way := ways[turn%2]
				t.Run(fmt.Sprintf("%s/%d/%s/%s", place, step, to, way.name), func(t *testing.T) {
					t.Parallel()
					repairAt(t, place.cell, step, func(r *release) { way.bring(r, to) }, to)
				})
			}
		}
	}
}

// repairAt brings a rollout to the rest of a step, kills everything of ours, and has somebody bring the workload home to one side.
func repairAt(t *testing.T, c cell, step int, bring func(r *release), to rollout.Side) {
	e := harness.Start(t, harness.Options{})
	r := begin(t, e, c, nil)
	for n := 1; n < step; n++ {
		r.approve(n)
	}
	r.rest(step)
	e.Processes[0].Kill()
	end := observer.End{}
	if r.watch.Leaving(t); to == rollout.SideNew {
		r.watch.Finishing(t)
		end.Images = map[string]string{"app": r.rollout.NewestImage()}
	}
	bring(r)
	r.watch.WaitStill(t)
	r.requireHome(end)
}

// repair is what a person has whose engine is gone: the binary and a kubeconfig.
func (r *release) repair(to rollout.Side) {
	r.t.Helper()
	workload := strings.ToLower(r.rollout.Kind.Title) + "/" + r.rollout.Name
	out, err := exec.Command(r.Binary("slipway"), "repair", workload, "-n", r.Apps, "--to", string(to), "--kubeconfig", r.Kubeconfig, "--yes").CombinedOutput()
	require.NoError(r.t, err, "%s", out)
	r.t.Logf("%s", out)
}

// recover runs the part of the annotation's commands that leads to one side, as a person would paste it.
func (r *release) recover(to rollout.Side) {
	r.t.Helper()
	text := r.object().GetAnnotations()[rollout.AnnotationRecover]
	require.NotEmpty(r.t, text)
	_, part, ok := strings.Cut(text, "# to the "+string(to)+" version\n")
	require.True(r.t, ok, text)
	part, _, _ = strings.Cut(part, "# to the ")
	script := filepath.Join(r.t.TempDir(), "recover.sh")
	require.NoError(r.t, os.WriteFile(script, []byte(part), 0o600))
	command := exec.Command("bash", script)
	command.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig, "PATH="+r.Bin+":"+os.Getenv("PATH"))
	out, _ := command.CombinedOutput() // a patch that is empty had nothing to give back, the text says
	r.t.Logf("%s\n%s", part, out)
}
