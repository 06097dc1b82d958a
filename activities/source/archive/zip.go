package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The sizes and magic bytes of a zip archive's parts. archive/zip is not used: it holds the complete directory in
// memory, reports everything that is wrong with it as one error, and neither compares the two headers of an entry nor
// detects entries that share data. What it would replace of this file is the reading of twenty fields.
const (
	magicDirectory = "PK\x01\x02"
	magicEnd64     = "PK\x06\x06"
	magicLocator   = "PK\x06\x07"

	localLen     = 30
	directoryLen = 46
	endLen       = 22
	end64Len     = 76 // its locator included

	extraZip64 = 0x0001
	extraTime  = 0x5455

	flagEncrypted = 1<<0 | 1<<6 | 1<<13
	flagStreamed  = 1 << 3

	methodStore   = 0
	methodDeflate = 8

	creatorUnix  = 3
	creatorMacOS = 19
)

// record is a part of a zip archive. Its fields are at the positions that PKWARE's APPNOTE.TXT defines.
type record []byte

func (r record) u16(at int) uint64 { return uint64(binary.LittleEndian.Uint16(r[at:])) }
func (r record) u32(at int) uint64 { return uint64(binary.LittleEndian.Uint32(r[at:])) }
func (r record) u64(at int) uint64 { return binary.LittleEndian.Uint64(r[at:]) }

// zipDirectory is the position of a zip archive's directory.
type zipDirectory struct {
	from                  io.ReaderAt
	entries, size, offset uint64
}

// zipHeader is one entry of the directory.
type zipHeader struct {
	name                                     string
	flags, method, crc, packed, size, offset uint64
	// unix is the mode if a Unix program made the archive, otherwise 0.
	unix     uint32
	modified time.Time
}

// span is the position of an entry in the file, from its header to the end of its data. index is its number in the
// directory.
type span struct {
	from, data, to uint64
	index          int
}

// zip processes a zip archive in two passes. The first reads all headers, so that overlapping entries are found before
// anything is written.
func (w *walk) zip(from *os.File, size int64) error {
	d, err := findDirectory(from, size)
	if err != nil {
		return err
	}
	if d.entries > uint64(w.limits.Entries) {
		return refused("has %d entries; the limit is %d", d.entries, w.limits.Entries)
	}
	spans := make([]span, 0, min(d.entries, 1<<10))
	err = d.each(w.ctx, func(h zipHeader, i int) error {
		s, err := d.locate(h)
		s.index = i
		spans = append(spans, s)
		return err
	})
	if err != nil {
		return err
	}
	shared := overlap(spans)
	return d.each(w.ctx, func(h zipHeader, i int) error {
		switch shared {
		case -1:
			return w.zipEntry(h, io.NewSectionReader(from, int64(spans[i].data), int64(h.packed)))
		case i:
			return refusedEntry(h.name, "overlaps another entry in the zip archive")
		}
		return nil
	})
}

// findDirectory reads the end record of the file, and before it the zip64 form of it if there is one.
func findDirectory(from io.ReaderAt, size int64) (d zipDirectory, err error) {
	tail := make(record, min(size, end64Len+endLen+math.MaxUint16))
	if _, err := from.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return d, fmt.Errorf("cannot read the archive: %w", err)
	}
	at := bytes.LastIndex(tail, []byte(magicEnd))
	// The comment at the end may contain the magic bytes too.
	for at >= 0 && (len(tail) < at+endLen || len(tail) != at+endLen+int(tail.u16(at+20))) {
		at = bytes.LastIndex(tail[:at], []byte(magicEnd))
	}
	if at < 0 {
		return d, refused("is truncated, or has other data after its end: a zip archive ends with its directory")
	}
	end, large := tail[at:], tail[max(0, at-end64Len):at]
	after := uint64(size) - uint64(len(end))
	d = zipDirectory{from: from, entries: end.u16(10), size: end.u32(12), offset: end.u32(16)}
	volumes, valid := end.u32(4) != 0 || end.u16(8) != d.entries, true
	if len(large) == end64Len && string(large[56:60]) == magicLocator {
		after -= end64Len
		volumes, valid = large.u32(60) != 0 || large.u32(72) > 1, large.u64(64) == after && d.agrees(large)
		d.entries, d.size, d.offset = large.u64(32), large.u64(40), large.u64(48)
	}
	switch {
	case volumes:
		return d, refused("is one of several volumes; pack it as one file")
	case !valid:
		return d, refused("is damaged: its zip64 record is invalid")
	case d.offset > after || d.size != after-d.offset:
		return d, refused("is damaged: its zip directory isn't where its end record says")
	}
	return d, nil
}

// agrees reports whether a zip64 record is complete and doesn't contradict the end record.
func (d zipDirectory) agrees(large record) bool {
	same := func(small, limit, large uint64) bool { return small == limit || small == large }
	return string(large[:4]) == magicEnd64 && large.u64(4) == 44 && large.u64(16) == 0 &&
		large.u64(24) == large.u64(32) && same(d.entries, math.MaxUint16, large.u64(32)) &&
		same(d.size, math.MaxUint32, large.u64(40)) && same(d.offset, math.MaxUint32, large.u64(48))
}

// each reads the directory and passes every entry to take.
func (d zipDirectory) each(ctx context.Context, take func(h zipHeader, index int) error) error {
	r := bufio.NewReaderSize(io.NewSectionReader(d.from, int64(d.offset), int64(d.size)), copyBufferSize)
	last := ""
	for i := range int(d.entries) {
		h, err := readHeader(r)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return refused("is damaged: its zip directory ends%s", afterEntry(last))
		case err == nil:
			err = take(h, i)
		}
		if err != nil {
			return err
		}
		last = h.name
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return refused("is damaged: its zip directory has more than the %d entries that its end record states",
			d.entries)
	}
	return nil
}

func readHeader(r io.Reader) (h zipHeader, err error) {
	p := make(record, directoryLen)
	if _, err := io.ReadFull(r, p); err != nil {
		return h, err
	}
	if string(p[:4]) != magicDirectory {
		return h, refused("is damaged: its zip directory has an invalid header")
	}
	names := p.u16(28)
	rest := make(record, names+p.u16(30)+p.u16(32))
	if _, err := io.ReadFull(r, rest); err != nil {
		return h, err
	}
	h = zipHeader{name: string(rest[:names]), flags: p.u16(8), method: p.u16(10), crc: p.u32(16), packed: p.u32(20),
		size: p.u32(24), offset: p.u32(42), modified: dosTime(int(p.u16(14)), int(p.u16(12)))}
	if creator := p[5]; creator == creatorUnix || creator == creatorMacOS {
		h.unix = uint32(p.u16(40))
	}
	if disk := p.u16(34); disk != 0 && disk != math.MaxUint16 {
		return h, refusedEntry(h.name, "lies in another volume; pack the archive as one file")
	}
	return h, h.readExtra(rest[names : names+p.u16(30)])
}

// readExtra reads zip64 sizes and the modification time from the header's extra fields.
func (h *zipHeader) readExtra(rest record) error {
	large := false
	// Other readers treat an incomplete field as padding too.
	for len(rest) >= 4 && 4+int(rest.u16(2)) <= len(rest) {
		id, field := rest.u16(0), rest[4:4+rest.u16(2)]
		rest = rest[4+len(field):]
		switch {
		case id == extraTime && len(field) >= 5 && field[0]&1 != 0:
			h.modified = time.Unix(int64(int32(field.u32(1))), 0)
		case id == extraZip64 && large:
			return refusedEntry(h.name, "has two zip64 fields")
		case id == extraZip64:
			large = true
			for _, value := range []*uint64{&h.size, &h.packed, &h.offset} {
				if *value != math.MaxUint32 {
					continue
				}
				if len(field) < 8 {
					return refusedEntry(h.name, "has an invalid zip64 field")
				}
				*value, field = field.u64(0), field[8:]
			}
		}
	}
	return nil
}

// dosTime interprets a DOS time as UTC: the archive does not contain its time zone.
func dosTime(date, clock int) time.Time {
	return time.Date(1980+date>>9, time.Month(date>>5&0xf), date&0x1f, clock>>11, clock>>5&0x3f, clock&0x1f*2, 0,
		time.UTC)
}

// locate reads the local header before an entry's data, which must match the directory.
func (d zipDirectory) locate(h zipHeader) (s span, err error) {
	if h.offset > d.offset || h.packed > d.offset {
		return s, refusedEntry(h.name, "lies outside the archive")
	}
	p, at := make(record, localLen), int64(h.offset)
	_, err = d.from.ReadAt(p, at)
	name := make([]byte, p.u16(26))
	if _, short := d.from.ReadAt(name, at+localLen); err != nil || short != nil || string(p[:4]) != magicLocal {
		return s, refusedEntry(h.name, "has no header where the zip directory says")
	}
	s = span{from: h.offset, data: h.offset + localLen + p.u16(26) + p.u16(28)}
	s.to = s.data + h.packed
	// The local sizes of a streamed entry follow its data; those of a zip64 entry are in its extra field. The
	// directory's sizes are checked anyway.
	flags := p.u16(6) | h.flags
	streamed := flags&flagStreamed != 0
	same := func(local, global uint64) bool {
		return local == global || streamed && local == 0 || local == math.MaxUint32
	}
	damaged := func(what string) error {
		return refusedEntry(h.name, "has another %s in the zip directory than in its own header", what)
	}
	switch {
	case string(name) != h.name:
		return s, damaged(fmt.Sprintf("name (%s)", quotedName(string(name))))
	case p.u16(8) != h.method:
		return s, damaged("compression")
	case flags&flagEncrypted != 0:
		return s, refusedEntry(h.name, "is encrypted")
	case h.method != methodStore && h.method != methodDeflate:
		return s, refusedEntry(h.name, "is compressed by the zip method %d; only stored and deflated entries are "+
			"supported", h.method)
	case !same(p.u32(18), h.packed) || !same(p.u32(22), h.size):
		return s, damaged("size")
	case p.u32(14) != h.crc && (!streamed || p.u32(14) != 0):
		return s, damaged("checksum")
	case s.to > d.offset:
		return s, refusedEntry(h.name, "lies outside the archive")
	}
	return s, nil
}

// overlap returns the index of an entry that shares data with another, which would let a small archive unpack to much
// data; -1: there is none.
func overlap(spans []span) int {
	sorted := slices.SortedFunc(slices.Values(spans), func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].from < sorted[i-1].to {
			return sorted[i].index
		}
	}
	return -1
}

// zipEntry processes one entry whose headers are valid.
func (w *walk) zipEntry(h zipHeader, packed io.Reader) error {
	kind, mode, err := h.kind()
	switch {
	case err != nil:
		return err
	case kind == folder && h.size != 0:
		return refusedEntry(h.name, "is a folder with content")
	}
	e := entry{name: h.name, kind: kind, mode: mode, modified: h.modified, size: int64(min(h.size, math.MaxInt64)),
		content: &stream{ctx: w.ctx, from: newZipContent(h, packed), limit: math.MaxInt64}}
	if kind != file {
		// Some programs deflate empty content, so only the end of a folder's data shows that there is none.
		target, err := io.ReadAll(io.LimitReader(e.content, maxTarget+1))
		if err != nil {
			return err
		}
		e.target = string(target)
	}
	return w.add(e)
}

// kind returns an entry's type and mode. Without a Unix mode the name decides.
func (h zipHeader) kind() (kind, fs.FileMode, error) {
	named, mode := strings.HasSuffix(h.name, "/"), fs.FileMode(h.unix&0o777)
	switch format := h.unix & syscall.S_IFMT; {
	case named && (format == 0 || format == syscall.S_IFREG):
		return folder, defaultMode, nil
	case h.unix == 0:
		return file, 0o644, nil
	case format == 0 || format == syscall.S_IFREG:
		return file, mode, nil
	case format == syscall.S_IFDIR:
		return folder, mode, nil
	case format == syscall.S_IFLNK && named:
		return "", 0, refusedEntry(h.name, "is a symbolic link with the name of a folder")
	case format == syscall.S_IFLNK:
		return symlink, mode, nil
	}
	return "", 0, refusedEntry(h.name, "is a device, a FIFO or a socket")
}

// zipContent is an entry's data. It ends without an error only if the size, the checksum and the end of the packed data
// are right.
type zipContent struct {
	zipHeader
	packed    *bufio.Reader
	unpacked  io.Reader
	remaining uint64
	sum       uint32
}

func newZipContent(h zipHeader, packed io.Reader) *zipContent {
	c := &zipContent{zipHeader: h, packed: bufio.NewReader(packed), remaining: h.size}
	c.unpacked = c.packed
	if h.method == methodDeflate {
		// flate reads no byte more than it needs from a bufio.Reader.
		c.unpacked = flate.NewReader(c.packed)
	}
	return c
}

func (c *zipContent) Read(p []byte) (int, error) {
	n, err := c.unpacked.Read(p)
	if uint64(n) > c.remaining {
		n, err = int(c.remaining), refusedEntry(c.name, "has more than the %d bytes that its header states", c.size)
	}
	c.remaining -= uint64(n)
	c.sum = crc32.Update(c.sum, crc32.IEEETable, p[:n])
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = refusedEntry(c.name, "is truncated")
	case errors.As(err, &corrupt):
		err = refusedEntry(c.name, "is damaged: it can't be decompressed (%s)", err)
	case !errors.Is(err, io.EOF):
	case c.remaining > 0:
		err = refusedEntry(c.name, "has %d bytes less than its header states", c.remaining)
	case uint64(c.sum) != c.crc:
		err = refusedEntry(c.name, "is damaged: it doesn't have its checksum")
	default:
		if _, more := c.packed.ReadByte(); more == nil {
			err = refusedEntry(c.name, "has other data after its compressed data")
		}
	}
	return n, err
}
