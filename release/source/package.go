package source

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/phrase"
)

// Package is a code package to be deployed to a workload's pods (HTTP_UPLOAD_DEPLOY).
type Package struct {
	// URL is the address of the package. If Hidden is true, its query is left out and read again from item Item of task
	// Task: a query may hold a signature, and everything that reaches a workflow stays readable in its history.
	URL    string `json:"url"`
	Hidden bool   `json:"hidden,omitempty"`
	// Shown is the URL with secrets removed (Redact). Workflows cannot redact: workflowcheck does not consider URL
	// parsing deterministic.
	Shown string `json:"shown,omitempty"`
	Task  string `json:"task,omitempty"`
	// Item is counted from 1.
	Item int `json:"item,omitempty"`
	// Container is the container that gets the package, MountPath the path there.
	Container string `json:"container"`
	MountPath string `json:"mountPath"`
	// Credentials is the Secret with the source's credentials, in the workload's namespace; "": none.
	Credentials string `json:"credentials,omitempty"`
	// File is the name of the file if the package is not unpacked; "": it is unpacked.
	File string `json:"file,omitempty"`
	// Built is true if a build made it and reported its digest.
	Built bool `json:"built,omitempty"`
	// SHA256 is the digest of its bytes in hexadecimal, and Bytes their number; "" and 0 before the package is fetched.
	SHA256 string `json:"sha256,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// shownDigest is how many characters of a digest are shown to people.
const shownDigest = 12

// String returns the package for messages: "sha256:0123456789ab (12.5 MiB)".
func (p Package) String() string {
	if p.SHA256 == "" {
		return p.Shown
	}
	digest := "sha256:" + p.SHA256[:min(len(p.SHA256), shownDigest)]
	if p.Bytes == 0 { // only the digest is known: it was not fetched here
		return digest
	}
	return fmt.Sprintf("%s (%s)", digest, Size(p.Bytes))
}

// Describe names it in sentences about what a deploy deploys.
func (p Package) Describe() string { return "package " + p.String() }

// Marker returns the same text for two packages exactly if their pods are the same: the same bytes at the same path.
func (p Package) Marker() string {
	return p.SHA256 + "-" + digest.Of(p.Container, p.MountPath, p.File)[:8]
}

// Size formats a number of bytes: "12.5 MiB".
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

// HideQuery returns a URL without its query, and whether it had one.
func HideQuery(rawURL string) (withoutQuery string, hidden bool) {
	parsed, err := url.Parse(rawURL)
	if err != nil || parsed.RawQuery == "" {
		return rawURL, false
	}
	parsed.RawQuery = ""
	return parsed.String(), true
}

// FileOf returns the file name of a package that is not unpacked: the one in the catalogue, otherwise the last segment
// of the URL's path; "" if neither is a file name.
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

// maxFileName is the maximum length of a file name in bytes.
const maxFileName = 255

// ValidFile returns what is wrong with a file name.
func ValidFile(name string) error {
	switch {
	case len(name) > maxFileName:
		return fmt.Errorf("is too long: the name of a file has at most %d characters", maxFileName)
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%q is not the name of a file", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == '\\' || r < ' ' || r == 0x7f }):
		return fmt.Errorf("%q is not the name of a file: it has a slash, a backslash or a control character in it",
			name)
	}
	return nil
}

// Image is a container image, pinned by its digest, to be deployed to a workload's pods.
type Image struct {
	// Container is the container that gets it; "": the only container of the workload's pods.
	Container string `json:"container,omitempty"`
	// Reference is "repository@sha256:<hex>"; "" before it was built.
	Reference string `json:"reference,omitempty"`
}

// String returns the image with a shortened digest: "registry.example.com/order@sha256:0123456789ab".
func (i Image) String() string {
	repository, digest, ok := strings.Cut(i.Reference, "@"+digestPrefix)
	if !ok {
		return i.Reference
	}
	return repository + "@" + digestPrefix + digest[:min(len(digest), shownDigest)]
}

// Describe names it in sentences about what a deploy deploys.
func (i Image) Describe() string { return "image " + i.String() }

// Marker returns the same text for two images exactly if their pods are the same.
func (i Image) Marker() string { return "image-" + digest.Of(i.Container, i.Reference)[:32] }

// UnfitReason returns why the image cannot be put into a pod template, "" if it can.
func (i Image) UnfitReason(template map[string]any) string {
	names := containerNames(template)
	switch {
	case i.Container == "" && len(names) != 1:
		return fmt.Sprintf("it has the containers %s: set build.container in the catalogue to the one that gets the "+
			"built image", strings.Join(names, ", "))
	case i.Container != "" && !slices.Contains(names, i.Container):
		return fmt.Sprintf("it has no container %s for the built image: it has %s; name one of them by "+
			"build.container in the catalogue", i.Container, strings.Join(names, ", "))
	}
	return ""
}

// target returns the container that gets the image; nil if the template is unfit.
func (i Image) target(template map[string]any) map[string]any {
	if i.UnfitReason(template) != "" {
		return nil
	}
	for _, c := range jsonpatch.DigObjects(template, "spec", "containers") {
		if i.Container == "" || jsonpatch.DigString(c, "name") == i.Container {
			return c
		}
	}
	return nil
}

// PresentIn reports whether the image was put into a pod template and no relevant field of it has changed since.
func (i Image) PresentIn(template map[string]any) bool {
	return marked(template) == i.Marker() &&
		jsonpatch.DigString(i.target(template), "image") == i.Reference && !fetches(template, "")
}

// Put puts the image into a pod template for which UnfitReason is "". It removes an existing code package, which would
// hide the image's files.
func (i Image) Put(template map[string]any) {
	removePackage(template)
	jsonpatch.Put(template, jsonpatch.Annotation(AnnotationDeployed), i.Marker())
	i.target(template)["image"] = i.Reference
}

// WithoutTag returns an image without its tag. A colon before a slash belongs to a registry's port.
func WithoutTag(image string) string {
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		return image[:at]
	}
	return image
}

func containerNames(template map[string]any) []string {
	return phrase.Each(jsonpatch.DigObjects(template, "spec", "containers"), func(c map[string]any) string {
		return jsonpatch.DigString(c, "name")
	})
}

// The activities of a party's queue that fetch code.
const (
	// ActivityFetch fetches a package, checks it, and puts it into the party's store if there is one. FetchRequest →
	// Fetched.
	ActivityFetch = "source.Fetch"
	// ActivityConfirm checks that the URL of a fetched package still serves the same bytes. FetchRequest → Fetched.
	ActivityConfirm = "source.Confirm"
)

// FetchRequest asks a party's worker for a package.
type FetchRequest struct {
	Package
	// Party is the party whose worker fetches; Namespace is the namespace of the Secret with the credentials.
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	// Service is the service that the package is for, for messages.
	Service string `json:"service"`
	// DeadlineSeconds is the time limit for the source.
	DeadlineSeconds int64 `json:"deadlineSeconds"`
	// Previous is the package as this party fetched it before, for Confirm.
	Previous Fetched `json:"was,omitzero"`
}

// Fetched is a package that a party's worker has fetched.
type Fetched struct {
	SHA256 string `json:"sha256"`
	// Bytes is the size of the package. Entries and UnpackedBytes describe its content, 0 for a package that is not
	// unpacked.
	Bytes         int64 `json:"bytes"`
	Entries       int   `json:"entries,omitempty"`
	UnpackedBytes int64 `json:"unpackedBytes,omitempty"`
	// Format is zip, tar, tar.gz or tar.zst; "" for a package that is not unpacked.
	Format string `json:"format,omitempty"`
	// ETag and LastModified are from the source's response, to detect changes later.
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// FinalURL is the URL after redirects, redacted.
	FinalURL string `json:"finalUrl,omitempty"`
	// Stored is true if the party's store has the package.
	Stored bool `json:"stored,omitempty"`
	// At is when it was fetched.
	At time.Time `json:"at,omitzero"`
}

// The keys of a plan's item that contain the address of a source.
const (
	KeyPackage    = "httpSrcUri"
	KeyRepository = "compileRepoPath"
)

// Refusal is why something cannot be fetched or built; the zero value: no problem is known.
type Refusal struct {
	// Key is the key of the plan's item that is wrong, "" if the problem is elsewhere.
	Key    string
	Reason string
}

// Limits bound the resources that downloading and unpacking a package may take.
type Limits struct {
	// Bytes is the maximum size of the package itself.
	Bytes int64
	// UnpackedBytes is the maximum total size of its files.
	UnpackedBytes int64
	// Entries is the maximum number of its files, folders and links.
	Entries int
}

// DefaultLimits are the limits of a worker without settings, and of slipway fetch without flags.
var DefaultLimits = Limits{Bytes: 2 << 30, UnpackedBytes: 8 << 30, Entries: 200_000}

// The activities that remove unreferenced packages from a store.
const (
	// ActivityUnnamed lists packages of the party's store that nothing in its cluster references. UnreferencedRequest →
	// Unreferenced. It runs on a party's queue.
	ActivityUnnamed = "source.Unnamed"
	// ActivityUnrecorded returns which of these packages no record references. Unreferenced → Unreferenced. It runs on
	// the engine's queue.
	ActivityUnrecorded = "home.UnrecordedPackages"
	// ActivityRemove removes packages from the party's store, unless something references them again. Unreferenced →
	// Removed. It runs on a party's queue.
	ActivityRemove = "source.Remove"
)

// MaxUnreferenced is the maximum number of packages in one round: it bounds the payload.
const MaxUnreferenced = 500

// UnreferencedRequest requests the packages that nothing references.
type UnreferencedRequest struct {
	// After is the digest after which to continue, in order; "": from the start.
	After string `json:"after,omitempty"`
}

// Unreferenced are digests of packages, in order, at most MaxUnreferenced.
type Unreferenced struct {
	SHA256 []string `json:"sha256"`
	// Next is where the next round continues, "" if there is none.
	Next string `json:"next,omitempty"`
	// KeepSeconds is how long the party keeps an unreferenced package.
	KeepSeconds int64 `json:"keepSeconds,omitempty"`
}

// Removed is the number of removed packages.
type Removed struct {
	Packages int `json:"packages"`
}
