package plan

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/window"
)

// timesFlags are the flags on when services may begin.
type timesFlags struct {
	window.Times
	notBefore, file string
}

func (f *timesFlags) flags(command *cobra.Command) {
	command.Flags().StringVar(&f.notBefore, "not-before", "", "begin nothing before this `time`, such as 2026-12-01T06:00:00+01:00")
	command.Flags().StringVar(&f.file, "times", "", "a `file` with notBefore, windows and freezes")
	_ = command.MarkFlagFilename("times", "yaml", "yml", "json")
}

// read reads the flags, and says everything that is wrong with them.
func (f *timesFlags) read() error {
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
		return app.Usagef("--not-before: %s says notBefore too: keep one", f.file)
	}
	f.NotBefore += f.notBefore
	f.CheckTimes("", found)
	if wrong := found.Sorted(); len(wrong) > 0 {
		return app.Usagef("invalid times in %s:\n%w", f.file, wrong)
	}
	return nil
}

// timesText are the times of a plan, a line each; "" when it has none.
func timesText(times window.Times) string {
	var text strings.Builder
	if times.NotBefore != "" {
		fmt.Fprintf(&text, "not before %s\n", render.OneLine(times.NotBefore))
	}
	for _, w := range times.Windows {
		fmt.Fprintf(&text, "within a window %s\n", render.OneLine(w.String()))
	}
	for _, w := range times.Freezes {
		fmt.Fprintf(&text, "outside a freeze %s\n", render.OneLine(w.String()))
	}
	return text.String()
}
