package workloadops

// The centre's activities, on the engine's own queue.
const (
	// ActivityLoadItem reads one item of a task from its record. LoadItemRequest → LoadItemResult.
	ActivityLoadItem = "home.LoadItem"
	// ActivityBeginTask checks that the task is the live one of its plan. TaskRequest → BeginTaskResult.
	ActivityBeginTask = "home.BeginTask"
	// ActivityCompleteRecord writes the task's final state, asked from its own workflow, into its record and prunes old records. TaskRequest → nothing.
	ActivityCompleteRecord = "home.CompleteRecord"
	// ActivityClaimHolder says whether the holder of a workload may be taken over. ClaimHolderRequest → ClaimHolderResult.
	ActivityClaimHolder = "home.ClaimHolder"
)

// TaskRequest names a task.
type TaskRequest struct {
	Task  string `json:"task"`
	Plan  string `json:"plan"`
	RunID string `json:"runId"`
	// Reclaim has BeginTask write anew that the task is its plan's live one, so that an execute that looked before is refused.
	Reclaim bool `json:"reclaim,omitempty"`
}

// BeginTaskResult says whether the task may run (again).
type BeginTaskResult struct {
	// Superseded is the newer task of the same plan that has taken this one's place; "" when none has.
	Superseded string `json:"superseded,omitempty"`
}

// LoadItemRequest names an item, counted from 1.
type LoadItemRequest struct {
	Task string `json:"task"`
	Item int    `json:"item"`
}

// LoadItemResult is an item as it was when the task was executed: one request for each workload, its claim not yet filled in.
type LoadItemResult struct {
	Workloads []WorkloadOrder `json:"workloads"`
}

// WorkloadOrder is one workload's operation and the queue of its party.
type WorkloadOrder struct {
	Queue   string  `json:"queue"`
	Request Request `json:"request"`
}

// ClaimHolderRequest asks about a claim's value.
type ClaimHolderRequest struct {
	Claim string `json:"claim"`
	// Task is the task that wants the workload, Plan its plan: it may take over from an interrupted task of the same plan.
	Task string `json:"task"`
	Plan string `json:"plan"`
}

// ClaimHolderResult says whether the claim may be taken over, and why (not).
type ClaimHolderResult struct {
	Dead   bool   `json:"dead"`
	Reason string `json:"reason"`
}

// QueryState answers the whole status of a release: plan.Task for a task, plan.ServiceStatus for one of its items.
const QueryState = "state"

// SearchAttributeState is the search attribute that holds a release's state.
const SearchAttributeState = "SlipwayState"
