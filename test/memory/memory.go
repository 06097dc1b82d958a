// Package memory reads how much memory the processes of tests use.
package memory

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The fields of a process in /proc/PID/status that tests read.
const (
	// Resident is the memory that the process has now.
	Resident = "VmRSS"
	// Peak is the most that it has had, since its start or since its clear_refs was written.
	Peak = "VmHWM"
	// Anonymous is its resident memory without that of files.
	Anonymous = "RssAnon"
)

// Of returns a field of a process, in bytes; 0 if the process has ended.
func Of(pid int, field string) int64 { return Number(pid, field) << 10 }

// Number returns the number in a field of /proc/PID/status; 0 if the process has ended.
func Number(pid int, field string) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, is := strings.CutPrefix(line, field+":"); is {
			n, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64) // the kernel writes a number
			return n
		}
	}
	return 0
}
