// Package v1alpha1 defines the objects of API group kuscia.secretflow in the engine's home cluster: the
// KusciaDeployment, which is a serving, and the AppImage that its parties run.
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

// KusciaDeployment is a serving: an application that several parties run together. Its spec is the desired state, its
// status the observed state.
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

// KusciaDeploymentSpec is the desired state of a serving.
type KusciaDeploymentSpec struct {
	// Initiator is the domain of the party that requests the serving.
	Initiator string `json:"initiator"`
	// InputConfig is passed to every party's containers as environment variable INPUT_CONFIG.
	InputConfig string `json:"inputConfig,omitempty"`
	// +kubebuilder:validation:MinItems=1
	Parties []Party `json:"parties"`
	// Revision is any text. Changing it triggers an update, like a change of any other field; the update takes
	// AppImages that were edited since in their current form. The HTTP APIs set it when only an AppImage has changed.
	Revision string `json:"revision,omitempty"`
}

// Party is one party of a serving.
type Party struct {
	// DomainID identifies the party; it is also the namespace of its cluster in which it runs.
	DomainID string `json:"domainID"`
	// AppImageRef names the AppImage that the party runs.
	AppImageRef string `json:"appImageRef"`
	// Role selects the AppImage's deploy template and is part of the names of the party's objects.
	Role string `json:"role,omitempty"`
	// ServiceNamePrefix replaces the Deployment's name in the names of the party's Services.
	ServiceNamePrefix string `json:"serviceNamePrefix,omitempty"`
	// Template overrides parts of the AppImage's deploy template.
	Template PartyTemplate `json:"template,omitempty"`
}

// PartyTemplate holds a party's overrides of its AppImage.
type PartyTemplate struct {
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Strategy is the update strategy of the Deployment; the default is RollingUpdate with maxSurge and maxUnavailable
	// of 25%.
	Strategy *appsv1.DeploymentStrategy `json:"strategy,omitempty"`
	// Spec is a pod spec. Only its affinity and its containers' resources are used; any other field is refused.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec *corev1.PodSpec `json:"spec,omitempty"`
}

// Phase is the state of a serving or of a party of it.
type Phase string

const (
	// PhasePending: nothing has been observed yet. It is stored as "".
	PhasePending Phase = ""
	// PhaseProgressing: an operation is running and a party does not run the requested version yet, or a party has no
	// available replica.
	PhaseProgressing Phase = "Progressing"
	// PhasePartialAvailable: every party serves, some with fewer replicas than requested.
	PhasePartialAvailable Phase = "PartialAvailable"
	// PhaseAvailable: every party has all replicas.
	PhaseAvailable Phase = "Available"
	// PhaseFailed: a party cannot reach the requested state, and no operation is working on it.
	PhaseFailed Phase = "Failed"
	// PhaseUnknown: a party cannot be reached.
	PhaseUnknown Phase = "Unknown"
)

// KusciaDeploymentStatus is the observed state of a serving.
type KusciaDeploymentStatus struct {
	Phase Phase `json:"phase,omitempty"`
	// Reason is one word for the cause of the phase, Message a sentence.
	Reason           string `json:"reason,omitempty"`
	Message          string `json:"message,omitempty"`
	TotalParties     int    `json:"totalParties"`
	AvailableParties int    `json:"availableParties"`
	// Conditions report the same to programs, as of observedGeneration: Available, Progressing, Waiting and Stalled.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// PartyDeploymentStatuses are the parties' Deployments by domain and Deployment name.
	PartyDeploymentStatuses map[string]map[string]PartyDeploymentStatus `json:"partyDeploymentStatuses,omitempty"`
	// LastReconcileTime is when the status was last written.
	LastReconcileTime *metav1.Time `json:"lastReconcileTime,omitempty"`
	// ObservedGeneration is the generation of the spec for which an operation was last started.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Operation is the current operation, or the last one.
	Operation *Operation `json:"operation,omitempty"`
	// Refused is a newer spec that cannot be run while the current operation continues; absent if there is none.
	Refused *Refused `json:"refused,omitempty"`
	// Served is the last version that all parties have run: a failed update rolls back to it.
	Served *Served `json:"served,omitempty"`
}

// PartyDeploymentStatus is the state of one party's Deployment.
type PartyDeploymentStatus struct {
	Phase   Phase  `json:"phase,omitempty"`
	Role    string `json:"role,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Replicas is the desired number of replicas.
	Replicas            int32 `json:"replicas"`
	UpdatedReplicas     int32 `json:"updatedReplicas"`
	AvailableReplicas   int32 `json:"availableReplicas"`
	UnavailableReplicas int32 `json:"unavailableReplicas"`
	// Conditions are those of the Deployment.
	Conditions        []appsv1.DeploymentCondition `json:"conditions,omitempty"`
	CreationTimestamp *metav1.Time                 `json:"creationTimestamp,omitempty"`
	// Version is the digest of the version that the Deployment is configured to run; the replica counts are of that
	// version.
	Version string `json:"version,omitempty"`
	// DeploymentUID and DeploymentVersion are the UID and resourceVersion of the observed Deployment; older
	// observations are ignored.
	DeploymentUID     string `json:"deploymentUid,omitempty"`
	DeploymentVersion string `json:"deploymentVersion,omitempty"`
	// Queue is the task queue of the party's worker when an operation last included the party.
	Queue string `json:"queue,omitempty"`
	// ObservedAt is when the last observation of the party's worker reached the centre; absent if there is none yet.
	ObservedAt *instant.Micro `json:"observedAt,omitempty"`
	// PodReason and PodMessage explain why the first pod that is not ready does not serve.
	PodReason  string `json:"podReason,omitempty"`
	PodMessage string `json:"podMessage,omitempty"`
	// Missing are the party's objects that another client has deleted.
	Missing []string `json:"missing,omitempty"`
	// Drift lists changes by other clients to the party's objects. The engine reverts them.
	Drift []Drift `json:"drift,omitempty"`
	// Restorations count how often changes of each field manager were reverted recently, newest first; repeated changes
	// by the same manager are reverted less and less often.
	Restorations []Restoration `json:"restorations,omitempty"`
	// Failure is why the last operation failed in this party; it stays until the party runs everything that was
	// requested.
	Failure string `json:"failure,omitempty"`
	// Unreachable is why the party's worker is considered unreachable; "" when it is reachable.
	Unreachable string `json:"away,omitempty"`
}

// Drift is a change by another client to one of a party's objects.
type Drift struct {
	// Object is the changed object, for example "Deployment/serving-01".
	Object string `json:"object"`
	// Manager is the field manager that made the change, as recorded by the API server, for example "kubectl-edit"; ""
	// if unknown.
	Manager string `json:"manager,omitempty"`
	// Fields are the first few of the changed fields.
	Fields []string `json:"fields,omitempty"`
	// At is when the fields were changed.
	At *metav1.Time `json:"at,omitempty"`
}

// Restoration counts how often changes by one field manager were reverted.
type Restoration struct {
	Manager string `json:"manager"`
	Count   int32  `json:"count"`
	// LastAt is when the last restoration started.
	LastAt metav1.Time `json:"lastAt"`
}

// Operation is one creation, update, recreation or deletion of a serving: one Temporal workflow.
type Operation struct {
	// Kind is create, update, recreate or delete; or refuse, for a spec that cannot be run and therefore has no
	// workflow.
	Kind string `json:"kind"`
	// Generation is the generation of the spec.
	Generation int64  `json:"generation"`
	WorkflowID string `json:"workflowId,omitempty"`
	RunID      string `json:"runId,omitempty"`
	// Version is the digest of the version that the operation applies: the new version or, after a rollback, the
	// previous one.
	Version string `json:"version,omitempty"`
	// Done is true when the operation has ended.
	Done bool `json:"done,omitempty"`
	// Reason and Message explain why the operation failed; they stay until the next operation.
	Reason    string       `json:"reason,omitempty"`
	Message   string       `json:"message,omitempty"`
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// WaitingFor is the decision of a user that the operation waits for; absent if there is none.
	WaitingFor *WaitingFor `json:"waitingFor,omitempty"`
	// History lists the commands that users have sent, oldest first; only the newest are kept.
	History []AuditEntry `json:"history,omitempty"`
	// RefusalsDropped is the number of refused commands that History no longer has.
	RefusalsDropped int64 `json:"refusalsDropped,omitempty"`
	// Former is the operation that was running when this one started; it is asked to give way.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Former *Operation `json:"former,omitempty"`
}

// WaitingFor is the wait of an operation for a user's decision. It has no timeout.
type WaitingFor struct {
	// Kind is approval, for the next party, or resume, for a paused operation.
	Kind  string      `json:"kind"`
	Since metav1.Time `json:"since"`
	// Party is the party that starts after an approval.
	Party string `json:"party,omitempty"`
	// Gate is the approval gate: a token of this wait for this party. An approval that quotes it approves nothing else.
	Gate string `json:"gate,omitempty"`
	// Message describes the awaited decision and which command to send.
	Message string `json:"message"`
}

// AuditEntry is one command that a user sent to an operation, and its outcome.
type AuditEntry struct {
	At metav1.Time `json:"at"`
	// Actor is the self-reported name of the sender; Via is the interface that was used.
	Actor string `json:"actor"`
	Via   string `json:"via"`
	Verb  string `json:"verb"`
	// Party is the party that the command is about.
	Party  string `json:"party,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Key is the idempotency key of the command.
	Key string `json:"key,omitempty"`
	// Outcome is accepted or refused; Message describes the effect, or the reason for the refusal and what to do
	// instead.
	Outcome string `json:"outcome"`
	Message string `json:"message"`
}

// Refused is why a generation of the spec cannot be run.
type Refused struct {
	Generation int64  `json:"generation"`
	Message    string `json:"message"`
}

// Served is a complete version of a serving that all its parties have run; its AppImages may have been edited since.
type Served struct {
	Generation int64 `json:"generation"`
	// Digest identifies the version.
	Digest string `json:"digest"`
	// Version is the version as gzip-compressed JSON.
	Version []byte `json:"version"`
}

//go:generate controller-gen object paths=.
//go:generate controller-gen crd paths=. output:crd:dir=../../../deploy/crds

// GroupVersion is the API group and version of this package's objects.
var GroupVersion = schema.GroupVersion{Group: "kuscia.secretflow", Version: "v1alpha1"}

// The resources under which the API server serves the objects.
var (
	AppImageResource         = GroupVersion.WithResource("appimages")
	KusciaDeploymentResource = GroupVersion.WithResource("kusciadeployments")
)

// Namespace is the default namespace of servings in the home cluster. A KusciaDeployment in any other namespace is
// ignored.
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

	// AppTypeServing is the value of LabelAppType of a serving; ControllerName is the value of LabelController on all
	// objects made for one.
	AppTypeServing = "serving"
	ControllerName = "KusciaDeployment"
)

// Finalizer keeps a KusciaDeployment until the objects in its parties' clusters are deleted.
const Finalizer = "slipway.io/serving"

// AppImage is an application that parties can run: its image, its configuration files, and how it is deployed for each
// role.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=aimg
// +kubebuilder:metadata:labels="app.kubernetes.io/managed-by=slipway"
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=slipway"
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image.name`
// +kubebuilder:printcolumn:name="Tag",type=string,JSONPath=`.spec.image.tag`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AppImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AppImageSpec `json:"spec"`
}

// AppImageSpec is the content of an AppImage.
type AppImageSpec struct {
	Image AppImageInfo `json:"image"`
	// ConfigTemplates are configuration files by name; {{.NAME}} in a file is replaced by the value of the container's
	// environment variable of that name.
	ConfigTemplates map[string]string `json:"configTemplates,omitempty"`
	// DeployTemplates define how the application is deployed, each for certain roles.
	// +kubebuilder:validation:MinItems=1
	DeployTemplates []DeployTemplate `json:"deployTemplates"`
}

// AppImageInfo names an image.
type AppImageInfo struct {
	// Name and Tag are the image's repository and tag.
	Name string `json:"name"`
	Tag  string `json:"tag"`
	// ID is the expected digest of the image, Sign a signature. Both are stored but not verified.
	ID   string `json:"id,omitempty"`
	Sign string `json:"sign,omitempty"`
}

// DeployTemplate defines how an application is deployed for certain roles.
type DeployTemplate struct {
	Name string `json:"name"`
	// Role lists the roles of the template, separated by commas; "" matches roles that no other template lists.
	Role string `json:"role,omitempty"`
	// Replicas is the number of pods if the party does not set it; the default is 1.
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// NetworkPolicy defines which roles may call which ports.
	NetworkPolicy *NetworkPolicy `json:"networkPolicy,omitempty"`
	Spec          PodTemplate    `json:"spec"`
}

// NetworkPolicy defines which roles may call which ports.
type NetworkPolicy struct {
	Ingresses []Ingress `json:"ingresses,omitempty"`
}

// Ingress lets roles call ports.
type Ingress struct {
	From  IngressFrom   `json:"from,omitempty"`
	Ports []IngressPort `json:"ports,omitempty"`
}

// IngressFrom names roles.
type IngressFrom struct {
	Roles []string `json:"roles,omitempty"`
}

// IngressPort names a port of the template.
type IngressPort struct {
	Port string `json:"port,omitempty"`
}

// PodTemplate is the part of a pod that an AppImage defines.
type PodTemplate struct {
	// RestartPolicy is stored but ignored: the pods of a Deployment are always restarted.
	// +kubebuilder:validation:Enum=Always;OnFailure;Never
	RestartPolicy corev1.RestartPolicy `json:"restartPolicy,omitempty"`
	// +kubebuilder:validation:MinItems=1
	Containers []Container `json:"containers"`
	// Affinity is the pod's affinity, as in Kubernetes.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
}

// Container is a container of an application.
type Container struct {
	Name       string   `json:"name"`
	Command    []string `json:"command,omitempty"`
	Args       []string `json:"args,omitempty"`
	WorkingDir string   `json:"workingDir,omitempty"`
	// ConfigVolumeMounts mount rendered configuration files into the container.
	ConfigVolumeMounts []ConfigVolumeMount         `json:"configVolumeMounts,omitempty"`
	Ports              []ContainerPort             `json:"ports,omitempty"`
	EnvFrom            []corev1.EnvFromSource      `json:"envFrom,omitempty"`
	Env                []corev1.EnvVar             `json:"env,omitempty"`
	Resources          corev1.ResourceRequirements `json:"resources,omitempty"`
	LivenessProbe      *corev1.Probe               `json:"livenessProbe,omitempty"`
	ReadinessProbe     *corev1.Probe               `json:"readinessProbe,omitempty"`
	StartupProbe       *corev1.Probe               `json:"startupProbe,omitempty"`
	// MetricProbe is where the application serves its metrics.
	MetricProbe *MetricProbe `json:"metricProbe,omitempty"`
	// +kubebuilder:validation:Enum=Always;Never;IfNotPresent
	ImagePullPolicy corev1.PullPolicy       `json:"imagePullPolicy,omitempty"`
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
}

// ConfigVolumeMount mounts the file SubPath of the ConfigTemplates at MountPath.
type ConfigVolumeMount struct {
	MountPath string `json:"mountPath"`
	SubPath   string `json:"subPath"`
}

// ContainerPort is a port of an application.
type ContainerPort struct {
	Name string `json:"name"`
	// Port is the port number; if 0 or absent, one is allocated.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// +kubebuilder:default=HTTP
	Protocol PortProtocol `json:"protocol,omitempty"`
	// +kubebuilder:default=Local
	Scope PortScope `json:"scope,omitempty"`
}

// PortProtocol is the protocol of a port.
// +kubebuilder:validation:Enum=HTTP;GRPC
type PortProtocol string

// The protocols of a port.
const (
	ProtocolHTTP PortProtocol = "HTTP"
	ProtocolGRPC PortProtocol = "GRPC"
)

// PortScope limits the callers of a port.
// +kubebuilder:validation:Enum=Cluster;Domain;Local
type PortScope string

const (
	// ScopeCluster: the other parties may call the port, too.
	ScopeCluster PortScope = "Cluster"
	// ScopeDomain: only the party itself may call the port.
	ScopeDomain PortScope = "Domain"
	// ScopeLocal: only the pod itself may call the port.
	ScopeLocal PortScope = "Local"
)

// MetricProbe is the path and port of metrics.
type MetricProbe struct {
	Path string `json:"path,omitempty"`
	// Port is the name of a port.
	Port string `json:"port"`
}
