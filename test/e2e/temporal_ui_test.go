package e2e

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// startWithUI starts an engine that requires a token and publishes the stack's Temporal UI, whose address is then the
// engine's. own is the address of Temporal's server of the UI.
func startWithUI(t *testing.T) (e *harness.Engine, own string) {
	t.Helper()
	own = harness.SharedStack(t).TemporalUI
	secret, listen := "a-token-of-a-test-with-32-or-more", "127.0.0.1:"+harness.FreePort(t)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(secret), 0o600))
	e = harness.Start(t, harness.Options{Args: []string{"--api-token-file", file, "--temporal-ui", "http://" + listen,
		"--temporal-ui-listen", listen, "--temporal-ui-upstream", own}})
	e.Token, e.TemporalUI = secret, "http://"+listen
	return e, own
}

// answerOf sends a request to the Temporal UI, with the password if it is not empty.
func answerOf(t *testing.T, method, address, password string, headers ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader("{}"))
	require.NoError(t, err)
	if password != "" {
		request.SetBasicAuth("alice", password)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			request.Host = value
		}
		request.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer
}

// A page whose own host name resolves to this machine sends what its scripts can send to the Temporal UI: it reads no
// workflow and approves no step. A person with the token does.
func TestTemporalUI_RefusesPagesOfOtherSites(t *testing.T) {
	t.Parallel()
	e, own := startWithUI(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	r.waitPaused(1)
	workflows := "/api/v1/namespaces/" + e.TemporalNamespace + "/workflows"
	approve := workflows + "/" + url.PathEscape(r.RolloutID(r.rollout.Name)) + "/signal/approve"
	address := strings.TrimPrefix(e.TemporalUI, "http://")
	port := address[strings.LastIndexByte(address, ':'):]

	page := answerOf(t, http.MethodGet, e.TemporalUI+"/", e.Token)
	require.Equal(t, http.StatusOK, page.StatusCode)
	require.NotEmpty(t, page.Cookies())
	csrf := page.Cookies()[0]
	fromPage := []string{"Cookie: " + csrf.Name + "=" + csrf.Value, "X-CSRF-Token: " + csrf.Value,
		"Content-Type: application/json"}
	for _, ui := range []string{e.TemporalUI, own} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			path := map[string]string{http.MethodGet: workflows, http.MethodPost: approve}[method]
			answer := answerOf(t, method, ui+path, e.Token, append(fromPage, "Host: evil.example"+port,
				"Origin: http://evil.example"+port, "Sec-Fetch-Site: same-origin")...)
			require.Equal(t, http.StatusForbidden, answer.StatusCode, "%s %s of a page of evil.example", method, ui)
			require.Empty(t, answer.Cookies())
		}
	}
	for _, site := range []string{"Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site",
		"Sec-Fetch-Site: same-site"} {
		answer := answerOf(t, http.MethodPost, e.TemporalUI+approve, e.Token, append(fromPage, site)...)
		require.Equal(t, http.StatusForbidden, answer.StatusCode, site)
	}
	for _, password := range []string{"", "wrong"} {
		answer := answerOf(t, http.MethodPost, e.TemporalUI+approve, password, fromPage...)
		require.Equal(t, http.StatusUnauthorized, answer.StatusCode, "password %q", password)
		require.Contains(t, answer.Header.Get("WWW-Authenticate"), "Basic realm=")
	}
	require.Empty(t, acceptedApprovals(r.waitPaused(1)), "no step is approved")

	r.watch.AllowStep(t, 2)
	answer := answerOf(t, http.MethodPost, e.TemporalUI+approve, e.Token, append(fromPage, "Origin: "+e.TemporalUI,
		"Sec-Fetch-Site: same-origin")...)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	status := r.waitPaused(2)
	require.Contains(t, status.Workflow.URL, e.TemporalUI+"/namespaces/"+e.TemporalNamespace+"/",
		"the link leads to the published UI")
	require.Len(t, acceptedApprovals(status), 1, "an empty payload approves the waiting step")
	r.approveAll(2)
	r.requirePromoted()
}
