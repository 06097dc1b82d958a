package noun

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
)

// Verb defines a command that controls a release, such as pause.
type Verb struct {
	Name, Short, Long string
	// Example is the part of the example after the verb: the name and the required flags. ExampleReason is the reason
	// in the example.
	Example, ExampleReason string
	// Complete completes the name.
	Complete app.Lister
	// Flags adds the flags of this verb, Check validates them; both may be nil.
	Flags func(*cobra.Command)
	Check func() error
	// Confirm, if not nil, shows what the verb will do and asks for confirmation.
	Confirm func(ctx context.Context, api *client.Client, name string) error
	// Send calls the API.
	Send func(ctx context.Context, api *client.Client, name string, who app.ActorFlags) (*http.Response, error)
	// RepeatArgs returns the name and flags for repeating the command.
	RepeatArgs func(name string) string
}

// Sender returns a Send function for a call of the generated client. It passes no parameters: the only one is the front
// door, which every request has as a header.
func Sender[Params, Body any](call func(*client.Client, context.Context, string, *Params, Body,
	...client.RequestEditorFn) (*http.Response, error),
) func(context.Context, *client.Client, string, Body) (*http.Response, error) {
	return func(ctx context.Context, api *client.Client, name string, body Body) (*http.Response, error) {
		return call(api, ctx, name, nil, body)
	}
}

// VerbCommand returns the command of a verb; stateText returns the object's state afterwards as text.
func (n *Noun[Item, Object]) VerbCommand(v Verb, stateText func(Object) string) *cobra.Command {
	var who app.ActorFlags
	command := &cobra.Command{
		Use:               v.Name + " " + n.Argument,
		Short:             v.Short,
		Long:              v.Long + " If the engine rejects the request, the reason is printed and the exit code is 1.",
		Example:           fmt.Sprintf("  slipway %s %s %s --reason %q", n.Command, v.Name, v.Example, v.ExampleReason),
		ValidArgsFunction: n.App.Complete(v.Complete),
	}
	n.initCommand(n.App.InitWriteCommand, command, v.Check,
		func(c *cobra.Command, api *client.Client, name string) error {
			who.SetDefaults()
			if v.Confirm != nil {
				if err := v.Confirm(c.Context(), api, name); err != nil {
					return err
				}
			}
			answer, err := apiclient.Read[Object](v.Send(c.Context(), api, name, who))
			if apiclient.OutcomeUnknown(err) {
				n.App.Printf(n.App.Err,
					"It is unknown whether the engine received the command. It is safe to repeat it "+
						"with the same key:\n  slipway %s "+
						"%s %s --key %s\n",
					n.Command, v.Name, v.RepeatArgs(name), who.Key)
			}
			if err != nil {
				return err
			}
			if done, err := n.App.PrintObject(answer.Raw); done || err != nil {
				return err
			}
			n.App.Printf(n.App.Out, "%s\n", stateText(answer.Value))
			return nil
		})
	who.Flags(command, "idempotency `key`: a command repeated with the same key is executed once")
	if v.Flags != nil {
		v.Flags(command)
	}
	return command
}

// WatchCommand returns `watch`, which watches a release; the exit code is the outcome.
func (n *Noun[Item, Object]) WatchCommand(long string, words follow.FlagTexts,
	watch func(ctx context.Context, api *client.Client, name string, o follow.Options) error) *cobra.Command {
	var options follow.Options
	command := &cobra.Command{Use: "watch " + n.Argument,
		Short: fmt.Sprintf("Watch %s %s", n.withArticle(), words.Until), Long: long}
	n.InitReadCommand(command, nil, func(c *cobra.Command, api *client.Client, name string) error {
		return watch(c.Context(), api, name, options)
	})
	options.Flags(command, words)
	return command
}
