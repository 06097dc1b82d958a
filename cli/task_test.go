package cli_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	clitask "slipway.io/slipway/cli/task"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
)

func TestTaskList(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/tasks", func(r request) answer {
		return answerJSON(http.StatusOK, client.TaskList{NextCursor: "more", Items: []client.TaskSummary{
			{ID: "shop-2", Plan: "shop", State: plan.TaskPaused, Reason: "paused by li",
				CreatedAt: before(5 * time.Minute),
				StartedAt: beforeP(4 * time.Minute)},
			{ID: "bank-7", Plan: "bank", State: plan.TaskRunning, CreatedAt: before(6 * time.Minute),
				StartedAt: beforeP(6 * time.Minute)},
			{ID: "shop-1", Plan: "shop", State: plan.TaskFailed,
				Reason:    "service 111 failed: " + strings.Repeat("x", 60),
				CreatedAt: before(time.Hour),
				StartedAt: beforeP(time.Hour), FinishedAt: beforeP(58 * time.Minute)},
		}})
	})
	got := slipway(t, api, "task", "list", "--state", "paused", "--state", "Failed", "--plan", "shop", "--limit", "3")
	require.Equal(t, outcome{out: `ID       PLAN   STATE     AGE     TOOK    REASON
shop-2   shop   Paused    5m00s   4m00s   paused by li
bank-7   bank   Running   6m00s   6m00s   -
shop-1   shop   Failed    1h00m   2m00s   service 111 failed: ` + strings.Repeat("x", 60) + `
`}, got)
	require.Len(t, api.requests(), 1, "--limit ends the paging")
	require.Equal(t, "limit=3&plan=shop&state=Paused&state=Failed", api.requests()[0].query,
		"filters go to the API; states may be in any case")

	wrong := slipway(t, api, "task", "list", "--state", "Broken")
	require.Equal(t, app.ExitUsage, wrong.code)
	require.Contains(t, wrong.err, `invalid --state "Broken": must be one of Pending, Running`)
}

func TestTaskList_Fails_WhenPageRepeats(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/tasks", func(request) answer {
		return answerJSON(http.StatusOK, client.TaskList{NextCursor: "again", Items: []client.TaskSummary{}})
	})
	got := slipway(t, api, "task", "list")
	require.Equal(t, app.ExitFailure, got.code, "a server that repeats a page is reported as an error")
	require.Contains(t, got.err, "the same page twice")
}

func TestTaskGet(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	task := shopTask()
	task.Services[2].Reason = task.Services[2].Workloads[0].Message // printed once, with the workload
	task.Actor, task.ExecuteReason = "wang", "release 2.4"
	task.History = []audit.Entry{{At: noon, Actor: "li", Via: "temporal", Verb: plan.VerbPause, Outcome: audit.Refused,
		Reason: "wait\nfor it", Message: "the task is Stopping"}}
	api.on("GET /api/v1/tasks/shop-1", func(request) answer { return answerJSON(http.StatusOK, task) })
	got := slipway(t, api, "task", "get", "shop-1")
	require.Equal(t, outcome{out: `task shop-1, plan shop: release of the shop
Running, started 1m05s ago: wave 1 of 2: 1 of 2 services is done
executed by wang: release 2.4

wave 1 of 2, priority 3: 1 Running, 1 Succeeded
  111   RESTART one by one   Running     1m04s   being released
    Deployment shop/order              Running     2 of 3 pods are new and ready
    alice: StatefulSet shop/order-db   Pending
  222   STOP                 Succeeded   4s
    Deployment shop/cart   Succeeded   stopped: scaled from 3 to 0
wave 2 of 2, priority 1: 1 Pending
  333   START                Pending

history
  ` + noon.Local().Format(time.DateTime) + `  pause by li via temporal, refused: the task is Stopping (reason given: wait for it)

workflow task/shop-1  http://127.0.0.1:8233/task
`}, got)
	require.Contains(t, slipway(t, api, "task", "get", "shop-1", "-o", "yaml").out, "state: Running\n")
}

func TestTaskVerbs(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"pause", "resume", "stop", "approve"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			route := "POST /api/v1/tasks/shop-1/" + verb
			api.on(route, func(request) answer { return answerJSON(http.StatusOK, shopTask()) })
			got := slipway(t, api, "task", verb, "shop-1", "--actor", "li", "--reason", "because")
			require.Equal(t, outcome{out: "task shop-1 is Running: wave 1 of 2: 1 of 2 services is done\n"}, got)
			slipway(t, api, "task", verb, "shop-1", "--key", "mine")
			asked := api.requests()
			require.Equal(t, "li", asked[0].field(t, "actor"))
			require.Equal(t, "because", asked[0].field(t, "reason"))
			require.NotEmpty(t, asked[0].field(t, "key"),
				"every verb has a key, so that a repeated request is executed once")
			require.Equal(t, "cli", asked[0].header.Get("Slipway-Via"))
			require.Equal(t, "mine", asked[1].field(t, "key"))

			task := shopTaskIn(plan.TaskStopped, "stopped by wang")
			refusal := problem(http.StatusConflict, "the task is Stopped, which is final: run the plan again")
			body := refusal.body.(client.Problem)
			body.Current = &task
			refusal.body = body
			api.on(route, func(request) answer { return refusal })
			require.Equal(t, outcome{code: app.ExitFailure,
				err: "error: the task is Stopped, which is final: run the plan again\nThe task is Stopped now: " +
					"stopped by wang\n"},
				slipway(t, api, "task", verb, "shop-1"), "the reason and the current state are printed")

			api.on(route, func(request) answer { return problem(http.StatusServiceUnavailable, "no worker responds") })
			unknown := slipway(t, api, "task", verb, "shop-1", "--key", "mine")
			require.Contains(t, unknown.err, "slipway task "+verb+" shop-1 --key mine\n",
				"for an unknown outcome, the command to repeat is printed")
		})
	}
}

func TestStop_RejectsUnknownTarget(t *testing.T) {
	t.Parallel()
	for _, noun := range []string{"task", "rollout"} {
		api := newFakeAPI(t)
		require.Equal(t, outcome{code: app.ExitUsage,
			err: "error: invalid --to \"old\": must be one of stable, new, frozen\n"},
			slipway(t, api, noun, "stop", "shop-1", "--to", "old"), "the flag is named, and the exit code is 2")
		require.Empty(t, api.requests())
	}
}

func TestVerbHelp_HasMatchingReason(t *testing.T) {
	t.Parallel()
	for verb, reason := range map[string]string{"pause": "wait for the database team",
		"resume": "the database is ready",
		"stop":   "the release was cancelled"} {
		help := slipway(t, nil, "task", verb, "--help")
		require.Contains(t, help.out, "slipway task "+verb+" shop-20261102093000-k3v9q --reason \""+reason+"\"\n",
			"each verb has its own example reason")
	}
}

func TestTaskDrawing_ShowsDuration(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		task   plan.Task
		want   string
	}{
		"Paused": {"The duration is not that of the pause.", shopTaskIn(plan.TaskPaused, "paused by li"),
			"Paused, started 1m05s ago: paused by li"},
		"Interrupted": {"Nor that of the interruption.", shopTaskIn(plan.TaskInterrupted, "no cluster"),
			"Interrupted, started 1m05s ago: no cluster"},
		"Stopped": {"A task that has ended shows its total duration.", shopTaskIn(plan.TaskStopped, "stopped by li"),
			"Stopped after 1m00s: stopped by li"},
		"Pending": {"A pending task has no duration.", plan.Task{State: plan.TaskPending, Reason: "accepted"},
			"Pending: accepted"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, clitask.DrawAll(plainDrawing, c.task)[1], c.reason)
		})
	}
}

func TestTaskReport(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/tasks/shop-1/report", func(r request) answer {
		if r.query == "format=markdown" {
			return answer{status: http.StatusOK, contentType: "text/markdown",
				body: "# Report of task shop-1\n\n```yaml\ndeployPlanItems: []\n```\n"}
		}
		return answer{status: http.StatusOK, contentType: "application/json",
			body: `{"id":"shop-1","plan":"shop","state":"Succeeded","reason":"released",` +
				`"createdAt":"2026-11-02T09:30:00Z","services":[],"waves":[],"reverse":{"notes":["nothing"]}}`}
	})
	require.Equal(t, outcome{out: "# Report of task shop-1\n\n```yaml\ndeployPlanItems: []\n```\n"},
		slipway(t, api, "task", "report", "shop-1"))
	report := slipway(t, api, "task", "report", "shop-1", "-o", "yaml")
	require.Zero(t, report.code)
	require.Contains(t, report.out, "id: shop-1\n")
	require.Contains(t, report.out, "reverse:\n  notes:\n  - nothing\n", "the complete report is printed")
}

func TestTaskDelete(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("DELETE /api/v1/tasks/shop-1", func(request) answer { return answer{status: http.StatusNoContent} })
	require.Equal(t, outcome{out: "task shop-1 deleted\n"}, slipway(t, api, "task", "delete", "shop-1"))
	require.JSONEq(t, `[{"name": "shop-1", "deleted": true}]`,
		slipway(t, api, "task", "delete", "shop-1", "-o", "json").out)
}

func TestErrors_SayWhatToDo(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/tasks/html", func(request) answer {
		return answer{status: http.StatusBadGateway, contentType: "text/html", body: "<html>"}
	})
	api.on("GET /api/v1/tasks/text", func(request) answer {
		return answer{status: http.StatusOK, contentType: "text/html", body: "<html>"}
	})
	broken := problem(http.StatusServiceUnavailable, "the home cluster is unreachable\x1b[2J")
	body := broken.body.(client.Problem)
	body.RequestID = "r-1"
	broken.body = body
	api.on("GET /api/v1/tasks/broken", func(request) answer { return broken })
	cases := map[string]struct {
		reason string
		args   []string
		code   int
		want   string
	}{
		"NoServer": {
			"An unreachable API is named, with what to do.", []string{"task", "list", "--api", "http://127.0.0.1:1"},
			app.ExitFailure,
			"error: the Slipway API at http://127.0.0.1:1 does not respond: connection refused\nStart the engine " +
				"with `slipway dev` or `slipway server`, or set another address with --api or SLIPWAY_API.\n",
		},
		"NoHost": {
			"An unknown host is named.", []string{"task", "list", "--api", "http://no-such-host.invalid"},
			app.ExitFailure,
			"no such host: no-such-host.invalid",
		},
		"Stranger": {
			"Another server at the address is recognised.", []string{"task", "get", "html", "--api", api.URL},
			app.ExitFailure,
			"returned 502 Bad Gateway (text/html), which is not a response of the Slipway API\nAnother server may be " +
				"listening there: check --api or SLIPWAY_API.\n",
		},
		"StrangerThatSucceeds": {
			"A 200 response of another server is an error too.", []string{"task", "get", "text", "--api", api.URL},
			app.ExitFailure,
			"returned 200 OK (text/html), which is not a response of the Slipway API",
		},
		"Engine": {
			"An error of the engine points to its log; control characters are removed.",
			[]string{"task", "get", "broken", "--api", api.URL}, app.ExitFailure,
			"error: the home cluster is unreachable [2J\nFor details, search the engine's log for request r-1.\n",
		},
		"UnknownCommand": {
			"A misspelt command is corrected.", []string{"task", "wach"}, app.ExitUsage,
			"error: unknown command \"wach\" for \"slipway task\"; did you mean watch?\nSee `slipway task --help`.\n",
		},
		"UnknownFlag": {"An unknown flag is rejected.", []string{"task", "list", "--stat", "x"}, app.ExitUsage,
			"unknown flag: --stat"},
		"BadOutput": {"An unknown format is rejected.", []string{"task", "list", "-o", "xml"}, app.ExitUsage,
			"must be table, json, yaml, name or jsonpath={…}"},
		"MissingID": {"A missing argument is named.", []string{"task", "get"}, app.ExitUsage,
			"error: specify a task: ID is missing\n"},
		"PathInID": {"An ID cannot change the API path.", []string{"task", "get", "../plans"}, app.ExitUsage,
			`"../plans" is not a valid ID of a task`},
		"DotsAsID": {"Neither can dots.", []string{"task", "delete", ".."}, app.ExitUsage,
			`".." is not a valid ID of a task`},
		"NoFile": {"A missing file is named.", []string{"plan", "apply", "-f", "no-such.yaml"}, app.ExitFailure,
			"error: file not found: no-such.yaml\n"},
		"FileNotGiven": {"-f is required.", []string{"plan", "apply"}, app.ExitUsage,
			`required flag(s) "file" not set`},
		"NegativeLimit": {"A negative limit is rejected.", []string{"task", "list", "--limit=-1"}, app.ExitUsage,
			"--limit -1 is negative"},
		"BadAPI": {"An invalid setting is a usage error.", []string{"task", "list", "--api", "localhost"},
			app.ExitUsage,
			"invalid setting: api (flag --api)"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slipway(t, nil, c.args...)
			require.Equal(t, c.code, got.code, c.reason)
			require.Contains(t, got.err, c.want, c.reason)
			require.Empty(t, got.out, c.reason)
		})
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	asked := ""
	api.on("GET /api/v1/tasks", func(r request) answer {
		asked = r.query
		return answerJSON(http.StatusOK, client.TaskList{Items: []client.TaskSummary{
			{ID: "shop-2", Plan: "shop", State: plan.TaskRunning, CreatedAt: noon},
			{ID: "bank-1", Plan: "bank", State: plan.TaskPending, CreatedAt: noon}}})
	})
	api.on("GET /api/v1/plans", func(request) answer {
		return answerJSON(http.StatusOK, client.PlanList{Items: []client.PlanSummary{{Name: "shop", Comment: "the shop",
			CreatedAt: noon}}})
	})
	pause := newSession(t, "").run("__complete", "task", "pause", "--api", api.URL, "sh")
	require.Equal(t, "shop-2\tRunning\n:4\n", pause.out, "shell completion lists the IDs")
	require.Equal(t, "limit=500&state=Pending&state=Running", asked, "only tasks that can be paused are offered")
	require.Equal(t, "shop\tthe shop\n:4\n", newSession(t, "").run("__complete", "plan", "run", "--api", api.URL,
		"").out)
	away := newSession(t, "").run("__complete", "plan", "run", "--api", "http://127.0.0.1:1", "")
	require.Equal(t, ":1\n", away.out, "an unreachable server causes no output")
}

// The commands print which task or plan they started or created, and what to do next.
func TestTaskRerunAndReverse(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/tasks/shop-1/rerun", func(request) answer {
		return answerJSON(http.StatusAccepted, client.ExecuteResult{ID: "shop-2",
			Warnings: []client.FieldProblem{{Reason: "a budget holds it up"}}})
	})
	created := true
	api.on("POST /api/v1/tasks/shop-1/reverse", func(request) answer {
		status := http.StatusCreated
		if !created {
			status = http.StatusOK
		}
		made := client.ReversePlan{Name: "shop-reverse-x", Created: created, Notes: []string{"RESTART has no reverse."},
			Document: plan.Document{Items: []plan.Item{{ServiceID: "111", Deployment: plan.Restore,
				RestoreTask: "shop-1"}}}}
		created = false
		return answerJSON(status, made)
	})
	api.on("POST /api/v1/plans/shop-reverse-x/execute", func(request) answer {
		return answerJSON(http.StatusAccepted, client.ExecuteResult{ID: "back-1"})
	})
	require.Equal(t, outcome{out: "task shop-1 is rerun as task shop-2\n",
		err: "warning: a budget holds it up\nTo watch it: slipway task watch shop-2\n"},
		slipway(t, api, "task", "rerun", "shop-1", "--actor", "li", "--reason", "fixed", "--key", "k-1"))
	require.Contains(t, api.requests()[0].body, `"reason":"fixed"`)
	require.Equal(t, "k-1", api.requests()[0].header.Get("Idempotency-Key"))
	next := "To see what it would change: slipway plan diff shop-reverse-x\nTo run it: slipway plan run " +
		"shop-reverse-x\n"
	require.Equal(t, outcome{out: "plan shop-reverse-x created\n", err: "note: RESTART has no reverse.\n" + next},
		slipway(t, api, "task", "reverse", "shop-1"))
	require.Equal(t, outcome{out: "plan shop-reverse-x already exists\n",
		err: "note: RESTART has no reverse.\n" + next}, slipway(t, api, "task", "reverse", "shop-1"))
	require.Equal(t, outcome{out: "plan shop-reverse-x is running as task back-1\n",
		err: "note: RESTART has no reverse.\nTo watch it: slipway task watch back-1\n"},
		slipway(t, api, "task", "reverse", "shop-1", "--run"))
	wrong := slipway(t, api, "task", "reverse", "shop-1", "--watch")
	require.Equal(t, app.ExitUsage, wrong.code)
	require.Contains(t, wrong.err, "--watch requires --run")
}
