package serving

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationTurn is whose turn it was when what an object is told to be was written last: whoever had its turn before leaves it alone.
const AnnotationTurn = "slipway.io/serving-turn"

// Turn is a place in the order of everything that is ever written of one serving. An attempt that was frozen and wakes long after the next step has begun,
// of its own operation or of a later one, is told by it that it is over.
type Turn struct {
	// Generation and Started are the operation's: its generation, and when its run began, in milliseconds of Unix time by the clock of Temporal. One generation
	// may have several operations, each begun when the one before was over.
	Generation int64
	Started    int64
	// Back comes after the step forward of the same operation.
	Back bool
}

// Turn is when the step has its turn.
func (r PartyRequest) Turn() Turn {
	return Turn{Generation: r.Generation, Started: r.Started, Back: r.Source.Previous}
}

// String is the turn as AnnotationTurn has it.
func (t Turn) String() string {
	step := 0
	if t.Back {
		step = 1
	}
	return fmt.Sprintf("%d.%d.%d", t.Generation, t.Started, step)
}

// TurnOf is the turn at which an object was written last; the zero Turn, which is before all, when it has none.
func TurnOf(object metav1.Object) Turn {
	var t Turn
	step := 0
	if _, err := fmt.Sscanf(object.GetAnnotations()[AnnotationTurn], "%d.%d.%d", &t.Generation, &t.Started, &step); err != nil {
		return Turn{}
	}
	t.Back = step == 1
	return t
}

// After says that a turn comes later than another one.
func (t Turn) After(other Turn) bool {
	if c := cmp.Or(cmp.Compare(t.Generation, other.Generation), cmp.Compare(t.Started, other.Started)); c != 0 {
		return c > 0
	}
	return t.Back && !other.Back
}
