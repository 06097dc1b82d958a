package app

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
)

// completionTimeout is how long a shell waits for names; a server that is away must not hold up the keyboard.
const completionTimeout = 2 * time.Second

// Lister asks the API for names, each with a tab and a note where there is something to say.
type Lister func(ctx context.Context, api *client.Client) ([]string, error)

// Complete completes the first argument with what the API knows.
func (a *App) Complete(list Lister) cobra.CompletionFunc {
	every := a.CompleteAll(list)
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return every(c, args, start)
	}
}

// CompleteAll completes every argument with what the API knows and is not there yet.
func (a *App) CompleteAll(list Lister) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(contextOf(c), completionTimeout)
		defer cancel()
		api, err := Connect(c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := list(ctx, api)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names = slices.DeleteFunc(names, func(entry string) bool {
			name, _, _ := strings.Cut(entry, "\t")
			return slices.Contains(args, name) || !strings.HasPrefix(name, start)
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// contextOf is the command's context; a shell's request for completions has none in every version of cobra.
func contextOf(c *cobra.Command) context.Context {
	if ctx := c.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
