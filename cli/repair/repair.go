// Package repair implements `slipway repair`: it finishes or undoes an interrupted rollout of a workload with only a
// kubeconfig.
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
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

const long = `Finish or undo a rollout that stopped halfway: move all pods, Services, routes and autoscalers of a
workload to the stable or to the new version. The command needs only a kubeconfig: no engine and no Temporal. It reads
the original settings from the objects and restores them in the same order as the end of a rollout, so that no Service
is ever without pods.

While the engine runs, use "slipway rollout rollback" or "slipway rollout stop" instead. The repair first marks the
objects with the annotation slipway.io/repair: a running engine then no longer writes to them, and the guard in the API
server allows the repair's changes. Restoring an object removes the annotation.

Without an engine, the command cannot find out whether the rollout is still running. Therefore it repairs only the
rollout that you name: NAME (or --rollout) of the engine --engine. It refuses to repair other rollouts and other
engines' rollouts on the workload.

You can interrupt the command and run it again at any time. Exit codes:

  0    the workload is completely restored or updated, and nothing of the rollout is left
  1    the repair failed: fix the reported cause and run it again
  2    wrong usage
  3    there is nothing to repair
  124  --timeout passed: run it again to continue
  130  interrupted by Ctrl-C: run it again to continue`

type options struct {
	scope                     app.ScopeFlags
	kind, kubeconfig, context string
	to                        string
	engine, rollout           string
	yes, dryRun               bool
	timeout                   time.Duration
}

// defaultTimeout bounds the repair, most of which is waiting for pods.
const defaultTimeout = 30 * time.Minute

// defaultEngine is the default name of an engine.
const defaultEngine = "slipway"

// Command returns `slipway repair`.
func Command(a *app.App) *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "repair NAMESPACE/NAME --to stable|new",
		Short: "Finish or undo a rollout that stopped halfway, with only a kubeconfig",
		Long:  long,
		Example: `  slipway repair shop/web --to stable --dry-run
  slipway repair shop/web --to stable --kubeconfig ~/.kube/shop --yes
  slipway repair shop/db --kind statefulset --to stable`,
		Args: app.Arguments("a workload", "NAME", 1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if o.engine == "" {
				return app.Usagef("--engine is required: the name of the engine that runs the rollout")
			}
			if o.to != string(rollout.SideStable) && o.to != string(rollout.SideNew) {
				return app.Usagef("--to must be stable or new")
			}
			if o.timeout <= 0 {
				return app.Usagef("--timeout %s must be greater than 0", o.timeout)
			}
			name, err := o.scope.ParseName(args[0])
			if err != nil {
				return err
			}
			ref, err := app.WorkloadOfKind(o.kind, name.Name)
			if err != nil {
				return err
			}
			config, err := kube.Connect(kube.Options{Kubeconfig: o.kubeconfig, Context: o.context, QPS: kubeQPS,
				Burst: kubeBurst, UserAgent: version.UserAgent()})
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
	o.scope.NamespaceFlag(command)
	f.StringVar(&o.kind, "kind", "deployment", "the workload's `kind`: "+
		workload.Join(phrase.Each(workload.Kinds, workload.Kind.Word), " or "))
	f.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("SLIPWAY_KUBECONFIG"),
		"kubeconfig `file` of the workload's cluster (default: in-cluster, then KUBECONFIG, then ~/.kube/config)")
	f.StringVar(&o.context, "context", "", "`context` of the kubeconfig (default: its current context)")
	f.StringVar(&o.to, "to", "", "`version` to which all pods and traffic are moved: stable or new")
	f.StringVar(&o.engine, "engine", cmp.Or(os.Getenv("SLIPWAY_ENGINE_NAME"), os.Getenv("SLIPWAY_NAMESPACE"),
		defaultEngine), "`name` of the engine that runs the rollout (its --engine-name)")
	f.StringVar(&o.rollout, "rollout", "", "`name` of the rollout (default: the workload's name)")
	f.BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation")
	f.BoolVar(&o.dryRun, "dry-run", false, "only print what would be done")
	app.DurationFlag(command, &o.timeout, "timeout", defaultTimeout, "maximum duration of the repair")
	_ = command.MarkFlagFilename("kubeconfig")
	_ = command.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"stable", "new"},
		cobra.ShellCompDirectiveNoFileComp))
	return command
}

// describe prints the state of the workload and the steps of the repair.
func describe(a *app.App, w leftovers, moves []rollout.FinalMove, to rollout.Side) {
	s := w.saved
	a.Printf(a.Out, "%s has rollout %s (%s): stable revision %s, new revision %s\n", w.workload, render.OneLine(s.Name),
		string(s.Style), cmp.Or(s.Stable, "-"), cmp.Or(s.Canary, "-"))
	if w.claim == "" {
		a.Printf(a.Out, "no workflow holds it: the split was frozen, or a release of the workload ended without "+
			"restoring it\n")
	} else {
		a.Printf(a.Out, "workflow %s holds it\n", render.OneLine(w.holder()))
		if engine := workload.ParseHolder(w.claim).Engine; engine.UID != "" {
			a.Printf(a.Out, "its engine is %s\n", render.OneLine(engine.Name))
		}
		a.Printf(a.Err, "If it is still running, stop it first: slipway rollout stop %s; or terminate it in "+
			"Temporal, or stop the engine's processes.\n", app.ObjectName{Namespace: w.workload.Namespace,
			Name: s.Name}.CommandArgs())
	}
	if w.edited {
		a.Printf(a.Err, "warning: another client changed its pod template since the last step; --to new rolls out "+
			"that template, --to stable discards it\n")
	}
	if w.recover != "" && w.recover != rollout.RecoverText(s, w.workload) {
		a.Printf(a.Err, "warning: the commands in its annotation %s are not those of this version of slipway: another "+
			"client may have changed them; do not run them\n", rollout.AnnotationRecover)
	}
	if s.TrafficRouting != "" {
		a.Printf(a.Err, "note: the routes of TrafficRouting %s are shared with other rollouts; they remain unchanged "+
			"until the engine restores them\n", render.OneLine(s.TrafficRouting))
	}
	a.Printf(a.Out, "steps to move it to the %s version:\n", to)
	for n, move := range moves {
		a.Printf(a.Out, "  %d. %s\n", n+1, moveText(move, to))
	}
}

func moveText(move rollout.FinalMove, to rollout.Side) string {
	awaited := fmt.Sprintf("until all pods have the %s version and are ready", to)
	text := map[string]string{
		string(rollout.RouteToStable):     "restore the routes",
		string(rollout.RouteUnpin):        "restore the selector of the stable Service",
		string(rollout.RouteRemoveCanary): "remove the canary Service",
		string(rollout.FinishResume):      "restore the workload's settings and wait " + awaited,
		string(rollout.FinishRelease): "remove the remains of the rollout: extra workload, changes of autoscalers, " +
			"annotations, claim",
		string(rollout.FinishResumeAndRelease): "restore the workload's settings, wait " + awaited + ", and remove the " +
			"rollout's annotations",
	}[string(move)]
	return cmp.Or(text, string(move))
}
