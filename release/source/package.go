package source

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Package is a code package on its way to the pods of a workload (HTTP_UPLOAD_DEPLOY).
type Package struct {
	// URL is where the package comes from. Where Hidden says so its query is left out, and it is read again from item Item of task Task:
	// a query may hold a signature, and whatever reaches a workflow stays readable in its history.
	URL    string `json:"url"`
	Hidden bool   `json:"hidden,omitempty"`
	// Shown is the URL as it may be shown to everybody (Redact). Workflows can't redact: to parse a URL isn't deterministic by the rules of workflowcheck.
	Shown string `json:"shown,omitempty"`
	Task  string `json:"task,omitempty"`
	// Item is counted from 1.
	Item int `json:"item,omitempty"`
	// Container is the container that gets the package, MountPath where.
	Container string `json:"container"`
	MountPath string `json:"mountPath"`
	// Credentials is the Secret, in the workload's namespace, that opens the source; "": none.
	Credentials string `json:"credentials,omitempty"`
	// File is the name under which the package is kept whole; "": it is unpacked.
	File string `json:"file,omitempty"`
	// Built says that a build has made it, which has told its digest.
	Built bool `json:"built,omitempty"`
	// SHA256 is the digest of its bytes in hexadecimal, and Bytes their number; "" and 0 before the package was fetched.
	SHA256 string `json:"sha256,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// shownDigest is how many characters of a digest people are shown.
const shownDigest = 12

// String is the package as people read it: "sha256:0123456789ab (12.5 MiB)".
func (p Package) String() string {
	if p.SHA256 == "" {
		return p.Shown
	}
	digest := "sha256:" + p.SHA256[:min(len(p.SHA256), shownDigest)]
	if p.Bytes == 0 { // known by its digest alone: it was not fetched here
		return digest
	}
	return fmt.Sprintf("%s (%s)", digest, Size(p.Bytes))
}

// What is what a deploy of it brings, for sentences.
func (p Package) What() string { return "package " + p.String() }

// Marker is the same for two packages exactly when pods of one are pods of the other: the same bytes at the same place.
func (p Package) Marker() string {
	place := sha256.Sum256([]byte(strings.Join([]string{p.Container, p.MountPath, p.File}, "\x00")))
	return p.SHA256 + "-" + hex.EncodeToString(place[:4])
}

// Size is a number of bytes as people read it.
func Size(bytes int64) string {
	const unit = 1024
	if bytes < unit {
		return fmt.Sprintf("%d B", bytes)
	}
	value, units := float64(bytes)/unit, "KMGTPE"
	for value >= unit && len(units) > 1 {
		value, units = value/unit, units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}

// HideQuery is a URL without its query, and whether it had one.
func HideQuery(rawURL string) (withoutQuery string, hidden bool) {
	parsed, err := url.Parse(rawURL)
	if err != nil || parsed.RawQuery == "" {
		return rawURL, false
	}
	parsed.RawQuery = ""
	return parsed.String(), true
}

// FileOf is the name under which a package from a URL is kept whole: the one that the catalogue gives, else the last segment of the URL's
// path; "" when neither is the name of a file.
func FileOf(name, rawURL string) string {
	parsed, err := url.Parse(rawURL)
	if err != nil {
		return name
	}
	last := path.Base(path.Clean("/" + parsed.Path))
	if last == "/" || ValidFile(last) != nil {
		last = ""
	}
	return cmp.Or(name, last)
}

// maxFile is how many bytes the name of a file has at most.
const maxFile = 255

// ValidFile says what is wrong with the name of a file.
func ValidFile(name string) error {
	switch {
	case len(name) > maxFile:
		return fmt.Errorf("is too long: the name of a file has at most %d characters", maxFile)
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%q is not the name of a file", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == '\\' || r < ' ' || r == 0x7f }):
		return fmt.Errorf("%q is not the name of a file: it has a slash, a backslash or a control character in it", name)
	}
	return nil
}
