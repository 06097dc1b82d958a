package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/flate"
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
	"time"
)

// The sizes and magic bytes of a zip archive's parts. archive/zip is not used: it holds the complete directory in
// memory, without a limit, and neither compares the two headers of an entry nor detects entries that share data.
const (
	magicDirectory = "PK\x01\x02"
	magicEnd64     = "PK\x06\x06"
	magicLocator   = "PK\x06\x07"

	localLen     = 30
	directoryLen = 46
	endLen       = 22
	end64Len     = 56
	locatorLen   = 20
	maxComment   = math.MaxUint16

	extraZip64 = 0x0001
	extraTime  = 0x5455

	flagEncrypted = 1<<0 | 1<<6 | 1<<13
	flagStreamed  = 1 << 3

	methodStore   = 0
	methodDeflate = 8

	creatorUnix  = 3
	creatorMacOS = 19
)

// zipDirectory is the position of a zip archive's directory.
type zipDirectory struct {
	offset, size int64
	entries      uint64
}

// zipHeader is one entry of the directory.
type zipHeader struct {
	name          string
	creator       byte
	flags, method uint16
	crc           uint32
	packed, size  uint64
	offset        uint64
	attributes    uint32
	modified      time.Time
	extra         []byte
}

// span is the position of an entry in the file, from its header to the end of its data. index is its number in the
// directory.
type span struct {
	from, data, to int64
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
	err = d.each(w, from, func(h zipHeader, i int) error {
		s, err := locate(from, h, d.offset)
		s.index = i
		spans = append(spans, s)
		return err
	})
	if err != nil {
		return err
	}
	if shared := overlap(spans); shared >= 0 {
		return d.each(w, from, func(h zipHeader, i int) error {
			if i == shared {
				return refusedEntry(h.name, "overlaps another entry in the zip archive")
			}
			return nil
		})
	}
	return d.each(w, from, func(h zipHeader, i int) error { return w.zipEntry(from, h, spans[i]) })
}

// findDirectory reads the end record of the file, and its zip64 form if there is one.
func findDirectory(from io.ReaderAt, size int64) (zipDirectory, error) {
	tail := make([]byte, min(size, endLen+maxComment))
	if _, err := from.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return zipDirectory{}, fmt.Errorf("cannot read the archive: %w", err)
	}
	at := bytes.LastIndex(tail, []byte(magicEnd))
	for at >= 0 && (len(tail)-at < endLen || len(tail)-at-endLen != int(
		binary.LittleEndian.Uint16(tail[at+endLen-2:]))) {
		at = bytes.LastIndex(tail[:at], []byte(magicEnd))
	}
	if at < 0 {
		return zipDirectory{}, refused("is truncated, or has other data after its end: a zip archive ends with its " +
			"directory")
	}
	end := size - int64(len(tail)-at)
	n := fieldReader(tail[at+4:])
	disks := [2]uint16{n.u16(), n.u16()}
	here, all := n.u16(), n.u16()
	d := zipDirectory{entries: uint64(all), size: int64(n.u32()), offset: int64(n.u32())}
	d, end, large, err := d.readZip64(from, end)
	switch {
	case err != nil:
		return zipDirectory{}, err
	case !large && (disks != [2]uint16{} || here != all):
		return zipDirectory{}, refused("is one of several volumes; pack it as one file")
	case d.offset < 0 || d.size < 0 || d.offset > end || d.size != end-d.offset:
		return zipDirectory{}, refused("is damaged: its zip directory isn't where its end record says")
	}
	return d, nil
}

// readZip64 reads the zip64 form of the end record, if there is one. It lies between the directory and the end record.
func (d zipDirectory) readZip64(from io.ReaderAt, end int64) (larger zipDirectory, before int64, large bool,
	err error) {
	p := make([]byte, end64Len+locatorLen)
	if end < int64(len(p)) {
		return d, end, false, nil
	}
	// The zip64 record lies immediately before its locator: it has no extensible fields.
	before = end - int64(len(p))
	if _, err := from.ReadAt(p, before); err != nil {
		return d, 0, false, fmt.Errorf("cannot read the archive: %w", err)
	}
	locator := fieldReader(p[end64Len:])
	if string(locator[:4]) != magicLocator {
		return d, end, false, nil
	}
	locator = locator[4:]
	disk, at, disks := locator.u32(), locator.u64(), locator.u32()
	if disk != 0 || disks > 1 {
		return d, 0, true, refused("is one of several volumes; pack it as one file")
	}
	larger, valid := d.parseZip64(p)
	if !valid || at != uint64(before) {
		return d, 0, true, refused("is damaged: its zip64 record is invalid")
	}
	return larger, before, true, nil
}

// parseZip64 parses the fields of the zip64 record, which must not contradict those of the end record.
func (d zipDirectory) parseZip64(p []byte) (larger zipDirectory, valid bool) {
	agree := func(small, limit, great uint64) bool { return small == limit || small == great }
	if string(p[:4]) != magicEnd64 {
		return d, false
	}
	n := fieldReader(p[4:])
	length := n.u64()
	_ = n.u32() // versions
	disks := [2]uint32{n.u32(), n.u32()}
	here, all, size, offset := n.u64(), n.u64(), n.u64(), n.u64()
	valid = length == end64Len-12 && disks == [2]uint32{} && here == all && size <= math.MaxInt64 &&
		offset <= math.MaxInt64 &&
		agree(d.entries, math.MaxUint16, all) && agree(uint64(d.size), math.MaxUint32, size) &&
		agree(uint64(d.offset), math.MaxUint32, offset)
	return zipDirectory{entries: all, size: int64(size), offset: int64(offset)}, valid
}

// each reads the directory and passes every entry to take.
func (d zipDirectory) each(w *walk, from io.ReaderAt, take func(h zipHeader, index int) error) error {
	r := bufio.NewReaderSize(io.NewSectionReader(from, d.offset, d.size), copyBufferSize)
	w.entries = 0
	last := ""
	for i := range d.entries {
		if err := w.count(); err != nil {
			return err
		}
		h, err := readHeader(r)
		if err != nil {
			return zipProblem(err, last)
		}
		last = h.name
		if err := take(h, int(i)); err != nil {
			return err
		}
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return refused("is damaged: its zip directory has more than the %d entries that its end record states",
			d.entries)
	}
	return nil
}

func zipProblem(err error, last string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refused("is damaged: its zip directory ends%s", afterEntry(last))
	}
	return err
}

func readHeader(r io.Reader) (zipHeader, error) {
	var p [directoryLen]byte
	if _, err := io.ReadFull(r, p[:]); err != nil {
		return zipHeader{}, err
	}
	if string(p[:4]) != magicDirectory {
		return zipHeader{}, refused("is damaged: its zip directory has an invalid header")
	}
	h := zipHeader{creator: p[5]}
	n := fieldReader(p[8:])
	h.flags, h.method = n.u16(), n.u16()
	clock, date := n.u16(), n.u16()
	h.crc, h.packed, h.size = n.u32(), uint64(n.u32()), uint64(n.u32())
	nameLen, extraLen, commentLen := int(n.u16()), int(n.u16()), int(n.u16())
	disk := n.u16()
	_ = n.u16() // internal attributes
	h.attributes, h.offset = n.u32(), uint64(n.u32())
	rest := make([]byte, nameLen+extraLen+commentLen)
	if _, err := io.ReadFull(r, rest); err != nil {
		return zipHeader{}, err
	}
	h.name, h.extra = string(rest[:nameLen]), rest[nameLen:nameLen+extraLen]
	h.modified = dosTime(date, clock)
	if disk != 0 && disk != math.MaxUint16 {
		return zipHeader{}, refusedEntry(h.name, "lies in another volume; pack the archive as one file")
	}
	return h, h.readExtra()
}

// readExtra reads zip64 sizes and the modification time from the header's extra fields.
func (h *zipHeader) readExtra() error {
	large := false
	for rest := fieldReader(h.extra); len(rest) >= 4; {
		id, size := rest.u16(), int(rest.u16())
		if size > len(rest) {
			return nil // Other readers treat this as padding too.
		}
		field := fieldReader(rest[:size])
		rest = rest[size:]
		switch id {
		case extraZip64:
			if large {
				return refusedEntry(h.name, "has two zip64 fields")
			}
			large = true
			for _, value := range []*uint64{&h.size, &h.packed, &h.offset} {
				if *value != math.MaxUint32 {
					continue
				}
				if len(field) < 8 {
					return refusedEntry(h.name, "has an invalid zip64 field")
				}
				*value = field.u64()
			}
		case extraTime:
			if len(field) >= 5 && field[0]&1 != 0 {
				field = field[1:]
				h.modified = time.Unix(int64(int32(field.u32())), 0)
			}
		}
	}
	return nil
}

// dosTime interprets a DOS time as UTC: the archive does not contain its time zone.
func dosTime(date, clock uint16) time.Time {
	return time.Date(1980+int(date>>9), time.Month(date>>5&0xf), int(date&0x1f), int(clock>>11), int(clock>>5&0x3f),
		int(clock&0x1f)*2, 0, time.UTC)
}

// locate reads the local header before an entry's data, which must match the directory.
func locate(from io.ReaderAt, h zipHeader, directory int64) (span, error) {
	damaged := func(what string) (span, error) {
		return span{}, refusedEntry(h.name, "has %s in the zip directory than in its own header", what)
	}
	if h.offset > uint64(directory) || h.packed > uint64(directory) {
		return span{}, refusedEntry(h.name, "lies outside the archive")
	}
	at := int64(h.offset)
	var p [localLen]byte
	if _, err := from.ReadAt(p[:], at); err != nil || string(p[:4]) != magicLocal {
		return span{}, refusedEntry(h.name, "has no header where the zip directory says")
	}
	n := fieldReader(p[6:])
	flags, method := n.u16(), n.u16()
	n = n[4:]
	crc, packed, size := n.u32(), n.u32(), n.u32()
	nameLen, extraLen := int(n.u16()), int(n.u16())
	name := make([]byte, nameLen)
	if _, err := from.ReadAt(name, at+localLen); err != nil {
		return span{}, refusedEntry(h.name, "has no header where the zip directory says")
	}
	streamed := (flags|h.flags)&flagStreamed != 0
	// The local sizes of a streamed entry follow its data; those of a zip64 entry are in its extra field. The
	// directory's sizes are checked anyway.
	same := func(local uint32, global uint64) bool {
		return uint64(local) == global || streamed && local == 0 || local == math.MaxUint32
	}
	data := at + localLen + int64(nameLen) + int64(extraLen)
	s := span{from: at, data: data, to: data + int64(h.packed)}
	switch {
	case string(name) != h.name:
		return damaged(fmt.Sprintf("another name (%s)", quotedName(string(name))))
	case method != h.method:
		return damaged("another compression")
	case (flags|h.flags)&flagEncrypted != 0:
		return span{}, refusedEntry(h.name, "is encrypted")
	case h.method != methodStore && h.method != methodDeflate:
		return span{}, refusedEntry(h.name, "is compressed by the zip method %d; only stored and deflated entries "+
			"are supported", h.method)
	case !same(packed, h.packed) || !same(size, h.size):
		return damaged("another size")
	case crc != h.crc && (!streamed || crc != 0):
		return damaged("another checksum")
	case s.to > directory:
		return span{}, refusedEntry(h.name, "lies outside the archive")
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
func (w *walk) zipEntry(from io.ReaderAt, h zipHeader, s span) error {
	e := entry{name: h.name, modified: h.modified, size: int64(min(h.size, math.MaxInt64))}
	var err error
	if e.kind, e.mode, err = h.kind(); err != nil {
		return err
	}
	content := &stream{ctx: w.ctx, from: newZipContent(io.NewSectionReader(from, s.data, s.to-s.data), h),
		limit: math.MaxInt64}
	e.content = content
	switch e.kind {
	case folder:
		// Some programs deflate empty content, so only the end of the data shows that there is none.
		if h.size != 0 {
			return refusedEntry(h.name, "is a folder with content")
		}
		_, err = io.Copy(io.Discard, content)
	case symlink:
		var target []byte
		target, err = io.ReadAll(io.LimitReader(content, maxTarget+1))
		e.target = string(target)
		if err == nil && len(target) <= maxTarget {
			_, err = io.Copy(io.Discard, content)
		}
	}
	if err != nil {
		return err
	}
	return w.add(e)
}

// kind returns an entry's type and mode. Only Unix programs store a mode; otherwise the name decides.
func (h zipHeader) kind() (kind, fs.FileMode, error) {
	const (
		typeMask = 0o170000
		typeLink = 0o120000
		typeFile = 0o100000
		typeDir  = 0o040000
	)
	unix := h.attributes >> 16
	if h.creator != creatorUnix && h.creator != creatorMacOS {
		unix = 0
	}
	named := strings.HasSuffix(h.name, "/")
	mode := fs.FileMode(unix & 0o777)
	switch unix & typeMask {
	case 0, typeFile:
		if named {
			return folder, defaultMode, nil
		}
		if unix == 0 {
			mode = 0o644
		}
		return file, mode, nil
	case typeDir:
		return folder, mode, nil
	case typeLink:
		if named {
			return "", 0, refusedEntry(h.name, "is a symbolic link with the name of a folder")
		}
		return symlink, mode, nil
	}
	return "", 0, refusedEntry(h.name, "is a device, a FIFO or a socket")
}

// zipContent is an entry's data. It ends without an error only if the size, the checksum and the end of the packed data
// are right.
type zipContent struct {
	name      string
	packed    *bufio.Reader
	unpacked  io.Reader
	remaining uint64
	size      uint64
	sum       uint32
	crc       uint32
	err       error
}

func newZipContent(packed io.Reader, h zipHeader) *zipContent {
	c := &zipContent{name: h.name, packed: bufio.NewReader(packed), remaining: h.size, size: h.size, crc: h.crc}
	c.unpacked = c.packed
	if h.method == methodDeflate {
		// flate reads no byte more than it needs from a bufio.Reader.
		c.unpacked = flate.NewReader(c.packed)
	}
	return c
}

func (c *zipContent) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.unpacked.Read(p)
	if uint64(n) > c.remaining {
		n, err = int(c.remaining), refusedEntry(c.name, "has more than the %d bytes that its header states", c.size)
	}
	c.remaining -= uint64(n)
	c.sum = crc32.Update(c.sum, crc32.IEEETable, p[:n])
	c.err = c.finish(err)
	return n, c.err
}

// finish turns errors into an *Error, and checks at the end that the content is complete.
func (c *zipContent) finish(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refusedEntry(c.name, "is truncated")
	case errors.As(err, &corrupt):
		return refusedEntry(c.name, "is damaged: it can't be decompressed (%s)", err)
	case !errors.Is(err, io.EOF):
		return err
	case c.remaining > 0:
		return refusedEntry(c.name, "has %d bytes less than its header states", c.remaining)
	case c.sum != c.crc:
		return refusedEntry(c.name, "is damaged: it doesn't have its checksum")
	}
	if _, more := c.packed.ReadByte(); more == nil {
		return refusedEntry(c.name, "has other data after its compressed data")
	}
	return err
}
