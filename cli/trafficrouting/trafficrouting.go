// Package trafficrouting implements `slipway trafficrouting`: routes that several rollouts share.
package trafficrouting

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/strictyaml"
)

// Command returns `slipway trafficrouting`.
func Command(a *app.App) *cobra.Command {
	n := routings(a)
	apply := n.ApplyCommand(
		`A file contains TrafficRouting objects (rollouts.kruise.io/v1alpha1), separated by "---", or one spec, whose name is
NAME. -n sets the namespace for documents that do not have one.`,
		`  slipway trafficrouting apply -f mse-traffic.yaml -n shop`, manifest.Applier{
			NameFlag: "NAME",
			Read: func(files []string, name string) ([]manifest.Document, error) {
				return readAll(a, files, *n.Scope, name)
			},
		})
	apply.Aliases = []string{"put"}
	command := &cobra.Command{Use: n.Command, Aliases: []string{"trafficroutings", "tr"},
		Short: "Manage traffic routings: routes shared by several rollouts"}
	command.AddCommand(apply, n.ListCommand("List the traffic routings and the rollouts that hold them",
		noun.ListOptions{}),
		n.GetCommand("Show a traffic routing and the rollouts that hold it"),
		n.DeleteCommand("Delete traffic routings. One that a rollout holds is not deleted, because its routes could "+
			"not be restored."))
	return command
}

func routings(a *app.App) *noun.Noun[client.TrafficRouting, client.TrafficRouting] {
	var where app.ScopeFlags
	return &noun.Noun[client.TrafficRouting, client.TrafficRouting]{
		App: a, Command: "trafficrouting", Name: "traffic routing", Argument: "NAME",
		Collection: "trafficroutings", Scope: &where,
		Flags:  where.NamespaceFlag,
		Key:    func(t client.TrafficRouting) string { return t.Namespace + "/" + t.Name },
		Note:   func(t client.TrafficRouting) string { return string(t.Status.Phase) },
		Titles: []string{"NAME", "PHASE", "HELD BY", "AGE"},
		Row: func(t client.TrafficRouting) []string {
			return []string{t.Namespace + "/" + t.Name, string(t.Status.Phase), strings.Join(t.Status.Holders, ", "),
				a.Age(t.CreatedAt)}
		},
		Empty: "There are no traffic routings. Create one with `slipway trafficrouting apply -f FILE`.",
		Describe: func(name string, t client.TrafficRouting) error {
			a.Printf(a.Out, "traffic routing %s is %s%s\n", name, t.Status.Phase, render.ReasonSuffix(t.Status.Message))
			for _, holder := range t.Status.Holders {
				a.Printf(a.Out, "held by %s\n", render.OneLine(holder))
			}
			a.Printf(a.Out, "\n")
			return a.PrintYAML(t.Spec)
		},
	}
}

// readAll reads the documents and names each NAMESPACE/NAME.
func readAll(a *app.App, files []string, where app.ScopeFlags, argument string) ([]manifest.Document, error) {
	var documents []manifest.Document
	for _, file := range files {
		text, shown, err := manifest.ReadFile(a, file)
		if err != nil {
			return nil, err
		}
		for _, part := range strictyaml.Split(text) {
			d, err := readOne(shown, part, where, argument)
			if err != nil {
				return nil, err
			}
			documents = append(documents, d)
		}
	}
	switch {
	case len(documents) == 0:
		return nil, fmt.Errorf("no documents in %s", strings.Join(files, ", "))
	case argument != "" && len(documents) > 1:
		return nil, app.Usagef("NAME names one traffic routing, but there are %d documents: use objects with "+
			"metadata.name",
			len(documents))
	}
	return documents, nil
}

// readOne reads the name of one document. The engine validates the spec.
func readOne(file string, body []byte, where app.ScopeFlags, argument string) (manifest.Document, error) {
	var head metav1.PartialObjectMetadata
	d := manifest.Document{File: file, Body: body}
	if err := yaml.Unmarshal(body, &head); err != nil {
		return d, fmt.Errorf("%s: %s", file, render.OneLine(err.Error()))
	}
	if head.Kind != "" && head.Kind != "TrafficRouting" {
		return d, fmt.Errorf("%s:%d: kind must be TrafficRouting, not %s", file, manifest.FirstLine(body),
			render.OneLine(head.Kind))
	}
	if argument == "" {
		argument = head.Name
	}
	if argument == "" {
		return d, app.Usagef("%s:%d: the spec has no name: add the argument NAME, or use an object", file,
			manifest.FirstLine(body))
	}
	if where.Namespace == "" {
		where.Namespace = head.Namespace
	}
	name, err := where.ParseName(argument)
	if err != nil {
		return d, err
	}
	for own, given := range map[string]string{head.Name: name.Name, head.Namespace: name.Namespace} {
		if own != "" && own != given {
			return d, app.Usagef("%s has %s, but the command line has %s: use only one of them", file, own, given)
		}
	}
	d.Kind, d.Name = head.Kind, name.Namespace+"/"+name.Name
	return d, nil
}
