// Package catalog holds the services that a release can name and the workloads that make them up.
//
// +kubebuilder:object:generate=true
package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/strictyaml"
)

// DefaultParty is the party of a workload that names none: the engine's own cluster.
const DefaultParty = "default"

// defaultDeadlineSeconds is how long one operation on a service may take when the service does not say.
const defaultDeadlineSeconds = 600

// Service is a catalogue entry: what a plan's serviceId stands for.
// Its ID is the name of the ReleaseService object that carries it.
type Service struct {
	// DisplayName is what people call the service.
	DisplayName string `json:"displayName,omitempty"`
	// Workloads are the parts of the service; at least one.
	// +kubebuilder:validation:MinItems=1
	Workloads []Workload `json:"workloads"`
	// DeadlineSeconds is how long one operation on the service may take; time in which its cluster cannot be reached does not count. Default
	// 600.
	// +kubebuilder:validation:Minimum=1
	DeadlineSeconds int64 `json:"deadlineSeconds,omitempty"`
	// Package says how a code package reaches the containers (HTTP_UPLOAD_DEPLOY).
	Package *Package `json:"package,omitempty"`
	// Build says how the service is compiled (COMPILE_DEPLOY).
	Build *Build `json:"build,omitempty"`
	// Strategy is the strategy of a Rollout. Where there is one, a deploy of the service releases each workload by a Rollout of its own.
	// Package strategy reads it (strategy.OfService).
	// +kubebuilder:pruning:PreserveUnknownFields
	Strategy *apiextensionsv1.JSON `json:"strategy,omitempty"`
	// Policy is the policy beside Strategy, as a Rollout has it.
	// +kubebuilder:pruning:PreserveUnknownFields
	Policy *apiextensionsv1.JSON `json:"policy,omitempty"`
}

// RollsOut says whether deploys of the service are Rollouts.
func (s Service) RollsOut() bool { return s.Strategy != nil }

// Workload is one Kubernetes object of a service.
type Workload struct {
	// Party is whose cluster the workload lives in; absent: the party "default".
	Party string `json:"party,omitempty"`
	// Namespace of the workload.
	Namespace string `json:"namespace"`
	// WorkloadRef names the object.
	WorkloadRef WorkloadRef `json:"workloadRef"`
	// Labels are what an item's deployLabel selects by. They are the catalogue's own, not the object's.
	Labels []string `json:"labels,omitempty"`
	// Replicas is what START restores when no size is remembered on the object.
	// +kubebuilder:validation:Minimum=1
	Replicas *int32 `json:"replicas,omitempty"`
}

// WorkloadRef names an object within its namespace.
type WorkloadRef struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// Package says how a code package reaches a service's containers.
type Package struct {
	// Container is the container that gets the package.
	Container string `json:"container"`
	// MountPath is the folder of that container where the package is.
	MountPath string `json:"mountPath"`
	// Credentials is a Secret in the workload's namespace: username and password, or token, and the hosts that they may be sent to.
	Credentials string `json:"credentials,omitempty"`
	// Unpack says whether the package is an archive to be unpacked; false: it is kept whole, as a jar or war is. Default true.
	Unpack *bool `json:"unpack,omitempty"`
	// File is the name under which a package that is not unpacked is kept; default: the last segment of its URL's path.
	File string `json:"file,omitempty"`
}

// Unpacked says whether the package is unpacked.
func (p Package) Unpacked() bool { return p.Unpack == nil || *p.Unpack }

// Build says how a service is compiled and what the build yields: an image, or a package at a URL.
type Build struct {
	// JobTemplate is the Kubernetes Job template that compiles one commit.
	// +kubebuilder:pruning:PreserveUnknownFields
	JobTemplate apiextensionsv1.JSON `json:"jobTemplate"`
	// Image is the pattern of the image that the build pushes; {{commit}} stands for the commit.
	Image string `json:"image,omitempty"`
	// Package is the pattern of the URL of the package that the build yields; the alternative to Image.
	Package string `json:"package,omitempty"`
	// Container is the container of the workloads that gets the image; absent: that of Service.Package, else the only one that there is.
	Container string `json:"container,omitempty"`
	// Credentials is a Secret in the namespace of the first workload that opens the Git repository: username and password, or token, and the
	// hosts that they may be sent to; for ssh, ssh-privatekey and known_hosts.
	Credentials string `json:"credentials,omitempty"`
	// DeadlineSeconds is how long the build may take; absent: as long as an operation on the service.
	// +kubebuilder:validation:Minimum=1
	DeadlineSeconds int64 `json:"deadlineSeconds,omitempty"`
}

// PartyOrDefault is the party of the workload, "default" when it names none.
func (w Workload) PartyOrDefault() string { return cmp.Or(w.Party, DefaultParty) }

// String names the workload as people read it: "Deployment shop/order", with the party in front unless it is the default one.
func (w Workload) String() string {
	name := w.WorkloadRef.Kind + " " + w.Namespace + "/" + w.WorkloadRef.Name
	if w.PartyOrDefault() != DefaultParty {
		return w.PartyOrDefault() + ": " + name
	}
	return name
}

// Deadline is how long one operation on the service may take, in seconds.
func (s Service) Deadline() int64 { return cmp.Or(s.DeadlineSeconds, defaultDeadlineSeconds) }

// APIVersion is the API version of all kinds that can be released so far.
const APIVersion = "apps/v1"

// The kinds of workload that can be released so far, all of API version apps/v1.
const (
	Deployment  = "Deployment"
	StatefulSet = "StatefulSet"
	DaemonSet   = "DaemonSet"
)

var kinds = []string{Deployment, StatefulSet, DaemonSet}

// kindList is for sentences.
const kindList = "Deployment, StatefulSet and DaemonSet"

// supported says why workloads of this API version and kind cannot be released, nil when they can.
func (r WorkloadRef) supported() error {
	switch {
	case r.APIVersion == APIVersion && slices.Contains(kinds, r.Kind):
		return nil
	case r.APIVersion == APIVersion:
		near := strictyaml.DidYouMean(r.Kind, kinds)
		return fmt.Errorf("%s of %s cannot be released: %s can%s", strictyaml.Quote(r.Kind), APIVersion, kindList, near)
	case slices.Contains(kinds, r.Kind):
		return fmt.Errorf("%s of %s cannot be released: write apiVersion: %s", r.Kind, strictyaml.Quote(r.APIVersion), APIVersion)
	}
	kind, version := strictyaml.Quote(r.Kind), strictyaml.Quote(r.APIVersion)
	return fmt.Errorf("%s of %s is not available yet: %s of %s are", kind, version, kindList, APIVersion)
}

// Sized says whether workloads of this kind have a size to be scaled to.
func (r WorkloadRef) Sized() bool { return r.Kind != DaemonSet }

// Identity is the same for two entries exactly when they are the same object: party, API group, kind, namespace and name.
func (w Workload) Identity() string {
	group := schema.FromAPIVersionAndKind(w.WorkloadRef.APIVersion, w.WorkloadRef.Kind).Group
	return strings.Join([]string{w.PartyOrDefault(), group, w.WorkloadRef.Kind, w.Namespace, w.WorkloadRef.Name}, "/")
}

// EngineQueue is the Temporal task queue of all workflows and of the centre's own activities. No party has it.
const EngineQueue = "slipway"

// PartyQueue is the Temporal task queue of a party that names none of its own.
func PartyQueue(party string) string { return "slipway.party." + party }

// QueueOf is the queue of a party whose object names one of its own, or "" for none.
func QueueOf(party, own string) string { return cmp.Or(own, PartyQueue(party)) }
