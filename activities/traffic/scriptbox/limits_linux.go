package scriptbox

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// preferOnShortage makes the process the first that the kernel ends when memory is short, before the worker. A kernel
// without that setting ends processes by their size.
func preferOnShortage() { _ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) }

// setLimits limits what the process can still use: additional memory, CPU seconds, files.
func setLimits() error {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	// The first number is the mapped memory, the sixth the process's own data, in pages.
	var pages [6]uint64
	if _, err := fmt.Sscan(string(raw), &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5]); err != nil {
		return err
	}
	size := uint64(os.Getpagesize())
	for resource, most := range map[int]uint64{
		syscall.RLIMIT_AS: pages[0]*size + hardMapped, syscall.RLIMIT_DATA: pages[5]*size + hardMemory,
		syscall.RLIMIT_CPU: 3, syscall.RLIMIT_FSIZE: 0, syscall.RLIMIT_CORE: 0, syscall.RLIMIT_NOFILE: 3,
	} {
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	return nil
}

// cpuTime returns the CPU time that the process has used so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // then only RLIMIT_CPU ends the process
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
