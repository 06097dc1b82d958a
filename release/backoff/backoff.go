// Package backoff computes the pauses between the attempts of something that keeps failing.
package backoff

import "time"

// After returns the pause after n further failures: first after the first failure (n = 0), then twice as long after
// each, up to longest.
func After(n int, first, longest time.Duration) time.Duration {
	for ; n > 0 && first < longest; n-- {
		first *= 2
	}
	return min(first, longest)
}
