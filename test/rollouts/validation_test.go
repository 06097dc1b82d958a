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

// beta is a canary of a Deployment with these steps and trafficRoutings, in flow style.
func beta(steps, routings string) string {
	return refBeta + fmt.Sprintf("{canary: {steps: %s, trafficRoutings: %s}}", steps, routings)
}

// extra is beta with an extra workload, blueGreen the same released blue-green.
func extra(steps string) string {
	return refBeta + fmt.Sprintf("{canary: {enableExtraWorkloadForCanary: true, steps: %s}}", steps)
}

func blueGreen(steps string) string {
	return refBeta + fmt.Sprintf("{blueGreen: {steps: %s}}", steps)
}

// of is a canary of another kind of workload.
func of(version, kind, strategy string) string {
	return headBeta + fmt.Sprintf("  workloadRef: {apiVersion: %s, kind: %s, name: echo}\n  strategy: {%s: {steps: [{replicas: 1}]}}", version, kind, strategy)
}

const oneStep = "[{replicas: 1}]"

// What Kruise Rollouts refuses, line by line, and what it takes although it looks alike.
func TestAWrongRolloutIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, test := range map[string]struct {
		reason, text, says string
	}{
		"KindUnknown":          {"pods of a Job can't be released", of("batch/v1", "Job", "canary"), "this kind of workload can't be released"},
		"KindOfAnotherGroup":   {"a Deployment is one of apps", of("example.org/v1", "Deployment", "canary"), "this kind of workload can't be released"},
		"KindDaemonSet":        {"the list of kinds", of("apps/v1", "DaemonSet", "canary"), ""},
		"KindReplicaSet":       {"the list has it: that nothing is done with it is said when a release begins", of("apps/v1", "ReplicaSet", "canary"), ""},
		"KindCloneSet":         {"the list of kinds", of("apps.kruise.io/v1alpha1", "CloneSet", "canary"), ""},
		"KindAdvanced":         {"both versions are known", of("apps.kruise.io/v1beta1", "StatefulSet", "canary"), ""},
		"BlueGreenDeployment":  {"a kind that has surge", blueGreen(oneStep), ""},
		"BlueGreenCloneSet":    {"a kind that has surge", of("apps.kruise.io/v1alpha1", "CloneSet", "blueGreen"), ""},
		"BlueGreenStatefulSet": {"a StatefulSet has no surge", of("apps/v1", "StatefulSet", "blueGreen"), "only a Deployment or a CloneSet can be released blue-green"},

		"NoSpec":     {"nothing is asked", "apiVersion: rollouts.kruise.io/v1beta1\nkind: Rollout", "spec: Required value"},
		"NoWorkload": {"nothing to release", headBeta + "  strategy: {canary: {steps: [{replicas: 1}]}}", "spec.workloadRef: Required value"},
		"NoStrategy": {"neither of both", refBeta + "{}", "there is no strategy: give canary or blueGreen"},
		"TwoStrategies": {"both", refBeta + "{canary: {steps: [{replicas: 1}]}, blueGreen: {steps: [{replicas: 1}]}}",
			"there are two strategies: keep one"},
		"NoSteps":          {"steps absent", refBeta + "{canary: {}}", "there are no steps: give at least one"},
		"EmptySteps":       {"steps empty", beta("[]", "[]"), "there are no steps"},
		"BlueGreenNoSteps": {"steps empty", blueGreen("[]"), "there are no steps"},

		"ReplicasMissing":         {"a step has to say how many", beta("[{traffic: 5%}]", "[]"), "replicas is missing"},
		"ReplicasMissingLater":    {"every step", beta("[{replicas: 1}, {pause: {}}]", "[]"), "replicas is missing"},
		"ReplicasZero":            {"no pod is no step", beta("[{replicas: 0}]", "[]"), "replicas must be a number above 0"},
		"ReplicasNegative":        {"less than none", beta("[{replicas: -1}]", "[]"), "replicas must be a number above 0"},
		"ReplicasZeroPercent":     {"no pod is no step", beta("[{replicas: 0%}]", "[]"), "replicas must be a number above 0"},
		"ReplicasOverall":         {"there are no more pods than all", beta("[{replicas: 101%}]", "[]"), "replicas must be a number above 0"},
		"ReplicasNoPercent":       {"a text without the sign", beta(`[{replicas: "5"}]`, "[]"), "replicas must be a number above 0"},
		"ReplicasWords":           {"the text of the documents that stands for either", beta("[{replicas: 1 or 10%}]", "[]"), "replicas must be a number above 0"},
		"ReplicasMany":            {"numbers have no limit", beta("[{replicas: 100000}]", "[]"), ""},
		"ReplicasAll":             {"the most", beta("[{replicas: 1%}, {replicas: 100%}]", "[]"), ""},
		"BlueGreenReplicasZero":   {"the same rule for both strategies", blueGreen("[{replicas: 0}]"), "replicas must be a number above 0"},
		"PartitionLimitTraffic":   {"the old pods may get all traffic back", beta("[{replicas: 51%, traffic: 10%}]", "[]"), "at most 50% of the pods"},
		"PartitionLimitMatches":   {"the same for matches", beta("[{replicas: 60%, matches: [{headers: [{name: a, value: b}]}]}]", "[]"), "at most 50% of the pods"},
		"PartitionLimitEmpty":     {"no matches, no traffic", beta("[{replicas: 60%, matches: []}]", "[]"), ""},
		"PartitionLimitMet":       {"half of them are enough", beta("[{replicas: 50%, traffic: 50%}, {replicas: 100%}]", "[]"), ""},
		"PartitionLimitNumber":    {"a number isn't compared", beta("[{replicas: 99, traffic: 10%}]", "[]"), ""},
		"PartitionLimitExtra":     {"an extra workload takes no old pod", extra("[{replicas: 100%, traffic: 100%}]"), ""},
		"PartitionLimitBlueGreen": {"blue-green takes no old pod", blueGreen("[{replicas: 100%, traffic: 100%}]"), ""},

		"TrafficZero":      {"a step of a canary without traffic says none", extra("[{replicas: 1, traffic: 0%}]"), `traffic must be a percentage from "1%" to "100%"`},
		"TrafficBare":      {"a text without the sign", extra(`[{replicas: 1, traffic: "20"}]`), `traffic must be a percentage from "1%"`},
		"TrafficOverall":   {"there is no more than all", extra("[{replicas: 1, traffic: 101%}]"), `traffic must be a percentage from "1%"`},
		"TrafficNumber":    {"the documents have a text", extra("[{replicas: 1, traffic: 20}]"), "must be of type string"},
		"TrafficBlueGreen": {"blue-green may keep all traffic on the old version", blueGreen("[{replicas: 100%, traffic: 0%}]"), ""},
		"TrafficBlueGreenOverall": {"there is no more than all", blueGreen("[{replicas: 100%, traffic: 101%}]"),
			`traffic must be a percentage from "0%" to "100%"`},

		"Shrinks":          {"steps go forward", beta("[{replicas: 20%}, {replicas: 10%}]", "[]"), "replicas must not shrink"},
		"ShrinksNumbers":   {"numbers too", beta("[{replicas: 1}, {replicas: 5}, {replicas: 3}]", "[]"), "replicas must not shrink"},
		"ShrinksBlueGreen": {"the same rule for both strategies", blueGreen("[{replicas: 20%}, {replicas: 10%}]"), "replicas must not shrink"},
		"ShrinksMixed":     {"a number and a share aren't compared", beta("[{replicas: 5}, {replicas: 10%}, {replicas: 1}]", "[]"), ""},
		"Equal":            {"several steps on the same pods", beta("[{replicas: 20%}, {replicas: 20%}]", "[]"), ""},
		"ShrinksLast":      {"the last of the most steps", beta("["+strings.Repeat("{replicas: 5}, ", 49)+"{replicas: 4}]", "[]"), "replicas must not shrink"},
		"StepsMost":        {"as many steps as there may be", beta("["+strings.Repeat("{replicas: 5}, ", 49)+"{replicas: 5}]", "[]"), ""},
		"StepsTooMany":     {"one more", beta("["+strings.Repeat("{replicas: 5}, ", 50)+"{replicas: 5}]", "[]"), "must have at most 50 items"},

		"RoutingTwo": {"Kruise Rollouts takes one entry, and prints several: all of them are applied here",
			beta(oneStep, "[{service: a, ingress: {name: a}}, {service: b, gateway: {httpRouteName: b}}]"), ""},
		"RoutingGrace":        {"time doesn't go back", beta(oneStep, "[{service: a, gracePeriodSeconds: -1, ingress: {name: a}}]"), "gracePeriodSeconds must not be negative"},
		"RoutingNow":          {"0 is legal", beta(oneStep, "[{service: a, gracePeriodSeconds: 0, ingress: {name: a}}]"), ""},
		"RoutingService":      {"whose traffic", beta(oneStep, `[{service: "", ingress: {name: a}}]`), "service is empty"},
		"RoutingNoService":    {"whose traffic", beta(oneStep, `[{ingress: {name: a}}]`), "service: Required value"},
		"RoutingNothing":      {"by what", beta(oneStep, "[{service: a}]"), "doesn't say what routes to the Service"},
		"RoutingIngress":      {"by which", beta(oneStep, `[{service: a, ingress: {name: ""}}]`), "the name of the Ingress is empty"},
		"RoutingGateway":      {"by which", beta(oneStep, `[{service: a, gateway: {}}]`), "httpRouteName is missing"},
		"RoutingGatewayEmpty": {"by which", beta(oneStep, `[{service: a, gateway: {httpRouteName: ""}}]`), "httpRouteName is missing"},
		"RoutingComposite": {"all three providers may be given at once",
			beta(oneStep, "[{service: a, ingress: {name: a}, gateway: {httpRouteName: b}, customNetworkRefs: [{apiVersion: v1, kind: K, name: mesh}]}]"), ""},
		"RoutingBlueGreen": {"the same rules for both strategies", refBeta + "{blueGreen: {steps: [{replicas: 1}], trafficRoutings: [{service: a}]}}",
			"doesn't say what routes to the Service"},

		"PauseNone":     {"waits for a person", beta("[{replicas: 1, pause: {}}]", "[]"), ""},
		"PauseSeconds":  {"a time", beta("[{replicas: 1, pause: {duration: 7200}}]", "[]"), ""},
		"PauseEmpty":    {"as the documents print it", beta("[{replicas: 1, pause: {duration: {}}}]", "[]"), ""},
		"PauseNegative": {"one of the holes: it counts as over", beta("[{replicas: 1, pause: {duration: -1}}]", "[]"), ""},
		"PauseText":     {"seconds are a number", beta("[{replicas: 1, pause: {duration: 5m}}]", "[]"), "a number of seconds"},
		"PausePart":     {"whole seconds", beta("[{replicas: 1, pause: {duration: 1.5}}]", "[]"), "duration"},
		"PauseTruth":    {"seconds are a number", beta("[{replicas: 1, pause: {duration: true}}]", "[]"), "duration"},
		"PauseList":     {"seconds are a number", beta("[{replicas: 1, pause: {duration: []}}]", "[]"), "duration"},
		"PauseObject":   {"seconds are a number", beta("[{replicas: 1, pause: {duration: {seconds: 5}}}]", "[]"), "duration"},
		"PauseLong":     {"a number of 32 bits", beta("[{replicas: 1, pause: {duration: 2147483648}}]", "[]"), "duration"},
		"Regex": {"one of the holes: an expression is read when it is used",
			extra("[{replicas: 1, matches: [{headers: [{type: RegularExpression, name: a, value: '('}]}]}]"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.beta().Create(testContext(t), c.parse(t, test.text), dryRun)
			requireVerdict(t, err, test.says, test.reason)
		})
	}
}

// In the middle of a release, and while a Rollout is deleted, some fields are fixed.
func TestWhatCannotChangeInMidRelease(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, test := range map[string]struct {
		reason, patch, says string
	}{
		"Workload":  {"a release stays with its workload", `{"spec":{"workloadRef":{"name":"other"}}}`, "workloadRef can't change while a release is under way"},
		"Style":     {"the pods of one style aren't those of another", `{"spec":{"strategy":{"canary":{"enableExtraWorkloadForCanary":true}}}}`, "the style"},
		"BlueGreen": {"nor blue-green", `{"spec":{"strategy":{"canary":null,"blueGreen":{"steps":[{"replicas":1},{"replicas":2}]}}}}`, "the style"},
		"Routings": {"what is borrowed has to be given back", `{"spec":{"strategy":{"canary":{"trafficRoutings":[{"service":"b","ingress":{"name":"b"}}]}}}}`,
			"trafficRoutings can't change"},
		"RoutingsGone": {"taking all of them away is a change", `{"spec":{"strategy":{"canary":{"trafficRoutings":null}}}}`, "trafficRoutings can't change"},
		"Steps":        {"the number of steps", `{"spec":{"strategy":{"canary":{"steps":[{"replicas":1}]}}}}`, "the number of steps can't change"},
		"StepsEdited":  {"what is in the steps may change", `{"spec":{"strategy":{"canary":{"steps":[{"replicas":2},{"replicas":3}]}}}}`, ""},
		"Paused":       {"a release may be held", `{"spec":{"strategy":{"paused":true}}}`, ""},
		"Disabled":     {"a workload may be let go", `{"spec":{"disabled":true}}`, ""},
		"Labels":       {"metadata is nobody's matter", `{"metadata":{"labels":{"a":"b"}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := beta("[{replicas: 1}, {replicas: 2}]", "[{service: a, ingress: {name: a}}]")
			for _, phase := range []string{"Progressing", "Terminating", "Healthy", "Disabled"} {
				stored, err := c.beta().Create(testContext(t), c.parseOwn(t, text), metav1.CreateOptions{})
				require.NoError(t, err)
				c.setStatus(t, stored, fmt.Sprintf(`{"status":{"phase":%q}}`, phase))
				_, err = c.beta().Patch(testContext(t), stored.GetName(), types.MergePatchType, []byte(test.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				if phase == "Progressing" || phase == "Terminating" {
					requireVerdict(t, err, test.says, test.reason+" in phase "+phase)
				} else {
					require.NoError(t, err, "in phase %s everything may change", phase)
				}
			}
		})
	}
}

func (c cluster) setStatus(t *testing.T, of *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	out, err := c.objects.Resource(of.GroupVersionKind().GroupVersion().WithResource("rollouts")).Namespace(c.namespace).Patch(testContext(t), of.GetName(),
		types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	return out
}

// The status is written as a whole, and by clients in part; the rules of the spec never stand in its way.
func TestTheStatusIsWritten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	stored, err := c.beta().Create(testContext(t), c.parseOwn(t, beta("[{replicas: 1}, {replicas: 2}]", "[]")), metav1.CreateOptions{})
	require.NoError(t, err)
	c.setStatus(t, stored, `{"status":{"phase":"Progressing","currentStepIndex":1,"currentStepState":"StepPaused","conditions":[{"type":"Progressing",
		"status":"True","reason":"InRolling","message":"","lastUpdateTime":"2026-01-03T09:20:29Z"}],"canaryStatus":{"currentStepState":"StepPaused",
		"currentStepIndex":1,"nextStepIndex":2,"podTemplateHash":"76fd76f75b","canaryReplicas":1,"canaryReadyReplicas":1},"slipway":{"seq":4,"gate":"g"}}}`)
	approved := c.setStatus(t, stored, `{"status":{"canaryStatus":{"currentStepState":"StepReady"}}}`)
	state, _, _ := unstructured.NestedString(approved.Object, "status", "canaryStatus", "currentStepState")
	require.Equal(t, "StepReady", state, "the approval of kubectl kruise is a merge patch of one field")
	seq, _, _ := unstructured.NestedInt64(approved.Object, "status", "slipway", "seq")
	require.EqualValues(t, 4, seq, "what the engine keeps beside it stays")
}

// Defaults are those that clients read back.
func TestDefaults(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	text := beta("[{replicas: 1, matches: [{path: {}, headers: [{name: a, value: b}]}]}]", "[{service: a, ingress: {name: a}}]")
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
