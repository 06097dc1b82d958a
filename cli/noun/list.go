package noun

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
)

// watchInterval is how often a list that is watched is asked for: the API has no stream of lists.
const watchInterval = 2 * time.Second

// agingTitles are columns that change by themselves. A watched list does not repeat a row for them.
var agingTitles = []string{"AGE", "SINCE", "TOOK", "LAST SEEN"}

// ListOptions are the flags of a list, but for its filters.
type ListOptions struct {
	// Limited adds --limit.
	Limited bool
	// Check says what is wrong with the filters; it may be nil.
	Check func() error

	limit app.Limit
	watch bool
}

// ListCommand is `list`: the objects in a table, all or those that are named.
func (n *Noun[Item, Object]) ListCommand(short string, o ListOptions) *cobra.Command {
	a := n.App
	command := &cobra.Command{
		Use: "list [" + n.Argument + "...]", Short: short,
		Long: fmt.Sprintf("%s. With names, only these %s. --watch then prints each one again when it changes, until Ctrl-C.", short,
			render.Plural(n.Name)),
		Args: n.arguments(0), ValidArgsFunction: a.CompleteAll(n.Completion),
	}
	var names []string
	check := func(args []string) (err error) {
		if names, err = n.names(args); err == nil {
			err = o.limit.Check(render.Plural(n.Name))
		}
		switch {
		case err != nil:
			return err
		case len(names) > 0 && o.limit > 0:
			return app.Usagef("--limit means nothing with names: leave one of them out")
		case o.Check != nil:
			return o.Check()
		}
		return nil
	}
	a.Reading(command, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		l := &list[Item, Object]{Noun: n, api: api, names: names, most: int(o.limit)}
		if o.watch {
			return l.watch(c.Context())
		}
		return l.print(c.Context())
	})
	n.flags(command)
	for _, name := range []string{"namespace", "party"} {
		if flag := command.Flag(name); n.Place != nil && flag != nil {
			flag.Usage = fmt.Sprintf("only %s of this `%s`", render.Plural(n.Name), name)
		}
	}
	if o.Limited {
		o.limit.Flag(command, render.Plural(n.Name))
	}
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "print what changes, too, until Ctrl-C")
	return command
}

type list[Item, Object any] struct {
	*Noun[Item, Object]
	api   *client.Client
	names []string
	most  int
}

// read reads the items, and tells which names are missing among them.
func (l *list[Item, Object]) read(ctx context.Context) (items []Item, missing []string, err error) {
	items, err = apiclient.AllPages(l.most, func(limit int, cursor *string) ([]Item, string, error) {
		return l.Page(ctx, l.api, limit, cursor)
	})
	if len(l.names) > 0 {
		items = slices.DeleteFunc(items, func(item Item) bool { return !slices.Contains(l.names, l.Key(item)) })
		missing = slices.DeleteFunc(slices.Clone(l.names), func(name string) bool {
			return slices.ContainsFunc(items, func(item Item) bool { return l.Key(item) == name })
		})
	}
	if err == nil && l.Complete != nil && l.App.Output == app.Table {
		err = l.Complete(ctx, l.api, items)
	}
	return items, missing, err
}

func (l *list[Item, Object]) print(ctx context.Context) error {
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
		return fmt.Errorf("there is no %s %s: `slipway %s list` shows those that there are", l.Name, strings.Join(missing, ", "), l.Command)
	}
	return err
}

// watch prints the items, and again those that have changed, until the context ends. Only a first answer that fails ends it.
func (l *list[Item, Object]) watch(ctx context.Context) error {
	a := l.App
	table, seen := render.NewTable(l.Titles...), map[string]string(nil)
	for {
		items, missing, err := l.read(ctx)
		if seen == nil && err == nil && len(missing) > 0 {
			a.Printf(a.Err, "there is no %s %s yet\n", l.Name, strings.Join(missing, ", "))
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && seen == nil:
			return err
		case err != nil:
			a.Printf(a.Err, "the list cannot be read, trying again: %s\n", render.OneLine(err.Error()))
		default:
			if seen, err = l.show(table, items, seen); err != nil {
				return err
			}
		}
		a.Wait(ctx, watchInterval)
	}
}

// show prints what is otherwise than what was seen, and says what is not listed any more.
func (l *list[Item, Object]) show(table *render.Table, items []Item, seen map[string]string) (now map[string]string, err error) {
	a := l.App
	now = map[string]string{}
	for _, item := range items {
		key, looks := l.Row(item)[0], l.looks(item)
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

// looks is what a reader sees of an item, without what changes by itself.
func (l *list[Item, Object]) looks(item Item) string {
	if l.App.Output != app.Table {
		text, _ := json.Marshal(item) // what cannot be written is an error when it is printed
		return string(text)
	}
	var cells []string
	for n, cell := range l.Row(item) {
		if !slices.Contains(agingTitles, l.Titles[n]) {
			cells = append(cells, cell)
		}
	}
	return strings.Join(cells, "\x00")
}

// HistoryCommand is `history`: the releases of one object, newest first; what names these.
func HistoryCommand[Item, Object, Release any](n *Noun[Item, Object], what string,
	page func(ctx context.Context, api *client.Client, name string, limit int, cursor *string) ([]Release, string, error),
	titles []string, row func(Release) []string) *cobra.Command {
	var most app.Limit
	command := &cobra.Command{Use: "history " + n.Argument}
	n.ReadingOne(command, func() error { return most.Check(what) }, func(c *cobra.Command, api *client.Client, name string) error {
		releases, err := apiclient.AllPages(int(most), func(limit int, cursor *string) ([]Release, string, error) {
			return page(c.Context(), api, name, limit, cursor)
		})
		if err == nil && len(releases) == 0 { // of a name that was never there, too: the object itself tells
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
	if done, err := a.PrintObject(struct {
		Items []T `json:"items"`
	}{items}); done || err != nil {
		return err
	}
	table := render.NewTable(titles...)
	for _, item := range items {
		table.Add(row(item)...)
	}
	a.Printf(a.Out, "%s", table)
	return nil
}
