package source

// Limits bound what a package may cost whoever downloads and unpacks it.
type Limits struct {
	// Bytes is the largest size of the package itself.
	Bytes int64
	// UnpackedBytes is how much its files may take together.
	UnpackedBytes int64
	// Entries is how many files, folders and links it may have together.
	Entries int
}

// DefaultLimits are those of a worker without settings, and of slipway fetch without flags.
var DefaultLimits = Limits{Bytes: 2 << 30, UnpackedBytes: 8 << 30, Entries: 200_000}
