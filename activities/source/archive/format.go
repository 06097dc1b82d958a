package archive

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// blockSize is the unit of tar. sniffedBytes is how much of a file is read to recognise its format.
const (
	blockSize    = 512
	sniffedBytes = blockSize
)

// The magic bytes of formats.
const (
	magicGzip     = "\x1f\x8b"
	magicZstd     = "\x28\xb5\x2f\xfd"
	magicSkipped  = "\x2a\x4d\x18"
	magicLocal    = "PK\x03\x04"
	magicEnd      = "PK\x05\x06"
	magicSpanned  = "PK\x07\x08"
	magicTar      = "ustar"
	magicTarStart = 257
)

// formatOf recognises a format by the beginning of a file; empty: none that can be unpacked.
func formatOf(head []byte) string {
	switch {
	case hasPrefix(head, magicLocal), hasPrefix(head, magicEnd), hasPrefix(head, magicSpanned):
		return Zip
	case hasPrefix(head, magicGzip):
		return TarGzip
	case hasPrefix(head, magicZstd), len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == magicSkipped:
		return TarZstd
	case isTar(head):
		return Tar
	}
	return ""
}

func hasPrefix(head []byte, magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }

// isTar reports whether a file with this beginning is a tar archive: it starts with a header with a valid checksum, or
// with the end mark.
func isTar(head []byte) bool {
	if len(head) > magicTarStart+len(magicTar) && string(head[magicTarStart:magicTarStart+len(magicTar)]) == magicTar {
		return true
	}
	if len(head) < blockSize {
		return false
	}
	if allZero(head[:blockSize]) {
		return true
	}
	const from, to = 148, 156
	// Some old programs computed the sum of signed bytes.
	var unsigned, signed int64
	for i, b := range head[:blockSize] {
		if i >= from && i < to {
			b = ' '
		}
		unsigned += int64(b)
		signed += int64(int8(b))
	}
	sum, err := strconv.ParseInt(strings.Trim(string(head[from:to]), " \x00"), 8, 64)
	return err == nil && (sum == unsigned || sum == signed)
}

func allZero(p []byte) bool { return len(bytes.TrimLeft(p, "\x00")) == 0 }

// knownContents are types of content that users mistake for packages, with their magic bytes.
var knownContents = []struct{ magic, name string }{
	{"BZh", "bzip2 data"},
	{"\xfd7zXZ\x00", "xz data"},
	{"\x04\x22\x4d\x18", "LZ4 data"},
	{"7z\xbc\xaf\x27\x1c", "a 7z archive"},
	{"Rar!", "a RAR archive"},
	{"!<arch>\n", "an ar archive, such as a Debian package"},
	{"\xed\xab\xee\xdb", "an RPM package"},
	{"070701", "a cpio archive"},
	{"\x7fELF", "a Linux program"},
	{"MZ", "a Windows program"},
	{"\xca\xfe\xba\xbe", "a Java class"},
	{"%PDF", "a PDF document"},
	{"#!", "a script"},
	{"version https://git-lfs.github.com/", "a pointer of Git LFS, not the file itself"},
	{"PK", "a damaged zip archive"},
	{magicGzip, "gzip data"},
	{magicZstd, "zstd data"},
}

// looksLikeHTML is the result of describe for an HTML page, which servers often send instead of a package.
const looksLikeHTML = "it looks like an HTML page"

// describe says what content looks like that is not an archive.
func describe(head []byte) string {
	if len(head) == 0 {
		return "it is empty"
	}
	for _, k := range knownContents {
		if hasPrefix(head, k.magic) {
			return "it looks like " + k.name
		}
	}
	text := strings.ToLower(strings.TrimLeftFunc(strings.TrimPrefix(string(head), "\ufeff"), unicode.IsSpace))
	switch {
	case strings.HasPrefix(text, "<!doctype html"), strings.HasPrefix(text, "<html"), strings.HasPrefix(text, "<head"):
		return looksLikeHTML
	case strings.HasPrefix(text, "<"):
		return "it looks like an XML document"
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		return "it looks like JSON"
	case isText(head):
		return "it looks like text"
	}
	return "it is of an unknown format"
}

// isText reports whether the beginning of a file is UTF-8 text. It ignores a character that is cut off at the end.
func isText(head []byte) bool {
	for i := 0; i < utf8.UTFMax && len(head) > 0 && !utf8.Valid(head); i++ {
		head = head[:len(head)-1]
	}
	return utf8.Valid(head) && !bytes.ContainsFunc(head, func(r rune) bool {
		return unicode.IsControl(r) && !unicode.IsSpace(r)
	})
}
