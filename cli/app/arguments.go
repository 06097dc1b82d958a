package app

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// ExactName accepts exactly one name; what is "a task", argument its name in the usage line.
func ExactName(what, argument string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("one %s at a time, not %d", argument, len(args))
		}
		return SomeNames(what, argument)(c, args)
	}
}

// SomeNames accepts one name or more. A name stands in a path of the API, which what is no name would change.
func SomeNames(what, argument string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("name %s: %s is missing", what, argument)
		}
		for _, name := range args {
			if strings.Trim(name, ".") == "" || strings.ContainsAny(name, "/\\?#% \t\n") {
				return fmt.Errorf("%q is not the %s of %s", name, argument, what)
			}
		}
		return nil
	}
}
