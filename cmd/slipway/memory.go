package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// collectAtRest is how much garbage there may be before the runtime collects it, in percent of what is in use, while there is little to do; its own default
	// is 100. Releases that wait for days leave a process with a tenth less memory for it.
	collectAtRest = 80
	// collectAtWork is how much there may be in a burst of work, in percent, but no more than mostGarbage, in bytes, where that is more than at rest: to collect
	// garbage takes a fifth of what a worker needs for a burst otherwise.
	collectAtWork, mostGarbage = 200, 96 << 20
	// workWithin tells work from rest: two collections of which one follows the other so soon.
	workWithin = 10 * time.Second
	// memoryLook is how often is looked whether the work is over, and restBytes what is allocated in that time at most when it is.
	memoryLook, restBytes = time.Second, 1 << 20
	// allocated is what the process has ever allocated, and inUse what the last collection has left (https://pkg.go.dev/runtime/metrics).
	allocated, inUse = "/gc/heap/allocs:bytes", "/gc/heap/live:bytes"
)

// collectAt is how much garbage there may be in a burst of work, in percent of so many bytes in use.
func collectAt(live uint64) int {
	percent := mostGarbage * 100 / max(live, 1)
	return int(max(collectAtRest, min(percent, collectAtWork))) / 10 * 10
}

// tendMemory has garbage collected rarely while there is work, and gives the operating system back what the work has taken as soon as it is over: releases that wait
// for days allocate nothing, and without that the runtime would have no reason to. Whoever sets GOGC has said when garbage is collected.
func tendMemory(ctx context.Context) {
	chosen := os.Getenv("GOGC") != ""
	set := func(percent int) {
		if !chosen {
			debug.SetGCPercent(percent)
		}
	}
	set(collectAtRest)
	collections := watchCollections()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-collections:
		}
		if now := time.Now(); now.Sub(last) > workWithin {
			last = now
			continue
		}
		workOver(ctx, set)
		set(collectAtRest)
		debug.FreeOSMemory()
		last = time.Time{} // that was no work
	}
}

// workOver returns when a burst of work is over; meanwhile it sets how much garbage there may be.
func workOver(ctx context.Context, set func(percent int)) {
	look := time.NewTicker(memoryLook)
	defer look.Stop()
	sample, percent := []metrics.Sample{{Name: allocated}, {Name: inUse}}, 0
	for before := uint64(0); ; {
		metrics.Read(sample)
		total := sample[0].Value.Uint64()
		if before > 0 && total-before < restBytes {
			return
		}
		before = total
		if now := collectAt(sample[1].Value.Uint64()); now != percent {
			percent = now
			set(percent)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// watchCollections tells of every collection of garbage, without asking for it: at rest nothing wakes up.
func watchCollections() <-chan struct{} {
	collections := make(chan struct{}, 1)
	var await func(struct{})
	await = func(struct{}) {
		select {
		case collections <- struct{}{}:
		default:
		}
		runtime.AddCleanup(new(garbage), await, struct{}{})
	}
	runtime.AddCleanup(new(garbage), await, struct{}{})
	return collections
}

// garbage is something that the next collection finds in use no more. It holds a pointer, so that nothing else shares its place in memory.
type garbage struct{ _ *byte }
