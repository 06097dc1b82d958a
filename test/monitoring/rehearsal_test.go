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

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// rehearsal is an engine with a Temporal of its own, which a Prometheus with the rules of deploy/monitoring watches.
type rehearsal struct {
	*harness.Engine
	*prometheus
	t       *testing.T
	options harness.Options
	locked  *harness.LockedTemporal
	seen    *panelsSeen
	board   dashboard
	// over are the rollouts that are over.
	over []string
}

// What alerts are for is brought about, one after the other, and each alert fires and clears. Meanwhile every query of the dashboard is sent. The
// parts run side by side, each with an engine of its own: most of their time they wait for a window of Prometheus to pass.
func TestLongAlertsFireAndClear(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	findPrometheus(t)
	seen := newPanelsSeen()
	parts := []struct {
		name string
		env  []string
		play []func(*rehearsal)
		r    *rehearsal
	}{
		{name: "Releases", env: []string{"SLIPWAY_UNREACHABLE_BUDGET=5s"},
			play: []func(*rehearsal){(*rehearsal).releasesWait, (*rehearsal).timesAreAges, (*rehearsal).partyGoesAway}},
		{name: "Outages", play: []func(*rehearsal){(*rehearsal).processesDie, (*rehearsal).temporalRefuses, (*rehearsal).temporalDies}},
		{name: "Delays", play: []func(*rehearsal){(*rehearsal).podsDoNotCome, (*rehearsal).workWaits}},
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
	require.Empty(t, seen.empty(), "every query of the dashboard shows something")
	for _, alert := range readRules(t).alerts() {
		fired := false
		for _, part := range parts {
			fired = fired || part.r != nil && part.r.fired[alert.Alert]
		}
		require.True(t, fired, "%s has been rehearsed", alert.Alert)
	}
}

// rehearse starts an engine that Prometheus watches, and returns when no alert fires.
func rehearse(t *testing.T, seen *panelsSeen, env ...string) *rehearsal {
	t.Helper()
	l := harness.NewLockedTemporal(t)
	worker := "127.0.0.1:" + harness.FreePort(t)
	r := &rehearsal{t: t, locked: l, seen: seen, board: readDashboard(t),
		options: harness.Options{Stack: &l.Stack, Args: l.Flags(), Env: env,
			WorkerEnv: []string{"SLIPWAY_METRICS_LISTEN=" + worker}, Apart: true}}
	r.Engine = harness.Start(t, r.options)
	r.prometheus = startPrometheus(t, readRules(t).hurried(), map[string][]string{
		"slipway-server": {strings.TrimPrefix(r.URL, "http://")}, "slipway-worker": {worker}})
	require.Eventually(t, func() bool {
		up, err := r.query(`up == 1`)
		return err == nil && len(up) == 2
	}, harness.Patience, harness.Tick, "server and worker are scraped")
	r.waitQuiet()
	return r
}

// start starts a canary that rests at its first step. planned has it go on by itself after that time.
func (r *rehearsal) start(name string, planned time.Duration, more map[string]any) {
	r.t.Helper()
	first := harness.Step("1", -1)
	if planned > 0 {
		first = harness.Timed(first, planned)
	}
	r.Deployment(name, 2, nil)
	r.WaitReadyPods(name, 2)
	r.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: name, More: more,
		Strategy: strategy.Strategy{Steps: []strategy.Step{first, harness.Timed(harness.Step("100%", -1), 0)}}})
}

// ends returns when a rollout is over.
func (r *rehearsal) ends(name string, phase rollout.Phase) {
	r.t.Helper()
	r.WaitPhase(name, phase)
	r.over = append(r.over, name)
}

// releasesWait: a canary waits for an approval, one is paused, one is disturbed by somebody else until it gives up, commands are refused, and most fail.
func (r *rehearsal) releasesWait() {
	r.start("planned", 16*time.Second, nil) // the party's worker waits out a shorter rest, as machine time
	for _, name := range []string{"canary", "held", "fought", "returned"} {
		r.start(name, 0, nil)
		r.WaitRest(name, 1)
	}
	r.MustVerb("held", "pause", "")
	r.waitFiring("SlipwayApprovalOverdue kind=rollout", "SlipwayReleaseOnHold kind=rollout")
	r.fight("fought")
	r.waitFiring("SlipwayFight kind=rollout", "SlipwayDriftUndecided kind=rollout")
	for range 12 {
		require.Equal(r.t, http.StatusConflict, r.RolloutVerb("canary", "retry", "").Status, "nothing has failed")
	}
	r.waitFiring("SlipwayCommandsRefused kind=rollout")
	r.seen.look(r.prometheus, r.board)
	r.ends("planned", rollout.PhaseHealthy)
	failed := []string{"held", "fought", "returned"}
	for _, name := range failed {
		r.MustVerb(name, "rollback", "")
	}
	for _, name := range failed {
		r.ends(name, rollout.PhaseRolledBack)
	}
	r.waitFiring("SlipwayReleasesFail kind=rollout")
	r.seen.look(r.prometheus, r.board)
	r.Approve("canary", r.Rollout("canary"))
	r.ends("canary", rollout.PhaseHealthy)
	r.waitCleared("SlipwayApprovalOverdue kind=rollout", "SlipwayReleaseOnHold kind=rollout", "SlipwayDriftUndecided kind=rollout")
}

// fight takes a field away that the rollout has borrowed until it has been put back twice, and then changes the template.
func (r *rehearsal) fight(name string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { // a change that comes while another is being put back is one with it
		r.PatchObject(harness.Deployment, name, `{"spec":{"paused":null}}`)
		return restorations(r.Rollout(name)) >= 2
	}, harness.Patience, time.Second, "the field is put back each time")
	r.SetImage(harness.Deployment, name, "registry.test/"+name+":theirs")
	r.WaitRollout(name, "drift", func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift })
}

func restorations(s rollout.Status) (n int) {
	for _, e := range s.History {
		if e.Verb == audit.Verb(machine.VerbRestored) {
			n++
		}
	}
	return n
}

// timesAreAges: the time of machines, of people and as planned is together the age of the rollouts, which are over.
func (r *rehearsal) timesAreAges() {
	var ages time.Duration
	for _, name := range r.over {
		run, err := r.Workflows.DescribeWorkflowExecution(context.Background(), r.RolloutID(name), "")
		require.NoError(r.t, err)
		info := run.GetWorkflowExecutionInfo()
		ages += info.GetCloseTime().AsTime().Sub(info.GetStartTime().AsTime())
	}
	spent := func(on string) float64 {
		return r.number(fmt.Sprintf(`sum(slipway_release_time_seconds_sum{kind="rollout", spent=~%q})`, on))
	}
	require.Eventually(r.t, func() bool { return math.Abs(spent(".+")-ages.Seconds()) < 0.2*float64(len(r.over)) }, harness.Patience, scrapeInterval,
		"all times together are the ages, %s", ages)
	require.InDelta(r.t, spent(".+"), spent("machine")+spent("human")+spent("planned"), 0.001)
	require.InDelta(r.t, 16, spent("planned"), 2, "one step was to rest for 16 seconds")
	require.Greater(r.t, spent("human"), spent("planned"), "four rollouts have waited for people")
	require.InDelta(r.t, len(r.over), r.number(`sum(slipway_releases_finished_total{kind="rollout"})`), 0)
	for _, v := range r.board.Templating.List {
		if v.Type == "query" {
			require.NotEmpty(r.t, r.choices(r.board, v), v.Name)
		}
	}
}

// partyGoesAway: a party's only worker is killed while a release of the party is open, which then has something to do.
func (r *rehearsal) partyGoesAway() {
	a := r.Call(http.MethodPut, "/api/v1/parties/alice", "namespace: "+r.Apps+"\n")
	require.Equal(r.t, http.StatusCreated, a.Status, "%s", a.Body)
	r.waitFiring("SlipwayPartyUnreachable party=alice")
	work := func() *harness.Process { return r.PartyWorker("alice", r.Kubeconfig, r.locked.Flags()...) }
	worker := work()
	r.waitCleared("SlipwayPartyUnreachable party=alice")
	r.start("theirs", 0, map[string]any{"party": "alice"})
	status := r.waitTheirs(func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitApproval })
	worker.Kill()
	r.waitFiring("SlipwayPartyUnreachable party=alice", "SlipwayPartyUnreachableDuringRelease party=alice")
	a = r.Call(http.MethodPost, r.theirs("/approve"), fmt.Sprintf(`{"actor":"ann","step":1,"gate":%q}`, status.WaitingFor.Gate))
	require.Equal(r.t, http.StatusOK, a.Status, "%s", a.Body)
	r.waitFiring("SlipwayReleaseWaitsForParty kind=rollout")
	work()
	r.waitTheirs(func(s rollout.Status) bool { return s.Phase == rollout.PhaseHealthy })
	r.waitQuiet()
}

func (r *rehearsal) theirs(verb string) string {
	return "/api/v1/rollouts/" + r.Apps + "/theirs" + verb + "?party=alice"
}

// waitTheirs returns the rollout of the party when it is as asked.
func (r *rehearsal) waitTheirs(is func(rollout.Status) bool) (status rollout.Status) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		status = rollout.Status{}
		a, err := r.TryCall(http.MethodGet, r.theirs(""), "")
		return err == nil && json.Unmarshal(a.Body, &status) == nil && is(status)
	}, harness.Patience, harness.Tick, "the party's rollout: %+v", &status)
	return status
}

// podsDoNotCome: the pods of a step are never ready.
func (r *rehearsal) podsDoNotCome() {
	r.Deployment("stuck", 2, nil)
	r.WaitReadyPods("stuck", 2)
	r.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: "stuck", Image: "registry.test/stuck:never-ready", Policy: map[string]any{"stepDeadlineSeconds": 60},
		Strategy: strategy.Strategy{Steps: []strategy.Step{harness.Step("1", -1), harness.Timed(harness.Step("100%", -1), 0)}}})
	r.waitFiring("SlipwayPodsStuck kind=rollout")
	r.MustVerb("stuck", "rollback", "")
	r.WaitPhase("stuck", rollout.PhaseRolledBack)
	r.waitQuiet()
}

// workWaits: what is to be done for a party gets through to its workers slowly.
func (r *rehearsal) workWaits() {
	for _, name := range []string{"first", "second"} {
		r.start(name, 0, nil)
		r.WaitRest(name, 1)
	}
	r.limitQueue(&taskqueuepb.RateLimit{RequestsPerSecond: 0.05})
	for _, name := range []string{"first", "second"} {
		r.Approve(name, r.Rollout(name))
	}
	r.waitFiring("SlipwayWorkersBehind job=slipway-worker")
	r.seen.look(r.prometheus, r.board)
	r.limitQueue(nil)
	for _, name := range []string{"first", "second"} {
		r.WaitPhase(name, rollout.PhaseHealthy)
	}
	r.waitQuiet()
}

// limitQueue has Temporal hand out so many activities of the default party; as many as there are with nil.
func (r *rehearsal) limitQueue(limit *taskqueuepb.RateLimit) {
	_, err := r.Workflows.WorkflowService().UpdateTaskQueueConfig(context.Background(), &workflowservice.UpdateTaskQueueConfigRequest{
		Namespace: r.TemporalNamespace, TaskQueue: "slipway.party.default", TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
		UpdateQueueRateLimit: &workflowservice.UpdateTaskQueueConfigRequest_RateLimitUpdate{RateLimit: limit, Reason: "a rehearsal"}})
	require.NoError(r.t, err)
}

// processesDie: server and worker are killed. The worker comes back without the keys that releases are encrypted with, at first.
func (r *rehearsal) processesDie() {
	r.start("sealed", 0, nil)
	r.WaitRest("sealed", 1)
	for _, p := range r.Processes {
		p.Kill()
	}
	r.waitFiring("SlipwayNoServer", "SlipwayNoWorker", "SlipwayTargetDown job=slipway-server", "SlipwayTargetDown job=slipway-worker")
	unsealed := r.options
	at := slices.Index(unsealed.Args, "--temporal-codec-key-dir")
	unsealed.Args = slices.Delete(slices.Clone(unsealed.Args), at, at+2)
	r.Server(r.options)
	without := r.Worker(unsealed)
	r.WaitReady()
	approve := `{"actor":"ann","step":1,"key":"once"}`
	require.Equal(r.t, http.StatusServiceUnavailable, r.RolloutVerb("sealed", "approve", approve).Status, "nobody can read the release")
	r.waitFiring("SlipwayWorkflowTasksFail workflow_type=Rollout")
	r.seen.look(r.prometheus, r.board)
	without.Kill()
	r.Worker(r.options)
	r.MustVerb("sealed", "approve", approve)
	r.WaitPhase("sealed", rollout.PhaseHealthy)
	r.waitQuiet()
}

// temporalRefuses: the engine's API key is not accepted any more, until it has another.
func (r *rehearsal) temporalRefuses() {
	r.locked.AcceptKey("another")
	var a harness.Answer
	require.Eventually(r.t, func() bool {
		a, _ = r.TryCall(http.MethodPost, "/api/v1/rollouts/"+r.Apps+"/sealed/pause", "{}")
		return a.Status == http.StatusServiceUnavailable && slices.Contains(r.firing(), "SlipwayAPIErrors job=slipway-server")
	}, harness.Patience, harness.Tick, "the API answers that Temporal refuses: %+v", &a)
	r.waitFiring("SlipwayTemporalRefuses job=slipway-server", "SlipwayTemporalRefuses job=slipway-worker", "SlipwayGaugesUnreadable job=slipway-server")
	r.locked.Write("api-key", "another")
	r.waitCleared("SlipwayTemporalRefuses job=slipway-server", "SlipwayTemporalRefuses job=slipway-worker", "SlipwayGaugesUnreadable job=slipway-server")
}

// temporalDies: Temporal is killed, and comes back with a limit that is far too low.
func (r *rehearsal) temporalDies() {
	r.locked.Kill()
	r.waitFiring("SlipwayTemporalUnavailable job=slipway-server", "SlipwayTemporalUnavailable job=slipway-worker", "SlipwayGaugesUnreadable job=slipway-server")
	r.seen.look(r.prometheus, r.board)
	r.locked.Restart("--namespace-rps", "2")
	require.Eventually(r.t, func() bool {
		_, _ = r.TryCall(http.MethodPost, "/api/v1/rollouts/"+r.Apps+"/sealed/pause", "{}")
		return slices.Contains(r.firing(), "SlipwayTemporalThrottles job=slipway-server")
	}, harness.Patience, harness.Tick, "requests to Temporal are more than it takes")
	r.locked.Kill()
	r.locked.Restart()
	r.waitQuiet()
}
