package definition

import "fmt"

// rulesBeta returns the rules of v1beta1 by the path of their schema.
func rulesBeta() map[string][]rule {
	step := func(least int) []rule {
		return []rule{
			{"has(self.replicas)",
				`replicas is missing: say how many pods the step takes, as a number or a percentage such as "20%"`, ""},
			ruleReplicas,
			{"!has(self.traffic) || self.traffic in " + percents(least),
				fmt.Sprintf(`traffic must be a percentage from "%d%%" to "100%%", with the sign`, least), "traffic"},
		}
	}
	growing := rule{neighbours(fmt.Sprintf("!(%s) && !(%s)", shrinks(share("{a}"), share("{b}")),
		shrinks(count("{a}"), count("{b}")))),
		"replicas must not shrink from one step to the next: put the steps in order", "steps"}
	return map[string][]rule{
		"": {
			fixed("self.spec.workloadRef == oldSelf.spec.workloadRef", "workloadRef", "spec.workloadRef"),
			fixed(sameStyle, "the style (canary, blueGreen, enableExtraWorkloadForCanary)", "spec.strategy"),
			fixed(sameRoutings("canary")+" && "+sameRoutings("blueGreen"), "trafficRoutings", "spec.strategy"),
			fixed(stepCount("self")+" == "+stepCount("oldSelf"), "the number of steps", "spec.strategy"),
		},
		"spec":             {ruleBlueGreen()},
		"spec.workloadRef": {ruleKind()},
		"spec.strategy": {
			{"has(self.canary) || has(self.blueGreen)", "there is no strategy: give canary or blueGreen", ""},
			{"!has(self.canary) || !has(self.blueGreen)", "there are two strategies: keep one of canary and blueGreen",
				""},
		},
		"spec.strategy.canary":                       {ruleSteps, growing, partitionLimit},
		"spec.strategy.canary.steps.[]":              step(1),
		"spec.strategy.canary.trafficRoutings.[]":    rulesRouting,
		"spec.strategy.blueGreen":                    {ruleSteps, growing},
		"spec.strategy.blueGreen.steps.[]":           step(0),
		"spec.strategy.blueGreen.trafficRoutings.[]": rulesRouting,
	}
}

// partitionLimit limits steps with traffic of an in-place release to 50% of the pods. When such a release is rolled
// back, all traffic goes to the old pods at once, and there must be enough of them.
var partitionLimit = rule{"has(self.enableExtraWorkloadForCanary) && self.enableExtraWorkloadForCanary || " +
	"!has(self.steps) || self.steps.all(s, !has(s.traffic) && (!has(s.matches) || size(s.matches) == 0) || " +
	"" + share("s") + " <= 50)",
	"a step with traffic or matches takes at most 50% of the pods, unless enableExtraWorkloadForCanary is true: " +
		"lower its replicas, or leave traffic and matches out of it", "steps"}

const sameStyle = `has(self.spec.strategy.canary) == has(oldSelf.spec.strategy.canary) &&
has(self.spec.strategy.blueGreen) == has(oldSelf.spec.strategy.blueGreen) &&
(has(self.spec.strategy.canary) && has(self.spec.strategy.canary.enableExtraWorkloadForCanary) &&
self.spec.strategy.canary.enableExtraWorkloadForCanary) ==
(has(oldSelf.spec.strategy.canary) && has(oldSelf.spec.strategy.canary.enableExtraWorkloadForCanary) &&
oldSelf.spec.strategy.canary.enableExtraWorkloadForCanary)`

// stepCount returns an expression for the number of an object's steps.
func stepCount(object string) string {
	count := func(strategy string) string {
		path := object + ".spec.strategy." + strategy
		return fmt.Sprintf("(has(%[1]s) && has(%[1]s.steps) ? size(%[1]s.steps) : 0)", path)
	}
	return count("canary") + " + " + count("blueGreen")
}
