package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryLook is how often is looked whether a burst of work is over.
	memoryLook = 30 * time.Second
	// burstBytes is how much is allocated in that time when there is work.
	burstBytes = 32 << 20
	// allocated is what the process has ever allocated (https://pkg.go.dev/runtime/metrics).
	allocated = "/gc/heap/allocs:bytes"
	// collectAt is how much garbage there may be before the runtime collects it, in percent of what is in use; its own default is 100. A burst of starts leaves a
	// worker with a tenth less memory for it, and takes a twentieth more CPU of it.
	collectAt = 80
)

// boundGarbage has garbage collected before it is as much as what is in use, unless the environment says when (GOGC).
func boundGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}

// burst tells when a burst of work is over by what the process has allocated.
type burst struct {
	last   uint64
	worked bool
}

// over says that there was a burst, and that the time since the last call was quiet. total is what was ever allocated.
func (b *burst) over(total uint64) bool {
	quiet := total-b.last < burstBytes
	b.last = total
	over := quiet && b.worked
	b.worked = !quiet
	return over
}

// giveMemoryBack gives the operating system back what a burst of work has taken, when it is over: releases that wait for days allocate nothing, and without
// that the runtime would have no reason to.
func giveMemoryBack(ctx context.Context) {
	look := time.NewTicker(memoryLook)
	defer look.Stop()
	var b burst
	sample := []metrics.Sample{{Name: allocated}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		metrics.Read(sample)
		if b.over(sample[0].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}
