package serving

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FencingToken orders all writes to the objects of one serving: it stops an attempt that was suspended and resumes
// after a later step has written.
type FencingToken struct {
	// Generation is that of the operation, Started the time when it began, in Unix milliseconds of Temporal's clock. A
	// generation may have several operations.
	Generation, Started int64
	// Rollback is 1 for the rollback of an operation, which comes after its step forward.
	Rollback int
}

// Token returns the fencing token of the step.
func (r PartyRequest) Token() FencingToken {
	t := FencingToken{Generation: r.Generation, Started: r.Started}
	if r.Source.Previous {
		t.Rollback = 1
	}
	return t
}

// String returns the token in the format of AnnotationToken.
func (t FencingToken) String() string {
	return fmt.Sprintf("%d.%d.%d", t.Generation, t.Started, t.Rollback)
}

// TokenOf returns the fencing token with which an object was last written; if it has none, the zero token, which
// precedes all others.
func TokenOf(object metav1.Object) FencingToken {
	var t FencingToken
	if _, err := fmt.Sscanf(object.GetAnnotations()[AnnotationToken], "%d.%d.%d", &t.Generation, &t.Started,
		&t.Rollback); err != nil {
		return FencingToken{}
	}
	return t
}

// After reports whether the token is later than other.
func (t FencingToken) After(other FencingToken) bool {
	return cmp.Or(cmp.Compare(t.Generation, other.Generation), cmp.Compare(t.Started, other.Started),
		cmp.Compare(t.Rollback, other.Rollback)) > 0
}
