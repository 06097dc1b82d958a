// Package version contains the version of this build of Slipway.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set by the linker: -X slipway.io/slipway/cli/version.release=v1.2.3.
var release string

// unreleased is the version of a build without a release version.
const unreleased = "unreleased"

// Build describes a build of Slipway.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Built    string `json:"built,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// This returns this build, from the data that the linker and the Go tool stored in the binary.
func This() Build {
	b := Build{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Built = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = unreleased
	}
	return b
}

// ID identifies the build: its version, or its commit if it has no version.
func (b Build) ID() string {
	if b.Version != unreleased || b.Commit == "" {
		return b.Version
	}
	id := b.Commit[:min(len(b.Commit), shortCommit)]
	if b.Modified {
		id += "-dirty"
	}
	return id
}

// shortCommit is the number of digits of a commit in a build ID.
const shortCommit = 12

// UserAgent returns the User-Agent of requests to other servers.
func UserAgent() string { return "slipway/" + This().Version }

// String returns the build as one or two lines of text.
func (b Build) String() string {
	text := fmt.Sprintf("slipway %s (%s, %s)\n", b.Version, b.Go, b.Platform)
	if b.Commit == "" {
		return text
	}
	changed := ""
	if b.Modified {
		changed = ", with uncommitted changes"
	}
	return text + fmt.Sprintf("commit %s of %s%s\n", b.Commit, b.Built, changed)
}
