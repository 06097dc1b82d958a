package plan

import (
	"time"

	"slipway.io/slipway/release/catalog"
)

// Snapshot is what one task runs: the plan, and of the catalogue what it names, as they were when it was executed.
type Snapshot struct {
	Task      string    `json:"task"`
	Plan      string    `json:"plan"`
	CreatedAt time.Time `json:"createdAt"`
	Document  Document  `json:"document"`
	// Services are the catalogue entries that the document names.
	Services map[ServiceID]catalog.Service `json:"services"`
	// Queues are the task queues of the parties that the services' workloads live with.
	Queues map[string]string `json:"queues"`
	// UnreachableBudgetSeconds is how long a cluster may be out of reach before the task is interrupted.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
}

// Selected are the workloads of item n (an index into the document) that its deployLabel selects, in the catalogue's order.
func (s Snapshot) Selected(n int) []catalog.Workload {
	item := s.Document.Items[n]
	return item.Select(s.Services[item.ServiceID].Workloads)
}
