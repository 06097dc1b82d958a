package guard

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/guard"
)

func statusCommand(a *app.App, o *options) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show what is guarded, and against whom", Args: cobra.NoArgs,
		Long: `Show what is guarded, and against whom. All installations are shown, whatever their names.

  0  everything is guarded
  1  the command failed
  3  something is not guarded; the table says what`,
		RunE: func(c *cobra.Command, _ []string) error {
			cluster, err := o.connect(c.Context())
			if err != nil {
				return err
			}
			found, err := cluster.Guards(c.Context(), cluster.serves, "")
			if err != nil {
				return refused("read", err)
			}
			return cluster.status(a, guard.Find(found))
		},
	}
}

// status prints all installations.
func (c *cluster) status(a *app.App, all []guard.Installed) error {
	if c.serves.Mutating == "" {
		a.Printf(a.Out, "This cluster (%s) serves no mutating admission policies: borrowed fields can't be guarded. "+
			"Kubernetes 1.36 has them.\n", c.version)
	}
	if len(all) == 0 {
		a.Printf(a.Out, "The guard is not installed: run `slipway guard install`\n")
		return &app.ExitError{Code: app.ExitStopped}
	}
	whole := true
	for _, i := range all {
		a.Printf(a.Out, "The guard %s is installed\n", i.Name)
		whole = c.print(a, i, guard.Options{}) && whole
	}
	if !whole {
		return &app.ExitError{Code: app.ExitStopped}
	}
	return nil
}

// print prints one installation, and says whether it guards everything.
func (c *cluster) print(a *app.App, i guard.Installed, o guard.Options) (whole bool) {
	a.Printf(a.Out, "passes for   %s\n", render.OneLine(strings.Join(i.Identities, ", ")))
	a.Printf(a.Out, "namespaces   %s\n\n", render.OneLine(metav1.FormatLabelSelector(i.Namespaces)))
	whole = true
	table := render.NewTable("KIND", "GUARDED", "VERSION", "FIELDS")
	for _, kind := range c.kindsOf(i) {
		guarded, version := "yes", i.Version[kind]
		switch {
		case version == "":
			guarded = "no"
		case slices.Contains(i.Unbound, kind):
			guarded = "no: its binding is missing"
		case slices.Contains(i.Outdated, kind):
			guarded = "by another version"
		}
		whole = whole && guarded == "yes"
		table.Add(kind, guarded, render.OrDash(version), render.OrDash(guard.Fields(kind, o)))
	}
	a.Printf(a.Out, "%s", table.Flush())
	switch {
	case !i.Gates() && c.serves.Mutating != "":
		a.Printf(a.Out, "\nThe gate is not installed: a change of template of a workload that a Rollout names moves its pods at once.\n")
	case i.Gates() && !c.rollouts:
		a.Printf(a.Out, "\nThis cluster has no definition of Rollouts, or another product's, so nothing refers to them. "+
			"Install Slipway's (deploy/crds), then the guard again.\n")
	}
	if !whole {
		a.Printf(a.Out, "\nRun `slipway guard install` with the same options again.\n")
	}
	return whole
}

// kindsOf are the kinds that an installation should guard, and those that it guards besides.
func (c *cluster) kindsOf(i guard.Installed) []string {
	kinds := guard.Kinds()
	if i.Gates() {
		kinds = append(kinds, guard.Gated(c.rollouts)...)
	}
	var more []string
	for kind := range i.Version {
		if !slices.Contains(kinds, kind) {
			more = append(more, kind)
		}
	}
	slices.Sort(more)
	return slices.Concat(more, kinds)
}
