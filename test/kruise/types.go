package kruise

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// CloneSets, StatefulSets and DaemonSets are the resources of the three kinds, in their storage versions.
var (
	CloneSets    = schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1alpha1", Resource: "clonesets"}
	StatefulSets = schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1beta1", Resource: "statefulsets"}
	DaemonSets   = schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1alpha1", Resource: "daemonsets"}
)

// set is a workload of one of the three kinds, with the fields that the controller uses.
type set struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              spec   `json:"spec"`
	Status            status `json:"status"`
	// template is the unparsed pod template, including unknown fields.
	template map[string]any
}

type spec struct {
	Replicas             *int32                         `json:"replicas"`
	Selector             *metav1.LabelSelector          `json:"selector"`
	Template             corev1.PodTemplateSpec         `json:"template"`
	MinReadySeconds      int32                          `json:"minReadySeconds"`
	RevisionHistoryLimit *int32                         `json:"revisionHistoryLimit"`
	PodManagementPolicy  appsv1.PodManagementPolicyType `json:"podManagementPolicy"`
	UpdateStrategy       strategy                       `json:"updateStrategy"`
}

// strategy is the update strategy. A CloneSet uses the direct fields, the other kinds those of RollingUpdate.
type strategy struct {
	Type           string              `json:"type"`
	Partition      *intstr.IntOrString `json:"partition"`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
	MaxSurge       *intstr.IntOrString `json:"maxSurge"`
	Paused         bool                `json:"paused"`
	RollingUpdate  rollingUpdate       `json:"rollingUpdate"`
}

type rollingUpdate struct {
	Partition       int32               `json:"partition"`
	MaxUnavailable  *intstr.IntOrString `json:"maxUnavailable"`
	MinReadySeconds int32               `json:"minReadySeconds"`
	Paused          bool                `json:"paused"`
}

// status has the fields of its own status that the controller reads.
type status struct {
	CurrentRevision string `json:"currentRevision"`
}

const onDelete = "OnDelete"

func newSet(u *unstructured.Unstructured) (*set, error) {
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	s := &set{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, err
	}
	s.template, _, err = unstructured.NestedMap(u.Object, "spec", "template")
	return s, err
}

// replicas returns the requested number of pods.
func (s *set) replicas() int {
	if s.Spec.Replicas == nil {
		return 1
	}
	return int(*s.Spec.Replicas)
}

// owner returns the owner reference for the pods and revisions of the workload.
func (s *set) owner() metav1.OwnerReference {
	return *metav1.NewControllerRef(s, schema.FromAPIVersionAndKind(s.APIVersion, s.Kind))
}

// scaled resolves a number or a percentage of whole; other is the default of an absent value.
func scaled(value *intstr.IntOrString, other string, whole int, up bool) (int, error) {
	v := intstr.Parse(other)
	if value != nil {
		v = *value
	}
	return intstr.GetScaledValueFromIntOrPercent(&v, whole, up)
}
