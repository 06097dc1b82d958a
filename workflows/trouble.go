package workflows

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/failure"
)

// systemTrouble says what keeps an activity from its work, "" when the error is the business's own, and what of the deadline is used.
func systemTrouble(err error, what string) (trouble string, spentSeconds int64) {
	if err == nil {
		return "", 0
	}
	if kindOf(err).System() {
		return message(err), detailsOf(err).SpentSeconds
	}
	var timeout *temporal.TimeoutError
	if !errors.As(err, &timeout) {
		return "", 0
	}
	if timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
		return fmt.Sprintf("no worker of %s takes work: start one (slipway worker)", what), 0
	}
	var app *temporal.ApplicationError
	if errors.As(timeout.Unwrap(), &app) {
		return fmt.Sprintf("%s: %s", what, app.Message()), 0
	}
	return fmt.Sprintf("%s does not answer", what), 0
}

// asSystem is an error of the centre as system trouble: the home cluster or Temporal is away, which is nobody's failure.
func asSystem(err error) error {
	if err == nil || kindOf(err).System() {
		return err
	}
	return temporal.NewNonRetryableApplicationError("the engine's centre does not answer: "+message(err), string(failure.Unreachable), nil)
}

// detailsOf are what travelled with a failure; none where there are none.
func detailsOf(err error) failure.Details {
	var app *temporal.ApplicationError
	var details failure.Details
	if errors.As(err, &app) && app.HasDetails() {
		_ = app.Details(&details)
	}
	return details
}

func kindOf(err error) failure.Kind {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return failure.Kind(app.Type())
	}
	return ""
}

func isScheduleToStart(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// message is the innermost text of an error from an activity or a child: what a person wants to read.
func message(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
