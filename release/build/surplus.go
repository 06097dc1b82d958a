package build

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

const (
	// keepBuilds is how many finished builds of a service are kept: a commit that they built is not built again.
	keepBuilds = 10
	// keepFor is how long a finished build is kept at least, so that requests that wait for it can read it.
	keepFor = time.Hour
)

// Surplus returns the finished builds of a service that need not be kept.
func Surplus(jobs []batchv1.Job, now time.Time) []batchv1.Job {
	over := slices.DeleteFunc(slices.Clone(jobs), func(job batchv1.Job) bool {
		return Ended(&job) == nil || job.Annotations[AnnotationDigest] == ""
	})
	slices.SortFunc(over, func(a, b batchv1.Job) int { return Ended(&b).Compare(*Ended(&a)) })
	over = over[min(len(over), keepBuilds):]
	return slices.DeleteFunc(over, func(job batchv1.Job) bool { return now.Sub(*Ended(&job)) < keepFor })
}
