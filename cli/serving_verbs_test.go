package cli_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	cliserving "slipway.io/slipway/cli/serving"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// asking is the serving while it waits for the approval of bob.
func asking() serving.View {
	v := twoParties()
	v.Phase, v.Reason, v.Message, v.ServedGeneration = kuscia.PhaseProgressing, serving.ReasonWaitingForApproval,
		"party bob/server waits for approval", 1
	v.Operation.Done, v.Operation.Reason, v.Operation.Message = false, v.Reason, v.Message
	v.Operation.WaitingFor = &kuscia.WaitingFor{Kind: serving.WaitApproval,
		Since: metav1.NewTime(before(5 * time.Minute)),
		Party: "bob/server", Gate: "g1", Message: v.Message}
	v.Parties[1].Phase, v.Parties[1].UpdatedReplicas = kuscia.PhaseProgressing, 0
	return v
}

func TestServingVerbs(t *testing.T) {
	t.Parallel()
	for _, v := range serving.Verbs {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.on("GET /api/v1/servings/serving-01", func(request) answer {
				return answerJSON(http.StatusOK, asking())
			})
			api.on("POST /api/v1/servings/serving-01/"+string(v), func(request) answer {
				return answerJSON(http.StatusOK, updating())
			})
			args := []string{"serving", string(v), "serving-01", "--actor", "li", "--reason", "seen", "--key",
				"k1"}
			if v == serving.VerbApprove {
				nobody := slipway(t, api, args...)
				require.Equal(t, app.ExitUsage, nobody.code, "without a terminal a flag is required")
				require.Contains(t, nobody.err, "add --party bob/server, --gate or --yes\n")
				args = append(args, "--party", "bob/server")
			}
			got := slipway(t, api, args...)
			require.Equal(t, "serving serving-01 is Progressing: ImagePullBackOff: party bob/server: manifest "+
				"unknown\n", got.out, got.err)
			sent := api.requests()[len(api.requests())-1]
			require.Equal(t, []string{"li", "seen", "k1"},
				[]string{sent.field(t, "actor"), sent.field(t, "reason"), sent.field(t, "key")})
			require.Equal(t, "cli", sent.header.Get("Slipway-Via"))
			if v != serving.VerbApprove {
				require.NotContains(t, sent.body, "gate", "only approve sends a gate")
				require.Equal(t, app.ExitUsage, slipway(t, api, "serving", string(v), "serving-01", "--gate",
					"g1").code)
			}
		})
	}
}

func TestServingApprove_ShowsWaitingParty(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/servings/serving-01", func(request) answer { return answerJSON(http.StatusOK, asking()) })
	api.on("POST /api/v1/servings/serving-01/approve", func(r request) answer {
		if r.field(t, "gate") == "g1" {
			return answerJSON(http.StatusOK, updating())
		}
		fresh := asking()
		return answer{status: http.StatusConflict, contentType: "application/problem+json",
			body: client.Problem{Type: "/docs#problem", Title: "Problem", Status: http.StatusConflict,
				Detail: "stale approval", Serving: &fresh}}
	})
	got := slipway(t, api, "serving", "approve", "serving-01", "--yes")
	require.Equal(t, `approve serving serving-01, waiting for approval of bob/server since 11:55:00
  alice        Available     2 of 2 available
  bob/server   Progressing   2 of 2 available, 0 new
`, got.err, "the shown gate is sent")
	require.Equal(t, app.ExitOK, got.code)

	stale := slipway(t, api, "serving", "approve", "serving-01", "--gate", "older", "--party", "bob/server")
	require.Equal(t, app.ExitFailure, stale.code)
	require.Equal(t, "error: stale approval\nThe serving is Progressing now: WaitingForApproval: party bob/server "+
		"waits for approval\n", stale.err)

	api.on("POST /api/v1/servings/serving-01/approve", func(request) answer {
		return problem(http.StatusServiceUnavailable, "the outcome of approve is unknown")
	})
	unknown := slipway(t, api, "serving", "approve", "serving-01", "--yes", "--key", "k1")
	require.Contains(t, unknown.err, "It is safe to repeat it with the same key:\n  slipway serving approve "+
		"serving-01 --gate g1 --key k1\n")
}

func TestServingGet_ShowsWaitAndHistory(t *testing.T) {
	t.Parallel()
	v := asking()
	at := metav1.NewTime(before(6 * time.Minute))
	v.Operation.History = []kuscia.AuditEntry{{At: at, Actor: "li", Via: "cli", Verb: "approve", Party: "bob/server",
		Reason: "early", Outcome: "refused", Message: "the serving is not waiting for approval"}}
	api := newFakeAPI(t)
	api.on("GET /api/v1/servings/serving-01", func(request) answer { return answerJSON(http.StatusOK, v) })
	api.on("GET /api/v1/servings", func(request) answer {
		return answerJSON(http.StatusOK, client.ServingList{Items: []serving.View{v}})
	})
	got := slipway(t, api, "serving", "get", "serving-01").out
	require.Contains(t, got, `update of generation 2 is running, started 1m00s ago; generation 1 serves
waiting for approval of bob/server since 11:55:00 (5m00s)
  slipway serving approve serving-01   start it now
  slipway serving stop serving-01      roll all parties back to the previous version
`)
	require.Contains(t, got, "\nhistory\n  "+at.Local().Format(time.DateTime)+
		"  approve bob/server by li via cli, refused: the serving is not waiting for approval (reason given: early)\n")
	require.Contains(t, slipway(t, api, "serving", "list").out, "approval of bob/server   5m00s")

	later := asking()
	later.Operation.History = append(later.Operation.History, v.Operation.History[0])
	later.Operation.History = append(later.Operation.History,
		kuscia.AuditEntry{At: metav1.NewTime(before(time.Minute)), Actor: "li", Via: "http", Verb: "pause",
			Outcome: "accepted", Message: "paused"})
	later.Operation.WaitingFor.Kind = serving.WaitResume
	watched := slipway(t, watchedServingAPI(t, v, v, later, ended(kuscia.PhaseAvailable, "")), "serving", "watch",
		"serving-01").out
	require.Equal(t, 1, strings.Count(watched, "approve bob/server by li"), "each decision is printed once: %s",
		watched)
	require.Contains(t, watched, "11:59:00  pause by li via http, accepted: paused\n")
	d := render.Drawing{Now: func() time.Time { return noon }}
	require.Contains(t, strings.Join(cliserving.Fit(d, later, 120, 20), "\n"),
		"  slipway serving resume serving-01   continue")
}
