package archive

import (
	"archive/tar"
	"bufio"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"strings"

	"github.com/klauspost/compress/zstd"
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
	counted := &stream{ctx: w.ctx, from: buffered, limit: math.MaxInt64}
	if err := w.tarEntries(counted); err != nil {
		return err
	}
	if err := onlyPadding(counted, "the tar archive"); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// tarEntries processes all entries up to the end mark: two blocks of zeros.
func (w *walk) tarEntries(from *stream) error {
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
		if _, err := io.Copy(io.Discard, reader); err != nil { //nolint:gosec // the stream is limited
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
	sparse := header.Typeflag == tar.TypeGNUSparse
	for key := range header.PAXRecords {
		sparse = sparse || strings.HasPrefix(key, "GNU.sparse.") || key == "SCHILY.realsize"
	}
	if sparse {
		return refusedEntry(name, "is a sparse file; pack it without --sparse")
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

// zstdWindow is the largest window that the zstd program accepts without --long. It limits the memory of decompression.
const zstdWindow = 128 << 20

// tarEntryOverhead is how many bytes a tar archive may use per entry in addition to its content: headers, long names
// and padding.
const tarEntryOverhead = 4 << 10

// maxPadding is how many zeros may follow the end of a tar archive or of its compressed data. They pad the last record
// of a tape.
const maxPadding = 1 << 20

// stream reads archive data. It fails when more bytes come out than the limit, and when the context has ended.
type stream struct {
	ctx  context.Context
	from io.Reader
	// read counts bytes; limit is their maximum.
	read, limit int64
}

func (s *stream) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	if s.read >= s.limit {
		return 0, refused("unpacks to more than %d bytes, its headers included", s.limit)
	}
	n, err := s.from.Read(p[:min(int64(len(p)), s.limit-s.read)])
	s.read += int64(n)
	return n, err
}

// decompress opens the stream of a format. closed frees its memory.
func decompress(ctx context.Context, format string, from io.Reader) (opened io.Reader, closed func(), err error) {
	// The readers of gzip and zstd read no byte more than they need from a bufio.Reader, so that trailing data is
	// found.
	source := bufio.NewReaderSize(&stream{ctx: ctx, from: from, limit: math.MaxInt64}, copyBufferSize)
	switch format {
	case TarGzip:
		members := &gzipMembers{from: source}
		return members, func() {}, nil
	case TarZstd:
		decoder, err := zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, nil, zstdProblem(err)
		}
		return zstdFrames{decoder}, decoder.Close, nil
	}
	return source, func() {}, nil
}

// gzipMembers reads the members of a gzip file. The standard library's own multi-member reader treats zeros at the end
// as an error.
type gzipMembers struct {
	from   *bufio.Reader
	member *gzip.Reader
	err    error
}

func (g *gzipMembers) Read(p []byte) (int, error) {
	if g.member == nil && g.err == nil {
		g.member, g.err = gzip.NewReader(g.from)
		if g.err == nil {
			g.member.Multistream(false)
		}
		g.err = gzipProblem(g.err)
	}
	n := 0
	// A member may be empty.
	for n == 0 && g.err == nil {
		n, g.err = g.member.Read(p)
		if errors.Is(g.err, io.EOF) {
			g.err = g.next()
		}
		g.err = gzipProblem(g.err)
	}
	return n, g.err
}

// next starts the next member; io.EOF: there is none.
func (g *gzipMembers) next() error {
	magic, err := g.from.Peek(len(magicGzip))
	if string(magic) == magicGzip {
		if err := g.member.Reset(g.from); err != nil {
			return err
		}
		g.member.Multistream(false)
		return nil
	}
	if len(magic) == 0 {
		return err
	}
	return onlyPadding(g.from, "its gzip data")
}

// onlyPadding returns io.EOF if only zeros follow.
func onlyPadding(r io.Reader, after string) error {
	p := make([]byte, 32<<10)
	for total := 0; ; {
		n, err := r.Read(p)
		if !allZero(p[:n]) {
			return refused("has other data after the end of %s", after)
		}
		if total += n; total > maxPadding {
			return refused("has more than %d bytes of padding after the end of %s", maxPadding, after)
		}
		if err != nil {
			return err
		}
	}
}

// gzipProblem turns errors of gzip into an *Error.
func gzipProblem(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refused("is truncated: its gzip data has no end")
	case errors.Is(err, gzip.ErrHeader):
		return refused("is damaged: its gzip data has an invalid header")
	case errors.Is(err, gzip.ErrChecksum):
		return refused("is damaged: its gzip data doesn't have its checksum or size")
	case errors.As(err, &corrupt):
		return refused("is damaged: its gzip data can't be decompressed (%s)", err)
	}
	return err
}

// zstdFrames reads a zstd file.
type zstdFrames struct{ *zstd.Decoder }

func (z zstdFrames) Read(p []byte) (int, error) {
	n, err := z.Decoder.Read(p)
	return n, zstdProblem(err)
}

// zstdProblem turns errors of zstd into an *Error. Its decoder has many error types; errors of the underlying file are
// passed on.
func zstdProblem(err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refused("is truncated: its zstd data has no end")
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return refused("needs a zstd window of more than %d MiB; compress it without --long", zstdWindow>>20)
	case errors.Is(err, zstd.ErrMagicMismatch):
		return refused("has other data after the end of its zstd data")
	case errors.Is(err, zstd.ErrCRCMismatch):
		return refused("is damaged: its zstd data doesn't have its checksum")
	case errors.Is(err, zstd.ErrUnknownDictionary):
		return refused("needs a zstd dictionary; compress it without one")
	}
	return refused("is damaged: its zstd data can't be decompressed (%s)", err)
}
