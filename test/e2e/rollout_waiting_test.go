package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// A step costs at most 8 history events without traffic and approval, and 30 with both. The test compares two rollouts
// that differ by four steps.
func TestLongRolloutStep_StaysWithinEventBudget(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	cases := map[string]struct {
		reason   string
		provider harness.Provider
		approved bool
		budget   int
	}{
		"Plain":              {"a step without traffic and approval", harness.NoProvider, false, 8},
		"TrafficAndApproval": {"a step with traffic and an approval", harness.Nginx, true, 30},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events := func(percents ...int) int {
				r := startRelease(t, e, deploymentCell(strategy.StylePartition, tc.provider),
					func(object map[string]any, r *harness.Rollout) {
						_ = unstructured.SetNestedField(object, int64(10), "spec", "replicas")
						r.Strategy.Steps = nil
						for _, percent := range percents {
							traffic := int32(-1)
							if tc.provider != harness.NoProvider && percent < 100 {
								traffic = int32(percent)
							}
							step := harness.Step(fmt.Sprintf("%d%%", percent), traffic)
							if !tc.approved {
								step = harness.TimedStep(step, 0)
							}
							r.Strategy.Steps = append(r.Strategy.Steps, step)
						}
					})
				r.approveAll(1)
				r.requirePromoted()
				return r.Events(r.RolloutID(r.rollout.Name))
			}
			few, many := events(10, 100), events(10, 20, 30, 40, 50, 100)
			t.Logf("%s: %d events for 2 steps, %d for 6", tc.reason, few, many)
			require.LessOrEqual(t, many-few, 4*tc.budget, "%s costs at most %d events", tc.reason, tc.budget)
		})
	}
}

// A step that waits for approval adds no history event, even when the worker is restarted twice.
func TestRolloutAtApproval_AddsNoEvents_WhenWorkerRestarts(t *testing.T) {
	t.Parallel()
	testNoEventsWhileWaiting(t, 5*time.Second)
}

// The same for a minute.
func TestLongRolloutAtApproval_AddsNoEvents_WhenWorkerRestarts(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testNoEventsWhileWaiting(t, time.Minute)
}

func testNoEventsWhileWaiting(t *testing.T, duration time.Duration) {
	t.Helper()
	o := harness.Options{SeparateWorker: true}
	e := harness.Start(t, o)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	r.waitPaused(1)
	before := r.Events(r.RolloutID(r.rollout.Name))
	worker := e.Processes[1]
	for range 2 {
		worker.Kill()
		worker = e.Worker(o)
		e.WaitReady()
	}
	timer := time.NewTimer(duration)
	<-timer.C
	after := r.History(r.RolloutID(r.rollout.Name))
	require.Len(t, after, before, "waiting must not add events, but the history has new ones: %v",
		after[min(before, len(after)):])
	r.watch.MarkPaused(t, 1)
	r.approveAll(1)
	r.requirePromoted()
}

// A repeated approval counts once; an approval for an earlier step or with a stale gate is refused and recorded.
func TestRolloutApprovals_RepeatedStaleAndExpired(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	t.Run("TwiceAndStale", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
		first := r.waitPaused(1)
		r.watch.AllowStep(t, 2)
		body := fmt.Sprintf(`{"actor":"ann","reason":"good","step":1,"gate":%q,"key":"click-1"}`, first.WaitingFor.Gate)
		r.MustVerb(r.rollout.Name, "approve", body)
		second := r.waitPaused(2)
		again := r.MustVerb(r.rollout.Name, "approve", body)
		require.Equal(t, 2, again.CurrentStepIndex, "the repeated request approves no further step")
		require.Len(t, acceptedApprovals(r.Rollout(r.rollout.Name)), 1, "and is recorded once")
		for reason, stale := range map[string]string{
			"for an earlier step":             `{"actor":"bob","step":1}`,
			"with a gate of an earlier visit": fmt.Sprintf(`{"actor":"bob","gate":%q}`, first.WaitingFor.Gate),
			"with the right step, an old gate": fmt.Sprintf(`{"actor":"bob","step":2,"gate":%q}`,
				first.WaitingFor.Gate),
			"with a gate that was never issued": `{"actor":"bob","gate":"nonsense"}`,
		} {
			a := r.RolloutVerb(r.rollout.Name, "approve", stale)
			require.Equal(t, http.StatusConflict, a.Status, "%s: %s", reason, a.Body)
			require.Contains(t, string(a.Body), second.WaitingFor.Gate, "%s: the answer has the current gate", reason)
		}
		refused := 0
		for _, d := range r.Rollout(r.rollout.Name).History {
			if d.Outcome == audit.Refused && d.Actor == "bob" && d.Message != "" {
				refused++
			}
		}
		require.Equal(t, 4, refused, "each refusal is recorded with its reason")
		r.watch.MarkPaused(t, 2)
		r.approveAll(2)
		r.requirePromoted()
	})
	t.Run("Expiry", func(t *testing.T) {
		t.Parallel()
		for policy, end := range map[string]func(r *release){
			"rollback": func(r *release) { r.requireRolledBack() },
			"pause": func(r *release) {
				r.WaitRollout(r.rollout.Name, "expired", func(s rollout.Status) bool {
					return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitResume
				})
				require.Equal(r.t, http.StatusConflict, r.RolloutVerb(r.rollout.Name, "approve", `{"step":1}`).Status,
					"an expired gate cannot be approved")
				r.MustVerb(r.rollout.Name, "resume", "")
				r.approveAll(1)
				r.requirePromoted()
			},
		} {
			t.Run(policy, func(t *testing.T) {
				t.Parallel()
				r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider),
					func(_ map[string]any, r *harness.Rollout) {
						r.Policy = map[string]any{"approvals": map[string]any{"expiresSeconds": 3, "onExpiry": policy}}
						r.Strategy.Steps = []strategy.Step{harness.Step("25%", -1), harness.Step("100%", -1)}
					})
				end(r)
			})
		}
	})
}

func acceptedApprovals(s rollout.Status) []audit.Entry {
	var found []audit.Entry
	for _, d := range s.History {
		if d.Verb == rollout.VerbApprove && d.Outcome == audit.Accepted {
			found = append(found, d)
		}
	}
	return found
}

// An approver uses only the page of the workflow in the Temporal UI as the engine publishes it, in a real browser that
// has been given the token as the password.
func TestLongRolloutStep_IsApprovedInTemporalUI(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, _ := startWithUI(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	status := r.waitPaused(1)
	b := openBrowser(t)
	b.visit(strings.Replace(e.TemporalUI, "http://", "http://alice:"+e.Token+"@", 1) + "/healthz")
	b.visit(status.Workflow.URL)
	b.waitUntil("read where it is and how to approve it",
		`[...document.querySelectorAll("iframe")].some(f => { const s = f.contentDocument?.body?.innerText ?? f.srcdoc; return s.includes("step 1 of 3") && s.includes("approve"); })`)
	b.screenshot("rollout-details.png")
	r.watch.AllowStep(t, 2)
	b.visit(status.Workflow.URL)
	b.sendSignal("approve", []string{"approve", "pause", "rollback", "stop"})
	status = r.waitPaused(2)
	approved := acceptedApprovals(status)
	require.Len(t, approved, 1, "a signal without payload approves the waiting step")
	require.Equal(t, "temporal", approved[0].Via)
	r.approveAll(2)
	r.requirePromoted()
}
