package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/api/kuscia/kusciapb"
)

const servingFilesHelp = `A file holds Kuscia's request as JSON or YAML (%s), or a KusciaDeployment, which is translated to that request; several documents
are separated by "---". A field that the request does not have is refused with its path, and so is one that it would leave aside: kubectl apply takes
the whole KusciaDeployment.

An AppImage among the documents is registered first. Kuscia's request for one has no port numbers, and lacks more: an AppImage that says such is
refused, and has to be registered with kubectl apply.

%s`

// servingApplication is creating or updating servings by files.
type servingApplication struct {
	update  bool
	files   []string
	token   kusciaToken
	output  string
	watch   bool
	options servingWatch
}

func (a *app) servingCreateCommand() *cobra.Command {
	what := &servingApplication{}
	command := &cobra.Command{
		Use:   "create -f FILE",
		Short: "Declare servings",
		Long: "Declare servings. " + fmt.Sprintf(servingFilesHelp, "CreateServingRequest",
			"The answer comes when the serving is declared; --watch follows it until it is Available or has Failed, and the exit code says how it ended:\n\n"+servingExitCodes),
		Example: `  slipway serving create -f serving.json --watch
  slipway serving create -f secretflow-serving.yaml`,
	}
	return a.servingFilesCommand(command, what)
}

func (a *app) servingUpdateCommand() *cobra.Command {
	what := &servingApplication{update: true}
	command := &cobra.Command{
		Use:   "update -f FILE",
		Short: "Change servings: input configuration, images, replicas, strategies, resources",
		Long: "Change servings. " + fmt.Sprintf(servingFilesHelp, "UpdateServingRequest",
			"An update changes what the file says, of the parties that it names, and leaves the rest as it is. It is all or nothing: when a party fails, all\n"+
				"go back to the version before. --watch follows it, and the exit code says how it ended:\n\n"+servingExitCodes),
		Example: `  slipway serving update -f serving.json --watch
  echo '{"serving_id":"serving-01","parties":[{"domain_id":"alice","replicas":3}]}' | slipway serving update -f -`,
	}
	return a.servingFilesCommand(command, what)
}

func (a *app) servingFilesCommand(command *cobra.Command, what *servingApplication) *cobra.Command {
	command.Args = cobra.NoArgs
	command.RunE = func(c *cobra.Command, _ []string) error {
		if given := what.options.given(c); !what.watch && given != "" {
			return usagef("--%s means nothing without --watch", given)
		}
		return a.applyServings(c, what)
	}
	clientFlags(command)
	fileFlag(command, &what.files)
	outputFlag(command, &what.output)
	what.token.flags(command)
	command.Flags().BoolVarP(&what.watch, "watch", "w", false, "follow the serving until it is Available or has Failed")
	what.options.flags(command)
	return command
}

func (what *servingApplication) reader() *documentReader {
	r := &documentReader{translate: creationOf}
	r.readRequest = func(file string, text []byte) { r.readServingRequest(file, text, &kusciapb.CreateServingRequest{}) }
	if what.update {
		r.translate = updateOf
		r.readRequest = func(file string, text []byte) { r.readServingRequest(file, text, &kusciapb.UpdateServingRequest{}) }
	}
	return r
}

// applyServings sends the AppImages, and then the servings; what fails ends it.
func (a *app) applyServings(c *cobra.Command, what *servingApplication) error {
	reader := what.reader()
	if err := a.readServings(what.files, reader); err != nil {
		return err
	}
	servings := reader.found.servings
	if what.watch && len(servings) > 1 {
		return usagef("--watch follows one serving, and there are %d: leave it out, and use slipway serving watch", len(servings))
	}
	api, err := a.connectToWrite(c)
	if err != nil {
		return err
	}
	results, err := what.send(c.Context(), a, api, reader.found)
	if err == nil && what.watch {
		return a.watchServing(c.Context(), api, servings[0].id, what.options, what.output)
	}
	if _, printed := a.printObject(what.output, results); printed != nil {
		return printed
	}
	if err == nil && what.output == outputTable {
		a.printf(a.err, "Follow it with: slipway serving watch %s\n", servings[len(servings)-1].id)
	}
	return err
}

func (what *servingApplication) send(ctx context.Context, a *app, api *client.Client, found servingFile) ([]applied, error) {
	results := []applied{}
	done := func(noun, name, outcome string) {
		results = append(results, applied{Name: name, Outcome: outcome})
		switch {
		case what.output != outputTable:
		case what.watch:
			a.printf(a.err, "%s %s %s\n", noun, name, outcome)
		default:
			a.printf(a.out, "%s %s %s\n", noun, name, outcome)
		}
	}
	for _, image := range found.images {
		outcome, err := applyImage(ctx, api, what.token, image, what.update)
		if err != nil {
			return results, fmt.Errorf("AppImage %s: %w", image.GetName(), err)
		}
		done(kindAppImage, image.GetName(), outcome)
	}
	for _, d := range found.servings {
		outcome, err := what.sendServing(ctx, a, api, d)
		if err != nil {
			var said *exitError
			if errors.As(err, &said) {
				return results, err
			}
			return results, fmt.Errorf("serving %s: %w", d.id, err)
		}
		done("serving", d.id, outcome)
	}
	return results, nil
}

func (what *servingApplication) sendServing(ctx context.Context, a *app, api *client.Client, d servingDocument) (outcome string, err error) {
	if !what.update {
		_, err := kusciaData(api.CreateKusciaServingWithBody(ctx, jsonBody, bytes.NewReader(d.body), what.token.shown))
		return "created", err
	}
	if d.declared != nil {
		if err := what.checkUpdate(ctx, a, api, d); err != nil {
			return "", err
		}
	}
	_, err = kusciaData(api.UpdateKusciaServingWithBody(ctx, jsonBody, bytes.NewReader(d.body), what.token.shown))
	return "updated", err
}

// checkUpdate refuses a KusciaDeployment that asks for more than an update can do.
func (what *servingApplication) checkUpdate(ctx context.Context, a *app, api *client.Client, d servingDocument) error {
	data, err := kusciaData(api.QueryKusciaServing(ctx, client.KusciaMessage{"serving_id": d.id}, what.token.shown))
	if err != nil {
		return err
	}
	now := &kusciapb.QueryServingResponseData{}
	if err := readKuscia(data, now); err != nil {
		return err
	}
	var findings []finding
	for _, wrong := range unchangeable(d.declared, now) {
		wrong.Line = fieldLine(d.text, wrong.Field)
		findings = append(findings, finding{file: d.file, wrong: wrong})
	}
	if len(findings) > 0 {
		return a.refuseDocuments(findings, "serving "+d.id+" was not changed")
	}
	return nil
}
