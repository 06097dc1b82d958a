package strategy

import (
	"fmt"

	"slipway.io/slipway/release/catalog"
)

// Warnings are sentences on steps that are legal for a workload of that size but probably not meant: a step in place that asks for a part of the pods
// and gets all of them leaves no stable pod to compare with. 20 % of 1 pod is that pod; 5 of 2 pods are both.
func (s Strategy) Warnings(w catalog.Workload, size int32) []string {
	if s.Style != StylePartition || size <= 0 {
		return nil
	}
	var out []string
	for i, step := range s.Steps {
		asked := podsOf(step.Replicas, size, up)
		share := isShare(step.Replicas)
		all := share && shareOf(step.Replicas) >= 100 || !share && asked == size && i == len(s.Steps)-1
		if all || Target(step.Replicas, size) < size {
			continue
		}
		out = append(out, fmt.Sprintf("step %d of %d asks for %s and replaces every pod, since %s has %s: no stable pod is left to go back to at once; give the workload more pods, or use an extra workload (enableExtraWorkloadForCanary) or blue-green",
			i+1, len(s.Steps), step.Replicas.String(), w, Plural(int(size), "pod", "pods")))
	}
	return out
}

// Plural counts things in a sentence: "1 pod", "2 pods".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
