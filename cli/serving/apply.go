package serving

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/appimage"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/release/serving"
)

const filesHelp = ` A file holds Kuscia's request as JSON or YAML (%s), or a KusciaDeployment, which is translated to
that request; several documents
are separated by "---". A field that the request does not have is refused with its path, and so is one that it would
leave aside: kubectl apply takes
the whole KusciaDeployment.

An AppImage among the documents is registered first. Kuscia's request for one has no port numbers, and lacks more: an
AppImage that says such is
refused, and has to be registered with kubectl apply.

%s

`

type mode struct {
	name, short, example string
	// request is the name of Kuscia's request, which the help explains with end.
	request, end string
	// updates has it take requests that update a serving.
	updates bool
	send    func(o *sending, ctx context.Context, d manifest.ServingDocument) (outcome string, err error)
}

var modes = []mode{
	{name: "apply", short: "Create servings, or update those that there are", request: "CreateServingRequest",
		end: `A serving that does not exist is created. One that exists is updated to what the file says; nothing happens
if it is so already. What
no update can change, such as the initiator, is refused with its path. --watch follows the serving, and the exit code says how it ended:`,
		example: `  slipway serving apply -f secretflow-serving.yaml --watch`, send: (*sending).apply},
	{name: "create", short: "Declare servings", request: "CreateServingRequest",
		end: "The answer comes when the serving is declared; --watch follows it until it is Available or has Failed, and the exit " +
			"code says how it ended:",
		example: `  slipway serving create -f serving.json --watch
  slipway serving create -f secretflow-serving.yaml`, send: (*sending).create},
	{name: "update", short: "Change servings: input configuration, images, replicas, strategies, resources",
		request: "UpdateServingRequest", updates: true,
		end: `An update changes what the file says, of the parties that it names, and leaves the rest as it is. It is all
or nothing: when a party fails, all
go back to the version before. --watch follows it, and the exit code says how it ended:`,
		example: `  slipway serving update -f serving.json --watch
  echo '{"serving_id":"serving-01","parties":[{"domain_id":"alice","replicas":3}]}' | slipway serving update -f -`,
		send: (*sending).update},
}

type sending struct {
	*app.App
	mode    mode
	api     *client.Client
	token   *apiclient.KusciaToken
	options follow.Options
	results []manifest.Applied
}

func filesCommand(a *app.App, m mode, token *apiclient.KusciaToken) *cobra.Command {
	o := &sending{App: a, mode: m, token: token, results: []manifest.Applied{}}
	var files []string
	reader := &manifest.KusciaReader{Updates: m.updates}
	command := &cobra.Command{Use: m.name + " -f FILE", Short: m.short, Example: m.example, Args: cobra.NoArgs}
	command.Long = m.short + "." + fmt.Sprintf(filesHelp, m.request, m.end) + exitCodes
	check := func([]string) error {
		if err := o.options.Check(command); err != nil {
			return err
		}
		if err := reader.Read(a, files); err != nil {
			return err
		}
		if n := len(reader.Servings); o.options.Watch && n > 1 {
			return app.Usagef("--watch follows one serving, and there are %d: leave it out, and use slipway serving watch", n)
		}
		return nil
	}
	a.Writing(command, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		o.api = api
		return o.run(c.Context(), reader)
	})
	manifest.FileFlag(command, &files)
	token.Flags(command)
	o.options.StartFlags(command, words)
	return command
}

func (o *sending) run(ctx context.Context, found *manifest.KusciaReader) error {
	err := o.sendAll(ctx, found)
	last := found.Servings[len(found.Servings)-1].ID
	if err == nil && o.options.Watch {
		return watchOne(ctx, o.App, o.api, last, o.options)
	}
	if _, printed := o.PrintObject(o.results); printed != nil {
		return printed
	}
	if err == nil && o.Output == app.Table {
		o.Printf(o.Err, "Follow it with: slipway serving watch %s\n", last)
	}
	return err
}

func (o *sending) sendAll(ctx context.Context, found *manifest.KusciaReader) error {
	for _, image := range found.Images {
		outcome, err := appimage.Apply(ctx, o.api, *o.token, image, o.mode.name != "create")
		if err != nil {
			return fmt.Errorf("AppImage %s: %w", image.GetName(), err)
		}
		o.done("AppImage", image.GetName(), outcome)
	}
	for _, d := range found.Servings {
		outcome, err := o.mode.send(o, ctx, d)
		var said *app.ExitError
		switch {
		case errors.As(err, &said):
			return err
		case err != nil:
			return fmt.Errorf("serving %s: %w", d.ID, err)
		}
		o.done("serving", d.ID, outcome)
	}
	return nil
}

func (o *sending) done(noun, name, outcome string) {
	o.results = append(o.results, manifest.Applied{Name: name, Outcome: outcome})
	switch {
	case o.Output != app.Table:
	case o.options.Watch:
		o.Printf(o.Err, "%s %s %s\n", noun, name, outcome)
	default:
		o.Printf(o.Out, "%s %s %s\n", noun, name, outcome)
	}
}

func (o *sending) create(ctx context.Context, d manifest.ServingDocument) (outcome string, err error) {
	body, err := d.Body()
	if err == nil {
		_, err = apiclient.KusciaData(o.api.CreateKusciaServingWithBody(ctx, apiclient.JSONBody, bytes.NewReader(body), o.token.Shown))
	}
	return "created", err
}

// update sends a request to update a serving as it is. A whole serving that asks for more than an update can do is refused.
func (o *sending) update(ctx context.Context, d manifest.ServingDocument) (outcome string, err error) {
	body, err := d.Body()
	if d.Update == nil {
		if err := o.checkUpdate(ctx, d); err != nil {
			return "", err
		}
		body, err = manifest.Body(manifest.UpdateTo(d.Creation))
	}
	if err == nil {
		_, err = apiclient.KusciaData(o.api.UpdateKusciaServingWithBody(ctx, apiclient.JSONBody, bytes.NewReader(body), o.token.Shown))
	}
	return "updated", err
}

// apply creates the serving or updates it. An update that changes nothing makes no new generation.
func (o *sending) apply(ctx context.Context, d manifest.ServingDocument) (outcome string, err error) {
	before, err := apiclient.Read[serving.View](o.api.GetServing(ctx, d.ID))
	var problem *apiclient.ProblemError
	switch {
	case errors.As(err, &problem) && problem.Status == http.StatusNotFound:
		return o.create(ctx, d)
	case err != nil:
		return "", err
	}
	if outcome, err = o.update(ctx, d); err != nil {
		return "", err
	}
	after, err := apiclient.Read[serving.View](o.api.GetServing(ctx, d.ID))
	if err == nil && after.Value.Generation == before.Value.Generation {
		outcome = "unchanged"
	}
	return outcome, err
}

// checkUpdate refuses a whole serving that asks for more than an update can do.
func (o *sending) checkUpdate(ctx context.Context, d manifest.ServingDocument) error {
	data, err := apiclient.KusciaData(o.api.QueryKusciaServing(ctx, client.KusciaMessage{"serving_id": d.ID}, o.token.Shown))
	if err != nil {
		return err
	}
	now := &kusciapb.QueryServingResponseData{}
	if err := apiclient.ReadKuscia(data, now); err != nil {
		return err
	}
	affinityMode := ""
	if d.Creation.GetAffinityMode() != "" { // Kuscia's answer does not say it
		view, err := apiclient.Read[serving.View](o.api.GetServing(ctx, d.ID))
		if err != nil {
			return err
		}
		affinityMode = view.Value.AffinityMode
	}
	if findings := manifest.Unchangeable(d, now, affinityMode); len(findings) > 0 {
		return manifest.RefuseDocuments(o.App, findings, "serving "+d.ID+" was not changed")
	}
	return nil
}
