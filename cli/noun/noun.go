// Package noun makes the commands that every kind of object has: list, get, apply, delete, watch, and the verbs that steer it.
package noun

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/render"
)

// Noun describes a kind of object: how people call it, how the API answers for it, and how it is shown. An Item is what lists have of an
// object, an Object all of it.
type Noun[Item, Object any] struct {
	App *app.App
	// Command is the word on the command line, Name what people read.
	Command, Name string
	// Argument is what usage lines have for its name: NAME or ID.
	Argument string
	// Place is where an object of a namespace is looked for; nil for others. Its flags are among Flags.
	Place *app.Place
	// Flags adds the flags that every command takes.
	Flags func(*cobra.Command)

	// Page asks for one page of the list.
	Page func(ctx context.Context, api *client.Client, limit int, cursor *string) (items []Item, next string, err error)
	// Key is the name of an item, and Note what shell completion says beside it.
	Key, Note func(Item) string
	// Titles and Row are the table of a list. Complete, unless it is nil, first reads what the table needs beside the list.
	Titles   []string
	Row      func(Item) []string
	Complete func(ctx context.Context, api *client.Client, items []Item) error
	// Empty is what people read in place of an empty list.
	Empty string

	// Read reads one object, Describe shows it to people, and Encode, unless it is nil, writes it as YAML.
	Read     func(ctx context.Context, api *client.Client, name string) (apiclient.Reply[Object], error)
	Describe func(a *app.App, name string, object Object) error
	Encode   func(Object) ([]byte, error)
	// Delete deletes one object.
	Delete func(ctx context.Context, api *client.Client, name string) error
}

func (n *Noun[Item, Object]) one() string {
	if strings.ContainsAny(n.Name[:1], "AEIOU") {
		return "an " + n.Name
	}
	return "a " + n.Name
}

// names reads names from the command line. One in a namespace becomes NAMESPACE/NAME, as in lists.
func (n *Noun[Item, Object]) names(args []string) ([]string, error) {
	if n.Place == nil {
		return args, nil
	}
	var names []string
	for _, argument := range args {
		name, err := n.Place.Named(argument)
		if err != nil {
			return nil, err
		}
		names = append(names, name.Namespace+"/"+name.Name)
	}
	return names, nil
}

func (n *Noun[Item, Object]) arguments(least int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("name %s: %s is missing", n.one(), n.Argument)
		case n.Place == nil:
			return app.CheckNames(n.one(), n.Argument, args)
		}
		return nil
	}
}

func (n *Noun[Item, Object]) oneArgument() cobra.PositionalArgs {
	if n.Place == nil {
		return app.ExactName(n.one(), n.Argument)
	}
	return app.OneArgument(n.one(), n.Argument)
}

// Completion lists the names of the objects for shell completion: the bare name where the namespace is given.
func (n *Noun[Item, Object]) Completion(ctx context.Context, api *client.Client) ([]string, error) {
	items, _, err := n.Page(ctx, api, apiclient.PageSize, nil)
	var entries []string
	for _, item := range items {
		name := n.Key(item)
		if n.Place != nil && n.Place.Namespace != "" {
			_, name, _ = strings.Cut(name, "/")
		}
		entries = append(entries, name+"\t"+render.OneLine(n.Note(item)))
	}
	return entries, err
}

// ReadingOne completes a command that reads one object; check, unless it is nil, says what is wrong with its flags.
func (n *Noun[Item, Object]) ReadingOne(command *cobra.Command, check func() error,
	call func(c *cobra.Command, api *client.Client, name string) error) *cobra.Command {
	return n.called(n.App.Reading, command, check, call)
}

// WritingOne is ReadingOne of a command that changes something.
func (n *Noun[Item, Object]) WritingOne(command *cobra.Command, check func() error,
	call func(c *cobra.Command, api *client.Client, name string) error) *cobra.Command {
	return n.called(n.App.Writing, command, check, call)
}

func (n *Noun[Item, Object]) called(complete func(*cobra.Command, func([]string) error, app.Call) *cobra.Command, command *cobra.Command,
	check func() error, call func(c *cobra.Command, api *client.Client, name string) error) *cobra.Command {
	command.Args = n.oneArgument()
	if command.ValidArgsFunction == nil {
		command.ValidArgsFunction = n.App.Complete(n.Completion)
	}
	var names []string
	complete(command, func(args []string) (err error) {
		if names, err = n.names(args); err == nil && check != nil {
			err = check()
		}
		return err
	}, func(c *cobra.Command, api *client.Client, _ []string) error { return call(c, api, names[0]) })
	n.flags(command)
	return command
}

func (n *Noun[Item, Object]) flags(command *cobra.Command) {
	if n.Flags != nil {
		n.Flags(command)
	}
}

// GetCommand is `get`: one object, as a drawing or a document.
func (n *Noun[Item, Object]) GetCommand(short string) *cobra.Command {
	a := n.App
	return n.ReadingOne(&cobra.Command{Use: "get " + n.Argument, Short: short}, nil,
		func(c *cobra.Command, api *client.Client, name string) error {
			answer, err := n.Read(c.Context(), api, name)
			switch {
			case err != nil:
				return err
			case a.Output == app.Names: // a document does not say what it is called
				a.Printf(a.Out, "%s\n", name)
				return nil
			case a.Output == app.YAML && n.Encode != nil:
				text, err := n.Encode(answer.Value)
				a.Printf(a.Out, "%s", text)
				return err
			}
			if done, err := a.PrintObject(answer.Raw); done || err != nil {
				return err
			}
			return n.Describe(a, name, answer.Value)
		})
}

type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
	Error   string `json:"error,omitempty"`
}

// DeleteCommand deletes one object or several; one that cannot be deleted does not keep the others.
func (n *Noun[Item, Object]) DeleteCommand(long string) *cobra.Command {
	command := &cobra.Command{
		Use:               fmt.Sprintf("delete %s...", n.Argument),
		Short:             "Delete " + render.Plural(n.Name),
		Long:              long,
		Args:              n.arguments(1),
		ValidArgsFunction: n.App.CompleteAll(n.Completion),
	}
	var names []string
	n.App.Writing(command, func(args []string) (err error) {
		names, err = n.names(args)
		return err
	}, func(c *cobra.Command, api *client.Client, _ []string) error { return n.deleteAll(c, api, names) })
	n.flags(command)
	return command
}

// deleteAll deletes one after the other, tells each outcome, and fails when one of them failed.
func (n *Noun[Item, Object]) deleteAll(c *cobra.Command, api *client.Client, names []string) error {
	a := n.App
	var outcomes []deleted
	failed := false
	for _, name := range names {
		err := n.Delete(c.Context(), api, name)
		outcome := deleted{Name: name, Deleted: err == nil}
		if err != nil {
			var problem *apiclient.ProblemError
			var refused *apiclient.KusciaError
			if !errors.As(err, &problem) && !errors.As(err, &refused) {
				return err
			}
			outcome.Error, failed = err.Error(), true
			a.Printf(a.Err, "%s", apiclient.Explain(err, a.MostFindings))
		} else if a.Output == app.Table {
			a.Printf(a.Out, "%s %s deleted\n", n.Name, name)
		}
		outcomes = append(outcomes, outcome)
	}
	if _, err := a.PrintObject(outcomes); err != nil {
		return err
	}
	if failed {
		return &app.ExitError{Code: app.ExitFailure}
	}
	return nil
}

// ApplyCommand is `apply`: it creates the objects of files, or replaces them. Every document is read before the first one is sent.
func (n *Noun[Item, Object]) ApplyCommand(long, example string, what manifest.Application) *cobra.Command {
	a := n.App
	what.Noun = n.Name
	var files []string
	var name string
	command := &cobra.Command{
		Use: "apply -f FILE", Short: "Create or replace " + render.Plural(n.Name), Long: "Create or replace " + render.Plural(n.Name) +
			". " + long, Example: example,
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
