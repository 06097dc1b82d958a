// Package plan holds deployment plans: the document, its decoding and validation, its waves, the states of its
// execution and the report.
package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/window"
)

// Operation is what a plan item does to a service: its key `deployment` (source document, key `deployment`).
type Operation string

// The five operations of the source document, and Slipway's own.
const (
	Start            Operation = "START"
	Stop             Operation = "STOP"
	Restart          Operation = "RESTART"
	HTTPUploadDeploy Operation = "HTTP_UPLOAD_DEPLOY"
	CompileDeploy    Operation = "COMPILE_DEPLOY"
	// Restore reverses what a task changed on workloads.
	Restore Operation = "RESTORE"
)

// Deploys reports whether the operation deploys a new version of the service.
func (o Operation) Deploys() bool { return o == HTTPUploadDeploy || o == CompileDeploy }

// Method is how an operation changes the pods of a service: all at once or one by one. It is the item's key
// `containerExecMethod`.
type Method string

// The two methods of the source document; Parallel is the default.
const (
	Parallel   Method = "PARALLEL"
	Sequential Method = "SEQUENTIAL"
)

// ServiceID names a service of the catalogue. A document may spell it as a number; the spelling is kept ("0111" stays
// "0111").
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:Type=""
type ServiceID string

// Document is a deployment plan.
//
// +kubebuilder:object:generate=true
type Document struct {
	// Comment is for display only.
	Comment string `json:"comment,omitempty"`
	// Times are when its items may begin.
	window.Times `json:",inline"`
	// Items are what the plan does, one service each.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	Items []Item `json:"deployPlanItems"`
}

// Item is what a plan does to one service.
//
// +kubebuilder:object:generate=true
type Item struct {
	// ServiceID is the catalogue entry that is released.
	ServiceID ServiceID `json:"serviceId"`
	// Priority orders the items: larger goes first, equal ones go together.
	Priority int64 `json:"priority,omitempty"`
	// Deployment is the operation.
	// +kubebuilder:validation:Enum=START;STOP;RESTART;HTTP_UPLOAD_DEPLOY;COMPILE_DEPLOY;RESTORE
	Deployment Operation `json:"deployment"`
	// ContainerExecMethod is how the service's pods are changed; absent: PARALLEL.
	// +kubebuilder:validation:Enum=PARALLEL;SEQUENTIAL
	ContainerExecMethod Method `json:"containerExecMethod,omitempty"`
	// DeployLabel restricts the operation to workloads with one of these labels, separated by commas; absent: all.
	DeployLabel string `json:"deployLabel,omitempty"`
	// HTTPSrcURI is the code package of HTTP_UPLOAD_DEPLOY.
	HTTPSrcURI string `json:"httpSrcUri,omitempty"`
	// CompileRepoPath is the Git repository of COMPILE_DEPLOY.
	CompileRepoPath string `json:"compileRepoPath,omitempty"`
	// CompileRepoBranch is the branch of COMPILE_DEPLOY.
	CompileRepoBranch string `json:"compileRepoBranch,omitempty"`
	// RestoreTask is the task whose changes of the service RESTORE reverses.
	RestoreTask string `json:"restoreTask,omitempty"`
	// RestoreItem is the item of that task whose changes are reversed, counted from 1; absent: all of its items of the
	// service.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	RestoreItem int64 `json:"restoreItem,omitempty"`
}

// MethodOrDefault returns the item's method, PARALLEL if it sets none.
func (i Item) MethodOrDefault() Method { return cmp.Or(i.ContainerExecMethod, Parallel) }

var jsonInteger = regexp.MustCompile(`^-?[0-9]+$`)

// UnmarshalJSON accepts a text, or an integer, whose spelling it keeps.
func (id *ServiceID) UnmarshalJSON(data []byte) error {
	if jsonInteger.Match(data) {
		*id = ServiceID(data)
		return nil
	}
	if json.Unmarshal(data, (*string)(id)) != nil { // null changes nothing; validation refuses an empty ID
		return fmt.Errorf("serviceId must be a whole number or text, not %s: if that is the name, put it in quotes", data)
	}
	return nil
}

// labels returns the item's labels: deployLabel split at commas, without blanks and empty labels. No valid label has a
// blank in it.
func (i Item) labels() []string {
	return strings.FieldsFunc(i.DeployLabel, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// selected returns the workloads that have one of the item's labels; without labels all of them.
func (i Item) selected(workloads []catalog.Workload) []catalog.Workload {
	wanted := i.labels()
	if len(wanted) == 0 {
		return workloads
	}
	return slices.DeleteFunc(slices.Clone(workloads), func(w catalog.Workload) bool {
		return !slices.ContainsFunc(w.Labels, func(label string) bool { return slices.Contains(wanted, label) })
	})
}

// Wave is a group of items that are released together: those of equal priority.
type Wave struct {
	Priority int64 `json:"priority"`
	// Items are indexes into the document's items, counted from 0, in the document's order.
	Items []int `json:"items"`
}

// Waves returns the items grouped by priority, the largest first (source document, key `priority`).
func (d Document) Waves() []Wave {
	return groupByPriority(len(d.Items), func(i int) int64 { return d.Items[i].Priority })
}

// Waves returns the task's services grouped by priority, the largest first; the waves index into Services.
func (t Task) Waves() []Wave {
	return groupByPriority(len(t.Services), func(i int) int64 { return t.Services[i].Priority })
}

func groupByPriority(n int, priority func(int) int64) (waves []Wave) {
	for i := range n {
		at := slices.IndexFunc(waves, func(w Wave) bool { return w.Priority == priority(i) })
		if at < 0 {
			at, waves = len(waves), append(waves, Wave{Priority: priority(i)})
		}
		waves[at].Items = append(waves[at].Items, i)
	}
	slices.SortFunc(waves, func(a, b Wave) int { return cmp.Compare(b.Priority, a.Priority) })
	return waves
}
