// Package archive checks and unpacks code packages: zip, tar, tar.gz and tar.zst, recognised by their content. An
// archive is untrusted and may be hostile: nothing is written outside the folder, and its memory, disk space and number
// of entries are limited.
//
// Check and Unpack read an archive in the same way, so that Unpack accepts exactly what Check accepts.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/source"
)

// The formats, as values of Info.Format.
const (
	Zip     = "zip"
	Tar     = "tar"
	TarGzip = "tar.gz"
	TarZstd = "tar.zst"
)

// Info describes an archive.
type Info struct {
	Format string
	// Entries counts files, folders and links, including folders that only appear in the names of other entries.
	Entries int
	// Bytes is the total size of the files.
	Bytes int64
}

// Error means that the archive is refused. Disk errors have other types.
type Error struct {
	// Entry is the name of the refused entry; empty if the problem is one of the whole archive.
	Entry string
	// Problem is the reason, as a clause: "has no entries".
	Problem string
	// NotArchive is true if the content is no archive at all; the user may want to deploy it as a single file.
	NotArchive bool
	// hasEntry is true if the problem is one of an entry, whose name may be empty.
	hasEntry bool
}

// maxShownName limits how many bytes of a name an error shows.
const maxShownName = 200

func (e *Error) Error() string {
	if !e.hasEntry {
		return "the archive " + e.Problem
	}
	return fmt.Sprintf("the archive's entry %s %s", quotedName(e.Entry), e.Problem)
}

// quotedName quotes and shortens text of an archive, so that it is safe to print.
func quotedName(name string) string { return strconv.Quote(phrase.Cut(name, maxShownName)) }

func refused(format string, args ...any) error { return &Error{Problem: fmt.Sprintf(format, args...)} }

// noArchive refuses content that is not an archive. Its message says what the content looks like and what to do.
func noArchive(what string, head []byte) error {
	looks := describe(head)
	if looks == looksLikeHTML {
		return refused("%s: %s, such as a login or error page: check the URL that it comes from", what, looks)
	}
	return &Error{Problem: fmt.Sprintf("%s: %s; set unpack: false to keep the package as one file", what, looks),
		NotArchive: true}
}

func refusedEntry(name, format string, args ...any) error {
	return &Error{Entry: name, Problem: fmt.Sprintf(format, args...), hasEntry: true}
}

// Check reads the complete archive and writes nothing. It returns an *Error for everything that Unpack would refuse.
func Check(ctx context.Context, file *os.File, limits source.Limits) (Info, error) {
	return walkArchive(ctx, file, limits, discard{})
}

// Unpack writes the archive's files, folders and links into the folder, which should be empty. It keeps permission bits
// and modification times of files and folders; it drops owners and the setuid, setgid and sticky bits. After an error
// the folder contains leftovers that must not be used.
func Unpack(ctx context.Context, file *os.File, folder *os.Root, limits source.Limits) (Info, error) {
	return walkArchive(ctx, file, limits, disk{folder})
}

// walkArchive recognises the format and processes every entry of the archive.
func walkArchive(ctx context.Context, file *os.File, limits source.Limits, to target) (Info, error) {
	stat, err := file.Stat()
	if err != nil {
		return Info{}, fmt.Errorf("cannot read the archive: %w", err)
	}
	if stat.Size() > limits.Bytes {
		return Info{}, refused("has %d bytes; the limit is %d", stat.Size(), limits.Bytes)
	}
	head := make([]byte, sniffedBytes)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Info{}, fmt.Errorf("cannot read the archive: %w", err)
	}
	w := &walk{ctx: ctx, limits: limits, to: to, tree: newTree(), buffer: make([]byte, copyBufferSize)}
	w.info.Format = formatOf(head[:n])
	switch w.info.Format {
	case Zip:
		err = w.zip(file, stat.Size())
	case Tar, TarGzip, TarZstd:
		err = w.tar(io.NewSectionReader(file, 0, stat.Size()))
	default:
		return Info{}, noArchive("isn't zip, tar, tar.gz or tar.zst", head[:n])
	}
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		return Info{}, err
	}
	return w.info, nil
}

// copyBufferSize is the size of the buffer for copying files.
const copyBufferSize = 128 << 10

// kind is the type of an entry.
type kind string

const (
	folder   kind = "folder"
	file     kind = "file"
	symlink  kind = "symbolic link"
	hardLink kind = "hard link"
)

// entry is one entry of an archive, converted from its format.
type entry struct {
	name string
	kind kind
	// target is a symbolic link's target as written, or the name of the entry that a hard link refers to.
	target   string
	mode     fs.FileMode
	modified time.Time
	// size and content belong to a file; content yields exactly size bytes, or an error.
	size    int64
	content io.Reader
}

// walk is one pass over an archive.
type walk struct {
	ctx    context.Context
	limits source.Limits
	to     target
	tree   *tree
	info   Info
	// entries counts the entries as they occur in the archive: a folder may occur several times.
	entries int
	buffer  []byte
}

// target receives the entries that passed the checks.
type target interface {
	// folder creates a folder and its parents.
	folder(path string) error
	file(path string, e entry, buffer []byte) error
	hardLink(path, to string) error
	symlink(path, to string) error
	// setMetadata sets a folder's mode and modification time, after everything in it was written.
	setMetadata(path string, mode fs.FileMode, modified time.Time) error
}

// count refuses an archive with too many entries, before the entry costs any memory or disk space.
func (w *walk) count() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.entries++; w.entries > w.limits.Entries {
		return refused("has more than %d entries", w.limits.Entries)
	}
	return nil
}

// add checks one entry and writes it.
func (w *walk) add(e entry) error {
	parts, err := splitName(e.name)
	if err != nil {
		return err
	}
	if e.kind == symlink {
		err = checkTarget(e)
	}
	if err != nil {
		return err
	}
	if e.kind == file && e.size > w.limits.UnpackedBytes-w.info.Bytes {
		return refusedEntry(e.name, "has %d bytes, with which the archive unpacks to more than the limit of %d", e.size,
			w.limits.UnpackedBytes)
	}
	at, made, err := w.tree.insert(parts, e)
	if err != nil {
		return err
	}
	if w.tree.size > w.limits.Entries {
		return refused("has more than %d entries, with the folders that their names imply", w.limits.Entries)
	}
	return w.write(at, made, e)
}

// write passes a checked entry to the target. Symbolic links are written by finish, so that nothing is ever written
// through one.
func (w *walk) write(at *node, made bool, e entry) error {
	above := at.parent
	if e.kind == folder {
		above = at
	}
	if made && above != w.tree.root {
		if err := w.to.folder(above.path()); err != nil {
			return err
		}
	}
	switch e.kind {
	case file:
		w.info.Bytes += e.size
		return w.to.file(at.path(), e, w.buffer)
	case hardLink:
		to, err := w.tree.resolveHardLink(at, e)
		if err != nil {
			return err
		}
		return w.to.hardLink(at.path(), to)
	}
	return nil
}

// finish does the checks that need the complete archive, creates the symbolic links, and sets the modes and times of
// folders, the innermost first: a mode may deny its owner further writes.
func (w *walk) finish() error {
	if w.tree.size == 0 {
		return refused("has no entries")
	}
	w.info.Entries = w.tree.size
	if err := w.tree.checkLinks(w.ctx); err != nil {
		return err
	}
	for _, link := range w.tree.links {
		if err := w.to.symlink(link.path(), link.target); err != nil {
			return err
		}
	}
	for i := len(w.tree.folders) - 1; i >= 0; i-- {
		at := w.tree.folders[i]
		if err := w.to.setMetadata(at.path(), at.mode, at.modified); err != nil {
			return err
		}
	}
	return w.ctx.Err()
}

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
