package serving

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationToken is the fencing token of the step that wrote an object last: a step with an earlier token leaves it alone.
const AnnotationToken = "slipway.io/serving-token"

// FencingToken is a place in the order of everything that is ever written of one serving. An attempt that was frozen and wakes long after the next step has
// begun, of its own operation or of a later one, learns from it that it is over.
type FencingToken struct {
	// Generation and Started are the operation's: its generation, and when its run began, in milliseconds of Unix time by the clock of Temporal. One generation
	// may have several operations, each begun when the one before was over.
	Generation int64
	Started    int64
	// Back comes after the step forward of the same operation.
	Back bool
}

// Token is the fencing token of the step.
func (r PartyRequest) Token() FencingToken {
	return FencingToken{Generation: r.Generation, Started: r.Started, Back: r.Source.Previous}
}

// String is the token as AnnotationToken has it.
func (t FencingToken) String() string {
	step := 0
	if t.Back {
		step = 1
	}
	return fmt.Sprintf("%d.%d.%d", t.Generation, t.Started, step)
}

// TokenOf is the fencing token with which an object was written last; the zero token, which is before all others, when it has none.
func TokenOf(object metav1.Object) FencingToken {
	var t FencingToken
	step := 0
	if _, err := fmt.Sscanf(object.GetAnnotations()[AnnotationToken], "%d.%d.%d", &t.Generation, &t.Started, &step); err != nil {
		return FencingToken{}
	}
	t.Back = step == 1
	return t
}

// After says that a token is later than another one.
func (t FencingToken) After(other FencingToken) bool {
	if c := cmp.Or(cmp.Compare(t.Generation, other.Generation), cmp.Compare(t.Started, other.Started)); c != 0 {
		return c > 0
	}
	return t.Back && !other.Back
}
