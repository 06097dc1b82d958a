package workloadops

import "strings"

// Names that Slipway writes on a workload.
const (
	// AnnotationClaimedBy holds the workflow and run that is releasing the workload: Holder.String().
	AnnotationClaimedBy = "slipway.io/claimed-by"
	// LabelClaimed marks a claimed workload, so that one filtered watch per party sees them all.
	LabelClaimed = "slipway.io/claimed"
	// AnnotationReplicas remembers the size of a workload that STOP scaled to zero.
	AnnotationReplicas = "slipway.io/replicas"
	// AnnotationOriginal holds, as JSON, what the running operation borrowed from the workload, to be given back at its end.
	AnnotationOriginal = "slipway.io/original"
	// AnnotationRestartedBy is stamped on the pod template by RESTART.
	AnnotationRestartedBy = "slipway.io/restarted-by"
)

// Holder is who holds a workload: a workflow and its run.
type Holder struct {
	WorkflowID string
	RunID      string
}

// String is the claim's value: "<workflow ID>@<run ID>".
func (h Holder) String() string { return h.WorkflowID + "@" + h.RunID }

// ParseHolder reads a claim's value. A value without a run, as a person may write it, is a workflow ID.
func ParseHolder(value string) Holder {
	at := strings.LastIndexByte(value, '@')
	if at < 0 {
		return Holder{WorkflowID: value}
	}
	return Holder{WorkflowID: value[:at], RunID: value[at+1:]}
}
