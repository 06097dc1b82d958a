package main

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/api/client"
)

// trafficRoutingHead is what a document says of itself.
type trafficRoutingHead struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// readTrafficRouting learns what one document is called; its body is checked by the engine.
func readTrafficRouting(file string, body []byte, where place, argument string) (document, error) {
	var head trafficRoutingHead
	if err := yaml.Unmarshal(body, &head); err != nil {
		return document{}, fmt.Errorf("%s: %s", file, oneLine(err.Error()))
	}
	if head.Kind != "" && head.Kind != "TrafficRouting" {
		return document{}, fmt.Errorf("%s:%d: kind must be TrafficRouting, not %s", file, firstLine(body), oneLine(head.Kind))
	}
	if argument == "" {
		argument = head.Metadata.Name
	}
	if argument == "" {
		return document{}, usagef("%s:%d: a spec alone has no name: write NAME after the file, or a whole object", file, firstLine(body))
	}
	if where.namespace == "" {
		where.namespace = head.Metadata.Namespace
	}
	name, err := where.named(argument)
	if err != nil {
		return document{}, err
	}
	for own, said := range map[string]string{head.Metadata.Name: name.name, head.Metadata.Namespace: name.namespace} {
		if own != "" && own != said {
			return document{}, usagef("%s calls itself %s, the command line says %s: leave one of them out", file, own, said)
		}
	}
	return document{file: file, name: name.namespace + "/" + name.name, kind: head.Kind, body: body}, nil
}

func putTrafficRouting(c *cobra.Command, api *client.Client, d document) (applied, error) {
	where := place{}
	name, err := where.named(d.name)
	if err != nil {
		return applied{}, err
	}
	answer, err := read[client.PutTrafficRoutingResult](api.PutTrafficRoutingWithBody(c.Context(), name.namespace, name.name, yamlBody, bytes.NewReader(d.body)))
	if err != nil {
		return applied{}, err
	}
	result := applied{Outcome: outcomeOf(answer.status, answer.value.Changed)}
	for _, w := range answer.value.Warnings {
		result.Warnings = append(result.Warnings, client.FieldProblem{Reason: w})
	}
	return result, nil
}
