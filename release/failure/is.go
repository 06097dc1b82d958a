package failure

import "errors"

// Is says whether err is, or wraps, a failure of that kind.
func Is(err error, kind Kind) bool {
	var typed *Error
	return errors.As(err, &typed) && typed.Kind == kind
}

// Ignore is err, unless that is a failure of one of these kinds.
func Ignore(err error, kinds ...Kind) error {
	for _, kind := range kinds {
		if Is(err, kind) {
			return nil
		}
	}
	return err
}
