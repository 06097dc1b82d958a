package plan

import (
	"slices"
	"strings"

	"slipway.io/slipway/release/catalog"
)

// LabelList are the item's labels: deployLabel split at commas, blanks trimmed, empty ones dropped.
func (i Item) LabelList() []string {
	var labels []string
	for label := range strings.SplitSeq(i.DeployLabel, ",") {
		if label = strings.TrimSpace(label); label != "" {
			labels = append(labels, label)
		}
	}
	return labels
}

// Select keeps the workloads that carry one of the item's labels; without labels it keeps all.
func (i Item) Select(workloads []catalog.Workload) []catalog.Workload {
	wanted := i.LabelList()
	if len(wanted) == 0 {
		return workloads
	}
	var selected []catalog.Workload
	for _, w := range workloads {
		if slices.ContainsFunc(w.Labels, func(l string) bool { return slices.Contains(wanted, l) }) {
			selected = append(selected, w)
		}
	}
	return selected
}
