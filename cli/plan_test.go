package cli_test

import (
	"net/http"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/plan"
)

const shopPlan = `comment: release of the shop
deployPlanItems:
- serviceId: 0111
  priority: 3
  deployment: RESTART
  containerExecMethod: SEQUENTIAL
- serviceId: 222
  priority: 1
  deployment: STOP
- serviceId: 333
  priority: 3
  deployment: START
`

const shopWaves = `wave 1 of 2, priority 3
  0111   RESTART one by one   (item 1)
  333    START   (item 3)
wave 2 of 2, priority 1
  222    STOP   (item 2)
`

// exampleEnding is the end of the example in the plan's documentation: an indented "..." and tabs before comments.
const exampleEnding = "comment: example\t\t# a comment\n\ndeployPlanItems:   \t\t# the items\n - serviceId: 111  \t# " +
	"required\n   priority: 3\t\t# first\n   deployment: START   # how\n   \n - serviceId: 222\n   priority: 1\n   " +
	"deployment: STOP\n   containerExecMethod: PARALLEL\n   \n   ...\n"

func decoded(t *testing.T, text string) plan.Document {
	t.Helper()
	d, _, wrong := plan.Decode([]byte(text))
	require.Empty(t, wrong)
	return d
}

func TestPlanApply(t *testing.T) {
	t.Parallel()
	created := answerJSON(http.StatusCreated, client.PutPlanResult{Name: "shop", Changed: true,
		Warnings: []client.FieldProblem{
			{Item: 2, Field: "deployPlanItems[1].serviceId", Line: 7, Reason: "service 222 is not in the catalogue"}}})
	cases := map[string]struct {
		reason     string
		file, text string
		args       []string
		warning    string
	}{
		"ByFileName": {"A bare spec is named after its file.", "shop.yml", shopPlan, nil, "shop.yml:7"},
		"ByArgument": {"The argument takes precedence.", "x.yaml", shopPlan, []string{"shop"}, "x.yaml:7"},
		"Object": {"An object contains its name.", "x.yaml", object("DeployPlan", "shop", shopPlan), nil,
			"x.yaml:7"},
		"Example": {"The example of the documentation, with its closing dots, is accepted.", "shop.yaml",
			exampleEnding, nil, "shop.yaml:7"},
		"Markers": {"Document markers are accepted.", "shop.yaml", "%YAML 1.2\n--- # the plan\n" + shopPlan +
			"...\n", nil, "shop.yaml:7"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.on("PUT /api/v1/plans/shop", func(request) answer { return created })
			path := write(t, c.file, c.text)
			got := slipway(t, api, append([]string{"plan", "apply", "-f", path}, c.args...)...).inFolder(path)
			require.Equal(t, outcome{
				out: "plan shop created\n",
				err: "warning: " + c.warning + ": item 2, deployPlanItems[1].serviceId: service 222 is not in the " +
					"catalogue\n",
			}, got, c.reason)
			sent := decoded(t, api.requests()[0].body)
			if c.text == exampleEnding {
				require.Len(t, sent.Items, 2, c.reason)
			} else {
				require.Equal(t, decoded(t, shopPlan), sent, "%s The leading zero of 0111 is kept.", c.reason)
			}
		})
	}
}

func TestPlanListAndGet(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/plans", func(request) answer {
		return answerJSON(http.StatusOK, client.PlanList{Items: []client.PlanSummary{
			{Name: "bank", Items: 12, CreatedAt: before(49 * time.Hour)},
			{Name: "shop", Items: 3, Comment: "release of\nthe shop", Task: "shop-1",
				CreatedAt: before(90 * time.Second)},
		}})
	})
	require.Equal(t, outcome{out: `NAME   ITEMS   LATEST TASK   AGE     COMMENT
bank   12      -             2d1h    -
shop   3       shop-1        1m30s   release of the shop
`}, slipway(t, api, "plan", "list"))

	api.on("GET /api/v1/plans/shop", func(request) answer { return answerJSON(http.StatusOK, decoded(t, shopPlan)) })
	require.Equal(t, outcome{out: "plan shop: release of the shop\n\n" + shopWaves},
		slipway(t, api, "plan", "get", "shop"))
	yaml := slipway(t, api, "plan", "get", "shop", "-o", "yaml")
	require.Equal(t, decoded(t, shopPlan), decoded(t, yaml.out), "apply accepts the output of get")
	require.True(t, strings.HasPrefix(yaml.out, "comment: release of the shop\ndeployPlanItems:\n"),
		"keys have the documented order:\n%s", yaml.out)
}

func TestEmptyLists(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/plans", func(request) answer {
		return answerJSON(http.StatusOK, client.PlanList{Items: []client.PlanSummary{}})
	})
	api.on("GET /api/v1/services", func(request) answer {
		return answerJSON(http.StatusOK, client.ServiceList{Items: []client.ServiceSummary{}})
	})
	api.on("GET /api/v1/tasks", func(request) answer {
		return answerJSON(http.StatusOK, client.TaskList{Items: []client.TaskSummary{}})
	})
	for _, noun := range []string{"plan", "service", "task"} {
		table := slipway(t, api, noun, "list")
		require.Empty(t, table.out, "standard output is empty, for scripts")
		require.NotEmpty(t, table.err, "the user is told that the list is empty")
		require.JSONEq(t, `{"items": []}`, slipway(t, api, noun, "list", "-o", "json").out,
			"a program gets an empty list, not null")
	}
}

func TestPlanRun(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/plans/shop/execute", func(request) answer {
		return answerJSON(http.StatusAccepted,
			client.ExecuteResult{ID: "shop-1"})
	})
	got := slipway(t, api, "plan", "run", "shop", "--reason", "release 2.4", "--actor", "li", "--key", "pipeline-7")
	require.Equal(t, outcome{out: "plan shop is running as task shop-1\n",
		err: "To watch it: slipway task watch shop-1\n"}, got)
	slipway(t, api, "plan", "run", "shop")
	slipway(t, api, "plan", "run", "shop", "--actor", " ")

	asked := api.requests()
	require.Equal(t, "li", asked[0].field(t, "actor"))
	require.Equal(t, "release 2.4", asked[0].field(t, "reason"))
	require.Equal(t, "pipeline-7", asked[0].header.Get("Idempotency-Key"))
	me, err := user.Current()
	require.NoError(t, err)
	require.Equal(t, me.Username, asked[1].field(t, "actor"), "the default actor is the operating system user")
	require.Equal(t, me.Username, asked[2].field(t, "actor"), "an empty --actor counts as unset")
	require.NotEmpty(t, asked[1].header.Get("Idempotency-Key"),
		"there is always a key, so that a repeated request starts no second task")
	require.NotEqual(t, asked[1].header.Get("Idempotency-Key"), asked[2].header.Get("Idempotency-Key"),
		"two runs are two tasks")
	for _, r := range asked {
		require.Equal(t, "cli", r.header.Get("Slipway-Via"))
	}
	require.JSONEq(t, `{"id": "shop-1"}`, slipway(t, api, "plan", "run", "shop", "-o", "json").out)
}

func TestPlanRunProblems(t *testing.T) {
	t.Parallel()
	conflict := problem(http.StatusConflict, "plan shop has a live task already: shop-0")
	task := shopTask()
	running := conflict.body.(client.Problem)
	running.Current, running.Task = &task, "shop-1"
	conflict.body = running
	cases := map[string]struct {
		reason string
		answer answer
		want   string
	}{
		"Refused": {
			reason: "Each reason is on its own line.",
			answer: problem(http.StatusUnprocessableEntity, "the plan cannot be executed: 2 reasons",
				client.FieldProblem{Item: 1, Field: "deployPlanItems[0].serviceId",
					Reason: "service 0111 is not in the catalogue"},
				client.FieldProblem{Field: "", Reason: "party alice has no worker"}),
			want: "error: the plan cannot be executed: 2 reasons\n  item 1, deployPlanItems[0].serviceId: service " +
				"0111 is not in the catalogue\n  party alice has no worker\n",
		},
		"Conflict": {
			reason: "The running task is shown.",
			answer: conflict,
			want: "error: plan shop has a live task already: shop-0\nThe task is Running now: wave 1 of 2: 1 of 2 " +
				"services is done\n",
		},
		"Unknown": {
			reason: "If the outcome is unknown, the output explains how to retry safely.",
			answer: problem(http.StatusServiceUnavailable, "Temporal is unreachable; the outcome is unknown"),
			want: "It is unknown whether the task was started. It is safe to repeat the command with the same key:\n " +
				" slipway plan run shop --key k-1\nerror: Temporal is unreachable; the outcome is unknown\n",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.on("POST /api/v1/plans/shop/execute", func(request) answer { return c.answer })
			require.Equal(t, outcome{err: c.want, code: app.ExitFailure},
				slipway(t, api, "plan", "run", "shop", "--key", "k-1"), c.reason)
		})
	}
}

func TestFindings_AreCounted_BeyondTwenty(t *testing.T) {
	t.Parallel()
	var many []client.FieldProblem
	for n := range 960 {
		many = append(many, client.FieldProblem{Item: n + 1, Reason: "is missing"})
	}
	api := newFakeAPI(t)
	api.on("PUT /api/v1/plans/shop", func(request) answer {
		return answerJSON(http.StatusOK, client.PutPlanResult{Name: "shop", Changed: true, Warnings: many})
	})
	api.on("POST /api/v1/plans/shop/execute", func(request) answer {
		return problem(http.StatusUnprocessableEntity, "960 reasons", many...)
	})
	path := write(t, "shop.yaml", shopPlan)

	saved := slipway(t, api, "plan", "apply", "-f", path)
	require.Equal(t, 21, strings.Count(saved.err, "\n"), "the first twenty are printed:\n%s", saved.err)
	require.True(t, strings.HasSuffix(saved.err, "item 20: is missing\nwarning: … and 940 more (-o json prints all)\n"),
		saved.err)
	require.Equal(t, 960, strings.Count(slipway(t, api, "plan", "apply", "-f", path, "-o", "json").out, "is missing"),
		"a program gets all")

	run := slipway(t, api, "plan", "run", "shop")
	require.True(t, strings.HasPrefix(run.err, "error: 960 reasons\n  item 1: is missing\n"), run.err)
	require.True(t, strings.HasSuffix(run.err, "  item 20: is missing\n  … and 940 more (-o json prints all)\n"),
		run.err)
	require.Equal(t, 960, strings.Count(slipway(t, api, "plan", "run", "shop", "-o", "json").err, "is missing"),
		"-o json prints all")

	api.on("PUT /api/v1/plans/shop", func(request) answer {
		return problem(http.StatusBadRequest, "960 errors", many...)
	})
	refused := slipway(t, api, "plan", "apply", "-f", path)
	require.True(t, strings.HasSuffix(refused.err, "  … and 940 more (-o json prints all)\n"), refused.err)
	require.Equal(t, 960, strings.Count(slipway(t, api, "plan", "apply", "-f", path, "-o", "json").out, "is missing"),
		"programs get all errors of a rejected plan")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	bad := strings.Replace(shopPlan, "deployment: STOP", "deployment: STOPP", 1)
	wave := []client.Wave{{Priority: 3, Items: []client.WaveItem{{Item: 1, ServiceID: "0111", Deployment: plan.Restart,
		ContainerExecMethod: plan.Sequential}}}}
	missing := client.FieldProblem{Item: 1, Field: "deployPlanItems[0].serviceId",
		Reason: "service 0111 is not in the catalogue"}
	wrong := client.FieldProblem{Item: 2, Field: "deployPlanItems[1].deployment", Line: 9, Reason: "is wrong"}
	cases := map[string]struct {
		reason string
		text   string
		// answer is the API's response; nil: there is no API.
		answer *client.ValidateResult
		args   []string
		want   outcome
	}{
		"Valid": {
			reason: "A valid plan shows its waves.",
			text:   shopPlan, answer: &client.ValidateResult{Valid: true, Waves: wave, Errors: []client.FieldProblem{},
				Warnings: []client.FieldProblem{}},
			want: outcome{out: "wave 1 of 1, priority 3\n  0111   RESTART one by one   (item 1)\nshop.yaml: the plan " +
				"is valid (checked against the catalogue)\n"},
		},
		"Catalogue": {
			reason: "Catalogue errors, which have no lines, are located in the file, and the exit code is 1.",
			text:   shopPlan, answer: &client.ValidateResult{Waves: wave, Errors: []client.FieldProblem{missing},
				Warnings: []client.FieldProblem{}},
			want: outcome{
				out: "wave 1 of 1, priority 3\n  0111   RESTART one by one   (item 1)\nshop.yaml: the plan is not " +
					"valid, 1 error (checked against the catalogue)\n",
				err:  "error: shop.yaml:3: item 1, deployPlanItems[0].serviceId: service 0111 is not in the catalogue\n",
				code: app.ExitFailure,
			},
		},
		"SoundItems": {
			reason: "Items without errors are checked against the catalogue, errors are in the order of the file, and " +
				"the output shows the extent of the check.",
			text: bad, answer: &client.ValidateResult{Waves: []client.Wave{},
				Errors:   []client.FieldProblem{wrong, missing},
				Warnings: []client.FieldProblem{}},
			want: outcome{
				out: "shop.yaml: the plan is not valid, 2 errors (checked against the catalogue, except 1 item with " +
					"errors)\n",
				err: "error: shop.yaml:3: item 1, deployPlanItems[0].serviceId: service 0111 is not in the catalogue\n" +
					"error: shop.yaml:9: item 2, deployPlanItems[1].deployment: is wrong\n",
				code: app.ExitFailure,
			},
		},
		"Unreadable": {
			reason: "An unreadable document was not checked against the catalogue, and the output says so.",
			text:   "deployPlanItems: 7\n",
			answer: &client.ValidateResult{Waves: []client.Wave{},
				Errors:   []client.FieldProblem{{Line: 1, Field: "deployPlanItems", Reason: "is no list"}},
				Warnings: []client.FieldProblem{}},
			want: outcome{
				out: "shop.yaml: the plan is not valid, 1 error (catalogue checks were skipped because every item " +
					"has errors)\n",
				err:  "error: shop.yaml:1: deployPlanItems: is no list\n",
				code: app.ExitFailure,
			},
		},
		"Offline": {
			reason: "Without the engine only the document is checked, and the output says so.",
			text:   shopPlan, args: []string{"--offline"},
			want: outcome{out: shopWaves + "shop.yaml: the plan is valid (checked without the catalogue; unknown " +
				"services are not detected)\n"},
		},
		"OfflineErrors": {
			reason: "The engine's rules apply offline too.",
			text:   bad, args: []string{"--offline"},
			want: outcome{
				out: "shop.yaml: the plan is not valid, 1 error (checked without the catalogue; unknown services are " +
					"not detected)\n",
				err: "error: shop.yaml:9: item 2, deployPlanItems[1].deployment: must be one of START, STOP, " +
					"RESTART, HTTP_UPLOAD_DEPLOY, COMPILE_DEPLOY, RESTORE, not \"STOPP\": did you mean STOP?\n",
				code: app.ExitFailure,
			},
		},
		"NoEngine": {
			reason: "An unreachable engine is reported, and the document is checked anyway.",
			text:   shopPlan, args: []string{"--api", "http://127.0.0.1:1"},
			want: outcome{
				out: shopWaves + "shop.yaml: the plan is valid (checked without the catalogue; unknown services are " +
					"not detected)\n",
				err: "warning: the Slipway API at http://127.0.0.1:1 does not respond: connection refused\n",
			},
		},
		"ServiceFile": {
			reason: "A service is not a plan.",
			text:   object("ReleaseService", "111", orderService), args: []string{"--offline"},
			want: outcome{
				err: "shop.yaml:6: this document is a ReleaseService: use `slipway service apply`\nerror: 1 error; " +
					"nothing was checked\n",
				code: app.ExitFailure,
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var api *fakeAPI
			if c.answer != nil {
				api = newFakeAPI(t)
				api.on("POST /api/v1/plans/validate", func(request) answer {
					return answerJSON(http.StatusOK, *c.answer)
				})
			}
			path := write(t, "shop.yaml", c.text)
			require.Equal(t, c.want, slipway(t, api, append([]string{"validate", path}, c.args...)...).inFolder(path),
				c.reason)
		})
	}
	json := slipwayWith(t, nil, shopPlan, "validate", "--offline", "-", "-o", "json")
	require.Contains(t, json.out, `"valid": true`)
	require.Contains(t, json.out, `"catalogue": false`, "programs can read that the catalogue was not checked")
}

// A diff shows only what would change, and what is unknown.
func TestPlanDiff(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	size := func(n int32) *int32 { return &n }
	workload := func(name, summary string) client.WorkloadDiff {
		return client.WorkloadDiff{Party: "default", Namespace: "shop", Kind: "Deployment", Name: name,
			Summary: summary, FromReplicas: size(3), ToReplicas: size(3)}
	}
	deployed, stopped, quiet := workload("order", "put its earlier pod template back"),
		workload("cart", "scale it from 3 to 0"), workload("mail", "nothing to do: it is stopped")
	deployed.Changes, deployed.Pods, deployed.Unknown, deployed.Party = true, 3, "the digest", "alice"
	deployed.Template = []client.FieldChange{{Field: "spec.containers[app].image", From: "x:2", To: "x:1"},
		{Field: "spec.containers[app].args", Hidden: true},
		{Field: "metadata.labels.a", To: "1"}, {Field: "metadata.labels.b", From: "2"}}
	stopped.Changes, stopped.ToReplicas = true, size(0)
	api.on("POST /api/v1/plans/shop/diff", func(request) answer {
		return answerJSON(http.StatusOK, client.PlanDiff{Plan: "shop",
			Warnings: []client.FieldProblem{{Reason: "a budget"}}, Items: []client.ItemDiff{
				{Item: 1, ServiceID: "111", Deployment: plan.Restore, ContainerExecMethod: plan.Sequential,
					Source: "task shop-1", Workloads: []client.WorkloadDiff{deployed}},
				{Item: 2, ServiceID: "222", Deployment: plan.Stop, ContainerExecMethod: plan.Parallel,
					Workloads: []client.WorkloadDiff{stopped, quiet}}}})
	})
	require.Equal(t, outcome{err: "warning: a budget\n", out: `item 1: 111 RESTORE one by one task shop-1
  ~ alice: Deployment shop/order: put its earlier pod template back
      replaces 3 pods
      ~ spec.containers[app].image: x:2 → x:1
      ~ spec.containers[app].args (value not shown)
      + metadata.labels.a: 1
      - metadata.labels.b: 2
      unknown: the digest
item 2: 222 STOP
  ~ Deployment shop/cart: scale it from 3 to 0
      replicas: 3 → 0
    Deployment shop/mail: nothing to do: it is stopped
2 of 3 workloads would change
`}, slipway(t, api, "plan", "diff", "shop"))
	require.Contains(t, slipway(t, api, "plan", "diff", "shop", "-o", "json").out, `"hidden": true`)
}

// The history of a plan shows the actor, the results of its services, and which task was rerun or reversed.
func TestPlanHistory(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	at := time.Now()
	api.on("GET /api/v1/tasks", func(request) answer {
		return answerJSON(http.StatusOK, client.TaskList{Items: []client.TaskSummary{
			{ID: "shop-3", Plan: "shop", State: plan.TaskFailed, Actor: "li", RerunOf: "shop-2", Reason: "it crashed",
				CreatedAt: at, Services: &plan.ServiceCounts{Total: 5, Succeeded: 3, Failed: 1, Skipped: 1}},
			{ID: "shop-2", Plan: "shop", State: plan.TaskSucceeded, ReverseOf: "shop-1", CreatedAt: at,
				Services: &plan.ServiceCounts{Total: 5, Succeeded: 5}},
			{ID: "shop-1", Plan: "shop", State: plan.TaskSucceeded, CreatedAt: at}}})
	})
	require.Equal(t, `TASK     STATE       STARTED   TOOK   BY   DONE   FAILED   FROM                REASON
shop-3   Failed      -         -      li   3/5    1/5      rerun of shop-2     it crashed
shop-2   Succeeded   -         -      -    5/5    -        reverse of shop-1   -
shop-1   Succeeded   -         -      -    -      -        -                   -
`, slipway(t, api, "plan", "history", "shop").out)
	require.Contains(t, api.requests()[0].query, "plan=shop")
}

func TestPlanHistory_IsEmpty_WhenPlanNeverRan(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/tasks", func(request) answer {
		return answerJSON(http.StatusOK, client.TaskList{Items: []client.TaskSummary{}})
	})
	api.on("GET /api/v1/plans/new", func(request) answer {
		return answerJSON(http.StatusOK, decoded(t, "deployPlanItems: [{serviceId: 111, deployment: STOP}]"))
	})
	api.on("GET /api/v1/plans/nosuch", func(request) answer {
		return problem(http.StatusNotFound, "plan nosuch does not exist")
	})
	got := slipway(t, api, "plan", "history", "new")
	require.Zero(t, got.code, "a plan that was never run has an empty history: %s", got.err)
	require.Contains(t, got.out, "TASK")
	got = slipway(t, api, "plan", "history", "nosuch")
	require.Equal(t, slipway(t, api, "plan", "get", "nosuch"), got, "a name without plan and tasks is an error")
	require.Contains(t, got.err, "plan nosuch does not exist")
}

// A long failure is cut in the table; slipway task get prints it completely.
func TestTaskTables_TruncateLongReasons(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	long := "service can failed: https://packages.example.com/shop/order.zip has the digest " +
		strings.Repeat("0123456789abcdef", 4) + ", not the requested one"
	api.on("GET /api/v1/tasks", func(request) answer {
		return answerJSON(http.StatusOK, client.TaskList{Items: []client.TaskSummary{{ID: "shop-1", Plan: "shop",
			State: plan.TaskFailed, Reason: long, CreatedAt: time.Now()}}})
	})
	for _, args := range [][]string{{"plan", "history", "shop"}, {"task", "list"}} {
		out := slipway(t, api, args...).out
		require.Contains(t, out, long[:99]+"…\n", "%v", args)
		require.NotContains(t, out, "requested one", "%v", args)
	}
	require.Contains(t, slipway(t, api, "task", "list", "-o", "json").out, "requested one",
		"programs get the complete reason")
}
