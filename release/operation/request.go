// Package operation decides how the operations of a plan change one workload, and defines the messages between the
// workflow, the party's worker and the centre.
package operation

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
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
	// ReportBlocked makes the activity return workload.Result.Blocked as soon as pods are not created or do not start.
	// The workflow publishes that and repeats the request.
	ReportBlocked bool `json:"reportBlocked,omitempty"`
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
func (r Request) Version() Version { return VersionOf(r.Change()) }

// VersionOf returns the version that a rollout's change deploys; nil for other changes.
func VersionOf(change strategy.Change) Version {
	switch {
	case change.Package != nil:
		return *change.Package
	case change.Image != nil:
		return *change.Image
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
			Package: snap.Package(n), Restore: snap.Restoration(n, w), Image: snap.Image(n),
			DeadlineSeconds: service.Deadline(), UnreachableBudgetSeconds: snap.UnreachableBudgetSeconds})
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
		return workload.AnnotationRestartedBy
	case plan.HTTPUploadDeploy:
		return workload.AnnotationDeployed
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

// Observed is a snapshot with the inputs that only operations need.
type Observed struct {
	workload.Snapshot
	// UID is the workload's.
	UID string
	// Original is what the holder saved; nil if nothing is saved. OriginalProblem explains why it could not be read.
	Original        *Original
	OriginalProblem string
	// Rollout is the value of AnnotationRollout: an unfinished rollout controls the workload's split, with or without a
	// claim; "" if there is none.
	Rollout string
	// Copied means that a release had left the claim, the original and the rollout on the workload which has ended and
	// given everything back: another client has brought them back since, with an older copy of the workload.
	Copied bool
	// Held means that this operation has already held the claim. Ending is the result that it was about to return when
	// it released the claim.
	Held   bool
	Ending *workload.Ending
	// Terminating is the number of terminating pods, which Total does not include; nil if the status has no such
	// number.
	Terminating *int32
	// UpdateType is UpdateRolling, UpdateRecreate or UpdateOnDelete.
	UpdateType   string
	Partition    int32
	Paused       bool
	OrderedReady bool
	FirstOrdinal int32
	// Remembered and LeftAt are the values of AnnotationReplicas and AnnotationLeftAt, "" if absent.
	Remembered string
	LeftAt     string
	// Marker is the pod template's marker of the request's kind (Request.MarkerName). For a deploy it is set only while
	// the template is unchanged since the deploy.
	Marker string
	// Package is the SHA-256 of the template's code package, "" for none.
	Package string
	// Revision is the template's: a Deployment's revision number, a StatefulSet's update revision, "" for a DaemonSet.
	Revision string
	// Template is the pod template in the form that records keep; nil if the operation does not change it.
	Template *revision.Revision
	// TemplateMissing means that the cluster no longer keeps the pod template that RESTORE should restore.
	TemplateMissing bool
}

// Original is what an operation saves on the workload (AnnotationOriginal), so that any later operation can restore
// what it borrowed.
type Original struct {
	// UID is the workload's: another one with this annotation is a copy of it (rollout.AnnotationsOf).
	UID       string         `json:"uid,omitempty"`
	Operation plan.Operation `json:"operation"`
	// Begun means that the first change was made; until then the workload is only claimed.
	Begun   bool      `json:"begun"`
	BegunAt time.Time `json:"begunAt"`
	// Borrowed are the settings that are changed during the operation.
	Borrowed []workload.Borrowed `json:"borrowed,omitempty"`
	// Size is the size that START restores and STOP remembers. Requested is the size that the operation last set.
	Size      *int32 `json:"size,omitempty"`
	Requested *int32 `json:"asked,omitempty"`
	// Change is what the workload was before the operation.
	revision.Change
	// Target is the final size of RESTORE, if the size changes.
	Target *int32 `json:"target,omitempty"`
	// ByDeletion means that the operation deletes the pods itself instead of relying on the workload's controller.
	ByDeletion bool `json:"byDeletion,omitempty"`
	// Changed is true if the operation changed more than the claim.
	Changed bool `json:"changed,omitempty"`
}

// ParseOriginal parses the annotation AnnotationOriginal. borrowable are the settings that an operation may borrow from
// the workload's kind. An annotation with any other setting was written by another client and is refused.
func ParseOriginal(text string, borrowable []string) (*Original, error) {
	var o Original
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return nil, err
	}
	for _, b := range o.Borrowed {
		if !slices.Contains(borrowable, b.Path) {
			return nil, fmt.Errorf("another client added %s, which no operation borrows", b.Path)
		}
	}
	return &o, nil
}

// String returns the annotation's value.
func (o Original) String() string { return string(jsonpatch.Encode(o)) }

// parseSize parses a size from an annotation; ok is false if it is not a positive int32.
func parseSize(text string) (n int32, ok bool) {
	v, err := strconv.ParseInt(text, 10, 64)
	return int32(v), err == nil && v >= 1 && v <= math.MaxInt32
}

// rememberedSize returns the size that START should restore, if it is still valid (see AnnotationLeftAt).
func (o Observed) rememberedSize() (int32, bool) {
	n, ok := parseSize(o.Remembered)
	if !ok || o.Replicas == 0 {
		return n, ok
	}
	left, ok := parseSize(o.LeftAt)
	return n, ok && left == o.Replicas && n > left
}

// ready reports whether the requested number of pods is available (ready for minReadySeconds).
func (o Observed) ready() bool { return !o.Lagging() && o.Available >= o.Replicas }

// resized reports whether another client has changed the size since the operation last set it.
func (o Observed) resized() bool {
	return o.Original.Requested != nil && *o.Original.Requested != o.Replicas
}

// terminating reports whether the status counts terminating pods and there are some.
func (o Observed) terminating() bool { return o.Terminating != nil && *o.Terminating > 0 }
