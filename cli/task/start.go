package task

import (
	"context"
	"net/http"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
)

// Start is a request that starts a task.
type Start struct {
	// Send sends the request with this key and body.
	Send func(ctx context.Context, api *client.Client, key string, body client.ExecuteRequest) (*http.Response, error)
	// RepeatCommand is the command for repeating the request, without --key. StartedText is the message when the task
	// has started, before the task's ID.
	RepeatCommand, StartedText string
}

// RunPlan returns the request that runs a plan, with these times.
func RunPlan(name string, times TimesFlags) Start {
	return Start{RepeatCommand: "slipway plan run " + name + times.CommandArgs(),
		StartedText: "plan " + name + " is running as task ",
		Send: func(ctx context.Context, api *client.Client, key string, body client.ExecuteRequest) (*http.Response,
			error) {
			body.NotBefore, body.Windows, body.Freezes = times.NotBefore, times.Windows, times.Freezes
			return api.ExecutePlan(ctx, name, &client.ExecutePlanParams{IdempotencyKey: &key}, body)
		}}
}

// Run starts the task, and watches it if --watch is set.
func (s Start) Run(ctx context.Context, a *app.App, api *client.Client, who app.ActorFlags,
	options follow.Options) error {
	started, err := s.start(ctx, a, api, who)
	if err != nil {
		return err
	}
	id := started.Value.ID
	if options.Watch {
		if a.Output == app.Table {
			a.Printf(a.Err, "task %s\n", id)
		}
		return Watch(ctx, a, api, id, options)
	}
	if done, err := a.PrintObject(started.Raw); done || err != nil {
		return err
	}
	a.Printf(a.Out, "%s%s\n", s.StartedText, id)
	a.Printf(a.Err, "To watch it: slipway task watch %s\n", id)
	return nil
}

// start sends the request. If the response is lost, it prints how to retry without starting another task.
func (s Start) start(ctx context.Context, a *app.App, api *client.Client,
	who app.ActorFlags) (apiclient.Reply[client.ExecuteResult], error) {
	who.SetDefaults()
	task, err := apiclient.Read[client.ExecuteResult](
		s.Send(ctx, api, who.Key, client.ExecuteRequest{Actor: who.Actor, Reason: who.Reason}))
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "It is unknown whether the task was started. It is safe to repeat the command with the same "+
			"key:\n  %s --key %s\n", s.RepeatCommand, who.Key)
	}
	if err == nil {
		for _, warning := range task.Value.Warnings {
			a.Printf(a.Err, "warning: %s\n", render.OneLine(warning.Reason))
		}
	}
	return task, err
}
