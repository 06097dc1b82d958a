//go:build !linux

package scriptbox

import "time"

var began = time.Now()

// preferOnShortage does nothing on this system.
func preferOnShortage() {}

// setLimits sets no hard limits on this system: the checks of memory and time, and the Runner's timeout, apply.
func setLimits() error { return nil }

// cpuTime returns the wall-clock time on this system, which is never less than the CPU time.
func cpuTime() time.Duration { return time.Since(began) }
