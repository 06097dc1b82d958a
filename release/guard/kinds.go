package guard

import (
	"maps"
	"slices"
	"strings"

	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/traffic"
)

// kind is a kind of object that releases borrow.
type kind struct {
	traffic.Kind
	// workload is true if the mark is the claim; otherwise it is the name of the holder.
	workload bool
}

// name returns the name of the kind as kubectl prints it: "deployments.apps".
func (k kind) name() string { return strings.TrimSuffix(k.Resource+"."+k.Group, ".") }

// kinds returns all kinds that releases borrow, ordered by name.
func kinds(custom []traffic.Kind) []kind {
	found := map[string]kind{}
	add := func(k kind) { found[k.name()] = k }
	for key, pointers := range pods.BorrowedFields() {
		group, name, _ := strings.Cut(key, "/")
		add(kind{traffic.Kind{Group: group, Resource: strings.ToLower(name) + "s", Pointers: pointers}, true})
	}
	scaler := traffic.Kind{Group: "autoscaling", Resource: "horizontalpodautoscalers"}
	for _, field := range pods.AutoscalerLimits() {
		scaler.Pointers = append(scaler.Pointers, "/spec/"+field)
	}
	for _, k := range slices.Concat(traffic.Kinds(), []traffic.Kind{scaler}, custom) {
		if _, is := found[kind{Kind: k}.name()]; !is {
			add(kind{Kind: k})
		}
	}
	var out []kind
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[name])
	}
	return out
}
