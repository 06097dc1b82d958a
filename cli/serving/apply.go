package serving

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/appimage"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/manifest"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

const filesHelp = ` A file contains a KusciaDeployment, or Kuscia's request (%s) as JSON or YAML.
Separate several documents by "---". Labels and annotations other than Kuscia's cannot be set and are rejected, like
unknown fields, with their path; kubectl apply accepts them.

AppImages in the files are registered first.

%s

`

type mode struct {
	name, short, example string
	// request is the name of Kuscia's request; helpEnd is the last paragraph of the help.
	request, helpEnd string
	// creates makes it refuse existing servings, updates missing ones.
	creates, updates bool
}

var modes = []mode{
	{name: "apply", short: "Create or update servings", request: "CreateServingRequest",
		helpEnd: `A serving that does not exist is created; an existing one is updated if the file differs. Parties cannot be
added or removed. With --watch, the command watches the serving, and the exit code is the outcome:`,
		example: `  slipway serving apply -f secretflow-serving.yaml --watch`},
	{name: "create", short: "Create servings", request: "CreateServingRequest", creates: true,
		helpEnd: "The command returns when the serving has been created. With --watch, it waits until the serving is " +
			"Available or Failed, and the exit code is the outcome:",
		example: `  slipway serving create -f serving.json --watch
  slipway serving create -f secretflow-serving.yaml`},
	{name: "update", short: "Update servings: input configuration, images, replicas, strategies, resources",
		request: "UpdateServingRequest", updates: true,
		helpEnd: `A request changes only its fields, of its parties; a KusciaDeployment is the whole serving. An update is all
or nothing: if it fails for one party, all parties return to the previous version. With --watch, the command watches
it, and the exit code is the outcome:`,
		example: `  slipway serving update -f serving.json --watch
  echo '{"serving_id":"serving-01","parties":[{"domain_id":"alice","replicas":3}]}' | slipway serving update -f -`},
}

func filesCommand(n *servings, m mode) *cobra.Command {
	a := n.App
	var options follow.Options
	var files []string
	var documents []manifest.Document
	command := &cobra.Command{Use: m.name + " -f FILE", Short: m.short, Example: m.example, Args: cobra.NoArgs}
	command.Long = m.short + "." + fmt.Sprintf(filesHelp, m.request, m.helpEnd) + exitCodes
	check := func([]string) (err error) {
		if err := options.Check(command); err != nil {
			return err
		}
		documents, err = manifest.KusciaReader{Kind: manifest.KindServing, Updates: m.updates}.Read(a, files)
		servings := 0
		for _, d := range documents {
			if d.Kind == manifest.KindServing {
				servings++
			}
		}
		if err == nil && options.Watch && servings > 1 {
			return app.Usagef("--watch supports one serving, but the files contain %d: use slipway serving watch "+
				"instead", servings)
		}
		return err
	}
	a.InitCommand(command, a.ConnectToWrite, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		put := func(ctx context.Context, api *client.Client, d manifest.Document) (manifest.Result, error) {
			return m.put(ctx, n, api, d)
		}
		what := manifest.Applier{Noun: "serving", Put: put, InOrder: true, Watched: options.Watch}
		if err := what.Send(c.Context(), a, api, documents); err != nil {
			return err
		}
		last := documents[len(documents)-1].Name
		if options.Watch {
			return watchOne(c.Context(), n, api, last, options)
		}
		if a.Output == app.Table {
			a.Printf(a.Err, "To watch it: slipway serving watch %s\n", last)
		}
		return nil
	})
	manifest.FileFlag(command, &files)
	options.StartFlags(command, watchHelp)
	return command
}

// put sends an AppImage or a whole serving, which it first makes from a request.
func (m mode) put(ctx context.Context, n *servings, api *client.Client, d manifest.Document) (result manifest.Result,
	err error) {
	if d.Kind == manifest.KindAppImage {
		return appimage.Put(ctx, api, d, m.creates)
	}
	params := &client.PutServingParams{}
	var current serving.View
	switch {
	case m.creates:
		params.Generation = &current.Generation
	case m.updates:
		answer, err := n.Read(ctx, api, d.Name)
		if err != nil {
			return result, err
		}
		current = answer.Value
		params.Generation = &current.Generation
	}
	var spec kuscia.KusciaDeploymentSpec
	var missing error
	switch r := d.Request.(type) {
	case *kusciapb.CreateServingRequest:
		d.AffinityMode = r.GetAffinityMode()
		spec, _, err = convert.NewSpec(r, readImages(ctx, api, &missing))
	case *kusciapb.UpdateServingRequest:
		spec, _, err = convert.ChangedSpec(ptr.Deref(current.Spec, spec), r, readImages(ctx, api, &missing))
	}
	body := d.Body
	if err == nil && d.Request != nil {
		body, err = json.Marshal(spec)
	}
	if err != nil {
		return result, cmp.Or(missing, err)
	}
	if d.AffinityMode != "" {
		params.AffinityMode = &d.AffinityMode
	}
	result, err = manifest.ReadResult(api.PutServingWithBody(ctx, d.Name, params, apiclient.YAMLBody,
		bytes.NewReader(body)))
	if result.Outcome == "replaced" {
		result.Outcome = "updated"
	}
	return result, err
}

// readImages returns the function that reads the AppImages of parties. One that doesn't exist is left out, since the
// request may replace it; missing is set to the API's error then.
func readImages(ctx context.Context, api *client.Client, missing *error) convert.ReadImages {
	return func(parties []kuscia.Party) (convert.Images, error) {
		images := convert.Images{}
		for _, p := range parties {
			if _, known := images[p.AppImageRef]; known || p.AppImageRef == "" {
				continue
			}
			image, err := apiclient.Read[client.AppImage](api.GetAppImage(ctx, p.AppImageRef))
			if problem := (*apiclient.ProblemError)(nil); errors.As(err, &problem) &&
				problem.Status == http.StatusNotFound {
				*missing = err
				continue
			}
			if err != nil {
				return nil, err
			}
			images[p.AppImageRef] = image.Value.Spec
		}
		return images, nil
	}
}
