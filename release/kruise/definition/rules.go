package definition

import (
	"fmt"
	"strings"

	"slipway.io/slipway/release/workload"
)

// stepsMax is the maximum number of steps of a strategy, as in the schemas.
const stepsMax = 50

// percents returns a CEL map from the legal percentages, from least to 100%, to their numbers. A rule that parses the
// text would exceed the API server's cost limit, which assumes texts and numbers of the maximum request size.
func percents(least int) string {
	var entries []string
	for n := least; n <= 100; n++ {
		entries = append(entries, fmt.Sprintf("'%d%%': %d", n, n))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// neighbours returns an expression that is true if a condition holds for each pair of consecutive steps, {a} and {b}.
func neighbours(condition string) string {
	var indexes []string
	for i := range stepsMax - 1 {
		indexes = append(indexes, fmt.Sprint(i))
	}
	condition = strings.NewReplacer("{a}", "self.steps[i]", "{b}", "self.steps[i + 1]").Replace(condition)
	return "!has(self.steps) || [" + strings.Join(indexes, ", ") + "].all(i, i + 1 >= size(self.steps) || (" +
		condition + "))"
}

// share returns an expression for the number in a step's percentage of replicas; -1 if it has none.
func share(step string) string {
	return fmt.Sprintf("(has(%[1]s.replicas) ? %[2]s[?%[1]s.replicas].orValue(-1) : -1)", step, percents(1))
}

// count returns an expression for a step's number of pods; -1 if it has none or a percentage.
func count(step string) string {
	return fmt.Sprintf("(has(%[1]s.replicas) && type(%[1]s.replicas) == int ? int(%[1]s.replicas) : -1)", step)
}

// shrinks returns an expression that is true if both values are known and b is smaller than a.
func shrinks(a, b string) string {
	return fmt.Sprintf("%[1]s >= 0 && %[2]s >= 0 && %[2]s < %[1]s", a, b)
}

// ruleKind returns the rule that accepts the kinds whose pods can be released, in both versions. It accepts a
// ReplicaSet too: the engine's refusal says that its Deployment is what to name.
func ruleKind() rule {
	var accepted, texts []string
	for _, kinds := range workload.Grouped(func(k workload.Kind) string { return k.Resource.Group }) {
		group, names := kinds[0].Resource.Group, workload.Names(kinds, workload.Kind.String)
		texts = append(texts, workload.Join(names, " or ")+" of "+group)
		list := strings.Replace(strings.Join(names, "', '"), "Deployment", "Deployment', 'ReplicaSet", 1)
		accepted = append(accepted, "self.apiVersion.startsWith('"+group+"/') && self.kind in ['"+list+"']")
	}
	return rule{strings.Join(accepted, " ||\n"), "this kind of workload can't be released: name a " +
		strings.Join(texts, ", or a "), "kind"}
}

// ruleBlueGreen returns the rule that a blue-green release is of a kind that supports it.
func ruleBlueGreen() rule {
	kinds := workload.Supporting(workload.StyleBlueGreen)
	accepted := workload.Names(kinds, func(k workload.Kind) string {
		return fmt.Sprintf("self.workloadRef.apiVersion.startsWith('%s/') && self.workloadRef.kind == '%s'",
			k.Resource.Group, k.Kind)
	})
	return rule{"!has(self.strategy.blueGreen) || " + strings.Join(accepted, " ||\n"),
		"only a " + workload.Join(workload.Names(kinds, workload.Kind.String), " or a ") +
			" can be released blue-green: use canary for this kind", "workloadRef"}
}

var (
	ruleSteps = rule{"has(self.steps) && size(self.steps) > 0", "there are no steps: give at least one", ""}
	// ruleReplicas ignores steps without replicas: the versions differ there.
	ruleReplicas = rule{"!has(self.replicas) || (type(self.replicas) == int ? self.replicas > 0 : self.replicas in " +
		percents(1) + ")",
		`replicas must be a number above 0, or a percentage from "1%" to "100%", with the sign`, "replicas"}
)

// rulesRouting are the rules of one entry of trafficRoutings. Kruise Rollouts accepts only one entry; Slipway applies
// all of them.
var rulesRouting = []rule{
	{"!has(self.gracePeriodSeconds) || self.gracePeriodSeconds >= 0",
		"gracePeriodSeconds must not be negative: give the seconds that changed routes are left to take " +
			"effect", "gracePeriodSeconds"},
	{"self.service != ''", "service is empty: give the name of the workload's Service", "service"},
	{"has(self.gateway) || has(self.ingress) || has(self.customNetworkRefs)",
		"the entry doesn't say what routes to the Service: give ingress, gateway or customNetworkRefs", ""},
	{"!has(self.ingress) || self.ingress.name != ''",
		"the name of the Ingress is empty: give the one that routes to the Service", "ingress"},
	{"!has(self.gateway) || has(self.gateway.httpRouteName) && self.gateway.httpRouteName != ''",
		"httpRouteName is missing: give the name of the HTTPRoute that routes to the Service", "gateway"},
}

// inRelease is true if the stored Rollout has a release in progress or is being deleted.
const inRelease = "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in ['Progressing', " +
	"'Terminating'] && (!has(oldSelf.status.slipway) || has(oldSelf.status.slipway.open) && " +
	"oldSelf.status.slipway.open)"

// fixed returns a rule for a field that must not change during a release: unchanged is an expression of self and
// oldSelf.
func fixed(unchanged, what, field string) rule {
	return rule{"!(" + inRelease + ") || (" + unchanged + ")",
		what + " can't change while a release is under way: wait for its end, roll it back, or set disabled to true " +
			"first", field}
}

// sameRoutings returns an expression that is true if the trafficRoutings of one strategy are unchanged.
func sameRoutings(strategy string) string {
	routings := func(object string) string {
		path := object + ".spec.strategy." + strategy
		return fmt.Sprintf("(has(%[1]s) && has(%[1]s.trafficRoutings) ? %[1]s.trafficRoutings : [])", path)
	}
	return routings("self") + " == " + routings("oldSelf")
}
