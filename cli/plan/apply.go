package plan

import (
	"bytes"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
)

func applyCommand(a *app.App) *cobra.Command {
	var files []string
	var output string
	command := &cobra.Command{
		Use:   "apply -f FILE [NAME]",
		Short: "Create or replace plans",
		Long: `Create or replace plans. A file holds either one plan's document, which is called NAME or else after the file
(shop.yaml is plan shop), or any number of DeployPlan objects (apiVersion slipway.io/v1alpha1), separated by "---".

Every document is checked before the first one is sent. Saving a plan changes nothing in any cluster; running it does.`,
		Example: `  slipway plan apply -f shop.yaml
  slipway plan apply -f - shop < plan.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return manifest.Apply(a, c, manifest.Application{
				Noun: "plan", Kind: manifest.KindPlan, NameFlag: "NAME", ValidName: catalog.ValidID,
				Check: func(body []byte) strictyaml.Errors { _, _, errors := plan.Decode(body); return errors },
				Put:   put,
			}, files, name, output)
		},
	}
	app.ClientFlags(command)
	manifest.FileFlag(command, &files)
	app.OutputFlag(command, &output)
	return command
}

func put(c *cobra.Command, api *client.Client, d manifest.Document) (manifest.Applied, error) {
	answer, err := apiclient.Read[client.PutPlanResult](api.PutPlanWithBody(c.Context(), d.Name, apiclient.YAMLBody, bytes.NewReader(d.Body)))
	if err != nil {
		return manifest.Applied{}, err
	}
	return manifest.Applied{Outcome: manifest.OutcomeOf(answer.Status, answer.Value.Changed), Warnings: answer.Value.Warnings}, nil
}
