package attempt

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
)

// maxCacheAge covers attempts that start together: hundreds of releases in one namespace within a second.
const maxCacheAge = time.Second

// CacheAge is the maximum age of a cached read (recent.Get) of an object that many activities read before they start:
// at most 1 s, and never older than the activity's schedule time, because another client may have changed the object
// just before that. A read that is still in flight counts. Outside of an activity it is 0: nothing is cached.
func CacheAge(ctx context.Context) time.Duration {
	if !activity.IsActivity(ctx) {
		return 0
	}
	return min(maxCacheAge, time.Since(activity.GetInfo(ctx).ScheduledTime))
}
