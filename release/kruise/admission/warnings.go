package admission

import (
	"fmt"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/cel"
)

// stepsMax is the maximum number of steps of a strategy.
const stepsMax = 50

// annotationRouting names a TrafficRouting, in both versions.
const annotationRouting = "rollouts.kruise.io/trafficrouting"

// warningVariables are the parts of a v1beta1 Rollout that the warnings check.
var warningVariables = []admission.Variable{
	{Name: "strategy", Expression: "object.?spec.?strategy.orValue({})"},
	{Name: "body", Expression: "variables.strategy.?canary.orValue(variables.strategy.?blueGreen.orValue({}))"},
	{Name: "steps", Expression: "variables.body.?steps.orValue([])"},
	{Name: "routings", Expression: "variables.body.?trafficRoutings.orValue([])"},
	{Name: "routed",
		Expression: "size(variables.routings) > 0 || variables.body.?trafficRoutingRef.orValue('') != '' || " +
			"variables.strategy.?trafficRoutingRef.orValue('') != '' || " +
			cel.Annotation("object", annotationRouting) +
			".orValue('') != ''"},
	{Name: "shares", Expression: "variables.steps.map(s, has(s.traffic) ? int(s.traffic.replace('%', '')) : -1)"},
}

// warnings are the validations; each one that fails results in a warning.
var warnings = []admission.Validation{
	{Expression: "variables.routed || !variables.steps.exists(s, has(s.traffic) || size(s.?matches.orValue([])) > 0)",
		Message: "steps have traffic or matches, but nothing says what routes to the workload: they move pods only. " +
			"Give trafficRoutings or trafficRoutingRef"},
	{Expression: "!variables.routings.exists(r, [has(r.ingress), has(r.gateway), has(r.customNetworkRefs)].filter(b, " +
		"b).size() > 1)",
		Message: "an entry of trafficRoutings names several of ingress, gateway and customNetworkRefs: all of them apply"},
	{Expression: shrinkingTraffic,
		Message: "traffic shrinks from one step to the next: that step takes requests away from the new version"},
	{Expression: "!variables.steps.exists(s, has(s.traffic) && size(s.?matches.orValue([])) > 0)",
		Message: "a step has both traffic and matches: matches decide alone which requests go to the new version"},
	{Expression: "!variables.steps.exists(s, type(s.?pause.?duration.orValue(0)) == int && " +
		"s.?pause.?duration.orValue(0) < 0)",
		Message: "a pause has a negative duration: it counts as over, and the next step begins at once"},
}

// shrinkingTraffic is true if no step has less traffic than the step before.
var shrinkingTraffic = func() string {
	var indexes []string
	for i := range stepsMax - 1 {
		indexes = append(indexes, fmt.Sprint(i))
	}
	return "[" + strings.Join(indexes, ", ") + "].all(i, i + 1 >= size(variables.shares) || variables.shares[i + 1] " +
		"< 0 || variables.shares[i + 1] >= variables.shares[i])"
}()
