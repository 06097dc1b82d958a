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

const installLong = `Install the guard, or bring it up to date. It can be repeated.

The engine's own edits must pass, so the guard needs to know who the engine is. By default, these are the service accounts of deploy/rbac:
system:serviceaccount:slipway:slipway, and system:serviceaccount:{namespace}:slipway-party in the namespace of the edited object. Give
--engine-identity, once for each, if your engine or a party's worker has another account; it replaces the defaults.

A namespace with the label slipway.io/guard is left out, unless --namespace-selector selects by that label: slipway.io/guard=off switches
the guard off there.`

// fieldManager is the name under which the API server notes the policies.
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
		Use: "install", Short: "Install the guard, or bring it up to date", Long: installLong, Args: cobra.NoArgs,
		Example: `  slipway guard install
  slipway guard install --engine-identity system:serviceaccount:release:engine --namespace-selector team=shop
  slipway guard install --object canaries.mesh.example.com   # objects that a script of your own changes
  slipway guard install --dry-run > guard.yaml               # print the policies instead`,
		RunE: func(c *cobra.Command, _ []string) error {
			wanted, err := o.wanted()
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
	f.StringArrayVar(&o.identities, "engine-identity", nil, "`user` whose edits pass: the engine's or a worker's; can be repeated")
	f.StringVar(&o.namespaces, "namespace-selector", "", "guard only namespaces whose labels match this `selector`")
	f.StringArrayVar(&o.objects, "object", nil, "one more `kind` of custom object to guard, as resource.group; can be repeated")
	f.BoolVar(&o.noGate, "no-gate", false, "install the guard alone: what a Rollout names is not held when somebody changes its pod template")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the policies, in version v1, and change nothing")
	return command
}

// wanted reads the flags.
func (o installOptions) wanted() (guard.Options, error) {
	wanted := guard.Options{Name: o.name, Identities: o.identities, NoGate: o.noGate}
	var err error
	if wanted.Custom, err = custom(o.objects); err != nil {
		return wanted, err
	}
	if o.namespaces != "" {
		if wanted.Namespaces, err = metav1.ParseToLabelSelector(o.namespaces); err != nil {
			return wanted, app.Usagef("--namespace-selector %s is no label selector: %v", o.namespaces, err)
		}
	}
	return wanted, nil
}

// install installs the guard and says what it guards.
func (c *cluster) install(ctx context.Context, a *app.App, wanted guard.Options) error {
	if c.serves.Mutating == "" && c.serves.Validating == "" {
		a.Printf(a.Err, "This cluster (%s) serves no admission policies: nothing can be guarded. Kubernetes 1.36 has them.\n", c.version)
		return &app.ExitError{Code: app.ExitFailure}
	}
	if err := c.alone(ctx, wanted); err != nil {
		return err
	}
	if err := c.put(ctx, wanted); err != nil {
		return refused("install", err)
	}
	a.Printf(a.Out, "The guard %s is installed\n", wanted.Name)
	found, err := c.Guards(ctx, c.serves, wanted.Name)
	if err != nil {
		return refused("read", err)
	}
	for _, i := range guard.Find(found) {
		c.print(a, i, wanted)
	}
	return nil
}

// alone fails with failure.Refused where Kruise Rollouts itself would release what the gate holds for Slipway. While the cluster has that
// product's definition, nothing refers to Rollouts, and both can be there.
func (c *cluster) alone(ctx context.Context, wanted guard.Options) error {
	if wanted.NoGate || !c.rollouts {
		return nil
	}
	found, err := c.KruiseRollouts(ctx)
	if err != nil {
		return err
	}
	if said := reference.Refusal(found); said != "" {
		return failure.New(failure.Refused, "the gate isn't installed: %s. Or leave the gate out: --no-gate", said)
	}
	return nil
}

// put applies the policies and takes away those of an earlier installation that are not among them.
func (c *cluster) put(ctx context.Context, wanted guard.Options) error {
	wanted.NoRollouts = !c.rollouts
	objects, keep := guard.Policies(wanted, c.serves.Mutating, c.serves.Validating), map[string]bool{}
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
