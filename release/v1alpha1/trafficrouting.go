package v1alpha1

import (
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/workloadops"
)

// TrafficRoutingResource is where the API server serves the TrafficRoutings of the source document.
var TrafficRoutingResource = schema.GroupVersionResource{Group: "rollouts.kruise.io", Version: "v1alpha1", Resource: "trafficroutings"}

// TrafficRoutingKind is their kind.
const TrafficRoutingKind = "TrafficRouting"

// FinalizerTrafficRouting keeps a TrafficRouting that is held: its last holder has to give the routes back first.
const FinalizerTrafficRouting = "slipway.io/trafficrouting"

// TrafficRoutingPhase is where a TrafficRouting stands.
type TrafficRoutingPhase string

const (
	// TrafficInitial: no engine has looked at it yet.
	TrafficInitial TrafficRoutingPhase = "Initial"
	// TrafficHealthy: nobody holds it, and its routes are their own.
	TrafficHealthy TrafficRoutingPhase = "Healthy"
	// TrafficProgressing: rollouts hold it.
	TrafficProgressing TrafficRoutingPhase = "Progressing"
	// TrafficFinalizing: its last holder is giving the routes back.
	TrafficFinalizing TrafficRoutingPhase = "Finalizing"
	// TrafficTerminating: somebody has deleted it while rollouts hold it.
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
	// Deleting says that somebody has deleted it and it only waits for its holders.
	Deleting   bool
	Finalizers []string
}

// TrafficRoutingStatus is what the engine keeps of a TrafficRouting.
// +kubebuilder:object:generate=false
type TrafficRoutingStatus struct {
	ObservedGeneration int64               `json:"observedGeneration,omitempty"`
	Phase              TrafficRoutingPhase `json:"phase"`
	Message            string              `json:"message"`
	// Holders are the claims of the rollouts that hold it, in the order in which they came.
	Holders []string `json:"holders"`
}

const trafficClaimPrefix = "trafficrouting/"

// TrafficClaim is the claim under which an engine writes the routes of a TrafficRouting, the same for all its holders.
func TrafficClaim(namespace, name string, engine workloadops.Engine) string {
	return workloadops.Holder{WorkflowID: trafficClaimPrefix + namespace + "/" + name, Engine: engine}.String()
}

// ParseTrafficClaim reads TrafficClaim; ok is false for any other claim.
func ParseTrafficClaim(claim string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(workloadops.ParseHolder(claim).WorkflowID, trafficClaimPrefix)
	namespace, name, found := strings.Cut(rest, "/")
	return namespace, name, ok && found && namespace != "" && name != ""
}
