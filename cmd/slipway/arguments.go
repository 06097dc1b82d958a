package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/plan"
)

// exactName accepts exactly one name; what is "a task", argument its name in the usage line.
func exactName(what, argument string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("one %s at a time, not %d", argument, len(args))
		}
		return someNames(what, argument)(c, args)
	}
}

// someNames accepts one name or more. A name stands in a path of the API, which what is no name would change.
func someNames(what, argument string) cobra.PositionalArgs {
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

// completionTimeout is how long a shell waits for names; a server that is away must not hold up the keyboard.
const completionTimeout = 2 * time.Second

// lister asks the API for names, each with a tab and a note where there is something to say.
type lister func(ctx context.Context, api *client.Client) ([]string, error)

// complete completes the first argument with what the API knows.
func (a *app) complete(list lister) cobra.CompletionFunc {
	every := a.completeAll(list)
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return every(c, args, start)
	}
}

// completeAll completes every argument with what the API knows and is not there yet.
func (a *app) completeAll(list lister) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(contextOf(c), completionTimeout)
		defer cancel()
		api, err := connect(c)
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

func serviceIDs(ctx context.Context, api *client.Client) ([]string, error) {
	limit := pageSize
	page, err := read[client.ServiceList](api.ListServices(ctx, &client.ListServicesParams{Limit: &limit}))
	var entries []string
	for _, s := range page.value.Items {
		entries = append(entries, s.ID+"\t"+oneLine(s.DisplayName))
	}
	return entries, err
}

func planNames(ctx context.Context, api *client.Client) ([]string, error) {
	limit := pageSize
	page, err := read[client.PlanList](api.ListPlans(ctx, &client.ListPlansParams{Limit: &limit}))
	var entries []string
	for _, p := range page.value.Items {
		entries = append(entries, p.Name+"\t"+oneLine(p.Comment))
	}
	return entries, err
}

func partyNames(ctx context.Context, api *client.Client) ([]string, error) {
	limit := pageSize
	page, err := read[client.PartyList](api.ListParties(ctx, &client.ListPartiesParams{Limit: &limit}))
	var entries []string
	for _, p := range page.value.Items {
		entries = append(entries, p.Name+"\t"+oneLine(p.Queue))
	}
	return entries, err
}

// taskIDs lists the newest tasks in these states; without states in any.
func taskIDs(states ...plan.TaskState) lister {
	return func(ctx context.Context, api *client.Client) ([]string, error) {
		limit := pageSize
		params := &client.ListTasksParams{Limit: &limit}
		if len(states) > 0 {
			params.State = &states
		}
		page, err := read[client.TaskList](api.ListTasks(ctx, params))
		var entries []string
		for _, t := range page.value.Items {
			entries = append(entries, t.ID+"\t"+string(t.State))
		}
		return entries, err
	}
}
