// Package v1alpha1 is the Rollout of rollouts.kruise.io in its older version, which is served by conversion from the
// stored one. kubectl explain prints the comments on fields.
// +kubebuilder:object:generate=true
// +groupName=rollouts.kruise.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/kruise/v1beta1"
)

// GroupVersion is the older version, Resource its API resource. The definition serves the version only once a server
// that converts has registered its webhook: without one, objects would be stored without the fields that have another
// name in the stored version.
var (
	GroupVersion = schema.GroupVersion{Group: v1beta1.GroupVersion.Group, Version: "v1alpha1"}
	Resource     = GroupVersion.WithResource(v1beta1.Resource.Resource)
)

// Rollout specifies how new versions of one workload of its namespace are released. v1beta1 can say more: use it for
// new objects. The style is an annotation here, rollouts.kruise.io/rolling-style: canary (the default of a Deployment)
// or partition.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:unservedversion
// +kubebuilder:resource:path=rollouts,singular=rollout,scope=Namespaced
// +kubebuilder:printcolumn:name="STATUS",type=string,JSONPath=`.status.phase`,description="The phase of the rollout"
// +kubebuilder:printcolumn:name="CANARY_STEP",type=integer,JSONPath=`.status.currentStepIndex`,description="The current step, from 1"
// +kubebuilder:printcolumn:name="CANARY_STATE",type=string,JSONPath=`.status.currentStepState`,description="The state of the current step"
// +kubebuilder:printcolumn:name="MESSAGE",type=string,JSONPath=`.status.message`,description="What happens, or what the release waits for"
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type Rollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which workload is released, and how.
	// +required
	Spec RolloutSpec `json:"spec,omitempty"`
	// The progress of the release. Clients change in it currentStepState (to StepReady, to approve) and nextStepIndex
	// (to jump).
	Status v1beta1.RolloutStatus `json:"status,omitempty"`
}

// RolloutList is a list of Rollouts.
// +kubebuilder:object:root=true
type RolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Rollout `json:"items"`
}

// RolloutSpec is the desired release behaviour.
type RolloutSpec struct {
	// Names the workload that is released.
	// +optional
	ObjectRef ObjectRef `json:"objectRef"`
	// How new versions are released.
	// +optional
	Strategy RolloutStrategy `json:"strategy"`
	// The number of the release. The annotation rollouts.kruise.io/rollout-id of the workload has replaced it.
	RolloutID string `json:"rolloutID,omitempty"`
	// True detaches the workload: its changes aren't held, and its own controller finishes a release in progress.
	// Routes are restored.
	// +optional
	// +kubebuilder:default=false
	Disabled bool `json:"disabled,omitempty"`
}

// ObjectRef names the workload.
type ObjectRef struct {
	// The workload that is released: a Deployment, StatefulSet, DaemonSet, CloneSet, Advanced StatefulSet or Advanced
	// DaemonSet of the Rollout's namespace.
	WorkloadRef *v1beta1.ObjectRef `json:"workloadRef,omitempty"`
}

// RolloutStrategy is how new versions are released.
type RolloutStrategy struct {
	// True pauses a release. A rollback is executed anyway.
	Paused bool `json:"paused,omitempty"`
	// Release in steps.
	Canary *CanaryStrategy `json:"canary,omitempty"`
}

// CanaryStrategy replaces pods step by step, or runs the new ones in an extra workload.
type CanaryStrategy struct {
	// The steps of a release, in order.
	// +kubebuilder:validation:MaxItems=50
	Steps []CanaryStep `json:"steps,omitempty"`
	// The Services of the workload, each with what routes to it. Without any, steps move pods only.
	// +kubebuilder:validation:MaxItems=16
	TrafficRoutings []v1beta1.TrafficRoutingRef `json:"trafficRoutings,omitempty"`
	// How many new pods of a step may be unready for it to count as done: a number, or a percentage of them. Default:
	// none.
	FailureThreshold *intstr.IntOrString `json:"failureThreshold,omitempty"`
	// Labels and annotations for the pods of the extra workload.
	PatchPodTemplateMetadata *v1beta1.PatchPodTemplateMeta `json:"patchPodTemplateMetadata,omitempty"`
	// True makes no Service of its own for the new version: routes choose its pods themselves.
	DisableGenerateCanaryService bool `json:"disableGenerateCanaryService,omitempty"`
}

// CanaryStep is one step: pods first, then traffic, then a pause.
type CanaryStep struct {
	// The new version's share of the requests in percent, a number; and of the pods, where replicas is absent.
	Weight *int32 `json:"weight,omitempty"`
	// How headers are changed in requests that go to the new version.
	RequestHeaderModifier *v1beta1.HTTPHeaderFilter `json:"requestHeaderModifier,omitempty"`
	// Which requests go to the new version: those that meet at least one of these. They win over weight.
	// +kubebuilder:validation:MaxItems=16
	Matches []HTTPRouteMatch `json:"matches,omitempty"`
	// How many pods are of the new version: a number, or a percentage of the workload's, "20%". Default: weight.
	Replicas *intstr.IntOrString `json:"replicas,omitempty"`
	// How long to wait before the next step. Absent or {}: until the step is approved.
	Pause v1beta1.RolloutPause `json:"pause,omitempty"`
}

// HTTPRouteMatch is met by a request that has all of these headers.
type HTTPRouteMatch struct {
	// What headers of the request have to be, all of them.
	// +kubebuilder:validation:MaxItems=16
	Headers []v1beta1.HTTPValueMatch `json:"headers,omitempty"`
}
