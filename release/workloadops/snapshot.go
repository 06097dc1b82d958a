package workloadops

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
)

// Snapshot is the observed state of a workload: the input of decisions of both operations and rollouts.
type Snapshot struct {
	// Claim is the value of AnnotationClaimedBy, "" if no release holds the workload.
	Claim              string
	Generation         int64
	ObservedGeneration int64
	Deleting           bool
	// Replicas is the requested size; of a DaemonSet the number of nodes that should run it.
	Replicas int32
	// Total, Ready, Available and Updated are the numbers of pods in the status; Updated counts those of the newest
	// template.
	Total     int32
	Ready     int32
	Available int32
	Updated   int32
	// Settings are the current values of the fields that may be borrowed, by JSON Pointer; a field that is not set is
	// absent.
	Settings map[string]json.RawMessage
	// CreationProblem is the reason in the workload's status why pods cannot be created, "" if there is none.
	CreationProblem string
	// Pods are the workload's own pods; they are set only if PodsSeen.
	Pods     []Pod
	PodsSeen bool
	// BlockedByBudget is a sentence that names the PodDisruptionBudget that has just refused an eviction; "" if none
	// has.
	BlockedByBudget string
	// Elapsed is how much of the deadline is used.
	Elapsed time.Duration
	// StalledFor is how long the numbers of a rollout's pods have not changed.
	StalledFor time.Duration
	Now        time.Time
}

// BudgetRetryInterval is the time between two attempts of an eviction that a PodDisruptionBudget refuses: budgets are
// not watched.
const BudgetRetryInterval = 2 * time.Second

// Lagging reports whether the workload's controller has not yet observed the newest spec, so that the status describes
// an older one.
func (s Snapshot) Lagging() bool { return s.ObservedGeneration < s.Generation }

// CountPods returns how many of the pods match.
func (s Snapshot) CountPods(matches func(Pod) bool) int32 {
	n := int32(0)
	for _, p := range s.Pods {
		if matches(p) {
			n++
		}
	}
	return n
}

// Observed is a snapshot with the inputs that only operations need.
type Observed struct {
	Snapshot
	// Original is what the holder saved; nil if nothing is saved. OriginalProblem explains why it could not be read.
	Original        *Original
	OriginalProblem string
	// Rollout is the value of AnnotationRollout: an unfinished rollout controls the workload's split, with or without a
	// claim; "" if there is none.
	Rollout string
	// Held means that this operation has already held the claim. Ending is the result that it was about to return when
	// it released the claim.
	Held   bool
	Ending *Ending
	// Terminating is the number of terminating pods, which Total does not include; nil if the status has no such
	// number.
	Terminating *int32
	// UpdateType is UpdateRolling, UpdateRecreate or UpdateOnDelete.
	UpdateType   string
	Partition    int32
	Paused       bool
	OrderedReady bool
	FirstOrdinal int32
	// Remembered and LeftAt are the values of AnnotationReplicas and AnnotationLeftAt, "" if absent.
	Remembered string
	LeftAt     string
	// Marker is the pod template's marker of the request's kind (Request.MarkerName). For a deploy it is set only while
	// the template is unchanged since the deploy.
	Marker string
	// Package is the SHA-256 of the template's code package, "" for none.
	Package string
	// Revision is the template's: a Deployment's revision number, a StatefulSet's update revision, "" for a DaemonSet.
	Revision string
	// Template is the pod template in the form that records keep; nil if the operation does not change it.
	Template *revision.Revision
	// TemplateMissing means that the cluster no longer keeps the pod template that RESTORE should restore.
	TemplateMissing bool
}

// Ending is the result of an operation. The activity stores it in its heartbeat before the last write, so that it
// survives a crash. One of the fields is set.
type Ending struct {
	Result  *Result        `json:"result,omitempty"`
	Failure *failure.Error `json:"failure,omitempty"`
}

// Original is what an operation saves on the workload (AnnotationOriginal), so that any later operation can restore
// what it borrowed.
type Original struct {
	Operation plan.Operation `json:"operation"`
	// Begun means that the first change was made; until then the workload is only claimed.
	Begun   bool      `json:"begun"`
	BegunAt time.Time `json:"begunAt"`
	// Borrowed are the settings that are changed during the operation.
	Borrowed []Borrowed `json:"borrowed,omitempty"`
	// Size is the size that START restores and STOP remembers. Requested is the size that the operation last set.
	Size      *int32 `json:"size,omitempty"`
	Requested *int32 `json:"asked,omitempty"`
	// Change is what the workload was before the operation.
	revision.Change
	// Target is the final size of RESTORE, if the size changes.
	Target *int32 `json:"target,omitempty"`
	// ByDeletion means that the operation deletes the pods itself instead of relying on the workload's controller.
	ByDeletion bool `json:"byDeletion,omitempty"`
	// Changed is true if the operation changed more than the claim.
	Changed bool `json:"changed,omitempty"`
}

// Borrowed is one setting that is changed during an operation: its own value and the temporary one, as JSON.
type Borrowed struct {
	Path      string          `json:"path"`
	Own       json.RawMessage `json:"own"`
	Temporary json.RawMessage `json:"lent"`
}

// ParseOriginal parses the annotation AnnotationOriginal. borrowable are the settings that an operation may borrow from
// the workload's kind. An annotation with any other setting was written by another client and is refused.
func ParseOriginal(text string, borrowable []string) (*Original, error) {
	var o Original
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return nil, err
	}
	for _, b := range o.Borrowed {
		if !slices.Contains(borrowable, b.Path) {
			return nil, fmt.Errorf("another client added %s, which no operation borrows", b.Path)
		}
	}
	return &o, nil
}

// String returns the annotation's value.
func (o Original) String() string { return string(jsonpatch.Encode(o)) }

// parseSize parses a size from an annotation; ok is false if it is not a positive int32.
func parseSize(text string) (n int32, ok bool) {
	v, err := strconv.ParseInt(text, 10, 64)
	return int32(v), err == nil && v >= 1 && v <= math.MaxInt32
}

// rememberedSize returns the size that START should restore, if it is still valid (see AnnotationLeftAt).
func (o Observed) rememberedSize() (int32, bool) {
	n, ok := parseSize(o.Remembered)
	if !ok || o.Replicas == 0 {
		return n, ok
	}
	left, ok := parseSize(o.LeftAt)
	return n, ok && left == o.Replicas && n > left
}

// ready reports whether the requested number of pods is available (ready for minReadySeconds).
func (o Observed) ready() bool { return !o.Lagging() && o.Available >= o.Replicas }

// terminating reports whether the status counts terminating pods and there are some.
func (o Observed) terminating() bool { return o.Terminating != nil && *o.Terminating > 0 }

// PatienceLimit is how long a pod may have a problem that rarely passes by itself, before the operation fails early. It
// is half the deadline if that is shorter.
const PatienceLimit = 60 * time.Second

// Pod is the state of one pod that decisions depend on.
type Pod struct {
	Name string
	UID  string
	// Version is the pod's resourceVersion: a pod is deleted only at the version that was read, so that a late decision
	// of an abandoned attempt does no harm.
	Version string
	// Revision is the hash or name of the pod's revision. Marker is the marker of the template that it was created from
	// (Request.MarkerName).
	Revision string
	Marker   string
	// Ordinal is a StatefulSet pod's number, -1 for others.
	Ordinal int32
	// RolloutID and Batch are the labels with which a release marks the pods of its batches; "" without them.
	RolloutID, Batch string
	// Ready means that the pod is ready; Available, that it has been ready for the workload's minReadySeconds.
	Ready     bool
	Available bool
	// Deleting means that the pod is terminating; Finished, that it never runs again (phase Succeeded or Failed).
	Deleting bool
	Finished bool
	// Since is when the pod stopped being ready, or was created.
	Since time.Time
	// Reason and Message explain why the pod is not ready, from its status: "ImagePullBackOff", `Back-off pulling image
	// "x:bad"`.
	Reason  string
	Message string
}

// Alive reports whether the pod is neither terminating nor finished.
func (p Pod) Alive() bool { return !p.Deleting && !p.Finished }

// severity rates a pod's reason for not being ready.
type severity int

const (
	noProblem severity = iota
	// unclear: it may pass at any time; it fails the operation only at the deadline.
	unclear
	// persistent: it rarely passes by itself; it fails the operation after PatienceLimit.
	persistent
	// fatal: it cannot pass; it fails the operation at once.
	fatal
)

var severities = map[string]severity{
	"InvalidImageName":           fatal,
	"ImagePullBackOff":           persistent,
	"ErrImagePull":               persistent,
	"ErrImageNeverPull":          persistent,
	"ImageInspectError":          persistent,
	"RegistryUnavailable":        persistent,
	"CrashLoopBackOff":           persistent,
	"CreateContainerConfigError": persistent,
	"CreateContainerError":       persistent,
	"RunContainerError":          persistent,
	"StartError":                 persistent,
}

func (p Pod) severity() severity {
	if p.Ready || !p.Alive() {
		return noProblem
	}
	if t, ok := severities[p.Reason]; ok {
		return t
	}
	return unclear
}

// Stuck reports whether the pod has a problem that rarely passes by itself (PatienceLimit).
func (p Pod) Stuck() bool { return p.severity() >= persistent }

// PatienceLeft returns how long a stuck pod may remain stuck; 0 if its problem cannot pass. A problem from before the
// job counts from the start of the job.
func (s Snapshot) PatienceLeft(p Pod, deadline time.Duration) time.Duration {
	if p.severity() == fatal {
		return 0
	}
	patience := min(deadline/2, PatienceLimit)
	return min(patience, patience-min(s.Elapsed, s.Now.Sub(p.Since)))
}

// WorstPodReason returns the reason of the pod with the highest rank: "pod order-abc: ImagePullBackOff: Back-off
// pulling"; "" if no pod has one.
func WorstPodReason(pods []Pod, rank func(Pod) int) string {
	var worst *Pod
	for i := range pods {
		p := &pods[i]
		if p.Reason != "" && (!p.Ready || p.Deleting) && !p.Finished && (worst == nil || rank(*p) > rank(*worst)) {
			worst = p
		}
	}
	if worst == nil {
		return ""
	}
	text := "pod " + worst.Name + ": " + worst.Reason
	if worst.Message != "" {
		text += ": " + worst.Message
	}
	return text
}
