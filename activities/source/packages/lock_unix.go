//go:build unix

package packages

import (
	"os"
	"syscall"
)

// lockFile keeps other processes out, for as long as the file is open.
func lockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// unlockFile lets other processes in. To close the file is not enough: a process that is being started at that moment has it open until it runs.
func unlockFile(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }
