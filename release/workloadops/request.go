// Package workloadops decides what the deployments of a plan do to one workload, and names the messages between the workflow, the party's
// worker and the centre. What a decision goes by and what it says (Snapshot, NextAction) it shares with rollouts.
package workloadops

import (
	"encoding/json"
	"time"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
)

// The activities of a party's queue that act on a workload.
const (
	// ActivityRun brings one workload to what the request asks and gives back what it borrowed. Request → Result.
	ActivityRun = "workload.Run"
	// ActivityRestore gives back what an unfinished Run borrowed and releases the claim. RestoreRequest → Result.
	ActivityRestore = "workload.Restore"
	// ActivityCountUnavailable counts the pods of workloads that are unavailable now. UnavailableRequest → UnavailableResult.
	ActivityCountUnavailable = "workload.Out"
	// ActivityPreflight checks, without a write, that every request of a batch can be carried out. PreflightRequest → PreflightResult.
	ActivityPreflight = "workload.Preflight"
)

// The centre's activities, on the engine's own queue.
const (
	// ActivityLoadItem reads one item of a task from its record. LoadItemRequest → LoadItemResult.
	ActivityLoadItem = "home.LoadItem"
	// ActivityBeginTask checks that the task is the live one of its plan. TaskRequest → BeginTaskResult.
	ActivityBeginTask = "home.BeginTask"
	// ActivityCompleteRecord writes the task's final state, asked from its own workflow, into its record and prunes old records.
	// TaskRequest → nothing.
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
	// RollOut is how a deploy of a service with a strategy is released: each workload by a Rollout of its own. nil: by ActivityRun.
	RollOut *strategy.OfService `json:"rollOut,omitempty"`
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

// Request asks for one operation on one workload.
type Request struct {
	// Claim is the holder of the workload while the operation lasts: Holder.String() of workflow and run.
	Claim string `json:"claim"`
	// TakeOver is the claim of a workflow that is dead and may be replaced; what it borrowed is given back first. "" : none.
	TakeOver string `json:"takeOver,omitempty"`
	// Marker is stamped on the pod template by RESTART: the same marker is never stamped twice. That of a deploy names what is deployed: a
	// template that has it is left as it is.
	Marker    string           `json:"marker"`
	Workload  catalog.Workload `json:"workload"`
	Operation plan.Operation   `json:"operation"`
	Method    plan.Method      `json:"method"`
	// DeadlineSeconds is how long the operation may take, time in which the cluster cannot be reached not counted.
	DeadlineSeconds int64 `json:"deadlineSeconds"`
	// UnreachableBudgetSeconds is how long the cluster may be out of reach before the operation is interrupted; 0: there is no limit.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// Spent is what earlier, interrupted runs of the same operation have used of the deadline, in seconds.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
	// Package is what HTTP_UPLOAD_DEPLOY deploys, and COMPILE_DEPLOY if the build yields a package; nil otherwise.
	Package *source.Package `json:"package,omitempty"`
	// Restore is what RESTORE brings back; nil for other operations.
	Restore *plan.Restoration `json:"restore,omitempty"`
	// Image is what COMPILE_DEPLOY deploys if the build yields an image; nil otherwise.
	Image *source.Image `json:"image,omitempty"`
	// Build is the build of COMPILE_DEPLOY, in the request of the item's first workload alone.
	Build *build.Order `json:"build,omitempty"`
}

// Version is what a deploy brings.
type Version interface {
	// Marker is the same for two versions exactly when pods of one are pods of the other.
	Marker() string
	// What names it in sentences.
	What() string
	// Unfit says why it cannot be put into a pod template, "" when it can.
	Unfit(template map[string]any) string
	// StandsIn says whether a pod template is one that it was put into, and that nobody has changed in what matters since.
	StandsIn(template map[string]any) bool
}

// Version is what the request deploys; nil when it deploys nothing.
func (r Request) Version() Version { return versionOf(r.Package, r.Image) }

// VersionOf is the version that a rollout's change deploys; nil for other changes.
func VersionOf(change strategy.Change) Version { return versionOf(change.Package, change.Image) }

func versionOf(code *source.Package, image *source.Image) Version {
	switch {
	case code != nil:
		return *code
	case image != nil:
		return *image
	}
	return nil
}

// Change is the same as the change of a rollout.
func (r Request) Change() strategy.Change { return strategy.Change{Package: r.Package, Image: r.Image} }

// Requests are the operations of item n (an index into the document) of a task, one for each workload, their claims not yet filled in.
func Requests(snap plan.Snapshot, n int) []Request {
	item := snap.Document.Items[n]
	service := snap.Services[item.ServiceID]
	var requests []Request
	for _, w := range snap.Selected(n) {
		requests = append(requests, Request{Workload: w, Operation: item.Deployment, Method: item.MethodOrDefault(), Package: snap.Package(n),
			Restore: snap.Restoration(n, w), Image: snap.Image(n), DeadlineSeconds: service.Deadline(),
			UnreachableBudgetSeconds: snap.UnreachableBudgetSeconds})
	}
	if len(requests) > 0 {
		requests[0].Build = snap.Build(n)
	}
	return requests
}

// MarkerName is the annotation of the pod template by which the pods that the operation has made are known; "" where it makes none.
func (r Request) MarkerName() string {
	switch r.Operation {
	case plan.Restart:
		return AnnotationRestartedBy
	case plan.HTTPUploadDeploy:
		return AnnotationDeployed
	}
	return ""
}

// what is what a deploy brings, for sentences.
func (r Request) what() string {
	if r.Operation == plan.Restore {
		return "its earlier pod template"
	}
	return r.Version().What()
}

// RestoreRequest asks that what an operation borrowed is given back.
type RestoreRequest struct {
	Request
	// Persist has every failure tried again by the server, every RestoreAgain, for as long as it takes: the workflow knows already that it
	// cannot be done yet, and a try costs no history.
	Persist bool `json:"persist,omitempty"`
}

// RestoreAgain is after how long what is owed, and could not be given back, is tried again.
const RestoreAgain = time.Minute

// Result says what was done to a workload.
type Result struct {
	// Message is what was done, in a sentence: "started: 3 of 3 pods are ready", "nothing to do: …".
	Message      string `json:"message"`
	Changed      bool   `json:"changed"`
	FromRevision string `json:"fromRevision,omitempty"`
	ToRevision   string `json:"toRevision,omitempty"`
	FromReplicas *int32 `json:"fromReplicas,omitempty"`
	ToReplicas   *int32 `json:"toReplicas,omitempty"`
	// FromPackage and ToPackage are the SHA-256 of the code packages before and after a deploy of one.
	FromPackage string `json:"fromPackage,omitempty"`
	ToPackage   string `json:"toPackage,omitempty"`
	// Before and After are the revisions before and after an operation that changes the pod template.
	Before *revision.Revision `json:"before,omitempty"`
	After  *revision.Revision `json:"after,omitempty"`
}

// PreflightRequest asks a party's worker whether these requests can be carried out. Of Claim the engine counts; Marker and TakeOver are not
// looked at.
type PreflightRequest struct {
	Requests []Request `json:"requests"`
}

// UnavailableRequest asks how many pods of each workload are unavailable: asked for, and not ready.
type UnavailableRequest struct {
	Workloads []catalog.Workload `json:"workloads"`
}

// UnavailableResult has one number for each workload of the request, in its order; 0 for one that does not exist.
type UnavailableResult struct {
	Unavailable []int32 `json:"out"`
}

// PreflightResult lists what cannot be done; empty: everything can.
type PreflightResult struct {
	Refusals []Refusal `json:"refusals,omitempty"`
	// Warnings say of requests that can be carried out what is worth knowing first.
	Warnings []Refusal `json:"warnings,omitempty"`
}

// Refusal says why the request of that index in a PreflightRequest cannot be carried out, or what it is warned of.
type Refusal struct {
	Index int `json:"index"`
	// Key is that of the plan's item which is at fault; absent: the service.
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
}

// gapLimit is the most that counts against the deadline between two reads: time in which no worker ran does not count, beyond that.
const gapLimit = 30 * time.Second

// Progress is what an attempt hands on to the next one, and what somebody who watches sees: the heartbeat details of ActivityRun.
type Progress struct {
	// ElapsedSeconds is how much of the deadline is used.
	ElapsedSeconds float64 `json:"elapsedSeconds"`
	// ReadAt is when the workload was last read.
	ReadAt time.Time `json:"readAt"`
	// UnreachableSince is when the cluster first did not answer; nil while the cluster answers.
	UnreachableSince *time.Time `json:"unreachableSince,omitempty"`
	// Message is what it waits for: "2 of 3 pods are ready".
	Message string `json:"message,omitempty"`
	// Held says that the operation was seen to hold the workload.
	Held bool `json:"held,omitempty"`
	// Ending is the answer that is given once the last write is done.
	Ending *Ending `json:"ending,omitempty"`
	// Data is the answer that a rollout's activity gives once its last write is done, as JSON.
	Data json.RawMessage `json:"data,omitempty"`
	// Modified says that a change of the traffic has written something.
	Modified bool `json:"modified,omitempty"`
	// Updated and UpdatedReady are how many pods of a rollout's new version there are, and how many are ready, as they were last counted.
	Updated      *int32 `json:"updated,omitempty"`
	UpdatedReady *int32 `json:"updatedReady,omitempty"`
	// MovedSeconds is how much of the deadline was used when these numbers last changed.
	MovedSeconds float64 `json:"movedSeconds,omitempty"`
}

// Still is how long pods have not come on.
func (p Progress) Still() time.Duration {
	return time.Duration((p.ElapsedSeconds - p.MovedSeconds) * float64(time.Second))
}

// Elapsed is how much of the deadline is used.
func (p Progress) Elapsed() time.Duration {
	return time.Duration(p.ElapsedSeconds * float64(time.Second))
}

// Read counts a read that succeeded. The time since the one before counts, gapLimit at most; none of it after a request that was not
// answered.
func (p *Progress) Read(now time.Time) {
	if !p.ReadAt.IsZero() && p.UnreachableSince == nil {
		gap := min(now.Sub(p.ReadAt), gapLimit)
		p.ElapsedSeconds += max(0, gap.Seconds())
	}
	p.ReadAt = now
}

// Reached ends an outage: whatever was asked of the cluster after the read was answered too.
func (p *Progress) Reached() { p.UnreachableSince = nil }

// Failed counts a request that was not answered, and returns since how long that is so.
func (p *Progress) Failed(now time.Time) time.Duration {
	if p.UnreachableSince == nil {
		p.UnreachableSince = &now
	}
	return max(0, now.Sub(*p.UnreachableSince))
}
