package trafficrouting

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/render"
)

// head is what a document says of itself.
type head struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// readOne learns what one document is called; its body is checked by the engine.
func readOne(file string, body []byte, where app.Place, argument string) (manifest.Document, error) {
	var head head
	if err := yaml.Unmarshal(body, &head); err != nil {
		return manifest.Document{}, fmt.Errorf("%s: %s", file, render.OneLine(err.Error()))
	}
	if head.Kind != "" && head.Kind != "TrafficRouting" {
		return manifest.Document{}, fmt.Errorf("%s:%d: kind must be TrafficRouting, not %s", file, manifest.FirstLine(body), render.OneLine(head.Kind))
	}
	if argument == "" {
		argument = head.Metadata.Name
	}
	if argument == "" {
		return manifest.Document{}, app.Usagef("%s:%d: a spec alone has no name: write NAME after the file, or a whole object", file, manifest.FirstLine(body))
	}
	if where.Namespace == "" {
		where.Namespace = head.Metadata.Namespace
	}
	name, err := where.Named(argument)
	if err != nil {
		return manifest.Document{}, err
	}
	for own, said := range map[string]string{head.Metadata.Name: name.Name, head.Metadata.Namespace: name.Namespace} {
		if own != "" && own != said {
			return manifest.Document{}, app.Usagef("%s calls itself %s, the command line says %s: leave one of them out", file, own, said)
		}
	}
	return manifest.Document{File: file, Name: name.Namespace + "/" + name.Name, Kind: head.Kind, Body: body}, nil
}

func put(c *cobra.Command, api *client.Client, d manifest.Document) (manifest.Applied, error) {
	where := app.Place{}
	name, err := where.Named(d.Name)
	if err != nil {
		return manifest.Applied{}, err
	}
	answer, err := apiclient.Read[client.PutTrafficRoutingResult](api.PutTrafficRoutingWithBody(c.Context(), name.Namespace, name.Name, apiclient.YAMLBody, bytes.NewReader(d.Body)))
	if err != nil {
		return manifest.Applied{}, err
	}
	result := manifest.Applied{Outcome: manifest.OutcomeOf(answer.Status, answer.Value.Changed)}
	for _, w := range answer.Value.Warnings {
		result.Warnings = append(result.Warnings, client.FieldProblem{Reason: w})
	}
	return result, nil
}
