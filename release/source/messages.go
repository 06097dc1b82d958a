package source

import "time"

// The activities of a party's queue that fetch code.
const (
	// ActivityFetch fetches a package, checks it, and puts it into the party's store if there is one. FetchRequest → Fetched.
	ActivityFetch = "source.Fetch"
	// ActivityConfirm checks that a package that was fetched is still what its URL gives. FetchRequest → Fetched.
	ActivityConfirm = "source.Confirm"
)

// FetchRequest asks a party's worker for a package.
type FetchRequest struct {
	Package
	// Party is whose worker is asked, and Namespace where the Secret with the credentials is.
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	// Service is what the package is for, for sentences.
	Service string `json:"service"`
	// DeadlineSeconds is how long the source may take.
	DeadlineSeconds int64 `json:"deadlineSeconds"`
	// Was is the package as this party has fetched it, for Confirm.
	Was Fetched `json:"was,omitzero"`
}

// Fetched is a package that a party's worker has fetched.
type Fetched struct {
	SHA256 string `json:"sha256"`
	// Bytes is how many the package has; Entries and UnpackedBytes what is in it, 0 for one that is kept whole.
	Bytes         int64 `json:"bytes"`
	Entries       int   `json:"entries,omitempty"`
	UnpackedBytes int64 `json:"unpackedBytes,omitempty"`
	// Format is zip, tar, tar.gz or tar.zst; "" for one that is kept whole.
	Format string `json:"format,omitempty"`
	// ETag and LastModified are what the source answered, to ask later whether anything has changed.
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// FinalURL is where redirects led to, redacted.
	FinalURL string `json:"finalUrl,omitempty"`
	// Stored says that the party's store has the package.
	Stored bool `json:"stored,omitempty"`
	// At is when it was fetched.
	At time.Time `json:"at,omitzero"`
}

// The keys of a plan's item that say from where something is fetched.
const (
	KeyPackage    = "httpSrcUri"
	KeyRepository = "compileRepoPath"
)

// Refusal says why something can't be fetched or built; the zero value: nothing is known to be in its way.
type Refusal struct {
	// Key is that of the plan's item which is at fault, "" where something else is.
	Key    string
	Reason string
}
