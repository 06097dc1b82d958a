package main

import (
	"bytes"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
)

func (a *app) planApplyCommand() *cobra.Command {
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
			return a.apply(c, application{
				noun: "plan", kind: kindPlan, nameFlag: "NAME", validName: catalog.ValidID,
				check: func(body []byte) strictyaml.Errors { _, _, errors := plan.Decode(body); return errors },
				put:   putPlan,
			}, files, name, output)
		},
	}
	clientFlags(command)
	fileFlag(command, &files)
	outputFlag(command, &output)
	return command
}

func putPlan(c *cobra.Command, api *client.Client, d document) (applied, error) {
	answer, err := read[client.PutPlanResult](api.PutPlanWithBody(c.Context(), d.name, yamlBody, bytes.NewReader(d.body)))
	if err != nil {
		return applied{}, err
	}
	return applied{Outcome: outcomeOf(answer.status, answer.value.Changed), Warnings: answer.value.Warnings}, nil
}
