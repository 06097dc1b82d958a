//go:build unix

package reload

import (
	"io/fs"
	"strconv"
	"syscall"
)

// identity tells a file that took another's name from the one that had it.
func identity(info fs.FileInfo) string {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(sys.Ino, 10)
	}
	return ""
}
