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
	claims "slipway.io/slipway/release/workloadops"
)

var webWorkload = catalog.Workload{Namespace: "shop",
	WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}

// leftSaved is what a canary with an Ingress has saved.
func leftSaved() rollout.Saved {
	return rollout.Saved{Name: "web", WorkflowID: "rollout/default/shop/web", Claim: "rollout/default/shop/web@run-1",
		Style:  strategy.StylePartition,
		Stable: "6d9c", Canary: "5f7b", StableTemplate: "digest", Replicas: 10,
		Routings: []strategy.Routing{{Service: "web", GraceSeconds: 3, Ingress: &strategy.IngressRef{Class: "nginx", Name: "web"}}}}
}

// leftOn is a Deployment with these annotations.
func leftOn(annotations map[string]any) *tools {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "namespace": "shop", "annotations": annotations,
			"labels": map[string]any{claims.LabelRollout: "true"}},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{}}}}}}
	return &tools{objects: fake.NewSimpleDynamicClient(runtime.NewScheme(), object), close: func() {}}
}

// recorded are hands that note what they are asked and answer by a script.
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

// session is what a repair printed, and how long it waited between its attempts.
type session struct {
	out, errs bytes.Buffer
	pauses    []time.Duration
}

// repaired runs a repair of what is left, with these hands and this standard input.
func repaired(t *testing.T, tools *tools, h *recorded, input string, o options) (*session, error) {
	t.Helper()
	s := &session{}
	a := &app.App{In: strings.NewReader(input), Out: &s.out, Err: &s.errs}
	tools.hands = h
	o.timeout, o.engine = time.Minute, cmp.Or(o.engine, "slipway")
	now := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	a.Now = func() time.Time { return now }
	a.Wait = func(_ context.Context, d time.Duration) { s.pauses, now = append(s.pauses, d), now.Add(d) }
	return s, repair(t.Context(), a, tools, webWorkload, o)
}

var backOrder = []string{"begin", "RouteTrafficToStable", "ResumeWorkload to stable", "RestoreStableService",
	"RemoveCanaryService", "ReleaseWorkloadControl to stable"}

func TestRepairGoesInTheOrderOfFinalising(t *testing.T) {
	t.Parallel()
	h := &recorded{answers: map[string][]error{"ResumeWorkload to stable": {
		&failure.Error{Kind: failure.NotReady, Message: "3 of 10 pods are ready", RetryAfter: 2 * time.Second},
		&failure.Error{Kind: failure.NotReady, Message: "3 of 10 pods are ready", RetryAfter: 2 * time.Second},
	}}}
	tools := leftOn(map[string]any{rollout.AnnotationSaved: leftSaved().String(),
		claims.AnnotationClaimedBy: "rollout/default/shop/web@run-1"})
	s, err := repaired(t, tools, h, "", options{to: "stable", yes: true})
	require.NoError(t, err)
	want := append(append([]string{}, backOrder[:3]...),
		append([]string{"ResumeWorkload to stable", "ResumeWorkload to stable"}, backOrder[3:]...)...)
	require.Equal(t, want, h.calls, "the order of a rollback, and what is not ready is asked again")
	for _, claim := range h.claims {
		require.Equal(t, "rollout/default/shop/web@run-1", claim, "it acts under the claim that stands there")
	}
	require.Equal(t, `Deployment shop/web carries rollout web (partition): stable revision 6d9c, new revision 5f7b
workflow rollout/default/shop/web holds it
to bring it home to the stable version:
  1. give the routes back what was borrowed
  2. give the workload its settings back and wait until every pod is of the stable version and ready
  3. give the stable Service its own selector back
  4. remove the canary Service
  5. take away what is left of the rollout: extra workload, borrowed autoscalers, annotations, claim
1 of 5: give the routes back what was borrowed
2 of 5: give the workload its settings back and wait until every pod is of the stable version and ready
  3 of 10 pods are ready
3 of 5: give the stable Service its own selector back
4 of 5: remove the canary Service
5 of 5: take away what is left of the rollout: extra workload, borrowed autoscalers, annotations, claim
Deployment shop/web is whole, of the stable version; nothing of the rollout is left on it
`, s.out.String())
	object, err := tools.objects.Resource(resourceOf(webWorkload.WorkloadRef)).Namespace("shop").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, object.GetAnnotations()[rollout.AnnotationRepair], "it is taken over first; these hands never give it back")
	require.Equal(t, []time.Duration{3 * time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}, s.pauses,
		"whatever follows a change of the routes waits until it has taken effect")
	require.Contains(t, s.errs.String(), "stop it first: slipway rollout stop shop/web", "a living engine would be surprised")
}

func TestRepairOfAnUnclaimedSplit(t *testing.T) {
	t.Parallel()
	h := &recorded{}
	_, err := repaired(t, leftOn(map[string]any{rollout.AnnotationSaved: leftSaved().String()}), h, "y\n", options{to: "stable"})
	require.NoError(t, err)
	require.Equal(t, "rollout/default/shop/web@run-1", h.claims[0], "what routes to a frozen split is still held by its claim")
	require.Equal(t, backOrder, h.calls)
}

func TestRepairThatDoesNothing(t *testing.T) {
	t.Parallel()
	carrying := map[string]any{rollout.AnnotationSaved: leftSaved().String()}
	cases := map[string]struct {
		reason      string
		annotations map[string]any
		input       string
		options     options
		code        int
		says        string
	}{
		"Nothing": {"A workload without a rollout is left alone.", nil, "", options{to: "stable", yes: true}, app.ExitStopped,
			"carries nothing of a rollout"},
		"Other": {"A plan's operation is not a rollout.", map[string]any{claims.AnnotationClaimedBy: "task/x/1-2@r"}, "",
			options{to: "stable", yes: true}, app.ExitStopped, "held by task/x/1-2, which is no rollout"},
		"OtherEngine": {"Another engine's release may be live, and this one cannot know.", map[string]any{rollout.AnnotationSaved: leftSaved().String(),
			claims.AnnotationClaimedBy: "rollout/default/shop/web@run-1@blue/uid-b"}, "", options{to: "stable", yes: true}, app.ExitFailure,
			"is one of engine blue, not of engine slipway: stop it there; if nothing of that engine works on it any more, name it with --engine blue"},
		"OtherEngineFrozen": {"Nor what it has left frozen.", map[string]any{rollout.AnnotationSaved: strings.Replace(leftSaved().String(), "@run-1", "@run-1@blue/uid-b", 1)},
			"", options{to: "stable", yes: true}, app.ExitFailure, "is one of engine blue"},
		"OtherRollout": {"A rollout of another name is named.", map[string]any{rollout.AnnotationSaved: strings.Replace(leftSaved().String(), `"web"`, `"web-v2"`, 1)},
			"", options{to: "stable", yes: true}, app.ExitFailure, "the rollout on it is called web-v2, not web: if you mean that one, name it with --rollout web-v2"},
		"Forged": {"A tenant's own patch is not followed.", map[string]any{rollout.AnnotationSaved: strings.Replace(leftSaved().String(), `"style"`,
			`"settings":{"/spec/template":{}},"style"`, 1)}, "", options{to: "stable", yes: true}, app.ExitFailure,
			"somebody has added /spec/template, which no rollout of a Deployment borrows"},
		"DryRun":   {"A dry run only says it.", carrying, "", options{to: "stable", dryRun: true}, app.ExitOK, ""},
		"No":       {"Who says no is believed.", carrying, "n\n", options{to: "stable"}, app.ExitFailure, ""},
		"NoAnswer": {"A pipe that says nothing has not agreed.", carrying, "", options{to: "stable"}, app.ExitFailure, ""},
		"Malformed": {"What cannot be read is not guessed at.", map[string]any{rollout.AnnotationSaved: "{"}, "",
			options{to: "stable", yes: true}, app.ExitFailure, "cannot be read"},
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

func TestRepairOfWhatIsNamed(t *testing.T) {
	t.Parallel()
	for reason, o := range map[string]options{
		"its engine is named":      {to: "stable", yes: true, engine: "blue", rollout: "web-v2"},
		"it is asked on a dry run": {to: "stable", dryRun: true, engine: "blue", rollout: "web-v2"},
	} {
		_, err := repaired(t, leftOn(map[string]any{rollout.AnnotationSaved: strings.Replace(leftSaved().String(), `"web"`, `"web-v2"`, 1),
			claims.AnnotationClaimedBy: "rollout/default/shop/web-v2@run-1@blue/uid-b"}), &recorded{}, "", o)
		require.NoError(t, err, reason)
	}
}

func TestRepairEndsAtWhatAPersonMustDecide(t *testing.T) {
	t.Parallel()
	h := &recorded{answers: map[string][]error{"ResumeWorkload to stable": {failure.New(failure.WorkloadFailed,
		"pod web-1: ImagePullBackOff")}}}
	_, err := repaired(t, leftOn(map[string]any{rollout.AnnotationSaved: leftSaved().String()}), h, "", options{to: "stable", yes: true})
	require.EqualError(t, err, "pod web-1: ImagePullBackOff")
	require.Equal(t, backOrder[:3], h.calls, "nothing further is done")
}

// What an undo has brought back of a release that is over is nobody's operation, and nothing to be brought home.
func TestCopiesThatAnUndoHasBroughtBackAreNotRepaired(t *testing.T) {
	t.Parallel()
	api := leftOn(map[string]any{rollout.AnnotationSaved: leftSaved().String(), claims.AnnotationClaimedBy: leftSaved().Claim})
	object, err := api.objects.Resource(resourceOf(webWorkload.WorkloadRef)).Namespace("shop").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	object.SetLabels(map[string]string{claims.LabelRollout: rollout.Saved{Claim: "rollout/default/shop/web@run-2"}.Mark()})
	_, err = api.objects.Resource(resourceOf(webWorkload.WorkloadRef)).Namespace("shop").Update(t.Context(), object, metav1.UpdateOptions{})
	require.NoError(t, err)
	h := &recorded{}
	_, err = repaired(t, api, h, "", options{to: "stable", yes: true})
	require.ErrorContains(t, err, "which kubectl rollout undo has brought back")
	require.Empty(t, h.calls)
}

// TestEditedSince warns of the edit of somebody else, and of nothing else.
func TestEditedSince(t *testing.T) {
	t.Parallel()
	podsOf := func(image string) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": image}}}}
	}
	canary := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{"name": "web-5f7b", "namespace": "shop"}, "spec": map[string]any{"template": podsOf("web:2")}}}
	api := fake.NewSimpleDynamicClient(runtime.NewScheme(), canary)
	ours, theirs := pods.Digest(podsOf("web:2")), pods.Digest(podsOf("web:3"))
	for _, c := range []struct {
		reason, rest, live, canary string
		want                       bool
	}{
		{"it rests with another template", rollout.Rest{Template: ours}.String(), theirs, "5f7b", true},
		{"it rests as the rollout left it", rollout.Rest{Template: ours}.String(), ours, "5f7b", false},
		{"it is the stable one", rollout.Rest{Template: ours}.String(), "digest", "5f7b", false},
		{"its pods move, and are of the new version", rollout.Rest{GateSeen: 4}.String(), ours, "5f7b", false},
		{"somebody has edited it while pods moved", rollout.Rest{GateSeen: 4}.String(), theirs, "5f7b", true},
		{"an edit was stopped on the way home", rollout.Rest{Surge: 1}.String(), theirs, "5f7b", true},
		{"the revision that it should be of is not there", rollout.Rest{}.String(), ours, "7c9d", true},
		{"its first write has just been made", rollout.Rest{GateSeen: 4}.String(), ours, "", false},
		{"an edit was stopped before the first pod came", rollout.Rest{}.String(), theirs, "", true},
		{"nothing is noted", "", ours, "5f7b", false},
	} {
		l := left{workload: webWorkload, saved: leftSaved(), template: c.live}
		l.saved.Canary = c.canary
		require.Equal(t, c.want, l.editedSince(t.Context(), api, c.rest), c.reason)
	}
}
