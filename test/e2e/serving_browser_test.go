package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// A person sees in the Temporal UI, in a real browser, which party an operation waits for, since when, and what to do.
func TestLongServingWaitsInTemporalUI(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	a := ally(t)
	a.work(a.alice)
	a.create("seen", serving.Policy{})
	a.waitAway("seen", a.bob)
	b := openBrowser(t)
	b.visit(a.operationURL("seen"))
	b.until("read whom it waits for", `[...document.querySelectorAll("iframe")].some(f => { const s = f.contentDocument?.body?.innerText ?? f.srcdoc; return ["waited for", "as long as it takes", "slipway worker --party ", "goes on by itself"].every(part => s.includes(part)); })`)
	b.shoot("serving-details.png")
	b.visit(a.operationURL("seen"))
	b.until("see a running workflow", `document.body.innerText.includes("Request Cancellation")`)
	b.shoot("serving-history.png")
}

// operationURL is the page of a serving's operation in the Temporal UI.
func (u *union) operationURL(id string) string {
	u.t.Helper()
	a := u.Call(http.MethodGet, "/api/v1/servings/"+id, "")
	require.Equal(u.t, http.StatusOK, a.Status, "%s", a.Body)
	var view serving.View
	require.NoError(u.t, json.Unmarshal(a.Body, &view))
	return view.Operation.Workflow.URL
}
