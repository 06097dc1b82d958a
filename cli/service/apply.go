package service

import (
	"bytes"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

func applyCommand(a *app.App) *cobra.Command {
	var files []string
	var id, output string
	command := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or replace services",
		Long: `Create or replace services. A file holds either one service's document, which is called by --id or else after the file
(111.yaml is service 111), or any number of ReleaseService objects (apiVersion slipway.io/v1alpha1), separated by "---".

Every document is checked before the first one is sent.`,
		Example: `  slipway service apply -f 111.yaml
  slipway service apply -f services.yaml -f more-services.yaml
  slipway service apply --id 111 -f - < order.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return manifest.Apply(a, c, manifest.Application{
				Noun: "service", Kind: manifest.KindService, NameFlag: "--id", ValidName: catalog.ValidID,
				Check: func(body []byte) strictyaml.Errors { _, errors := catalog.Decode(body); return errors },
				Put:   put,
			}, files, id, output)
		},
	}
	app.ClientFlags(command)
	manifest.FileFlag(command, &files)
	command.Flags().StringVar(&id, "id", "", "`ID` of the service, when the file holds its document alone (default: after the file)")
	app.OutputFlag(command, &output)
	return command
}

func put(c *cobra.Command, api *client.Client, d manifest.Document) (manifest.Applied, error) {
	answer, err := apiclient.Read[client.PutServiceResult](api.PutServiceWithBody(c.Context(), d.Name, apiclient.YAMLBody, bytes.NewReader(d.Body)))
	if err != nil {
		return manifest.Applied{}, err
	}
	return manifest.Applied{Outcome: manifest.OutcomeOf(answer.Status, answer.Value.Changed)}, nil
}
