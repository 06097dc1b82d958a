//go:build !unix

package packages

import "os"

// lockFile does nothing on systems without file locks that end with their process.
func lockFile(*os.File) error { return nil }

func unlockFile(*os.File) error { return nil }
