// Package archive checks and unpacks code packages: zip, tar, tar.gz and tar.zst, recognised by their content. An archive comes from
// somebody else and may be hostile: nothing is written outside the folder, and what it may cost is limited.
//
// Check and Unpack walk an archive in the same way, so that what Check accepts is what Unpack accepts.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
	"unicode/utf8"

	"slipway.io/slipway/release/source"
)

// The formats, as Info names them.
const (
	Zip     = "zip"
	Tar     = "tar"
	TarGzip = "tar.gz"
	TarZstd = "tar.zst"
)

// Info tells what an archive has.
type Info struct {
	Format string
	// Entries counts files, folders and links, with the folders that only the names of others imply.
	Entries int
	// Bytes is the size of the files together.
	Bytes int64
}

// Error says that the archive is refused, and why. Trouble with the disk is another error.
type Error struct {
	// Entry is the name of the entry that is refused; empty: the archive as a whole is.
	Entry string
	// Problem is what is wrong.
	Problem string
	// Whole says that it is no archive at all, and may be meant to be kept whole.
	Whole bool
	// entry says that the problem is an entry's, whose name may be empty.
	entry bool
}

// maxShownName bounds how much of a name an error shows.
const maxShownName = 200

func (e *Error) Error() string {
	if !e.entry {
		return "the archive " + e.Problem
	}
	return fmt.Sprintf("the archive's entry %s %s", shown(e.Entry), e.Problem)
}

// shown quotes what an archive says, so that it is safe to print.
func shown(name string) string {
	if len(name) <= maxShownName {
		return fmt.Sprintf("%q", name)
	}
	cut := maxShownName
	for cut > maxShownName-utf8.UTFMax && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return fmt.Sprintf("%q…", name[:cut])
}

func refused(format string, args ...any) error { return &Error{Problem: fmt.Sprintf(format, args...)} }

// noArchive refuses a content that is none, and says what it looks like and what can be done.
func noArchive(what string, head []byte) error {
	looks := describe(head)
	if looks == likeHTML {
		return refused("%s: %s, such as a login or error page: check the URL that it comes from", what, looks)
	}
	return &Error{Problem: fmt.Sprintf("%s: %s; set unpack: false to keep the package as one file", what, looks), Whole: true}
}

func refusedEntry(name, format string, args ...any) error {
	return &Error{Entry: name, Problem: fmt.Sprintf(format, args...), entry: true}
}

// Check reads the whole archive and writes nothing. It refuses, with an *Error, whatever Unpack would refuse.
func Check(ctx context.Context, file *os.File, limits source.Limits) (Info, error) {
	return read(ctx, file, limits, nowhere{})
}

// Unpack writes the archive's files, folders and links into the folder, which should be empty. It keeps permission bits and the times of
// files and folders; it drops setuid, setgid and sticky bits and owners. After an error the folder holds leftovers, which may be used for
// nothing.
func Unpack(ctx context.Context, file *os.File, folder *os.Root, limits source.Limits) (Info, error) {
	return read(ctx, file, limits, disk{folder})
}

// read recognises the format and walks the archive.
func read(ctx context.Context, file *os.File, limits source.Limits, to target) (Info, error) {
	stat, err := file.Stat()
	if err != nil {
		return Info{}, fmt.Errorf("cannot read the archive: %w", err)
	}
	if stat.Size() > limits.Bytes {
		return Info{}, refused("has %d bytes; the limit is %d", stat.Size(), limits.Bytes)
	}
	head := make([]byte, sniffed)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Info{}, fmt.Errorf("cannot read the archive: %w", err)
	}
	w := &walk{ctx: ctx, limits: limits, to: to, tree: newTree(), buffer: make([]byte, copied)}
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

// copied is how much of a file is copied at once.
const copied = 128 << 10

// kind is what an entry is.
type kind string

const (
	folder   kind = "folder"
	file     kind = "file"
	symlink  kind = "symbolic link"
	hardLink kind = "hard link"
)

// entry is one entry of an archive, as its format tells it.
type entry struct {
	name string
	kind kind
	// target is what a link points to: of a symbolic link as it is written, of a hard link the name of another entry.
	target   string
	mode     fs.FileMode
	modified time.Time
	// size and content are a file's; content has exactly size bytes, or fails.
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
	// told counts the entries as the archive has them: a folder may come again and again.
	told   int
	buffer []byte
}

// target takes what a walk has found sound.
type target interface {
	// folder makes a folder with those above it.
	folder(path string) error
	file(path string, e entry, buffer []byte) error
	hardLink(path, to string) error
	symlink(path, to string) error
	// settle gives a folder its mode and time, after all that is in it.
	settle(path string, mode fs.FileMode, modified time.Time) error
}

// count refuses an archive of too many entries, before the entry costs anything.
func (w *walk) count() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.told++; w.told > w.limits.Entries {
		return refused("has more than %d entries", w.limits.Entries)
	}
	return nil
}

// add takes one entry.
func (w *walk) add(e entry) error {
	parts, err := split(e.name)
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
		return refusedEntry(e.name, "has %d bytes, with which the archive unpacks to more than the limit of %d", e.size, w.limits.UnpackedBytes)
	}
	at, made, err := w.tree.place(parts, e)
	if err != nil {
		return err
	}
	if w.tree.size > w.limits.Entries {
		return refused("has more than %d entries, with the folders that their names imply", w.limits.Entries)
	}
	return w.write(at, made, e)
}

// write hands a sound entry to the target. Symbolic links wait for the end: nothing is ever written through one.
func (w *walk) write(at *node, made bool, e entry) error {
	above := at.above
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
		to, err := w.tree.linked(at, e)
		if err != nil {
			return err
		}
		return w.to.hardLink(at.path(), to)
	}
	return nil
}

// finish checks what only the whole archive tells, makes the symbolic links, and gives the folders their modes and times, the inner ones
// first: a mode may lock its owner out.
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
		if err := w.to.settle(at.path(), at.mode, at.modified); err != nil {
			return err
		}
	}
	return w.ctx.Err()
}
