package main

import (
	"bytes"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// yamlBody is the content type of what is sent; JSON is read as well, since a document may be either.
const yamlBody = "application/yaml"

func (a *app) serviceApplyCommand() *cobra.Command {
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
			return a.apply(c, application{
				noun: "service", kind: kindService, nameFlag: "--id", validName: catalog.ValidID,
				check: func(body []byte) strictyaml.Errors { _, errors := catalog.Decode(body); return errors },
				put:   putService,
			}, files, id, output)
		},
	}
	clientFlags(command)
	fileFlag(command, &files)
	command.Flags().StringVar(&id, "id", "", "`ID` of the service, when the file holds its document alone (default: after the file)")
	outputFlag(command, &output)
	return command
}

func putService(c *cobra.Command, api *client.Client, d document) (applied, error) {
	answer, err := read[client.PutServiceResult](api.PutServiceWithBody(c.Context(), d.name, yamlBody, bytes.NewReader(d.body)))
	if err != nil {
		return applied{}, err
	}
	return applied{Outcome: outcomeOf(answer.status, answer.value.Changed)}, nil
}
