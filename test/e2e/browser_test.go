package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
)

// A user pauses and resumes a task in the Temporal UI, in a real browser, without any other client.
func TestLongTask_IsPausedAndResumed_InTemporalUI(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	e.Deployment("slow", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"dev.slipway.io/behaviour": "slow",
			"dev.slipway.io/ready-after": "20s"}
	})
	e.Deployment("later", 1, nil)
	e.WaitReadyPods("slow", 2)
	e.WaitReadyPods("later", 1)
	e.PutService("seen-1", "displayName: slow one\n", "Deployment/slow")
	e.PutService("seen-2", "", "Deployment/later")
	e.PutPlan("seen", "comment: seen in a browser\ndeployPlanItems:\n- {serviceId: seen-1, priority: 2, deployment: "+
		"RESTART, containerExecMethod: SEQUENTIAL}\n- {serviceId: seen-2, priority: 1, deployment: RESTART}\n")
	id := e.Execute("seen")
	task := e.WaitTask(id, plan.TaskRunning)
	b := openBrowser(t)

	b.visit(task.Workflow.URL)
	// The page renders Markdown in iframes.
	b.waitUntil("read the current details and how to pause the task",
		`[...document.querySelectorAll("iframe")].some(f => { const s = f.contentDocument?.body?.innerText ?? f.srcdoc; return s.includes("wave 1 of 2") && s.includes("slipway task pause"); })`)
	b.screenshot("details.png")

	b.visit(task.Workflow.URL)
	b.sendSignal("pause", []string{"approve", "pause", "resume", "stop"})
	paused := e.WaitTask(id, plan.TaskPaused, plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskPaused, paused.State, "an empty payload pauses the task")
	require.Equal(t, "temporal", paused.History[0].Via)

	b.visit(task.Workflow.URL)
	b.screenshot("paused.png")
	b.sendSignal("resume", nil)
	require.Equal(t, plan.TaskSucceeded, e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed).State)
}

// browser is a headless Chromium with one tab.
type browser struct {
	t   *testing.T
	ctx context.Context
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs Debian's chromium: deploy/dev/install-debian.sh installs it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WindowSize(1500, 1100),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	return &browser{t: t, ctx: ctx}
}

func (b *browser) visit(url string) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, chromedp.Navigate(url)))
}

// waitUntil evaluates a script until it returns true.
func (b *browser) waitUntil(what, script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, browserPatience)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](script))
		if err == nil {
			return
		}
		if ctx.Err() != nil { // earlier errors may come from a page that is still loading
			b.screenshot("failed.png")
			require.NoError(b.t, err, what)
		}
	}
}

const browserPatience = 30 * time.Second

// visible defines a JavaScript function that finds a visible element by selector and exact text.
const visible = `const visible = (selector, text) => [...document.querySelectorAll(selector)].find(e => e.textContent.trim() === text && e.getClientRects().length > 0);`

// click clicks the visible element with this text.
func (b *browser) click(selector, text string) {
	b.t.Helper()
	b.waitUntil("click "+text,
		fmt.Sprintf(
			`(() => { %s const e = visible(%q, %q); if (!e || e.disabled) return false; e.click(); return true; })()`,
			visible, selector, text))
}

// screenshot saves a picture and the HTML of the page in the folder named by SLIPWAY_TEST_PICTURES.
func (b *browser) screenshot(name string) {
	dir := os.Getenv("SLIPWAY_TEST_PICTURES")
	if dir == "" {
		return
	}
	if picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot()); err == nil {
		_ = os.WriteFile(filepath.Join(dir, name), picture, 0o600)
	}
	if html, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.outerHTML`)); err == nil {
		_ = os.WriteFile(filepath.Join(dir, name+".html"), []byte(html), 0o600)
	}
}

// sendSignal sends a signal as a user does: More Actions, Send a Signal, choose it from the menu, submit with an empty
// payload. menu lists signals that the menu must show, each with a description.
func (b *browser) sendSignal(name string, menu []string) {
	b.t.Helper()
	b.waitUntil("see a running workflow", `document.body.innerText.includes("Request Cancellation")`)
	b.screenshot("page-" + name + ".png")
	b.click("button", "More Actions")
	b.screenshot("menu-" + name + ".png")
	b.click("[role=menuitem]", "Send a Signal")
	b.screenshot("modal-" + name + ".png")
	// The page contains each dialog more than once; only one is open.
	in := func(script string, args ...any) string {
		return fmt.Sprintf(`(() => { const d = document.querySelector("dialog[open]"); if (!d) return false; `+script+
			` })()`, args...)
	}
	option := `const o = [...d.querySelectorAll("[role=option]")].find(e => e.innerText.trim().startsWith(%q)); `
	b.waitUntil("open the list of signals",
		in(`d.querySelector("[data-testid=signal-select-button]").click(); return true;`))
	for _, choice := range menu {
		b.waitUntil("see "+choice+" in the menu with a description",
			in(option+`return o && o.innerText.trim().length > %d;`, choice, len(choice)+20))
	}
	b.waitUntil("choose "+name, in(option+`if (!o) return false; o.click(); return true;`, name))
	b.waitUntil("see "+name+" chosen",
		in(`return d.querySelector("[data-testid=signal-select-button] input").value === %q;`, name))
	b.screenshot("chosen-" + name + ".png")
	b.waitUntil("submit",
		in(`const e = d.querySelector("[data-testid=confirm-modal-button]"); if (e.disabled) return false; e.click(); return true;`))
}
