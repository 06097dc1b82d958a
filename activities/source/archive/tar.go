package archive

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"io/fs"
	"strings"
)

// tar processes a tar archive, compressed or not.
func (w *walk) tar(from io.Reader) error {
	opened, closed, err := decompress(w.ctx, w.info.Format, from)
	if err != nil {
		return err
	}
	defer closed()
	most := w.limits.UnpackedBytes + int64(w.limits.Entries+1)*tarEntryOverhead + maxPadding
	s := &stream{ctx: w.ctx, from: opened, limit: most}
	// The buffer holds the first header, which is peeked at before it is read.
	buffered := bufio.NewReaderSize(s, copyBufferSize)
	head, err := buffered.Peek(blockSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !isTar(head) {
		return noArchive("is compressed, but doesn't contain a tar archive", head)
	}
	counted := &counter{from: buffered}
	if err := w.tarEntries(counted); err != nil {
		return err
	}
	if err := onlyPadding(counted, "the tar archive"); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// counter counts the bytes that were read of an archive.
type counter struct {
	from io.Reader
	read int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.read += int64(n)
	return n, err
}

// tarEntries processes all entries up to the end mark: two blocks of zeros.
func (w *walk) tarEntries(from *counter) error {
	reader := tar.NewReader(from)
	last := ""
	for {
		end := from.read + (blockSize-from.read%blockSize)%blockSize
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			if from.read < end+2*blockSize {
				return refused("is truncated%s: it has no end mark", afterEntry(last))
			}
			return nil
		}
		if err != nil {
			return tarProblem(err, last)
		}
		last = header.Name
		if err := w.count(); err != nil {
			return err
		}
		if err := w.tarEntry(header, reader); err != nil {
			return tarProblem(err, last)
		}
		// The position of the next header is computed from the end of the content.
		if _, err := io.Copy(io.Discard, reader); err != nil {
			return tarProblem(err, last)
		}
	}
}

func afterEntry(entry string) string {
	if entry == "" {
		return ""
	}
	return " after the entry " + quotedName(entry)
}

func tarProblem(err error, last string) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refused("is truncated%s", afterEntry(last))
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return refused("is damaged%s: a tar header is invalid", afterEntry(last))
	}
	return err
}

func (w *walk) tarEntry(header *tar.Header, content io.Reader) error {
	name := header.Name
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") || key == "SCHILY.realsize" {
			return refusedEntry(name, "is a sparse file; pack it without --sparse")
		}
	}
	e := entry{name: name, mode: fs.FileMode(header.Mode & 0o777), modified: header.ModTime}
	switch header.Typeflag {
	case tar.TypeXGlobalHeader:
		return globalHeader(header)
	case tar.TypeReg, tar.TypeCont:
		if strings.HasSuffix(name, "/") {
			return refusedEntry(name, "is a file with the name of a folder")
		}
		e.kind, e.size, e.content = file, header.Size, content
		return w.add(e)
	case tar.TypeDir:
		e.kind = folder
	case tar.TypeSymlink:
		e.kind, e.target = symlink, header.Linkname
	case tar.TypeLink:
		e.kind, e.target = hardLink, header.Linkname
	case tar.TypeChar, tar.TypeBlock:
		return refusedEntry(name, "is a device")
	case tar.TypeFifo:
		return refusedEntry(name, "is a FIFO")
	case tar.TypeGNUSparse:
		return refusedEntry(name, "is a sparse file; pack it without --sparse")
	default:
		return refusedEntry(name, "is of the unknown type %q", header.Typeflag)
	}
	if header.Size != 0 {
		return refusedEntry(name, "is a %s with content", e.kind)
	}
	return w.add(e)
}

// globalHeader accepts comments, which git archive writes, and refuses records that would rename or resize the entries
// after it.
func globalHeader(header *tar.Header) error {
	for _, key := range []string{"path", "linkpath", "size"} {
		if header.PAXRecords[key] != "" {
			return refusedEntry(header.Name, "is a global header that sets the %s of all entries after it", key)
		}
	}
	return nil
}
