package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// The summary, the details and the input of an encrypted release are readable in the Temporal UI, in a real browser,
// through the codec server, and unreadable without it.
func TestLongEncryptedRelease_IsReadableInTemporalUI_ThroughCodecServer(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	keys := t.TempDir()
	for name, text := range map[string]string{"first": strings.Repeat("A", 43) + "=", "current": "first"} {
		require.NoError(t, os.WriteFile(filepath.Join(keys, name), []byte(text), 0o600))
	}
	e := harness.Start(t, harness.Options{Args: []string{"--temporal-codec-key-dir", keys}})
	port := harness.FreePort(t)
	codec := harness.Run(t, e.Binary("slipway"), []string{"codec", "--temporal-codec-key-dir", keys, "--temporal-ui",
		e.TemporalUI, "--codec-listen", "127.0.0.1:" + port}, nil)
	require.Eventually(t, func() bool {
		return strings.Contains(codec.Output(), "serving the codec")
	}, harness.Patience, harness.Tick)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	status := r.waitPaused(1)
	const says = "waiting for approval"
	require.Contains(t, status.Reason, says)

	b := openBrowser(t)
	details := func(want string) string {
		return fmt.Sprintf(
			`[...document.querySelectorAll("iframe")].some(f => (f.contentDocument?.body?.innerText ?? f.srcdoc).includes(%q)) || document.body.innerText.includes(%q)`, want, want)
	}
	b.visit(r.url())
	b.waitUntil("see the page without the encrypted details", details("No Current Details"))
	_, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](
		fmt.Sprintf(
			`localStorage.setItem("endpoint", JSON.stringify("http://127.0.0.1:%s")), localStorage.setItem("overrideRemoteCodecConfiguration", "true"), true`, port)))
	require.NoError(t, err)
	b.visit(r.url())
	b.waitUntil("read the awaited condition and what to send", details(says))
	b.waitUntil("read the summary", details("partition in 3 steps"))
	b.screenshot("codec-details.png")
	b.visit(strings.TrimSuffix(r.url(), "user-metadata") + "history")
	b.waitUntil("read the input", `document.body.innerText.includes("workloadRef")`)
	b.screenshot("codec-history.png")
	r.approveAll(1)
	r.requirePromoted()
}

// url returns the page of the rollout's run in the Temporal UI.
func (r *release) url() string {
	r.t.Helper()
	described, err := r.Workflows.DescribeWorkflowExecution(r.t.Context(), r.RolloutID(r.rollout.Name), "")
	require.NoError(r.t, err)
	run := described.GetWorkflowExecutionInfo().GetExecution()
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s/%s/user-metadata", r.TemporalUI, r.TemporalNamespace,
		strings.ReplaceAll(run.GetWorkflowId(), "/", "%2F"), run.GetRunId())
}
