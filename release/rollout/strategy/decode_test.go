package strategy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
)

func deploymentRef(name string) catalog.WorkloadRef {
	return catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
}

func share(n int32) *int32             { return &n }
func pods(n int32) intstr.IntOrString  { return intstr.FromInt32(n) }
func part(s string) intstr.IntOrString { return intstr.FromString(s) }

// request returns a valid request whose lines may be replaced: line 1 is its workload, 2 its images, 3 its strategy.
func request(strategy string, more ...string) string {
	return "workloadRef: {apiVersion: apps/v1, kind: Deployment, name: order}\nimages: {app: 'order:2'}\nstrategy: " +
		strategy + "\n" + strings.Join(more, "\n") + "\n"
}

const (
	routings = "trafficRoutings: [{service: order, ingress: {name: order}}]"
	oneStep  = "{canary: {steps: [{replicas: 1}]}}"
)

func canary(steps string, more ...string) string {
	return request("{canary: {" + strings.Join(append([]string{"steps: [" + steps + "]"}, more...), ", ") + "}}")
}

func blueGreen(steps string, more ...string) string {
	return strings.Replace(canary(steps, more...), "{canary:", "{blueGreen:", 1)
}

func ofKind(apiVersion, kind, text string) string {
	return strings.Replace(text, "apiVersion: apps/v1, kind: Deployment", "apiVersion: "+apiVersion+", kind: "+kind, 1)
}

// Argo Rollouts, Flagger and Go write durations with units, and templates put numbers into quotes.
func TestDecodeRequest_NumbersAndDurations_AreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for text, seconds := range map[string]int64{"90": 90, `"90"`: 90, "90s": 90, "5m": 300, "1h30m": 5400, "1d": 86400,
		"0": 0, "0s": 0, "PT4H": 14400, "1h0m0s": 3600} {
		got, wrong := DecodeRequest([]byte(canary("{replicas: 1, pause: {duration: "+text+"}}") +
			"policy: {settleSeconds: " + text + "}\n"))
		require.NoError(t, wrong.Err(), text)
		require.Equal(t, &seconds, got.Spec.Strategy.Steps[0].PauseSeconds, text)
		require.Equal(t, seconds, got.Spec.Policy.SettleSeconds, text)
	}
	for _, text := range []string{"20%", `"20%"`, "20", `"20"`} {
		got, wrong := DecodeRequest([]byte(canary("{replicas: 1, traffic: "+text+"}", routings)))
		require.NoError(t, wrong.Err(), text)
		require.Equal(t, share(20), got.Spec.Strategy.Steps[0].Traffic, text)
		legacy := strings.Replace(request(oneStep), "strategy: "+oneStep, `rollout: {metadata: {name: a}, kind: Rollout,
  apiVersion: rollouts.kruise.io/v1alpha1,
  spec: {objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: a}},
  strategy: {canary: {steps: [{weight: `+text+"}], "+routings+"}}}}", 1)
		got, wrong = DecodeRequest([]byte(legacy[strings.Index(legacy, "\n")+1:]))
		require.NoError(t, wrong.Err(), text)
		require.Equal(t, share(20), got.Spec.Strategy.Steps[0].Traffic, "v1alpha1: %s", text)
	}
	for text, want := range map[string]intstr.IntOrString{"5": pods(5), `"5"`: pods(5), "20%": part("20%"),
		`"20%"`: part("20%")} {
		got, wrong := DecodeRequest([]byte(canary("{replicas: " + text + "}")))
		require.NoError(t, wrong.Err(), text)
		require.Equal(t, want, got.Spec.Strategy.Steps[0].Replicas, text)
	}
	got, wrong := DecodeRequest([]byte(request(oneStep, "policy: {stepDeadlineSeconds: 20m, approvals: "+
		"{expiresSeconds: 1d}, rollbackWindow: {revisions: '3'}, "+
		"windows: [{start: 2026-12-01T08:00:00Z, duration: 7200}]}")))
	require.NoError(t, wrong.Err())
	require.EqualValues(t, 1200, got.Spec.Policy.StepDeadlineSeconds)
	require.EqualValues(t, 86400, got.Spec.Policy.ApprovalExpiresSeconds)
	require.EqualValues(t, 3, got.Spec.Policy.RollbackWindow)
	require.Equal(t, "7200s", got.Spec.Policy.Windows[0].Duration, "a number of seconds gets its unit")
}

func TestDecodeRequestRefusals(t *testing.T) {
	t.Parallel()
	const steps = "strategy.canary.steps"
	for name, test := range map[string]struct{ reason, text, field, contains string }{
		"NoWorkload": {"the workload is required", "images: {a: b}\nstrategy: " + oneStep + "\n", "workloadRef",
			"is required"},
		"NoStrategy": {"the strategy is required", strings.Replace(request(oneStep), "strategy", "#", 1),
			"strategy", "is required"},
		"NoChange": {"a release needs a change", strings.Replace(request(oneStep), "images", "#", 1), "images",
			"is required"},
		"BothChanges": {"only one change is allowed", request(oneStep, "templatePatch: {spec: {}}"),
			"templatePatch", "keep one of them"},
		"PatchOfWorkload": {"a patch of the wrong object",
			strings.Replace(request(oneStep), "images: {app: 'order:2'}", "templatePatch: {template: {}}", 1),
			"templatePatch.template", "is not part of a pod template"},
		"EmptyPatch": {"a patch that changes nothing",
			strings.Replace(request(oneStep), "images: {app: 'order:2'}", "templatePatch: {}", 1), "templatePatch",
			"changes nothing"},
		"HugePatch": {"the workflow's history contains it",
			strings.Replace(request(oneStep), "images: {app: 'order:2'}",
				"templatePatch: {metadata: {annotations: {a: "+strings.Repeat("x", MaxTemplatePatch)+"}}}", 1),
			"templatePatch", "too large"},
		"BadImage": {"an image name has no blanks", strings.Replace(request(oneStep), "order:2", "order 2", 1),
			"images.app", "is not an image name"},
		"NoImage": {"an image is required", strings.Replace(request(oneStep), "order:2", "", 1), "images.app",
			"has no image"},
		"EmptyWindow": {"the number is required", request(oneStep, "policy: {rollbackWindow: {}}"),
			"policy.rollbackWindow.revisions", "is required"},
		"NoWindow": {"leave the window out for none",
			request(oneStep, "policy: {rollbackWindow: {revisions: 0}}"), "policy.rollbackWindow.revisions",
			"from 1 to"},
		"BareWindow": {"the unit is required", request(oneStep, "policy: {rollbackWindow: 3}"),
			"policy.rollbackWindow", "must be"},
		"UnknownKey": {"unknown keys are refused", request(oneStep, "replicas: 1"), "replicas", "unknown key"},
		"RepeatedKey": {"which value applies is ambiguous", request(oneStep, "actor: a", "actor: b"), "actor",
			"appears twice"},
		"DocumentItself": {"the change is missing", exampleBeta, "", "put it under the key rollout"},
		"DocumentAndRef": {"two workloads", request(oneStep, "rollout: {}"), "workloadRef",
			"is already set by the document under rollout"},
		"OtherNamespace": {"two namespaces", string(underRollout(exampleBeta)) + "namespace: shop\n", "namespace",
			"keep one"},
		"OtherRolloutID": {"two numbers", string(
			underRollout(replaced(exampleAlpha, "annotations:\n",
				"annotations:\n    rollouts.kruise.io/rollout-id: a\n"))) + "rolloutId: b\n", "rolloutId", "keep one"},
		"Disabled": {"disabled is a command to stop",
			string(underRollout(replaced(exampleBeta, "spec:\n", "spec:\n  disabled: true\n"))),
			"rollout.spec.disabled", "stop it with to: stable"},
		"BothStyles": {"only one style is allowed",
			request("{canary: {steps: [{replicas: 1}]}, blueGreen: {steps: [{replicas: 1}]}}"), "strategy", "keep one"},
		"NoStyle": {"a style is required", request("{paused: true}"), "strategy",
			"must have one of canary and blueGreen"},
		"NoSteps": {"a step is required", canary(""), steps, "at least one step"},
		"ManySteps": {"too many", canary(strings.TrimSuffix(strings.Repeat("{replicas: 1},", 51), ",")), steps,
			"51 steps, of at most 50"},
		"NoReplicas":   {"replicas has no default", canary("{pause: {}}"), steps + "[0].replicas", "is required"},
		"ZeroReplicas": {"a step that does nothing", canary("{replicas: 0}"), steps + "[0].replicas", "from 1 to"},
		"ZeroShare":    {"a step that does nothing", canary("{replicas: 0%}"), steps + "[0].replicas", "from 1%"},
		"LargeShare":   {"more than all", canary("{replicas: 101%}"), steps + "[0].replicas", "to 100%"},
		"SpelledShare": {"a share is a number with the sign", canary("{replicas: 20 percent}"), steps + "[0].replicas",
			`not "20 percent"`},
		"ZeroedShare": {"nothing is guessed", canary("{replicas: 020%}"), steps + "[0].replicas", `not "020%"`},
		"Fraction": {"pods are counted in integers", canary("{replicas: 1.5}"), steps + "[0].replicas",
			"whole number"},
		"Shrinking": {"a step never has fewer new pods", canary("{replicas: 5}, {replicas: 3}"),
			steps + "[1].replicas", "less than the 5 of the step before"},
		"ShrinkingShare": {"a step never has fewer new pods", canary("{replicas: 50%}, {replicas: 30%}"),
			steps + "[1].replicas", "less than the 50%"},
		"FractionOfTraffic": {"a share is whole", canary("{replicas: 1, traffic: 1.5%}", routings),
			steps + "[0].traffic", `must be a share from 1% to 100%, not "1.5%"`},
		"LargeTraffic": {"more than all", canary("{replicas: 1, traffic: 200}", routings), steps + "[0].traffic",
			"must be a share from 1% to 100%, not 200"},
		"ZeroTraffic": {"a canary without traffic", canary("{replicas: 1, traffic: 0%}", routings),
			steps + "[0].traffic", "from 1%"},
		"NothingRoutes": {"traffic needs a routing", canary("{replicas: 1, traffic: 20%}"), steps + "[0].traffic",
			"add trafficRoutings"},
		"MatchesUnrouted": {"matches need a routing", canary("{replicas: 1, matches: [{path: {value: /a}}]}"),
			steps + "[0].matches", "add trafficRoutings"},
		"LoneModifier": {"a header change needs requests",
			canary("{replicas: 1, requestHeaderModifier: {remove: [a]}}", routings),
			steps + "[0].requestHeaderModifier", "has no requests to change"},
		"LimitOfPartition": {"the limit of the reference implementation",
			canary("{replicas: 60%, traffic: 20%}, {replicas: 100%}", routings), steps + "[0].replicas", "at most 50%"},
		"LimitAtTheEnd": {"all pods are new, but not all traffic",
			canary("{replicas: 100%, traffic: 20%}", routings), steps + "[0].replicas", "at most 50%"},
		"NegativePause": {"a duration is not negative", canary("{replicas: 1, pause: {duration: -1}}"),
			steps + "[0].pause.duration", "must be from 0"},
		"WordyPause": {"a duration has a known unit", canary("{replicas: 1, pause: {duration: 5 minutes}}"),
			steps + "[0].pause.duration",
			`must be a duration, such as 90 (in seconds), 90s, 5m or 1h30m, not the text`},
		"ShortPause": {"timers are in seconds", canary("{replicas: 1, pause: {duration: 1500ms}}"),
			steps + "[0].pause.duration", "must be whole seconds, not 1500ms"},
		"LongDeadline": {"the limit counts in every spelling", request(oneStep, "policy: {stepDeadlineSeconds: 8d}"),
			"policy.stepDeadlineSeconds", "must be from 1 to 604800 seconds, not 8d"},
		"SetWeight": {"the word of Argo Rollouts", canary("{setWeight: 20}"), steps + "[0].setWeight",
			"write traffic: 20% for the share of the requests"},
		"SetCanaryScale": {"the word of Argo Rollouts", canary("{setCanaryScale: {weight: 20}}"),
			steps + "[0].setCanaryScale", "write replicas: 20%"},
		"MaxWeight": {"the word of Flagger", canary("{replicas: 1}", "maxWeight: 50"), "strategy.canary.maxWeight",
			"it is the traffic of the last step before all pods are new"},
		"StepWeight": {"the word of Flagger", canary("{replicas: 1}", "stepWeight: 10"), "strategy.canary.stepWeight",
			"write the steps out"},
		"ForeignAnalysis": {"a part of both", canary("{replicas: 1}", "analysis: {templates: []}"),
			"strategy.canary.analysis", "not judged by metrics yet"},
		"Promotion": {"a word of Argo's blue-green", blueGreen("{replicas: 1}", "autoPromotionEnabled: false"),
			"strategy.blueGreen.autoPromotionEnabled", "the last step waits with pause: {}"},
		"BadRegex": {"the expression is invalid",
			canary("{replicas: 1, matches: [{headers: [{type: RegularExpression, name: a, value: '('}]}]}", routings),
			steps + "[0].matches[0].headers[0].value", "is not a regular expression"},
		"BadHeader": {"a header name has no blanks",
			canary("{replicas: 1, matches: [{headers: [{name: a b, value: c}]}]}", routings),
			steps + "[0].matches[0].headers[0].name", "is not a header name"},
		"BadMatchType": {"the type is unknown",
			canary("{replicas: 1, matches: [{headers: [{type: Regex, name: a, value: c}]}]}", routings),
			steps + "[0].matches[0].headers[0].type", "must be one of Exact, RegularExpression"},
		"PrefixOfHeader": {"for paths only", canary(
			"{replicas: 1, matches: [{headers: [{type: PathPrefix, name: a, value: c}]}]}", routings),
			steps + "[0].matches[0].headers[0].type", "must be one of"},
		"SameHeader": {"both have to match",
			canary("{replicas: 1, matches: [{headers: [{name: a, value: c}, {name: A, value: d}]}]}", routings),
			steps + "[0].matches[0].headers[1]", "repeats the header"},
		"EmptyMatch": {"an empty match matches everything", canary("{replicas: 1, matches: [{}]}", routings),
			steps + "[0].matches[0]", "matches every request"},
		"ManyMatches": {"too many", canary("{replicas: 1, matches: ["+
			strings.TrimSuffix(strings.Repeat("{path: {}},", 17), ",")+"]}", routings), steps + "[0].matches",
			"17 matches, of at most 16"},
		"LongHeader": {"too long", canary("{replicas: 1, matches: [{headers: [{name: a, value: "+
			strings.Repeat("x", 4097)+"}]}]}", routings), steps + "[0].matches[0].headers[0].value", "too long"},
		"RelativePath": {"a path begins with a slash",
			canary("{replicas: 1, matches: [{path: {value: a}}]}", routings), steps + "[0].matches[0].path.value",
			"must begin with a slash"},
		"SetAndRemove": {"which change applies is ambiguous",
			canary("{replicas: 1, traffic: 5%, requestHeaderModifier: {set: [{name: a, value: b}], remove: [A]}}",
				routings), steps + "[0].requestHeaderModifier.remove[0]", "already changes"},
		"NoProvider": {"a provider is required", canary("{replicas: 1}", "trafficRoutings: [{service: a}]"),
			"strategy.canary.trafficRoutings[0]", "set one of"},
		"TwoProviders": {"exactly one provider is allowed",
			canary("{replicas: 1}", "trafficRoutings: [{service: a, ingress: {name: b}, gateway: {httpRouteName: c}}]"),
			"strategy.canary.trafficRoutings[0]", "names ingress and gateway"},
		"NoService": {"the Service is required",
			canary("{replicas: 1}", "trafficRoutings: [{ingress: {name: b}}]"),
			"strategy.canary.trafficRoutings[0].service", "is required"},
		"LongService": {"the canary Service's name would be too long",
			canary("{replicas: 1}", "trafficRoutings: [{service: "+strings.Repeat("a", 60)+", ingress: {name: b}}]"),
			"strategy.canary.trafficRoutings[0].service", "is too long"},
		"NegativeGrace": {"a duration is not negative",
			canary("{replicas: 1}", "trafficRoutings: [{service: a, gracePeriodSeconds: -1, ingress: {name: b}}]"),
			"strategy.canary.trafficRoutings[0].gracePeriodSeconds", "must be from 0"},
		"SameIngress": {"each object is restored once",
			canary("{replicas: 1}", "trafficRoutings: [{service: a, ingress: {name: i}}, {service: b, ingress: "+
				"{name: i}}]"), "strategy.canary.trafficRoutings[1]", "names Ingress i, which"},
		"RefAndRoutings": {"only one source of routes is allowed",
			canary("{replicas: 1}", routings, "trafficRoutingRef: r"), "strategy.canary.trafficRoutingRef", "keep one"},
		"RefAndTraffic": {"the TrafficRouting defines the traffic",
			canary("{replicas: 1, traffic: 5%}", "trafficRoutingRef: r"), steps + "[0].traffic",
			"defines the traffic itself"},
		"TwoRefs": {"two fields set different names",
			request("{canary: {steps: [{replicas: 1}], trafficRoutingRef: a}, trafficRoutingRef: b}"),
			"strategy.trafficRoutingRef", "keep one"},
		"BlindWeight": {"one Service selects both versions",
			canary("{replicas: 1, traffic: 5%}", routings, "disableGenerateCanaryService: true"), steps + "[0].traffic",
			"selects both versions"},
		"LoneMetadata": {"there is no extra workload",
			canary("{replicas: 1}", "patchPodTemplateMetadata: {labels: {a: b}}"),
			"strategy.canary.patchPodTemplateMetadata", "needs the extra workload"},
		"MetadataOfSet": {"a StatefulSet cannot have an extra workload",
			ofKind("apps/v1", "StatefulSet", canary("{replicas: 1}", "patchPodTemplateMetadata: {labels: {a: b}}")),
			"strategy.canary.patchPodTemplateMetadata", "pods it is for: leave it out"},
		"OwnLabel": {"it distinguishes versions",
			canary("{replicas: 1}", "enableExtraWorkloadForCanary: true",
				"patchPodTemplateMetadata: {labels: {pod-template-hash: b}}"),
			"strategy.canary.patchPodTemplateMetadata.labels.pod-template-hash", "use another"},
		"BadThreshold": {"more than all", canary("{replicas: 1}", "failureThreshold: 101%"),
			"strategy.canary.failureThreshold", "to 100%"},
		"ExtraOfSet": {"only Deployments", ofKind("apps/v1", "StatefulSet",
			canary("{replicas: 1}", "enableExtraWorkloadForCanary: true")),
			"strategy.canary.enableExtraWorkloadForCanary", "for Deployments only"},
		"BlueGreenOfSet": {"only Deployments and CloneSets",
			ofKind("apps/v1", "StatefulSet", blueGreen("{replicas: 1}")), "strategy.blueGreen",
			"Deployments and CloneSets only"},
		"ExtraInBlueGreen": {"the field belongs to canary",
			blueGreen("{replicas: 1}", "enableExtraWorkloadForCanary: true"),
			"strategy.blueGreen.enableExtraWorkloadForCanary", "unknown key"},
		"ReplicaSet": {"a ReplicaSet does not replace pods", ofKind("apps/v1", "ReplicaSet", request(oneStep)),
			"workloadRef.kind", "name the Deployment that owns it"},
		"CloneSetVersion": {"the version does not exist",
			ofKind("apps.kruise.io/v1beta1", "CloneSet", request(oneStep)), "workloadRef.kind",
			"write apiVersion: apps.kruise.io/v1alpha1"},
		"UnknownKind": {"a Job cannot be rolled out", ofKind("batch/v1", "Job", request(oneStep)),
			"workloadRef.kind", "cannot be rolled out"},
		"Analysis": {"it is not implemented", request(oneStep, "policy: {analysis: {}}"), "policy.analysis",
			"is not available yet"},
		"Approvers": {"callers are not authenticated",
			request(oneStep, "policy: {approvals: {approvers: [li]}}"), "policy.approvals.approvers",
			"is not available yet"},
		"TwoApprovals": {"callers are not authenticated", request(oneStep, "policy: {approvals: {required: 2}}"),
			"policy.approvals.required", "can only be 1"},
		"LoneOnExpiry": {"without a limit no approval expires",
			request(oneStep, "policy: {approvals: {onExpiry: rollback}}"), "policy.approvals.onExpiry",
			"without expiresSeconds"},
		"OnFailure": {"the value is unknown", request(oneStep, "policy: {onFailure: abort}"), "policy.onFailure",
			"must be one of pause, rollback"},
		"Deadline": {"a deadline is positive", request(oneStep, "policy: {stepDeadlineSeconds: 0}"),
			"policy.stepDeadlineSeconds", "must be from 1"},
		"BatchesExtra": {"every old pod still exists",
			request("{canary: {enableExtraWorkloadForCanary: true, steps: [{replicas: 1}]}}",
				"policy: {rollbackInBatches: true}"), "policy.rollbackInBatches", "replace pods in place"},
		"LongActor": {"too long", request(oneStep, "actor: "+strings.Repeat("a", 201)), "actor", "too long"},
		"LongKey":   {"too long", request(oneStep, "key: "+strings.Repeat("a", 256)), "key", "too long"},
		"BadParty":  {"the name is illegal", request(oneStep, "party: A_b"), "party", "is not a legal name"},
		"AlphaTraffic": {"v1alpha1 calls it weight",
			string(underRollout(replaced(exampleAlpha, "weight: 5", "traffic: 5%"))),
			"rollout.spec.strategy.canary.steps[0].traffic", "unknown key"},
		"AlphaBlueGreen": {"v1alpha1 has only canary",
			string(underRollout(replaced(exampleAlpha, "canary:", "blueGreen:"))), "rollout.spec.strategy.blueGreen",
			"unknown key"},
		"BadStyle": {"the style is unknown",
			string(underRollout(replaced(exampleAlpha, "style: partition", "style: rolling"))),
			"rollout.metadata.annotations.rollouts.kruise.io/rolling-style", "must be canary or partition"},
		"TwoStyles": {"two annotations, two styles",
			string(underRollout(replaced(exampleAlpha, "style: partition",
				"style: partition\n    rollouts.kruise.io/rolling-type: canary"))),
			"rollout.metadata.annotations.rollouts.kruise.io/rolling-type", "keep one"},
		"StyleInBeta": {"v1beta1 has a field for it",
			string(underRollout(replaced(exampleBeta, "metadata:\n",
				"metadata:\n  annotations: {rollouts.kruise.io/rolling-style: partition}\n"))),
			"rollout.metadata.annotations.rollouts.kruise.io/rolling-style", "the strategy asks for canary"},
		"Misspelt": {"an unknown annotation of the group would have no effect",
			string(underRollout(replaced(exampleAlpha, "rolling-style", "roling-style"))),
			"rollout.metadata.annotations.rollouts.kruise.io/roling-style", "did you mean"},
		"BatchesWord": {"the value must be a boolean",
			string(underRollout(replaced(exampleAlpha, "annotations:\n",
				"annotations:\n    rollouts.kruise.io/rollback-in-batch: \"yes\"\n"))),
			"rollout.metadata.annotations.rollouts.kruise.io/rollback-in-batch", `must be "true" or "false"`},
		"Version": {"the version is unknown", string(underRollout(replaced(exampleBeta, "v1beta1", "v1"))),
			"rollout.apiVersion", "must be one of"},
		"UnknownMetadata": {"unknown keys are refused",
			string(underRollout(replaced(exampleAlpha, "annotations:", "anotations:"))), "rollout.metadata.anotations",
			`did you mean "annotations"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errs := DecodeRequest([]byte(test.text))
			for _, one := range errs {
				if one.Field == test.field && strings.Contains(one.Reason, test.contains) {
					require.Positive(t, one.Line, "%s: the line", test.reason)
					return
				}
			}
			require.Failf(t, "not refused", "%s: want %s: …%s…; got\n%v", test.reason, test.field, test.contains, errs)
		})
	}
}

func TestDecodeRequest_AcceptsUnusualButLegalRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text string
		warnings     []string
	}{
		"LimitInPods": {"the limit applies to percentages only", canary("{replicas: 60, traffic: 20%}", routings),
			nil},
		"LimitWithExtra": {"the stable pods remain",
			canary("{replicas: 60%, traffic: 20%}", routings, "enableExtraWorkloadForCanary: true"), nil},
		"WholeAtTheEnd": {"no stable pod is left",
			canary("{replicas: 50%, traffic: 20%}, {replicas: 100%, traffic: 100%}", routings), nil},
		"WholeNoTraffic": {"traffic follows the pods", canary("{replicas: 100%}"), nil},
		"LessTraffic": {"legal, and sometimes intended",
			canary("{replicas: 1, traffic: 20%}, {replicas: 2, traffic: 10%}", routings),
			[]string{"steps[1].traffic: is 10%, less than the 20%"}},
		"UnusedRoutings": {"the steps probably lack traffic", canary("{replicas: 1}", routings),
			[]string{"no step moves traffic"}},
		"SameRefTwice": {"two fields set the same name",
			request("{canary: {steps: [{replicas: 1}], trafficRoutingRef: a}, trafficRoutingRef: a}"), nil},
		"BlindMatches": {"matches distinguish versions",
			canary("{replicas: 1, matches: [{path: {}}]}", routings, "disableGenerateCanaryService: true"), nil},
		"HugeNumbers":    {"the workload's size is not known yet", canary("{replicas: 2147483647}"), nil},
		"MixedUnits":     {"they cannot be compared", canary("{replicas: 5}, {replicas: 1%}"), nil},
		"AdvancedSet":    {"both versions", ofKind("apps.kruise.io/v1alpha1", "StatefulSet", request(oneStep)), nil},
		"AdvancedDaemon": {"in place", ofKind("apps.kruise.io/v1alpha1", "DaemonSet", request(oneStep)), nil},
		"CloneSet":       {"surge", ofKind("apps.kruise.io/v1alpha1", "CloneSet", blueGreen("{replicas: 1}")), nil},
		"JSON": {"JSON is accepted as well",
			`{"workloadRef":{"apiVersion":"apps/v1","kind":"DaemonSet","name":"a"},"images":{"a":"b"},"strategy":{"canary":{"steps":[{"replicas":"10%","pause":null}]}}}`, nil},
		"SameInDocument": {"they agree", string(underRollout(exampleBeta)) +
			"namespace: default\nname: rollouts-demo\n", nil},
		"AlphaUnrouted": {"a weight sets the number of pods",
			string(underRollout("apiVersion: rollouts.kruise.io/v1alpha1\nkind: Rollout\n" + refAlpha +
				"  strategy: {canary: {steps: [{weight: 5}]}}\n")), []string{"moves pods only"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := DecodeRequest([]byte(test.text))
			require.NoError(t, errs.Err(), test.reason)
			require.Len(t, got.Warnings, len(test.warnings), "%s: %v", test.reason, got.Warnings)
			for i, part := range test.warnings {
				require.Contains(t, got.Warnings[i], part, test.reason)
			}
		})
	}
}

func TestDecodeRequestReadsEverything(t *testing.T) {
	t.Parallel()
	got, errs := DecodeRequest([]byte(`
party: alice
namespace: shop
name: order-2
workloadRef: {apiVersion: apps/v1, kind: Deployment, name: order}
templatePatch: {spec: {containers: [{name: app, env: null}]}}
strategy:
  paused: true
  canary:
    failureThreshold: 10%
    disableGenerateCanaryService: true
    steps:
    - replicas: 10%
      matches:
      - path: {value: /new}
        headers: [{name: x-user, value: "^a", type: RegularExpression}]
        queryParams: [{name: v, value: "2"}]
      requestHeaderModifier: {set: [{name: a, value: b}], add: [{name: c, value: d}], remove: [e]}
    - {replicas: 100%, pause: {duration: 60}}
    trafficRoutings:
    - {service: order, gateway: {httpRouteName: order}}
policy: {stepDeadlineSeconds: 60, settleSeconds: 5, onFailure: rollback, rollbackInBatches: true, rollbackWindow: {revisions: 3}, approvals: {required: 1, expiresSeconds: 3600, onExpiry: rollback}}
rolloutId: 0042
supersede: true
actor: li
reason: why not
key: k1
`))
	require.NoError(t, errs.Err())
	minute := int64(60)
	require.Equal(t, Request{
		Supersede: true, Actor: "li", Reason: "why not", Key: "k1",
		Spec: Spec{
			Party: "alice", Namespace: "shop", Name: "order-2", WorkloadRef: deploymentRef("order"), RolloutID: "0042",
			Change: Change{TemplatePatch: []byte(`{"spec":{"containers":[{"env":null,"name":"app"}]}}`)},
			Policy: Policy{StepDeadlineSeconds: 60, SettleSeconds: 5, OnFailure: OnFailureRollback,
				ApprovalExpiresSeconds: 3600, OnExpiry: OnFailureRollback, RollbackInBatches: true, RollbackWindow: 3},
			Strategy: Strategy{
				Style: StylePartition, Paused: true, DisableGenerateCanaryService: true,
				FailureThreshold: threshold("10%"),
				Routings:         []Routing{{Service: "order", GraceSeconds: DefaultGraceSeconds, HTTPRoute: "order"}},
				Steps: []Step{
					{
						Replicas: part("10%"),
						Matches: []Match{{
							Path:        &PathMatch{Type: MatchPathPrefix, Value: "/new"},
							Headers:     []ValueMatch{{Type: MatchRegularExpression, Name: "x-user", Value: "^a"}},
							QueryParams: []ValueMatch{{Type: MatchExact, Name: "v", Value: "2"}},
						}},
						RequestHeaderModifier: &HeaderModifier{Set: []Header{{"a", "b"}}, Add: []Header{{"c", "d"}},
							Remove: []string{"e"}},
					},
					{Replicas: part("100%"), PauseSeconds: &minute},
				},
			},
		},
	}, got)
}

func threshold(s string) *intstr.IntOrString {
	t := intstr.FromString(s)
	return &t
}

func TestDecodeRequest_ReturnsAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	_, errs := DecodeRequest([]byte("images: {}\nstrategy:\n  canary:\n    steps:\n    - {replicas: 0}\n    - " +
		"{replicas: x, wait: 1}\n"))
	var got []string
	for _, one := range errs {
		got = append(got, one.Field)
	}
	require.ElementsMatch(t, []string{"workloadRef", "images", "strategy.canary.steps[0].replicas",
		"strategy.canary.steps[1].replicas", "strategy.canary.steps[1].wait"}, got)
}
