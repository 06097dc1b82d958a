package attempt_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/failure"
)

func TestApplicationError(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		err       error
		kind      string
		retryable bool
		delay     time.Duration
		details   failure.Details
	}{
		"NotReady": {
			reason: "waiting for pods is retried after the requested delay, and is no error in logs and metrics",
			err: &failure.Error{Kind: failure.NotReady, Message: "2 of 3 pods are ready",
				RetryAfter: 4 * time.Second},
			kind: "NotReady", retryable: true, delay: 4 * time.Second,
		},
		"Claimed": {
			reason: "another release's claim is a permanent failure for the worker, and the workflow learns the holder",
			err:    &failure.Error{Kind: failure.Claimed, Message: "m", Holder: "task/x@run"},
			kind:   "Claimed", details: failure.Details{Holder: "task/x@run"},
		},
		"Unreachable": {
			reason: "an interruption carries the used part of the deadline",
			err:    &failure.Error{Kind: failure.Unreachable, Message: "m", SpentSeconds: 42},
			kind:   "Unreachable", details: failure.Details{SpentSeconds: 42},
		},
		"wrapped": {
			reason: "a wrapped failure is found, but the Temporal error itself is never wrapped",
			err:    fmt.Errorf("while stopping: %w", failure.New(failure.Refused, "no")),
			kind:   "Refused",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := attempt.ApplicationError(tc.err)
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app, tc.reason)
			require.Equal(t, reflect.TypeOf(app), reflect.TypeOf(err), "the Temporal error must not be wrapped itself")
			require.Equal(t, tc.kind, app.Type(), tc.reason)
			require.Equal(t, !tc.retryable, app.NonRetryable(), tc.reason)
			require.Equal(t, tc.delay, app.NextRetryDelay(), tc.reason)
			require.Equal(t, tc.retryable, app.Category() == temporal.ApplicationErrorCategoryBenign, tc.reason)
			var details failure.Details
			require.NoError(t, app.Details(&details))
			require.Equal(t, tc.details, details, tc.reason)
		})
	}
}

func TestApplicationError_ReturnsOtherErrorsUnchanged(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	require.Same(t, boom, attempt.ApplicationError(boom),
		"an error without a kind is left to the caller's retry policy")
	require.NoError(t, attempt.ApplicationError(nil))
}

func TestApplicationError_CutsLongMessages(t *testing.T) {
	t.Parallel()
	err := attempt.ApplicationError(failure.New(failure.WorkloadFailed, "%s", strings.Repeat("é", 3000)))
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.LessOrEqual(t, len(app.Message()), 2000)
	require.True(t, utf8.ValidString(app.Message()), "a character must not be cut in two")
}
