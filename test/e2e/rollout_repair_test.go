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

// With everything of ours dead, `slipway repair` and the commands of slipway.io/recover bring the workload home to either side, from the rest of a step: whole,
// with nothing of ours left, and no traffic meets an empty Service on the way. TestRepair and TestRecoverCommands take the states of a Deployment both
// ways.
func TestLongRolloutRepair(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	repairCells(t, func(turn int, place placed) bool { return place.reason != "" && (turn%12 == 0 || turn%8 == 4) })
}

// Every cell, from the rest of each step, to either side.
func TestSoakRolloutRepair(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	repairCells(t, func(int, placed) bool { return true })
}

// stranded is a rollout at the rest of a step, whose engine is about to die.
type stranded struct {
	*release
	title string
	to    rollout.Side
	bring func(r *release, to rollout.Side)
}

// repairCells brings rollouts to the rest of a step, a dozen at a time on one engine, kills it, and has somebody bring each workload home to one side.
func repairCells(t *testing.T, takes func(turn int, place placed) bool) {
	t.Helper()
	ways := []struct {
		name  string
		bring func(r *release, to rollout.Side)
	}{{"repair", (*release).repair}, {"recover", (*release).recover}}
	var cases []func(t *testing.T, e *harness.Engine) *stranded
	for i, place := range matrix() {
		for step := 1; step <= 3; step++ {
			if step == 3 && place.style != strategy.StyleBlueGreen {
				continue // a canary's last step passes by itself
			}
			for n, to := range []rollout.Side{rollout.SideStable, rollout.SideNew} {
				turn := i + step + n
				if !takes(turn, place) {
					continue
				}
				way := ways[turn/4%2]
				cases = append(cases, func(t *testing.T, e *harness.Engine) *stranded {
					title := fmt.Sprintf("%s/%d/%s/%s", place, step, to, way.name)
					return &stranded{release: strand(t, e, place.cell, step), title: title, to: to, bring: way.bring}
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
	t.Run("home", func(t *testing.T) {
		for _, r := range waiting {
			require.NotNil(t, r, "its rollout never came to rest")
			t.Run(r.title, func(t *testing.T) {
				t.Parallel()
				r.comesHome(t)
			})
		}
	})
}

// strand brings a rollout to the rest of a step.
func strand(t *testing.T, e *harness.Engine, c cell, step int) *release {
	r := begin(t, e, c, nil)
	for n := 1; n < step; n++ {
		r.approve(n)
	}
	r.rest(step)
	return r
}

// comesHome has somebody bring the workload home, and wants everything to be whole.
func (r *stranded) comesHome(t *testing.T) {
	r.t, r.Engine = t, r.In(t)
	end := observer.End{}
	if r.watch.Leaving(t); r.to == rollout.SideNew {
		r.watch.Finishing(t)
		end.Images = map[string]string{"app": r.rollout.NewestImage()}
	}
	r.bring(r.release, r.to)
	r.watch.WaitStill(t)
	r.requireHome(end)
}

// repair is what a person has whose engine is gone: the binary and a kubeconfig.
func (r *release) repair(to rollout.Side) {
	r.t.Helper()
	out, err := exec.Command(r.Binary("slipway"), "repair", r.Apps+"/"+r.rollout.Name, "--engine", r.Home, "--kind", strings.ToLower(r.rollout.Kind.Title), "--to", string(to),
		"--kubeconfig", r.Kubeconfig, "--yes").CombinedOutput()
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
