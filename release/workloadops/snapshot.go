package workloadops

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
)

// Snapshot is one look at a workload: what operations and rollouts both decide by.
type Snapshot struct {
	// Claim is the value of AnnotationClaimedBy, "" when nobody holds the workload.
	Claim              string
	Generation         int64
	ObservedGeneration int64
	Deleting           bool
	// Replicas is the size that is asked for; of a DaemonSet the number of nodes that should run it.
	Replicas int32
	// Total, Ready, Available and Updated are the status's numbers of pods; Updated counts those of the newest template.
	Total     int32
	Ready     int32
	Available int32
	Updated   int32
	// Settings are the fields that may be borrowed, as they stand, by JSON Pointer; a field that is not set is absent.
	Settings map[string]json.RawMessage
	// Trouble is what the workload itself says about pods that cannot be created, "" when it says nothing.
	Trouble string
	// Pods are the workload's own pods; they are there only when PodsSeen.
	Pods     []Pod
	PodsSeen bool
	// HeldUp is the sentence on the PodDisruptionBudget that kept pods from being taken a moment ago, with its name; "" when none did.
	HeldUp string
	// Elapsed is how much of the deadline is used.
	Elapsed time.Duration
	// Still is how long the pods of a rollout have not come on.
	Still time.Duration
	Now   time.Time
}

// AskAgain is after how long a deletion that a PodDisruptionBudget holds up is tried again: its status is not watched.
const AskAgain = 2 * time.Second

// Lagging says that the workload's controller has not yet looked at the newest spec: its status speaks of an older one.
func (s Snapshot) Lagging() bool { return s.ObservedGeneration < s.Generation }

// CountPods is how many of the pods that were seen are so.
func (s Snapshot) CountPods(are func(Pod) bool) int32 {
	n := int32(0)
	for _, p := range s.Pods {
		if are(p) {
			n++
		}
	}
	return n
}

// Observed is a snapshot with what only operations decide by.
type Observed struct {
	Snapshot
	// Original is what the holder saved; nil when nothing is saved. OriginalProblem says why it could not be read.
	Original        *Original
	OriginalProblem string
	// Rollout is AnnotationRollout: an unfinished rollout has the workload's split in its hands, with or without a claim; "" when none has.
	Rollout string
	// Held says that this operation was already seen to hold the claim; Ending is what it was about to answer when it gave the claim back.
	Held   bool
	Ending *Ending
	// Terminating is the number of pods on their way out that Total leaves out; nil when the status does not say.
	Terminating *int32
	// UpdateType is UpdateRolling, UpdateRecreate or UpdateOnDelete.
	UpdateType   string
	Partition    int32
	Paused       bool
	OrderedReady bool
	FirstOrdinal int32
	// Remembered and LeftAt are the texts of AnnotationReplicas and AnnotationLeftAt, "" when absent.
	Remembered string
	LeftAt     string
	// Marker is what the pod template carries of the request's kind (Request.MarkerName): for a deploy, it is there only while the template is
	// wholly as the deploy made it.
	Marker string
	// Package is the SHA-256 of the code package that the template runs, "" for none.
	Package string
	// Revision is the template's: a Deployment's revision number, a StatefulSet's update revision, "" for a DaemonSet.
	Revision string
	// Template is the pod template as a record keeps it; nil where the operation changes none.
	Template *revision.Revision
	// Unkept says that the cluster doesn't keep the pod template that RESTORE is to bring back any more.
	Unkept bool
}

// Ending is the answer of an operation, kept by whoever runs it from before the last write on, so that it is not lost with the process. One
// of the two is set.
type Ending struct {
	Result  *Result        `json:"result,omitempty"`
	Failure *failure.Error `json:"failure,omitempty"`
}

// Original is what an operation saves on the workload (AnnotationOriginal), so that anybody can give back what was borrowed.
type Original struct {
	Operation plan.Operation `json:"operation"`
	// Begun says that the first change was made; until then the workload is only held.
	Begun   bool      `json:"begun"`
	BegunAt time.Time `json:"begunAt"`
	// Borrowed are the settings that were changed for the time of the operation.
	Borrowed []Borrowed `json:"borrowed,omitempty"`
	// Size is what START comes back to and what STOP remembers; Asked the size that the operation itself last asked for.
	Size  *int32 `json:"size,omitempty"`
	Asked *int32 `json:"asked,omitempty"`
	// FromReplicas, FromRevision and FromPackage are what the workload was before.
	FromReplicas *int32 `json:"fromReplicas,omitempty"`
	FromRevision string `json:"fromRevision,omitempty"`
	FromPackage  string `json:"fromPackage,omitempty"`
	// Before is the revision before an operation that changes the pod template.
	Before *revision.Revision `json:"before,omitempty"`
	// Target is the size that RESTORE comes to in the end, where that is another one.
	Target *int32 `json:"target,omitempty"`
	// ByDeletion says that RESTART deletes the pods itself instead of leaving that to the workload's controller.
	ByDeletion bool `json:"byDeletion,omitempty"`
	// Changed says whether the operation changed more than the claim.
	Changed bool `json:"changed,omitempty"`
}

// Borrowed is one setting changed for the time of an operation: its own value and the one lent to it, as JSON.
type Borrowed struct {
	Path string          `json:"path"`
	Own  json.RawMessage `json:"own"`
	Lent json.RawMessage `json:"lent"`
}

// ParseOriginal reads the annotation AnnotationOriginal of a workload of whose kind an operation may borrow these settings. What would give
// back another one was written by somebody else: it is refused.
func ParseOriginal(text string, borrowable []string) (*Original, error) {
	var o Original
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return nil, err
	}
	for _, b := range o.Borrowed {
		if !slices.Contains(borrowable, b.Path) {
			return nil, fmt.Errorf("somebody has added %s, which no operation borrows", b.Path)
		}
	}
	return &o, nil
}

// String is the annotation's value.
func (o Original) String() string {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err) // an Original is plain data that was JSON before: it always marshals
	}
	return string(raw)
}

// size reads a size that was written on the workload; ok is false when there is none that makes sense.
func size(text string) (n int32, ok bool) {
	v, err := strconv.ParseInt(text, 10, 64)
	return int32(v), err == nil && v >= 1 && v <= math.MaxInt32
}

// remembered is the size to come back to, when it still counts (see AnnotationLeftAt).
func (o Observed) remembered() (int32, bool) {
	n, ok := size(o.Remembered)
	if !ok || o.Replicas == 0 {
		return n, ok
	}
	left, ok := size(o.LeftAt)
	return n, ok && left == o.Replicas && n > left
}

// ready says that as many pods as asked for are ready and have been so for minReadySeconds.
func (o Observed) ready() bool { return !o.Lagging() && o.Available >= o.Replicas }

// terminating says that the status counts pods on their way out, and that there are some.
func (o Observed) terminating() bool { return o.Terminating != nil && *o.Terminating > 0 }

// PatienceLimit is how long a trouble that a pod rarely gets over by itself may last before the operation fails early; half the deadline
// when that is shorter.
const PatienceLimit = 60 * time.Second

// Pod is what a decision goes by of one pod.
type Pod struct {
	Name string
	UID  string
	// Version is the pod's resourceVersion: a pod is deleted only as it was seen, so that a late decision of an abandoned attempt does no
	// harm.
	Version string
	// Revision is the hash or name of the pod's revision, and Marker the one of the template that it was made from (Request.MarkerName).
	Revision string
	Marker   string
	// Ordinal is a StatefulSet pod's number, -1 for others.
	Ordinal int32
	// RolloutID and Batch are the labels by which a release numbers the pods that it has brought; "" without them.
	RolloutID, Batch string
	// Ready says that the pod is ready; Available that it has been so for the workload's minReadySeconds.
	Ready     bool
	Available bool
	// Deleting says that the pod is on its way out; Finished that it has run to its end and never runs again (phase Succeeded or Failed).
	Deleting bool
	Finished bool
	// Since is when the pod stopped being ready, or was made.
	Since time.Time
	// Reason and Message are the pod's own word on why it is not ready: "ImagePullBackOff", `Back-off pulling image "x:bad"`.
	Reason  string
	Message string
}

// Alive says that the pod is neither on its way out nor at its end.
func (p Pod) Alive() bool { return !p.Deleting && !p.Finished }

// trouble says how a pod's reason is judged.
type trouble int

const (
	noTrouble trouble = iota
	// unclear: it may pass at any time; judged at the deadline only.
	unclear
	// lasting: it rarely passes by itself; fails the operation once it has lasted (PatienceLimit).
	lasting
	// hopeless: it cannot pass; fails the operation at once.
	hopeless
)

var judgement = map[string]trouble{
	"InvalidImageName":           hopeless,
	"ImagePullBackOff":           lasting,
	"ErrImagePull":               lasting,
	"ErrImageNeverPull":          lasting,
	"ImageInspectError":          lasting,
	"RegistryUnavailable":        lasting,
	"CrashLoopBackOff":           lasting,
	"CreateContainerConfigError": lasting,
	"CreateContainerError":       lasting,
	"RunContainerError":          lasting,
	"StartError":                 lasting,
}

func (p Pod) trouble() trouble {
	if p.Ready || !p.Alive() {
		return noTrouble
	}
	if t, ok := judgement[p.Reason]; ok {
		return t
	}
	return unclear
}

// Stuck says that the pod is in trouble that it rarely gets over by itself (PatienceLimit).
func (p Pod) Stuck() bool { return p.trouble() >= lasting }

// PatienceLeft is how long a pod that is stuck may still be so; nothing is left to a hopeless one. Trouble from before the job counts from
// its begin.
func (s Snapshot) PatienceLeft(p Pod, deadline time.Duration) time.Duration {
	if p.trouble() == hopeless {
		return 0
	}
	patience := min(deadline/2, PatienceLimit)
	return min(patience, patience-min(s.Elapsed, s.Now.Sub(p.Since)))
}

// WorstPod is the word of the pod that explains most, by rank: "pod order-abc: ImagePullBackOff: Back-off pulling"; "" when none has one.
func WorstPod(pods []Pod, rank func(Pod) int) string {
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
