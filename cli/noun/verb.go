package noun

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
)

// Verb defines a command that controls a release, such as pause.
type Verb[Object any] struct {
	Name, Short, Long string
	// ExampleFlags are the required flags, and ExampleReason is the reason in the example.
	ExampleFlags, ExampleReason string
	// Filter selects the objects whose names are completed.
	Filter url.Values
	// Flags adds the flags of this verb, Check validates them; both may be nil.
	Flags func(*cobra.Command, *VerbBody)
	Check func(VerbBody) error
	// Confirm, if not nil, shows what the verb will do to the release and asks for confirmation, unless the user named
	// the gate.
	Confirm func(release Object, body *VerbBody) error
}

// VerbBody is the request of a verb. The fields from To on are flags that only some verbs have.
type VerbBody struct {
	app.ActorFlags
	To     string `json:"to,omitempty"`
	Step   int    `json:"step,omitempty"`
	ToStep int    `json:"toStep,omitempty"`
	Party  string `json:"party,omitempty"`
	Gate   string `json:"gate,omitempty"`
	// Yes skips the confirmation.
	Yes bool `json:"-"`
}

// ConfirmFlags adds the flags of a verb that asks for confirmation. gated is what has a gate, and current the one that
// --yes means.
func (b *VerbBody) ConfirmFlags(command *cobra.Command, gated, current string) {
	command.Flags().StringVar(&b.Gate, "gate", "", "waitingFor.gate of the "+gated+" that is meant; a stale gate is "+
		"rejected (default: the current gate)")
	command.Flags().BoolVarP(&b.Yes, "yes", "y", false, "skip the confirmation and use the "+current)
}

// repeatFlags returns the flags for repeating the command.
func (b VerbBody) repeatFlags() (flags string) {
	for _, f := range []struct{ name, value string }{{"step", strconv.Itoa(b.Step)}, {"party", b.Party},
		{"gate", b.Gate}, {"to", b.To}, {"to-step", strconv.Itoa(b.ToStep)}, {"key", b.Key}} {
		if f.value != "" && f.value != "0" {
			flags += " --" + f.name + " " + f.value
		}
	}
	return flags
}

// VerbCommand returns the command of a verb; stateText returns the object's state afterwards as text.
func (n *Noun[Item, Object]) VerbCommand(v Verb[Object], stateText func(Object) string) *cobra.Command {
	var body VerbBody
	command := &cobra.Command{
		Use:   v.Name + " " + n.Argument,
		Short: v.Short,
		Long:  v.Long + " If the engine rejects the request, the reason is printed and the exit code is 1.",
		Example: fmt.Sprintf("  slipway %s %s %s%s --reason %q", n.Command, v.Name, n.Example, v.ExampleFlags,
			v.ExampleReason),
		ValidArgsFunction: n.App.Complete(n.Filtered(v.Filter).Completion),
	}
	check := func() error {
		if v.Check == nil {
			return nil
		}
		return v.Check(body)
	}
	n.InitCommand(command, n.App.ConnectToWrite, check, func(c *cobra.Command, api *client.Client, name string) error {
		body.SetDefaults()
		if v.Confirm != nil && body.Gate == "" {
			answer, err := n.Read(c.Context(), api, name)
			if err == nil {
				err = v.Confirm(answer.Value, &body)
			}
			if err != nil {
				return err
			}
		}
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		request := n.request(n.Calls.Verbs[v.Name], name)
		request.ContentType, request.Body = apiclient.JSONBody, text
		answer, err := apiclient.Read[Object](request.Send(c.Context(), api))
		if apiclient.OutcomeUnknown(err) {
			n.App.Printf(n.App.Err, "It is unknown whether the engine received the command. It is safe to repeat it "+
				"with the same key:\n  slipway %s %s %s%s\n", n.Command, v.Name, n.commandArgs(name), body.repeatFlags())
		}
		if err != nil {
			return err
		}
		return n.App.Print(answer.Raw, func() { n.App.Printf(n.App.Out, "%s\n", stateText(answer.Value)) })
	})
	body.Flags(command, "idempotency `key`: a command repeated with the same key is executed once")
	if v.Flags != nil {
		v.Flags(command, &body)
	}
	app.AcceptYes(command)
	return command
}

// commandArgs returns the name as command-line arguments, with the party.
func (n *Noun[Item, Object]) commandArgs(name string) string {
	if n.Scope == nil {
		return name
	}
	return n.Object(name).CommandArgs()
}

// displayName returns the name in messages, such as "rollout bank: shop/web".
func (n *Noun[Item, Object]) displayName(name string) string {
	if n.Scope == nil {
		return n.Name + " " + name
	}
	return n.Name + " " + n.Object(name).String()
}

// Release defines how a kind of release is watched.
type Release[Object any] struct {
	// Flags are the help texts of the flags. ExitCodes is the part of the help that lists the exit codes.
	Flags     follow.FlagTexts
	ExitCodes string
	// Ended reports whether the state no longer changes. ExitCode returns the exit code of a watch in this state; ok is
	// false while the watch continues.
	Ended    func(Object) bool
	ExitCode func(follow.Options, Object) (code int, ok bool)
	Renderer follow.Renderer[Object]
}

// Watched returns the watch of one release.
func (n *Noun[Item, Object]) Watched(api *client.Client, name string, o follow.Options) follow.Watched[Object] {
	return follow.Watched[Object]{
		DisplayName:   n.displayName(name),
		ResumeCommand: "slipway " + n.Command + " watch " + n.commandArgs(name),
		Read: func(ctx context.Context) (Object, error) {
			answer, err := n.Read(ctx, api, name)
			return answer.Value, err
		},
		Open: func(ctx context.Context, last string) (*http.Response, error) {
			events := n.request(n.Calls.Watch, name)
			events.LastEventID = last
			return events.Send(ctx, api)
		},
		Ended: n.Release.Ended, Timeout: o.Timeout, Renderer: n.Release.Renderer,
		ExitCode: func(object Object) (int, bool) { return n.Release.ExitCode(o, object) },
	}
}

// Watch watches one release and returns an error with the exit code for its outcome.
func (n *Noun[Item, Object]) Watch(ctx context.Context, api *client.Client, name string, o follow.Options) error {
	return follow.Watch(ctx, n.App, n.Watched(api, name, o))
}

// WatchCommand returns `watch`, which watches a release; the exit code is the outcome. parts are what a terminal shows,
// waiting says when the command waits, and example is the end of the second example.
func (n *Noun[Item, Object]) WatchCommand(parts, waiting, example string,
	watch func(context.Context, *client.Client, string, follow.Options) error) *cobra.Command {
	var options follow.Options
	short := fmt.Sprintf("Watch %s %s", n.withArticle(), n.Release.Flags.Until)
	command := &cobra.Command{Use: "watch " + n.Argument, Short: short,
		Long: fmt.Sprintf("%s. On a terminal, %s are updated in place. In a pipe, each change is printed as one line; with "+
			"-o json or yaml, the complete %s is printed at each change. Lost connections are reopened, for as long as it "+
			"takes.\n\n%s The exit code is the outcome:\n\n%s", short, parts, n.Name, waiting, n.Release.ExitCodes),
		Example: "  slipway " + n.Command + " watch " + n.Example + "\n  slipway " + n.Command + " watch " + example}
	n.InitCommand(command, app.Connect, nil, func(c *cobra.Command, api *client.Client, name string) error {
		return watch(c.Context(), api, name, options)
	})
	options.Flags(command, n.Release.Flags)
	return command
}

// Started is a release that the engine has started.
type Started struct {
	Name string
	// Raw is the API's response, and Text the message for users.
	Raw      json.RawMessage
	Text     string
	Warnings []string
}

// ReportStarted reports that a release has started, or watches it until it ends.
func (n *Noun[Item, Object]) ReportStarted(ctx context.Context, api *client.Client, started Started,
	o follow.Options) error {
	a := n.App
	for _, warning := range started.Warnings {
		a.Printf(a.Err, "warning: %s\n", render.OneLine(warning))
	}
	if o.Watch {
		if a.Output == app.Table {
			a.Printf(a.Err, "%s\n", n.displayName(started.Name))
		}
		return n.Watch(ctx, api, started.Name, o)
	}
	return a.Print(started.Raw, func() {
		a.Printf(a.Out, "%s\n", cmp.Or(started.Text, n.displayName(started.Name)+" started"))
		a.Printf(a.Err, "To watch it: slipway %s watch %s\n", n.Command, n.commandArgs(started.Name))
	})
}
