package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
)

// DefaultNamespace is where a rollout is looked for when nobody says.
const DefaultNamespace = "default"

// Name names one rollout, or any object of a party's namespace.
type Name struct {
	Party, Namespace, Name string
}

// String is how people name it: "shop/web", with the party in front unless it is the default one.
func (n Name) String() string {
	key := n.Namespace + "/" + n.Name
	if n.PartyParam() != nil {
		key = n.Party + ": " + key
	}
	return render.OneLine(key)
}

// Arguments name it on a command line, as lists print it.
func (n Name) Arguments() string {
	text := n.Namespace + "/" + n.Name
	if n.PartyParam() != nil {
		text += " --party " + n.Party
	}
	return render.OneLine(text)
}

// PartyParam is the party as the API takes it; nil: the default one.
func (n Name) PartyParam() *string {
	if n.Party == "" || n.Party == catalog.DefaultParty {
		return nil
	}
	return &n.Party
}

// Place says where a command looks: in which namespace of which party's cluster.
type Place struct {
	Party, Namespace string
}

// NamespaceFlag adds -n; to it belong the names of that namespace.
func (p *Place) NamespaceFlag(command *cobra.Command) {
	command.Flags().StringVarP(&p.Namespace, "namespace", "n", "", "`namespace`; NAMESPACE/NAME says the same (default: "+DefaultNamespace+")")
}

// Flags adds -n and --party.
func (p *Place) Flags(command *cobra.Command) {
	p.NamespaceFlag(command)
	command.Flags().StringVar(&p.Party, "party", "", "whose cluster: the `party` (default: the engine's own)")
}

// Named reads NAME or NAMESPACE/NAME, the latter as lists print it.
func (p *Place) Named(argument string) (Name, error) {
	n := Name{Party: p.Party, Namespace: p.Namespace, Name: argument}
	if namespace, name, both := strings.Cut(argument, "/"); both {
		if p.Namespace != "" && p.Namespace != namespace {
			return n, Usagef("%s is in namespace %s, --namespace says %s: leave one of them out", argument, namespace, p.Namespace)
		}
		n.Namespace, n.Name = namespace, name
	}
	if n.Namespace == "" {
		n.Namespace = DefaultNamespace
	}
	for _, part := range []string{n.Namespace, n.Name} {
		if notName(part) {
			return n, Usagef("%q is no name: write NAME with -n NAMESPACE, or NAMESPACE/NAME", argument)
		}
	}
	return n, nil
}

// notName says whether the text is no name. A name stands in a path of the API, which such a text would change.
func notName(text string) bool {
	return strings.Trim(text, ".") == "" || strings.ContainsAny(text, "/\\?#% \t\n")
}

// ExactName accepts exactly one name; what is "a task", argument its name in the usage line.
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
			return fmt.Errorf("name %s: %s is missing", what, argument)
		case len(args) > 1:
			return fmt.Errorf("one %s at a time, not %d", argument, len(args))
		}
		return nil
	}
}

// CheckNames says which of the arguments is no name.
func CheckNames(what, argument string, args []string) error {
	for _, name := range args {
		if notName(name) {
			return fmt.Errorf("%q is not the %s of %s", name, argument, what)
		}
	}
	return nil
}

// Limit is how much a list holds at most; 0: everything.
type Limit int

// Flag adds --limit; what names the things that are listed.
func (l *Limit) Flag(command *cobra.Command, what string) {
	command.Flags().IntVar((*int)(l), "limit", 0, "at most `n` "+what+"; 0: all")
}

// Check refuses a negative limit.
func (l *Limit) Check(what string) error {
	if *l < 0 {
		return Usagef("--limit %d is negative: 0 lists all %s", *l, what)
	}
	return nil
}

// releasable is a kind of workload that can be released, with the words by which people call it.
type releasable struct {
	apiVersion, kind string
	words            []string
}

var releasables = []releasable{
	{"apps/v1", "Deployment", []string{"deployment", "deployments", "deploy"}},
	{"apps/v1", "StatefulSet", []string{"statefulset", "statefulsets", "sts"}},
	{"apps/v1", "DaemonSet", []string{"daemonset", "daemonsets", "ds"}},
	{"apps.kruise.io/v1alpha1", "CloneSet", []string{"cloneset", "clonesets", "clone"}},
	{"apps.kruise.io/v1beta1", "StatefulSet", []string{"advancedstatefulset", "asts"}},
	{"apps.kruise.io/v1alpha1", "DaemonSet", []string{"advanceddaemonset", "ads"}},
}

// ParseWorkload reads KIND/NAME as kubectl does: deployment/web, sts/db, statefulset.apps.kruise.io/db.
func ParseWorkload(text string) (catalog.WorkloadRef, error) {
	word, name, both := strings.Cut(text, "/")
	if !both || word == "" || name == "" || strings.Contains(name, "/") {
		return catalog.WorkloadRef{}, Usagef("%q names no workload: write KIND/NAME, such as deployment/web", text)
	}
	return WorkloadOfKind(word, name)
}

// WorkloadOfKind is the workload of that name and of the kind that people call by a word: deployment, sts, statefulset.apps.kruise.io.
func WorkloadOfKind(kind, name string) (catalog.WorkloadRef, error) {
	word, group, grouped := strings.Cut(strings.ToLower(kind), ".")
	for _, r := range releasables {
		own, _, _ := strings.Cut(r.apiVersion, "/")
		bare := strings.ToLower(r.kind)
		if grouped && group == own && (word == bare || word == bare+"s") || !grouped && slices.Contains(r.words, word) {
			return catalog.WorkloadRef{APIVersion: r.apiVersion, Kind: r.kind, Name: name}, nil
		}
	}
	var known []string
	for _, r := range releasables {
		known = append(known, r.words[0])
	}
	return catalog.WorkloadRef{}, Usagef("%q is no kind of workload that can be released: take %s", kind, strings.Join(known, ", "))
}
