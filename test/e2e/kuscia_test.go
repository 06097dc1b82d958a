package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"slipway.io/slipway/api/kuscia/kusciapb"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// Kuscia's API answers on its own HTTP and gRPC listeners and on the engine's. The permissions of
// deploy/rbac/centre.yaml are enough for it.
func TestKusciaAPI_AnswersOnThreeListeners(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Kubeconfig: func(e *harness.Engine) string {
		return e.EngineAccount(t, e.Home).Kubeconfig
	}})
	name := harness.RandomName("image")
	image := `{"name":"` + name +
		`","image":{"name":"registry.test/app","tag":"v1"},"deploy_templates":[{"name":"t","containers":[{"name":"c"}]}]}`
	require.Zero(t, kusciaCode(t, e.KusciaURL+"/api/v1/appimage/create", image), "on its own listener")
	require.EqualValues(t, 13106, kusciaCode(t, e.URL+"/api/v1/appimage/create", image),
		"on the engine's listener: it exists")
	require.EqualValues(t, 11600, kusciaCode(t, e.URL+"/api/v1/serving/create",
		`{"serving_id":"s1","initiator":"`+e.Apps+`","parties":[{"domain_id":"`+e.Apps+
			`","app_image":"none-of-this"}]}`))

	conn, err := grpc.NewClient(e.KusciaGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	shown, err := kusciapb.NewAppImageServiceClient(conn).QueryAppImage(ctx, &kusciapb.QueryAppImageRequest{Name: name})
	require.NoError(t, err)
	require.Equal(t, "registry.test/app", shown.GetData().GetImage().GetName(), "over gRPC")

	require.Zero(t, kusciaCode(t, e.URL+"/api/v1/appimage/delete", `{"name":"`+name+`"}`))

	require.NoError(t, e.Processes[0].Stop(), "the engine stops gracefully")
	_, err = kusciapb.NewHealthServiceClient(conn).HealthZ(t.Context(), &kusciapb.HealthRequest{})
	require.Equal(t, codes.Unavailable, status.Code(err))
}

// kusciaCode sends a request to Kuscia's API and returns the code of the answer.
func kusciaCode(t *testing.T, url, body string) int32 {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer response.Body.Close()
	var answer struct {
		Status struct{ Code int32 }
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	return answer.Status.Code
}

// After fixing the cause of a failed update, a user sends the same update again: it is executed although the
// KusciaDeployment already has this spec.
func TestSoakFailedServingUpdate_IsExecuted_WhenSentAgain(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.create("again", serving.Policy{})
	u.WaitServing("again", "Available", harness.ServingAvailable)
	u.policy("again", serving.Policy{ProgressDeadlineSeconds: 30})
	u.update("again", u.good, u.bad)
	u.WaitServing("again", "the previous version", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable &&
			kd.Status.Reason == serving.ReasonUpdateRolledBack
	})
	u.policy("again", serving.Policy{})
	u.MustKuscia("/api/v1/appimage/update", `{"name":"`+u.bad+`","image":{"name":"x","tag":"v3"}}`)
	u.update("again", u.good, u.bad)
	u.WaitServing("again", "the fixed version", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingAvailable(kd) && u.tag(u.bob, "again") == "v3"
	})
	require.Equal(t, u.bad, u.query("again").Parties[1].AppImage)
	require.Empty(t, u.query("again").Status.Reason)
	u.remove("again")
	require.Eventually(t, func() bool { return u.Serving(u.Home, "again") == nil }, harness.Patience, harness.Tick)
}
