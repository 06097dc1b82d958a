// Package strategy holds the input of a rollout: the strategy with its steps, the policy and the change. It decodes
// them from YAML and JSON with every error at once, validates them, and computes the sizes of batches.
package strategy

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workload"
)

// Style is how new pods are added to the old ones.
type Style = workload.Style

// The three styles.
const (
	StylePartition = workload.StylePartition
	StyleCanary    = workload.StyleCanary
	StyleBlueGreen = workload.StyleBlueGreen
)

// Strategy is the strategy of a Rollout document, normalised from either version.
type Strategy struct {
	Style Style `json:"style"`
	// Paused makes the rollout wait before its first step until a user resumes it.
	Paused bool   `json:"paused,omitempty"`
	Steps  []Step `json:"steps"`
	// Routings are the traffic routings; empty: traffic follows the pods.
	Routings []Routing `json:"routings,omitempty"`
	// TrafficRoutingRef names a TrafficRouting of the same namespace, shared with other rollouts; "": none.
	TrafficRoutingRef string `json:"trafficRoutingRef,omitempty"`
	// FailureThreshold is how many new pods of a step may be unready (a number, or a percentage of the step's pods
	// rounded up); nil: none.
	FailureThreshold *intstr.IntOrString `json:"failureThreshold,omitempty"`
	// PatchPodTemplateMetadata is added to the pods of the extra workload; only with StyleCanary.
	PatchPodTemplateMetadata *PodMetadata `json:"patchPodTemplateMetadata,omitempty"`
	// DisableGenerateCanaryService leaves out <service>-canary and the pinning of the stable Service: routes name the
	// stable Service only.
	DisableGenerateCanaryService bool `json:"disableGenerateCanaryService,omitempty"`
}

// HasTraffic reports whether the rollout itself moves traffic.
func (s Strategy) HasTraffic() bool { return len(s.Routings) > 0 }

// Step is one step: pods first, then traffic, then a pause.
type Step struct {
	// Replicas is how many pods are new after the step: a number, or a percentage "N%" of the workload's size.
	Replicas intstr.IntOrString `json:"replicas"`
	// Traffic is the percentage of requests that go to the new version, 0 to 100; nil: not set.
	Traffic *int32 `json:"traffic,omitempty"`
	// Matches send the requests that match one of them to the new version; if there are matches, Traffic is ignored.
	Matches []Match `json:"matches,omitempty"`
	// RequestHeaderModifier changes the headers of requests that go to the new version.
	RequestHeaderModifier *HeaderModifier `json:"requestHeaderModifier,omitempty"`
	// PauseSeconds is how long the step pauses: nil waits for an approval, 0 continues at once.
	PauseSeconds *int64 `json:"pauseSeconds,omitempty"`
}

// Routes reports whether the step changes the traffic.
func (s Step) Routes() bool { return s.Traffic != nil || len(s.Matches) > 0 }

// MatchType is how a value is compared.
type MatchType string

// The types of a match. PathPrefix is for paths only.
const (
	MatchExact             MatchType = "Exact"
	MatchRegularExpression MatchType = "RegularExpression"
	MatchPathPrefix        MatchType = "PathPrefix"
)

// Match matches a request that matches all of its parts.
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

// DefaultGraceSeconds is the default of Routing.GraceSeconds.
const DefaultGraceSeconds = 3

// Routing binds a Service and exactly one provider that routes to it.
type Routing struct {
	Service string `json:"service"`
	// GraceSeconds is how long the rollout waits for a route change to take effect; the decoder fills in the default.
	GraceSeconds int64 `json:"graceSeconds"`
	// Ingress, HTTPRoute and Custom: exactly one is set.
	Ingress   *IngressRef `json:"ingress,omitempty"`
	HTTPRoute string      `json:"httpRoute,omitempty"`
	Custom    []ObjectRef `json:"custom,omitempty"`
}

// CanaryService returns the name of the Service that selects the new version's pods.
func (r Routing) CanaryService() string { return r.Service + CanarySuffix }

// CanarySuffix is appended to the names of the objects that a rollout creates: Service, Ingress, extra Deployment.
const CanarySuffix = "-canary"

// LabelCanaryOf marks every object that a rollout created and the pods of the extra workload. Its value is the
// workload's name, or a shortened SHA-256 of it if the name is longer than a label value may be.
const LabelCanaryOf = "slipway.io/canary-of"

// IngressRef names an Ingress and its class, which selects the script: nginx (default), higress, mse, aliyun-alb, or a
// script of the ConfigMap.
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

// Traffic is the requested state of the routes.
type Traffic struct {
	// Weight is the percentage of requests for the new version; nil: by matches only.
	Weight                *int32          `json:"weight,omitempty"`
	Matches               []Match         `json:"matches,omitempty"`
	RequestHeaderModifier *HeaderModifier `json:"requestHeaderModifier,omitempty"`
}

// DesiredTraffic returns the traffic that the step requests.
func (s Step) DesiredTraffic() Traffic {
	t := Traffic{Weight: s.Traffic, Matches: s.Matches, RequestHeaderModifier: s.RequestHeaderModifier}
	if len(s.Matches) > 0 {
		t.Weight = nil
	}
	return t
}

// CanaryOf returns the value of LabelCanaryOf for a workload.
func CanaryOf(name string) string { return digest.Label(name) }

// Spec is one requested release of one workload: the record keeps it and the workflow runs it.
type Spec struct {
	Party       string              `json:"party"`
	Namespace   string              `json:"namespace"`
	Name        string              `json:"name"`
	WorkloadRef catalog.WorkloadRef `json:"workloadRef"`
	Strategy    Strategy            `json:"strategy"`
	Policy      Policy              `json:"policy"`
	Change      Change              `json:"change"`
	// RolloutID is the caller's own ID of the release (annotation rollouts.kruise.io/rollout-id); it is only stored and
	// shown.
	RolloutID string `json:"rolloutId,omitempty"`
	// Undo is set when the release goes back to a version that has served before.
	Undo *Undo `json:"undo,omitempty"`
}

// Workload returns the workload in the form of the catalogue.
func (s Spec) Workload() catalog.Workload {
	return catalog.Workload{Party: s.Party, Namespace: s.Namespace, WorkloadRef: s.WorkloadRef}
}

// Change is the difference between the new version and the stable one: images by container (init containers too), a
// patch of the pod template, the pod template that the workload declares, an earlier revision, or what a plan deploys
// (a code package or an image). Exactly one is set. Exception: an undo under a Rollout object has Declared and
// Revision, because the release itself writes the revision's template to the workload.
type Change struct {
	Images map[string]string `json:"images,omitempty"`
	// TemplatePatch is a strategic merge patch of the pod template (apps/v1), or a JSON merge patch; at most
	// MaxTemplatePatch bytes.
	TemplatePatch json.RawMessage `json:"templatePatch,omitempty"`
	// Declared is set if the change of the workload's own pod template started the release: a client changed it, and
	// the change was held.
	Declared *Declared `json:"declared,omitempty"`
	// Revision is set if the new version is an earlier revision of the workload, whose pod template the cluster still
	// keeps.
	Revision *Revision `json:"revision,omitempty"`
	// Package is the code package that a plan deploys to the pods. It has no digest until it is fetched; the preflight
	// check needs none.
	Package *source.Package `json:"package,omitempty"`
	// Image is the image that a plan builds for the pods. It has no reference until it is built.
	Image *source.Image `json:"image,omitempty"`
}

// ImagesOf returns the images of the new version by container, as far as they are known without reading the cluster.
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
	// Template is the SHA-256 of its canonical JSON, as package pods computes it.
	Template string `json:"template"`
	// Images are the images of its containers, by container name; for display only.
	Images map[string]string `json:"images,omitempty"`
	// NewID is true if the template has not changed since the last release: only the workload's rollout-id has.
	NewID bool `json:"newId,omitempty"`
}

// Revision is a revision of a workload, as recorded by a release.
type Revision = revision.Revision

// MaxTemplatePatch is the maximum size of a patch in bytes: the workflow's history contains it.
const MaxTemplatePatch = 64 << 10

// OnFailure is the reaction to a failed step or an expired approval.
type OnFailure string

// The possible reactions.
const (
	OnFailurePause    OnFailure = "pause"
	OnFailureRollback OnFailure = "rollback"
)

// Policy is Slipway's own addition to the strategy. The decoder fills in the defaults.
type Policy struct {
	// StepDeadlineSeconds is how long a step's pods may take. Time in which the cluster is unreachable does not count.
	// Default 600.
	StepDeadlineSeconds int64 `json:"stepDeadlineSeconds"`
	// SettleSeconds is how long a release waits for a running update of the workload to finish before it claims it; 0:
	// it does not wait. Default 60.
	SettleSeconds int64     `json:"settleSeconds,omitempty"`
	OnFailure     OnFailure `json:"onFailure"`
	// ApprovalExpiresSeconds is how long a step waits for an approval; 0: without limit.
	ApprovalExpiresSeconds int64     `json:"approvalExpiresSeconds,omitempty"`
	OnExpiry               OnFailure `json:"onExpiry"`
	// RollbackInBatches makes a rollback go through the steps, including pauses (annotation rollback-in-batch). Only
	// with StylePartition.
	RollbackInBatches bool `json:"rollbackInBatches,omitempty"`
	// RollbackWindow is how many versions back an undo skips the steps; 0: every undo goes through the steps.
	RollbackWindow int64 `json:"rollbackWindow,omitempty"`
	// Times are when the release, and each of its next steps, may begin.
	window.Times `json:",inline"`
}

// The defaults of Policy.StepDeadlineSeconds and Policy.SettleSeconds.
const (
	DefaultStepDeadlineSeconds = 600
	DefaultSettleSeconds       = 60
)

// Undo marks a release that goes back to an earlier version.
type Undo struct {
	// ToRevision is the number of that version in the history of the rollout's name; 0 if no recorded release deployed
	// it.
	ToRevision int64 `json:"toRevision,omitempty"`
	// WithoutSteps means that all pods are replaced at once, because the version is within the policy's rollback
	// window.
	WithoutSteps bool `json:"withoutSteps,omitempty"`
}

// String returns it as text: "undo to revision 2 without steps".
func (u Undo) String() string {
	text := "undo to the version before"
	if u.ToRevision > 0 {
		text = fmt.Sprintf("undo to revision %d", u.ToRevision)
	}
	if u.WithoutSteps {
		text += " without steps"
	}
	return text
}

// WithoutSteps returns a strategy that replaces all pods in place, within the workload's own limits, without routing
// traffic or waiting for approvals. It keeps FailureThreshold.
func (s Strategy) WithoutSteps() Strategy {
	none := int64(0)
	return Strategy{Style: StylePartition, FailureThreshold: s.FailureThreshold,
		Steps: []Step{{Replicas: intstr.FromString("100%"), PauseSeconds: &none}}}
}

// ImageList formats images by container for display: "app=registry/app:2, proxy=registry/proxy:1".
func ImageList(images map[string]string) string {
	var parts []string
	for _, container := range sortedKeys(images) {
		parts = append(parts, container+"="+images[container])
	}
	return strings.Join(parts, ", ")
}
