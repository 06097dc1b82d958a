package app

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/workload"
)

// DefaultNamespace is the namespace of names that have none.
const DefaultNamespace = "default"

// ObjectName identifies a rollout or another object in a namespace of a party's cluster.
type ObjectName struct {
	Party, Namespace, Name string
}

// String returns the display name, such as "shop/web", or "bank: shop/web" for a party other than the default.
func (n ObjectName) String() string {
	key := n.Namespace + "/" + n.Name
	if n.PartyParam() != nil {
		key = n.Party + ": " + key
	}
	return render.OneLine(key)
}

// CommandArgs returns the name as command-line arguments, such as "shop/web --party bank".
func (n ObjectName) CommandArgs() string {
	text := n.Namespace + "/" + n.Name
	if n.PartyParam() != nil {
		text += " --party " + n.Party
	}
	return render.OneLine(text)
}

// PartyParam returns the party as the API's parameter; nil for the default party.
func (n ObjectName) PartyParam() *string {
	if n.Party == "" || n.Party == catalog.DefaultParty {
		return nil
	}
	return &n.Party
}

// ScopeFlags holds the flags that select a party and a namespace.
type ScopeFlags struct {
	Party, Namespace string
}

// NamespaceFlag adds -n.
func (p *ScopeFlags) NamespaceFlag(command *cobra.Command) {
	command.Flags().StringVarP(&p.Namespace, "namespace", "n", "",
		"`namespace`; same as NAMESPACE/NAME (default: "+DefaultNamespace+")")
}

// Flags adds -n and --party.
func (p *ScopeFlags) Flags(command *cobra.Command) {
	p.NamespaceFlag(command)
	command.Flags().StringVar(&p.Party, "party", "", "`party` whose cluster to use (default: the engine's own cluster)")
}

// ParseName parses NAME or NAMESPACE/NAME.
func (p *ScopeFlags) ParseName(argument string) (ObjectName, error) {
	n := ObjectName{Party: p.Party, Namespace: p.Namespace, Name: argument}
	if namespace, name, both := strings.Cut(argument, "/"); both {
		if p.Namespace != "" && p.Namespace != namespace {
			return n, Usagef("%s is in namespace %s, but --namespace is %s: use only one of them", argument, namespace,
				p.Namespace)
		}
		n.Namespace, n.Name = namespace, name
	}
	if n.Namespace == "" {
		n.Namespace = DefaultNamespace
	}
	for _, part := range []string{n.Namespace, n.Name} {
		if invalidName(part) {
			return n, Usagef("invalid name %q: use NAME with -n NAMESPACE, or NAMESPACE/NAME", argument)
		}
	}
	return n, nil
}

// invalidName reports whether the text cannot be a name. Names are put into API paths, which such text would change.
func invalidName(text string) bool {
	return strings.Trim(text, ".") == "" || strings.ContainsAny(text, "/\\?#% \t\n")
}

// ExactName accepts exactly one name. what is, for example, "a task"; argument is the placeholder in the usage line.
func ExactName(what, argument string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := OneArgument(what, argument)(c, args); err != nil {
			return err
		}
		return CheckNames(what, argument, args)
	}
}

// OneArgument accepts exactly one argument.
func OneArgument(what, argument string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("specify %s: %s is missing", what, argument)
		case len(args) > 1:
			return fmt.Errorf("accepts one %s, received %d", argument, len(args))
		}
		return nil
	}
}

// CheckNames returns an error for the first argument that is not a valid name.
func CheckNames(what, argument string, args []string) error {
	for _, name := range args {
		if invalidName(name) {
			return fmt.Errorf("%q is not a valid %s of %s", name, argument, what)
		}
	}
	return nil
}

// Limit bounds the number of items in a list; 0 means no limit.
type Limit int

// Flag adds --limit; what names the listed objects.
func (l *Limit) Flag(command *cobra.Command, what string) {
	command.Flags().IntVar((*int)(l), "limit", 0, "list at most `n` "+what+"; 0 lists all")
}

// Check returns an error for a negative limit.
func (l *Limit) Check(what string) error {
	if *l < 0 {
		return Usagef("--limit %d is negative: 0 lists all %s", *l, what)
	}
	return nil
}

// ParseWorkload parses KIND/NAME as kubectl does: deployment/web, sts/db, statefulset.apps.kruise.io/db.
func ParseWorkload(text string) (catalog.WorkloadRef, error) {
	word, name, both := strings.Cut(text, "/")
	if !both || word == "" || name == "" || strings.Contains(name, "/") {
		return catalog.WorkloadRef{}, Usagef("%q is not a workload: use KIND/NAME, such as deployment/web", text)
	}
	return WorkloadOfKind(word, name)
}

// WorkloadOfKind returns the workload with this name; kind is a word such as deployment, sts or
// statefulset.apps.kruise.io.
func WorkloadOfKind(kind, name string) (catalog.WorkloadRef, error) {
	k := workload.ByWord(kind)
	if !k.Known() {
		return catalog.WorkloadRef{}, Usagef("unsupported workload kind %q: use %s", kind,
			strings.Join(phrase.Each(workload.Kinds, workload.Kind.Word), ", "))
	}
	return catalog.WorkloadRef{APIVersion: k.APIVersions()[0], Kind: k.Kind, Name: name}, nil
}
