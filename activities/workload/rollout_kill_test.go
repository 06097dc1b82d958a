package workload_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// TestRolloutKilled kills every attempt at a different write, before or after the server has accepted it, and starts
// the activity again without progress: the result is the same as without kills.
func TestRolloutKilled(t *testing.T) {
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		t.Run(string(style), func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 4, own("0", "1"))
			b.settled(web(), 4)
			before := b.state(web())
			r := b.release("web", style, "x:new")
			stop := b.watchFloor("web", 4, 9)
			b.killed(func(ctx context.Context) error {
				_, err := b.acts.Begin(ctx, rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(),
					Change: r.change})
				return err
			})
			for i, percent := range []string{"25%", "75%"} {
				b.killed(func(ctx context.Context) error {
					got, err := b.acts.Move(ctx, r.moveRequest(i+1, percent))
					if err == nil {
						r.template, r.last = got.Template, got
					}
					return err
				})
				require.Equal(t, int32(2*i+1), r.last.UpdatedReady, r.last.Message)
			}
			for _, action := range []rollout.FinishAction{rollout.FinishResume, rollout.FinishRelease} {
				b.killed(func(ctx context.Context) error {
					_, err := b.acts.Finish(ctx, r.finishRequest(action, rollout.SideNew))
					return err
				})
			}
			stop()
			b.requireFinalised(before, "web", "x:new", 4)
		})
	}
}

var errKilled = errors.New("killed")

// killed runs an activity that is cut off and cancelled at its first write, then at its second, and so on, each time
// just before or just after the server accepts it; then once undisturbed.
func (b *bench) killed(run func(context.Context) error) {
	b.t.Helper()
	defer b.traffic.set(nil)
	for n := range 3 {
		for _, after := range []bool{false, true} {
			ctx, kill := context.WithCancel(b.t.Context())
			writes := 0
			b.traffic.set(func(r *http.Request) (*http.Response, error) {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				if r.Method == http.MethodGet || strings.Contains(r.URL.RawQuery, "dryRun") {
					return nil, nil
				}
				if writes++; writes <= n {
					return nil, nil
				}
				if after {
					response, err := b.traffic.next.RoundTrip(r)
					if err == nil {
						_ = response.Body.Close()
					}
				}
				kill()
				return nil, errKilled
			})
			_ = run(ctx) // its error is irrelevant: its process is dead
			kill()
		}
	}
	b.traffic.set(nil)
	require.NoError(b.t, run(b.t.Context()))
}

// TestRolloutRefusals refuses impossible rollouts before the first write.
func TestRolloutRefusals(t *testing.T) {
	b := newBench(t)
	b.deployment("web", 2, nil)
	b.deployment("empty", 0, nil)
	b.deployment("paused", 1, func(d *appsv1.Deployment) { d.Spec.Paused = true })
	b.deployment("taken", 1, nil)
	b.deployment("taken-canary", 1, nil)
	b.settled(web(), 2)
	for _, c := range []struct {
		reason, name string
		style        strategy.Style
		change       strategy.Change
		says         string
	}{
		{"it does not exist", "nothing", strategy.StylePartition,
			strategy.Change{Images: map[string]string{"app": "x:new"}}, "does not exist"},
		{"it is paused", "paused", strategy.StylePartition, strategy.Change{Images: map[string]string{"app": "x:new"}},
			"is paused"},
		{"no pods", "empty", strategy.StylePartition, strategy.Change{Images: map[string]string{"app": "x:new"}},
			"has no pods"},
		{"an unknown container", "web", strategy.StylePartition,
			strategy.Change{Images: map[string]string{"app": "x:new", "sidecar": "x:new"}},
			"no container sidecar; it has app"},
		{"nothing changes", "web", strategy.StylePartition, strategy.Change{Images: map[string]string{"app": "x:good"}},
			"the change changes nothing"},
		{"nothing is asked", "web", strategy.StylePartition, strategy.Change{}, "nothing is to be changed"},
		{"a patch with an unknown field", "web", strategy.StylePartition,
			strategy.Change{TemplatePatch: json.RawMessage(`{"spec":{"containrs":[]}}`)}, "unknown field"},
		{"a patch that the cluster does not accept", "web", strategy.StylePartition,
			strategy.Change{TemplatePatch: json.RawMessage(`{"spec":{"restartPolicy":"Never"}}`)},
			"does not accept the new version"},
		{"the extra workload's name is taken", "taken", strategy.StyleCanary,
			strategy.Change{Images: map[string]string{"app": "x:new"}}, "taken-canary exists already"},
		{"a style that does not exist", "web", "rainbow", strategy.Change{Images: map[string]string{"app": "x:new"}},
			"cannot be rolled out in the style rainbow"},
	} {
		r := b.release(c.name, c.style, "x:new")
		r.change = c.change
		got := r.preflight()
		require.NotEmpty(t, got.Refusals, c.reason)
		require.Contains(t, got.Refusals[0].Reason, c.says, c.reason)
	}
	require.Zero(t, b.realWrites(), "a preflight writes nothing")
}

// A native update that has just been applied is no refusal: Begin reports it, waits for it, and starts from one stable
// revision.
func TestBegin_WaitsForNativeUpdate(t *testing.T) {
	b := newBench(t)
	b.deployment("web", 3, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"dev.slipway.io/behaviour": "slow",
			"dev.slipway.io/ready-after": "2s"}
	})
	b.settled(web(), 3)
	patch := []byte(
		`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}},"template":{"spec":{"containers":[{"name":"app","image":"x:applied"}]}}}}`)
	_, err := b.kube.AppsV1().Deployments(b.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, patch,
		metav1.PatchOptions{})
	require.NoError(t, err)
	r := b.release("web", strategy.StylePartition, "x:new")
	found := r.preflight()
	require.Empty(t, found.Refusals, "the update ends by itself")
	require.NotEmpty(t, found.Unsettled)
	require.Equal(t, int32(3), found.Replicas)
	req := rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(), Change: r.change,
		Unsettled: rollout.UnsettledReport}
	var reported, begun rollout.BeginResult
	require.NoError(t, r.call(activityBegin, req, &reported))
	require.NotEmpty(t, reported.Unsettled)
	require.Zero(t, b.realWrites(), "nothing was written")
	req.Unsettled = rollout.UnsettledWait
	require.NoError(t, r.call(activityBegin, req, &begun))
	require.NotEmpty(t, begun.Stable)
	require.Equal(t, 3, b.split("web")["x:applied"], "its own update ended before the claim")
}

// TestRecoverCommands finalises a workload with the commands from its annotation, using only a shell and kubectl.
func TestRecoverCommands(t *testing.T) {
	for _, c := range []struct {
		style strategy.Style
		to    string
	}{
		{strategy.StylePartition, "stable"}, {strategy.StylePartition, "new"}, {strategy.StyleCanary, "stable"},
		{strategy.StyleCanary, "new"},
		{strategy.StyleBlueGreen, "stable"}, {strategy.StyleBlueGreen, "new"},
	} {
		t.Run(string(c.style)+" to "+c.to, func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 4, own("25%", "0"))
			b.settled(web(), 4)
			before := b.state(web())
			r := b.release("web", c.style, "x:new")
			r.metadata = map[bool]*strategy.PodMetadata{
				true: {Labels: map[string]string{"lane": "gray"}}}[c.style == strategy.StyleCanary]
			r.begin()
			r.move(1, "50%")
			stop := b.watchFloor("web", 3, 8)
			d, err := b.kube.AppsV1().Deployments(b.namespace).Get(t.Context(), "web", metav1.GetOptions{})
			require.NoError(t, err)
			script := partOf(d.Annotations[rollout.AnnotationRecover], "# to the "+c.to+" version")
			shell := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
			bin := os.Getenv("SLIPWAY_TEST_BIN")
			shell.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"),
				"KUBECONFIG="+os.Getenv("SLIPWAY_TEST_KUBECONFIG"))
			out, err := shell.CombinedOutput()
			require.NoError(t, err, "%s\n%s", script, out)
			stop()
			b.requireFinalised(before, "web", map[string]string{"stable": "x:good", "new": "x:new"}[c.to], 4)
		})
	}
}

// partOf is the part of a text under one heading.
func partOf(text, head string) string {
	_, rest, _ := strings.Cut(text, head+"\n")
	part, _, _ := strings.Cut(rest, "\n# ")
	return part
}
