package pods

import (
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
)

// techniques are the techniques by API group and kind ("apps/Deployment") and style. A style that is missing is refused.
var techniques = map[string]map[strategy.Style]Technique{
	"apps/Deployment": {
		strategy.StylePartition: deploymentPartition{},
		strategy.StyleCanary:    deploymentExtra{},
		strategy.StyleBlueGreen: deploymentBlueGreen{},
	},
	"apps/StatefulSet": {strategy.StylePartition: partitioned{nested: true, ordinals: true}},
	"apps/DaemonSet":   {strategy.StylePartition: byDeletion{}},
	"apps.kruise.io/CloneSet": {
		strategy.StylePartition: partitioned{share: true},
		strategy.StyleBlueGreen: cloneSetBlueGreen{partitioned{share: true}},
	},
	"apps.kruise.io/StatefulSet": {strategy.StylePartition: partitioned{nested: true, ordinals: true}},
	"apps.kruise.io/DaemonSet":   {strategy.StylePartition: partitioned{nested: true}},
}

// Key is how the table of techniques names a kind: "<API group>/<kind>", of any version.
func Key(ref catalog.WorkloadRef) string {
	group := ref.APIVersion
	for i := range group {
		if group[i] == '/' {
			group = group[:i]
			break
		}
	}
	return group + "/" + ref.Kind
}

// TechniqueOf is the technique for a workload and a style; false when there is none.
func TechniqueOf(ref catalog.WorkloadRef, style strategy.Style) (Technique, bool) {
	t, ok := techniques[Key(ref)][style]
	return t, ok
}

// Known says whether workloads of that kind can be rolled out in any style.
func Known(ref catalog.WorkloadRef) bool { return len(techniques[Key(ref)]) > 0 }
