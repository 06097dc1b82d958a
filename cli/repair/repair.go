// Package repair brings a workload home from a rollout that was left in the middle, with a kubeconfig alone.
package repair

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	claims "slipway.io/slipway/release/workloadops"
)

const long = `Finish or undo a rollout that stopped halfway: move all pods, Services, routes and autoscalers of a workload to the stable
version or to the new one. It needs only a kubeconfig: no engine, no Temporal. It reads the original settings from the objects themselves
and restores them in the order in which a rollout ends, so that no Service is ever without pods.

While the engine runs, use "slipway rollout rollback" or "slipway rollout stop" instead. The repair first takes the objects over, by the
annotation slipway.io/repair: an engine that still runs writes nothing more to them, and the guard in the API server lets the repair
through. Each object loses the annotation when it is restored.

Without an engine, it can't find out whether the rollout still runs. So it repairs only what you name: the rollout called NAME (or --rollout)
of the engine --engine. It refuses what another engine, or another rollout, has left on the workload.

You can interrupt it and run it again at any time. The exit codes:

  0    the workload is whole, and nothing of the rollout is left
  1    the repair failed: fix the cause it names and run it again
  2    wrong usage
  3    there is nothing to repair
  124  --timeout passed: run it again to continue
  130  ended by Ctrl-C: run it again to continue`

type options struct {
	where                     app.Place
	kind, kubeconfig, context string
	to                        string
	engine, rollout           string
	yes, dryRun               bool
	timeout                   time.Duration
}

// defaultTimeout is how long pods may take to come home.
const defaultTimeout = 30 * time.Minute

// defaultEngine is the name of an engine in the default namespace.
const defaultEngine = "slipway"

// Command is `slipway repair`.
func Command(a *app.App) *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "repair NAMESPACE/NAME --to stable|new",
		Short: "Finish or undo a rollout that stopped halfway, with only a kubeconfig",
		Long:  long,
		Example: `  slipway repair shop/web --to stable --dry-run
  slipway repair shop/web --to stable --kubeconfig ~/.kube/shop --yes
  slipway repair shop/db --kind statefulset --to stable`,
		Args: app.OneArgument("a workload", "NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if o.engine == "" {
				return app.Usagef("--engine says whose rollout it is: the name of an engine")
			}
			if o.to != string(rollout.SideStable) && o.to != string(rollout.SideNew) {
				return app.Usagef("--to says which version to bring it home to: stable or new")
			}
			if o.timeout <= 0 {
				return app.Usagef("--timeout %s is not above 0", o.timeout)
			}
			name, err := o.where.Named(args[0])
			if err != nil {
				return err
			}
			ref, err := app.WorkloadOfKind(o.kind, name.Name)
			if err != nil {
				return err
			}
			config, err := kube.Connect(kube.Options{Kubeconfig: o.kubeconfig, Context: o.context, QPS: qPS, Burst: burst,
				UserAgent: version.UserAgent()})
			if err != nil {
				return err
			}
			tools, err := newTools(config)
			if err != nil {
				return err
			}
			defer tools.close()
			return repair(c.Context(), a, tools, catalog.Workload{Namespace: name.Namespace, WorkloadRef: ref}, o)
		},
	}
	f := command.Flags()
	o.where.NamespaceFlag(command)
	f.StringVar(&o.kind, "kind", "deployment", "the workload's `kind`: deployment, statefulset, daemonset, cloneset, "+
		"advancedstatefulset or advanceddaemonset")
	f.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("SLIPWAY_KUBECONFIG"),
		"kubeconfig `file` of the workload's cluster; empty: in-cluster, then KUBECONFIG, then ~/.kube/config")
	f.StringVar(&o.context, "context", "", "`context` of the kubeconfig; empty: its current one")
	f.StringVar(&o.to, "to", "", "which version to bring it home to: `side` stable or new")
	f.StringVar(&o.engine, "engine", cmp.Or(os.Getenv("SLIPWAY_ENGINE_NAME"), os.Getenv("SLIPWAY_NAMESPACE"), defaultEngine),
		"`name` of the engine whose rollout it is (server: --engine-name)")
	f.StringVar(&o.rollout, "rollout", "", "`name` of the rollout, if it isn't the workload's")
	f.BoolVarP(&o.yes, "yes", "y", false, "do it without asking")
	f.BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	f.DurationVar(&o.timeout, "timeout", defaultTimeout, "how long to try at most")
	_ = command.MarkFlagFilename("kubeconfig")
	_ = command.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"stable", "new"}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// describe says what stands on the workload, and what will be done.
func describe(a *app.App, w left, moves []rollout.FinalMove, to rollout.Side) {
	s := w.saved
	a.Printf(a.Out, "%s carries rollout %s (%s): stable revision %s, new revision %s\n", w.workload, render.OneLine(s.Name),
		string(s.Style), render.OrDash(s.Stable), render.OrDash(s.Canary))
	if w.claim == "" {
		a.Printf(a.Out, "nobody holds it: the split was frozen, or a release of the workload has ended without it\n")
	} else {
		a.Printf(a.Out, "workflow %s holds it\n", render.OneLine(w.holder()))
		if engine := claims.ParseHolder(w.claim).Engine; engine.UID != "" {
			a.Printf(a.Out, "its engine is %s\n", render.OneLine(engine.Name))
		}
		a.Printf(a.Err, "If that still runs, stop it first: slipway rollout stop %s; or terminate it in Temporal, or end the engine's "+
			"processes.\n",
			app.Name{Namespace: w.workload.Namespace, Name: s.Name}.Arguments())
	}
	if w.edited {
		a.Printf(a.Err, "warning: somebody has edited its pod template since the last step; --to new makes that version whole, --to "+
			"stable takes it away\n")
	}
	if s.TrafficRouting != "" {
		a.Printf(a.Err, "note: the routes of TrafficRouting %s are shared with other rollouts; they stay as they are until the engine "+
			"gives them back\n", render.OneLine(s.TrafficRouting))
	}
	a.Printf(a.Out, "to bring it home to the %s version:\n", to)
	for n, move := range moves {
		a.Printf(a.Out, "  %d. %s\n", n+1, moveInWords(move, to))
	}
}

func moveInWords(move rollout.FinalMove, to rollout.Side) string {
	switch string(move) {
	case string(rollout.RouteToStable):
		return "give the routes back what was borrowed"
	case string(rollout.RouteUnpin):
		return "give the stable Service its own selector back"
	case string(rollout.RouteRemoveCanary):
		return "remove the canary Service"
	case string(rollout.FinishResume):
		return fmt.Sprintf("give the workload its settings back and wait until every pod is of the %s version and ready", to)
	case string(rollout.FinishRelease):
		return "take away what is left of the rollout: extra workload, borrowed autoscalers, annotations, claim"
	case string(rollout.FinishResumeAndRelease):
		return fmt.Sprintf("give the workload its settings back, wait until every pod is of the %s version and ready, and take the "+
			"rollout's annotations away", to)
	}
	return string(move)
}
