package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	clirollout "slipway.io/slipway/cli/rollout"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// webRollout is a canary whose second step waits for approval.
func webRollout() rollout.Status {
	return rollout.Status{
		Party: "default", Namespace: "shop", Name: "web",
		WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		Style:       strategy.StylePartition, Phase: rollout.PhaseProgressing, Reason: "step 2 of 3 waits for approval",
		CurrentStepIndex: 2, NextStepIndex: 3, CurrentStepState: rollout.StatePaused,
		Steps: []rollout.StepStatus{
			{Index: 1, Replicas: intstr.FromString("20%"), Traffic: "20%", Pause: "none", State: "Completed",
				StartedAt: beforeP(5 * time.Minute), FinishedAt: beforeP(4 * time.Minute)},
			{Index: 2, Replicas: intstr.FromString("50%"), Traffic: "50%", Pause: "approval", State: "StepPaused",
				StartedAt: beforeP(4 * time.Minute)},
			{Index: 3, Replicas: intstr.FromString("100%"), Pause: "2h0m0s", State: "Pending"},
		},
		StableRevision: "6d9c", CanaryRevision: "5f7b", PodTemplateHash: "5f7b",
		Images:   map[string]string{"app": "registry.example/web:2"},
		Replicas: 10, CanaryReplicas: 5, CanaryReadyReplicas: 4, LastUpdateTime: before(3 * time.Minute),
		CreatedAt: before(5 * time.Minute),
		Traffic:   &rollout.TrafficStatus{CanaryWeight: 50, StableWeight: 50},
		WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitApproval, Since: before(3 * time.Minute),
			Until: afterP(2 * time.Hour),
			Gate:  "gate-2", Message: "approve step 2 to continue"},
		History:  []audit.Entry{},
		Workflow: &audit.WorkflowRef{ID: "rollout/default/shop/web", RunID: "run-1", URL: "http://127.0.0.1:8233/x"},
	}
}

func afterP(d time.Duration) *time.Time { t := noon.Add(d); return &t }

// webRolloutIn is the same rollout, ended in this phase.
func webRolloutIn(phase rollout.Phase, reason string) rollout.Status {
	s := webRollout()
	s.Phase, s.Reason, s.WaitingFor, s.FinishedAt = phase, reason, nil, beforeP(10*time.Second)
	s.CurrentStepIndex, s.NextStepIndex, s.CurrentStepState = 3, -1, rollout.StateCompleted
	return s
}

// clockTime formats a time as the commands do, in the time zone of the test machine.
func clockTime(t time.Time) string { return render.Clock(t, noon) }

const webTree = `rollout shop/web: Deployment web, partition
Progressing, started 5m00s ago: step 2 of 3 waits for approval
app=registry.example/web:2, stable revision 6d9c, new revision 5f7b

  step 1   pods 20%    traffic 20%                      Completed            1m00s
> step 2   pods 50%    traffic 50%   then approval      StepPaused           4m00s
  step 3   pods 100%                 then pause 2h00m   Pending

pods      [##########..........]  5 of 10 are new, 4 of them ready
traffic   [##########..........]  50 % to the new version, 50 % to the stable version

waiting for approval since SINCE (3m00s), until UNTIL (2h00m left): approve step 2 to continue
  slipway rollout approve shop/web    continue
  slipway rollout rollback shop/web   go back to the stable version
`

func drawnTree() string {
	return strings.NewReplacer("SINCE", clockTime(before(3*time.Minute)), "UNTIL",
		clockTime(noon.Add(2*time.Hour))).Replace(webTree)
}

func TestRolloutGet(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	s := webRollout()
	s.History = []audit.Entry{{At: noon, Actor: "li", Via: "temporal", Verb: rollout.VerbApprove, Step: 1,
		Outcome: audit.Refused,
		Reason:  "late\nnight",
		Message: "step 1 is past"}}
	api.on("GET /api/v1/rollouts/shop/web", func(request) answer { return answerJSON(http.StatusOK, s) })
	want := outcome{out: drawnTree() + `
history
  ` + noon.Local().Format(time.DateTime) + `  approve step 1 by li via temporal, refused: step 1 is past (reason given: late night)

workflow rollout/default/shop/web  http://127.0.0.1:8233/x
`}
	require.Equal(t, want, slipway(t, api, "rollout", "get", "web", "-n", "shop"))
	require.Equal(t, want, slipway(t, api, "rollout", "get", "shop/web"), "the name is accepted as lists print it")
	require.Contains(t, slipway(t, api, "rollout", "get", "shop/web", "-o", "yaml").out, "phase: Progressing\n")
	for _, r := range api.requests() {
		require.Empty(t, r.query, "the default party needs no parameter")
	}
	slipway(t, api, "rollout", "get", "shop/web", "--party", "alice")
	require.Equal(t, "party=alice", api.requests()[3].query)

	both := slipway(t, api, "rollout", "get", "shop/web", "-n", "bank")
	require.Equal(t, app.ExitUsage, both.code)
	require.Contains(t, both.err, "use only one of them")
}

func TestRolloutDrawing_FitsSmallScreen(t *testing.T) {
	t.Parallel()
	s := webRollout()
	s.Steps = nil
	for n := 1; n <= 50; n++ {
		s.Steps = append(s.Steps, rollout.StepStatus{Index: n, Replicas: intstr.FromInt32(int32(n)), Pause: "approval",
			State: "Pending"})
	}
	s.CurrentStepIndex = 25
	lines := clirollout.Fit(plainDrawing, s, 60, 20)
	require.LessOrEqual(t, len(lines), 20, "a drawing that scrolls could not be redrawn")
	text := strings.Join(lines, "\n")
	require.Contains(t, text, "… 22 steps earlier\n")
	require.Contains(t, text, "> step 25")
	require.Contains(t, text, "… 23 steps more\n")
	require.Contains(t, text, "slipway rollout approve", "the hints for the user are never omitted")
	for _, l := range lines {
		require.LessOrEqual(t, render.DisplayWidth(l), 59, "a line wrapped by the terminal could not be redrawn")
	}
}

func TestRolloutHints(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		kind   rollout.WaitKind
		phase  rollout.Phase
		want   []string
	}{
		"Approval": {"approve or roll back", rollout.WaitApproval, rollout.PhaseProgressing,
			[]string{"approve", "rollback"}},
		"Drift": {"overwrite or accept the change", rollout.WaitDrift, rollout.PhaseProgressing,
			[]string{"retry", "stop"}},
		"Paused": {"resume ends a pause", rollout.WaitResume, rollout.PhaseProgressing, []string{"resume", "rollback"}},
		"Failed": {"a failed step is retried", rollout.WaitResume, rollout.PhaseFailed,
			[]string{"retry", "rollback", "stop"}},
		"Pods": {"no command helps while pods start", rollout.WaitPods, rollout.PhaseProgressing, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webRollout()
			s.Party, s.Namespace, s.Phase, s.WaitingFor.Kind = "alice", "default", c.phase, c.kind
			var verbs []string
			for _, h := range clirollout.Hints(s) {
				verb, rest, _ := strings.Cut(strings.TrimPrefix(h.Command, "slipway rollout "), " ")
				require.Equal(t, "default/web --party alice", rest, "the command can be copied")
				verbs = append(verbs, verb)
			}
			require.Equal(t, c.want, verbs, c.reason)
		})
	}
}

func TestRolloutList(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/rollouts", func(request) answer {
		return answerJSON(http.StatusOK, client.RolloutList{Items: []client.RolloutSummary{
			{Party: "default", Namespace: "shop", Name: "web", Style: strategy.StylePartition,
				Phase:      rollout.PhaseProgressing,
				Reason:     "step 2 of 3 waits",
				WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitApproval, Since: before(3 * time.Minute)},
				CreatedAt:  before(5 * time.Minute)},
			{Party: "alice", Namespace: "bank", Name: "db", Style: strategy.StyleBlueGreen, Phase: rollout.PhaseHealthy,
				Summary: "db=registry.example/db:9", CreatedAt: before(time.Hour)},
			{Party: "default", Namespace: "shop", Name: "cart", Style: strategy.StyleCanary, Phase: rollout.PhaseFailed,
				Summary:    "cart=registry.example/cart:typo",
				Reason:     "step 1: pod cart-7c9-x2x of Deployment shop/cart: ImagePullBackOff: manifest unknown",
				WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitResume, Since: before(time.Minute)},
				CreatedAt:  before(time.Hour)},
		}})
	})
	got := slipway(t, api, "rollout", "list", "-n", "shop", "--party", "default", "--phase", "progressing",
		"--waiting-for",
		"APPROVAL", "--limit", "3")
	require.Equal(t,
		outcome{out: `NAME             STYLE       PHASE         WAITS FOR   SINCE   AGE     CHANGE                            REASON
shop/web         partition   Progressing   approval    3m00s   5m00s   -                                 step 2 of 3 waits
alice: bank/db   blueGreen   Healthy       -           -       1h00m   db=registry.example/db:9          -
shop/cart        canary      Failed        retry       1m00s   1h00m   cart=registry.example/cart:typo   step 1: pod cart-7c9-x2x of Deployment shop/cart: ImagePullBackOff: manifest unknown
`}, got, "the cause is not cut, the failed image is shown, and a failure waits for retry")
	require.Equal(t, "limit=3&namespace=shop&party=default&phase=Progressing&waitingFor=approval",
		api.requests()[0].query,
		"filters go to the API, in any case")
	wrong := slipway(t, api, "rollout", "list", "--phase", "Broken")
	require.Equal(t, app.ExitUsage, wrong.code)
	require.Contains(t, wrong.err, `invalid --phase "Broken": must be one of Progressing, Failed`)

	api.on("GET /api/v1/rollouts/shop/web", func(request) answer { return answerJSON(http.StatusOK, webRollout()) })
	api.on("GET /api/v1/rollouts/shop/cart", func(request) answer {
		s := webRollout()
		s.Name, s.Phase, s.WaitingFor.Kind = "cart", rollout.PhaseFailed, rollout.WaitResume
		return answerJSON(http.StatusOK, s)
	})
	api.on("GET /api/v1/rollouts/bank/db", func(r request) answer {
		require.Equal(t, "party=alice", r.query)
		s := webRolloutIn(rollout.PhaseHealthy, "done")
		s.Party, s.Namespace, s.Name, s.Style, s.Traffic = "alice", "bank", "db", strategy.StyleBlueGreen, nil
		return answerJSON(http.StatusOK, s)
	})
	require.Equal(t, `NAME             STYLE       PHASE         STEP   TRAFFIC   NEW   READY   OF   WAITS FOR   SINCE
shop/web         partition   Progressing   2/3    50%       5     4       10   approval    3m00s
alice: bank/db   blueGreen   Healthy       3/3    -         5     4       10   -           -
shop/cart        partition   Failed        2/3    50%       5     4       10   retry       3m00s
`, slipway(t, api, "rollout", "list", "--steps").out)
}

func TestRolloutHistory(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/rollouts/shop/web/history", func(request) answer {
		undo, first, unknown := webRollout(), webRolloutIn(rollout.PhaseHealthy, "done"),
			webRolloutIn(rollout.PhaseRolledBack, "rolled back")
		undo.Revision, undo.StableImages = 3, map[string]string{"app": "registry.example/web:3"}
		undo.Undo = &strategy.Undo{ToRevision: 1, WithoutSteps: true}
		first.Revision, first.StableImages = 2, map[string]string{"app": "registry.example/web:1"}
		return answerJSON(http.StatusOK, client.RolloutHistory{Items: []client.RolloutRelease{
			{Rollout: undo, Actor: "li", Reason: "errors", Via: "cli"},
			{Rollout: first, Actor: "wang", Reason: "release 2", Replaced: 1},
			{Rollout: unknown, Actor: "wang"},
		}})
	})
	started := clockTime(before(5 * time.Minute))
	require.Equal(t,
		outcome{out: `REVISION   STARTED    PHASE         TOOK    BY     IMAGES                       POD TEMPLATE   REPLACED                        WHY
3          ` + started + `   Progressing   5m00s   li     app=registry.example/web:2   5f7b           app=registry.example/web:3      undo to revision 1 without steps: errors
2          ` + started + `   Healthy       4m50s   wang   app=registry.example/web:2   5f7b           1: app=registry.example/web:1   release 2
-          ` + started + `   RolledBack    4m50s   wang   app=registry.example/web:2   5f7b           -                               -
`}, slipway(t, api, "rollout", "history", "shop/web"))
}

func TestRolloutUndo(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/rollouts/shop/web/undo", func(request) answer {
		return answerJSON(http.StatusAccepted, client.RolloutStarted{Status: webRollout(),
			Warnings: []string{"step 1 has no traffic"}})
	})
	got := slipway(t, api, "rollout", "undo", "shop/web", "--to-revision", "3", "--party", "alice", "--actor", "li",
		"-m", "errors", "--key", "mine")
	require.Equal(t, outcome{out: "undo of rollout alice: shop/web started\n",
		err: "warning: step 1 has no traffic\nTo watch it: slipway rollout watch shop/web\n"}, got)
	asked := api.requests()[0]
	require.JSONEq(t, `{"toRevision":3,"actor":"li","reason":"errors","key":"mine"}`, asked.body)
	require.Equal(t, []string{"party=alice", "mine", "cli"},
		[]string{asked.query, asked.header.Get("Idempotency-Key"), asked.header.Get("Slipway-Via")})

	refused := slipway(t, api, "rollout", "undo", "shop/web", "--to-revision", "0")
	require.Equal(t, app.ExitUsage, refused.code)
	require.Contains(t, refused.err, "--to-revision must be 1 or greater")
	api.on("POST /api/v1/rollouts/shop/web/undo", func(request) answer {
		return problem(http.StatusServiceUnavailable, "Temporal is unreachable")
	})
	require.Contains(t, slipway(t, api, "rollout", "undo", "shop/web", "--key", "mine").err,
		"It is safe to repeat the command with --key mine.")
}

func TestRolloutVerbs(t *testing.T) {
	t.Parallel()
	extra := map[rollout.Verb][]string{rollout.VerbStop: {"--to", "frozen"}, rollout.VerbJump: {"--to-step", "3"},
		rollout.VerbApprove: {"--yes"}, rollout.VerbPromote: {"--yes"}}
	for _, v := range rollout.Verbs {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.on("GET /api/v1/rollouts/shop/web", func(request) answer {
				return answerJSON(http.StatusOK, webRollout())
			})
			route := "POST /api/v1/rollouts/shop/web/" + string(v)
			api.on(route, func(request) answer { return answerJSON(http.StatusOK, webRollout()) })
			args := append([]string{"rollout", string(v), "shop/web", "--actor", "li", "-m", "because", "--key",
				"mine"}, extra[v]...)
			got := slipway(t, api, args...)
			require.Equal(t, app.ExitOK, got.code, got.err)
			require.Equal(t, "rollout shop/web is Progressing: step 2 of 3 waits for approval\n", got.out)
			asked := api.requests()[len(api.requests())-1]
			var body client.RolloutVerbRequest
			require.NoError(t, json.Unmarshal([]byte(asked.body), &body))
			want := client.RolloutVerbRequest{Actor: "li", Reason: "because", Key: "mine"}
			repeated := ""
			switch v {
			case rollout.VerbApprove, rollout.VerbPromote:
				want.Step, want.Gate, repeated = 2, "gate-2", " --step 2 --gate gate-2"
				require.Contains(t, got.err, string(v)+
					" step 2 of 3 of rollout shop/web, waiting for approval since ",
					"the step is shown first")
			case rollout.VerbStop:
				want.To, repeated = "frozen", " --to frozen"
			case rollout.VerbJump:
				want.ToStep, repeated = 3, " --to-step 3"
			}
			require.Equal(t, want, body)
			require.Equal(t, "cli", asked.header.Get("Slipway-Via"))

			now := webRolloutIn(rollout.PhaseHealthy, "all pods are new")
			refusal := problem(http.StatusConflict, "step 2 is past")
			detail := refusal.body.(client.Problem)
			detail.Rollout = &now
			refusal.body = detail
			api.on(route, func(request) answer { return refusal })
			refused := slipway(t, api, args...)
			require.Equal(t, app.ExitFailure, refused.code, "a rejected command fails the pipeline")
			require.Contains(t, refused.err, "error: step 2 is past\nThe rollout is Healthy now: all pods are new\n")

			api.on(route, func(request) answer { return problem(http.StatusServiceUnavailable, "no worker responds") })
			unknown := slipway(t, api, args...)
			require.Contains(t, unknown.err, "  slipway rollout "+string(v)+" shop/web"+
				repeated+" --key mine\n",
				"for an unknown outcome, the command to repeat is printed")
		})
	}
}

func TestRolloutApprove_SendsGivenStepAndGate(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/rollouts/shop/web/approve", func(request) answer {
		return answerJSON(http.StatusOK, webRollout())
	})
	got := slipway(t, api, "rollout", "approve", "shop/web", "--step", "1", "--gate", "gate-1")
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Len(t, api.requests(), 1, "with step and gate given, the rollout is not read")
	require.Equal(t, "gate-1", api.requests()[0].field(t, "gate"))
}

// approvalsOf is an API with this rollout that accepts only approvals and promotions.
func approvalsOf(t *testing.T, s rollout.Status) *fakeAPI {
	t.Helper()
	api := newFakeAPI(t)
	api.on("GET /api/v1/rollouts/shop/web", func(request) answer { return answerJSON(http.StatusOK, s) })
	for _, verb := range []string{"approve", "promote"} {
		api.on("POST /api/v1/rollouts/shop/web/"+verb, func(request) answer { return answerJSON(http.StatusOK, s) })
	}
	return api
}

func TestRolloutApprove_AsksForConfirmation(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		terminal bool
		input    string
		args     []string
		code     int
		// step and gate are the sent ones; step 0: nothing is sent.
		step float64
		gate string
		says string
	}{
		"Yes": {"A confirmation approves the shown step.", true, "y\n", nil, app.ExitOK, 2, "gate-2",
			"Approve step 2? [y/N]"},
		"No": {"Without a confirmation nothing is changed.", true, "\n", nil, app.ExitFailure, 0, "",
			"Nothing was changed."},
		"Nobody": {"Without a terminal a flag is required.", false, "y\n", nil, app.ExitUsage, 0, "",
			"add --step 2, --gate or --yes"},
		"SaidYes": {"--yes approves the waiting step.", false, "", []string{"--yes"}, app.ExitOK, 2, "gate-2", ""},
		"Step": {"A named step needs no confirmation, and its gate is sent.", false, "", []string{"--step", "2"},
			app.ExitOK, 2, "gate-2", ""},
		"OtherStep": {"If another step waits, its gate is not sent, and the engine rejects the step.", false, "",
			[]string{"--step", "1"}, app.ExitOK, 1, "", ""},
	}
	for name, c := range cases {
		for _, verb := range []string{"approve", "promote"} {
			t.Run(name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				api := approvalsOf(t, webRollout())
				s := newSession(t, c.input)
				s.app.InIsTerminal = c.terminal
				got := s.run(append([]string{"rollout", verb, "shop/web", "--api", api.URL}, c.args...)...)
				require.Equal(t, c.code, got.code, "%s\n%s", c.reason, got.err)
				require.Contains(t, got.err, verb+" step 2 of 3", "the waiting step is always shown")
				if verb == "approve" {
					require.Contains(t, got.err, c.says, c.reason)
				}
				sent := api.requests()[1:]
				if c.step == 0 {
					require.Empty(t, sent, c.reason)
					return
				}
				require.Len(t, sent, 1)
				var body map[string]any
				require.NoError(t, json.Unmarshal([]byte(sent[0].body), &body))
				require.InDelta(t, c.step, body["step"], 0, c.reason)
				require.Equal(t, c.gate, sent[0].field(t, "gate"), c.reason)
			})
		}
	}
}

func TestRolloutApprove_RejectsQuickRepeat(t *testing.T) {
	t.Parallel()
	s := webRollout()
	s.History = []audit.Entry{{At: before(2 * time.Second), Actor: "li", Via: "cli", Verb: rollout.VerbApprove, Step: 1,
		Outcome: audit.Accepted, Message: "continues"}}
	api := approvalsOf(t, s)
	again := slipway(t, api, "rollout", "approve", "shop/web", "--yes")
	require.Equal(t, app.ExitUsage, again.code)
	require.Contains(t, again.err, "error: step 1 was approved 2s ago, and step 2 is waiting now: to approve it, use "+
		"--step 2\n")
	require.Len(t, api.requests(), 1, "nothing was sent")
	require.Equal(t, app.ExitOK, slipway(t, api, "rollout", "approve", "shop/web", "--step", "2").code,
		"a named step is approved")

	s.History[0].At = before(time.Minute)
	require.Equal(t, app.ExitOK, slipway(t, approvalsOf(t, s), "rollout", "approve", "shop/web", "--yes").code,
		"a later approval with --yes is accepted")
}

func TestRolloutJump_RequiresStep(t *testing.T) {
	t.Parallel()
	got := slipway(t, newFakeAPI(t), "rollout", "jump", "shop/web")
	require.Equal(t, app.ExitUsage, got.code)
	require.Equal(t, "error: --to-step must be 1 or greater\n", got.err)
}

func TestRolloutCompletion(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/rollouts", func(r request) answer {
		return answerJSON(http.StatusOK, client.RolloutList{Items: []client.RolloutSummary{
			{Party: "default", Namespace: "shop", Name: "web", Phase: rollout.PhaseProgressing, CreatedAt: noon},
		}})
	})
	require.Contains(t, newSession(t, "").run("__complete", "rollout", "approve", "--api", api.URL, "").out,
		"shop/web\tProgressing\n")
	require.Contains(t, newSession(t, "").run("__complete", "rollout", "get", "--api", api.URL, "-n", "shop", "").out,
		"web\tProgressing\n")
	require.Contains(t, api.requests()[0].query, "phase=Progressing&phase=Failed", "only open rollouts are offered")
}
