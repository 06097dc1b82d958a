package guard

import (
	"slices"
	"strings"

	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workload"
)

// kind is a kind of object that releases borrow.
type kind struct {
	traffic.Kind
	// workload is a workload's kind, whose mark is the claim; nil: the mark of the object is the name of the holder.
	workload *hold.Kind
}

// name returns the name of the kind as kubectl prints it: "deployments.apps".
func (k kind) name() string { return strings.TrimSuffix(k.Resource+"."+k.Group, ".") }

// workloads returns the kinds of workload.
func workloads() (all []kind) {
	for _, k := range workload.Kinds {
		all = append(all, kind{traffic.Kind{Group: k.Resource.Group, Resource: k.Resource.Resource,
			Pointers: pods.BorrowedFields(k)}, new(hold.Kind(k))})
	}
	return all
}

// kinds returns all kinds that releases borrow, ordered by name.
func kinds(custom []traffic.Kind) []kind {
	all := workloads()
	scaler := traffic.Kind{Group: "autoscaling", Resource: "horizontalpodautoscalers"}
	for _, field := range pods.AutoscalerLimits() {
		scaler.Pointers = append(scaler.Pointers, "/spec/"+field)
	}
	for _, k := range slices.Concat(traffic.Kinds(), []traffic.Kind{scaler}, custom) {
		name := kind{Kind: k}.name()
		if !slices.ContainsFunc(all, func(known kind) bool { return known.name() == name }) {
			all = append(all, kind{Kind: k})
		}
	}
	slices.SortFunc(all, func(a, b kind) int { return strings.Compare(a.name(), b.name()) })
	return all
}
