package attempt

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
)

// lately is long enough for what starts together: hundreds of releases in one namespace within a second.
const lately = time.Second

// Lately is how long an activity relies on what another one has read (recent.Get), of something that many look at before they begin. What was read before the
// activity was asked for counts for nothing, since somebody may have changed it just before; a read that is under way then counts. Outside of an activity nothing is
// relied on.
func Lately(ctx context.Context) time.Duration {
	if !activity.IsActivity(ctx) {
		return 0
	}
	return min(lately, time.Since(activity.GetInfo(ctx).ScheduledTime))
}
