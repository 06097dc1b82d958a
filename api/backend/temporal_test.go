package backend

import (
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
)

func TestLastFailure_DescribesTimeouts(t *testing.T) {
	t.Parallel()
	timedOut := func(kind enumspb.TimeoutType) *failurepb.Failure {
		info := &failurepb.TimeoutFailureInfo{TimeoutType: kind}
		return &failurepb.Failure{Message: "activity Heartbeat timeout",
			FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: info}}
	}
	for name, test := range map[string]struct {
		reason string
		failed *failurepb.Failure
		want   string
	}{
		"None":      {"no attempt has failed", nil, ""},
		"Own":       {"an error of the activity is shown as it is", &failurepb.Failure{Message: "1 of 2 pods"}, "1 of 2 pods"},
		"Heartbeat": {"its worker has ended", timedOut(enumspb.TIMEOUT_TYPE_HEARTBEAT), "its worker stopped reporting"},
		"Start":     {"it was too slow", timedOut(enumspb.TIMEOUT_TYPE_START_TO_CLOSE), "an attempt took too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := LastFailure(&workflowpb.PendingActivityInfo{LastFailure: test.failed})
			require.Contains(t, got, test.want, test.reason)
			require.NotContains(t, got, "Heartbeat timeout")
			require.Equal(t, test.want == "", got == "")
		})
	}
}
