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

const filesHelp = ` A file contains Kuscia's request (%s) as JSON or YAML, or a KusciaDeployment, which is translated
to that request. Separate several documents by "---". Fields that the request does not have or would ignore are
rejected with their path; kubectl apply accepts the complete KusciaDeployment.

AppImages in the files are registered first. Kuscia's request for an AppImage does not have all fields (for example, no
port numbers): an AppImage with such fields is rejected and must be applied with kubectl.

%s

`

type mode struct {
	name, short, example string
	// request is the name of Kuscia's request; helpEnd is the last paragraph of the help.
	request, helpEnd string
	// updates makes it expect update requests.
	updates bool
	send    func(o *applier, ctx context.Context, d manifest.ServingDocument) (outcome string, err error)
}

var modes = []mode{
	{name: "apply", short: "Create or update servings", request: "CreateServingRequest",
		helpEnd: `A serving that does not exist is created; an existing one is updated if the file differs. Changes that an
update cannot make, such as another initiator, are rejected with their path. With --watch, the command watches the
serving, and the exit code is the outcome:`,
		example: `  slipway serving apply -f secretflow-serving.yaml --watch`, send: (*applier).apply},
	{name: "create", short: "Create servings", request: "CreateServingRequest",
		helpEnd: "The command returns when the serving has been created. With --watch, it waits until the serving is " +
			"Available or Failed, and the exit code is the outcome:",
		example: `  slipway serving create -f serving.json --watch
  slipway serving create -f secretflow-serving.yaml`, send: (*applier).create},
	{name: "update", short: "Update servings: input configuration, images, replicas, strategies, resources",
		request: "UpdateServingRequest", updates: true,
		helpEnd: `An update changes only the fields in the file, of the parties in the file. It is all or nothing: if it
fails for one party, all parties return to the previous version. With --watch, the command watches it, and the exit
code is the outcome:`,
		example: `  slipway serving update -f serving.json --watch
  echo '{"serving_id":"serving-01","parties":[{"domain_id":"alice","replicas":3}]}' | slipway serving update -f -`,
		send: (*applier).update},
}

type applier struct {
	*app.App
	mode    mode
	api     *client.Client
	token   *apiclient.KusciaToken
	options follow.Options
	results []manifest.Result
}

func filesCommand(a *app.App, m mode, token *apiclient.KusciaToken) *cobra.Command {
	o := &applier{App: a, mode: m, token: token, results: []manifest.Result{}}
	var files []string
	reader := &manifest.KusciaReader{Updates: m.updates}
	command := &cobra.Command{Use: m.name + " -f FILE", Short: m.short, Example: m.example, Args: cobra.NoArgs}
	command.Long = m.short + "." + fmt.Sprintf(filesHelp, m.request, m.helpEnd) + exitCodes
	check := func([]string) error {
		if err := o.options.Check(command); err != nil {
			return err
		}
		if err := reader.Read(a, files); err != nil {
			return err
		}
		if n := len(reader.Servings); o.options.Watch && n > 1 {
			return app.Usagef("--watch supports one serving, but the files contain %d: use slipway serving watch "+
				"instead", n)
		}
		return nil
	}
	a.InitWriteCommand(command, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		o.api = api
		return o.run(c.Context(), reader)
	})
	manifest.FileFlag(command, &files)
	token.Flags(command)
	o.options.StartFlags(command, watchHelp)
	return command
}

func (o *applier) run(ctx context.Context, found *manifest.KusciaReader) error {
	err := o.sendAll(ctx, found)
	last := found.Servings[len(found.Servings)-1].ID
	if err == nil && o.options.Watch {
		return watchOne(ctx, o.App, o.api, last, o.options)
	}
	if _, printed := o.PrintObject(o.results); printed != nil {
		return printed
	}
	if err == nil && o.Output == app.Table {
		o.Printf(o.Err, "To watch it: slipway serving watch %s\n", last)
	}
	return err
}

func (o *applier) sendAll(ctx context.Context, found *manifest.KusciaReader) error {
	for _, image := range found.Images {
		outcome, err := appimage.Apply(ctx, o.api, *o.token, image, o.mode.name != "create")
		if err != nil {
			return fmt.Errorf("AppImage %s: %w", image.GetName(), err)
		}
		o.report("AppImage", image.GetName(), outcome)
	}
	for _, d := range found.Servings {
		outcome, err := o.mode.send(o, ctx, d)
		var exit *app.ExitError
		switch {
		case errors.As(err, &exit):
			return err
		case err != nil:
			return fmt.Errorf("serving %s: %w", d.ID, err)
		}
		o.report("serving", d.ID, outcome)
	}
	return nil
}

func (o *applier) report(noun, name, outcome string) {
	o.results = append(o.results, manifest.Result{Name: name, Outcome: outcome})
	switch {
	case o.Output != app.Table:
	case o.options.Watch:
		o.Printf(o.Err, "%s %s %s\n", noun, name, outcome)
	default:
		o.Printf(o.Out, "%s %s %s\n", noun, name, outcome)
	}
}

func (o *applier) create(ctx context.Context, d manifest.ServingDocument) (outcome string, err error) {
	body, err := d.Body()
	if err == nil {
		_, err = apiclient.KusciaData(o.api.CreateKusciaServingWithBody(ctx, apiclient.JSONBody, bytes.NewReader(body),
			o.token.Authorize))
	}
	return "created", err
}

// update sends an update request unchanged. For a complete serving it first rejects changes that an update cannot make.
func (o *applier) update(ctx context.Context, d manifest.ServingDocument) (outcome string, err error) {
	body, err := d.Body()
	if d.Update == nil {
		if err := o.checkUpdate(ctx, d); err != nil {
			return "", err
		}
		body, err = manifest.Body(manifest.UpdateRequest(d.Create))
	}
	if err == nil {
		_, err = apiclient.KusciaData(o.api.UpdateKusciaServingWithBody(ctx, apiclient.JSONBody, bytes.NewReader(body),
			o.token.Authorize))
	}
	return "updated", err
}

// apply creates or updates the serving. An update that changes nothing does not increase the generation.
func (o *applier) apply(ctx context.Context, d manifest.ServingDocument) (outcome string, err error) {
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

// checkUpdate returns an error if a complete serving differs in fields that an update cannot change.
func (o *applier) checkUpdate(ctx context.Context, d manifest.ServingDocument) error {
	data, err := apiclient.KusciaData(o.api.QueryKusciaServing(ctx, client.KusciaMessage{"serving_id": d.ID},
		o.token.Authorize))
	if err != nil {
		return err
	}
	now := &kusciapb.QueryServingResponseData{}
	if err := apiclient.ReadKuscia(data, now); err != nil {
		return err
	}
	affinityMode := ""
	if d.Create.GetAffinityMode() != "" { // Kuscia's response does not contain it
		view, err := apiclient.Read[serving.View](o.api.GetServing(ctx, d.ID))
		if err != nil {
			return err
		}
		affinityMode = view.Value.AffinityMode
	}
	if findings := manifest.UnsupportedChanges(d, now, affinityMode); len(findings) > 0 {
		return manifest.RejectDocuments(o.App, findings, "serving "+d.ID+" was not changed")
	}
	return nil
}
