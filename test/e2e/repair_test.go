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
	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// abandoned is a rollout whose engine has died: the activities of a party's worker have brought it somewhere, and nobody goes on.
type abandoned struct {
	*release
	pods    *workload.Activities
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
	routes, err := traffic.New(r.Kube, objects, traffic.Options{Logger: log, Sandbox: []string{r.Binary("slipway"), scriptbox.Argument}})
	require.NoError(t, err)
	a := &abandoned{release: r, routes: routes, pods: workload.New(r.Kube, objects, workload.Options{Logger: log})}
	t.Cleanup(a.pods.Stop)
	a.subject = rollout.Subject{
		Workload: catalog.Workload{Namespace: r.Apps, WorkloadRef: c.kind.Ref(r.rollout.Name)}, Name: r.rollout.Name, DeadlineSeconds: 60,
		Claim: workloadops.Holder{WorkflowID: rollout.WorkflowID("", r.Apps, r.rollout.Name), RunID: "dead"}.String(),
	}
	a.begun = patiently(t, func(ctx context.Context) (rollout.BeginResult, error) {
		return a.pods.Begin(ctx, rollout.BeginRequest{Subject: a.subject, Strategy: r.rollout.Strategy, Change: a.change()})
	})
	return a
}

func (a *abandoned) change() strategy.Change {
	return strategy.Change{Images: map[string]string{"app": a.rollout.NewestImage()}}
}

// patiently calls an activity until it is done.
func patiently[T any](t *testing.T, call func(context.Context) (T, error)) T {
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

// goTo goes through the steps as the workflow does, up to one of them; routed says whether its traffic is moved too.
func (a *abandoned) goTo(step int, routed bool) {
	a.t.Helper()
	for n := 1; n <= step; n++ {
		a.watch.GoTo(a.t, n)
		s := a.rollout.Strategy.Steps[n-1]
		a.before(s)
		a.moved = patiently(a.t, func(ctx context.Context) (rollout.MoveResult, error) {
			return a.pods.Move(ctx, rollout.MoveRequest{Subject: a.subject, Step: n, Style: a.rollout.Strategy.Style, Replicas: s.Replicas, Change: a.change(),
				Template: a.moved.Template, Rest: true})
		})
		if s.Routes() && a.rollout.Strategy.HasTraffic() && (routed || n < step) {
			a.route(rollout.RouteEnsure, s.Asks())
		}
	}
}

// before sees to the Services and routes before a step's pods: the stable Service is pinned while stable pods stay, and all is given back before
// they go.
func (a *abandoned) before(s strategy.Step) {
	a.t.Helper()
	switch {
	case !a.rollout.Strategy.HasTraffic():
	case s.Routes():
		a.route(rollout.RoutePin, strategy.Traffic{})
	default:
		for _, action := range []rollout.RouteAction{rollout.RouteUnpin, rollout.RouteToStable, rollout.RouteRemoveCanary} {
			a.route(action, strategy.Traffic{})
		}
	}
}

func (a *abandoned) route(action rollout.RouteAction, asked strategy.Traffic) {
	a.t.Helper()
	patiently(a.t, func(ctx context.Context) (rollout.RouteResult, error) {
		return a.routes.Route(ctx, rollout.RouteRequest{Subject: a.subject, Action: action, Routings: a.rollout.Strategy.Routings, Traffic: asked,
			StableHash: a.begun.StableHash, CanaryHash: a.moved.CanaryHash})
	})
}

// leaving tells the observer that somebody brings the workload home.
func (a *abandoned) leaving(to rollout.Side) {
	a.t.Helper()
	if to == rollout.SideNew {
		a.watch.Finishing(a.t)
		return
	}
	a.watch.Leaving(a.t)
}

// home wants everything to be whole, of one version, with nothing of the rollout left.
func (a *abandoned) home(to rollout.Side) {
	a.t.Helper()
	if to == rollout.SideNew {
		a.requireHome(observer.End{Images: a.change().Images})
		return
	}
	a.requireHome(observer.End{})
}

// repair runs `slipway repair` with nothing but a kubeconfig.
func (a *abandoned) repair(to rollout.Side) (output string, code int) {
	a.t.Helper()
	c := exec.Command(a.Binary("slipway"), "repair", a.Apps+"/"+a.rollout.Name, "--to", string(to), "--kubeconfig", a.Kubeconfig, "--yes", "--timeout", "2m")
	c.Env = []string{"HOME=" + a.t.TempDir(), "PATH=/nowhere"}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(a.t, err)
		return string(out), 0
	}
	return string(out), exit.ExitCode()
}

// state is where a rollout was abandoned.
type state struct {
	cell
	step   int
	routed bool
}

func (s state) String() string {
	at := "AfterPods"
	if s.routed {
		at = "AtRest"
	}
	return fmt.Sprintf("%s/Step%d%s", s.cell, s.step, at)
}

// abandonedStates are the states from which a workload is brought home: each step of each style with traffic, at rest and between pods and traffic.
func abandonedStates() []state {
	var all []state
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		for step := 0; step <= 3; step++ {
			for _, routed := range []bool{true, false} {
				if routed || step > 0 {
					all = append(all, state{deploymentBy(style, harness.Nginx), step, routed})
				}
			}
		}
	}
	return append(all, state{deploymentBy(strategy.StylePartition, harness.NoProvider), 2, true})
}

// inTheMiddle is the state of each style from which `make test` brings workloads home: the soak takes the others.
func (s state) inTheMiddle() bool { return s.routed && s.step == 2 && s.provider == harness.Nginx }

// byCommands is a state from which `make test` does so by the commands of slipway.io/recover.
func (s state) byCommands() bool { return s.inTheMiddle() && s.style != strategy.StyleCanary }

// `slipway repair` brings a workload home from a state of each style, to either side, with a kubeconfig alone; no request meets an empty Service on the way.
func TestRepair(t *testing.T) {
	t.Parallel()
	repairFrom(t, state.inTheMiddle)
}

// From each state that TestRepair leaves out: at the other steps, and between pods and traffic.
func TestSoakRepair(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	repairFrom(t, func(s state) bool { return !s.inTheMiddle() })
}

func repairFrom(t *testing.T, takes func(state) bool) {
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
				a.goTo(s.step, s.routed)
				a.leaving(to)
				out, code := a.repair(to)
				if s.step == 0 && to == rollout.SideNew {
					require.Equal(t, 1, code, "nothing says yet what the new version is\n%s", out)
					require.Contains(t, out, "has no pod of the new version yet")
					out, code = a.repair(rollout.SideStable)
					to = rollout.SideStable
				}
				require.Equal(t, 0, code, out)
				a.home(to)
				again, code := a.repair(to)
				require.Equal(t, 3, code, again)
				require.Contains(t, again, "there is nothing to repair")
			})
		}
	}
}

// The commands of slipway.io/recover do the same with kubectl.
func TestRecoverCommands(t *testing.T) {
	t.Parallel()
	recoverFrom(t, state.byCommands)
}

// From the states that TestRecoverCommands leaves out.
func TestSoakRecoverCommands(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	recoverFrom(t, func(s state) bool { return s.step > 0 && !s.byCommands() })
}

func recoverFrom(t *testing.T, takes func(state) bool) {
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
				a.goTo(s.step, s.routed)
				a.leaving(to)
				script := a.commands(to)
				c := exec.Command("sh", "-c", script)
				c.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + a.Kubeconfig, "PATH=" + a.Bin + ":" + os.Getenv("PATH")}
				out, err := c.CombinedOutput()
				require.NoError(t, err, "%s\n%s", script, out)
				a.home(to)
			})
		}
	}
}

// commands are those of the annotation for one side.
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

// A repair that is killed at any moment is finished by the next one.
func TestRepairIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	repairKilled(t, map[strategy.Style]rollout.Side{strategy.StyleCanary: rollout.SideNew})
}

// The other styles.
func TestLongRepairIsFinishedByTheNext(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	repairKilled(t, map[strategy.Style]rollout.Side{strategy.StylePartition: rollout.SideStable, strategy.StyleBlueGreen: rollout.SideStable})
}

// repairKilled has a repair killed later and later, until one comes to its end.
func repairKilled(t *testing.T, styles map[strategy.Style]rollout.Side) {
	t.Helper()
	stack := harness.SharedStack(t)
	for style, to := range styles {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			a := abandon(t, stack, deploymentBy(style, harness.Nginx))
			a.goTo(2, true)
			a.leaving(to)
			for kill := 1; ; kill++ {
				require.Less(t, kill, 100, "it never ends")
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(kill)*700*time.Millisecond)
				c := exec.CommandContext(ctx, a.Binary("slipway"), "repair", a.Apps+"/"+a.rollout.Name, "--to", string(to), "--kubeconfig", a.Kubeconfig, "--yes")
				out, err := c.CombinedOutput()
				cancel()
				if code := c.ProcessState.ExitCode(); code == 0 || code == 3 {
					break // 3: the one before was killed after its last write
				}
				require.Equal(t, -1, c.ProcessState.ExitCode(), "it fails only because it is killed: %v\n%s", err, out)
			}
			a.home(to)
		})
	}
}

// A frozen split has no claim: the repair takes one of its own.
func TestRepairOfAFrozenSplit(t *testing.T) {
	t.Parallel()
	a := abandon(t, harness.SharedStack(t), deploymentBy(strategy.StylePartition, harness.Nginx))
	a.goTo(2, true)
	patiently(t, func(ctx context.Context) (rollout.MoveResult, error) {
		return a.pods.Finish(ctx, rollout.FinishRequest{Subject: a.subject, Action: rollout.FinishFreeze, To: rollout.SideStable})
	})
	require.Empty(t, a.claim(), "a frozen split is nobody's")
	a.leaving(rollout.SideNew)
	out, code := a.repair(rollout.SideNew)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "nobody holds it")
	a.home(rollout.SideNew)
}
