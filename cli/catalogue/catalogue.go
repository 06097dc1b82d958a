// Package catalogue implements `slipway service`, the catalogue of services, `slipway party`, parties and the state of
// their workers, and `slipway trafficrouting`, routes that several rollouts share.
package catalogue

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
)

// ServiceCommand returns `slipway service`.
func ServiceCommand(a *app.App) *cobra.Command {
	n := services(a)
	apply := n.ApplyCommand(
		`A file contains either the document of one service, whose ID is set by --id or taken from the file name (111.yaml is
service 111), or one or more ReleaseService objects (apiVersion slipway.io/v1alpha1), separated by "---".

All documents are validated before the first one is sent.`, `  slipway service apply -f 111.yaml
  slipway service apply -f services.yaml -f more-services.yaml
  slipway service apply --id 111 -f - < order.yaml`, manifest.Applier{
			Kind: manifest.KindService, NameFlag: "--id", ValidName: catalog.ValidID,
			Check: func(body []byte) strictyaml.Errors {
				_, errors := strategy.DecodeService(body)
				return errors
			},
		})
	command := &cobra.Command{Use: n.Command, Aliases: []string{"services"}, Short: "Manage the catalogue of services"}
	command.AddCommand(apply, n.ListCommand("List the services", nil), n.GetCommand("Show a service",
		"Show a service. With -o yaml or json, print the document that `slipway service apply --id ID -f -` "+
			"accepts."), n.DeleteCommand("Delete services from the catalogue. Their workloads are not changed. A "+
		"service that a plan uses is not deleted; the error names the plans."))
	return command
}

func services(a *app.App) *noun.Noun[client.ServiceSummary, client.Service] {
	return &noun.Noun[client.ServiceSummary, client.Service]{
		App: a, Command: "service", Name: "service", Argument: "ID", Calls: noun.Calls{
			List:   apiclient.List((*client.Client).ListServices),
			Get:    apiclient.Named((*client.Client).GetService),
			Put:    apiclient.NamedBody((*client.Client).PutServiceWithBody),
			Delete: apiclient.Named((*client.Client).DeleteService)},
		Key:    func(s client.ServiceSummary) string { return s.ID },
		Note:   func(s client.ServiceSummary) string { return s.DisplayName },
		Titles: []string{"ID", "NAME", "WORKLOADS", "AGE"},
		Row: func(s client.ServiceSummary) []string {
			var workloads []string
			for _, w := range s.Workloads {
				workloads = append(workloads, w.String())
			}
			return []string{s.ID, s.DisplayName, strings.Join(workloads, ", "), a.Age(s.CreatedAt)}
		},
		Empty:    "The catalogue is empty. Add services with `slipway service apply -f FILE`.",
		Describe: func(id string, s client.Service) error { return describeService(a, id, s) },
	}
}

func describeService(a *app.App, id string, s catalog.Service) error {
	a.Printf(a.Out, "service %s%s\ntimeout of operations: %ds\n\n", id, render.ReasonSuffix(s.DisplayName),
		s.Deadline())
	table := render.NewTable("PARTY", "WORKLOAD", "LABELS", "REPLICAS")
	for _, w := range s.Workloads {
		replicas := ""
		if w.Replicas != nil {
			replicas = fmt.Sprint(*w.Replicas)
		}
		table.Add(w.PartyOrDefault(), w.WorkloadRef.Kind+" "+w.Namespace+"/"+w.WorkloadRef.Name,
			strings.Join(w.Labels, ","), replicas)
	}
	a.Printf(a.Out, "%s", table)
	if s.Package != nil {
		how := "unpacked"
		if !s.Package.Unpacked() {
			how = "kept as one file"
		}
		a.Printf(a.Out, "\ncode packages are %s in container %s at %s\n", how, render.OneLine(s.Package.Container),
			render.OneLine(s.Package.MountPath))
	}
	if s.Build != nil {
		a.Printf(a.Out, "\nbuilt by a Job into %s\n", render.OneLine(s.Build.Image+s.Build.Package))
	}
	return nil
}

// PartyCommand returns `slipway party`.
func PartyCommand(a *app.App) *cobra.Command {
	n := parties(a)
	apply := n.ApplyCommand(
		`A file contains either the spec of one party (queue, namespace and labels, all optional), whose name is set by --name
or taken from the file name (alice.yaml is party alice), or one or more Party objects (apiVersion slipway.io/v1alpha1),
separated by "---".

All documents are validated before the first one is sent.`, `  slipway party apply -f parties.yaml
  echo 'namespace: shop' | slipway party apply --name alice -f -`, manifest.Applier{
			Kind: manifest.KindParty, NameFlag: "--name", ValidName: catalog.ValidParty,
			Check: func(body []byte) strictyaml.Errors {
				_, errors := party.Decode(body)
				return errors
			},
		})
	command := &cobra.Command{Use: n.Command, Aliases: []string{"parties"},
		Short: "Manage parties and show whether their workers are reachable"}
	command.AddCommand(apply, n.ListCommand("List the parties and whether they are reachable",
		nil),
		n.GetCommand("Show a party and its workers", ""), n.DeleteCommand(
			`Delete parties. Their clusters and workers are not changed. A party that is used by an open release is not deleted.
If the home cluster has a namespace with the party's name, the party "default" serves it afterwards.`))
	return command
}

func parties(a *app.App) *noun.Noun[client.PartyState, client.PartyState] {
	return &noun.Noun[client.PartyState, client.PartyState]{
		App: a, Command: "party", Name: "party", Argument: "NAME", Calls: noun.Calls{
			List:   apiclient.List((*client.Client).ListParties),
			Get:    apiclient.Named((*client.Client).GetParty),
			Put:    apiclient.NamedBody((*client.Client).PutPartyWithBody),
			Delete: apiclient.Named((*client.Client).DeleteParty)},
		Key:    func(p client.PartyState) string { return p.Name },
		Note:   func(p client.PartyState) string { return p.Queue },
		Titles: []string{"NAME", "REACHABLE", "LAST SEEN", "QUEUE", "NAMESPACE", "AGE"},
		Row: func(p client.PartyState) []string {
			return []string{p.Name, cmp.Or(unusable(p), string(p.Reachable)), a.AgeIfAny(p.LastSeenAt), p.Queue,
				p.Namespace, a.AgeIfAny(p.CreatedAt)}
		},
		Describe: func(_ string, p client.PartyState) error { return describeParty(a, p) },
	}
}

// unusable is shown in the place of whether a party is reachable; "" if it can be used.
func unusable(p client.PartyState) string {
	if p.Unusable == "" {
		return ""
	}
	return "Unusable"
}

func describeParty(a *app.App, p client.PartyState) error {
	reachable := map[party.Reachability]string{party.Reachable: "is reachable", party.Unreachable: "is unreachable",
		party.Unknown: "may be reachable"}[p.Reachable]
	a.Printf(a.Out, "party %s %s: %s\nworkers poll queue: %s\n", render.OneLine(p.Name), reachable,
		render.OneLine(p.Reason), render.OneLine(p.Queue))
	if p.Unusable != "" {
		a.Printf(a.Out, "%s\n", render.OneLine(p.Unusable))
	}
	if p.Namespace != "" {
		a.Printf(a.Out, "default namespace of workloads: %s\n", render.OneLine(p.Namespace))
	}
	if len(p.Labels) > 0 {
		text := strings.ReplaceAll(labels.Set(p.Labels).String(), ",", ", ")
		a.Printf(a.Out, "labels: %s\n", render.OneLine(text))
	}
	if len(p.Workers) == 0 {
		return nil
	}
	table := render.NewTable("WORKER", "HOST", "BUILD", "UP", "LAST SEEN", "POLICY", "GUARD", "ACCOUNT")
	for _, w := range p.Workers {
		table.Add(w.Identity, w.Host, w.Build, a.Age(w.StartedAt), a.Age(w.LastSeenAt), w.Policy, string(w.Guard),
			w.Account)
	}
	a.Printf(a.Out, "\n%s", table)
	for _, w := range p.Workers {
		if w.Guard == party.GuardUnlisted {
			a.Printf(a.Out, "\nThe guard of its cluster did not know the account of worker %s when it started: its "+
				"releases are refused. Run `slipway guard install` there with --engine-identity %s, and with those of "+
				"the cluster's other engines and parties.\n", render.OneLine(w.Identity), render.OneLine(w.Account))
		}
	}
	return nil
}

// TrafficRoutingCommand returns `slipway trafficrouting`.
func TrafficRoutingCommand(a *app.App) *cobra.Command {
	n := routings(a)
	apply := n.ApplyCommand(
		`A file contains TrafficRouting objects (rollouts.kruise.io/v1alpha1), separated by "---", or one spec, whose name is
NAME. -n sets the namespace for documents that do not have one.`,
		`  slipway trafficrouting apply -f mse-traffic.yaml -n shop`, manifest.Applier{
			NameFlag: "NAME",
			Read: func(files []string, name string) ([]manifest.Document, error) {
				return readRoutings(a, files, *n.Scope, name)
			},
		})
	apply.Aliases = []string{"put"}
	command := &cobra.Command{Use: n.Command, Aliases: []string{"trafficroutings", "tr"},
		Short: "Manage traffic routings: routes shared by several rollouts"}
	command.AddCommand(apply, n.ListCommand("List the traffic routings and the rollouts that hold them", nil),
		n.GetCommand("Show a traffic routing and the rollouts that hold it", ""), n.DeleteCommand(
			"Delete traffic routings. One that a rollout holds is not deleted, because its routes could "+
				"not be restored."))
	return command
}

func routings(a *app.App) *noun.Noun[client.TrafficRouting, client.TrafficRouting] {
	var where app.ScopeFlags
	return &noun.Noun[client.TrafficRouting, client.TrafficRouting]{
		App: a, Command: "trafficrouting", Name: "traffic routing", Argument: "NAME",
		Scope: &where, Calls: noun.Calls{List: apiclient.List((*client.Client).ListTrafficRoutings),
			Get:    apiclient.Spaced((*client.Client).GetTrafficRouting),
			Put:    apiclient.SpacedBody((*client.Client).PutTrafficRoutingWithBody),
			Delete: apiclient.Spaced((*client.Client).DeleteTrafficRouting)},
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

// readRoutings reads the documents and names each NAMESPACE/NAME.
func readRoutings(a *app.App, files []string, where app.ScopeFlags, argument string) ([]manifest.Document, error) {
	var documents []manifest.Document
	for _, file := range files {
		text, shown, err := manifest.ReadFile(a, file)
		if err != nil {
			return nil, err
		}
		for _, part := range strictyaml.Split(text) {
			d, err := readRouting(shown, part, where, argument)
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
			"metadata.name", len(documents))
	}
	return documents, nil
}

// readRouting reads the name of one document. The engine validates the spec.
func readRouting(file string, body []byte, where app.ScopeFlags, argument string) (manifest.Document, error) {
	var head struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	d := manifest.Document{File: file, Body: body}
	if err := yaml.Unmarshal(body, &head); err != nil {
		return d, fmt.Errorf("%s: %s", file, render.OneLine(err.Error()))
	}
	if head.Kind != "" && head.Kind != "TrafficRouting" {
		return d, fmt.Errorf("%s:%d: kind must be TrafficRouting, not %s", file, manifest.FirstLine(body),
			render.OneLine(head.Kind))
	}
	if argument == "" {
		argument = head.Metadata.Name
	}
	if argument == "" {
		return d, app.Usagef("%s:%d: the spec has no name: add the argument NAME, or use an object", file,
			manifest.FirstLine(body))
	}
	if where.Namespace == "" {
		where.Namespace = head.Metadata.Namespace
	}
	name, err := where.ParseName(argument)
	if err != nil {
		return d, err
	}
	for own, given := range map[string]string{head.Metadata.Name: name.Name, head.Metadata.Namespace: name.Namespace} {
		if own != "" && own != given {
			return d, app.Usagef("%s has %s, but the command line has %s: use only one of them", file, own, given)
		}
	}
	d.Kind, d.Name = head.Kind, name.Namespace+"/"+name.Name
	return d, nil
}
