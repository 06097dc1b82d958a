package archive_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// tarPart is one entry of a crafted tar archive. The standard library's writer refuses much of what a hostile archive
// contains.
type tarPart struct {
	name, link, body string
	// kind is the type flag; 0: a regular file.
	kind byte
	mode int64
	// size is the size in the header; 0: that of the body.
	size int
	time int64
	// pax contains the records of an extended header before the entry.
	pax string
}

func tarOf(parts ...tarPart) []byte {
	return append(openTar(parts...), make([]byte, 1024)...)
}

// openTar returns a tar archive without end mark.
func openTar(parts ...tarPart) []byte {
	var out []byte
	for _, p := range parts {
		if p.pax != "" {
			out = append(out, tarEntry(tarPart{name: "pax", kind: 'x', body: p.pax})...)
		}
		out = append(out, tarEntry(p)...)
	}
	return out
}

func tarEntry(p tarPart) []byte {
	if p.kind == 0 {
		p.kind = '0'
	}
	if p.mode == 0 {
		p.mode = 0o644
	}
	if p.size == 0 {
		p.size = len(p.body)
	}
	if p.time == 0 {
		p.time = 1_700_000_000
	}
	var head [512]byte
	copy(head[:100], p.name)
	copy(head[100:], fmt.Sprintf("%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00        ", p.mode, 0, 0, p.size, p.time))
	head[156] = p.kind
	copy(head[157:257], p.link)
	copy(head[257:], "ustar\x0000")
	sum := 0
	for _, b := range head {
		sum += int(b)
	}
	copy(head[148:], fmt.Sprintf("%06o\x00 ", sum))
	out := append(head[:], p.body...)
	return append(out, make([]byte, (512-len(p.body)%512)%512)...)
}

// paxRecord returns one record of an extended header.
func paxRecord(key, value string) string {
	rest := " " + key + "=" + value + "\n"
	size := len(rest)
	for size != len(rest)+len(fmt.Sprint(size)) {
		size = len(rest) + len(fmt.Sprint(size))
	}
	return fmt.Sprint(size) + rest
}

func gzipOf(p []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(p)
	_ = w.Close()
	return out.Bytes()
}

func zstdOf(p []byte, options ...zstd.EOption) []byte {
	w, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, options...)...)
	if err != nil {
		panic(err)
	}
	return w.EncodeAll(p, nil)
}

// zipPart is one entry of a crafted zip archive. Zero fields get the right values.
type zipPart struct {
	name, body string
	// localName is the name in the entry's own header.
	localName string
	store     bool
	method    uint16
	flags     uint16
	// mode is the Unix mode, with the file type; 0: the archive's creator has none.
	mode uint32
	// size is the unpacked size in both headers, localSize the one in the entry's own header.
	size, localSize int
	crc             uint32
	// extraData is appended to the compressed data and counted as part of it.
	extraData string
	// at is the number of the entry whose data this one claims, counted from 1.
	at    int
	extra string
}

type zipEnd struct {
	// entries, size and offset are added to the right values in the end record.
	entries, size, offset int
	comment               string
	disk                  uint16
	zip64                 bool
}

func zipOf(parts ...zipPart) []byte { return zipWith(zipEnd{}, parts...) }

func zipWith(end zipEnd, parts ...zipPart) []byte {
	var out, directory []byte
	le := binary.LittleEndian
	offsets := make([]int, len(parts))
	for i, p := range parts {
		if p.localName == "" {
			p.localName = p.name
		}
		if !p.store && p.method == 0 {
			p.method = 8
		}
		data := []byte(p.body)
		if p.method == 8 {
			var packed bytes.Buffer
			w, _ := flate.NewWriter(&packed, flate.BestCompression)
			_, _ = w.Write(data)
			_ = w.Close()
			data = packed.Bytes()
		}
		data = append(data, p.extraData...)
		if p.size == 0 {
			p.size = len(p.body)
		}
		if p.localSize == 0 {
			p.localSize = p.size
		}
		if p.crc == 0 {
			p.crc = crc32.ChecksumIEEE([]byte(p.body))
		}
		offsets[i] = len(out)
		common := func(to []byte, size, nameLen, extraLen int) []byte {
			to = le.AppendUint16(to, 20)
			to = le.AppendUint16(to, p.flags|0x800)
			to = le.AppendUint16(to, p.method)
			to = le.AppendUint32(to, 0x57_6e_00_00)
			to = le.AppendUint32(to, p.crc)
			to = le.AppendUint32(to, uint32(len(data)))
			to = le.AppendUint32(to, uint32(size))
			to = le.AppendUint16(to, uint16(nameLen))
			return le.AppendUint16(to, uint16(extraLen))
		}
		if p.at == 0 {
			out = append(out, "PK\x03\x04"...)
			out = common(out, p.localSize, len(p.localName), 0)
			out = append(append(out, p.localName...), data...)
		} else {
			offsets[i] = offsets[p.at-1]
		}
		creator := uint16(20)
		if p.mode != 0 {
			creator |= 3 << 8
		}
		directory = append(directory, "PK\x01\x02"...)
		directory = le.AppendUint16(directory, creator)
		directory = common(directory, p.size, len(p.name), len(p.extra))
		directory = append(directory, make([]byte, 6)...)
		directory = le.AppendUint32(directory, p.mode<<16)
		directory = le.AppendUint32(directory, uint32(offsets[i]))
		directory = append(append(directory, p.name...), p.extra...)
	}
	return append(append(out, directory...), end.record(len(parts), len(directory), len(out))...)
}

func (e zipEnd) record(entries, size, offset int) []byte {
	le := binary.LittleEndian
	entries, size = entries+e.entries, size+e.size
	stated := offset + e.offset
	var out []byte
	if e.zip64 {
		out = append(out, "PK\x06\x06"...)
		out = le.AppendUint64(out, 44)
		out = append(out, make([]byte, 12)...)
		for _, v := range []int{entries, entries, size, stated} {
			out = le.AppendUint64(out, uint64(v))
		}
		out = append(out, "PK\x06\x07\x00\x00\x00\x00"...)
		out = le.AppendUint64(out, uint64(offset+size-e.size))
		out = le.AppendUint32(out, 1)
		entries, size, stated = 0xffff, 0xffffffff, 0xffffffff
	}
	out = append(out, "PK\x05\x06"...)
	out = le.AppendUint16(out, e.disk)
	out = le.AppendUint16(out, 0)
	out = le.AppendUint16(out, uint16(entries))
	out = le.AppendUint16(out, uint16(entries))
	out = le.AppendUint32(out, uint32(size))
	out = le.AppendUint32(out, uint32(stated))
	out = le.AppendUint16(out, uint16(len(e.comment)))
	return append(out, e.comment...)
}

// deepPath returns a path with so many folders.
func deepPath(folders int) string { return strings.Repeat("d/", folders) + "f" }
