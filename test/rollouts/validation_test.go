package rollouts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	headBeta = "apiVersion: rollouts.kruise.io/v1beta1\nkind: Rollout\nspec:\n"
	refBeta  = headBeta + "  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: echo}\n  strategy: "
)

// beta returns a canary of a Deployment with these steps and trafficRoutings, in YAML flow style.
func beta(steps, routings string) string {
	return refBeta + fmt.Sprintf("{canary: {steps: %s, trafficRoutings: %s}}", steps, routings)
}

// extra returns a canary with an extra workload.
func extra(steps string) string {
	return refBeta + fmt.Sprintf("{canary: {enableExtraWorkloadForCanary: true, steps: %s}}", steps)
}

// blueGreen returns a blue-green of a Deployment.
func blueGreen(steps string) string {
	return refBeta + fmt.Sprintf("{blueGreen: {steps: %s}}", steps)
}

// rolloutOf returns a Rollout of this kind of workload with this strategy.
func rolloutOf(version, kind, strategy string) string {
	return headBeta + fmt.Sprintf("  workloadRef: {apiVersion: %s, kind: %s, name: echo}\n  strategy: {%s: {steps: "+
		"[{replicas: 1}]}}", version, kind, strategy)
}

const oneStep = "[{replicas: 1}]"

// Invalid v1beta1 objects are refused as in Kruise Rollouts, and similar valid ones are accepted.
func TestInvalidRollout_IsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, test := range map[string]struct {
		reason, text, says string
	}{
		"KindUnknown": {"pods of a Job can't be released", rolloutOf("batch/v1", "Job", "canary"),
			"this kind of workload can't be released"},
		"KindOfAnotherGroup": {"only the Deployment of group apps is supported",
			rolloutOf("example.org/v1", "Deployment", "canary"), "this kind of workload can't be released"},
		"KindDaemonSet": {"the kind is on the list", rolloutOf("apps/v1", "DaemonSet", "canary"), ""},
		"KindReplicaSet": {"the kind is on the list; a release of it is refused later",
			rolloutOf("apps/v1", "ReplicaSet", "canary"), ""},
		"KindCloneSet": {"the kind is on the list", rolloutOf("apps.kruise.io/v1alpha1", "CloneSet", "canary"),
			""},
		"KindAdvanced": {"both versions are on the list",
			rolloutOf("apps.kruise.io/v1beta1", "StatefulSet", "canary"), ""},
		"BlueGreenDeployment": {"the kind has surge", blueGreen(oneStep), ""},
		"BlueGreenCloneSet": {"the kind has surge", rolloutOf("apps.kruise.io/v1alpha1", "CloneSet", "blueGreen"),
			""},
		"BlueGreenStatefulSet": {"a StatefulSet has no surge", rolloutOf("apps/v1", "StatefulSet", "blueGreen"),
			"only a Deployment or a CloneSet can be released blue-green"},

		"NoSpec": {"the spec is missing", "apiVersion: rollouts.kruise.io/v1beta1\nkind: Rollout",
			"spec: Required value"},
		"NoWorkload": {"nothing to release", headBeta + "  strategy: {canary: {steps: [{replicas: 1}]}}",
			"spec.workloadRef: Required value"},
		"NoStrategy": {"neither strategy", refBeta + "{}", "there is no strategy: give canary or blueGreen"},
		"TwoStrategies": {"both strategies", refBeta +
			"{canary: {steps: [{replicas: 1}]}, blueGreen: {steps: [{replicas: 1}]}}",
			"there are two strategies: keep one"},
		"NoSteps":          {"steps absent", refBeta + "{canary: {}}", "there are no steps: give at least one"},
		"EmptySteps":       {"steps empty", beta("[]", "[]"), "there are no steps"},
		"BlueGreenNoSteps": {"steps empty", blueGreen("[]"), "there are no steps"},

		"ReplicasMissing": {"a step needs replicas", beta("[{traffic: 5%}]", "[]"), "replicas is missing"},
		"ReplicasMissingLater": {"every step needs replicas", beta("[{replicas: 1}, {pause: {}}]", "[]"),
			"replicas is missing"},
		"ReplicasZero": {"a step needs at least one pod", beta("[{replicas: 0}]", "[]"),
			"replicas must be a number above 0"},
		"ReplicasNegative": {"negative numbers are invalid", beta("[{replicas: -1}]", "[]"),
			"replicas must be a number above 0"},
		"ReplicasZeroPercent": {"a step needs at least one pod", beta("[{replicas: 0%}]", "[]"),
			"replicas must be a number above 0"},
		"ReplicasOverall": {"100% is the maximum", beta("[{replicas: 101%}]", "[]"),
			"replicas must be a number above 0"},
		"ReplicasNoPercent": {"a string needs a percent sign", beta(`[{replicas: "5"}]`, "[]"),
			"replicas must be a number above 0"},
		"ReplicasWords": {"the placeholder text of the documents", beta("[{replicas: 1 or 10%}]", "[]"),
			"replicas must be a number above 0"},
		"ReplicasMany": {"numbers have no maximum", beta("[{replicas: 100000}]", "[]"), ""},
		"ReplicasAll":  {"100% is allowed", beta("[{replicas: 1%}, {replicas: 100%}]", "[]"), ""},
		"BlueGreenReplicasZero": {"the same rule for both strategies", blueGreen("[{replicas: 0}]"),
			"replicas must be a number above 0"},
		"PartitionLimitTraffic": {"the old pods must be able to take all traffic back",
			beta("[{replicas: 51%, traffic: 10%}]", "[]"), "at most 50% of the pods"},
		"PartitionLimitMatches": {"the same for matches",
			beta("[{replicas: 60%, matches: [{headers: [{name: a, value: b}]}]}]", "[]"), "at most 50% of the pods"},
		"PartitionLimitEmpty": {"empty matches are no traffic", beta("[{replicas: 60%, matches: []}]", "[]"), ""},
		"PartitionLimitMet": {"50% is allowed", beta("[{replicas: 50%, traffic: 50%}, {replicas: 100%}]", "[]"),
			""},
		"PartitionLimitNumber": {"a number is not compared", beta("[{replicas: 99, traffic: 10%}]", "[]"), ""},
		"PartitionLimitExtra": {"an extra workload replaces no old pod", extra("[{replicas: 100%, traffic: 100%}]"),
			""},
		"PartitionLimitBlueGreen": {"blue-green replaces no old pod", blueGreen("[{replicas: 100%, traffic: 100%}]"),
			""},

		"TrafficZero": {"a canary step without traffic must omit the field", extra("[{replicas: 1, traffic: 0%}]"),
			`traffic must be a percentage from "1%" to "100%"`},
		"TrafficBare": {"a string needs a percent sign", extra(`[{replicas: 1, traffic: "20"}]`),
			`traffic must be a percentage from "1%"`},
		"TrafficOverall": {"100% is the maximum", extra("[{replicas: 1, traffic: 101%}]"),
			`traffic must be a percentage from "1%"`},
		"TrafficNumber": {"the field is a string", extra("[{replicas: 1, traffic: 20}]"), "must be of type string"},
		"TrafficBlueGreen": {"blue-green may keep all traffic on the old version",
			blueGreen("[{replicas: 100%, traffic: 0%}]"), ""},
		"TrafficBlueGreenOverall": {"100% is the maximum", blueGreen("[{replicas: 100%, traffic: 101%}]"),
			`traffic must be a percentage from "0%" to "100%"`},

		"Shrinks": {"percentages must not shrink", beta("[{replicas: 20%}, {replicas: 10%}]", "[]"),
			"replicas must not shrink"},
		"ShrinksNumbers": {"numbers must not shrink", beta("[{replicas: 1}, {replicas: 5}, {replicas: 3}]", "[]"),
			"replicas must not shrink"},
		"ShrinksBlueGreen": {"the same rule for both strategies", blueGreen("[{replicas: 20%}, {replicas: 10%}]"),
			"replicas must not shrink"},
		"ShrinksMixed": {"a number and a percentage are not compared",
			beta("[{replicas: 5}, {replicas: 10%}, {replicas: 1}]", "[]"), ""},
		"Equal": {"steps may have the same number of pods", beta("[{replicas: 20%}, {replicas: 20%}]", "[]"),
			""},
		"ShrinksLast": {"the last of 50 steps",
			beta("["+strings.Repeat("{replicas: 5}, ", 49)+"{replicas: 4}]", "[]"), "replicas must not shrink"},
		"StepsMost": {"50 steps are allowed",
			beta("["+strings.Repeat("{replicas: 5}, ", 49)+"{replicas: 5}]", "[]"), ""},
		"StepsTooMany": {"51 steps are too many",
			beta("["+strings.Repeat("{replicas: 5}, ", 50)+"{replicas: 5}]", "[]"), "must have at most 50 items"},

		"RoutingTwo": {"Kruise Rollouts accepts only one entry, although its documents have several; Slipway applies all",
			beta(oneStep, "[{service: a, ingress: {name: a}}, {service: b, gateway: {httpRouteName: b}}]"), ""},
		"RoutingGrace": {"a time cannot be negative",
			beta(oneStep, "[{service: a, gracePeriodSeconds: -1, ingress: {name: a}}]"),
			"gracePeriodSeconds must not be negative"},
		"RoutingNow": {"0 is allowed", beta(oneStep,
			"[{service: a, gracePeriodSeconds: 0, ingress: {name: a}}]"), ""},
		"RoutingService": {"a Service is required", beta(oneStep, `[{service: "", ingress: {name: a}}]`),
			"service is empty"},
		"RoutingNoService": {"a Service is required", beta(oneStep, `[{ingress: {name: a}}]`),
			"service: Required value"},
		"RoutingNothing": {"a provider is required", beta(oneStep, "[{service: a}]"),
			"doesn't say what routes to the Service"},
		"RoutingIngress": {"the provider needs a name", beta(oneStep, `[{service: a, ingress: {name: ""}}]`),
			"the name of the Ingress is empty"},
		"RoutingGateway": {"the provider needs a name", beta(oneStep, `[{service: a, gateway: {}}]`),
			"httpRouteName is missing"},
		"RoutingGatewayEmpty": {"the provider needs a name",
			beta(oneStep, `[{service: a, gateway: {httpRouteName: ""}}]`), "httpRouteName is missing"},
		"RoutingComposite": {"all three providers may be given at once",
			beta(oneStep, "[{service: a, ingress: {name: a}, gateway: {httpRouteName: b}, customNetworkRefs: "+
				"[{apiVersion: v1, kind: K, name: mesh}]}]"), ""},
		"RoutingBlueGreen": {"the same rules for both strategies",
			refBeta + "{blueGreen: {steps: [{replicas: 1}], trafficRoutings: [{service: a}]}}",
			"doesn't say what routes to the Service"},

		"PauseNone":    {"waits for an approval", beta("[{replicas: 1, pause: {}}]", "[]"), ""},
		"PauseSeconds": {"a pause in seconds", beta("[{replicas: 1, pause: {duration: 7200}}]", "[]"), ""},
		"PauseEmpty":   {"as in the documents", beta("[{replicas: 1, pause: {duration: {}}}]", "[]"), ""},
		"PauseNegative": {"accepted: the pause counts as ended", beta("[{replicas: 1, pause: {duration: -1}}]", "[]"),
			""},
		"PauseText": {"the duration is a number of seconds", beta("[{replicas: 1, pause: {duration: 5m}}]", "[]"),
			"a number of seconds"},
		"PausePart": {"the duration is in whole seconds", beta("[{replicas: 1, pause: {duration: 1.5}}]", "[]"),
			"duration"},
		"PauseTruth": {"the duration is a number of seconds", beta("[{replicas: 1, pause: {duration: true}}]", "[]"),
			"duration"},
		"PauseList": {"the duration is a number of seconds", beta("[{replicas: 1, pause: {duration: []}}]", "[]"),
			"duration"},
		"PauseObject": {"the duration is a number of seconds",
			beta("[{replicas: 1, pause: {duration: {seconds: 5}}}]", "[]"), "duration"},
		"PauseLong": {"the duration has 32 bits", beta("[{replicas: 1, pause: {duration: 2147483648}}]", "[]"),
			"duration"},
		"Regex": {"accepted: an expression is parsed when it is used",
			extra("[{replicas: 1, matches: [{headers: [{type: RegularExpression, name: a, value: '('}]}]}]"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.beta().Create(testContext(t), c.parse(t, test.text), dryRun)
			requireVerdict(t, err, test.says, test.reason)
		})
	}
}

// Some fields are immutable during a release and during the deletion of a Rollout.
func TestFields_AreImmutableDuringRelease(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, test := range map[string]struct {
		reason, patch, says string
	}{
		"Workload": {"a release keeps its workload", `{"spec":{"workloadRef":{"name":"other"}}}`,
			"workloadRef can't change while a release is under way"},
		"Style": {"the styles have different pods",
			`{"spec":{"strategy":{"canary":{"enableExtraWorkloadForCanary":true}}}}`, "the style"},
		"BlueGreen": {"a canary cannot become a blue-green",
			`{"spec":{"strategy":{"canary":null,"blueGreen":{"steps":[{"replicas":1},{"replicas":2}]}}}}`, "the style"},
		"Routings": {"the release must restore the borrowed routes",
			`{"spec":{"strategy":{"canary":{"trafficRoutings":[{"service":"b","ingress":{"name":"b"}}]}}}}`,
			"trafficRoutings can't change"},
		"RoutingsGone": {"a removal is a change", `{"spec":{"strategy":{"canary":{"trafficRoutings":null}}}}`,
			"trafficRoutings can't change"},
		"Steps": {"the number of steps is fixed", `{"spec":{"strategy":{"canary":{"steps":[{"replicas":1}]}}}}`,
			"the number of steps can't change"},
		"StepsEdited": {"the contents of steps may change",
			`{"spec":{"strategy":{"canary":{"steps":[{"replicas":2},{"replicas":3}]}}}}`, ""},
		"Paused":   {"a release may be paused", `{"spec":{"strategy":{"paused":true}}}`, ""},
		"Disabled": {"a Rollout may be disabled", `{"spec":{"disabled":true}}`, ""},
		"Labels":   {"metadata may always change", `{"metadata":{"labels":{"a":"b"}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := beta("[{replicas: 1}, {replicas: 2}]", "[{service: a, ingress: {name: a}}]")
			for _, phase := range []string{"Progressing", "Terminating", "Healthy", "Disabled"} {
				stored, err := c.beta().Create(testContext(t), c.parseOwn(t, text), metav1.CreateOptions{})
				require.NoError(t, err)
				c.setStatus(t, stored, fmt.Sprintf(`{"status":{"phase":%q}}`, phase))
				_, err = c.beta().Patch(testContext(t), stored.GetName(), types.MergePatchType, []byte(test.patch),
					metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				if phase == "Progressing" || phase == "Terminating" {
					requireVerdict(t, err, test.says, test.reason+" in phase "+phase)
				} else {
					require.NoError(t, err, "in phase %s every field may change", phase)
				}
			}
		})
	}
}

func (c cluster) setStatus(t *testing.T, of *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	out, err := c.objects.Resource(of.GroupVersionKind().GroupVersion().WithResource("rollouts")).Namespace(
		c.namespace).Patch(testContext(t), of.GetName(),
		types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	return out
}

// The status can be written completely by the engine and partly by clients; the rules of the spec do not prevent it.
func TestStatus_CanBeWrittenAndPatched(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	stored, err := c.beta().Create(testContext(t), c.parseOwn(t, beta("[{replicas: 1}, {replicas: 2}]", "[]")),
		metav1.CreateOptions{})
	require.NoError(t, err)
	c.setStatus(t, stored,
		`{"status":{"phase":"Progressing","currentStepIndex":1,"currentStepState":"StepPaused","conditions":[{"type":"Progressing",
		"status":"True","reason":"InRolling","message":"","lastUpdateTime":"2026-01-03T09:20:29Z"}],"canaryStatus":{"currentStepState":"StepPaused",
		"currentStepIndex":1,"nextStepIndex":2,"podTemplateHash":"76fd76f75b","canaryReplicas":1,"canaryReadyReplicas":1},"slipway":{"seq":4,"gate":"g"}}}`)
	approved := c.setStatus(t, stored, `{"status":{"canaryStatus":{"currentStepState":"StepReady"}}}`)
	state, _, _ := unstructured.NestedString(approved.Object, "status", "canaryStatus", "currentStepState")
	require.Equal(t, "StepReady", state, "the approval of kubectl kruise is a merge patch of one field")
	seq, _, _ := unstructured.NestedInt64(approved.Object, "status", "slipway", "seq")
	require.EqualValues(t, 4, seq, "the patch keeps the fields of the engine")
}

// Clients read back the defaults.
func TestDefaults_AreStored(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	text := beta("[{replicas: 1, matches: [{path: {}, headers: [{name: a, value: b}]}]}]",
		"[{service: a, ingress: {name: a}}]")
	stored, err := c.beta().Create(testContext(t), c.parse(t, text), dryRun)
	require.NoError(t, err)
	want := c.parse(t, headBeta+`
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: echo}
  disabled: false
  strategy:
    canary:
      steps: [{replicas: 1, matches: [{path: {type: PathPrefix, value: /}, headers: [{type: Exact, name: a, value: b}]}]}]
      trafficRoutings: [{service: a, gracePeriodSeconds: 3, ingress: {classType: nginx, name: a}}]`)
	require.Equal(t, want.Object["spec"], stored.Object["spec"])
}
