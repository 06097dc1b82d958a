package v1alpha1

import (
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/workload"
)

// TrafficRoutingResource is the API resource of TrafficRoutings.
var TrafficRoutingResource = schema.GroupVersionResource{Group: "rollouts.kruise.io", Version: "v1alpha1",
	Resource: "trafficroutings"}

// TrafficRoutingKind is the kind of a TrafficRouting.
const TrafficRoutingKind = "TrafficRouting"

// FinalizerTrafficRouting keeps a TrafficRouting that is held: its last holder must restore the routes first.
const FinalizerTrafficRouting = "slipway.io/trafficrouting"

// TrafficRoutingPhase is the phase of a TrafficRouting.
type TrafficRoutingPhase string

const (
	// TrafficInitial: no engine has processed it yet.
	TrafficInitial TrafficRoutingPhase = "Initial"
	// TrafficHealthy: no rollout holds it, and its routes are unchanged.
	TrafficHealthy TrafficRoutingPhase = "Healthy"
	// TrafficProgressing: rollouts hold it.
	TrafficProgressing TrafficRoutingPhase = "Progressing"
	// TrafficFinalizing: its last holder is restoring the routes.
	TrafficFinalizing TrafficRoutingPhase = "Finalizing"
	// TrafficTerminating: it was deleted while rollouts hold it.
	TrafficTerminating TrafficRoutingPhase = "Terminating"
)

// TrafficRouting is a TrafficRouting of the home cluster, as far as the engine reads it.
// +kubebuilder:object:generate=false
type TrafficRouting struct {
	Namespace, Name, ResourceVersion string
	Generation                       int64
	// Spec is its spec as JSON; release/trafficrouting reads it.
	Spec      json.RawMessage
	Status    TrafficRoutingStatus
	CreatedAt time.Time
	// Deleting is true if it was deleted and exists only until its holders release it.
	Deleting   bool
	Finalizers []string
}

// TrafficRoutingStatus is the status that the engine writes to a TrafficRouting.
// +kubebuilder:object:generate=false
type TrafficRoutingStatus struct {
	ObservedGeneration int64               `json:"observedGeneration,omitempty"`
	Phase              TrafficRoutingPhase `json:"phase"`
	Message            string              `json:"message"`
	// Holders are the claims of the rollouts that hold it, in the order in which they joined.
	Holders []string `json:"holders"`
}

const trafficClaimPrefix = "trafficrouting/"

// TrafficClaim returns the claim under which an engine writes the routes of a TrafficRouting, the same for all its
// holders.
func TrafficClaim(namespace, name string, engine workload.Engine) string {
	return workload.Holder{WorkflowID: trafficClaimPrefix + namespace + "/" + name, Engine: engine}.String()
}

// ParseTrafficClaim parses a TrafficClaim; ok is false for any other claim.
func ParseTrafficClaim(claim string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(workload.ParseHolder(claim).WorkflowID, trafficClaimPrefix)
	namespace, name, found := strings.Cut(rest, "/")
	return namespace, name, ok && found && namespace != "" && name != ""
}
