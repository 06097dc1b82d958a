package plans

import (
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
)

// A failing source is shown while it is retried, not only after the ten minutes of retries.
func TestShowAttempts_ShowsLastFailure_WhileSourceIsRetried(t *testing.T) {
	t.Parallel()
	pending := func(activity string, attempt int32, failed string) []*workflowpb.PendingActivityInfo {
		info := &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: activity}, Attempt: attempt,
			State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED}
		if failed != "" {
			info.LastFailure = &failurepb.Failure{Message: failed}
		}
		return []*workflowpb.PendingActivityInfo{info}
	}
	for _, c := range []struct {
		reason  string
		pending []*workflowpb.PendingActivityInfo
		want    string
	}{
		{"The first attempt.", pending(source.ActivityFetch, 1, ""), "fetching package"},
		{"It failed once.", pending(source.ActivityFetch, 2, "the server answered 500"),
			"fetching package: it failed once and is being retried: the server answered 500"},
		{"And again.", pending(source.ActivityConfirm, 9, "no such host"),
			"fetching package: it failed 8 times and is being retried: no such host"},
		{"A branch is resolved with retries inside one attempt.",
			pending("source.Resolve", 1, "asking again: the server answered 503"),
			"fetching package: asking again: the server answered 503"},
		{"Attempts of a workload's activity are shown at the workload.",
			pending("workload.Run", 3, "2 of 3 pods are ready"), "fetching package"},
		{"Nothing runs.", nil, "fetching package"},
	} {
		service := plan.ServiceStatus{Reason: "fetching package"}
		showAttempts(&service, c.pending)
		require.Equal(t, c.want, service.Reason, c.reason)
	}
}
