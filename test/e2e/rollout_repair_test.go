package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// With the engine dead, `slipway repair` and the commands of slipway.io/recover restore the workload to either side
// from a waiting step: complete, without any mark of the engine, and without a request to an empty Service.
// TestRepair_RestoresWorkload_WithoutEngine and TestRecoverCommands_RestoreWorkload_WithoutEngine cover the states of a
// Deployment in both ways.
func TestLongRepair_RestoresWorkload_FromWaitingStep(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	repairCells(t, func(turn int, place matrixCell) bool { return place.reason != "" && (turn%12 == 0 || turn%8 == 4) })
}

// Every cell, from each waiting step, to either side.
func TestSoakRepair_RestoresWorkload_FromWaitingStep(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	repairCells(t, func(int, matrixCell) bool { return true })
}

// stranded is a rollout at a waiting step whose engine is about to be killed.
type stranded struct {
	*release
	title   string
	to      rollout.Side
	restore func(r *release, to rollout.Side)
}

// repairCells brings rollouts to a waiting step, a dozen at a time on one engine, kills the engine and repairs each
// workload to one side.
func repairCells(t *testing.T, takes func(turn int, place matrixCell) bool) {
	t.Helper()
	ways := []struct {
		name    string
		restore func(r *release, to rollout.Side)
	}{{"repair", (*release).repair}, {"recover", (*release).recover}}
	var cases []func(t *testing.T, e *harness.Engine) *stranded
	for i, place := range matrix() {
		for step := 1; step <= 3; step++ {
			if step == 3 && place.style != strategy.StyleBlueGreen {
				continue // only the last step of a blue-green waits
			}
			for n, to := range []rollout.Side{rollout.SideStable, rollout.SideNew} {
				turn := i + step + n
				if !takes(turn, place) {
					continue
				}
				way := ways[turn/4%2]
				cases = append(cases, func(t *testing.T, e *harness.Engine) *stranded {
					title := fmt.Sprintf("%s/%d/%s/%s", place, step, to, way.name)
					return &stranded{release: startStranded(t, e, place.cell, step), title: title, to: to,
						restore: way.restore}
				})
			}
		}
	}
	for some := range slices.Chunk(cases, 12) {
		repairTogether(t, some)
	}
}

func repairTogether(t *testing.T, cases []func(*testing.T, *harness.Engine) *stranded) {
	t.Helper()
	e := harness.Start(t, harness.Options{})
	waiting := make([]*stranded, len(cases))
	var wg sync.WaitGroup
	for i, begin := range cases {
		wg.Go(func() { waiting[i] = begin(t, e) })
	}
	wg.Wait()
	e.Processes[0].Kill()
	t.Run("repair", func(t *testing.T) {
		for _, r := range waiting {
			require.NotNil(t, r, "its rollout never reached its step")
			t.Run(r.title, func(t *testing.T) {
				t.Parallel()
				r.requireRepaired(t)
			})
		}
	})
}

// startStranded starts a rollout and waits until it is paused at a step.
func startStranded(t *testing.T, e *harness.Engine, c cell, step int) *release {
	r := startRelease(t, e, c, nil)
	for n := 1; n < step; n++ {
		r.approve(n)
	}
	r.waitPaused(step)
	return r
}

// requireRepaired repairs the workload and requires that everything is restored.
func (r *stranded) requireRepaired(t *testing.T) {
	r.t, r.Engine = t, r.WithT(t)
	end := observer.End{}
	if r.watch.MarkMoving(t); r.to == rollout.SideNew {
		r.watch.AllowFinish(t)
		end.Images = map[string]string{"app": r.rollout.NewestImage()}
	}
	r.restore(r.release, r.to)
	r.watch.WaitSettled(t)
	r.requireRestored(end)
}

// repair runs `slipway repair` as a user without an engine does: with the binary and a kubeconfig.
func (r *release) repair(to rollout.Side) {
	r.t.Helper()
	out, err := exec.Command(r.Binary("slipway"), "repair", r.Apps+"/"+r.rollout.Name, "--engine", r.Home, "--kind",
		strings.ToLower(r.rollout.Kind.Title), "--to", string(to),
		"--kubeconfig", r.Kubeconfig, "--yes").CombinedOutput()
	require.NoError(r.t, err, "%s", out)
	r.t.Logf("%s", out)
}

// recover runs the annotation's commands for one side, as a user would paste them.
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
	out, _ := command.CombinedOutput() // the output explains that an empty patch had nothing to restore
	r.t.Logf("%s\n%s", part, out)
}
