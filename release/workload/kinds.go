// Package workload is what the operations of plans and rollouts share: the table of the kinds of workload, from which
// all other code reads names and capabilities of a kind; the observed state of a workload and its pods; claims; and the
// next action that a decision returns.
package workload

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of workload: its names, and what its controller does.
type Kind struct {
	// Resource is in the version that is watched; users may name OtherVersions too.
	Resource      schema.GroupVersionResource
	OtherVersions []string
	Kind          string
	// Title is the name in texts; "": Kind. Short is the short name, as in kubectl.
	Title, Short string
	Controller
}

// Controller is what kinds with the same behaviour have in common.
type Controller struct {
	// Styles are the styles of its rollouts. Only a Deployment has StyleCanary: the extra workload is one.
	Styles []Style
	Means  Means
	Hold
	// Share is true if the partition may be a share of the pods; Ordinals, if pods are replaced by their ordinals.
	Share, Ordinals bool
	// PerNode is true if the workload has a pod on every node; otherwise it has replicas.
	PerNode bool
	// RevisionLabel is the label with which pods name their revision.
	RevisionLabel string
	Revisions     Revisions
	// TemplateLabel is a label that the controller adds to the pod templates of its revisions, and ignores when it
	// compares templates; "" if it adds none.
	TemplateLabel string
	// UpdatedField is the field of the status that counts the new pods that serve, or else all new pods.
	UpdatedField string
}

// Style is how new pods are added to the old ones.
type Style string

// The three styles.
const (
	// StylePartition replaces pods of the workload itself, step by step.
	StylePartition Style = "partition"
	// StyleCanary runs the new version in an extra workload next to the stable one.
	StyleCanary Style = "canary"
	// StyleBlueGreen adds new pods and keeps every old one until the end.
	StyleBlueGreen Style = "blueGreen"
)

// Means is what a rollout changes so that as many pods are replaced as a step requests.
type Means string

// The three means.
const (
	Limits    Means = "limits"    // maxSurge and maxUnavailable, together with a pause
	Partition Means = "partition" // how many pods the controller keeps at the old version
	Deletion  Means = "deletion"  // old pods, one by one; the controller replaces none by itself
)

// Hold is the field that keeps the controller from moving pods to a changed template, as a JSON Pointer, and its value
// that holds.
type Hold struct {
	Pointer string
	Value   any
}

// Revisions is how the revisions of a workload are kept, and how the value of RevisionLabel follows from one.
type Revisions string

// The ways to keep revisions. All but the first are ControllerRevisions.
const (
	ReplicaSets Revisions = "ReplicaSets" // have the label themselves
	Labelled    Revisions = "Labelled"    // have the label themselves
	Named       Revisions = "Named"       // their name is the value
	Suffixed    Revisions = "Suffixed"    // their name ends with the value
)

// Supports reports whether workloads can be rolled out in a style.
func (c Controller) Supports(style Style) bool { return slices.Contains(c.Styles, style) }

// Rolling reports whether the field exists only with the update type RollingUpdate; with another type the controller
// moves no pod by itself.
func (h Hold) Rolling() bool { return strings.Contains(h.Pointer, "/rollingUpdate/") }

// RevisionOf returns the value of RevisionLabel for the pods of a revision.
func (c Controller) RevisionOf(revision metav1.Object) string {
	switch c.Revisions {
	case Named:
		return revision.GetName()
	case Suffixed:
		return revision.GetName()[strings.LastIndexByte(revision.GetName(), '-')+1:]
	}
	return revision.GetLabels()[c.RevisionLabel]
}

// Counts are the pods of a workload, as its spec and status count them. Size is the desired number.
type Counts struct{ Size, Total, Ready, Available, Updated int32 }

// Count reads the counts of a workload. A missing size means 1 (Kubernetes API), unless it is the number of nodes.
func (c Controller) Count(object map[string]any) Counts {
	status := func(field string) int32 {
		n, _, _ := unstructured.NestedInt64(object, "status", field)
		return int32(n)
	}
	if c.PerNode {
		return Counts{status("desiredNumberScheduled"), status("currentNumberScheduled"), status("numberReady"),
			status("numberAvailable"), status("updatedNumberScheduled")}
	}
	size, there, _ := unstructured.NestedInt64(object, "spec", "replicas")
	if !there {
		size = 1
	}
	return Counts{int32(size), status("replicas"), status("readyReplicas"), status("availableReplicas"),
		status("updatedReplicas")}
}

const (
	// heldPartition holds every pod. A partition equal to the size would give the new template to ordinals that scaling
	// adds.
	heldPartition = int64(2147483647)
	pathPartition = "/spec/updateStrategy/rollingUpdate/partition"

	labelHash, labelRevision = appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey
)

var (
	apps       = appsv1.SchemeGroupVersion
	kruise     = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1alpha1"}
	kruiseBeta = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1beta1"}

	inPlace = []Style{StylePartition}

	deployment = Controller{Styles: []Style{StylePartition, StyleCanary, StyleBlueGreen}, Means: Limits,
		Hold: Hold{"/spec/paused", true}, RevisionLabel: labelHash, Revisions: ReplicaSets,
		TemplateLabel: labelHash, UpdatedField: "updatedReplicas"}
	statefulSet = Controller{Styles: inPlace, Means: Partition, Hold: Hold{pathPartition, heldPartition},
		Ordinals: true, RevisionLabel: labelRevision, Revisions: Named, UpdatedField: "updatedAvailableReplicas"}
	daemonSet = Controller{Styles: inPlace, Means: Deletion, Hold: Hold{"/spec/updateStrategy/type", "OnDelete"},
		PerNode: true, RevisionLabel: labelRevision, Revisions: Labelled, UpdatedField: "updatedNumberScheduled"}
	cloneSet = Controller{Styles: []Style{StylePartition, StyleBlueGreen}, Means: Partition,
		Hold: Hold{"/spec/updateStrategy/partition", "100%"}, Share: true, RevisionLabel: labelHash, Revisions: Suffixed,
		UpdatedField: "updatedReadyReplicas"}
	advancedDaemonSet = Controller{Styles: inPlace, Means: Partition, Hold: Hold{pathPartition, heldPartition},
		PerNode: true, RevisionLabel: labelRevision, Revisions: Labelled, UpdatedField: "updatedNumberScheduled"}
)

// Kinds are all kinds; only tests change them. To support another kind with the behaviour of one of these, add a line
// here, permissions to deploy/rbac (rollouts.yaml for the server; for the parties a file like party-kruise.yaml, which
// the chart's templates/rbac.yaml and values name), and the kind to the tables in docs; then run `make generate`. Plans
// act on the kinds of apps/v1 only.
var Kinds = []Kind{
	{Resource: apps.WithResource("deployments"), Kind: "Deployment", Short: "deploy", Controller: deployment},
	{Resource: apps.WithResource("statefulsets"), Kind: "StatefulSet", Short: "sts", Controller: statefulSet},
	{Resource: apps.WithResource("daemonsets"), Kind: "DaemonSet", Short: "ds", Controller: daemonSet},
	{Resource: kruise.WithResource("clonesets"), Kind: "CloneSet", Short: "clone", Controller: cloneSet},
	{Resource: kruiseBeta.WithResource("statefulsets"), OtherVersions: []string{"v1alpha1"}, Kind: "StatefulSet",
		Title: "Advanced StatefulSet", Short: "asts", Controller: statefulSet},
	{Resource: kruise.WithResource("daemonsets"), Kind: "DaemonSet", Title: "Advanced DaemonSet", Short: "ads",
		Controller: advancedDaemonSet},
}
