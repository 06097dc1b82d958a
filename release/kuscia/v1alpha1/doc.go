// Package v1alpha1 holds the objects of API group kuscia.secretflow that live in the engine's home cluster: the KusciaDeployment, which is a serving,
// and the AppImage that its parties run.
// +kubebuilder:object:generate=true
// +groupName=kuscia.secretflow
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

//go:generate controller-gen object paths=.
//go:generate controller-gen crd paths=. output:crd:dir=../../../deploy/crds

// GroupVersion is the API group and version of this package's objects.
var GroupVersion = schema.GroupVersion{Group: "kuscia.secretflow", Version: "v1alpha1"}

// Where the API server serves them.
var (
	AppImageResource         = GroupVersion.WithResource("appimages")
	KusciaDeploymentResource = GroupVersion.WithResource("kusciadeployments")
)

// Namespace is the namespace of the home cluster in which a KusciaDeployment is a serving unless the engine is told otherwise; one of any other
// namespace is nobody's.
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
