package archive_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/archive"
	"slipway.io/slipway/release/source"
)

var small = source.Limits{Bytes: 1 << 20, UnpackedBytes: 256 << 10, Entries: 300}

// hostile is an archive that is refused.
type hostile struct {
	reason  string
	archive []byte
	want    string
	limits  source.Limits
}

const (
	unixFile = 0o100644
	unixLink = 0o120777
)

// paths are names that are refused in the same way in every format.
func paths() map[string]hostile {
	cases := map[string]hostile{}
	names := []struct{ title, reason, name, want string }{
		{"Traversal", "a name that leads out of the folder", "../evil",
			`entry "../evil" leaves the folder: its name has ".."`},
		{"TraversalInside", "a name that leads out after it led in", "a/../../evil",
			`leaves the folder: its name has ".."`},
		{"TraversalThatStays", "a name with .. that stays inside is harmless, but has no legitimate use", "a/../b",
			`its name has ".."`},
		{"TraversalAtTheEnd", "the parent folder does not belong to the archive", "a/..", `its name has ".."`},
		{"Absolute", "an absolute path", "/etc/passwd", "leaves the folder: its name is an absolute path"},
		{"AbsoluteTwice", "two slashes are an absolute path as well", "//etc/passwd",
			"leaves the folder: its name is an absolute path"},
		{"Drive", "Windows treats it as another disk", `C:/evil`, "has a name that begins with a drive letter"},
		{"Backslash", "Windows treats it as a slash", `..\evil`, "has a name that has a backslash"},
		{"NewLine", "it could forge log lines", "a\nb", "has a name that has a control character"},
		{"Escape", "it could overwrite lines of a terminal", "a\x1b[2Kb", "has a name that has a control character"},
		{"Delete", "DEL is a control character too", "a\x7f", "has a name that has a control character"},
		{"C1", "control characters beyond ASCII", "a\u009bb", "has a name that has a control character"},
		{"NotUTF8", "the encoding is unknown", "a\xff", "has a name that isn't UTF-8"},
		{"OnlySlashDot", "a file can't be the folder itself", "./.", "is a file with the name of the folder itself"},
	}
	for _, n := range names {
		cases["Tar"+n.title] = hostile{reason: n.reason, archive: tarOf(tarPart{name: n.name, body: "x"}), want: n.want}
		cases["Zip"+n.title] = hostile{reason: n.reason, archive: zipOf(zipPart{name: n.name, body: "x"}), want: n.want}
	}
	long := []struct{ title, reason, name, want string }{
		{"LongPart", "no file system accepts it", strings.Repeat("n", 256),
			"has a part of 256 bytes in its name; at most 255 are possible"},
		{"LongPath", "Linux can't open it", strings.Repeat(strings.Repeat("n", 200)+"/", 21),
			"has a name of 4221 bytes; at most 4096 are possible"},
		{"Deep", "a very deep tree breaks programs that walk it", deepPath(100),
			"lies 101 folders deep; at most 100 are possible"},
	}
	for _, n := range long {
		cases["Tar"+n.title] = hostile{reason: n.reason,
			archive: tarOf(tarPart{name: "x", body: "x", pax: paxRecord("path", strings.TrimSuffix(n.name, "/"))}),
			want:    strings.ReplaceAll(n.want, "4221", "4220")}
		cases["Zip"+n.title] = hostile{reason: n.reason, archive: zipOf(zipPart{name: n.name, body: ""}), want: n.want}
	}
	cases["ZipNUL"] = hostile{reason: "C programs see a shorter name than others",
		archive: zipOf(zipPart{name: "a\x00b", body: "x"}), want: "has a control character"}
	cases["ZipNoName"] = hostile{reason: "there is no name to write to", archive: zipOf(zipPart{name: "", body: "x"}),
		want: `entry "" has no name`}
	return cases
}

// trees are archives that are refused because of their other entries.
func trees() map[string]hostile {
	link := func(name, target string) tarPart { return tarPart{name: name, kind: '2', link: target} }
	hard := func(name, target string) tarPart { return tarPart{name: name, kind: '1', link: target} }
	f := func(name string) tarPart { return tarPart{name: name, body: "x"} }
	d := func(name string) tarPart { return tarPart{name: name, kind: '5', mode: 0o755} }
	tars := map[string]struct {
		reason string
		parts  []tarPart
		want   string
	}{
		"LinkAbsolute": {"following the link leaves the folder", []tarPart{link("l", "/etc/passwd")},
			`entry "l" is a symbolic link that leaves the folder: its target "/etc/passwd" is an absolute path`},
		"LinkOut": {"the same with a relative target", []tarPart{link("a/l", "../../x")},
			`entry "a/l" is a symbolic link to "../../x", which leaves the folder`},
		"LinkToAbove": {"the parent folder itself", []tarPart{link("l", "..")}, `leaves the folder`},
		"LinkChain": {"each link alone is harmless; together they lead out",
			[]tarPart{d("a/b"), link("x", "a/b"), link("y", "x/../../..")},
			`entry "y" is a symbolic link to "x/../../..", which leaves the folder`},
		"LinkChainLater": {"the link that makes the first one lead out comes after it",
			[]tarPart{link("deep/er/y", "../../x/../evil"), link("x", ".")},
			`entry "deep/er/y" is a symbolic link to "../../x/../evil", which leaves the folder`},
		"LinkCircle": {"it can't be followed", []tarPart{link("a", "b"), link("b", "a")},
			"leads through too many links, or in a circle"},
		"LinkToItself": {"the smallest circle", []tarPart{link("a", "a")},
			"leads through too many links, or in a circle"},
		"LinkBackslash": {"Windows treats it as a slash", []tarPart{link("l", `..\x`)}, "which has a backslash"},
		"LinkDrive": {"Windows treats it as another disk", []tarPart{link("l", `c:x`)},
			"which begins with a drive letter"},
		"LinkToNothing": {"no system supports it", []tarPart{link("l", "")}, "is a symbolic link to nothing"},
		"LinkLong": {"XFS doesn't support it",
			[]tarPart{{name: "l", kind: '2', pax: paxRecord("linkpath", strings.Repeat("n/", 600))}},
			"with a target of more than 1023 bytes"},
		"LinkWithContent": {"readers disagree about what follows",
			[]tarPart{{name: "l", kind: '2', link: "x", body: "x"}}, "is a symbolic link with content"},
		"BelowLink": {"the file would be written where the link points",
			[]tarPart{d("a"), link("l", "a"), f("l/evil")}, `entry "l/evil" lies below "l", which is a symbolic link`},
		"BelowLinkOut": {"the classic: a link out of the folder, then a file below it",
			[]tarPart{link("l", "../outside"), f("l/evil")}, `entry "l/evil" lies below "l", which is a symbolic link`},
		"FolderOverLink": {"some programs treat the link as the folder", []tarPart{link("l", "a"), d("l")},
			"is in the archive twice, as a symbolic link and as a folder"},
		"FileOverLink": {"a file written through a link ends up elsewhere", []tarPart{link("l", "a"), f("l")},
			"is in the archive twice, as a symbolic link and as a file"},
		"BelowFile": {"a file has nothing below it", []tarPart{f("a"), f("a/b")},
			`entry "a/b" lies below "a", which is a file`},
		"Twice": {"two files of one name are ambiguous", []tarPart{f("a"), f("a")},
			`entry "a" is in the archive twice, as a file and as a file`},
		"TwiceBySpelling": {"two spellings of one name", []tarPart{f("a/b"), f("./a//b")},
			"is in the archive twice"},
		"FileThenFolder": {"one name can't be a file and a folder", []tarPart{f("a"), d("a")},
			"is in the archive twice, as a file and as a folder"},
		"Case": {"one of the two is lost on case-insensitive file systems",
			[]tarPart{f("README"), f("readme")},
			`entry "readme" differs from "README" only by case or by the form of its letters`},
		"CaseOfFolder": {"the folders are not entries themselves", []tarPart{f("Lib/a"), f("lib/b")},
			`entry "lib/b" differs from "Lib" only by case`},
		"CasePastASCII": {"case is not only that of ASCII",
			[]tarPart{{name: "x", pax: paxRecord("path", "STRASSE")}, {name: "x", pax: paxRecord("path", "straße")}},
			"differs from"},
		"Normalisation": {"the same letters, composed and not",
			[]tarPart{{name: "x", pax: paxRecord("path", "\u00e9")}, {name: "x", pax: paxRecord("path", "e\u0301")}},
			"differs from"},
		"CaseInJar": {"classes of a jar may differ by case, and the error says how to keep it as one file",
			[]tarPart{f("META-INF/MANIFEST.MF"), f("a.class"), f("A.class")},
			"if this is a jar or war, set unpack: false to keep it as one file"},
		"HardLinkOut": {"a link to a file outside the archive", []tarPart{hard("h", "../outside/secret")},
			`entry "h" is a hard link to "../outside/secret", which no entry can be`},
		"HardLinkAbsolute": {"the same with an absolute path", []tarPart{hard("h", "/etc/passwd")},
			"which no entry can be"},
		"HardLinkLater": {"its target comes after it", []tarPart{hard("h", "a"), f("a")},
			`which isn't in the archive before it`},
		"HardLinkToLink": {"it would link to what the symbolic link points to",
			[]tarPart{link("l", "a"), hard("h", "l")}, `is a hard link to "l", which is a symbolic link, not a file`},
		"HardLinkBelowLink": {"the link leads elsewhere", []tarPart{f("d/a"), link("l", "d"), hard("h", "l/a")},
			`which isn't in the archive before it`},
		"HardLinkToFolder": {"no system supports it", []tarPart{d("a"), hard("h", "a")},
			`which is a folder, not a file`},
		"HardLinkToItself": {"a file without content", []tarPart{hard("h", "h")}, `which is a hard link, not a file`},
		"HardLinkCase": {"its target differs by case", []tarPart{f("A"), hard("h", "a")},
			`which isn't in the archive before it`},
		"HardLinkContent": {"readers disagree about what follows",
			[]tarPart{f("a"), {name: "h", kind: '1', link: "a", body: "x"}}, "is a hard link with content"},
		"CharDevice": {"a device gives access to the kernel", []tarPart{{name: "dev", kind: '3'}},
			`entry "dev" is a device`},
		"BlockDevice": {"a device gives access to the disk", []tarPart{{name: "dev", kind: '4'}}, `is a device`},
		"FIFO":        {"opening it blocks", []tarPart{{name: "pipe", kind: '6'}}, `is a FIFO`},
		"UnknownType": {"the type is unknown", []tarPart{{name: "what", kind: 'Z'}},
			`is of the unknown type 'Z'`},
		"VolumeLabel": {"part of a set of tapes", []tarPart{{name: "tape", kind: 'V'}},
			`is of the unknown type 'V'`},
		"SparsePAX": {"a small archive becomes a large file",
			[]tarPart{{name: "s", body: "1\n0\n1\n",
				pax: paxRecord("GNU.sparse.major", "1") + paxRecord("GNU.sparse.minor", "9") +
					paxRecord("GNU.sparse.realsize", "99999999")}}, "is a sparse file"},
		"SparseStar": {"the same, as star writes it",
			[]tarPart{{name: "s", body: "x", pax: paxRecord("SCHILY.realsize", "99999999")}}, "is a sparse file"},
		"GlobalPath": {"some readers rename every entry after it, others don't",
			[]tarPart{{name: "g", kind: 'g', body: paxRecord("path", "evil")}, f("a")},
			`is a global header that sets the path of all entries`},
		"FileWithFolderName": {"some programs create a folder", []tarPart{f("a/")},
			"is a file with the name of a folder"},
		"FolderWithContent": {"readers disagree about what follows", []tarPart{{name: "a/", kind: '5', body: "x"}},
			"is a folder with content"},
	}
	cases := map[string]hostile{}
	for name, c := range tars {
		cases["Tar"+name] = hostile{reason: c.reason, archive: tarOf(c.parts...), want: c.want}
	}
	zips := map[string]struct {
		reason string
		parts  []zipPart
		want   string
	}{
		"LinkOut": {"the content of a zip link is its target",
			[]zipPart{{name: "l", body: "../x", mode: unixLink}},
			`entry "l" is a symbolic link to "../x", which leaves the folder`},
		"LinkAbsolute": {"the same with an absolute path", []zipPart{{name: "l", body: "/etc", mode: unixLink}},
			"is an absolute path"},
		"LinkLong": {"a target of megabytes is not read",
			[]zipPart{{name: "l", body: strings.Repeat("x/", 5000), mode: unixLink}},
			"with a target of more than 1023 bytes"},
		"LinkFolder": {"the name contradicts the mode", []zipPart{{name: "l/", body: "x", mode: unixLink}},
			"is a symbolic link with the name of a folder"},
		"BelowLink": {"the file would be written where the link points",
			[]zipPart{{name: "l", body: "a", mode: unixLink}, {name: "l/evil", body: "x"}}, "which is a symbolic link"},
		"Device": {"a device gives access to the kernel", []zipPart{{name: "dev", mode: 0o020666}},
			"is a device, a FIFO or a socket"},
		"FIFO": {"opening it blocks", []zipPart{{name: "pipe", mode: 0o010666}},
			"is a device, a FIFO or a socket"},
		"Socket": {"a socket has no content", []zipPart{{name: "socket", mode: 0o140666}},
			"is a device, a FIFO or a socket"},
		"Twice": {"some readers use the first, others the last",
			[]zipPart{{name: "a", body: "1"}, {name: "a", body: "2"}}, "is in the archive twice"},
		"Case": {"one of the two is lost on case-insensitive file systems",
			[]zipPart{{name: "A", body: "1"}, {name: "a", body: "2"}}, "differs from"},
		"FolderContent": {"a folder can't have content", []zipPart{{name: "a/", body: "x"}},
			"is a folder with content"},
	}
	for name, c := range zips {
		cases["Zip"+name] = hostile{reason: c.reason, archive: zipOf(c.parts...), want: c.want}
	}
	return cases
}

// bombs are small archives that unpack to much data, and damaged or inconsistent ones.
func bombs() map[string]hostile {
	zeros := strings.Repeat("\x00", 300<<10)
	many, folders := make([]tarPart, 301), make([]tarPart, 4)
	for i := range many {
		many[i] = tarPart{name: fmt.Sprint("f", i), body: "x"}
	}
	for i := range folders {
		folders[i] = tarPart{name: fmt.Sprint(i, "/", strings.TrimSuffix(strings.Repeat("d/", 98), "/"), "/f"),
			body: "x"}
	}
	for i := range folders {
		folders[i].pax, folders[i].name = paxRecord("path", folders[i].name), "x"
	}
	var repeated []zipPart
	for range 301 {
		repeated = append(repeated, zipPart{name: "a/"})
	}
	names := make([]tarPart, 60)
	for i := range names {
		names[i] = tarPart{name: "x", pax: paxRecord("comment", strings.Repeat("c", 100<<10)) +
			paxRecord("path", fmt.Sprint("f", i))}
	}
	tarred := tarOf(tarPart{name: "a", body: zeros})
	return map[string]hostile{
		"TarBytes": {reason: "more bytes than the limit", archive: tarred,
			want: `entry "a" has 307200 bytes, with which the archive unpacks to more than the limit of 262144`},
		"TarSize": {reason: "an absurd size",
			archive: openTar(tarPart{name: "a", body: "x", size: 0o77777777777}),
			want:    "unpacks to more than the limit"},
		"GzipBytes": {reason: "300 KiB of zeros are 300 bytes", archive: gzipOf(tarred),
			want: "unpacks to more than the limit of 262144"},
		"ZstdBytes": {reason: "the same with zstd", archive: zstdOf(tarred),
			want: "unpacks to more than the limit of 262144"},
		"ZipBytes": {reason: "the same with zip", archive: zipOf(zipPart{name: "a", body: zeros}),
			want: "unpacks to more than the limit of 262144"},
		"ZipBytesOfAll": {reason: "each entry is within the limit, the sum is not",
			archive: zipOf(zipPart{name: "a", body: zeros[:200<<10]}, zipPart{name: "b", body: zeros[:100<<10]}),
			want:    `entry "b" has 102400 bytes`},
		"TarEntries": {reason: "every file needs an inode", archive: tarOf(many...),
			want: "has more than 300 entries"},
		"TarFolders": {reason: "every name implies 99 folders", archive: gzipOf(tarOf(folders...)),
			want: "has more than 300 entries, with the folders that their names imply"},
		"ZipEntries": {reason: "repeated folders count too", archive: zipOf(repeated...),
			want: "has 301 entries; the limit is 300"},
		"TarHeaders": {reason: "megabytes of comments, no content", archive: zstdOf(tarOf(names...)),
			want:   "unpacks to more than",
			limits: source.Limits{Bytes: 8 << 20, UnpackedBytes: 1 << 20, Entries: 61}},
		"TarPadding": {reason: "endless zeros after the end mark",
			archive: gzipOf(append(tarOf(tarPart{name: "a", body: "x"}), make([]byte, 2<<20)...)),
			want:    "bytes of padding after the end of the tar archive",
			limits:  source.Limits{Bytes: 1 << 20, UnpackedBytes: 8 << 20, Entries: 9}},
		"Size": {reason: "the package itself is too large", archive: bytes.Repeat([]byte("x"), 2<<20),
			want: "the archive has 2097152 bytes; the limit is 1048576"},
		"ZstdWindow": {reason: "a window of 256 MiB for a file of a few bytes", archive: window(28),
			want: "needs a zstd window of more than 128 MiB"},
		"ZipMoreThan": {reason: "the header states a smaller size, which the limit would count",
			archive: zipOf(zipPart{name: "a", body: zeros[:9000], size: 9}),
			want:    `entry "a" has more than the 9 bytes that its header states`},
		"ZipLessThan": {reason: "the rest of the file is missing",
			archive: zipOf(zipPart{name: "a", body: "123", size: 9}), want: "has 6 bytes less than its header states"},
		"ZipStoredLess": {reason: "the same without compression",
			archive: zipOf(zipPart{name: "a", body: "123", store: true, size: 9}),
			want:    "has 6 bytes less than its header states"},
		"ZipStoredMore": {reason: "the same without compression",
			archive: zipOf(zipPart{name: "a", body: "123456", store: true, size: 3}),
			want:    "has more than the 3 bytes"},
		"ZipOverlap": {reason: "many entries that share data unpack to much more",
			archive: zipOf(zipPart{name: "a", body: zeros[:9000]}, zipPart{name: "a", body: zeros[:9000], at: 1}),
			want:    "overlaps another entry"},
		"ZipQuoted": {reason: "an entry whose data holds the header of the next", archive: entryInsideEntry(),
			want: "overlaps another entry"},
		"ZipName": {reason: "readers that stream see another name than those that read the directory",
			archive: zipOf(zipPart{name: "good", localName: "../evil", body: "x"}),
			want:    `entry "good" has another name ("../evil") in the zip directory than in its own header`},
		"ZipLocalSize": {reason: "the same with its size",
			archive: zipOf(zipPart{name: "a", body: "xyz", localSize: 9}),
			want:    "has another size in the zip directory than in its own header"},
		"ZipEncrypted": {reason: "there is no password", archive: zipOf(zipPart{name: "a", body: "x", flags: 1}),
			want: `entry "a" is encrypted`},
		"ZipStrong": {reason: "the directory itself is encrypted",
			archive: zipOf(zipPart{name: "a", body: "x", flags: 1 << 13}), want: `is encrypted`},
		"ZipMethod": {reason: "bzip2 in zip is not supported everywhere",
			archive: zipOf(zipPart{name: "a", body: "x", method: 12}),
			want:    `is compressed by the zip method 12; only stored and deflated entries are supported`},
		"ZipCRC": {reason: "the content isn't what was packed",
			archive: zipOf(zipPart{name: "a", body: "x", crc: 7}),
			want:    `entry "a" is damaged: it doesn't have its checksum`},
		"ZipAfterData": {reason: "data is hidden behind the content",
			archive: zipOf(zipPart{name: "a", body: "x", extraData: "hidden"}),
			want:    "has other data after its compressed data"},
		"ZipDeflate": {reason: "no deflated data at all",
			archive: bytes.Replace(zipOf(zipPart{name: "a", body: "\x07more", store: true}),
				[]byte("\x14\x00\x00\x08\x00\x00"), []byte("\x14\x00\x00\x08\x08\x00"), 2),
			want: `is damaged: it can't be decompressed`},
		"ZipFewer": {reason: "the end record states fewer entries than the directory has",
			archive: zipWith(zipEnd{entries: -1}, zipPart{name: "a"}, zipPart{name: "b"}),
			want:    "has more than the 1 entries that its end record states"},
		"ZipMore": {reason: "the end record states more entries",
			archive: zipWith(zipEnd{entries: 1}, zipPart{name: "a"}), want: "its zip directory ends"},
		"ZipPlace": {reason: "the directory is at another offset",
			archive: zipWith(zipEnd{offset: 1}, zipPart{name: "a"}),
			want:    "its zip directory isn't where its end record says"},
		"ZipVolumes": {reason: "one of several volumes", archive: zipWith(zipEnd{disk: 1}, zipPart{name: "a"}),
			want: "is one of several volumes"},
		"ZipAfterEnd": {reason: "data follows the end", archive: append(zipOf(zipPart{name: "a"}), "more"...),
			want: "has other data after its end"},
		"Zip64Twice": {reason: "two zip64 fields contradict each other",
			archive: zipOf(zipPart{name: "a", extra: "\x01\x00\x00\x00\x01\x00\x00\x00"}),
			want:    "has two zip64 fields"},
		"Zip64Short": {reason: "the size is missing",
			archive: zipOf(zipPart{name: "a", size: 0xffffffff, extra: "\x01\x00\x02\x00ab"}),
			want:    "has an invalid zip64 field"},
		"Zip64Place": {reason: "the directory is at another offset, in zip64",
			archive: zipWith(zipEnd{zip64: true, size: 5}, zipPart{name: "a"}),
			want:    "its zip directory isn't where its end record says"},
		"ZipEmpty": {reason: "an empty package is certainly a mistake", archive: zipOf(),
			want: "the archive has no entries"},
		"TarEmpty": {reason: "an empty package is certainly a mistake", archive: tarOf(),
			want: "the archive has no entries"},
		"TarOnlyItself": {reason: "a folder without entries is empty too",
			archive: tarOf(tarPart{name: "./", kind: '5'}), want: "the archive has no entries"},
		"GzipEmpty": {reason: "an empty package is certainly a mistake", archive: gzipOf(tarOf()),
			want: "the archive has no entries"},
		"TarNoEnd": {reason: "the writer was killed between two entries",
			archive: openTar(tarPart{name: "a", body: "x"}),
			want:    `the archive is truncated after the entry "a": it has no end mark`},
		"TarHalfEnd": {reason: "the same, one block later",
			archive: append(openTar(tarPart{name: "a", body: "x"}), make([]byte, 512)...), want: "has no end mark"},
		"TarZeroFile": {reason: "zeros at the end of the last file are no end mark",
			archive: openTar(tarPart{name: "a", body: zeros[:4096]}), want: "has no end mark"},
		"GzipNoEnd": {reason: "the writer of the tar archive was killed, that of gzip wasn't",
			archive: gzipOf(openTar(tarPart{name: "a", body: "x"})), want: "has no end mark"},
		"TarAfterEnd": {reason: "some readers continue after the end",
			archive: append(tarOf(tarPart{name: "a"}), tarOf(tarPart{name: "../b"})...),
			want:    "has other data after the end of the tar archive"},
		"GzipAfterTar": {reason: "the same in a second gzip member",
			archive: append(gzipOf(tarOf(tarPart{name: "a"})), gzipOf(tarOf(tarPart{name: "b"}))...),
			want:    "has other data after the end of the tar archive"},
		"GzipAfterEnd": {reason: "data follows the compressed data",
			archive: append(gzipOf(tarOf(tarPart{name: "a"})), "more"...),
			want:    "has other data after the end of its gzip data"},
		"ZstdAfterEnd": {reason: "data follows the compressed data",
			archive: append(zstdOf(tarOf(tarPart{name: "a"})), "more and more"...),
			want:    "has other data after the end of its zstd data"},
		"ZstdAfterByte": {reason: "a single byte is detected", archive: append(zstdOf(tarOf(tarPart{name: "a"})), 'x'),
			want: "is truncated: its zstd data has no end"},
		"GzipCRC": {reason: "the content isn't what was packed",
			archive: flipped(gzipOf(tarOf(tarPart{name: "a", body: "x"})), -8),
			want:    "is damaged: its gzip data doesn't have its checksum or size"},
		"GzipSize": {reason: "the size isn't what was packed",
			archive: flipped(gzipOf(tarOf(tarPart{name: "a", body: "x"})), -1),
			want:    "is damaged: its gzip data doesn't have its checksum or size"},
		"ZstdCRC": {reason: "the content isn't what was packed",
			archive: flipped(zstdOf(tarOf(tarPart{name: "a", body: "x"}), zstd.WithEncoderCRC(true)), -1),
			want:    "is damaged: its zstd data doesn't have its checksum"},
		"TarChecksum": {reason: "a header of the second entry is damaged",
			archive: flipped(tarOf(tarPart{name: "a", body: "x"}, tarPart{name: "b", body: "x"}), 1024),
			want:    `the archive is damaged after the entry "a": a tar header is invalid`},
		"GzipOfHTML": {reason: "a compressed error page", archive: gzipOf([]byte("<html><body>not found")),
			want: "doesn't contain a tar archive: it looks like an HTML page, such as a login or error page: check " +
				"the URL that it comes from"},
		"GzipOfGzip": {reason: "compressed twice", archive: gzipOf(gzipOf(tarOf(tarPart{name: "a"}))),
			want: "doesn't contain a tar archive: it looks like gzip data"},
		"GzipOfNothing": {reason: "empty compressed data", archive: gzipOf(nil),
			want: "it is empty; set unpack: false"},
		"ZstdOfZip": {reason: "a compressed zip archive is not supported",
			archive: zstdOf(zipOf(zipPart{name: "a"})), want: "it looks like a damaged zip archive"},
		"NestedLinkName": {reason: "an error shows only the beginning of a long name",
			archive: tarOf(tarPart{name: "x", pax: paxRecord("path", "../"+strings.Repeat("é", 400))}),
			want:    `é…" leaves the folder`},
	}
}

// nonArchives are contents that are no archives.
func nonArchives() map[string]hostile {
	cases := map[string]hostile{}
	for name, c := range map[string][2]string{
		"Empty": {"", "it is empty"},
		"HTML": {"\ufeff\n <!DOCTYPE HTML><p>sign in",
			"it looks like an HTML page, such as a login or error page: check the URL that it comes from"},
		"XML":     {"<?xml version='1.0'?><Error>AccessDenied</Error>", "it looks like an XML document"},
		"JSON":    {` {"message": "not found"}`, "it looks like JSON"},
		"Text":    {"404 page not found\n", "it looks like text"},
		"Bzip2":   {"BZh91AY&SY", "it looks like bzip2 data"},
		"XZ":      {"\xfd7zXZ\x00\x00", "it looks like xz data"},
		"7z":      {"7z\xbc\xaf\x27\x1c", "it looks like a 7z archive"},
		"RAR":     {"Rar!\x1a\x07", "it looks like a RAR archive"},
		"Program": {"\x7fELF\x02\x01", "it looks like a Linux program"},
		"Script":  {"#!/bin/sh\necho", "it looks like a script"},
		"LFS":     {"version https://git-lfs.github.com/spec/v1\n", "it looks like a pointer of Git LFS"},
		"Random":  {"\x01\x02\x03\xff\xfe", "it is of an unknown format"},
	} {
		cases["Content"+name] = hostile{reason: "the error names the type of the content", archive: []byte(c[0]),
			want: "the archive isn't zip, tar, tar.gz or tar.zst: " + c[1]}
	}
	return cases
}

// window returns a zstd frame that needs a window of 2^log bytes.
func window(log byte) []byte {
	return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3, 1, 0, 0}
}

// entryInsideEntry returns a zip archive whose second entry lies in the data of the first.
func entryInsideEntry() []byte {
	inner := zipOf(zipPart{name: "b", body: "x", store: true})
	inner = inner[:bytes.Index(inner, []byte("PK\x01\x02"))]
	out := zipOf(zipPart{name: "a", body: string(inner), store: true},
		zipPart{name: "b", body: "x", store: true, at: 1})
	at := bytes.LastIndex(out, []byte("PK\x01\x02"))
	out[at+42] = byte(30 + len("a"))
	return out
}

func flipped(p []byte, at int) []byte {
	if at < 0 {
		at += len(p)
	}
	p[at] ^= 1
	return p
}

func corpus() map[string]hostile {
	all := map[string]hostile{}
	for _, cases := range []map[string]hostile{paths(), trees(), bombs(), nonArchives()} {
		for name, c := range cases {
			if c.limits == (source.Limits{}) {
				c.limits = small
			}
			all[name] = c
		}
	}
	return all
}

// sandbox is a folder to unpack into, inside a folder that is checked for changes.
type sandbox struct {
	dir     string
	file    *os.File
	outside map[string]string
}

func newSandbox(t testing.TB, content []byte) *sandbox {
	t.Helper()
	b := &sandbox{dir: t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(b.dir, "outside"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "outside", "secret"), []byte("secret"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "package"), content, 0o600))
	require.NoError(t, os.Mkdir(b.folder(), 0o755))
	var err error
	b.file, err = os.Open(filepath.Join(b.dir, "package"))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = b.file.Close()
		// Archives may make folders inaccessible, so that only root could delete their content.
		_ = filepath.WalkDir(b.folder(), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return err
		})
	})
	b.outside = b.snapshot(t)
	return b
}

func (b *sandbox) folder() string { return filepath.Join(b.dir, "folder") }

// snapshot records everything around the folder.
func (b *sandbox) snapshot(t testing.TB) map[string]string {
	seen := map[string]string{}
	require.NoError(t, filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == b.folder() {
			return filepath.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen[path] = info.Mode().String()
		if d.Type().IsRegular() {
			content, err := os.ReadFile(path)
			seen[path] += string(content)
			return err
		}
		return nil
	}))
	return seen
}

func (b *sandbox) unpack(t testing.TB, limits source.Limits) (archive.Info, error) {
	t.Helper()
	root, err := os.OpenRoot(b.folder())
	require.NoError(t, err)
	defer root.Close()
	info, err := archive.Unpack(context.Background(), b.file, root, limits)
	require.Equal(t, b.outside, b.snapshot(t), "nothing outside the folder changes")
	return info, err
}

// files lists the unpacked files with mode and content, and links with their targets.
func (b *sandbox) files(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(b.folder(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == b.folder() {
			return err
		}
		name, _ := filepath.Rel(b.folder(), path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		found[name] = info.Mode().String()
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			found[name] = "-> " + target
			return err
		case d.Type().IsRegular():
			content, err := os.ReadFile(path)
			found[name] += " " + string(content)
			return err
		}
		return nil
	}))
	return found
}

func TestHostileArchives_AreRefused(t *testing.T) {
	for name, c := range corpus() {
		t.Run(name, func(t *testing.T) {
			b := newSandbox(t, c.archive)
			_, checked := archive.Check(t.Context(), b.file, c.limits)
			assert.Empty(t, b.files(t), "Check writes nothing")
			_, unpacked := b.unpack(t, c.limits)
			require.ErrorContains(t, unpacked, c.want, c.reason)
			var typed *archive.Error
			require.ErrorAs(t, unpacked, &typed, c.reason)
			require.EqualError(t, checked, unpacked.Error(), "Check and Unpack return the same error")
			for name, content := range b.files(t) {
				require.False(t, strings.HasPrefix(content, "-> "), "%s: no link of a refused archive is created", name)
			}
		})
	}
}
