package app

import (
	"cmp"
	"context"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/duration"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/workload"
)

// Connect returns a client of the engine that the command's settings name.
func Connect(command *cobra.Command) (*client.Client, error) {
	values, err := LoadSettings(command)
	if err != nil {
		return nil, err
	}
	return apiclient.NewClient(values)
}

// ConnectToWrite is Connect for a command that changes something. If the user set no engine address, it prints the
// default one.
func (a *App) ConnectToWrite(command *cobra.Command) (*client.Client, error) {
	values, provenance, err := settings.Load(command.Flags())
	if err != nil {
		return nil, &ExitError{Code: ExitUsage, Err: err}
	}
	chosen := slices.ContainsFunc(provenance.Entries, func(e settings.Entry) bool {
		return e.Name == "api" && e.Source != settings.FromDefault
	})
	if !chosen && a.ErrIsTerminal {
		a.Printf(a.Err, "engine: %s (default; change it with --api or SLIPWAY_API)\n", values.API)
	}
	return apiclient.NewClient(values)
}

// ClientFlags adds the flags of a command that talks to the API.
func ClientFlags(command *cobra.Command) { RegisterSettings(command, settings.Client) }

// Call is the part of a command that calls the API. It runs after flags and arguments were checked.
type Call func(c *cobra.Command, api *client.Client, args []string) error

// Connector returns a client of the engine for a command.
type Connector func(*cobra.Command) (*client.Client, error)

// InitCommand sets up a command that calls the API on a connection of connect: Connect, or ConnectToWrite if it changes
// something. check, if not nil, validates the command line.
func (a *App) InitCommand(command *cobra.Command, connect Connector, check func(args []string) error,
	call Call) *cobra.Command {
	ClientFlags(command)
	a.OutputFlag(command)
	command.RunE = func(c *cobra.Command, args []string) error {
		if check != nil {
			if err := check(args); err != nil {
				return err
			}
		}
		api, err := connect(c)
		if err != nil {
			return err
		}
		return call(c, api, args)
	}
	return command
}

// RegisterSettings adds the flags of the groups' settings, with shell completion.
func RegisterSettings(command *cobra.Command, groups ...settings.Group) {
	settings.Register(command.Flags(), groups...)
	_ = command.MarkFlagFilename(settings.FlagConfig, "yaml", "yml")
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		if choices := settings.Choices(flag); len(choices) > 0 {
			FlagChoices(command, flag.Name, choices...)
		}
	})
	_ = command.MarkFlagDirname("package-dir") // an error if the command has no such flag
}

// LoadSettings reads a command's settings. Invalid settings are a usage error.
func LoadSettings(command *cobra.Command) (settings.Settings, error) {
	values, _, err := settings.Load(command.Flags())
	if err != nil {
		return values, &ExitError{Code: ExitUsage, Err: err}
	}
	return values, nil
}

// completionTimeout bounds a completion, so that an unreachable server does not block the user's shell.
const completionTimeout = 2 * time.Second

// Lister reads names from the API for completion, each optionally followed by a tab and a description.
type Lister func(ctx context.Context, api *client.Client) ([]string, error)

// Complete completes the first argument with names from the API.
func (a *App) Complete(list Lister) cobra.CompletionFunc {
	every := a.CompleteAll(list)
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return every(c, args, start)
	}
}

// CompleteAll completes every argument with names from the API, without those already on the command line.
func (a *App) CompleteAll(list Lister) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		api, err := Connect(c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := list(ctx, api)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names = slices.DeleteFunc(names, func(entry string) bool {
			name, _, _ := strings.Cut(entry, "\t")
			return slices.Contains(args, name) || !strings.HasPrefix(name, start)
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// DurationFlag adds a flag that takes a duration, with a default.
func DurationFlag(command *cobra.Command, to *time.Duration, name string, unset time.Duration, usage string) {
	*to = unset
	command.Flags().Var((*duration.Flag)(to), name, usage)
}

// AcceptYes adds --yes to a command that changes something and asks nothing, unless the command has the flag already.
// Scripts may then give it to every command, also to one that asks in a later version.
func AcceptYes(command *cobra.Command) {
	if command.Flags().Lookup("yes") == nil {
		command.Flags().BoolP("yes", "y", false, "skip the confirmation; this command asks for none")
	}
}

// ActorFlags holds the flags that are recorded with a change: actor, reason and idempotency key.
type ActorFlags struct {
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"`
}

// Flags adds --actor, --reason and --key; key describes the last one.
func (w *ActorFlags) Flags(command *cobra.Command, key string) {
	f := command.Flags()
	f.StringVar(&w.Actor, "actor", "", "`name` of the actor, recorded with the request (default: the operating "+
		"system user)")
	f.StringVarP(&w.Reason, "reason", "m", "", "reason for the request, recorded and shown in the report")
	f.StringVar(&w.Key, "key", "", key+" (default: a random one)")
}

// SetDefaults sets the defaults: the operating system user and a random key.
func (w *ActorFlags) SetDefaults() {
	w.Key = cmp.Or(w.Key, uuid.NewString())
	w.Actor = cmp.Or(strings.TrimSpace(w.Actor), SystemUser())
}

// SystemUser returns the name of the operating system user, "" if it has none.
func SystemUser() string {
	current, err := user.Current()
	if err != nil {
		return ""
	}
	return current.Username
}

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
		if InvalidName(part) {
			return n, Usagef("invalid name %q: use NAME with -n NAMESPACE, or NAMESPACE/NAME", argument)
		}
	}
	return n, nil
}

// InvalidName reports whether the text cannot be a name. Names are put into API paths, which such text would change.
func InvalidName(text string) bool {
	return strings.Trim(text, ".") == "" || strings.ContainsAny(text, "/\\?#% \t\n")
}

// Arguments accepts this many arguments. what is, for example, "a task"; argument is the placeholder in the usage line.
func Arguments(what, argument string, least, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("specify %s: %s is missing", what, argument)
		case len(args) > most:
			return fmt.Errorf("accepts one %s, received %d", argument, len(args))
		}
		return nil
	}
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
