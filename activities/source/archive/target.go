package archive

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// discard reads the files and writes nothing.
type discard struct{}

func (discard) folder(string) error { return nil }

func (discard) file(_ string, e entry, buffer []byte) error {
	// Without io.Discard's ReadFrom, which uses a small buffer of its own.
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{e.content}, buffer)
	return err
}

func (discard) hardLink(string, string) error { return nil }

func (discard) symlink(string, string) error { return nil }

func (discard) setMetadata(string, fs.FileMode, time.Time) error { return nil }

// disk writes below a folder. os.Root refuses every path that leaves it, also through links; this is the second defence
// after the tree's checks.
type disk struct{ root *os.Root }

// workMode is a folder's mode while it is filled: the archive's mode might forbid its owner to write.
const workMode = 0o700

func (d disk) folder(path string) error { return writeError(path, d.root.MkdirAll(path, workMode)) }

func (d disk) file(path string, e entry, buffer []byte) error {
	out, err := d.root.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return writeError(path, err)
	}
	// The reader's errors need no path; the disk's errors do.
	_, err = io.CopyBuffer(namedFile{out, path}, struct{ io.Reader }{e.content}, buffer)
	if err == nil {
		// The umask does not affect Chmod, unlike OpenFile.
		err = writeError(path, out.Chmod(e.mode.Perm()))
	}
	if closeErr := out.Close(); err == nil {
		err = writeError(path, closeErr)
	}
	if err != nil {
		return err
	}
	return d.setTime(path, e.modified)
}

func (d disk) hardLink(path, to string) error { return writeError(path, d.root.Link(to, path)) }

func (d disk) symlink(path, to string) error { return writeError(path, d.root.Symlink(to, path)) }

func (d disk) setMetadata(path string, mode fs.FileMode, modified time.Time) error {
	if err := d.setTime(path, modified); err != nil {
		return err
	}
	return writeError(path, d.root.Chmod(path, mode.Perm()))
}

// lastTime is later than the times that file systems support, and earlier than the limit of times in nanoseconds.
var lastTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// setTime sets the modification time. Without a plausible time the file keeps the current one.
func (d disk) setTime(path string, modified time.Time) error {
	if modified.Unix() <= 0 || modified.After(lastTime) {
		return nil
	}
	return writeError(path, d.root.Chtimes(path, modified, modified))
}

// namedFile is a file whose write errors contain its path.
type namedFile struct {
	out  *os.File
	path string
}

func (o namedFile) Write(p []byte) (int, error) {
	n, err := o.out.Write(p)
	return n, writeError(o.path, err)
}

func writeError(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot write %s: %w", quotedName(path), err)
}
