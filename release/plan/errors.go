package plan

import "slipway.io/slipway/release/strictyaml"

// FieldError says what is wrong with one field of a plan.
type FieldError = strictyaml.FieldError

// Errors are all that is wrong with a plan.
type Errors = strictyaml.Errors

// Warning says what is legal in a plan but probably not meant. Its fields are those of a FieldError.
type Warning FieldError

// String is place and reason in one line.
func (w Warning) String() string { return FieldError(w).Error() }
