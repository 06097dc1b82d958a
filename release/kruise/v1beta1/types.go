// Package v1beta1 is the Rollout of rollouts.kruise.io in its stored version, with the names, the words and the
// defaults of Kruise Rollouts' API specification (https://openkruise.io/rollouts/user-manuals/api-specifications).
// kubectl explain prints the comments on fields.
// +kubebuilder:object:generate=true
// +groupName=rollouts.kruise.io
package v1beta1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GroupVersion is the stored version, Resource its API resource.
var (
	GroupVersion = schema.GroupVersion{Group: "rollouts.kruise.io", Version: "v1beta1"}
	Resource     = GroupVersion.WithResource("rollouts")
)

// Kind is the kind of a Rollout.
const Kind = "Rollout"

// Finalizer keeps a deleted Rollout until everything that its release has borrowed is restored.
const Finalizer = "rollouts.kruise.io/rollout"

// Rollout specifies how new versions of one workload of its namespace are released: pods step by step, and traffic with
// them.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
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
	Status RolloutStatus `json:"status,omitempty"`
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
	// The workload that is released: a Deployment, StatefulSet, DaemonSet, CloneSet, Advanced StatefulSet or Advanced
	// DaemonSet of the Rollout's namespace.
	WorkloadRef ObjectRef `json:"workloadRef"`
	// How new versions are released: exactly one of canary and blueGreen.
	Strategy RolloutStrategy `json:"strategy"`
	// True detaches the workload: its changes aren't held, and its own controller finishes a release in progress.
	// Routes are restored.
	// +optional
	// +kubebuilder:default=false
	Disabled bool `json:"disabled,omitempty"`
}

// ObjectRef names an object of the Rollout's namespace.
type ObjectRef struct {
	// The API group and version of the object, such as apps/v1.
	APIVersion string `json:"apiVersion"`
	// The kind of the object, such as Deployment.
	Kind string `json:"kind"`
	// The name of the object.
	Name string `json:"name"`
}

// RolloutStrategy is exactly one of Canary and BlueGreen.
type RolloutStrategy struct {
	// True pauses a release. A rollback is executed anyway.
	Paused bool `json:"paused,omitempty"`
	// Release in steps: by partition, or with an extra workload for the new version.
	Canary *CanaryStrategy `json:"canary,omitempty"`
	// Release next to all pods of the old version, which stay until the end.
	BlueGreen *BlueGreenStrategy `json:"blueGreen,omitempty"`
	// The same as trafficRoutingRef in canary or blueGreen, which wins.
	TrafficRoutingRef string `json:"trafficRoutingRef,omitempty"`
}

// CanaryStrategy replaces pods step by step, or runs the new ones in an extra workload.
type CanaryStrategy struct {
	// The steps of a release, in order.
	// +kubebuilder:validation:MaxItems=50
	Steps []CanaryStep `json:"steps,omitempty"`
	// The Services of the workload, each with what routes to it. Without any, steps move pods only.
	// +kubebuilder:validation:MaxItems=16
	TrafficRoutings []TrafficRoutingRef `json:"trafficRoutings,omitempty"`
	// How many new pods of a step may be unready for it to count as done: a number, or a percentage of them. Default:
	// none.
	FailureThreshold *intstr.IntOrString `json:"failureThreshold,omitempty"`
	// Labels and annotations for the pods of the extra workload.
	PatchPodTemplateMetadata *PatchPodTemplateMeta `json:"patchPodTemplateMetadata,omitempty"`
	// True runs the new version in an extra Deployment, which is removed at the end. False replaces pods of the
	// workload itself.
	EnableExtraWorkloadForCanary bool `json:"enableExtraWorkloadForCanary,omitempty"`
	// The name of a TrafficRouting of the namespace, whose routes are used.
	TrafficRoutingRef string `json:"trafficRoutingRef,omitempty"`
	// True makes no Service of its own for the new version: routes choose its pods themselves.
	DisableGenerateCanaryService bool `json:"disableGenerateCanaryService,omitempty"`
}

// BlueGreenStrategy runs all new pods in addition to all old ones.
type BlueGreenStrategy struct {
	// The steps of a release, in order.
	// +kubebuilder:validation:MaxItems=50
	Steps []CanaryStep `json:"steps,omitempty"`
	// The Services of the workload, each with what routes to it. Without any, steps move pods only.
	// +kubebuilder:validation:MaxItems=16
	TrafficRoutings []TrafficRoutingRef `json:"trafficRoutings,omitempty"`
	// How many new pods of a step may be unready for it to count as done: a number, or a percentage of them. Default:
	// none.
	FailureThreshold *intstr.IntOrString `json:"failureThreshold,omitempty"`
	// The name of a TrafficRouting of the namespace, whose routes are used.
	TrafficRoutingRef string `json:"trafficRoutingRef,omitempty"`
	// True makes no Service of its own for the new version: routes choose its pods themselves.
	DisableGenerateCanaryService bool `json:"disableGenerateCanaryService,omitempty"`
}

// PatchPodTemplateMeta is added to the pods of the extra workload.
type PatchPodTemplateMeta struct {
	// Annotations of the pods of the extra workload.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Labels of the pods of the extra workload.
	Labels map[string]string `json:"labels,omitempty"`
}

// CanaryStep is one step: pods first, then traffic, then a pause.
type CanaryStep struct {
	// The new version's share of the requests, with the sign: "20%".
	Traffic *string `json:"traffic,omitempty"`
	// How headers are changed in requests that go to the new version.
	RequestHeaderModifier *HTTPHeaderFilter `json:"requestHeaderModifier,omitempty"`
	// Which requests go to the new version: those that meet at least one of these. They win over traffic.
	// +kubebuilder:validation:MaxItems=16
	Matches []HTTPRouteMatch `json:"matches,omitempty"`
	// How many pods are of the new version: a number, or a percentage of the workload's, "20%".
	Replicas *intstr.IntOrString `json:"replicas,omitempty"`
	// How long to wait before the next step. Absent or {}: until the step is approved.
	Pause RolloutPause `json:"pause,omitempty"`
}

// RolloutPause is a step's pause: Duration in seconds; nil waits for an approval.
type RolloutPause struct {
	// Seconds to wait, a number. 0 continues at once; absent or {} waits for an approval.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Duration *int32 `json:"duration,omitempty"`
}

// HTTPHeaderFilter changes request headers.
type HTTPHeaderFilter struct {
	// Headers that are set, over what the request has.
	// +kubebuilder:validation:MaxItems=16
	Set []HTTPHeader `json:"set,omitempty"`
	// Headers that are added to what the request has.
	// +kubebuilder:validation:MaxItems=16
	Add []HTTPHeader `json:"add,omitempty"`
	// Names of headers that are taken out of the request.
	// +kubebuilder:validation:MaxItems=16
	Remove []string `json:"remove,omitempty"`
}

// HTTPHeader is a header's name and value.
type HTTPHeader struct {
	// The name of the header.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
	// The value of the header.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value"`
}

// HTTPRouteMatch is met by a request that meets all of its parts.
type HTTPRouteMatch struct {
	// What the path of the request has to be.
	Path *HTTPPathMatch `json:"path,omitempty"`
	// What headers of the request have to be, all of them.
	// +kubebuilder:validation:MaxItems=16
	Headers []HTTPValueMatch `json:"headers,omitempty"`
	// What query parameters of the request have to be, all of them.
	// +kubebuilder:validation:MaxItems=16
	QueryParams []HTTPValueMatch `json:"queryParams,omitempty"`
}

// HTTPPathMatch compares the request's path.
type HTTPPathMatch struct {
	// How the path is compared.
	// +kubebuilder:validation:Enum=Exact;PathPrefix;RegularExpression
	// +kubebuilder:default=PathPrefix
	Type *string `json:"type,omitempty"`
	// The path to compare with.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:default="/"
	Value *string `json:"value,omitempty"`
}

// HTTPValueMatch compares one header or query parameter.
type HTTPValueMatch struct {
	// How the value is compared.
	// +kubebuilder:validation:Enum=Exact;RegularExpression
	// +kubebuilder:default=Exact
	Type *string `json:"type,omitempty"`
	// The name of the header or query parameter.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
	// The value to compare with.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value"`
}

// TrafficRoutingRef binds a Service and what routes to it.
type TrafficRoutingRef struct {
	// The name of the workload's Service.
	Service string `json:"service"`
	// How many seconds changed routes are left to take effect.
	// +optional
	// +kubebuilder:default=3
	GracePeriodSeconds int32 `json:"gracePeriodSeconds,omitempty"`
	// The Ingress that routes to the Service.
	Ingress *IngressRef `json:"ingress,omitempty"`
	// The HTTPRoute of the Gateway API that routes to the Service.
	Gateway *GatewayRef `json:"gateway,omitempty"`
	// Objects of other kinds that route to the Service, such as Istio's VirtualService; scripts change them.
	// +kubebuilder:validation:MaxItems=64
	CustomNetworkRefs []ObjectRef `json:"customNetworkRefs,omitempty"`
}

// IngressRef names an Ingress and its class of controller.
type IngressRef struct {
	// The class of controller: nginx, higress, aliyun-alb, mse, or one that a script of yours serves.
	// +optional
	// +kubebuilder:default=nginx
	ClassType string `json:"classType,omitempty"`
	// The name of the Ingress.
	Name string `json:"name"`
}

// GatewayRef names an HTTPRoute.
type GatewayRef struct {
	// The name of the HTTPRoute.
	HTTPRouteName *string `json:"httpRouteName,omitempty"`
}

// RolloutPhase is the phase of a Rollout.
type RolloutPhase string

// The phases.
const (
	PhaseInitial     RolloutPhase = "Initial"
	PhaseHealthy     RolloutPhase = "Healthy"
	PhaseProgressing RolloutPhase = "Progressing"
	PhaseTerminating RolloutPhase = "Terminating"
	PhaseDisabled    RolloutPhase = "Disabled"
	PhaseDisabling   RolloutPhase = "Disabling"
)

// The types of a Rollout's conditions. Three are Slipway's own. ConditionStalled: the release waits for an operator
// because of a failure or a change by another client. ConditionUnchecked: nothing proves that the authors of the
// Rollout may change the objects that it refers to. ConditionNotHeld: nothing held the last change of the workload's
// pod template, so that pods moved without a release; until the next one.
const (
	ConditionProgressing = "Progressing"
	ConditionSucceeded   = "Succeeded"
	ConditionTerminating = "Terminating"
	ConditionStalled     = "Stalled"
	ConditionUnchecked   = "Unchecked"
	ConditionNotHeld     = "NotHeld"
)

// The reasons of ConditionProgressing and ConditionTerminating.
const (
	ReasonInitializing  = "Initializing"
	ReasonInRolling     = "InRolling"
	ReasonFinalising    = "Finalising"
	ReasonCompleted     = "Completed"
	ReasonCancelling    = "Cancelling"
	ReasonPaused        = "Paused"
	ReasonInTerminating = "InTerminating"
)

// RolloutStatus is the observed state. Clients may change only CurrentStepState (to StepReady) and NextStepIndex of
// CanaryStatus or BlueGreenStatus.
type RolloutStatus struct {
	// The generation of the Rollout that was read last.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The progress of a canary; absent for blue-green.
	CanaryStatus *CanaryStatus `json:"canaryStatus,omitempty"`
	// The progress of a blue-green; absent for a canary.
	BlueGreenStatus *BlueGreenStatus `json:"blueGreenStatus,omitempty"`
	// The conditions of the Rollout: Progressing, Succeeded, Terminating, Stalled while it waits for an operator to fix
	// something, Unchecked if nothing proves that its authors may change the objects that it refers to, and NotHeld if
	// nothing held the last change of the workload's pod template.
	Conditions []Condition `json:"conditions,omitempty"`
	// Initial, Healthy, Progressing, Terminating, Disabled or Disabling.
	Phase RolloutPhase `json:"phase,omitempty"`
	// What happens, or what the release waits for.
	Message string `json:"message,omitempty"`
	// The current step, from 1.
	// +optional
	CurrentStepIndex int32 `json:"currentStepIndex"`
	// The state of the current step.
	// +optional
	CurrentStepState string `json:"currentStepState"`
	// What the engine needs to distinguish a client's change of the status from its own.
	Slipway *EngineStatus `json:"slipway,omitempty"`
}

// EngineStatus is what the engine wrote last. Admission restores it after writes by other clients and records their
// user in By.
type EngineStatus struct {
	// The number of the engine's last write. A command refers by it to the state that it reacts to.
	Seq int64 `json:"seq,omitempty"`
	// The state of the step as the engine wrote it; a difference to the status is a command.
	StepState string `json:"stepState,omitempty"`
	// The next step as the engine wrote it; a difference to the status is a command.
	NextStepIndex int32 `json:"nextStepIndex,omitempty"`
	// The token of this visit to the step.
	Gate string `json:"gate,omitempty"`
	// The name of the release's ReleaseRecord; absent when none was made.
	Release string `json:"release,omitempty"`
	// The digest of the pod template that is released or, without a release, that serves.
	Template string `json:"template,omitempty"`
	// The rollout-id of the workload that was released last, or that it had when the engine first saw it.
	RolloutID string `json:"rolloutID,omitempty"`
	// The digest of a pod template whose release was rolled back by a command: released again, it waits for an approval
	// first.
	RolledBack string `json:"rolledBack,omitempty"`
	// Whether the release is paused because of spec.strategy.paused.
	PausedByObject bool `json:"pausedByObject,omitempty"`
	// Whether a release is in progress.
	Open bool `json:"open,omitempty"`
	// Who has written the status since, as the API server has authenticated them; absent: only the engine.
	By string `json:"by,omitempty"`
}

// Condition is one condition of a Rollout.
type Condition struct {
	// The type of the condition.
	Type string `json:"type"`
	// Whether it holds: True, False or Unknown.
	Status string `json:"status"`
	// When it was written last.
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`
	// When its status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// A word for the reason.
	// +optional
	Reason string `json:"reason"`
	// A sentence for people.
	// +optional
	Message string `json:"message"`
}

// CommonStatus holds the fields of both styles. NextStepIndex is -1 at the last step and when nothing runs.
type CommonStatus struct {
	// The generation of the workload that was read last.
	ObservedWorkloadGeneration int64 `json:"observedWorkloadGeneration,omitempty"`
	// The rollout-id of the workload that is released, or its revision.
	ObservedRolloutID string `json:"observedRolloutID,omitempty"`
	// The hash of the strategy that is carried out.
	RolloutHash string `json:"rolloutHash,omitempty"`
	// The revision of the old version.
	StableRevision string `json:"stableRevision,omitempty"`
	// The hash of the new version's pods, as their label has it.
	// +optional
	PodTemplateHash string `json:"podTemplateHash"`
	// The current step, from 1.
	// +optional
	CurrentStepIndex int32 `json:"currentStepIndex"`
	// The next step; -1 after the last one and without a release. Set it to jump.
	// +optional
	NextStepIndex int32 `json:"nextStepIndex"`
	// The state of the current step. Set StepPaused to StepReady to approve.
	// +optional
	CurrentStepState string `json:"currentStepState"`
	// What is being restored at the end of a release.
	FinalisingStep string `json:"finalisingStep,omitempty"`
	// What happens in the step, or what it waits for.
	Message string `json:"message,omitempty"`
	// When the state of the step changed last.
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
}

// CanaryStatus is the progress of a canary.
type CanaryStatus struct {
	CommonStatus `json:",inline"`
	// The revision of the new version.
	CanaryRevision string `json:"canaryRevision,omitempty"`
	// How many pods are of the new version.
	// +optional
	CanaryReplicas int32 `json:"canaryReplicas"`
	// How many of them are ready.
	// +optional
	CanaryReadyReplicas int32 `json:"canaryReadyReplicas"`
}

// BlueGreenStatus is the progress of a blue-green.
type BlueGreenStatus struct {
	CommonStatus `json:",inline"`
	// The revision of the new version.
	UpdatedRevision string `json:"updatedRevision,omitempty"`
	// How many pods are of the new version.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// How many of them are ready.
	// +optional
	UpdatedReadyReplicas int32 `json:"updatedReadyReplicas"`
}

// UnmarshalJSON accepts "duration: {}" as an absent duration, because the API specification prints it that way.
func (p *RolloutPause) UnmarshalJSON(text []byte) error {
	var raw struct {
		Duration json.RawMessage `json:"duration"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return fmt.Errorf("pause must be an object with a duration in seconds: %w", err)
	}
	p.Duration = nil
	if len(raw.Duration) == 0 || string(raw.Duration) == "null" {
		return nil
	}
	var empty struct{}
	if raw.Duration[0] == '{' {
		return json.Unmarshal(raw.Duration, &empty)
	}
	return json.Unmarshal(raw.Duration, &p.Duration)
}
