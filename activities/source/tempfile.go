package source

import (
	"os"

	"slipway.io/slipway/activities/source/space"
)

// tempFile is a temporary file that only one goroutine writes, from its beginning on.
type tempFile struct {
	*os.File
	space *space.Space
	bytes int64
}

// unlinkedTempFile returns a temporary file without a directory entry: the kernel frees it when it is closed, or when
// the process is killed.
func unlinkedTempFile(within *space.Space) (*tempFile, error) {
	file, err := os.CreateTemp("", "slipway-package-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, err
	}
	return &tempFile{File: file, space: within}, nil
}

// Write appends to the file if there is space.
func (f *tempFile) Write(some []byte) (int, error) {
	if err := f.space.Take(int64(len(some))); err != nil {
		return 0, err
	}
	f.bytes += int64(len(some))
	return f.File.Write(some)
}

// Truncate frees the space behind a shorter size.
func (f *tempFile) Truncate(size int64) error {
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	f.free(f.bytes - size)
	return nil
}

// Close frees the space.
func (f *tempFile) Close() error {
	f.free(f.bytes)
	return f.File.Close()
}

func (f *tempFile) free(bytes int64) {
	f.space.Give(bytes)
	f.bytes -= bytes
}
