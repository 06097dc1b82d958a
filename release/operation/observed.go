package operation

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workload"
)

// Observed is a snapshot with the inputs that only operations need.
type Observed struct {
	workload.Snapshot
	// Original is what the holder saved; nil if nothing is saved. OriginalProblem explains why it could not be read.
	Original        *Original
	OriginalProblem string
	// Rollout is the value of AnnotationRollout: an unfinished rollout controls the workload's split, with or without a
	// claim; "" if there is none.
	Rollout string
	// Held means that this operation has already held the claim. Ending is the result that it was about to return when
	// it released the claim.
	Held   bool
	Ending *workload.Ending
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

// Original is what an operation saves on the workload (AnnotationOriginal), so that any later operation can restore
// what it borrowed.
type Original struct {
	Operation plan.Operation `json:"operation"`
	// Begun means that the first change was made; until then the workload is only claimed.
	Begun   bool      `json:"begun"`
	BegunAt time.Time `json:"begunAt"`
	// Borrowed are the settings that are changed during the operation.
	Borrowed []workload.Borrowed `json:"borrowed,omitempty"`
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
