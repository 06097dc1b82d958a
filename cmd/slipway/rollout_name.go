package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/release/catalog"
)

// defaultNamespace is where a rollout is looked for when nobody says.
const defaultNamespace = "default"

// rolloutName names one rollout, or any object of a party's namespace.
type rolloutName struct {
	party, namespace, name string
}

func (n rolloutName) String() string { return rolloutKey(n.party, n.namespace, n.name) }

// arguments name it on a command line.
func (n rolloutName) arguments() string { return nameArguments(n.party, n.namespace, n.name) }

// partyParam is the party as the API takes it; nil: the default one.
func (n rolloutName) partyParam() *string {
	if n.party == "" || n.party == catalog.DefaultParty {
		return nil
	}
	return &n.party
}

// place says where a command looks: in which namespace of which party's cluster.
type place struct {
	party, namespace string
}

// namespaceFlag adds -n; to it belong the names of that namespace.
func (p *place) namespaceFlag(command *cobra.Command) {
	command.Flags().StringVarP(&p.namespace, "namespace", "n", "", "`namespace`; NAMESPACE/NAME says the same (default: "+defaultNamespace+")")
}

// flags adds -n and --party.
func (p *place) flags(command *cobra.Command) {
	p.namespaceFlag(command)
	command.Flags().StringVar(&p.party, "party", "", "whose cluster: the `party` (default: the engine's own)")
}

// named reads NAME or NAMESPACE/NAME, the latter as lists print it.
func (p *place) named(argument string) (rolloutName, error) {
	n := rolloutName{party: p.party, namespace: p.namespace, name: argument}
	if namespace, name, both := strings.Cut(argument, "/"); both {
		if p.namespace != "" && p.namespace != namespace {
			return n, usagef("%s is in namespace %s, --namespace says %s: leave one of them out", argument, namespace, p.namespace)
		}
		n.namespace, n.name = namespace, name
	}
	if n.namespace == "" {
		n.namespace = defaultNamespace
	}
	for _, part := range []string{n.namespace, n.name} {
		if strings.Trim(part, ".") == "" || strings.ContainsAny(part, "/\\?#% \t\n") {
			return n, usagef("%q is not the name of a rollout: write NAME with -n NAMESPACE, or NAMESPACE/NAME", argument)
		}
	}
	return n, nil
}

// oneName accepts exactly one argument; what is "a rollout".
func oneName(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("name %s: NAME is missing", what)
		case len(args) > 1:
			return fmt.Errorf("one NAME at a time, not %d", len(args))
		}
		return nil
	}
}
