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

// Verb is a command that steers a release, such as pause.
type Verb struct {
	Name, Short, Long string
	// Example is what the example gives after the verb: the name and the flags that it needs.
	Example, Because string
	// Complete completes the name.
	Complete app.Lister
	// Flags adds the flags of this verb, Check says what is wrong with them; both may be nil.
	Flags func(*cobra.Command)
	Check func() error
	// Confirm, unless it is nil, shows what the verb is about and asks whether that is meant.
	Confirm func(ctx context.Context, api *client.Client, name string) error
	// Send sends it.
	Send func(ctx context.Context, api *client.Client, name string, who app.Who) (*http.Response, error)
	// Again is the name, with the flags that the same command needs if it is to be repeated.
	Again func(name string) string
}

// Sender makes a Send of a call of the generated client. The client's parameters of a verb say the front door only, which every
// request does.
func Sender[Params, Body any](call func(*client.Client, context.Context, string, *Params, Body,
	...client.RequestEditorFn) (*http.Response, error),
) func(context.Context, *client.Client, string, Body) (*http.Response, error) {
	return func(ctx context.Context, api *client.Client, name string, body Body) (*http.Response, error) {
		return call(api, ctx, name, nil, body)
	}
}

// VerbCommand is the command of a verb; tell says in words how the object is afterwards.
func (n *Noun[Item, Object]) VerbCommand(v Verb, tell func(Object) string) *cobra.Command {
	var who app.Who
	command := &cobra.Command{
		Use:               v.Name + " " + n.Argument,
		Short:             v.Short,
		Long:              v.Long + " A refusal says why, and the exit code is 1.",
		Example:           fmt.Sprintf("  slipway %s %s %s --reason %q", n.Command, v.Name, v.Example, v.Because),
		ValidArgsFunction: n.App.Complete(v.Complete),
	}
	n.called(n.App.Writing, command, v.Check, func(c *cobra.Command, api *client.Client, name string) error {
		who.Complete()
		if v.Confirm != nil {
			if err := v.Confirm(c.Context(), api, name); err != nil {
				return err
			}
		}
		answer, err := apiclient.Read[Object](v.Send(c.Context(), api, name, who))
		if apiclient.OutcomeUnknown(err) {
			n.App.Printf(n.App.Err, "Whether the command arrived is not known. Repeated with the same key it counts once:\n  slipway %s "+
				"%s %s --key %s\n",
				n.Command, v.Name, v.Again(name), who.Key)
		}
		if err != nil {
			return err
		}
		if done, err := n.App.PrintObject(answer.Raw); done || err != nil {
			return err
		}
		n.App.Printf(n.App.Out, "%s\n", tell(answer.Value))
		return nil
	})
	who.Flags(command, "idempotency `key`: the same key again is the same command")
	if v.Flags != nil {
		v.Flags(command)
	}
	return command
}

// WatchCommand is `watch`: it follows a release, with an exit code that says how that ended.
func (n *Noun[Item, Object]) WatchCommand(long string, words follow.Words,
	watch func(ctx context.Context, api *client.Client, name string, o follow.Options) error) *cobra.Command {
	var options follow.Options
	command := &cobra.Command{Use: "watch " + n.Argument, Short: fmt.Sprintf("Follow %s %s", n.one(), words.End), Long: long}
	n.ReadingOne(command, nil, func(c *cobra.Command, api *client.Client, name string) error {
		return watch(c.Context(), api, name, options)
	})
	options.Flags(command, words)
	return command
}
