package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// freeze returns a freeze that began an hour ago and lasts for the given time from now.
func freeze(left time.Duration) map[string]any {
	begin := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	return map[string]any{"start": begin.Format(time.RFC3339),
		"duration": fmt.Sprintf("%ds", int((time.Hour+left)/time.Second))}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	return string(raw)
}

// Tasks and rollouts wait for the end of a freeze, show it, and continue by themselves. An approval with a reason
// overrides the wait.
func TestReleases_WaitForWindows(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: packageOptions})
	t.Run("Task", func(t *testing.T) {
		t.Parallel()
		e := e.WithT(t)
		e.Deployment("frozen", 1, nil)
		e.WaitReadyPods("frozen", 1)
		e.PutService("frozen", "", "Deployment/frozen")
		e.PutPlan("frozen", "freezes: ["+asJSON(t, freeze(3*time.Second))+
			"]\ndeployPlanItems:\n- {serviceId: frozen, deployment: RESTART}\n")
		id := e.Execute("frozen")
		waits := e.WaitTaskUntil(id, "waiting for the end of the freeze", func(task plan.Task) bool {
			return task.WaitingFor != nil
		})
		require.Equal(t, plan.TaskRunning, waits.State)
		require.Equal(t, "window", waits.WaitingFor.Kind)
		require.Nil(t, waits.StartedAt)
		over := e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, over.State, over.Reason)
		require.False(t, over.StartedAt.Before(*waits.WaitingFor.Until), "nothing starts before the end of the freeze")

		never := e.Call(http.MethodPost, "/api/v1/plans/frozen/execute",
			`{"windows":[{"start":"2020-01-01T00:00:00Z","duration":"1h"}]}`)
		require.Equal(t, http.StatusUnprocessableEntity, never.Status, string(never.Body))
		require.Contains(t, string(never.Body), "never open again")
		wrong := e.Call(http.MethodPost, "/api/v1/plans/frozen/execute",
			`{"freezes":[{"start":"2020-01-01T00:00:00","duration":"1h","timeZone":"Mars/Olympus"}]}`)
		require.Equal(t, http.StatusBadRequest, wrong.Status, string(wrong.Body))
		require.Contains(t, string(wrong.Body), "freezes[0].timeZone")
	})
	t.Run("ServiceNeverOpens", func(t *testing.T) {
		t.Parallel()
		e := e.WithT(t)
		e.Deployment("closed", 1, nil)
		e.PutService("closed", canaryService+`policy: {windows: [{start: "2020-01-01T00:00:00Z", duration: 1h}]}`+"\n",
			"Deployment/closed")
		e.PutPlan("closed", "deployPlanItems:\n- {serviceId: closed, deployment: HTTP_UPLOAD_DEPLOY, httpSrcUri: "+
			"'https://packages.example/closed.zip'}\n")
		never := e.Call(http.MethodPost, "/api/v1/plans/closed/execute", "")
		require.Equal(t, http.StatusUnprocessableEntity, never.Status, string(never.Body))
		require.Contains(t, string(never.Body), `"deployPlanItems[0].serviceId"`)
		require.Contains(t, string(never.Body), "the windows of the service's policy never open again")
	})
	t.Run("Rerun", func(t *testing.T) {
		t.Parallel()
		e := e.WithT(t)
		e.Deployment("monday", 1, nil)
		e.WaitReadyPods("monday", 1)
		e.PutService("monday", "", "Deployment/monday")
		e.PutPlan("monday", "deployPlanItems:\n- {serviceId: monday, deployment: RESTART}\n")
		later := func(days int) string {
			return time.Now().UTC().Add(time.Duration(days) * 24 * time.Hour).Format(time.RFC3339)
		}
		began, sooner := later(3), later(1)
		start := func(path, body string) plan.Task {
			answer := e.Call(http.MethodPost, path, body)
			require.Equal(t, http.StatusAccepted, answer.Status, string(answer.Body))
			var started schema.ExecuteResult
			require.NoError(t, json.Unmarshal(answer.Body, &started))
			waits := e.WaitTaskUntil(started.ID, "waiting for its start time", func(task plan.Task) bool {
				return task.WaitingFor != nil
			})
			require.Equal(t, http.StatusOK, e.Verb(started.ID, "stop", "").Status)
			e.WaitTask(started.ID, plan.TaskStopped)
			return waits
		}
		first := start("/api/v1/plans/monday/execute", `{"notBefore":"`+began+`"}`)
		again := start("/api/v1/tasks/"+first.ID+"/rerun", "")
		require.Equal(t, first.WaitingFor.Until, again.WaitingFor.Until, "a rerun keeps the start time of the task")
		moved := start("/api/v1/tasks/"+again.ID+"/rerun", `{"notBefore":"`+sooner+`"}`)
		require.Equal(t, sooner, moved.WaitingFor.Until.UTC().Format(time.RFC3339),
			"unless the request sets another one")
	})
	t.Run("TaskApproved", func(t *testing.T) {
		t.Parallel()
		e := e.WithT(t)
		e.Deployment("hotfix", 1, nil)
		e.WaitReadyPods("hotfix", 1)
		e.PutService("hotfix", "", "Deployment/hotfix")
		e.PutPlan("hotfix", "deployPlanItems:\n- {serviceId: hotfix, deployment: RESTART}\n")
		later := time.Now().UTC().Add(48 * time.Hour).Format(time.RFC3339)
		answer := e.Call(http.MethodPost, "/api/v1/plans/hotfix/execute", `{"notBefore":"`+later+`"}`)
		require.Equal(t, http.StatusAccepted, answer.Status, string(answer.Body))
		var started schema.ExecuteResult
		require.NoError(t, json.Unmarshal(answer.Body, &started))
		waits := e.WaitTaskUntil(started.ID, "waiting for its start time", func(task plan.Task) bool {
			return task.WaitingFor != nil
		})
		require.Equal(t, later, waits.WaitingFor.Until.UTC().Format(time.RFC3339))
		require.Eventually(t, func() bool { // lists lag behind
			return strings.Contains(string(e.Call(http.MethodGet, "/api/v1/tasks?plan=hotfix", "").Body), later)
		}, harness.Patience, harness.Tick, "lists show the start time")
		bare := e.Verb(started.ID, "approve", `{"actor":"ann"}`)
		require.Equal(t, http.StatusConflict, bare.Status)
		require.Contains(t, string(bare.Body), "needs a reason")
		blank := e.Verb(started.ID, "approve", `{"actor":"ann","reason":" \n"}`)
		require.Equal(t, http.StatusConflict, blank.Status, "a blank reason is refused: %s", blank.Body)
		require.Equal(t, http.StatusOK, e.Verb(started.ID, "approve", `{"actor":"ann","reason":"hotfix"}`).Status)
		over := e.WaitTask(started.ID, plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, over.State, over.Reason)
		last := over.History[len(over.History)-1]
		require.Equal(t, []string{"ann", "hotfix"}, []string{last.Actor, last.Reason},
			"the record has the actor and reason of the override")
	})
	t.Run("Rollout", func(t *testing.T) {
		t.Parallel()
		e := e.WithT(t)
		e.Deployment("night", 2, nil)
		e.WaitReadyPods("night", 2)
		release := harness.Rollout{Name: "night", Kind: harness.Deployment,
			Policy: map[string]any{"freezes": []any{freeze(3 * time.Second), freeze(48 * time.Hour)}},
			Strategy: strategy.Strategy{Style: strategy.StylePartition,
				Steps: []strategy.Step{harness.Step("1", -1), harness.Step("100%", -1)}}}
		e.StartRollout(release)
		var waits rollout.Status
		require.Eventually(t, func() bool {
			waits = e.Rollout("night")
			return waits.WaitingFor != nil && waits.WaitingFor.Kind == rollout.WaitWindow &&
				waits.WaitingFor.Until != nil
		}, time.Minute, 50*time.Millisecond)
		require.Contains(t, waits.Reason, "nothing begins: a freeze")
		require.Equal(t, rollout.PhaseProgressing, waits.Phase)
		e.MustVerb("night", "approve", asJSON(t, map[string]any{"actor": "ann", "reason": "hotfix",
			"gate": waits.WaitingFor.Gate}))
		waiting := e.WaitForApproval("night", 1)
		e.Approve("night", waiting)
		require.Eventually(t, func() bool {
			waits = e.Rollout("night")
			return waits.WaitingFor != nil && waits.WaitingFor.Kind == rollout.WaitWindow &&
				waits.WaitingFor.Until != nil
		}, time.Minute, 50*time.Millisecond, "the next step waits again")
		e.MustVerb("night", "approve", asJSON(t, map[string]any{"actor": "ann", "reason": "go on",
			"gate": waits.WaitingFor.Gate}))
		e.WaitPhase("night", rollout.PhaseHealthy)
	})
}
