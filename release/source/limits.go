package source

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
