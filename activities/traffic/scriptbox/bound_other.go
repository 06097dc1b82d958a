//go:build !linux

package scriptbox

import "time"

var began = time.Now()

// bound has no hard limits here: the watch on memory and time, and the end that the Runner sets, are what holds.
func bound() error { return nil }

// taken is the time on the clock here, which is never less than the processor's.
func taken() time.Duration { return time.Since(began) }
