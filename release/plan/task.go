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

// Final says whether a task in this state never changes again.
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

// Ended says whether an item in this state is over.
func (s ItemState) Ended() bool { return s == ItemSucceeded || s == ItemFailed || s == ItemSkipped }

// Task is one execution of a plan as it is answered over HTTP.
type Task struct {
	ID      string `json:"id"`
	Plan    string `json:"plan"`
	Comment string `json:"comment,omitempty"`
	// RerunOf is the task whose services without success this one runs again, ReverseOf the task whose changes it takes back; "" for others.
	RerunOf   string `json:"rerunOf,omitempty"`
	ReverseOf string `json:"reverseOf,omitempty"`
	// Actor is who executed the plan, ExecuteReason why, as they said.
	Actor         string    `json:"actor,omitempty"`
	ExecuteReason string    `json:"executeReason,omitempty"`
	State         TaskState `json:"state"`
	Reason        string    `json:"reason"`
	// Conditions say the same for programs; they are derived when the task is answered, and not stored.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	CreatedAt  time.Time          `json:"createdAt"`
	StartedAt  *time.Time         `json:"startedAt,omitempty"`
	FinishedAt *time.Time         `json:"finishedAt,omitempty"`
	// WaitingFor is the release window that the next services wait for, or what each of the services that run waits for by its rollouts: a person, or a
	// window. Absent while something goes on.
	WaitingFor *RolloutWait    `json:"waitingFor,omitempty"`
	Services   []ServiceStatus `json:"services"`
	// History is who asked what of the task, oldest first.
	History []audit.Entry `json:"history,omitempty"`
	// Interruptions are when system trouble held the task up, and why, oldest first.
	Interruptions []Interruption `json:"interruptions,omitempty"`
	Workflow      *WorkflowRef   `json:"workflow,omitempty"`
}

// ServiceStatus is what a task is doing or has done to one service.
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
	// RollOut says that rollouts release the workloads, which may wait for people.
	RollOut bool `json:"rollOut,omitempty"`
	// Package is the code package that HTTP_UPLOAD_DEPLOY has fetched, or COMPILE_DEPLOY has built; absent before, and for other deployments.
	Package *PackageStatus `json:"package,omitempty"`
	// Build is what COMPILE_DEPLOY builds; absent before its commit is known, and for other deployments.
	Build *BuildStatus `json:"build,omitempty"`
}

// PackageStatus is a code package that a task deploys.
type PackageStatus struct {
	// URL is where it comes from; user and query are hidden.
	URL string `json:"url"`
	// SHA256 is the digest of its bytes, in hexadecimal.
	SHA256 string `json:"sha256"`
	// Bytes is its size, UnpackedBytes the size of what is in it: 0 when it is kept whole.
	Bytes         int64 `json:"bytes"`
	UnpackedBytes int64 `json:"unpackedBytes,omitempty"`
	// Format is zip, tar, tar.gz or tar.zst; "" when it is kept whole.
	Format string `json:"format,omitempty"`
	// Stored says that every party's package store has it.
	Stored bool `json:"stored"`
}

// String is "sha256:0123… (zip, 12.5 MiB) from https://host/path".
func (p PackageStatus) String() string {
	format := ""
	if p.Format != "" {
		format = p.Format + ", "
	}
	return fmt.Sprintf("sha256:%s (%s%s) from %s", p.SHA256, format, source.Size(p.Bytes), p.URL)
}

// WorkloadStatus is what a task is doing or has done to one workload.
type WorkloadStatus struct {
	Party     string    `json:"party"`
	Namespace string    `json:"namespace"`
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	State     ItemState `json:"state"`
	// Message is what was done, or what it waits for, or why it failed, in a sentence.
	Message string `json:"message"`
	// FromRevision and ToRevision are a Deployment's revision number, else the update revision's name, "" when unknown.
	FromRevision string `json:"fromRevision,omitempty"`
	ToRevision   string `json:"toRevision,omitempty"`
	// FromReplicas and ToReplicas are the sizes before and after, absent for a kind without a size.
	FromReplicas *int32 `json:"fromReplicas,omitempty"`
	ToReplicas   *int32 `json:"toReplicas,omitempty"`
	// FromPackage and ToPackage are the SHA-256 of the code packages before and after a deploy of one, "" for none.
	FromPackage string `json:"fromPackage,omitempty"`
	ToPackage   string `json:"toPackage,omitempty"`
	// Before and After are the revisions before and after an operation that changes the pod template; absent for others. RESTORE takes back by
	// them; who can't tell a digest gives the name alone.
	Before *revision.Revision `json:"before,omitempty"`
	After  *revision.Revision `json:"after,omitempty"`
	// Changed says whether anything was written: a workload that already was as asked is a success that changed nothing.
	Changed bool `json:"changed"`
	// Rollout is the rollout that releases the workload, of a service with a strategy; absent before it begins.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
}

// RolloutStatus is a rollout of a task: who it is, and how far it is.
type RolloutStatus struct {
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Record is the name of its ReleaseRecord.
	Record string `json:"record,omitempty"`
	// Phase is "" while the rollout is not known to have begun.
	Phase string `json:"phase,omitempty"`
	// CurrentStepIndex counts from 1; Steps is how many there are.
	CurrentStepIndex int `json:"currentStepIndex,omitempty"`
	Steps            int `json:"steps"`
	// CanaryWeight is the share of the traffic that the new version has, in percent; absent where the rollout moves none.
	CanaryWeight *int32 `json:"canaryWeight,omitempty"`
	// WaitingFor is what the rollout waits for; absent once it is over.
	WaitingFor *RolloutWait `json:"waitingFor,omitempty"`
}

// RolloutWait is what a rollout waits for, the waitingFor of the rollout itself, or the task as a whole.
type RolloutWait struct {
	Kind string `json:"kind"`
	// Service is the one whose rollout a task waits for; "" of what the task waits for by itself, and of a rollout's own wait.
	Service ServiceID  `json:"service,omitempty"`
	Since   time.Time  `json:"since"`
	Until   *time.Time `json:"until,omitempty"`
	Gate    string     `json:"gate,omitempty"`
	Message string     `json:"message"`
}

// RolloutRolledBack is the phase of a rollout that has brought everything back to the stable version.
const RolloutRolledBack = "RolledBack"

// String is how messages call it: "rollout shop/order".
func (r RolloutStatus) String() string {
	name := "rollout " + r.Namespace + "/" + r.Name
	if r.Party != "" && r.Party != catalog.DefaultParty {
		name += " of party " + r.Party
	}
	return name
}

// ServiceCounts is how many services a task has, and how they ended.
//
// +kubebuilder:object:generate=true
type ServiceCounts struct {
	Total     int `json:"total"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	// Skipped are those that were never begun.
	Skipped int `json:"skipped"`
}

// Counts is how the task's services ended so far.
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

// Packages are the SHA-256 of all code packages that the task has brought or taken away, in order.
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

// WorkflowRef points at the Temporal workflow behind a release.
type WorkflowRef struct {
	ID    string `json:"id"`
	RunID string `json:"runId,omitempty"`
	URL   string `json:"url,omitempty"`
}

// Interruption is a time in which system trouble held a task up.
type Interruption struct {
	At time.Time `json:"at"`
	// Until is when it was resumed or given up; absent while it lasts.
	Until  *time.Time `json:"until,omitempty"`
	Reason string     `json:"reason"`
}

// Verb is what a person can ask of a running task.
type Verb = audit.Verb

// What a task can be asked.
const (
	VerbPause  Verb = "pause"
	VerbResume Verb = "resume"
	VerbStop   Verb = "stop"
	// VerbApprove lets what waits for a release window begin all the same.
	VerbApprove Verb = "approve"
)

const workflowPrefix = "task/"

// WorkflowID is the Temporal workflow of a task. A task's ID has no slash, so that no lookup depends on visibility.
func WorkflowID(task string) string { return workflowPrefix + task }

// ItemWorkflowID is the Temporal workflow of item n (counted from 1) of a task.
func ItemWorkflowID(task string, n int, service ServiceID) string {
	return fmt.Sprintf("%s%s/%d-%s", workflowPrefix, task, n, service)
}

// TaskOfWorkflow is the task that a workflow, its own or one of its items', belongs to; ok is false for any other workflow.
func TaskOfWorkflow(workflowID string) (task string, ok bool) {
	rest, ok := strings.CutPrefix(workflowID, workflowPrefix)
	task, _, _ = strings.Cut(rest, "/")
	return task, ok && task != ""
}

// Snapshot is what one task runs: the plan, and of the catalogue what it names, as they were when it was executed.
type Snapshot struct {
	Task      string    `json:"task"`
	Plan      string    `json:"plan"`
	CreatedAt time.Time `json:"createdAt"`
	Document  Document  `json:"document"`
	// Times are when items may begin, beside those of the document: who executed the plan has said so.
	Times window.Times `json:"times,omitzero"`
	// Services are the catalogue entries that the document names.
	Services map[ServiceID]catalog.Service `json:"services"`
	// Restorations are what RESTORE brings back, by the item's number, counted from 1.
	Restorations map[int][]Restoration `json:"restorations,omitempty"`
	// RerunOf is the task that is run again, "" for none.
	RerunOf string `json:"rerunOf,omitempty"`
	// Queues are the task queues of the parties that the services' workloads live with.
	Queues map[string]string `json:"queues"`
	// UnreachableBudgetSeconds is how long a cluster may be out of reach before the task is interrupted.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
}

// Package is what item n (an index into the document) deploys, if that is a package: not fetched yet, and with what its URL has in the open.
// The URL of one that is built is a pattern still. It is nil for other items.
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
	p := &source.Package{Container: config.Container, MountPath: config.MountPath, Credentials: config.Credentials, Task: s.Task, Item: n + 1,
		Shown: source.Redact(from)}
	if p.URL, p.Hidden = source.HideQuery(from); !config.Unpacked() {
		p.File = source.FileOf(config.File, from)
	}
	return p
}

// AllTimes are the times that items keep: the plan's and the execution's.
func (s Snapshot) AllTimes() []window.Times { return window.Of(s.Document.Times, s.Times) }

// RollsOut says whether item n (an index into the document) is released by Rollouts: a deploy of a service with a strategy.
func (s Snapshot) RollsOut(n int) bool {
	item := s.Document.Items[n]
	return item.Deployment.Deploys() && s.Services[item.ServiceID].RollsOut()
}

// Selected are the workloads of item n (an index into the document) that its deployLabel selects, in the catalogue's order: of a RESTORE
// those that it has something to bring back to.
func (s Snapshot) Selected(n int) []catalog.Workload {
	item := s.Document.Items[n]
	selected := item.selected(s.Services[item.ServiceID].Workloads)
	if item.Deployment != Restore {
		return selected
	}
	return slices.DeleteFunc(slices.Clone(selected), func(w catalog.Workload) bool { return s.Restoration(n, w) == nil })
}

// Restoration is what item n (an index into the document), a RESTORE, brings a workload back to; nil for other items.
func (s Snapshot) Restoration(n int, w catalog.Workload) *Restoration {
	for _, r := range s.Restorations[n+1] {
		if r.is(w) {
			return &r
		}
	}
	return nil
}
