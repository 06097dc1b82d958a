package guard

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/reference"
)

const installLong = `Install or update the guard. The command can be repeated.

The guard must allow the engine's own changes, so it needs the engine's identities. The defaults are the service
accounts of deploy/rbac: system:serviceaccount:slipway:slipway and system:serviceaccount:slipway-party:slipway-party. If
your engine or a party's worker uses another account, set --engine-identity, once per account; it replaces the defaults.
The list is written as given: nothing of an installed one is kept.

On clusters without mutating admission policies, the gate needs a webhook of a server, and everywhere Rollouts of
v1alpha1 need one for conversion. With --webhook-service or --webhook-url, and the CA of the server's certificate, the
command registers both: in the configuration slipway-gate-<engine namespace>, and in the definition of Rollouts. Without
validating admission policies it also registers slipway-authors-<engine namespace>, which checks authors of Rollouts.

With --lock, the gate is a wall: taking an object over for repair, the size 0 and the deletion of a workload that a
release or a Rollout holds, and the labels that take a namespace out of the guard need the permission override on
releases.slipway.io (deploy/rbac/override.yaml). Without it, an earlier lock is removed.

The label slipway.io/guard=off switches the guard off in a namespace. Namespaces with the label slipway.io/guard are
skipped, unless --namespace-selector selects by that label.`

// fieldManager is the field manager of the policies (server-side apply).
const fieldManager = "slipway-guard"

type installOptions struct {
	*options
	identities, objects  []string
	namespaces           string
	dryRun, noGate, lock bool
	webhooks             webhookOptions
}

func installCommand(a *app.App, shared *options) *cobra.Command {
	o := installOptions{options: shared}
	command := &cobra.Command{
		Use: "install", Short: "Install or update the guard", Long: installLong, Args: cobra.NoArgs,
		Example: `  slipway guard install
  slipway guard install --engine-identity system:serviceaccount:release:engine --namespace-selector team=shop
  slipway guard install --object canaries.mesh.example.com   # custom objects that your Lua scripts change
  slipway guard install --dry-run > guard.yaml               # print the policies without applying them
  slipway guard install --webhook-service slipway/slipway-webhook --webhook-ca-file ca.crt   # and the webhooks`,
		RunE: func(c *cobra.Command, _ []string) error {
			wanted, err := o.guardOptions()
			if err != nil {
				return err
			}
			hooks, err := o.webhooks.read()
			if err != nil {
				return err
			}
			if o.dryRun {
				return printAll(a, wanted, hooks)
			}
			cluster, err := o.connect(c.Context())
			if err != nil {
				return err
			}
			return cluster.install(c.Context(), a, wanted, hooks)
		},
	}
	f := command.Flags()
	f.StringArrayVar(&o.identities, "engine-identity", nil,
		"`user` whose changes are allowed: the engine's or a worker's; can be repeated")
	f.StringVar(&o.namespaces, "namespace-selector", "", "guard only namespaces that match this label `selector`")
	f.StringArrayVar(&o.objects, "object", nil, "additional `kind` of custom object to guard, as resource.group; can "+
		"be repeated")
	f.BoolVar(&o.noGate, "no-gate", false, "do not install the gate: a changed pod template replaces pods "+
		"immediately, even if a Rollout names the workload")
	f.BoolVar(&o.lock, "lock", false, "refuse what would get past the guard and the gate to users without the "+
		"permission override on releases.slipway.io")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the policies in version v1 without applying them; with "+
		"--webhook-service or --webhook-url also the webhooks and the definition of Rollouts")
	o.webhooks.register(f)
	app.AcceptYes(command)
	return command
}

// guardOptions returns the guard's options from the flags.
func (o installOptions) guardOptions() (guard.Options, error) {
	wanted := guard.Options{Name: o.name, Identities: o.identities, NoGate: o.noGate, Lock: o.lock}
	err := guard.CheckIdentities(o.identities)
	if err != nil {
		return wanted, app.Usagef("--engine-identity %v", err)
	}
	if wanted.Custom, err = parseKinds(o.objects); err != nil {
		return wanted, err
	}
	if o.namespaces != "" {
		if wanted.Namespaces, err = metav1.ParseToLabelSelector(o.namespaces); err != nil {
			return wanted, app.Usagef("--namespace-selector %s is not a label selector: %v", o.namespaces, err)
		}
	}
	return wanted, nil
}

// install installs the guard and prints what it guards.
func (c *cluster) install(ctx context.Context, a *app.App, wanted guard.Options, hooks *webhooks) error {
	if c.policies.Mutating == "" && c.policies.Validating == "" && hooks == nil {
		a.Printf(a.Err, "This cluster (%s) does not serve admission policies: nothing can be guarded. Use Kubernetes "+
			"1.36 or newer.\n", c.version)
		return &app.ExitError{Code: app.ExitFailure}
	}
	if err := c.checkNoKruise(ctx, wanted); err != nil {
		return err
	}
	wasLocked, err := c.checkLock(ctx, wanted)
	if err != nil {
		return err
	}
	before, err := c.installedGuard(ctx, wanted.Name)
	if err != nil {
		return explain("read", err)
	}
	list := List{Identities: wanted.Identities, With: "slipway guard install"}
	if wanted, err = c.sign(ctx, wanted, list, before.Identities, before.Written); err != nil {
		return explain("install", err)
	}
	if err := c.registerConversion(ctx, a, hooks); err != nil {
		return explain("install", err)
	}
	if err := c.applyAll(ctx, wanted); err != nil {
		return explain("install", err)
	}
	if err := c.registerGate(ctx, a, wanted, hooks); err != nil {
		return explain("install", err)
	}
	if err := c.registerAuthors(ctx, a, wanted, hooks); err != nil {
		return explain("install", err)
	}
	a.Printf(a.Out, "The guard %s is installed\n", wanted.Name)
	if dropped := wanted.Dropped(before.Identities); len(dropped) > 0 {
		a.Printf(a.Out, "WARNING      %s\n", render.OneLine(droppedText(dropped)))
	}
	printUnlocked(a, wasLocked, wanted)
	installed, err := c.installed(ctx, wanted.Name)
	for _, i := range installed {
		c.print(a, i, wanted)
	}
	return err
}

// checkNoKruise returns failure.Refused if Kruise Rollouts would release the workloads that the gate holds for Slipway.
// If the cluster has Kruise's definition of Rollouts, the gate refers to no Rollouts, and both products can coexist.
func (c *cluster) checkNoKruise(ctx context.Context, wanted guard.Options) error {
	if wanted.NoGate || !c.hasRollouts {
		return nil
	}
	found, err := c.KruiseRollouts(ctx)
	if err != nil {
		return err
	}
	if reason := reference.Refusal(found); reason != "" {
		return failure.New(failure.Refused, "cannot install the gate: %s. Or install without the gate: --no-gate",
			reason)
	}
	return nil
}

// applyAll applies the policies and deletes outdated ones of an earlier installation.
func (c *cluster) applyAll(ctx context.Context, wanted guard.Options) error {
	wanted.NoRollouts = !c.hasRollouts
	objects, keep := guard.Policies(wanted, c.policies.Mutating, c.policies.Validating), map[string]bool{}
	for _, object := range objects {
		_, err := c.Objects.Resource(kube.ResourceOf(object)).Apply(ctx, object.GetName(), object,
			metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err != nil {
			return err
		}
		keep[object.GetKind()+object.GetName()] = true
	}
	_, err := c.remove(ctx, cmp.Or(wanted.Name, guard.DefaultName), keep)
	return err
}

// installed returns the installations of this name; "" means all.
func (c *cluster) installed(ctx context.Context, name string) ([]guard.Installed, error) {
	found, err := c.Guards(ctx, c.policies, name)
	if err != nil {
		return nil, explain("read", err)
	}
	return guard.Find(found), nil
}

func statusCommand(a *app.App, o *options) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show what is guarded and which users may change it", Args: cobra.NoArgs,
		Long: `Show what is guarded and which users may change it, for all installations, and the webhooks of servers.

Exit codes:
  0  everything is guarded
  1  the command failed
  3  something is not guarded; the table says what`,
		RunE: func(c *cobra.Command, _ []string) error {
			cluster, err := o.connect(c.Context())
			if err != nil {
				return err
			}
			all, err := cluster.installed(c.Context(), "")
			if err != nil {
				return err
			}
			hooks, err := cluster.printWebhooks(c.Context(), a)
			if err != nil {
				return explain("read", err)
			}
			return cluster.status(a, all, hooks)
		},
	}
}

// status prints all installations. hooks is true if a webhook holds workloads.
func (c *cluster) status(a *app.App, all []guard.Installed, hooks bool) error {
	if c.policies.Mutating == "" {
		a.Printf(a.Out, "This cluster (%s) does not serve mutating admission policies: borrowed fields cannot be "+
			"guarded. Use Kubernetes 1.36 or newer.\n", c.version)
		if c.hasRollouts && !hooks {
			a.Printf(a.Out, "No webhook holds workloads: a change of the pod template of a workload that a Rollout "+
				"names replaces its pods immediately.\n")
		}
	}
	if len(all) == 0 {
		a.Printf(a.Out, "The guard is not installed: run `slipway guard install`\n")
		return &app.ExitError{Code: app.ExitStopped}
	}
	complete := true
	for _, i := range all {
		a.Printf(a.Out, "The guard %s is installed\n", i.Name)
		complete = c.print(a, i, guard.Options{}) && complete
	}
	if !complete {
		return &app.ExitError{Code: app.ExitStopped}
	}
	return nil
}

// print prints one installation and reports whether it guards everything.
func (c *cluster) print(a *app.App, i guard.Installed, o guard.Options) (complete bool) {
	printIdentities(a, i.Identities, i.Written)
	a.Printf(a.Out, "namespaces   %s\n", render.OneLine(metav1.FormatLabelSelector(i.Namespaces)))
	a.Printf(a.Out, "locked       %s\n\n", lockState(i))
	complete = true
	table := render.NewTable("KIND", "GUARDED", "VERSION", "FIELDS")
	for _, kind := range c.kindsOf(i) {
		state := stateOf(i, kind)
		complete = complete && state == guarded
		table.Add(kind, state, cmp.Or(i.Version[kind], "-"), cmp.Or(guard.Fields(kind, o), "-"))
	}
	a.Printf(a.Out, "%s", table.Flush())
	switch {
	case !i.Gates() && c.policies.Mutating != "":
		a.Printf(a.Out, "\nThe gate is not installed: a change of the pod template of a workload that a Rollout "+
			"names replaces its pods immediately.\n")
	case i.Gates() && !c.hasRollouts:
		a.Printf(a.Out,
			"\nThis cluster does not have Slipway's definition of Rollouts, so the gate does not cover them. "+
				"Install it (deploy/crds), then reinstall the guard.\n")
	}
	if !complete {
		a.Printf(a.Out, "\nRun `slipway guard install` again with the same options.\n")
	}
	return complete
}

// guarded is the state of a kind that an installation guards.
const guarded = "yes"

// stateOf returns guarded, or why an installation does not guard a kind.
func stateOf(i guard.Installed, kind string) string {
	switch {
	case i.Version[kind] == "":
		return "no"
	case slices.Contains(i.Unbound, kind):
		return "no: its binding is missing"
	case slices.Contains(i.Outdated, kind):
		return "outdated"
	}
	return guarded
}

// kindsOf returns the kinds that an installation should guard, and the additional ones that it guards.
func (c *cluster) kindsOf(i guard.Installed) []string {
	kinds := guard.Kinds()
	if i.Gates() {
		kinds = append(kinds, guard.Gated(c.hasRollouts)...)
	}
	if c.hasRollouts {
		kinds = append(kinds, guard.AuthorsChecked)
	}
	if i.Locked() {
		kinds = append(kinds, guard.LockParts()...)
	}
	more := slices.DeleteFunc(slices.Sorted(maps.Keys(i.Version)), func(kind string) bool {
		return slices.Contains(kinds, kind)
	})
	return slices.Concat(more, kinds)
}
