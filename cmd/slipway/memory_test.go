package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGarbageInABurstIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason  string
		live    uint64
		percent int
	}{
		{"of a small process there may be twice as much garbage as what is in use", 30 << 20, 200},
		{"also before it has collected any", 0, 200},
		{"of a larger one as much as is worth it", 60 << 20, 160},
		{"never less than at rest", 1 << 30, collectAtRest},
	} {
		require.Equal(t, c.percent, collectAt(c.live), c.reason)
	}
}

// These settings are the process's: not beside others.
func TestGarbageIsCollectedRarelyWhileThereIsWork(t *testing.T) {
	tended(t, "")
	require.Eventually(t, func() bool { return percentNow() == collectAtRest }, patience, tick, "at rest little garbage is left")
	require.Eventually(t, func() bool { work(); return percentNow() == collectAtWork }, patience, tick, "a burst of work has begun")
	require.Never(t, func() bool { work(); return percentNow() != collectAtWork }, 2*memoryLook, tick, "and goes on")
	require.Eventually(t, func() bool { return percentNow() == collectAtRest }, patience, tick, "it is over")
	require.Eventually(t, func() bool { work(); return percentNow() == collectAtWork }, patience, tick, "until there is work again")
}

func TestTheEnvironmentSaysWhenGarbageIsCollected(t *testing.T) {
	before := percentNow()
	tended(t, "100")
	require.Never(t, func() bool { work(); return percentNow() != before }, 2*memoryLook, tick, "whoever sets GOGC has chosen between memory and CPU")
}

const (
	patience = 30 * time.Second
	tick     = 10 * time.Millisecond
)

// tended has the memory of this process tended until the test is over.
func tended(t *testing.T, environment string) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", environment)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tendMemory(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

var made []byte

// work makes garbage.
func work() { made = make([]byte, 4<<20) }

// percentNow is how much garbage there may be now (https://pkg.go.dev/runtime/metrics).
func percentNow() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
