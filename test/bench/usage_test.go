package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// usage is what something took: CPU in seconds, memory in bytes.
type usage struct {
	wall                       time.Duration
	slipway, temporal, control float64
	serverRSS, workerRSS       int64
}

// measure does something and tells what it took.
func measure(t *testing.T, e *harness.Engine, do func()) usage {
	t.Helper()
	server, worker := e.Processes[0].PID(), e.Processes[1].PID()
	temporal, control := stackPIDs(t, "temporal"), stackPIDs(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller")
	used := func() (float64, float64, float64) { return cpu(server, worker), cpu(temporal...), cpu(control...) }
	serverPeak, workerPeak := watchRSS(server), watchRSS(worker)
	a, b, c := used()
	started := time.Now()
	do()
	u := usage{wall: time.Since(started), serverRSS: serverPeak(), workerRSS: workerPeak()}
	u.slipway, u.temporal, u.control = used()
	u.slipway, u.temporal, u.control = u.slipway-a, u.temporal-b, u.control-c
	return u
}

// ticksPerSecond is the unit of /proc/<pid>/stat on Linux: it is the same on every architecture that Go runs on.
const ticksPerSecond = 100

// cpu is what processes have used so far, in seconds.
func cpu(pids ...int) float64 {
	total := 0.0
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The second field is the command in parentheses and may hold spaces.
		_, rest, _ := strings.Cut(string(raw), ") ")
		fields := strings.Fields(rest)
		for _, n := range []int{11, 12} { // utime, stime
			ticks, _ := strconv.ParseFloat(fields[n], 64)
			total += ticks / ticksPerSecond
		}
	}
	return total
}

// stackPIDs are the processes of parts of the local stack.
func stackPIDs(t *testing.T, parts ...string) []int {
	t.Helper()
	var pids []int
	for _, part := range parts {
		raw, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), ".dev", "run", part+".pid"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}
