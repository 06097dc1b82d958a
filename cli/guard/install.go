package guard

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/reference"
)

const installLong = `Install or update the guard. The command can be repeated.

The guard must allow the engine's own changes, so it needs the engine's identities. The defaults are the service
accounts of deploy/rbac: system:serviceaccount:slipway:slipway, and system:serviceaccount:{namespace}:slipway-party in
the namespace of the changed object. If your engine or a party's worker uses another account, set --engine-identity,
once per account; it replaces the defaults.

The label slipway.io/guard=off switches the guard off in a namespace. Namespaces with the label slipway.io/guard are
skipped, unless --namespace-selector selects by that label.`

// fieldManager is the field manager of the policies (server-side apply).
const fieldManager = "slipway-guard"

type installOptions struct {
	*options
	identities, objects []string
	namespaces          string
	dryRun, noGate      bool
}

func installCommand(a *app.App, shared *options) *cobra.Command {
	o := installOptions{options: shared}
	command := &cobra.Command{
		Use: "install", Short: "Install or update the guard", Long: installLong, Args: cobra.NoArgs,
		Example: `  slipway guard install
  slipway guard install --engine-identity system:serviceaccount:release:engine --namespace-selector team=shop
  slipway guard install --object canaries.mesh.example.com   # custom objects that your Lua scripts change
  slipway guard install --dry-run > guard.yaml               # print the policies without applying them`,
		RunE: func(c *cobra.Command, _ []string) error {
			wanted, err := o.guardOptions()
			if err != nil {
				return err
			}
			if o.dryRun {
				text, err := guard.YAML(guard.Policies(wanted, "v1", "v1"))
				a.Printf(a.Out, "%s", text)
				return err
			}
			cluster, err := o.connect(c.Context())
			if err != nil {
				return err
			}
			return cluster.install(c.Context(), a, wanted)
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
	f.BoolVar(&o.dryRun, "dry-run", false, "print the policies in version v1 without applying them")
	return command
}

// guardOptions returns the guard's options from the flags.
func (o installOptions) guardOptions() (guard.Options, error) {
	wanted := guard.Options{Name: o.name, Identities: o.identities, NoGate: o.noGate}
	var err error
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
func (c *cluster) install(ctx context.Context, a *app.App, wanted guard.Options) error {
	if c.policies.Mutating == "" && c.policies.Validating == "" {
		a.Printf(a.Err, "This cluster (%s) does not serve admission policies: nothing can be guarded. Use Kubernetes "+
			"1.36 or newer.\n", c.version)
		return &app.ExitError{Code: app.ExitFailure}
	}
	if err := c.checkNoKruise(ctx, wanted); err != nil {
		return err
	}
	if err := c.applyAll(ctx, wanted); err != nil {
		return explain("install", err)
	}
	a.Printf(a.Out, "The guard %s is installed\n", wanted.Name)
	found, err := c.Guards(ctx, c.policies, wanted.Name)
	if err != nil {
		return explain("read", err)
	}
	for _, i := range guard.Find(found) {
		c.print(a, i, wanted)
	}
	return nil
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
		if err := c.apply(ctx, object); err != nil {
			return err
		}
		keep[object.GetKind()+object.GetName()] = true
	}
	_, err := c.remove(ctx, cmp.Or(wanted.Name, guard.DefaultName), keep)
	return err
}

func (c *cluster) apply(ctx context.Context, object *unstructured.Unstructured) error {
	_, err := c.Objects.Resource(kube.ResourceOf(object)).Apply(ctx, object.GetName(), object,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}
