package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// The Temporal UI, in a real browser, shows which party an operation waits for, since when, and what to do.
func TestLongServing_ShowsMissingPartyInTemporalUI(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	a := newPartiesWithWorkers(t)
	a.startWorkers(a.alice)
	a.create("seen", serving.Policy{})
	a.waitUnreachable("seen", a.bob)
	b := openBrowser(t)
	b.visit(a.operationURL("seen"))
	b.waitUntil("read which party it waits for",
		`[...document.querySelectorAll("iframe")].some(f => { const s = f.contentDocument?.body?.innerText ?? f.srcdoc; return ["waited for", "as long as it takes", "slipway worker --party ", "continues by itself"].every(part => s.includes(part)); })`)
	b.screenshot("serving-details.png")
	b.visit(a.operationURL("seen"))
	b.waitUntil("see a running workflow", `document.body.innerText.includes("Request Cancellation")`)
	b.screenshot("serving-history.png")
}

// operationURL returns the URL of a serving's operation in the Temporal UI.
func (u *twoParties) operationURL(id string) string {
	u.t.Helper()
	a := u.Call(http.MethodGet, "/api/v1/servings/"+id, "")
	require.Equal(u.t, http.StatusOK, a.Status, "%s", a.Body)
	var view serving.View
	require.NoError(u.t, json.Unmarshal(a.Body, &view))
	return view.Operation.Workflow.URL
}
