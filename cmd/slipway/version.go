package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker: -X main.release=v1.2.3.
var release string

// build says which build of Slipway this is.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Built    string `json:"built,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// thisBuild reads what the linker and the Go tool left in the binary.
func thisBuild() build {
	b := build{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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
		b.Version = "unreleased"
	}
	return b
}

// String tells a person, in a line or two.
func (b build) String() string {
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

func (a *app) versionCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if done, err := a.printObject(output, b); done || err != nil {
				return err
			}
			a.printf(a.out, "%s", b)
			return nil
		},
	}
	outputFlag(command, &output)
	return command
}
