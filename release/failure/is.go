package failure

import "errors"

// Is says whether err is, or wraps, a failure of that kind.
func Is(err error, kind Kind) bool {
	var typed *Error
	return errors.As(err, &typed) && typed.Kind == kind
}
