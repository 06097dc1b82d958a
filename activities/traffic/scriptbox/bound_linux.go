package scriptbox

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// bound limits what the process can still do, whatever the script does: memory beyond what is mapped now, seconds of processor, files.
func bound() error {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	// The first number is what is mapped, the sixth what of it is the process's own data, in pages.
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

// taken is how much of a processor's time the process has taken so far.
func taken() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // the limit on the process's own time ends it then
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
