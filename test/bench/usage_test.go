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

// usage is the consumption of a measured function: CPU in seconds, memory in bytes.
type usage struct {
	wall time.Duration
	// by is the CPU by process.
	by                   map[string]float64
	serverRSS, workerRSS int64
}

// The measured processes: Slipway's, and those of the local stack.
var (
	slipwayParts = []string{"slipway server", "slipway worker"}
	controlParts = []string{"kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kwok-controller"}
)

func (u usage) sum(parts ...string) (seconds float64) {
	for _, part := range parts {
		seconds += u.by[part]
	}
	return seconds
}

func (u usage) slipway() float64  { return u.sum(slipwayParts...) }
func (u usage) temporal() float64 { return u.sum("temporal") }
func (u usage) control() float64  { return u.sum(controlParts...) }

// measure calls do and returns its usage.
func measure(t *testing.T, e *harness.Engine, do func()) usage {
	t.Helper()
	pids := map[string]int{slipwayParts[0]: e.Processes[0].PID(), slipwayParts[1]: e.Processes[1].PID()}
	for _, part := range append([]string{"temporal"}, controlParts...) {
		pids[part] = stackPID(t, part)
	}
	serverPeak, workerPeak := watchRSS(pids[slipwayParts[0]]), watchRSS(pids[slipwayParts[1]])
	before := map[string]float64{}
	for part, pid := range pids {
		before[part] = cpu(pid)
	}
	started := time.Now()
	do()
	u := usage{wall: time.Since(started), serverRSS: serverPeak(), workerRSS: workerPeak(), by: map[string]float64{}}
	for part, pid := range pids {
		u.by[part] = cpu(pid) - before[part]
	}
	return u
}

// ticksPerSecond is the unit of /proc/<pid>/stat on Linux, the same on every architecture that Go supports.
const ticksPerSecond = 100

// cpu returns the CPU time that a process has used so far, in seconds.
func cpu(pid int) float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the command in parentheses and may hold spaces.
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields, total := strings.Fields(rest), 0.0
	for _, n := range []int{11, 12} { // utime, stime
		ticks, _ := strconv.ParseFloat(fields[n], 64)
		total += ticks / ticksPerSecond
	}
	return total
}

// stackPID returns the process ID of a part of the local stack.
func stackPID(t *testing.T, part string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), ".dev", "run", part+".pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	return pid
}
