package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
