package guard

import (
	"cmp"
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
		Use: "status", Short: "Show what is guarded and which users may change it", Args: cobra.NoArgs,
		Long: `Show what is guarded and which users may change it, for all installations.

Exit codes:
  0  everything is guarded
  1  the command failed
  3  something is not guarded; the table says what`,
		RunE: func(c *cobra.Command, _ []string) error {
			cluster, err := o.connect(c.Context())
			if err != nil {
				return err
			}
			found, err := cluster.Guards(c.Context(), cluster.policies, "")
			if err != nil {
				return explain("read", err)
			}
			return cluster.status(a, guard.Find(found))
		},
	}
}

// status prints all installations.
func (c *cluster) status(a *app.App, all []guard.Installed) error {
	if c.policies.Mutating == "" {
		a.Printf(a.Out, "This cluster (%s) does not serve mutating admission policies: borrowed fields cannot be "+
			"guarded. "+
			"Use Kubernetes 1.36 or newer.\n", c.version)
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
	a.Printf(a.Out, "allowed      %s\n", render.OneLine(strings.Join(i.Identities, ", ")))
	a.Printf(a.Out, "namespaces   %s\n\n", render.OneLine(metav1.FormatLabelSelector(i.Namespaces)))
	complete = true
	table := render.NewTable("KIND", "GUARDED", "VERSION", "FIELDS")
	for _, kind := range c.kindsOf(i) {
		guarded, version := "yes", i.Version[kind]
		switch {
		case version == "":
			guarded = "no"
		case slices.Contains(i.Unbound, kind):
			guarded = "no: its binding is missing"
		case slices.Contains(i.Outdated, kind):
			guarded = "outdated"
		}
		complete = complete && guarded == "yes"
		table.Add(kind, guarded, cmp.Or(version, "-"), cmp.Or(guard.Fields(kind, o), "-"))
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

// kindsOf returns the kinds that an installation should guard, and the additional ones that it guards.
func (c *cluster) kindsOf(i guard.Installed) []string {
	kinds := guard.Kinds()
	if i.Gates() {
		kinds = append(kinds, guard.Gated(c.hasRollouts)...)
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
