// Package plan holds deployment plans: the document, its strict decoding and validation, its waves, the states of its execution and the report.
package plan

// Operation is what a plan item does to a service: its key `deployment` (source document, key `deployment`).
type Operation string

// The five operations of the source document.
const (
	Start            Operation = "START"
	Stop             Operation = "STOP"
	Restart          Operation = "RESTART"
	HTTPUploadDeploy Operation = "HTTP_UPLOAD_DEPLOY"
	CompileDeploy    Operation = "COMPILE_DEPLOY"
)

// Method is how the containers of a service are taken: its key `containerExecMethod`.
type Method string

// The two methods of the source document; Parallel is the default.
const (
	Parallel   Method = "PARALLEL"
	Sequential Method = "SEQUENTIAL"
)

// ServiceID names a service of the catalogue. A document may spell it as a number; the spelling is kept ("0111" stays "0111").
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:Type=""
type ServiceID string

// Document is a deployment plan.
//
// +kubebuilder:object:generate=true
type Document struct {
	// Comment is for people.
	Comment string `json:"comment,omitempty"`
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
	// +kubebuilder:validation:Enum=START;STOP;RESTART;HTTP_UPLOAD_DEPLOY;COMPILE_DEPLOY
	Deployment Operation `json:"deployment"`
	// ContainerExecMethod is how the service's containers are taken; absent: PARALLEL.
	// +kubebuilder:validation:Enum=PARALLEL;SEQUENTIAL
	ContainerExecMethod Method `json:"containerExecMethod,omitempty"`
	// DeployLabel keeps the operation to workloads that carry one of these labels, separated by commas; absent: all.
	DeployLabel string `json:"deployLabel,omitempty"`
	// HTTPSrcURI is the code package of HTTP_UPLOAD_DEPLOY.
	HTTPSrcURI string `json:"httpSrcUri,omitempty"`
	// CompileRepoPath is the Git repository of COMPILE_DEPLOY.
	CompileRepoPath string `json:"compileRepoPath,omitempty"`
	// CompileRepoBranch is the branch of COMPILE_DEPLOY.
	CompileRepoBranch string `json:"compileRepoBranch,omitempty"`
}

// MethodOrDefault is the item's method, PARALLEL when it names none.
func (i Item) MethodOrDefault() Method {
	if i.ContainerExecMethod == "" {
		return Parallel
	}
	return i.ContainerExecMethod
}
