package noun

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/phrase"
)

// watchInterval is the polling interval of a watched list. The API has no event stream for lists.
const watchInterval = 2 * time.Second

// agingColumns are columns that change with time. A watched list does not reprint a row because of them.
var agingColumns = []string{"AGE", "SINCE", "TOOK", "LAST SEEN"}

// ListCommand returns `list`, which prints all objects, or the named ones, as a table. For a list with filters, filter
// validates and sets them; such a list also has --limit.
func (n *Noun[Item, Object]) ListCommand(short string, filter func() error) *cobra.Command {
	a := n.App
	var limit app.Limit
	var watch bool
	command := &cobra.Command{
		Use: "list [" + n.Argument + "...]", Short: short,
		Long: fmt.Sprintf("%s. If names are given, only these %s are listed. With --watch, each is printed again "+
			"when it changes, until Ctrl-C.", short,
			phrase.Plural(n.Name)),
		Args: n.arguments(0, math.MaxInt), ValidArgsFunction: a.CompleteAll(n.Completion),
	}
	var names []string
	check := func(args []string) (err error) {
		if names, err = n.names(args); err == nil {
			err = limit.Check(phrase.Plural(n.Name))
		}
		switch {
		case err != nil:
			return err
		case len(names) > 0 && limit > 0:
			return app.Usagef("--limit cannot be used with names: use only one of them")
		case filter != nil:
			return filter()
		}
		return nil
	}
	a.InitCommand(command, app.Connect, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		l := &lister[Item, Object]{Noun: n, api: api, names: names, limit: int(limit)}
		if watch {
			return l.watch(c.Context())
		}
		return l.print(c.Context())
	})
	n.flags(command)
	for _, name := range []string{"namespace", "party"} {
		if flag := command.Flag(name); n.Scope != nil && flag != nil {
			flag.Usage = fmt.Sprintf("list only %s of this `%s`", phrase.Plural(n.Name), name)
		}
	}
	if filter != nil {
		limit.Flag(command, phrase.Plural(n.Name))
	}
	command.Flags().BoolVarP(&watch, "watch", "w", false, "after listing, print changes until Ctrl-C")
	return command
}

type lister[Item, Object any] struct {
	*Noun[Item, Object]
	api   *client.Client
	names []string
	limit int
}

// read reads the items and returns the requested names that are missing.
func (l *lister[Item, Object]) read(ctx context.Context) (items []Item, missing []string, err error) {
	items, err = apiclient.ReadAll[Item](ctx, l.api, l.list(), l.limit)
	if len(l.names) > 0 {
		items = slices.DeleteFunc(items, func(item Item) bool { return !slices.Contains(l.names, l.Key(item)) })
		missing = slices.DeleteFunc(slices.Clone(l.names), func(name string) bool {
			return slices.ContainsFunc(items, func(item Item) bool { return l.Key(item) == name })
		})
	}
	if err == nil && l.ReadExtra != nil && l.App.Output == app.Table {
		err = l.ReadExtra(ctx, l.api, items)
	}
	return items, missing, err
}

func (l *lister[Item, Object]) print(ctx context.Context) error {
	a := l.App
	items, missing, err := l.read(ctx)
	if err != nil {
		return err
	}
	switch {
	case a.Output == app.Names:
		for _, item := range items {
			a.Printf(a.Out, "%s\n", l.Key(item))
		}
	case a.Output == app.Table && len(items) == 0 && l.Empty != "":
		if len(l.names) == 0 {
			a.Printf(a.Err, "%s\n", l.Empty)
		}
	default:
		err = printItems(a, items, l.Titles, l.Row)
	}
	if err == nil && len(missing) > 0 {
		return fmt.Errorf("%s not found: %s: list them with `slipway %s list`", l.Name, strings.Join(missing, ", "),
			l.Command)
	}
	return err
}

// watch prints the items, and then the changed ones, until the context ends. Only the first read may fail; later
// failures are retried.
func (l *lister[Item, Object]) watch(ctx context.Context) error {
	a := l.App
	table, seen := render.NewTable(l.Titles...), map[string]string(nil)
	for {
		items, missing, err := l.read(ctx)
		if seen == nil && err == nil && len(missing) > 0 {
			a.Printf(a.Err, "%s not found yet: %s\n", l.Name, strings.Join(missing, ", "))
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && seen == nil:
			return err
		case err != nil:
			a.Printf(a.Err, "cannot read the list, retrying: %s\n", render.OneLine(err.Error()))
		default:
			if seen, err = l.printChanges(table, items, seen); err != nil {
				return err
			}
		}
		a.Wait(ctx, watchInterval)
	}
}

// printChanges prints the items that differ from those seen before, and the names of items that are no longer listed.
func (l *lister[Item, Object]) printChanges(table *render.Table, items []Item,
	seen map[string]string) (now map[string]string, err error) {
	a := l.App
	now = map[string]string{}
	for _, item := range items {
		key, looks := l.Row(item)[0], l.fingerprint(item)
		now[key] = looks
		if seen[key] == looks {
			continue
		}
		if done, err := a.PrintEach(item); err != nil {
			return nil, err
		} else if !done {
			table.Add(l.Row(item)...)
		}
	}
	if a.Output == app.Table && (len(items) > 0 || seen != nil) {
		a.Printf(a.Out, "%s", table.Flush())
	}
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		if _, there := now[key]; !there {
			a.Printf(a.Err, "%s %s is no longer listed\n", l.Name, render.OneLine(key))
		}
	}
	return now, nil
}

// fingerprint returns the text of an item without the columns that change with time, to detect changes.
func (l *lister[Item, Object]) fingerprint(item Item) string {
	if l.App.Output != app.Table {
		text, _ := json.Marshal(item) // printing the item reports the error
		return string(text)
	}
	var cells []string
	for n, cell := range l.Row(item) {
		if !slices.Contains(agingColumns, l.Titles[n]) {
			cells = append(cells, cell)
		}
	}
	return strings.Join(cells, "\x00")
}

// HistoryCommand returns `history`, which lists the releases of one object, newest first. what names the releases;
// list, if not nil, returns another request for them than for the history below the object.
func HistoryCommand[Item, Object, Release any](n *Noun[Item, Object], what string,
	list func(name string) apiclient.Request, titles []string, row func(Release) []string) *cobra.Command {
	var most app.Limit
	command := &cobra.Command{Use: "history " + n.Argument}
	n.InitCommand(command, app.Connect, func() error {
		return most.Check(what)
	}, func(c *cobra.Command, api *client.Client, name string) error {
		request := n.request(n.Calls.History, name)
		if list != nil {
			request = list(name)
		}
		releases, err := apiclient.ReadAll[Release](c.Context(), api, request, int(most))
		if err == nil && len(releases) == 0 { // read the object, to report a name that does not exist
			_, err = n.Read(c.Context(), api, name)
		}
		if err != nil {
			return err
		}
		return printItems(n.App, releases, titles, row)
	})
	most.Flag(command, what)
	return command
}

func printItems[T any](a *app.App, items []T, titles []string, row func(T) []string) error {
	return a.Print(struct {
		Items []T `json:"items"`
	}{items}, func() {
		table := render.NewTable(titles...)
		for _, item := range items {
			table.Add(row(item)...)
		}
		a.Printf(a.Out, "%s", table)
	})
}
