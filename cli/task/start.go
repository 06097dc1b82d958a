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
	// Send sends it with this key and body.
	Send func(ctx context.Context, api *client.Client, key string, body client.ExecuteRequest) (*http.Response, error)
	// Again is the command line that sends it again, without the key; Told is what people read once it runs, before the task's ID.
	Again, Told string
}

// RunPlan executes a plan, at these times.
func RunPlan(name string, times TimesFlags) Start {
	return Start{Again: "slipway plan run " + name + times.Arguments(), Told: "plan " + name + " runs as task ",
		Send: func(ctx context.Context, api *client.Client, key string, body client.ExecuteRequest) (*http.Response, error) {
			body.NotBefore, body.Windows, body.Freezes = times.NotBefore, times.Windows, times.Freezes
			return api.ExecutePlan(ctx, name, &client.ExecutePlanParams{IdempotencyKey: &key}, body)
		}}
}

// Run starts the task, and follows it where that is asked for.
func (s Start) Run(ctx context.Context, a *app.App, api *client.Client, who app.Who, options follow.Options) error {
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
	a.Printf(a.Out, "%s%s\n", s.Told, id)
	a.Printf(a.Err, "Follow it with: slipway task watch %s\n", id)
	return nil
}

// start starts it. When nobody can say whether the task was started, the error says how to ask again without starting another.
func (s Start) start(ctx context.Context, a *app.App, api *client.Client, who app.Who) (apiclient.Reply[client.ExecuteResult], error) {
	who.Complete()
	task, err := apiclient.Read[client.ExecuteResult](s.Send(ctx, api, who.Key, client.ExecuteRequest{Actor: who.Actor, Reason: who.Reason}))
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "Whether the task was started is not known. Repeated with the same key it is started once:\n  %s --key %s\n", s.Again, who.Key)
	}
	if err == nil {
		for _, warning := range task.Value.Warnings {
			a.Printf(a.Err, "warning: %s\n", render.OneLine(warning.Reason))
		}
	}
	return task, err
}
