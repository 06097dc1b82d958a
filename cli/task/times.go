package task

import (
	"os"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/window"
)

// TimesFlags are the flags for when services may start.
type TimesFlags struct {
	window.Times
	notBefore, file string
}

// Register adds the flags to a command.
func (f *TimesFlags) Register(command *cobra.Command) {
	command.Flags().StringVar(&f.notBefore, "not-before", "",
		"do not start before this `time`, such as 2026-12-01T06:00:00+01:00")
	command.Flags().StringVar(&f.file, "times", "", "`file` with notBefore, windows and freezes")
	_ = command.MarkFlagFilename("times", "yaml", "yml", "json")
}

// Read parses the flags and the file, and returns all errors in them.
func (f *TimesFlags) Read() error {
	flag, own := window.Times{NotBefore: f.notBefore}, &strictyaml.Findings{}
	flag.CheckTimes("", own)
	for _, wrong := range own.Sorted() {
		return app.Usagef("--not-before: %s", wrong.Reason)
	}
	if f.file == "" {
		f.Times = flag
		return nil
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return app.Usagef("--times: %w", err)
	}
	root, found, ok := strictyaml.Parse(text)
	if ok {
		f.Times = window.Read(root.Mapping(window.Keys...))
	}
	if f.NotBefore != "" && f.notBefore != "" {
		return app.Usagef("notBefore is set both in %s and by --not-before: use only one of them", f.file)
	}
	f.NotBefore += f.notBefore
	f.CheckTimes("", found)
	if wrong := found.Sorted(); len(wrong) > 0 {
		return app.Usagef("invalid times in %s:\n%w", f.file, wrong)
	}
	return nil
}

// CommandArgs returns the flags for repeating the command, each preceded by a space.
func (f *TimesFlags) CommandArgs() (all string) {
	if f.notBefore != "" {
		all += " --not-before " + f.notBefore
	}
	if f.file != "" {
		all += " --times " + f.file
	}
	return all
}
