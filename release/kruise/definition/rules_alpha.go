package definition

import "fmt"

// rulesAlpha returns the rules of v1alpha1 by the path of their schema. The style is an annotation there, which these
// rules cannot see: a policy checks what depends on it.
func rulesAlpha() map[string][]rule {
	// A step without replicas takes weight percent of the pods.
	part := func(step string) string {
		return fmt.Sprintf("(has(%[1]s.replicas) ? %[2]s : has(%[1]s.weight) ? %[1]s.weight : -1)", step, share(step))
	}
	weight := func(step string) string { return fmt.Sprintf("(has(%[1]s.weight) ? %[1]s.weight : -1)", step) }
	return map[string][]rule{
		"": {
			fixed("has(self.spec.objectRef) == has(oldSelf.spec.objectRef) && "+
				"(!has(self.spec.objectRef) || self.spec.objectRef == oldSelf.spec.objectRef)", "objectRef",
				"spec.objectRef"),
			fixed("!has(self.spec.strategy) || !has(oldSelf.spec.strategy) || "+sameRoutings("canary"),
				"trafficRoutings", "spec.strategy"),
		},
		"spec": {
			{"has(self.objectRef) && has(self.objectRef.workloadRef)",
				"objectRef.workloadRef is missing: name the workload that is released", ""},
			{"has(self.strategy) && has(self.strategy.canary)",
				"there is no strategy: give strategy.canary (v1alpha1 has no other; blue-green needs v1beta1)", ""},
		},
		"spec.objectRef.workloadRef": {ruleKind()},
		"spec.strategy.canary": {ruleSteps,
			{neighbours(fmt.Sprintf("!(%s) && !(%s)", shrinks(part("{a}"), part("{b}")),
				shrinks(count("{a}"), count("{b}")))),
				"replicas (or weight, where they are absent) must not shrink from one step to the next: put the " +
					"steps in order", "steps"},
			{"!has(self.trafficRoutings) || size(self.trafficRoutings) == 0 || " +
				neighbours("!("+shrinks(weight("{a}"), weight("{b}"))+")"),
				"weight must not shrink from one step to the next where trafficRoutings are given: put the steps in " +
					"order", "steps"}},
		"spec.strategy.canary.steps.[]": {
			{"has(self.weight) || has(self.replicas)", "the step has neither weight nor replicas: give one of them",
				""},
			ruleReplicas,
			{"has(self.replicas) || !has(self.weight) || self.weight >= 1 && self.weight <= 100",
				"weight must be a number from 1 to 100 where replicas are absent", "weight"},
		},
		"spec.strategy.canary.trafficRoutings.[]": rulesRouting,
	}
}
