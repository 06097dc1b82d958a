package plan

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

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
	found := &strictyaml.Findings{}
	if f.file != "" {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return fmt.Errorf("--times: %w", err)
		}
		root, of, ok := strictyaml.Parse(text)
		if found = of; ok {
			f.Times = window.Read(root.Mapping(window.Keys...))
		}
	}
	if f.notBefore != "" {
		if f.NotBefore != "" {
			return errors.New("--not-before: the file of --times says notBefore too: keep one")
		}
		f.NotBefore = f.notBefore
	}
	f.CheckTimes("", found)
	if wrong := found.Sorted(); len(wrong) > 0 {
		return fmt.Errorf("the times cannot be kept:\n%w", wrong)
	}
	return nil
}
