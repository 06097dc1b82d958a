// Package v1alpha1 holds the objects of API group slipway.io that live in the engine's home cluster.
// +kubebuilder:object:generate=true
// +groupName=slipway.io
package v1alpha1

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// GroupVersion is the API group and version of this package's objects.
var GroupVersion = schema.GroupVersion{Group: "slipway.io", Version: "v1alpha1"}

// Labels of a ReleaseRecord.
const (
	// LabelKind is the kind of release: "task", "rollout" or "serving".
	LabelKind = "slipway.io/kind"
	// LabelSubject identifies what was released: the plan's name, or the SubjectLabel of a rollout or a serving.
	LabelSubject = "slipway.io/subject"
	// LabelIdempotencyKey is the digest of the Idempotency-Key that the release was started with.
	LabelIdempotencyKey = "slipway.io/idempotency-key"
	// LabelState is the final state of a completed record, so that records can be selected without reading their
	// bodies.
	LabelState = "slipway.io/state"
	// LabelVia is the channel (API, CLI, …) through which the release was started.
	LabelVia = "slipway.io/via"
	// LabelRollBackFrozen marks the record of a rollout that releases nothing and only restores what an earlier one
	// left frozen.
	LabelRollBackFrozen = "slipway.io/bring-home"
	// LabelRevision is the number of a rollout's release in the history of its name.
	LabelRevision = "slipway.io/revision"
	// LabelTask is the task of a plan to which a rollout belongs.
	LabelTask = "slipway.io/task"
)

// ReleaseService is a catalogue entry; its name is the service's ID.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=rsvc
// +kubebuilder:printcolumn:name="Display name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ReleaseService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec catalog.Service `json:"spec"`
}

// DeployPlan is a deployment plan.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=dplan
// +kubebuilder:printcolumn:name="Comment",type=string,JSONPath=`.spec.comment`
// +kubebuilder:printcolumn:name="Task",type=string,JSONPath=`.status.task`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DeployPlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   plan.Document    `json:"spec"`
	Status DeployPlanStatus `json:"status,omitempty"`
}

// DeployPlanStatus is the status that the engine writes to a plan.
type DeployPlanStatus struct {
	// Task is the ID of the newest task of the plan. A plan has at most one running task: to execute the plan, the
	// engine writes the new task's ID here before the task starts, with the object's resourceVersion as precondition.
	Task string `json:"task,omitempty"`
	// TaskClaimedAt is when Task was written.
	TaskClaimedAt *metav1.Time `json:"taskClaimedAt,omitempty"`
}

// ReleaseRecord is the permanent record of one release: its request, written at its start, and its result, written at
// its end. Temporal deletes closed workflows after their retention; records stay.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=rrec
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Subject",type=string,JSONPath=`.spec.subject`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.outcome.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ReleaseRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ReleaseRecordSpec `json:"spec"`
	// Outcome is absent while the release runs.
	Outcome *ReleaseOutcome `json:"outcome,omitempty"`
}

// ReleaseRecordSpec describes what a release was asked to do. Only InputDigest changes.
type ReleaseRecordSpec struct {
	// Kind is the kind of release: "task", "rollout" or "serving".
	Kind string `json:"kind"`
	// Subject is what is released: the plan's name, a rollout's "<party>/<namespace>/<name>", or a serving's ID.
	Subject string `json:"subject"`
	// Comment is the plan's comment, or a short description of a rollout or a serving's operation.
	Comment string `json:"comment,omitempty"`
	// Workload is the workload that a rollout releases, Style its style.
	Workload *catalog.WorkloadRef `json:"workload,omitempty"`
	Style    string               `json:"style,omitempty"`
	// RerunOf is the task that a task repeats, ReverseOf the one that it reverts.
	RerunOf   string `json:"rerunOf,omitempty"`
	ReverseOf string `json:"reverseOf,omitempty"`
	// WorkflowID is the Temporal workflow that runs the release.
	WorkflowID string `json:"workflowId"`
	// CreatedAt is when the release was accepted.
	CreatedAt instant.Micro `json:"createdAt"`
	// Actor and Reason are who started the release and why, as reported by the caller.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// RequestDigest is the SHA-256 of the request's body, to detect that one Idempotency-Key is used for two requests.
	RequestDigest string `json:"requestDigest,omitempty"`
	// InputDigest is the digest of the input of the release's workflow: a workflow with another input does nothing. It
	// is written again if a repeat of the request starts the workflow with another input. Absent for a serving, whose
	// record its workflow writes, and for a rollout of a task, which the task's workflow starts.
	InputDigest string `json:"inputDigest,omitempty"`
	// Snapshot is the input of the release as gzip-compressed JSON (plan.Snapshot for a task, rollout.Spec for a
	// rollout, serving.ReleaseRequest for a serving).
	Snapshot []byte `json:"snapshot"`
}

// ReleaseOutcome is the result of a release.
type ReleaseOutcome struct {
	// State is the final state.
	State      string         `json:"state"`
	Reason     string         `json:"reason,omitempty"`
	StartedAt  *instant.Micro `json:"startedAt,omitempty"`
	FinishedAt *instant.Micro `json:"finishedAt,omitempty"`
	// RunID is the ID of the Temporal run.
	RunID string `json:"runId,omitempty"`
	// Packages are the SHA-256 digests of the code packages that the release has deployed or removed: a store keeps
	// them as long as the record.
	Packages []string `json:"packages,omitempty"`
	// Services counts the services of a task and how they ended; absent for other kinds, and for tasks of earlier
	// versions.
	Services *plan.ServiceCounts `json:"services,omitempty"`
	// Body is the complete final object as gzip-compressed JSON (plan.Task for a task, rollout.Status for a rollout,
	// serving.Release for a serving).
	Body []byte `json:"body"`
}

// Party is an organisation or a cluster that releases together with others.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
type Party struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PartySpec `json:"spec"`
}

// PartySpec specifies how to reach a party.
type PartySpec struct {
	// Queue is the Temporal task queue that the party's worker polls; absent: slipway.party.<name>.
	Queue string `json:"queue,omitempty"`
	// Namespace is the party's default namespace.
	Namespace string `json:"namespace,omitempty"`
	// Labels are for people and selectors.
	Labels map[string]string `json:"labels,omitempty"`
}

//go:generate controller-gen object paths=./... paths=../catalog paths=../instant paths=../plan paths=../window
//go:generate controller-gen crd paths=. output:crd:dir=../../deploy/crds

// AnnotationID holds the ID of an object whose name cannot be its ID.
const AnnotationID = "slipway.io/id"

// ObjectName returns the name of a service's or plan's object: its ID. Kubernetes names have no capital letters: an ID
// with capitals is lower-cased and gets a digest, and AnnotationID keeps its spelling.
func ObjectName(id string) string {
	lower := strings.ToLower(id)
	if lower == id {
		return id
	}
	return lower + "-" + digest.Of(id)[:10]
}

// IDOf returns the ID of a service or plan; it reverses ObjectName.
func IDOf(object metav1.Object) string {
	if id := object.GetAnnotations()[AnnotationID]; id != "" && ObjectName(id) == object.GetName() {
		return id
	}
	return object.GetName()
}

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
	UID                              types.UID
	Generation                       int64
	// Checked is the value of author.AnnotationChecked.
	Checked string
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

const (
	// KindTask is the kind of one execution of a plan.
	KindTask = "task"
	// KindRollout is the kind of one release of one workload.
	KindRollout = "rollout"
	// KindServing is the kind of one operation on a serving.
	KindServing = "serving"
	// KindKey is the kind of what remains of a pruned record: its Idempotency-Key still refers to its task, which is no
	// longer shown.
	KindKey = "key"
)

// KeyLifetime is how long an Idempotency-Key refers to its task.
const KeyLifetime = 30 * 24 * time.Hour

// maxBodyBytes is 64 MiB, far more than the body of a task of 1,000 items.
const maxBodyBytes = 64 << 20

// SubjectLabel returns the value of LabelSubject for a subject that is not a legal label, such as
// "<party>/<namespace>/<name>": its digest.
func SubjectLabel(subject string) string { return digest.Of(subject)[:40] }

// RolloutSubject returns the subject of a rollout's records: all releases under one name share it.
func RolloutSubject(party, namespace, name string) string {
	return cmp.Or(party, catalog.DefaultParty) + "/" + namespace + "/" + name
}

// RecordName returns the name of the ReleaseRecord of a release: "task-<task ID>", "serving-<run ID>".
func RecordName(kind, id string) string { return kind + "-" + id }

// RevisionOf returns the number of a release in the history of its name; 0: none. It needs only the metadata of the
// record.
func RevisionOf(record metav1.Object) int64 {
	n, _ := strconv.ParseInt(record.GetLabels()[LabelRevision], 10, 64)
	return n
}

// compressors are reused: a gzip writer takes more than 0.5 MiB, a hundred times what it compresses here.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// EncodeBody returns a value as gzip-compressed JSON, with the same bytes for the same value.
func EncodeBody(value any) ([]byte, error) {
	var buffer bytes.Buffer
	zipped := compressors.Get().(*gzip.Writer)
	defer compressors.Put(zipped)
	zipped.Reset(&buffer)
	if err := errors.Join(json.NewEncoder(zipped).Encode(value), zipped.Close()); err != nil {
		return nil, fmt.Errorf("cannot encode the body as compressed JSON: %w", err)
	}
	return buffer.Bytes(), nil
}

// DecodeBody decodes the body of a record, written by EncodeBody, into the value that into points to.
func DecodeBody(body []byte, into any) error {
	if len(body) == 0 {
		return errors.New("the record has no body")
	}
	if err := Decompress(body, into, maxBodyBytes); err != nil {
		return fmt.Errorf("cannot read the body of the record: %w", err)
	}
	return nil
}

// Decompress decodes what EncodeBody wrote; it fails if that has more than most bytes after decompression.
func Decompress(body []byte, into any, most int64) error {
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(io.LimitReader(zipped, most+1)) // reads to the end, which verifies the checksum
	switch {
	case err != nil:
		return err
	case int64(len(plain)) > most:
		return fmt.Errorf("it has more than %d bytes", most)
	}
	return json.Unmarshal(plain, into)
}
