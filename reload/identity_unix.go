//go:build unix

package reload

import (
	"io/fs"
	"strconv"
	"syscall"
)

// identity returns the inode, which distinguishes a file from another one that replaced it under the same name.
func identity(info fs.FileInfo) string {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(sys.Ino, 10)
	}
	return ""
}
