package source

// The activities that take packages out of a store which nobody needs any more.
const (
	// ActivityUnnamed lists packages of the party's store that nothing in its cluster names. UnnamedRequest → Unnamed. A party's queue.
	ActivityUnnamed = "source.Unnamed"
	// ActivityUnrecorded says which of these packages no record names. Unnamed → Unnamed. The engine's queue.
	ActivityUnrecorded = "home.UnrecordedPackages"
	// ActivityRemove takes packages out of the party's store, unless something names them again. Unnamed → Removed. A party's queue.
	ActivityRemove = "source.Remove"
)

// MaxUnnamed is how many packages one round takes at most: it bounds a payload.
const MaxUnnamed = 500

// UnnamedRequest asks for packages that nothing names.
type UnnamedRequest struct {
	// After is the digest after which to look, in order: "" from the start.
	After string `json:"after,omitempty"`
}

// Unnamed are digests of packages, in order, at most MaxUnnamed.
type Unnamed struct {
	SHA256 []string `json:"sha256"`
	// Next is where the next round goes on, "" when there is none.
	Next string `json:"next,omitempty"`
	// KeepSeconds is how long the party keeps a package that nothing names.
	KeepSeconds int64 `json:"keepSeconds,omitempty"`
}

// Removed says how many packages were removed.
type Removed struct {
	Packages int `json:"packages"`
}
