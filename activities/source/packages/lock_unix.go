//go:build unix

package packages

import (
	"os"
	"syscall"
)

// lockFile locks out other processes, for as long as the file is open.
func lockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// unlockFile releases the lock. Closing the file is not enough: a child process between fork and exec still has it
// open.
func unlockFile(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }
