package cli_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

func TestServingHistory(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/servings/serving-01/history", func(request) answer {
		none := serving.Release{Parties: []serving.ReleaseParty{}, History: []kuscia.AuditEntry{}}
		return answerJSON(http.StatusOK, client.ServingHistory{Items: []serving.Release{
			{Parties: none.Parties, History: none.History, Record: "serving-r3", ID: "serving-01",
				Kind: serving.KindDelete, Generation: 3,
				State: serving.StateProgressing, Message: "removing the parties' resources",
				StartedAt: before(5 * time.Minute)},
			{Parties: none.Parties, History: none.History, Record: "serving-r2", ID: "serving-01",
				Kind: serving.KindUpdate, Generation: 2,
				State: serving.StateRolledBack, Message: "party bob:\nbad image", Version: "9f3c",
				StartedAt: before(10 * time.Minute), FinishedAt: beforeP(9 * time.Minute)},
		}})
	})
	require.Equal(t, outcome{out: `STARTED    OPERATION   GENERATION   STATE         TOOK    VERSION   MESSAGE
` + clockTime(before(5*time.Minute)) + `   delete      3            Progressing   5m00s   -         removing the parties' resources
` + clockTime(before(10*time.Minute)) + `   update      2            RolledBack    1m00s   9f3c      party bob: bad image
`}, slipway(t, api, "serving", "history", "serving-01"))
	require.Equal(t, app.ExitUsage, slipway(t, api, "serving", "history", "serving-01", "--limit", "-1").code)
}
