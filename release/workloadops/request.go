// Package workloadops decides how the operations of a plan change one workload, and defines the messages between the
// workflow, the party's worker and the centre. Rollouts use its types Snapshot and NextAction, too.
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
	// ActivityRun carries out the request on one workload and restores what it borrowed. Request → Result.
	ActivityRun = "workload.Run"
	// ActivityRestore restores what an unfinished Run borrowed and releases the claim. RestoreRequest → Result.
	ActivityRestore = "workload.Restore"
	// ActivityCountUnavailable counts the unavailable pods of workloads. UnavailableRequest → UnavailableResult.
	ActivityCountUnavailable = "workload.Out"
	// ActivityPreflight checks, without a write, that every request of a batch can be carried out. PreflightRequest →
	// PreflightResult.
	ActivityPreflight = "workload.Preflight"
)

// The centre's activities, on the engine's own queue.
const (
	// ActivityLoadItem reads one item of a task from its record. LoadItemRequest → LoadItemResult.
	ActivityLoadItem = "home.LoadItem"
	// ActivityBeginTask checks that the task is the current one of its plan. TaskRequest → BeginTaskResult.
	ActivityBeginTask = "home.BeginTask"
	// ActivityCompleteRecord queries the task's workflow for the final state, writes it to the task's record and prunes
	// old records. TaskRequest → nothing.
	ActivityCompleteRecord = "home.CompleteRecord"
	// ActivityClaimHolder reports whether the claim of a workload may be taken over. ClaimHolderRequest →
	// ClaimHolderResult.
	ActivityClaimHolder = "home.ClaimHolder"
)

// TaskRequest names a task.
type TaskRequest struct {
	Task  string `json:"task"`
	Plan  string `json:"plan"`
	RunID string `json:"runId"`
	// Reclaim makes BeginTask write again that the task is its plan's current one, so that a concurrent execute that
	// read earlier is refused.
	Reclaim bool `json:"reclaim,omitempty"`
}

// BeginTaskResult is the answer of ActivityBeginTask: whether the task may run (again).
type BeginTaskResult struct {
	// Superseded is the newer task of the same plan that replaced this one; "" if there is none.
	Superseded string `json:"superseded,omitempty"`
}

// LoadItemRequest names an item, counted from 1.
type LoadItemRequest struct {
	Task string `json:"task"`
	Item int    `json:"item"`
}

// LoadItemResult is an item as of the start of the task: one request for each workload, without the claim.
type LoadItemResult struct {
	Workloads []WorkloadOrder `json:"workloads"`
	// RollOut is set for a deploy of a service with a strategy: a rollout releases each workload. nil: ActivityRun
	// does.
	RollOut *strategy.ServiceRollout `json:"rollOut,omitempty"`
}

// WorkloadOrder is one workload's operation and the queue of its party.
type WorkloadOrder struct {
	Queue   string  `json:"queue"`
	Request Request `json:"request"`
}

// ClaimHolderRequest is the input of ActivityClaimHolder: a claim's value and the task that wants the workload.
type ClaimHolderRequest struct {
	Claim string `json:"claim"`
	// Task is the task that wants the workload, Plan its plan: it may take over from an interrupted task of the same
	// plan.
	Task string `json:"task"`
	Plan string `json:"plan"`
}

// ClaimHolderResult reports whether the claim's holder is dead, so that the claim may be taken over, and why (not).
type ClaimHolderResult struct {
	Dead   bool   `json:"dead"`
	Reason string `json:"reason"`
}

// QueryState is the query for the complete status of a release: plan.Task for a task, plan.ServiceStatus for one of its
// items.
const QueryState = "state"

// SearchAttributeState is the search attribute that holds a release's state.
const SearchAttributeState = "SlipwayState"

// Request is one operation on one workload.
type Request struct {
	// Claim is the holder of the workload during the operation: Holder.String() of workflow and run.
	Claim string `json:"claim"`
	// TakeOver is the claim of a dead workflow, which may be replaced; what it borrowed is restored first. "": none.
	TakeOver string `json:"takeOver,omitempty"`
	// Marker is set on the pod template by RESTART; the same marker is never set twice. The marker of a deploy
	// identifies what is deployed: a template that already has it is not changed.
	Marker    string           `json:"marker"`
	Workload  catalog.Workload `json:"workload"`
	Operation plan.Operation   `json:"operation"`
	Method    plan.Method      `json:"method"`
	// DeadlineSeconds is how long the operation may take. Time in which the cluster is unreachable does not count.
	DeadlineSeconds int64 `json:"deadlineSeconds"`
	// UnreachableBudgetSeconds is how long the cluster may be unreachable before the operation is interrupted; 0: no
	// limit.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// SpentSeconds is how much of the deadline earlier, interrupted runs of the same operation have used.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
	// Package is the package that HTTP_UPLOAD_DEPLOY deploys, and COMPILE_DEPLOY if the build yields a package; nil
	// otherwise.
	Package *source.Package `json:"package,omitempty"`
	// Restore is what RESTORE restores; nil for other operations.
	Restore *plan.Restoration `json:"restore,omitempty"`
	// Image is the image that COMPILE_DEPLOY deploys if the build yields one; nil otherwise.
	Image *source.Image `json:"image,omitempty"`
	// Build is the build of COMPILE_DEPLOY; only the request of the item's first workload has it.
	Build *build.Order `json:"build,omitempty"`
}

// Version is the version that a deploy sets: a code package or an image.
type Version interface {
	// Marker identifies the version: two versions have the same marker if and only if their pods are the same.
	Marker() string
	// Describe returns the version's name for messages.
	Describe() string
	// UnfitReason explains why the version cannot be set in a pod template, "" if it can.
	UnfitReason(template map[string]any) string
	// PresentIn reports whether a pod template has this version and no relevant part of it was changed since.
	PresentIn(template map[string]any) bool
}

// Version returns the version that the request deploys; nil if it deploys none.
func (r Request) Version() Version { return versionOf(r.Package, r.Image) }

// VersionOf returns the version that a rollout's change deploys; nil for other changes.
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

// Change returns the request's version as the change of a rollout.
func (r Request) Change() strategy.Change { return strategy.Change{Package: r.Package, Image: r.Image} }

// Requests returns the operations of item n (an index into the document) of a task, one for each workload, without the
// claims.
func Requests(snap plan.Snapshot, n int) []Request {
	item := snap.Document.Items[n]
	service := snap.Services[item.ServiceID]
	var requests []Request
	for _, w := range snap.Selected(n) {
		requests = append(requests, Request{Workload: w, Operation: item.Deployment, Method: item.MethodOrDefault(),
			Package: snap.Package(n),
			Restore: snap.Restoration(n, w), Image: snap.Image(n), DeadlineSeconds: service.Deadline(),
			UnreachableBudgetSeconds: snap.UnreachableBudgetSeconds})
	}
	if len(requests) > 0 {
		requests[0].Build = snap.Build(n)
	}
	return requests
}

// MarkerName returns the pod template annotation that identifies the pods created by the operation; "" if it creates
// none.
func (r Request) MarkerName() string {
	switch r.Operation {
	case plan.Restart:
		return AnnotationRestartedBy
	case plan.HTTPUploadDeploy:
		return AnnotationDeployed
	}
	return ""
}

// versionName returns the name of the version that the request sets, for messages.
func (r Request) versionName() string {
	if r.Operation == plan.Restore {
		return "its earlier pod template"
	}
	return r.Version().Describe()
}

// RestoreRequest is the input of ActivityRestore: the operation whose borrowed settings are restored.
type RestoreRequest struct {
	Request
	// Persist makes Temporal retry every failure, each RestoreRetryInterval, without limit: the workflow already knows
	// that the restore is pending, and a retry adds no history.
	Persist bool `json:"persist,omitempty"`
}

// RestoreRetryInterval is the time between two attempts of a pending restore.
const RestoreRetryInterval = time.Minute

// Result is the result of an operation on a workload.
type Result struct {
	// Message is a sentence on what was done: "started: 3 of 3 pods are ready", "nothing to do: …".
	Message string `json:"message"`
	Changed bool   `json:"changed"`
	revision.Change
}

// PreflightRequest is the input of ActivityPreflight. Of Claim only the engine is used; Marker and TakeOver are
// ignored.
type PreflightRequest struct {
	Requests []Request `json:"requests"`
}

// UnavailableRequest is the input of ActivityCountUnavailable. A pod counts if it is missing from the requested size or
// not ready.
type UnavailableRequest struct {
	Workloads []catalog.Workload `json:"workloads"`
}

// UnavailableResult has one number for each workload of the request, in its order; 0 for a workload that does not
// exist.
type UnavailableResult struct {
	Unavailable []int32 `json:"out"`
}

// PreflightResult lists the requests that cannot be carried out; it is empty if all can.
type PreflightResult struct {
	Refusals []Refusal `json:"refusals,omitempty"`
	// Warnings are notes on requests that can be carried out.
	Warnings []Refusal `json:"warnings,omitempty"`
}

// Refusal explains why the request with that index in a PreflightRequest cannot be carried out, or warns about it.
type Refusal struct {
	Index int `json:"index"`
	// Key is the key of the plan's item that is wrong; absent: the service.
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
}

// gapLimit is the maximum time between two reads that counts against the deadline. Beyond it, no worker was running,
// and the time does not count.
const gapLimit = 30 * time.Second

// Progress is the state that an attempt leaves for the next one, and that observers see: the heartbeat details of
// ActivityRun.
type Progress struct {
	// ElapsedSeconds is how much of the deadline is used.
	ElapsedSeconds float64 `json:"elapsedSeconds"`
	// ReadAt is when the workload was last read.
	ReadAt time.Time `json:"readAt"`
	// UnreachableSince is when the first request of an outage failed; nil while the cluster answers.
	UnreachableSince *time.Time `json:"unreachableSince,omitempty"`
	// Message describes the progress: "2 of 3 pods are ready".
	Message string `json:"message,omitempty"`
	// Held means that the operation has held the workload.
	Held bool `json:"held,omitempty"`
	// Ending is the result that is returned once the last write is done.
	Ending *Ending `json:"ending,omitempty"`
	// Data is the result that a rollout's activity returns once its last write is done, as JSON.
	Data json.RawMessage `json:"data,omitempty"`
	// Modified means that a traffic change has written something.
	Modified bool `json:"modified,omitempty"`
	// Updated and UpdatedReady are the last counted numbers of new pods of a rollout: all, and ready ones.
	Updated      *int32 `json:"updated,omitempty"`
	UpdatedReady *int32 `json:"updatedReady,omitempty"`
	// LastChangeSeconds is how much of the deadline was used when these numbers last changed.
	LastChangeSeconds float64 `json:"movedSeconds,omitempty"`
}

// StalledFor returns how long the numbers of pods have not changed.
func (p Progress) StalledFor() time.Duration {
	return time.Duration((p.ElapsedSeconds - p.LastChangeSeconds) * float64(time.Second))
}

// Elapsed returns how much of the deadline is used.
func (p Progress) Elapsed() time.Duration {
	return time.Duration(p.ElapsedSeconds * float64(time.Second))
}

// RecordRead records a successful read. The time since the previous read counts, up to gapLimit; after a failed request
// none of it counts.
func (p *Progress) RecordRead(now time.Time) {
	if !p.ReadAt.IsZero() && p.UnreachableSince == nil {
		gap := min(now.Sub(p.ReadAt), gapLimit)
		p.ElapsedSeconds += max(0, gap.Seconds())
	}
	p.ReadAt = now
}

// RecordReachable ends an outage: the cluster has answered all requests after the read, too.
func (p *Progress) RecordReachable() { p.UnreachableSince = nil }

// RecordFailure records a failed request and returns how long the outage has lasted.
func (p *Progress) RecordFailure(now time.Time) time.Duration {
	if p.UnreachableSince == nil {
		p.UnreachableSince = &now
	}
	return max(0, now.Sub(*p.UnreachableSince))
}
