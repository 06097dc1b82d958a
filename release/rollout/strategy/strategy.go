// Package strategy is what a rollout is asked: the strategy with its steps, the policy beside it, the change, how all of them are read from
// YAML and JSON with every error at once, the rules that they are held against, and the arithmetic of batches.
package strategy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/window"
)

// Style is how new pods come beside the old ones.
type Style string

// The three styles.
const (
	// StylePartition replaces pods of the workload itself, step by step.
	StylePartition Style = "partition"
	// StyleCanary runs the new version in an extra workload beside the stable one.
	StyleCanary Style = "canary"
	// StyleBlueGreen adds new pods and keeps every old one until the end.
	StyleBlueGreen Style = "blueGreen"
)

// Strategy is the strategy of a Rollout document of either version, in one form.
type Strategy struct {
	Style Style `json:"style"`
	// Paused holds the rollout before its first step until somebody resumes it.
	Paused bool   `json:"paused,omitempty"`
	Steps  []Step `json:"steps"`
	// Routings are the traffic routings; empty: traffic follows the pods.
	Routings []Routing `json:"routings,omitempty"`
	// TrafficRoutingRef names a TrafficRouting of the same namespace that is shared with other rollouts; "": none.
	TrafficRoutingRef string `json:"trafficRoutingRef,omitempty"`
	// FailureThreshold is how many new pods of a step may be unready (count, or share of the step's pods rounded up); nil: none.
	FailureThreshold *intstr.IntOrString `json:"failureThreshold,omitempty"`
	// PatchPodTemplateMetadata is added to the pods of the extra workload; only with StyleCanary.
	PatchPodTemplateMetadata *PodMetadata `json:"patchPodTemplateMetadata,omitempty"`
	// DisableGenerateCanaryService leaves out <service>-canary and the pinning of the stable Service: routes name the stable Service only.
	DisableGenerateCanaryService bool `json:"disableGenerateCanaryService,omitempty"`
}

// HasTraffic says whether the rollout moves traffic by itself.
func (s Strategy) HasTraffic() bool { return len(s.Routings) > 0 }

// Step is one step: pods first, then traffic, then a pause.
type Step struct {
	// Replicas is how many pods are new after the step: a number, or a share "N%" of the workload's size.
	Replicas intstr.IntOrString `json:"replicas"`
	// Traffic is the share of requests that goes to the new version, in percent, 0 to 100; nil: not said.
	Traffic *int32 `json:"traffic,omitempty"`
	// Matches send the requests that match one of them to the new version; where there are matches, Traffic is not looked at.
	Matches []Match `json:"matches,omitempty"`
	// RequestHeaderModifier changes the headers of requests that go to the new version.
	RequestHeaderModifier *HeaderModifier `json:"requestHeaderModifier,omitempty"`
	// PauseSeconds is how long the step rests: nil waits for a person, 0 goes on at once.
	PauseSeconds *int64 `json:"pauseSeconds,omitempty"`
}

// Routes says whether the step asks anything of the traffic.
func (s Step) Routes() bool { return s.Traffic != nil || len(s.Matches) > 0 }

// MatchType is how a value is compared.
type MatchType string

// The types of a match. PathPrefix is for paths only.
const (
	MatchExact             MatchType = "Exact"
	MatchRegularExpression MatchType = "RegularExpression"
	MatchPathPrefix        MatchType = "PathPrefix"
)

// Match is met by a request that meets all of its parts.
type Match struct {
	Path        *PathMatch   `json:"path,omitempty"`
	Headers     []ValueMatch `json:"headers,omitempty"`
	QueryParams []ValueMatch `json:"queryParams,omitempty"`
}

// PathMatch compares the request's path.
type PathMatch struct {
	Type  MatchType `json:"type"`
	Value string    `json:"value"`
}

// ValueMatch compares one header or query parameter.
type ValueMatch struct {
	Type  MatchType `json:"type"`
	Name  string    `json:"name"`
	Value string    `json:"value"`
}

// HeaderModifier changes request headers, with the fields of the Gateway API's HTTPHeaderFilter.
type HeaderModifier struct {
	Set    []Header `json:"set,omitempty"`
	Add    []Header `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// Header is a header's name and value.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PodMetadata is added to a pod template.
type PodMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// DefaultGraceSeconds is how long a change of routes is left to take effect when the routing does not say.
const DefaultGraceSeconds = 3

// Routing binds a Service and exactly one provider that routes to it.
type Routing struct {
	Service string `json:"service"`
	// GraceSeconds is how long a change of routes is left to take effect; the decoder fills in the default.
	GraceSeconds int64 `json:"graceSeconds"`
	// Ingress, HTTPRoute and Custom: exactly one is set.
	Ingress   *IngressRef `json:"ingress,omitempty"`
	HTTPRoute string      `json:"httpRoute,omitempty"`
	Custom    []ObjectRef `json:"custom,omitempty"`
}

// CanaryService is the name of the Service that selects the new version's pods.
func (r Routing) CanaryService() string { return r.Service + CanarySuffix }

// CanarySuffix is appended to the names of the objects that a rollout creates: Service, Ingress, extra Deployment.
const CanarySuffix = "-canary"

// LabelCanaryOf is on every object that a rollout created and on the pods of the extra workload: the workload's name (its SHA-256,
// shortened, when that is longer than a label's value may be).
const LabelCanaryOf = "slipway.io/canary-of"

// IngressRef names an Ingress and the script that knows its class: nginx (default), higress, mse, aliyun-alb, or one of the ConfigMap.
type IngressRef struct {
	Class string `json:"class"`
	Name  string `json:"name"`
}

// ObjectRef names a custom object of the workload's namespace.
type ObjectRef struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// Traffic is what the routes are asked to do.
type Traffic struct {
	// Weight is the new version's share in percent; nil: by matches only.
	Weight                *int32          `json:"weight,omitempty"`
	Matches               []Match         `json:"matches,omitempty"`
	RequestHeaderModifier *HeaderModifier `json:"requestHeaderModifier,omitempty"`
}

// Asks is what a step asks of the traffic.
func (s Step) Asks() Traffic {
	t := Traffic{Weight: s.Traffic, Matches: s.Matches, RequestHeaderModifier: s.RequestHeaderModifier}
	if len(s.Matches) > 0 {
		t.Weight = nil
	}
	return t
}

// labelLimit is the longest value of a label (Kubernetes API).
const labelLimit = 63

// CanaryOf is the value of LabelCanaryOf for a workload.
func CanaryOf(name string) string {
	if len(name) <= labelLimit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:labelLimit-7]
}

// Spec is one release of one workload, as it was asked: what the record keeps and the workflow runs.
type Spec struct {
	Party       string              `json:"party"`
	Namespace   string              `json:"namespace"`
	Name        string              `json:"name"`
	WorkloadRef catalog.WorkloadRef `json:"workloadRef"`
	Strategy    Strategy            `json:"strategy"`
	Policy      Policy              `json:"policy"`
	Change      Change              `json:"change"`
	// RolloutID is the caller's own number of the release (annotation rollouts.kruise.io/rollout-id); kept and shown.
	RolloutID string `json:"rolloutId,omitempty"`
	// Undo is set when the release goes back to a version that has served before.
	Undo *Undo `json:"undo,omitempty"`
}

// Workload is the workload as the catalogue would name it.
func (s Spec) Workload() catalog.Workload {
	return catalog.Workload{Party: s.Party, Namespace: s.Namespace, WorkloadRef: s.WorkloadRef}
}

// Change is what the new version differs in: images by container (init containers too), a patch of the pod template, what the workload
// itself declares, an earlier revision, or what a plan deploys: a code package or an image. Exactly one is set, but for an undo under a Rollout object, which has Declared and
// Revision: the release itself has the workload declare the revision's template.
type Change struct {
	Images map[string]string `json:"images,omitempty"`
	// TemplatePatch is a strategic merge patch of the pod template (apps/v1), or a JSON merge patch; at most MaxTemplatePatch bytes.
	TemplatePatch json.RawMessage `json:"templatePatch,omitempty"`
	// Declared is set when the workload's own pod template is the command: somebody has changed it, and the change was held.
	Declared *Declared `json:"declared,omitempty"`
	// Revision is set when the new version is an earlier revision of the workload, whose pod template its cluster still keeps.
	Revision *Revision `json:"revision,omitempty"`
	// Package is the code package that a plan deploys to the pods. Without a digest it is not fetched yet: that is enough to check whether it fits.
	Package *source.Package `json:"package,omitempty"`
	// Image is the image that a plan has built for the pods. Without a reference it is not built yet.
	Image *source.Image `json:"image,omitempty"`
}

// ImagesOf are the images of the new version by container, as far as they are known without a cluster.
func (c Change) ImagesOf() map[string]string {
	switch {
	case c.Declared != nil:
		return c.Declared.Images
	case c.Revision != nil:
		return c.Revision.Images
	}
	return c.Images
}

// Declared is the pod template that a workload declares.
type Declared struct {
	// Template is the SHA-256 of its canonical JSON, as package pods makes it.
	Template string `json:"template"`
	// Images are those of its containers, by name; for people.
	Images map[string]string `json:"images,omitempty"`
}

// Revision is a revision of a workload as a release recorded it.
type Revision = revision.Revision

// MaxTemplatePatch bounds a patch, in bytes: it travels through the workflow's history.
const MaxTemplatePatch = 64 << 10

// OnFailure is what happens when a step fails or an approval expires.
type OnFailure string

// What can happen.
const (
	OnFailurePause    OnFailure = "pause"
	OnFailureRollback OnFailure = "rollback"
)

// Policy is Slipway's own addition beside the strategy. The decoder fills in the defaults.
type Policy struct {
	// StepDeadlineSeconds is how long a step's pods may take, without the time in which the cluster is out of reach. Default 600.
	StepDeadlineSeconds int64 `json:"stepDeadlineSeconds"`
	// SettleSeconds is how long a release waits for the workload's own update before it claims it; 0: not at all. Default 60.
	SettleSeconds int64     `json:"settleSeconds,omitempty"`
	OnFailure     OnFailure `json:"onFailure"`
	// ApprovalExpiresSeconds is how long a step waits for a person; 0: for ever.
	ApprovalExpiresSeconds int64     `json:"approvalExpiresSeconds,omitempty"`
	OnExpiry               OnFailure `json:"onExpiry"`
	// RollbackInBatches has a rollback go through the steps, pauses included (annotation rollback-in-batch). Only with StylePartition.
	RollbackInBatches bool `json:"rollbackInBatches,omitempty"`
	// RollbackWindow is how many versions back an undo goes without steps; 0: none, every undo goes through the steps.
	RollbackWindow int64 `json:"rollbackWindow,omitempty"`
	// Times are when the release, and each of its next steps, may begin.
	window.Times `json:",inline"`
}

// What holds when the policy does not say: a step's deadline, and the time for a workload's own update to finish.
const (
	DefaultStepDeadlineSeconds = 600
	DefaultSettleSeconds       = 60
)
