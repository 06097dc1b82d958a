package archive

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// nowhere reads the files and writes nothing.
type nowhere struct{}

func (nowhere) folder(string) error { return nil }

func (nowhere) file(_ string, e entry, buffer []byte) error {
	// Without io.Discard's ReadFrom, which has a small buffer of its own.
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{e.content}, buffer)
	return err
}

func (nowhere) hardLink(string, string) error { return nil }

func (nowhere) symlink(string, string) error { return nil }

func (nowhere) settle(string, fs.FileMode, time.Time) error { return nil }

// disk writes below a folder. os.Root refuses every path that leaves it, through links too: the second wall after the tree.
type disk struct{ root *os.Root }

// workMode is a folder's mode while it is filled: with the archive's own, its owner might not write into it.
const workMode = 0o700

func (d disk) folder(path string) error { return written(path, d.root.MkdirAll(path, workMode)) }

func (d disk) file(path string, e entry, buffer []byte) error {
	out, err := d.root.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return written(path, err)
	}
	// The reader's errors say themselves what is wrong; the disk's need the path.
	_, err = io.CopyBuffer(onDisk{out, path}, struct{ io.Reader }{e.content}, buffer)
	if err == nil {
		// The umask has no say, unlike in OpenFile.
		err = written(path, out.Chmod(e.mode.Perm()))
	}
	if closed := out.Close(); err == nil {
		err = written(path, closed)
	}
	if err != nil {
		return err
	}
	return d.date(path, e.modified)
}

func (d disk) hardLink(path, to string) error { return written(path, d.root.Link(to, path)) }

func (d disk) symlink(path, to string) error { return written(path, d.root.Symlink(to, path)) }

func (d disk) settle(path string, mode fs.FileMode, modified time.Time) error {
	if err := d.date(path, modified); err != nil {
		return err
	}
	return written(path, d.root.Chmod(path, mode.Perm()))
}

// lastTime is past the times that file systems know, and before those that a count of nanoseconds can't hold.
var lastTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// date sets the time of modification. No time, or an absurd one, leaves the present.
func (d disk) date(path string, modified time.Time) error {
	if modified.Unix() <= 0 || modified.After(lastTime) {
		return nil
	}
	return written(path, d.root.Chtimes(path, modified, modified))
}

// onDisk is a file whose errors name it.
type onDisk struct {
	out  *os.File
	path string
}

func (o onDisk) Write(p []byte) (int, error) {
	n, err := o.out.Write(p)
	return n, written(o.path, err)
}

func written(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot write %s: %w", shown(path), err)
}
