// Package v1alpha1 holds the objects of API group kuscia.secretflow that live in the engine's home cluster: the KusciaDeployment, which
// is a serving, and the AppImage that its parties run.
// +kubebuilder:object:generate=true
// +groupName=kuscia.secretflow
package v1alpha1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/instant"
)

// KusciaDeployment is a serving: what several parties run together. Its spec is what is asked, its status what is.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=kd
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=slipway"
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=slipway"
// +kubebuilder:printcolumn:name="TotalParties",type=integer,JSONPath=`.status.totalParties`
// +kubebuilder:printcolumn:name="AvailableParties",type=integer,JSONPath=`.status.availableParties`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KusciaDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   KusciaDeploymentSpec   `json:"spec"`
	Status KusciaDeploymentStatus `json:"status,omitempty"`
}

// KusciaDeploymentSpec is what a serving is asked to be.
type KusciaDeploymentSpec struct {
	// Initiator is the domain of the party that asks.
	Initiator string `json:"initiator"`
	// InputConfig is handed to every party's containers as INPUT_CONFIG.
	InputConfig string `json:"inputConfig,omitempty"`
	// +kubebuilder:validation:MinItems=1
	Parties []Party `json:"parties"`
	// Revision is any text. A change of it is an update, as that of any other field: it has AppImages that were edited since run as they are
	// now. Kuscia's API sets it when only an AppImage has changed.
	Revision string `json:"revision,omitempty"`
}

// Party is one party of a serving.
type Party struct {
	// DomainID is who it is, and the namespace of its cluster in which it runs.
	DomainID string `json:"domainID"`
	// AppImageRef is the AppImage that it runs.
	AppImageRef string `json:"appImageRef"`
	// Role picks the AppImage's template and is a part of its objects' names.
	Role string `json:"role,omitempty"`
	// ServiceNamePrefix takes the place of the Deployment's name in the names of its Services.
	ServiceNamePrefix string `json:"serviceNamePrefix,omitempty"`
	// Template is what differs from the AppImage's template.
	Template PartyTemplate `json:"template,omitempty"`
}

// PartyTemplate is what a party has otherwise than its AppImage says.
type PartyTemplate struct {
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Strategy is how pods are replaced, as of a Deployment; absent: RollingUpdate with 25% and 25%.
	Strategy *appsv1.DeploymentStrategy `json:"strategy,omitempty"`
	// Spec is a pod's. Its affinity and its containers' resources are taken; anything else in it is refused.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec *corev1.PodSpec `json:"spec,omitempty"`
}

// Phase is the state of a serving or of a party of it.
type Phase string

const (
	// PhasePending: nothing has been observed yet. It is written "".
	PhasePending Phase = ""
	// PhaseProgressing: an operation runs and a party lacks what was asked, or a party has no available replica.
	PhaseProgressing Phase = "Progressing"
	// PhasePartialAvailable: every party serves, some with fewer replicas than asked.
	PhasePartialAvailable Phase = "PartialAvailable"
	// PhaseAvailable: every party has all replicas.
	PhaseAvailable Phase = "Available"
	// PhaseFailed: a party cannot be brought to what was asked, and nothing is being done about it.
	PhaseFailed Phase = "Failed"
	// PhaseUnknown: a party cannot be reached.
	PhaseUnknown Phase = "Unknown"
)

// KusciaDeploymentStatus is what a serving is.
type KusciaDeploymentStatus struct {
	Phase Phase `json:"phase,omitempty"`
	// Reason is one word for why it is in that phase, Message a sentence.
	Reason           string `json:"reason,omitempty"`
	Message          string `json:"message,omitempty"`
	TotalParties     int    `json:"totalParties"`
	AvailableParties int    `json:"availableParties"`
	// Conditions say the same for programs, as of observedGeneration: Available, Progressing, Waiting and Stalled.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// PartyDeploymentStatuses are the parties' Deployments by domain and name.
	PartyDeploymentStatuses map[string]map[string]PartyDeploymentStatus `json:"partyDeploymentStatuses,omitempty"`
	// LastReconcileTime is when the status was last written.
	LastReconcileTime *metav1.Time `json:"lastReconcileTime,omitempty"`
	// ObservedGeneration is the generation of the spec that was last begun with.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Operation is what is being done, or was done last.
	Operation *Operation `json:"operation,omitempty"`
	// Refused is a spec that came while an operation was under way and cannot be run; that operation goes on. Absent: there is none.
	Refused *Refused `json:"refused,omitempty"`
	// Served is the last version that all parties came to run: what an update that fails goes back to.
	Served *Served `json:"served,omitempty"`
}

// PartyDeploymentStatus is the state of one party's Deployment.
type PartyDeploymentStatus struct {
	Phase   Phase  `json:"phase,omitempty"`
	Role    string `json:"role,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Replicas is how many are asked for.
	Replicas            int32 `json:"replicas"`
	UpdatedReplicas     int32 `json:"updatedReplicas"`
	AvailableReplicas   int32 `json:"availableReplicas"`
	UnavailableReplicas int32 `json:"unavailableReplicas"`
	// Conditions are the Deployment's.
	Conditions        []appsv1.DeploymentCondition `json:"conditions,omitempty"`
	CreationTimestamp *metav1.Time                 `json:"creationTimestamp,omitempty"`
	// Version is the digest of what the Deployment is told to run; the numbers are of that version.
	Version string `json:"version,omitempty"`
	// DeploymentUID and DeploymentVersion are the UID and the resourceVersion of the Deployment that was seen: what is older than that is no
	// news.
	DeploymentUID     string `json:"deploymentUid,omitempty"`
	DeploymentVersion string `json:"deploymentVersion,omitempty"`
	// Queue is the task queue of the party's worker when an operation last began with it.
	Queue string `json:"queue,omitempty"`
	// ObservedAt is when what the party's worker saw reached the centre; absent: it has not been seen yet.
	ObservedAt *instant.Micro `json:"observedAt,omitempty"`
	// PodReason and PodMessage are the word of the first pod that does not serve.
	PodReason  string `json:"podReason,omitempty"`
	PodMessage string `json:"podMessage,omitempty"`
	// Missing are the party's objects that somebody else has deleted.
	Missing []string `json:"missing,omitempty"`
	// Drift is what somebody else has changed of the party's objects, and who it was. It is put back.
	Drift []Drift `json:"drift,omitempty"`
	// Restorations count how often changes by others were put back lately, newest first: who keeps changing the same is not fought without
	// end.
	Restorations []Restoration `json:"restorations,omitempty"`
	// Failure is why the last operation failed here; it stays until everything that was asked runs.
	Failure string `json:"failure,omitempty"`
	// Unreachable says that the party's worker does not answer.
	Unreachable string `json:"away,omitempty"`
}

// Drift is a change that somebody else has made to what a party runs.
type Drift struct {
	// Object is what was changed: "Deployment/serving-01".
	Object string `json:"object"`
	// Manager is the field manager of who changed it, as the API server notes it: "kubectl-edit". "" when it does not say.
	Manager string `json:"manager,omitempty"`
	// Fields are the first ones of those that were changed.
	Fields []string `json:"fields,omitempty"`
	// At is when they were changed.
	At *metav1.Time `json:"at,omitempty"`
}

// Restoration counts how often changes by one field manager were put back.
type Restoration struct {
	Manager string `json:"manager"`
	Count   int32  `json:"count"`
	// LastAt is when that was last begun.
	LastAt metav1.Time `json:"lastAt"`
}

// Operation is one create, update, recreation or deletion of a serving: one Temporal workflow.
type Operation struct {
	// Kind is create, update, recreate or delete; or refuse, for a spec that cannot be run and so has no workflow.
	Kind string `json:"kind"`
	// Generation is the spec's.
	Generation int64  `json:"generation"`
	WorkflowID string `json:"workflowId,omitempty"`
	RunID      string `json:"runId,omitempty"`
	// Version is the digest of what the parties are brought to: the new version, or when that failed the former one.
	Version string `json:"version,omitempty"`
	// Done says that it is over.
	Done bool `json:"done,omitempty"`
	// Reason and Message say why it failed; they stay until the next operation.
	Reason    string       `json:"reason,omitempty"`
	Message   string       `json:"message,omitempty"`
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// WaitingFor is the person whom it waits for; absent: nobody.
	WaitingFor *WaitingFor `json:"waitingFor,omitempty"`
	// History is what people have sent to it, oldest first; of many the newest.
	History []AuditEntry `json:"history,omitempty"`
	// Former is the operation that was under way when this one began; it is asked to give way.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Former *Operation `json:"former,omitempty"`
}

// WaitingFor is the wait of an operation for a person, which has no end of its own.
type WaitingFor struct {
	// Kind is approval, for a party that comes next, or resume, for an operation that somebody has paused.
	Kind  string      `json:"kind"`
	Since metav1.Time `json:"since"`
	// Party is who begins with an approval.
	Party string `json:"party,omitempty"`
	// Gate stands for this party in this operation: an approval that sends it back approves nothing else.
	Gate string `json:"gate,omitempty"`
	// Message says what is waited for, and what to send.
	Message string `json:"message"`
}

// AuditEntry is one verb that somebody sent to an operation, and what became of it.
type AuditEntry struct {
	At metav1.Time `json:"at"`
	// Actor is who sent it, as they said; Via through which front door.
	Actor string `json:"actor"`
	Via   string `json:"via"`
	Verb  string `json:"verb"`
	// Party is the one that it was about.
	Party  string `json:"party,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Key is the idempotency key that it was sent with.
	Key string `json:"key,omitempty"`
	// Outcome is accepted or refused; Message says what it did, or why it was refused and what to do instead.
	Outcome string `json:"outcome"`
	Message string `json:"message"`
}

// Refused is why a generation of the spec cannot be run.
type Refused struct {
	Generation int64  `json:"generation"`
	Message    string `json:"message"`
}

// Served is a version of a serving that all its parties came to run, whole: AppImages may have changed since.
type Served struct {
	Generation int64 `json:"generation"`
	// Digest tells versions apart.
	Digest string `json:"digest"`
	// Version is the version, gzip-compressed JSON.
	Version []byte `json:"version"`
}

//go:generate controller-gen object paths=.
//go:generate controller-gen crd paths=. output:crd:dir=../../../deploy/crds

// GroupVersion is the API group and version of this package's objects.
var GroupVersion = schema.GroupVersion{Group: "kuscia.secretflow", Version: "v1alpha1"}

// Where the API server serves them.
var (
	AppImageResource         = GroupVersion.WithResource("appimages")
	KusciaDeploymentResource = GroupVersion.WithResource("kusciadeployments")
)

// Namespace is the namespace of the home cluster in which a KusciaDeployment is a serving unless the engine is told otherwise; one of any
// other namespace is nobody's.
const Namespace = "cross-domain"

// Labels and annotations of Kuscia.
const (
	LabelAppType           = "kuscia.secretflow/app-type"
	LabelController        = "kuscia.secretflow/controller"
	LabelDeploymentName    = "kuscia.secretflow/kd-name"
	LabelDeploymentUID     = "kuscia.secretflow/kd-uid"
	LabelWorkload          = "kuscia.secretflow/deployment-name"
	LabelOwnerNamespace    = "kuscia.secretflow/owner_namespace"
	AnnotationInitiator    = "kuscia.secretflow/initiator"
	AnnotationAffinityMode = "kuscia.secretflow/affinity-mode"

	// AppTypeServing is the LabelAppType of a serving; ControllerName is the LabelController of all that is made for one.
	AppTypeServing = "serving"
	ControllerName = "KusciaDeployment"
)

// Finalizer keeps a KusciaDeployment until what its parties run is gone.
const Finalizer = "slipway.io/serving"
