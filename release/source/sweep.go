package source

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
