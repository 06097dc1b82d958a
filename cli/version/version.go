// Package version says which build of Slipway this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set by the linker: -X slipway.io/slipway/cli/version.release=v1.2.3.
var release string

// unreleased is the version of a build that has none.
const unreleased = "unreleased"

// Build says which build of Slipway this is.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Built    string `json:"built,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// This reads what the linker and the Go tool left in the binary.
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

// ID tells this build from others: its version, or the commit where it has none.
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

// shortCommit is how many digits of a commit name a build.
const shortCommit = 12

// UserAgent names this build to the servers that it talks to.
func UserAgent() string { return "slipway/" + This().Version }

// String tells a person, in a line or two.
func (b Build) String() string {
	text := fmt.Sprintf("slipway %s (%s, %s)\n", b.Version, b.Go, b.Platform)
	if b.Commit == "" {
		return text
	}
	changed := ""
	if b.Modified {
		changed = ", with changes that are not committed"
	}
	return text + fmt.Sprintf("commit %s of %s%s\n", b.Commit, b.Built, changed)
}
