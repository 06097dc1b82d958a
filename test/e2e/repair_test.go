package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/activities/traffic/scriptbox"
	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// abandoned is a rollout whose engine has died: a party worker's activities have executed some of its steps, and no
// process continues it.
type abandoned struct {
	*release
	pods    *workloads.Activities
	routes  *traffic.Activities
	subject rollout.Subject
	moved   rollout.MoveResult
	begun   rollout.BeginResult
}

// abandon prepares a workload and begins a rollout of it, without an engine.
func abandon(t *testing.T, stack harness.Stack, c cell) *abandoned {
	t.Helper()
	engine := &harness.Engine{Stack: stack}
	r := prepare(t, engine, c, nil)
	objects, log := r.Dynamic(t), slog.New(slog.DiscardHandler)
	routes, err := traffic.New(r.Kube, objects, traffic.Options{Logger: log,
		Sandbox: []string{r.Binary("slipway"), scriptbox.Argument}})
	require.NoError(t, err)
	a := &abandoned{release: r, routes: routes, pods: workloads.New(r.Kube, objects, workloads.Options{Logger: log})}
	t.Cleanup(a.pods.Stop)
	a.subject = rollout.Subject{
		Workload: catalog.Workload{Namespace: r.Apps, WorkloadRef: c.kind.Ref(r.rollout.Name)}, Name: r.rollout.Name,
		DeadlineSeconds: 60,
		Claim: workload.Holder{WorkflowID: rollout.WorkflowID("", r.Apps, r.rollout.Name),
			RunID: "dead"}.String(),
	}
	a.begun = retryUntilReady(t, func(ctx context.Context) (rollout.BeginResult, error) {
		return a.pods.Begin(ctx, rollout.BeginRequest{Subject: a.subject, Strategy: r.rollout.Strategy,
			Change: a.change()})
	})
	return a
}

func (a *abandoned) change() strategy.Change {
	return strategy.Change{Images: map[string]string{"app": a.rollout.NewestImage()}}
}

// retryUntilReady calls an activity until it returns anything but NotReady.
func retryUntilReady[T any](t *testing.T, call func(context.Context) (T, error)) T {
	t.Helper()
	for deadline := time.Now().Add(harness.Patience); ; {
		result, err := call(context.Background())
		var failed *temporal.ApplicationError
		if errors.As(err, &failed) && failed.Type() == string(failure.NotReady) && time.Now().Before(deadline) {
			continue
		}
		require.NoError(t, err)
		return result
	}
}

// moveToStep executes the steps up to this one as the workflow does; routed is true if the last step's traffic is moved
// too.
func (a *abandoned) moveToStep(step int, routed bool) {
	a.t.Helper()
	for n := 1; n <= step; n++ {
		a.watch.AllowStep(a.t, n)
		s := a.rollout.Strategy.Steps[n-1]
		a.prepareTraffic(s)
		a.moved = retryUntilReady(a.t, func(ctx context.Context) (rollout.MoveResult, error) {
			return a.pods.Move(ctx, rollout.MoveRequest{Subject: a.subject, Step: n, Style: a.rollout.Strategy.Style,
				Replicas: s.Replicas, Change: a.change(),
				Template: a.moved.Template, Settle: true})
		})
		if s.Routes() && a.rollout.Strategy.HasTraffic() && (routed || n < step) {
			a.route(rollout.RouteEnsure, s.DesiredTraffic())
		}
	}
}

// prepareTraffic prepares the Services and routes before a step moves pods: the stable Service is pinned while stable
// pods remain, and everything is restored before the last of them are removed.
func (a *abandoned) prepareTraffic(s strategy.Step) {
	a.t.Helper()
	switch {
	case !a.rollout.Strategy.HasTraffic():
	case s.Routes():
		a.route(rollout.RoutePin, strategy.Traffic{})
	default:
		for _, action := range []rollout.RouteAction{rollout.RouteUnpin, rollout.RouteToStable,
			rollout.RouteRemoveCanary} {
			a.route(action, strategy.Traffic{})
		}
	}
}

func (a *abandoned) route(action rollout.RouteAction, split strategy.Traffic) {
	a.t.Helper()
	retryUntilReady(a.t, func(ctx context.Context) (rollout.RouteResult, error) {
		return a.routes.Route(ctx, rollout.RouteRequest{Subject: a.subject, Action: action,
			Routings: a.rollout.Strategy.Routings, Traffic: split,
			StableHash: a.begun.StableHash, CanaryHash: a.moved.CanaryHash})
	})
}

// expectEnd informs the observer that the workload is about to be repaired.
func (a *abandoned) expectEnd(to rollout.Side) {
	a.t.Helper()
	if to == rollout.SideNew {
		a.watch.AllowFinish(a.t)
		return
	}
	a.watch.MarkMoving(a.t)
}

// requireEnded requires that all pods are ready and of one version, with nothing of the rollout left.
func (a *abandoned) requireEnded(to rollout.Side) {
	a.t.Helper()
	if to == rollout.SideNew {
		a.requireRestored(observer.End{Images: a.change().Images})
		return
	}
	a.requireRestored(observer.End{})
}

// repair runs `slipway repair` with only a kubeconfig.
func (a *abandoned) repair(to rollout.Side) (output string, code int) {
	a.t.Helper()
	c := exec.Command(a.Binary("slipway"), "repair", a.Apps+"/"+a.rollout.Name, "--to", string(to), "--kubeconfig",
		a.Kubeconfig, "--yes", "--timeout", "2m")
	c.Env = []string{"HOME=" + a.t.TempDir(), "PATH=/nowhere"}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(a.t, err)
		return string(out), 0
	}
	return string(out), exit.ExitCode()
}

// abandonedState is the point at which a rollout was abandoned.
type abandonedState struct {
	cell
	step   int
	routed bool
}

func (s abandonedState) String() string {
	at := "AfterPods"
	if s.routed {
		at = "Waiting"
	}
	return fmt.Sprintf("%s/Step%d%s", s.cell, s.step, at)
}

// abandonedStates are the states from which a workload is repaired: each step of each style with traffic, waiting and
// between pods and traffic.
func abandonedStates() []abandonedState {
	var all []abandonedState
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		for step := 0; step <= 3; step++ {
			for _, routed := range []bool{true, false} {
				if routed || step > 0 {
					all = append(all, abandonedState{deploymentCell(style, harness.Nginx), step, routed})
				}
			}
		}
	}
	return append(all, abandonedState{deploymentCell(strategy.StylePartition, harness.NoProvider), 2, true})
}

// isMiddle selects the state of each style from which `make test` repairs workloads; the soak covers the others.
func (s abandonedState) isMiddle() bool {
	return s.routed && s.step == 2 && s.provider == harness.Nginx
}

// byCommands selects the states from which `make test` repairs workloads by the commands of slipway.io/recover.
func (s abandonedState) byCommands() bool { return s.isMiddle() && s.style != strategy.StyleCanary }

// `slipway repair` restores a workload from a state of each style, to either side, with only a kubeconfig. No request
// meets an empty Service meanwhile.
func TestRepair_RestoresWorkload_WithoutEngine(t *testing.T) {
	t.Parallel()
	repairFrom(t, abandonedState.isMiddle)
}

// This test covers the states that TestRepair_RestoresWorkload_WithoutEngine omits: the other steps, and those between
// pods and traffic.
func TestSoakRepair_RestoresWorkload_WithoutEngine(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	repairFrom(t, func(s abandonedState) bool { return !s.isMiddle() })
}

func repairFrom(t *testing.T, takes func(abandonedState) bool) {
	t.Helper()
	stack := harness.SharedStack(t)
	for _, s := range abandonedStates() {
		if !takes(s) {
			continue
		}
		for _, to := range []rollout.Side{rollout.SideStable, rollout.SideNew} {
			t.Run(fmt.Sprintf("%s/To_%s", s, to), func(t *testing.T) {
				t.Parallel()
				a := abandon(t, stack, s.cell)
				a.moveToStep(s.step, s.routed)
				a.expectEnd(to)
				out, code := a.repair(to)
				if s.step == 0 && to == rollout.SideNew {
					require.Equal(t, 1, code, "no pod defines the new version yet\n%s", out)
					require.Contains(t, out, "has no pod of the new version yet")
					out, code = a.repair(rollout.SideStable)
					to = rollout.SideStable
				}
				require.Equal(t, 0, code, out)
				a.requireEnded(to)
				again, code := a.repair(to)
				require.Equal(t, 3, code, again)
				require.Contains(t, again, "there is nothing to repair")
			})
		}
	}
}

// The commands of slipway.io/recover do the same with kubectl.
func TestRecoverCommands_RestoreWorkload_WithoutEngine(t *testing.T) {
	t.Parallel()
	recoverFrom(t, abandonedState.byCommands)
}

// This test covers the states that TestRecoverCommands_RestoreWorkload_WithoutEngine omits.
func TestSoakRecoverCommands_RestoreWorkload_WithoutEngine(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	recoverFrom(t, func(s abandonedState) bool { return s.step > 0 && !s.byCommands() })
}

func recoverFrom(t *testing.T, takes func(abandonedState) bool) {
	t.Helper()
	stack := harness.SharedStack(t)
	for _, s := range abandonedStates() {
		if !takes(s) || !s.routed {
			continue
		}
		for _, to := range []rollout.Side{rollout.SideStable, rollout.SideNew} {
			t.Run(fmt.Sprintf("%s/To_%s", s, to), func(t *testing.T) {
				t.Parallel()
				a := abandon(t, stack, s.cell)
				a.moveToStep(s.step, s.routed)
				a.expectEnd(to)
				script := a.commands(to)
				c := exec.Command("sh", "-c", script)
				c.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + a.Kubeconfig,
					"PATH=" + a.Bin + ":" + os.Getenv("PATH")}
				out, err := c.CombinedOutput()
				require.NoError(t, err, "%s\n%s", script, out)
				a.requireEnded(to)
			})
		}
	}
}

// commands returns the annotation's commands for one side.
func (a *abandoned) commands(to rollout.Side) string {
	a.t.Helper()
	text := a.object().GetAnnotations()[rollout.AnnotationRecover]
	stable, fresh, found := strings.Cut(text, "# to the new version\n")
	require.True(a.t, found, text)
	if to == rollout.SideNew {
		return fresh
	}
	_, stable, found = strings.Cut(stable, "# to the stable version\n")
	require.True(a.t, found, text)
	return stable
}

// The next repair finishes one that was killed at any moment.
func TestRepair_IsFinishedByNextRun_WhenKilled(t *testing.T) {
	t.Parallel()
	repairKilled(t, map[strategy.Style]rollout.Side{strategy.StyleCanary: rollout.SideNew})
}

// This test covers the other styles.
func TestLongRepair_IsFinishedByNextRun_WhenKilled(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	repairKilled(t, map[strategy.Style]rollout.Side{strategy.StylePartition: rollout.SideStable,
		strategy.StyleBlueGreen: rollout.SideStable})
}

// repairKilled kills a repair later and later, until one completes.
func repairKilled(t *testing.T, styles map[strategy.Style]rollout.Side) {
	t.Helper()
	stack := harness.SharedStack(t)
	for style, to := range styles {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			a := abandon(t, stack, deploymentCell(style, harness.Nginx))
			a.moveToStep(2, true)
			a.expectEnd(to)
			for kill := 1; ; kill++ {
				require.Less(t, kill, 100, "it never ends")
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(kill)*700*time.Millisecond)
				c := exec.CommandContext(ctx, a.Binary("slipway"), "repair", a.Apps+"/"+a.rollout.Name, "--to",
					string(to), "--kubeconfig", a.Kubeconfig, "--yes")
				out, err := c.CombinedOutput()
				cancel()
				if code := c.ProcessState.ExitCode(); code == 0 || code == 3 {
					break // 3: the previous repair was killed after its last write
				}
				require.Equal(t, -1, c.ProcessState.ExitCode(), "it fails only because it is killed: %v\n%s", err, out)
			}
			a.requireEnded(to)
		})
	}
}

// A frozen split has no claim: the repair sets its own.
func TestRepair_PromotesFrozenSplit_WithoutClaim(t *testing.T) {
	t.Parallel()
	a := abandon(t, harness.SharedStack(t), deploymentCell(strategy.StylePartition, harness.Nginx))
	a.moveToStep(2, true)
	retryUntilReady(t, func(ctx context.Context) (rollout.MoveResult, error) {
		return a.pods.Finish(ctx, rollout.FinishRequest{Subject: a.subject, Action: rollout.FinishFreeze,
			To: rollout.SideStable})
	})
	require.Empty(t, a.claim(), "a frozen split has no claim")
	a.expectEnd(rollout.SideNew)
	out, code := a.repair(rollout.SideNew)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "no workflow holds it")
	a.requireEnded(rollout.SideNew)
}
