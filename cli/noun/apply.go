package noun

import (
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
)

// ApplyCommand is `apply`: it creates the objects of files, or replaces them. Every document is read before the first one is sent.
func (n *Noun[Item, Object]) ApplyCommand(long, example string, what manifest.Application) *cobra.Command {
	a := n.App
	what.Noun = n.Name
	var files []string
	var name string
	command := &cobra.Command{
		Use: "apply -f FILE", Short: "Create or replace " + n.plural(), Long: "Create or replace " + n.plural() + ". " + long, Example: example,
		Args: cobra.NoArgs,
	}
	flag, byFlag := strings.CutPrefix(what.NameFlag, "--")
	switch {
	case byFlag:
		command.Flags().StringVar(&name, flag, "",
			"`"+n.Argument+"` of the "+n.Name+", when the file holds its document alone (default: after the file)")
	case what.NameFlag != "":
		command.Use += " [" + what.NameFlag + "]"
		command.Args = cobra.MaximumNArgs(1)
	}
	command.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			name = args[0]
		}
		documents, err := what.Documents(a, files, name)
		if err != nil {
			return err
		}
		api, err := a.ConnectToWrite(c)
		if err != nil {
			return err
		}
		return what.Send(c.Context(), a, api, documents)
	}
	app.ClientFlags(command)
	manifest.FileFlag(command, &files)
	a.OutputFlag(command)
	n.flags(command)
	return command
}
