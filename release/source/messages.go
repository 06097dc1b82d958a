package source

import "time"

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
