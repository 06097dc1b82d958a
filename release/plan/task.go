package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/window"
)

// TaskState is the state of one execution of a plan, with the names of the source document.
type TaskState string

// The states of a task.
const (
	TaskPending     TaskState = "Pending"
	TaskRunning     TaskState = "Running"     // 执行中
	TaskPausing     TaskState = "Pausing"     // 暂停中
	TaskPaused      TaskState = "Paused"      // 已暂停
	TaskStopping    TaskState = "Stopping"    // 停止中
	TaskStopped     TaskState = "Stopped"     // 已停止
	TaskInterrupted TaskState = "Interrupted" // 被中断
	TaskSucceeded   TaskState = "Succeeded"   // 执行成功
	TaskFailed      TaskState = "Failed"      // 执行失败
)

// Final reports whether a task in this state never changes again.
func (s TaskState) Final() bool { return s == TaskStopped || s == TaskSucceeded || s == TaskFailed }

// ItemState is the state of one service of a task.
type ItemState string

// The states of an item.
const (
	ItemPending   ItemState = "Pending"
	ItemRunning   ItemState = "Running"
	ItemSucceeded ItemState = "Succeeded"
	ItemFailed    ItemState = "Failed"
	ItemSkipped   ItemState = "Skipped"
)

// Ended reports whether an item in this state has ended.
func (s ItemState) Ended() bool { return s == ItemSucceeded || s == ItemFailed || s == ItemSkipped }

// Task is one execution of a plan, as the HTTP API returns it.
type Task struct {
	ID      string `json:"id"`
	Plan    string `json:"plan"`
	Comment string `json:"comment,omitempty"`
	// RerunOf is the task whose unsuccessful services this one runs again; ReverseOf is the task whose changes it
	// reverses; "" for others.
	RerunOf   string `json:"rerunOf,omitempty"`
	ReverseOf string `json:"reverseOf,omitempty"`
	// Actor executed the plan and ExecuteReason is the reason given; both are self-reported.
	Actor         string    `json:"actor,omitempty"`
	ExecuteReason string    `json:"executeReason,omitempty"`
	State         TaskState `json:"state"`
	Reason        string    `json:"reason"`
	// Conditions are the same state for programs; they are derived for each response and not stored.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	CreatedAt  time.Time          `json:"createdAt"`
	StartedAt  *time.Time         `json:"startedAt,omitempty"`
	FinishedAt *time.Time         `json:"finishedAt,omitempty"`
	// WaitingFor is the release window that the next services wait for, or the longest wait (approval, decision or
	// window) if all running services wait for their rollouts. Absent while any service progresses.
	WaitingFor *RolloutWait    `json:"waitingFor,omitempty"`
	Services   []ServiceStatus `json:"services"`
	// History is the history of commands, oldest first.
	History []audit.Entry `json:"history,omitempty"`
	// RefusalsDropped is the number of refused commands that History no longer has.
	RefusalsDropped int64 `json:"refusalsDropped,omitempty"`
	// Interruptions are the times in which a system failure interrupted the task, with the reasons, oldest first.
	Interruptions []Interruption     `json:"interruptions,omitempty"`
	Workflow      *audit.WorkflowRef `json:"workflow,omitempty"`
}

// ServiceStatus is the status of one service in a task.
type ServiceStatus struct {
	ServiceID  ServiceID        `json:"serviceId"`
	Priority   int64            `json:"priority"`
	Deployment Operation        `json:"deployment"`
	Method     Method           `json:"containerExecMethod,omitempty"`
	State      ItemState        `json:"state"`
	Reason     string           `json:"reason"`
	StartedAt  *time.Time       `json:"startedAt,omitempty"`
	FinishedAt *time.Time       `json:"finishedAt,omitempty"`
	Workloads  []WorkloadStatus `json:"workloads"`
	// RollOut means that rollouts release the workloads; they may wait for approvals.
	RollOut bool `json:"rollOut,omitempty"`
	// Package is the code package that HTTP_UPLOAD_DEPLOY has fetched or COMPILE_DEPLOY has built; absent before that,
	// and for other operations.
	Package *PackageStatus `json:"package,omitempty"`
	// Build is the build of COMPILE_DEPLOY; absent until its commit is known, and for other operations.
	Build *BuildStatus `json:"build,omitempty"`
}

// PackageStatus is a code package that a task deploys.
type PackageStatus struct {
	// URL is its source; user and query are removed.
	URL string `json:"url"`
	// SHA256 is the digest of its bytes, in hexadecimal.
	SHA256 string `json:"sha256"`
	// Bytes is its size; UnpackedBytes is the size of its content, 0 if it is not unpacked.
	Bytes         int64 `json:"bytes"`
	UnpackedBytes int64 `json:"unpackedBytes,omitempty"`
	// Format is zip, tar, tar.gz or tar.zst; "" if it is not unpacked.
	Format string `json:"format,omitempty"`
	// Stored means that every party's package store has it.
	Stored bool `json:"stored"`
}

// String returns "sha256:0123… (zip, 12.5 MiB) from https://host/path".
func (p PackageStatus) String() string {
	format := ""
	if p.Format != "" {
		format = p.Format + ", "
	}
	return fmt.Sprintf("sha256:%s (%s%s) from %s", p.SHA256, format, source.Size(p.Bytes), p.URL)
}

// WorkloadStatus is the status of one workload in a task.
type WorkloadStatus struct {
	Party     string    `json:"party"`
	Namespace string    `json:"namespace"`
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	State     ItemState `json:"state"`
	// Message is a sentence: what was done, the awaited condition, or why it failed.
	Message string `json:"message"`
	revision.Change
	// Changed is true if anything was written; a workload that already had the requested state succeeds unchanged.
	Changed bool `json:"changed"`
	// Rollout is the rollout that releases the workload of a service with a strategy; absent before it begins.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
}

// RolloutStatus identifies a rollout of a task and describes its progress.
type RolloutStatus struct {
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Record is the name of its ReleaseRecord.
	Record string `json:"record,omitempty"`
	// Phase is "" until the rollout is known to have begun.
	Phase string `json:"phase,omitempty"`
	// CurrentStepIndex counts from 1; Steps is the number of steps.
	CurrentStepIndex int `json:"currentStepIndex,omitempty"`
	Steps            int `json:"steps"`
	// CanaryWeight is the new version's percentage of the traffic; absent if the rollout moves no traffic.
	CanaryWeight *int32 `json:"canaryWeight,omitempty"`
	// WaitingFor is the awaited condition; absent once the rollout has ended.
	WaitingFor *RolloutWait `json:"waitingFor,omitempty"`
}

// RolloutWait is what a rollout waits for (its waitingFor), or what the task as a whole waits for.
type RolloutWait struct {
	Kind string `json:"kind"`
	// Service is the service whose rollout a task waits for; "" for a wait of the task itself, and in the wait of a
	// rollout.
	Service ServiceID  `json:"service,omitempty"`
	Since   time.Time  `json:"since"`
	Until   *time.Time `json:"until,omitempty"`
	Gate    string     `json:"gate,omitempty"`
	Message string     `json:"message"`
}

// rolloutRolledBack is the phase of a rollout that has restored the stable version (rollout.PhaseRolledBack).
const rolloutRolledBack = "RolledBack"

// String returns its name for messages: "rollout shop/order".
func (r RolloutStatus) String() string {
	name := "rollout " + r.Namespace + "/" + r.Name
	if r.Party != "" && r.Party != catalog.DefaultParty {
		name += " of party " + r.Party
	}
	return name
}

// ServiceCounts is the number of a task's services, in total and by outcome.
//
// +kubebuilder:object:generate=true
type ServiceCounts struct {
	Total     int `json:"total"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	// Skipped services were never begun.
	Skipped int `json:"skipped"`
}

// Counts returns the number of the task's services by their outcome so far.
func (t Task) Counts() ServiceCounts {
	counts := ServiceCounts{Total: len(t.Services)}
	for _, service := range t.Services {
		switch service.State {
		case ItemSucceeded:
			counts.Succeeded++
		case ItemFailed:
			counts.Failed++
		case ItemSkipped:
			counts.Skipped++
		case ItemPending, ItemRunning:
		}
	}
	return counts
}

// Packages returns the SHA-256 of all code packages that the task has deployed or replaced, sorted.
func (t Task) Packages() []string {
	var all []string
	for _, service := range t.Services {
		for _, w := range service.Workloads {
			all = append(all, w.FromPackage, w.ToPackage)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(sha256 string) bool { return sha256 == "" })
}

// Interruption is a time in which a system failure interrupted a task.
type Interruption struct {
	At time.Time `json:"at"`
	// Until is when it was resumed or given up; absent while it continues.
	Until  *time.Time `json:"until,omitempty"`
	Reason string     `json:"reason"`
}

// Verb is a command on a running task.
type Verb = audit.Verb

// The verbs of a task.
const (
	VerbPause  Verb = "pause"
	VerbResume Verb = "resume"
	VerbStop   Verb = "stop"
	// VerbApprove lets items that wait for a release window begin anyway.
	VerbApprove Verb = "approve"
)

const workflowPrefix = "task/"

// WorkflowID returns the ID of a task's Temporal workflow. It is derived from the task's ID, which has no slash, so
// that no lookup depends on visibility.
func WorkflowID(task string) string { return workflowPrefix + task }

// ItemWorkflowID returns the ID of the Temporal workflow of item n (counted from 1) of a task.
func ItemWorkflowID(task string, n int, service ServiceID) string {
	return fmt.Sprintf("%s%s/%d-%s", workflowPrefix, task, n, service)
}

// TaskOfWorkflow returns the task of a task's workflow or of an item's workflow; ok is false for any other workflow.
func TaskOfWorkflow(workflowID string) (task string, ok bool) {
	rest, ok := strings.CutPrefix(workflowID, workflowPrefix)
	task, _, _ = strings.Cut(rest, "/")
	return task, ok && task != ""
}

// Snapshot is what one task runs: the plan and the catalogue entries that it names, as of its execution.
type Snapshot struct {
	Task      string    `json:"task"`
	Plan      string    `json:"plan"`
	CreatedAt time.Time `json:"createdAt"`
	Document  Document  `json:"document"`
	// Times are when items may begin, in addition to those of the document; the execute request sets them.
	Times window.Times `json:"times,omitzero"`
	// Services are the catalogue entries that the document names.
	Services map[ServiceID]catalog.Service `json:"services"`
	// Restorations are what RESTORE restores, by the item's number, counted from 1.
	Restorations map[int][]Restoration `json:"restorations,omitempty"`
	// RerunOf is the task that is run again, "" for none.
	RerunOf string `json:"rerunOf,omitempty"`
	// Queues are the task queues of the parties of the services' workloads.
	Queues map[string]string `json:"queues"`
	// UnreachableBudgetSeconds is how long a cluster may be unreachable before the task is interrupted.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
}

// Package returns the package that item n (an index into the document) deploys, before it is fetched and without the
// secret part of its URL. The URL of a package that is built is still a pattern. It is nil for other items.
func (s Snapshot) Package(n int) *source.Package {
	item := s.Document.Items[n]
	service := s.Services[item.ServiceID]
	config, from := service.Package, item.HTTPSrcURI
	switch {
	case config == nil:
		return nil
	case item.Deployment == CompileDeploy && service.Build != nil && service.Build.Package != "":
		from = service.Build.Package
	case item.Deployment != HTTPUploadDeploy:
		return nil
	}
	p := &source.Package{Container: config.Container, MountPath: config.MountPath, Credentials: config.Credentials,
		Task: s.Task, Item: n + 1, Shown: source.Redact(from)}
	if p.URL, p.Hidden = source.HideQuery(from); !config.Unpacked() {
		p.File = source.FileOf(config.File, from)
	}
	return p
}

// AllTimes returns the times that apply to items: the plan's and the execution's.
func (s Snapshot) AllTimes() []window.Times { return window.Restricting(s.Document.Times, s.Times) }

// RollsOut reports whether rollouts release item n (an index into the document): it is a deploy of a service with a
// strategy.
func (s Snapshot) RollsOut(n int) bool {
	item := s.Document.Items[n]
	return item.Deployment.Deploys() && s.Services[item.ServiceID].RollsOut()
}

// Selected returns the workloads of item n (an index into the document) that its deployLabel selects, in the
// catalogue's order; for a RESTORE only those that have something to restore.
func (s Snapshot) Selected(n int) []catalog.Workload {
	item := s.Document.Items[n]
	selected := item.selected(s.Services[item.ServiceID].Workloads)
	if item.Deployment != Restore {
		return selected
	}
	return slices.DeleteFunc(slices.Clone(selected), func(w catalog.Workload) bool {
		return s.Restoration(n, w) == nil
	})
}

// Restoration returns what item n (an index into the document), a RESTORE, restores on a workload; nil if there is
// nothing.
func (s Snapshot) Restoration(n int, w catalog.Workload) *Restoration {
	for _, r := range s.Restorations[n+1] {
		if r.matches(w) {
			return &r
		}
	}
	return nil
}

// externalWaits are the kinds of wait of a rollout that end by a user's decision or a release window; the rollout is
// idle meanwhile.
var externalWaits = []string{"approval", "resume", "drift", WaitWindow}

// AwaitsUserOrWindow reports whether the rollout waits for a user's decision or a release window.
func (r RolloutStatus) AwaitsUserOrWindow() bool {
	return r.WaitingFor != nil && slices.Contains(externalWaits, r.WaitingFor.Kind)
}

// serviceWait returns the longest wait of a running service's rollouts; nil while one of its workloads progresses.
func serviceWait(service ServiceStatus) (longest *RolloutWait) {
	for _, w := range service.Workloads {
		if w.State != ItemRunning {
			continue
		}
		if w.Rollout == nil || !w.Rollout.AwaitsUserOrWindow() {
			return nil
		}
		if wait := *w.Rollout.WaitingFor; longest == nil || wait.Since.Before(longest.Since) {
			wait.Service, wait.Gate = service.ServiceID, "" // the gate is the rollout's
			wait.Message = fmt.Sprintf("%s of service %s: %s", w.Rollout, service.ServiceID, wait.Message)
			longest = &wait
		}
	}
	return longest
}

// ShowWait adds the longest wait of the task's services to the task's reason. If all running services wait, it also
// sets WaitingFor.
func (t *Task) ShowWait() {
	var longest *RolloutWait
	all := true
	for _, service := range t.Services {
		if service.State != ItemRunning {
			continue
		}
		wait := serviceWait(service)
		if all = all && wait != nil; wait != nil && (longest == nil || wait.Since.Before(longest.Since)) {
			longest = wait
		}
	}
	if longest == nil {
		return
	}
	t.Reason += "; " + longest.Message
	if all && t.WaitingFor == nil {
		t.WaitingFor = longest
	}
}
