package serving

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/appimage"
	"slipway.io/slipway/cli/manifest"
)

const filesHelp = `A file holds Kuscia's request as JSON or YAML (%s), or a KusciaDeployment, which is translated to that request; several documents
are separated by "---". A field that the request does not have is refused with its path, and so is one that it would leave aside: kubectl apply takes
the whole KusciaDeployment.

An AppImage among the documents is registered first. Kuscia's request for one has no port numbers, and lacks more: an AppImage that says such is
refused, and has to be registered with kubectl apply.

%s`

// application is creating or updating servings by files.
type application struct {
	update  bool
	files   []string
	token   apiclient.KusciaToken
	output  string
	watch   bool
	options watchOptions
}

func createCommand(a *app.App) *cobra.Command {
	what := &application{}
	command := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Declare servings",
		Long: "Declare servings. " + fmt.Sprintf(filesHelp, "CreateServingRequest",
			"The answer comes when the serving is declared; --watch follows it until it is Available or has Failed, and the exit code says how it ended:\n\n"+exitCodes),
		Example: `  slipway serving create -f serving.json --watch
  slipway serving create -f secretflow-serving.yaml`,
	}
	return filesCommand(a, command, what)
}

func updateCommand(a *app.App) *cobra.Command {
	what := &application{update: true}
	command := &cobra.Command{
		Use:   "update -f FILE",
		Short: "Change servings: input configuration, images, replicas, strategies, resources",
		Long: "Change servings. " + fmt.Sprintf(filesHelp, "UpdateServingRequest",
			"An update changes what the file says, of the parties that it names, and leaves the rest as it is. It is all or nothing: when a party fails, all\n"+
				"go back to the version before. --watch follows it, and the exit code says how it ended:\n\n"+exitCodes),
		Example: `  slipway serving update -f serving.json --watch
  echo '{"serving_id":"serving-01","parties":[{"domain_id":"alice","replicas":3}]}' | slipway serving update -f -`,
	}
	return filesCommand(a, command, what)
}

func filesCommand(a *app.App, command *cobra.Command, what *application) *cobra.Command {
	command.Args = cobra.NoArgs
	command.RunE = func(c *cobra.Command, _ []string) error {
		if given := what.options.given(c); !what.watch && given != "" {
			return app.Usagef("--%s means nothing without --watch", given)
		}
		return applyAll(a, c, what)
	}
	app.ClientFlags(command)
	manifest.FileFlag(command, &what.files)
	app.OutputFlag(command, &what.output)
	what.token.Flags(command)
	command.Flags().BoolVarP(&what.watch, "watch", "w", false, "follow the serving until it is Available or has Failed")
	what.options.flags(command)
	return command
}

func (what *application) reader() *manifest.KusciaReader {
	r := &manifest.KusciaReader{Translate: manifest.CreationOf}
	r.ReadRequest = func(file string, text []byte) { r.ReadServingRequest(file, text, &kusciapb.CreateServingRequest{}) }
	if what.update {
		r.Translate = manifest.UpdateOf
		r.ReadRequest = func(file string, text []byte) { r.ReadServingRequest(file, text, &kusciapb.UpdateServingRequest{}) }
	}
	return r
}

// applyAll sends the AppImages, and then the servings; what fails ends it.
func applyAll(a *app.App, c *cobra.Command, what *application) error {
	reader := what.reader()
	if err := manifest.ReadServings(a, what.files, reader); err != nil {
		return err
	}
	servings := reader.Found.Servings
	if what.watch && len(servings) > 1 {
		return app.Usagef("--watch follows one serving, and there are %d: leave it out, and use slipway serving watch", len(servings))
	}
	api, err := a.ConnectToWrite(c)
	if err != nil {
		return err
	}
	results, err := what.send(c.Context(), a, api, reader.Found)
	if err == nil && what.watch {
		return watchOne(c.Context(), a, api, servings[0].ID, what.options, what.output)
	}
	if _, printed := a.PrintObject(what.output, results); printed != nil {
		return printed
	}
	if err == nil && what.output == app.Table {
		a.Printf(a.Err, "Follow it with: slipway serving watch %s\n", servings[len(servings)-1].ID)
	}
	return err
}

func (what *application) send(ctx context.Context, a *app.App, api *client.Client, found manifest.KusciaDocuments) ([]manifest.Applied, error) {
	results := []manifest.Applied{}
	done := func(noun, name, outcome string) {
		results = append(results, manifest.Applied{Name: name, Outcome: outcome})
		switch {
		case what.output != app.Table:
		case what.watch:
			a.Printf(a.Err, "%s %s %s\n", noun, name, outcome)
		default:
			a.Printf(a.Out, "%s %s %s\n", noun, name, outcome)
		}
	}
	for _, image := range found.Images {
		outcome, err := appimage.ApplyImage(ctx, api, what.token, image, what.update)
		if err != nil {
			return results, fmt.Errorf("AppImage %s: %w", image.GetName(), err)
		}
		done(manifest.KindAppImage, image.GetName(), outcome)
	}
	for _, d := range found.Servings {
		outcome, err := what.sendServing(ctx, a, api, d)
		if err != nil {
			var said *app.ExitError
			if errors.As(err, &said) {
				return results, err
			}
			return results, fmt.Errorf("serving %s: %w", d.ID, err)
		}
		done("serving", d.ID, outcome)
	}
	return results, nil
}

func (what *application) sendServing(ctx context.Context, a *app.App, api *client.Client, d manifest.ServingDocument) (outcome string, err error) {
	if !what.update {
		_, err := apiclient.KusciaData(api.CreateKusciaServingWithBody(ctx, apiclient.JSONBody, bytes.NewReader(d.Body), what.token.Shown))
		return "created", err
	}
	if d.Declared != nil {
		if err := what.checkUpdate(ctx, a, api, d); err != nil {
			return "", err
		}
	}
	_, err = apiclient.KusciaData(api.UpdateKusciaServingWithBody(ctx, apiclient.JSONBody, bytes.NewReader(d.Body), what.token.Shown))
	return "updated", err
}

// checkUpdate refuses a KusciaDeployment that asks for more than an update can do.
func (what *application) checkUpdate(ctx context.Context, a *app.App, api *client.Client, d manifest.ServingDocument) error {
	data, err := apiclient.KusciaData(api.QueryKusciaServing(ctx, client.KusciaMessage{"serving_id": d.ID}, what.token.Shown))
	if err != nil {
		return err
	}
	now := &kusciapb.QueryServingResponseData{}
	if err := apiclient.ReadKuscia(data, now); err != nil {
		return err
	}
	var findings []apiclient.Finding
	for _, wrong := range manifest.Unchangeable(d.Declared, now) {
		wrong.Line = manifest.FieldLine(d.Text, wrong.Field)
		findings = append(findings, apiclient.Finding{File: d.File, Wrong: wrong})
	}
	if len(findings) > 0 {
		return manifest.RefuseDocuments(a, findings, "serving "+d.ID+" was not changed")
	}
	return nil
}
