// Package noun builds the commands that all kinds of objects share: list, get, apply, delete, watch, and verbs such as
// pause.
package noun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/phrase"
)

// Noun describes a kind of object: its names, its place in the API and how it is printed. Item is the type in lists,
// Object the complete type.
type Noun[Item, Object any] struct {
	App *app.App
	// Command is the word on the command line, Name the one in messages.
	Command, Name string
	// Calls are the operations of the API.
	Calls Calls
	// Argument is the placeholder of an object's name in usage lines: NAME or ID. Example is a name in examples.
	Argument, Example string
	// Scope holds the namespace flags of a namespaced object; nil for others. Its flags are among Flags.
	Scope *app.ScopeFlags
	// Flags adds the flags that every command of this kind has.
	Flags func(*cobra.Command)
	// Filter selects the objects of a list.
	Filter url.Values
	// Key returns the name of an item, Note its description in shell completion.
	Key, Note func(Item) string
	// Titles and Row define the table of a list. ReadExtra, if not nil, first reads data that the list does not
	// contain.
	Titles    []string
	Row       func(Item) []string
	ReadExtra func(ctx context.Context, api *client.Client, items []Item) error
	// Empty is the message for an empty list.
	Empty string
	// Prepare, if not nil, reads what the text output of one object needs besides it. Describe prints an object.
	Prepare  func(ctx context.Context, api *client.Client)
	Describe func(name string, object Object) error
	// Document, if not nil, returns the object as documents contain it, and Encode writes it as YAML. Otherwise the
	// API's response is printed.
	Document func(name string, object Object) any
	Encode   func(Object) ([]byte, error)
	// Release defines how a release is watched.
	Release Release[Object]
}

// Calls are the operations of the API on one kind of object; those that it does not have are nil. Verbs are by their
// names.
type Calls struct {
	List, Get, Put, Delete, History, Watch apiclient.Call
	Verbs                                  map[string]apiclient.Call
}

func (n *Noun[Item, Object]) withArticle() string {
	if strings.ContainsAny(n.Name[:1], "AEIOU") {
		return "an " + n.Name
	}
	return "a " + n.Name
}

// names parses names from the command line. A namespaced name becomes NAMESPACE/NAME, as in lists.
func (n *Noun[Item, Object]) names(args []string) ([]string, error) {
	if n.Scope == nil {
		return args, nil
	}
	var names []string
	for _, argument := range args {
		name, err := n.Scope.ParseName(argument)
		if err != nil {
			return nil, err
		}
		names = append(names, name.Namespace+"/"+name.Name)
	}
	return names, nil
}

// arguments accepts this many names.
func (n *Noun[Item, Object]) arguments(least, most int) cobra.PositionalArgs {
	count := app.Arguments(n.withArticle(), n.Argument, least, most)
	return func(c *cobra.Command, args []string) error {
		if err := count(c, args); err != nil {
			return err
		}
		for _, name := range args {
			if n.Scope == nil && app.InvalidName(name) {
				return fmt.Errorf("%q is not a valid %s of %s", name, n.Argument, n.withArticle())
			}
		}
		return nil
	}
}

// Filtered returns the noun with another filter.
func (n *Noun[Item, Object]) Filtered(filter url.Values) *Noun[Item, Object] {
	filtered := *n
	filtered.Filter = filter
	return &filtered
}

// list returns the request for the list of the objects.
func (n *Noun[Item, Object]) list() apiclient.Request {
	query := url.Values{}
	maps.Copy(query, n.Filter)
	if n.Scope != nil {
		for name, value := range map[string]string{"namespace": n.Scope.Namespace, "party": n.Scope.Party} {
			if value != "" {
				query.Set(name, value)
			}
		}
	}
	return apiclient.Request{Call: n.Calls.List, Query: query}
}

// Object returns the name of a namespaced object from NAMESPACE/NAME and the flags.
func (n *Noun[Item, Object]) Object(key string) app.ObjectName {
	namespace, name, _ := strings.Cut(key, "/")
	return app.ObjectName{Party: n.Scope.Party, Namespace: namespace, Name: name}
}

// request returns a request for an object.
func (n *Noun[Item, Object]) request(call apiclient.Call, name string) apiclient.Request {
	r := apiclient.Request{Call: call, Name: name}
	if n.Scope != nil {
		if party := n.Object(name).PartyParam(); party != nil {
			r.Query = url.Values{"party": {*party}}
		}
	}
	return r
}

// Read reads one object.
func (n *Noun[Item, Object]) Read(ctx context.Context, api *client.Client, name string) (apiclient.Reply[Object],
	error) {
	reply, err := apiclient.Read[Object](n.request(n.Calls.Get, name).Send(ctx, api))
	if err == nil && n.Prepare != nil && n.App.Output == app.Table {
		n.Prepare(ctx, api)
	}
	return reply, err
}

// Completion lists the names of objects for shell completion, without the namespace if -n is set.
func (n *Noun[Item, Object]) Completion(ctx context.Context, api *client.Client) ([]string, error) {
	items, err := apiclient.ReadAll[Item](ctx, api, n.list(), apiclient.PageSize)
	var entries []string
	for _, item := range items {
		name := n.Key(item)
		if n.Scope != nil && n.Scope.Namespace != "" {
			_, name, _ = strings.Cut(name, "/")
		}
		entries = append(entries, name+"\t"+render.OneLine(n.Note(item)))
	}
	return entries, err
}

// InitCommand sets up a command for one object, which calls the API on a connection of connect. check, if not nil,
// validates its flags.
func (n *Noun[Item, Object]) InitCommand(command *cobra.Command, connect app.Connector, check func() error,
	call func(c *cobra.Command, api *client.Client, name string) error) *cobra.Command {
	command.Args = n.arguments(1, 1)
	if command.ValidArgsFunction == nil {
		command.ValidArgsFunction = n.App.Complete(n.Completion)
	}
	var names []string
	n.App.InitCommand(command, connect, func(args []string) (err error) {
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

// GetCommand returns `get`, which prints one object as a drawing or a document. long is its help; "" means short.
func (n *Noun[Item, Object]) GetCommand(short, long string) *cobra.Command {
	a := n.App
	return n.InitCommand(&cobra.Command{Use: "get " + n.Argument, Short: short, Long: long}, app.Connect, nil,
		func(c *cobra.Command, api *client.Client, name string) error {
			answer, err := n.Read(c.Context(), api, name)
			switch {
			case err != nil:
				return err
			case a.Output == app.Names: // documents do not contain their name
				a.Printf(a.Out, "%s\n", name)
				return nil
			case a.Output == app.YAML && n.Encode != nil:
				text, err := n.Encode(answer.Value)
				a.Printf(a.Out, "%s", text)
				return err
			}
			var shown any = answer.Raw
			if n.Document != nil {
				shown = n.Document(name, answer.Value)
			}
			if done, err := a.PrintObject(shown); done || err != nil {
				return err
			}
			return n.Describe(name, answer.Value)
		})
}

type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
	Error   string `json:"error,omitempty"`
}

// DeleteCommand returns `delete` for one or more objects. If one cannot be deleted, the others still are.
func (n *Noun[Item, Object]) DeleteCommand(long string) *cobra.Command {
	command := &cobra.Command{
		Use:               fmt.Sprintf("delete %s...", n.Argument),
		Short:             "Delete " + phrase.Plural(n.Name),
		Long:              long,
		Args:              n.arguments(1, math.MaxInt),
		ValidArgsFunction: n.App.CompleteAll(n.Completion),
	}
	var names []string
	n.App.InitCommand(command, n.App.ConnectToWrite, func(args []string) (err error) {
		names, err = n.names(args)
		return err
	}, func(c *cobra.Command, api *client.Client, _ []string) error { return n.deleteAll(c, api, names) })
	app.AcceptYes(command)
	n.flags(command)
	return command
}

// deleteAll deletes one object after another, prints each result, and returns an error if any failed.
func (n *Noun[Item, Object]) deleteAll(c *cobra.Command, api *client.Client, names []string) error {
	a := n.App
	var outcomes []deleted
	failed := false
	for _, name := range names {
		response, err := n.request(n.Calls.Delete, name).Send(c.Context(), api)
		outcome := deleted{Name: name, Deleted: err == nil}
		if err != nil {
			var problem *apiclient.ProblemError
			if !errors.As(err, &problem) {
				return err
			}
			outcome.Error, failed = err.Error(), true
			a.Printf(a.Err, "%s", apiclient.Explain(err, a.MaxFindings))
		} else if response.Body.Close(); a.Output == app.Table {
			a.Printf(a.Out, "%s %s deleted\n", n.Name, name)
		}
		outcomes = append(outcomes, outcome)
	}
	err := a.Print(outcomes, nil)
	if err == nil && failed {
		err = &app.ExitError{Code: app.ExitFailure}
	}
	return err
}

// ApplyCommand returns `apply`, which creates or replaces the objects in files. All documents are validated before the
// first is sent.
func (n *Noun[Item, Object]) ApplyCommand(long, example string, what manifest.Applier) *cobra.Command {
	a := n.App
	what.Noun = n.Name
	if what.Put == nil {
		what.Put = func(ctx context.Context, api *client.Client, d manifest.Document) (manifest.Result, error) {
			put := n.request(n.Calls.Put, d.Name)
			put.ContentType, put.Body = apiclient.YAMLBody, d.Body
			return manifest.ReadResult(put.Send(ctx, api))
		}
	}
	var files []string
	var name string
	command := &cobra.Command{
		Use: "apply -f FILE", Short: "Create or replace " + phrase.Plural(n.Name),
		Long: "Create or replace " + phrase.Plural(n.Name) +
			". " + long, Example: example,
		Args: cobra.NoArgs,
	}
	flag, byFlag := strings.CutPrefix(what.NameFlag, "--")
	switch {
	case byFlag:
		command.Flags().StringVar(&name, flag, "",
			"`"+n.Argument+"` of the "+n.Name+", if the file contains only its spec (default: the file's base name)")
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
	app.AcceptYes(command)
	n.flags(command)
	return command
}
