// Package outcome turns the typed failures of activities into Temporal errors, in one place: the workflows read the type name and the details only.
package outcome

import (
	"encoding/json"
	"errors"

	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/failure"
)

// MessageLimit is the longest message, in bytes, that is given to Temporal, whose server cuts what it keeps of a failed attempt at 4 KiB.
const MessageLimit = 2000

// Wrap turns a failure.Error into an ApplicationError whose type is the failure's kind and whose details are failure.Details. Only a retryable kind is
// tried again, after RetryAfter, and counts as benign. Any other error is returned as it is, so that the caller's retry policy decides.
//
// What it returns must be returned from the activity as it is: the SDK does not look into a wrapped ApplicationError.
func Wrap(err error) error {
	var f *failure.Error
	if !errors.As(err, &f) {
		return err
	}
	options := temporal.ApplicationErrorOptions{
		NonRetryable:   !f.Kind.Retryable(),
		NextRetryDelay: f.RetryAfter,
		Details:        []any{failure.Details{Holder: f.Holder, SpentSeconds: f.SpentSeconds, Owed: f.Owed, Effect: f.Effect, Data: dataOf(f)}},
	}
	if f.Kind.Retryable() {
		options.Category = temporal.ApplicationErrorCategoryBenign
	}
	return temporal.NewApplicationErrorWithOptions(Message(f), string(f.Kind), options)
}

// Message is a failure's message as the workflow gets it.
func Message(f *failure.Error) string { return cut(f.Message) }

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

// cut shortens a text to MessageLimit without breaking a character.
func cut(text string) string {
	if len(text) <= MessageLimit {
		return text
	}
	const mark = " …"
	end := MessageLimit - len(mark)
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return text[:end] + mark
}
