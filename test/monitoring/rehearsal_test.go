package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// rehearsal is an engine with its own Temporal, watched by a Prometheus with the rules of deploy/monitoring.
type rehearsal struct {
	*harness.Engine
	*prometheus
	t        *testing.T
	options  harness.Options
	temporal *harness.SecureTemporal
	coverage *dashboardCoverage
	board    dashboard
	// ended are the rollouts that have ended.
	ended []string
}

// TestLongAlertsFireAndClear causes the condition of each alert, one after the other, and requires that the alert fires
// and clears. Meanwhile it sends every query of the dashboard. The parts run in parallel, each with its own engine:
// most of the time they wait for a window of Prometheus.
func TestLongAlertsFireAndClear(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	findPrometheus(t)
	seen := newDashboardCoverage()
	parts := []struct {
		name string
		env  []string
		play []func(*rehearsal)
		r    *rehearsal
	}{
		{name: "Releases", env: []string{"SLIPWAY_UNREACHABLE_BUDGET=5s"},
			play: []func(*rehearsal){(*rehearsal).rehearseWaitingReleases, (*rehearsal).checkTimesAddUp,
				(*rehearsal).rehearsePartyOutage}},
		{name: "Outages", play: []func(*rehearsal){(*rehearsal).rehearseProcessDeath,
			(*rehearsal).rehearseTemporalRefusal, (*rehearsal).rehearseTemporalDeath}},
		{name: "Delays", play: []func(*rehearsal){(*rehearsal).rehearseStuckPods,
			(*rehearsal).rehearseUnheldChange, (*rehearsal).rehearseSlowQueue}},
	}
	t.Run("Rehearsals", func(t *testing.T) {
		for i := range parts {
			part := &parts[i]
			t.Run(part.name, func(t *testing.T) {
				t.Parallel()
				part.r = rehearse(t, seen, part.env...)
				for _, play := range part.play {
					play(part.r)
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	require.Empty(t, seen.empty(), "every query of the dashboard must return data")
	for _, alert := range readRules(t).alerts() {
		fired := false
		for _, part := range parts {
			fired = fired || part.r != nil && part.r.fired[alert.Alert]
		}
		require.True(t, fired, "%s was never triggered", alert.Alert)
	}
}

// rehearse starts an engine and a Prometheus that watches it, and returns when no alert fires.
func rehearse(t *testing.T, seen *dashboardCoverage, env ...string) *rehearsal {
	t.Helper()
	l := harness.NewSecureTemporal(t)
	worker := "127.0.0.1:" + harness.FreePort(t)
	r := &rehearsal{t: t, temporal: l, coverage: seen, board: readDashboard(t),
		options: harness.Options{Stack: &l.Stack, Args: l.Flags(), Env: env,
			WorkerEnv: []string{"SLIPWAY_METRICS_LISTEN=" + worker}, SeparateWorker: true}}
	r.Engine = harness.Start(t, r.options)
	r.prometheus = startPrometheus(t, readRules(t).shortened(), map[string][]string{
		"slipway-server": {strings.TrimPrefix(r.URL, "http://")}, "slipway-worker": {worker}})
	require.Eventually(t, func() bool {
		up, err := r.query(`up == 1`)
		return err == nil && len(up) == 2
	}, harness.Patience, harness.Tick, "server and worker are not scraped")
	r.waitQuiet()
	return r
}

// start starts a canary that waits for approval at its first step; with planned above 0 that step has a timed pause
// instead.
func (r *rehearsal) start(name string, planned time.Duration, more map[string]any) {
	r.t.Helper()
	first := harness.Step("1", -1)
	if planned > 0 {
		first = harness.TimedStep(first, planned)
	}
	r.Deployment(name, 2, nil)
	r.WaitReadyPods(name, 2)
	r.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: name, ExtraFields: more,
		Strategy: strategy.Strategy{Steps: []strategy.Step{first, harness.TimedStep(harness.Step("100%", -1), 0)}}})
}

// waitEnd returns when a rollout has ended in this phase.
func (r *rehearsal) waitEnd(name string, phase rollout.Phase) {
	r.t.Helper()
	r.WaitPhase(name, phase)
	r.ended = append(r.ended, name)
}

// rehearseWaitingReleases: a canary waits for approval, one is paused, one is changed by another client until it gives
// up, commands are refused, and most rollouts fail.
func (r *rehearsal) rehearseWaitingReleases() {
	r.start("planned", 16*time.Second, nil) // a shorter pause is waited for within a leg and counts as machine time
	for _, name := range []string{"canary", "held", "fought", "returned"} {
		r.start(name, 0, nil)
		r.WaitForApproval(name, 1)
	}
	r.MustVerb("held", "pause", "")
	r.waitFiring("SlipwayApprovalOverdue kind=rollout", "SlipwayReleaseOnHold kind=rollout")
	r.fight("fought")
	r.waitFiring("SlipwayFight kind=rollout", "SlipwayDriftUndecided kind=rollout")
	for range 12 {
		require.Equal(r.t, http.StatusConflict, r.RolloutVerb("canary", "retry", "").Status, "nothing has failed")
	}
	r.waitFiring("SlipwayCommandsRefused kind=rollout")
	r.coverage.queryAll(r.prometheus, r.board)
	r.waitEnd("planned", rollout.PhaseHealthy)
	failed := []string{"held", "fought", "returned"}
	for _, name := range failed {
		r.MustVerb(name, "rollback", "")
	}
	for _, name := range failed {
		r.waitEnd(name, rollout.PhaseRolledBack)
	}
	r.waitFiring("SlipwayReleasesFail kind=rollout")
	r.coverage.queryAll(r.prometheus, r.board)
	r.Approve("canary", r.Rollout("canary"))
	r.waitEnd("canary", rollout.PhaseHealthy)
	r.waitCleared("SlipwayApprovalOverdue kind=rollout", "SlipwayReleaseOnHold kind=rollout",
		"SlipwayDriftUndecided kind=rollout")
}

// fight removes a borrowed field until the rollout has restored it twice, and then changes the template.
func (r *rehearsal) fight(name string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { // a change during a restore counts as one with the previous change
		r.PatchObject(harness.Deployment, name, `{"spec":{"paused":null}}`)
		return restorations(r.Rollout(name)) >= 2
	}, harness.Patience, time.Second, "the field was not restored twice")
	r.SetImage(harness.Deployment, name, "registry.test/"+name+":theirs")
	r.WaitRollout(name, "drift", func(s rollout.Status) bool {
		return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
	})
}

func restorations(s rollout.Status) (n int) {
	for _, e := range s.History {
		if e.Verb == audit.Verb(machine.VerbRestored) {
			n++
		}
	}
	return n
}

// checkTimesAddUp checks that the machine, human and planned times of the ended rollouts add up to their ages.
func (r *rehearsal) checkTimesAddUp() {
	var ages time.Duration
	for _, name := range r.ended {
		run, err := r.Workflows.DescribeWorkflowExecution(context.Background(), r.RolloutID(name), "")
		require.NoError(r.t, err)
		info := run.GetWorkflowExecutionInfo()
		ages += info.GetCloseTime().AsTime().Sub(info.GetStartTime().AsTime())
	}
	spent := func(on string) float64 {
		return r.number(fmt.Sprintf(`sum(slipway_release_time_seconds_sum{kind="rollout", spent=~%q})`, on))
	}
	require.Eventually(r.t, func() bool {
		return math.Abs(spent(".+")-ages.Seconds()) < 0.2*float64(len(r.ended))
	}, harness.Patience, scrapeInterval,
		"all times must add up to the ages, %s", ages)
	require.InDelta(r.t, spent(".+"), spent("machine")+spent("human")+spent("planned"), 0.001)
	require.InDelta(r.t, 16, spent("planned"), 2, "one step had a pause of 16 seconds")
	require.Greater(r.t, spent("human"), spent("planned"), "four rollouts have waited for approval")
	require.InDelta(r.t, len(r.ended), r.number(`sum(slipway_releases_finished_total{kind="rollout"})`), 0)
	for _, v := range r.board.Templating.List {
		if v.Type == "query" {
			require.NotEmpty(r.t, r.choices(r.board, v), v.Name)
		}
	}
}

// rehearsePartyOutage: a party's only worker is killed during a release of the party, which then gets work to do.
func (r *rehearsal) rehearsePartyOutage() {
	a := r.Call(http.MethodPut, "/api/v1/parties/alice", "namespace: "+r.Apps+"\n")
	require.Equal(r.t, http.StatusCreated, a.Status, "%s", a.Body)
	r.waitFiring("SlipwayPartyUnreachable party=alice")
	work := func() *harness.Process { return r.PartyWorker("alice", r.Kubeconfig, r.temporal.Flags()...) }
	worker := work()
	r.waitCleared("SlipwayPartyUnreachable party=alice")
	r.start("theirs", 0, map[string]any{"party": "alice"})
	status := r.waitPartyRollout(func(s rollout.Status) bool {
		return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitApproval
	})
	worker.Kill()
	r.waitFiring("SlipwayPartyUnreachable party=alice", "SlipwayPartyUnreachableDuringRelease party=alice")
	a = r.Call(http.MethodPost, r.partyRolloutPath("/approve"),
		fmt.Sprintf(`{"actor":"ann","step":1,"gate":%q}`, status.WaitingFor.Gate))
	require.Equal(r.t, http.StatusOK, a.Status, "%s", a.Body)
	r.waitFiring("SlipwayReleaseWaitsForParty kind=rollout")
	work()
	r.waitPartyRollout(func(s rollout.Status) bool { return s.Phase == rollout.PhaseHealthy })
	r.waitQuiet()
}

func (r *rehearsal) partyRolloutPath(verb string) string {
	return "/api/v1/rollouts/" + r.Apps + "/theirs" + verb + "?party=alice"
}

// waitPartyRollout returns the rollout of the party when is reports true.
func (r *rehearsal) waitPartyRollout(is func(rollout.Status) bool) (status rollout.Status) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		status = rollout.Status{}
		a, err := r.TryCall(http.MethodGet, r.partyRolloutPath(""), "")
		return err == nil && json.Unmarshal(a.Body, &status) == nil && is(status)
	}, harness.Patience, harness.Tick, "the party's rollout: %+v", &status)
	return status
}

// rehearseStuckPods: the pods of a step never become ready.
func (r *rehearsal) rehearseStuckPods() {
	r.Deployment("stuck", 2, nil)
	r.WaitReadyPods("stuck", 2)
	r.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: "stuck", Image: "registry.test/stuck:never-ready",
		Policy: map[string]any{"stepDeadlineSeconds": 60},
		Strategy: strategy.Strategy{Steps: []strategy.Step{harness.Step("1", -1),
			harness.TimedStep(harness.Step("100%", -1), 0)}}})
	r.waitFiring("SlipwayPodsStuck kind=rollout")
	r.MustVerb("stuck", "rollback", "")
	r.WaitPhase("stuck", rollout.PhaseRolledBack)
	r.waitQuiet()
}

// rehearseUnheldChange: a change of a pod template moves pods without the steps of a Rollout, for no gate covers the
// namespace.
func (r *rehearsal) rehearseUnheldChange() {
	const name = "unheld"
	r.Deployment(name, 2, nil)
	r.WaitReadyPods(name, 2)
	rollouts := r.Dynamic(r.t).Resource(v1beta1.Resource).Namespace(r.Apps)
	_, err := rollouts.Create(r.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.Kind, "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"workloadRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
			"strategy": map[string]any{"canary": map[string]any{"steps": []any{map[string]any{
				"replicas": "100%"}}}}}}}, metav1.CreateOptions{})
	require.NoError(r.t, err)
	require.Eventually(r.t, func() bool {
		found, err := rollouts.Get(r.t.Context(), name, metav1.GetOptions{})
		require.NoError(r.t, err)
		phase, _, _ := unstructured.NestedString(found.Object, "status", "phase")
		return phase == string(v1beta1.PhaseHealthy)
	}, harness.Patience, harness.Tick, "the Rollout is never Healthy")
	r.SetImage(harness.Deployment, name, "registry.test/"+name+":v2")
	r.waitFiring("SlipwayChangeNotHeld job=slipway-worker")
	require.NoError(r.t, rollouts.Delete(r.t.Context(), name, metav1.DeleteOptions{}))
	r.waitQuiet()
}

// rehearseSlowQueue: activities for a party reach its workers slowly.
func (r *rehearsal) rehearseSlowQueue() {
	for _, name := range []string{"first", "second"} {
		r.start(name, 0, nil)
		r.WaitForApproval(name, 1)
	}
	r.limitQueue(&taskqueuepb.RateLimit{RequestsPerSecond: 0.05})
	for _, name := range []string{"first", "second"} {
		r.Approve(name, r.Rollout(name))
	}
	r.waitFiring("SlipwayWorkersBehind job=slipway-worker")
	r.coverage.queryAll(r.prometheus, r.board)
	r.limitQueue(nil)
	for _, name := range []string{"first", "second"} {
		r.WaitPhase(name, rollout.PhaseHealthy)
	}
	r.waitQuiet()
}

// limitQueue limits the rate at which Temporal hands out activities of the default party; nil removes the limit.
func (r *rehearsal) limitQueue(limit *taskqueuepb.RateLimit) {
	_, err := r.Workflows.WorkflowService().UpdateTaskQueueConfig(context.Background(),
		&workflowservice.UpdateTaskQueueConfigRequest{
			Namespace: r.TemporalNamespace, TaskQueue: "slipway.party.default",
			TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
			UpdateQueueRateLimit: &workflowservice.UpdateTaskQueueConfigRequest_RateLimitUpdate{RateLimit: limit,
				Reason: "a rehearsal"}})
	require.NoError(r.t, err)
}

// rehearseProcessDeath: server and worker are killed. At first the worker restarts without the keys that decrypt
// releases.
func (r *rehearsal) rehearseProcessDeath() {
	r.start("sealed", 0, nil)
	r.WaitForApproval("sealed", 1)
	for _, p := range r.Processes {
		p.Kill()
	}
	r.waitFiring("SlipwayNoServer", "SlipwayNoWorker", "SlipwayTargetDown job=slipway-server",
		"SlipwayTargetDown job=slipway-worker")
	unsealed := r.options
	at := slices.Index(unsealed.Args, "--temporal-codec-key-dir")
	unsealed.Args = slices.Delete(slices.Clone(unsealed.Args), at, at+2)
	r.Server(r.options)
	keyless := r.Worker(unsealed)
	r.WaitReady()
	approve := `{"actor":"ann","step":1,"key":"once"}`
	require.Equal(r.t, http.StatusServiceUnavailable, r.RolloutVerb("sealed", "approve", approve).Status,
		"no worker can read the release")
	r.waitFiring("SlipwayWorkflowTasksFail workflow_type=Rollout")
	r.coverage.queryAll(r.prometheus, r.board)
	keyless.Kill()
	r.Worker(r.options)
	r.MustVerb("sealed", "approve", approve)
	r.WaitPhase("sealed", rollout.PhaseHealthy)
	r.waitQuiet()
}

// rehearseTemporalRefusal: Temporal no longer accepts the engine's API key, until the engine gets another.
func (r *rehearsal) rehearseTemporalRefusal() {
	r.temporal.AcceptKey("another")
	var a harness.Answer
	require.Eventually(r.t, func() bool {
		a, _ = r.TryCall(http.MethodPost, "/api/v1/rollouts/"+r.Apps+"/sealed/pause", "{}")
		return a.Status == http.StatusServiceUnavailable &&
			slices.Contains(r.firing(), "SlipwayAPIErrors job=slipway-server")
	}, harness.Patience, harness.Tick, "the API must report that Temporal refuses: %+v", &a)
	r.waitFiring("SlipwayTemporalRefuses job=slipway-server", "SlipwayTemporalRefuses job=slipway-worker",
		"SlipwayGaugesUnreadable job=slipway-server")
	r.temporal.Write("api-key", "another")
	r.waitCleared("SlipwayTemporalRefuses job=slipway-server", "SlipwayTemporalRefuses job=slipway-worker",
		"SlipwayGaugesUnreadable job=slipway-server")
}

// rehearseTemporalDeath: Temporal is killed, and restarts with a rate limit that is far too low.
func (r *rehearsal) rehearseTemporalDeath() {
	r.temporal.Kill()
	r.waitFiring("SlipwayTemporalUnavailable job=slipway-server", "SlipwayTemporalUnavailable job=slipway-worker",
		"SlipwayGaugesUnreadable job=slipway-server")
	r.coverage.queryAll(r.prometheus, r.board)
	r.temporal.Restart("--namespace-rps", "2")
	require.Eventually(r.t, func() bool {
		_, _ = r.TryCall(http.MethodPost, "/api/v1/rollouts/"+r.Apps+"/sealed/pause", "{}")
		return slices.Contains(r.firing(), "SlipwayTemporalThrottles job=slipway-server")
	}, harness.Patience, harness.Tick, "the requests to Temporal must exceed its limit")
	r.temporal.Kill()
	r.temporal.Restart()
	r.waitQuiet()
}
