package attempt

import (
	"encoding/json"
	"errors"

	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/failure"
)

// maxMessage is the longest message, in bytes, that is given to Temporal, whose server cuts what it keeps of a failed attempt at 4 KiB.
const maxMessage = 2000

// ApplicationError turns a failure.Error into Temporal's ApplicationError, of which workflows read the type, which is the failure's kind,
// and the details, which are failure.Details. Only a retryable kind is tried again, after RetryAfter, and counts as benign. Any other error
// is returned as it is, so that the caller's retry policy decides.
//
// What it returns must be returned from the activity as it is: the SDK does not look into a wrapped ApplicationError.
func ApplicationError(err error) error {
	var f *failure.Error
	if !errors.As(err, &f) {
		return err
	}
	options := temporal.ApplicationErrorOptions{
		NonRetryable:   !f.Kind.Retryable(),
		NextRetryDelay: f.RetryAfter,
		Details: []any{failure.Details{Holder: f.Holder, SpentSeconds: f.SpentSeconds, Owed: f.Owed, Effect: f.Effect,
			Data: dataOf(f)}},
	}
	if f.Kind.Retryable() {
		options.Category = temporal.ApplicationErrorCategoryBenign
	}
	return temporal.NewApplicationErrorWithOptions(cut(f.Message), string(f.Kind), options)
}

// RetriedError is the ApplicationError of an activity that has no budget of its own: trouble of the system is tried again for as long as
// the workflow allows, since only the workflow knows how long the release can wait.
func RetriedError(err error) error {
	var f *failure.Error
	if errors.As(err, &f) && f.Kind.System() {
		return temporal.NewApplicationError(cut(f.Message), string(f.Kind), failure.Details{})
	}
	return ApplicationError(err)
}

// dataOf is the failure's data as JSON. What cannot be written as JSON is a mistake of ours that must not hide the failure itself.
func dataOf(f *failure.Error) json.RawMessage {
	if f.Data == nil {
		return nil
	}
	raw, err := json.Marshal(f.Data)
	if err != nil {
		return nil
	}
	return raw
}

// cut shortens a text to maxMessage without breaking a character.
func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const mark = " …"
	end := maxMessage - len(mark)
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return text[:end] + mark
}
