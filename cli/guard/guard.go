// Package guard implements `slipway guard`: it installs, shows and removes the guard's admission policies. It needs
// only a kubeconfig.
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/rollout/traffic"
)

const long = `Install, show and remove the guard: admission policies in the API server that protect the fields that
running releases have borrowed. If another client changes such a field, the API server restores it and accepts the rest
of the request. Changes of slipway.io labels and annotations are rejected. Deletion, scaling and status updates are
affected only by the lock (install --lock).

The command also installs the gate: if another client changes the pod template of a workload that a Rollout names, no
pods are replaced until the engine releases the change.

It needs only a kubeconfig, no engine. Fields are guarded on Kubernetes 1.36 or newer, or on 1.34 with the v1beta1 API
enabled.`

// options are the flags of all guard commands.
type options struct {
	kubeconfig, context, name string
}

// Command returns `slipway guard`.
func Command(a *app.App) *cobra.Command {
	var o options
	command := &cobra.Command{Use: "guard", Short: "Protect fields borrowed by running releases with admission " +
		"policies", Long: long}
	f := command.PersistentFlags()
	f.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("SLIPWAY_KUBECONFIG"),
		"kubeconfig `file` of the workloads' cluster (default: in-cluster, then KUBECONFIG, then ~/.kube/config)")
	f.StringVar(&o.context, "context", "", "`context` of the kubeconfig (default: its current context)")
	f.StringVar(&o.name, "name", guard.DefaultName, "`name` of the installation, the prefix of its policies' names")
	_ = command.MarkPersistentFlagFilename("kubeconfig")
	command.AddCommand(installCommand(a, &o), statusCommand(a, &o), removeCommand(a, &o))
	return command
}

// cluster is a connection to a cluster, with the versions of admission policies that it serves.
type cluster struct {
	kube.Cluster
	policies kube.PolicyVersions
	// hasRollouts is true if the cluster has Slipway's definition of Rollouts.
	hasRollouts bool
	// version is the version of the API server.
	version string
}

// connect connects to the cluster and reads which policies it serves.
func (o options) connect(ctx context.Context) (*cluster, error) {
	config, err := kube.Connect(kube.Options{Kubeconfig: o.kubeconfig, Context: o.context,
		UserAgent: version.UserAgent()})
	if err != nil {
		return nil, err
	}
	return connectTo(ctx, config)
}

func connectTo(ctx context.Context, config *rest.Config) (*cluster, error) {
	typed, objects, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: kube.NewCluster(typed, objects, nil)}
	server, err := typed.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("cannot reach the cluster %s: %w", config.Host, err)
	}
	c.version = server.GitVersion
	c.policies, err = kube.FindPolicyVersions(typed.Discovery())
	if err != nil {
		return nil, fmt.Errorf("cannot read which policies the cluster %s serves: %w", config.Host, err)
	}
	_, c.hasRollouts, err = c.RolloutsDefinition(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read whether the cluster %s has the Rollout definition: %w", config.Host, err)
	}
	return c, nil
}

// explain adds what to do to an error from reading or changing the policies.
func explain(verb string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("you are not allowed to %s the guard in this cluster: ask a cluster administrator (%w)", verb,
			err)
	}
	return fmt.Errorf("the guard: %w", err)
}

// parseKinds parses the kinds of --object, "resource.group".
func parseKinds(names []string) ([]traffic.Kind, error) {
	var out []traffic.Kind
	for _, name := range names {
		kind, err := traffic.ParseKind(name)
		if err != nil {
			return nil, app.Usagef("--object %v", err)
		}
		out = append(out, kind)
	}
	return out, nil
}

func removeCommand(a *app.App, o *options) *cobra.Command {
	var engineNamespace string
	command := &cobra.Command{
		Use: "remove", Short: "Remove the guard", Args: cobra.NoArgs,
		Long: "Remove the guard and the gate; with --engine-namespace also the webhooks of that engine, except the " +
			"conversion of Rollouts. Running releases continue: the engine still restores borrowed fields after a " +
			"change by another client, but cannot prevent the change. A change of the pod template of a workload " +
			"that a Rollout names replaces its pods immediately.",
		RunE: func(c *cobra.Command, _ []string) error {
			cluster, err := o.connect(c.Context())
			if err != nil {
				return err
			}
			n, err := cluster.remove(c.Context(), o.name, nil)
			if err != nil {
				return explain("remove", err)
			}
			hooks, err := cluster.removeWebhooks(c.Context(), engineNamespace)
			switch {
			case err != nil:
				return explain("remove", err)
			case n == 0 && len(hooks) == 0:
				a.Printf(a.Out, "The guard %s is not installed; nothing to remove\n", o.name)
			case n > 0:
				a.Printf(a.Out, "The guard %s was removed\n", o.name)
			}
			for _, hook := range hooks {
				a.Printf(a.Out, "The webhook %s was removed\n", hook)
			}
			return nil
		},
	}
	command.Flags().StringVar(&engineNamespace, "engine-namespace", "", "also remove the webhooks that install has "+
		"registered for the engine in this `namespace`")
	app.AcceptYes(command)
	return command
}

// removeWebhooks deletes the configurations of the webhooks of an engine that exist, and returns their names. Without
// the engine's namespace it deletes none: another guard may be removed.
func (c *cluster) removeWebhooks(ctx context.Context, engineNamespace string) (removed []string, err error) {
	if engineNamespace == "" {
		return nil, nil
	}
	for _, name := range []string{guard.GateOf(engineNamespace), guard.AuthorsOf(engineNamespace)} {
		found, err := c.Gates(ctx, name)
		if err != nil {
			return removed, err
		}
		if len(found) == 0 {
			continue
		}
		if err := c.RemoveGate(ctx, name); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	return removed, nil
}

// remove deletes the policies and bindings of an installation, except those to keep, and returns how many it deleted.
func (c *cluster) remove(ctx context.Context, name string, keep map[string]bool) (n int, err error) {
	found, err := c.Guards(ctx, c.policies, name)
	if err != nil {
		return 0, err
	}
	for i := range found {
		if keep[found[i].GetKind()+found[i].GetName()] {
			continue
		}
		err := c.Objects.Resource(kube.ResourceOf(&found[i])).Delete(ctx, found[i].GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return n, err
		}
		n++
	}
	return n, nil
}

// How often to check: whether the cluster still needs no webhook; whether the API server still calls it; and whether a
// cluster without the Rollout definition has it now.
const (
	gateInterval       = 10 * time.Minute
	webhookInterval    = time.Minute
	definitionInterval = 10 * time.Second
)

// Gate is the gate of one engine. In clusters where admission policies cannot hold workloads for Rollouts, it registers
// a webhook with the API server.
type Gate struct {
	// Config connects to the cluster. Name is the name of the webhook configuration, one per engine.
	Config *rest.Config
	Name   string
	// Mode is how the gate holds workloads: one of the values of settings.Settings.Gate.
	Mode string
	// List returns the identities that Publish writes; nil: the default ones.
	List func(context.Context) (List, error)
	Log  *slog.Logger
	// Authors is true for the webhook that checks authors of Rollouts (guard.AuthorWebhooks) in place of those that
	// hold workloads.
	Authors bool

	published atomic.Pointer[[]string]
}

// Publish registers or removes the webhook, depending on the setting and on the cluster's policies. It returns when to
// check again.
func (g *Gate) Publish(ctx context.Context, client admission.WebhookClientConfig) (time.Duration, error) {
	c, err := connectTo(ctx, g.Config)
	if err != nil {
		return 0, err
	}
	needed, err := g.lacksPolicies(ctx, c)
	if err != nil {
		return 0, err
	}
	if !needed {
		again := gateInterval
		if g.Authors && !c.hasRollouts {
			again = definitionInterval
		}
		return again, c.withdraw(ctx, g.Name)
	}
	wanted, err := g.options(ctx, c)
	if err != nil {
		return 0, err
	}
	again := webhookInterval
	if !c.hasRollouts { // the definition may be applied after the engine started
		again = definitionInterval
	}
	return again, c.PutGate(ctx, g.configuration(wanted, client))
}

// configuration returns the configuration of the webhooks.
func (g *Gate) configuration(wanted guard.Options,
	client admission.WebhookClientConfig) *admission.MutatingWebhookConfiguration {
	if g.Authors {
		return guard.AuthorWebhooks(wanted, client)
	}
	return guard.Webhooks(wanted, client)
}

// options returns what to publish in place of what is there.
func (g *Gate) options(ctx context.Context, c *cluster) (wanted guard.Options, err error) {
	list := List{Identities: guard.DefaultIdentities()}
	if g.List != nil {
		if list, err = g.List(ctx); err != nil {
			return wanted, err
		}
	}
	installed, err := c.installedGuard(ctx, guard.DefaultName)
	if err != nil {
		return wanted, err
	}
	there, err := c.Gates(ctx, g.Name)
	if err != nil {
		return wanted, err
	}
	var before []string
	var written guard.Written
	if len(there) > 0 {
		before, written = guard.WebhookIdentities(&there[0])
	}
	wanted = installed.Options()
	wanted.Name, wanted.NoRollouts = g.Name, !c.hasRollouts
	if wanted, err = c.sign(ctx, wanted, list, before, written); err != nil {
		return wanted, err
	}
	if dropped := wanted.Dropped(before); len(dropped) > 0 && g.Log != nil {
		g.Log.WarnContext(ctx, "the gate's webhook "+g.Name+": "+droppedText(dropped))
	}
	g.published.Store(&wanted.Identities)
	return wanted, nil
}

// Withdraw removes the webhook of this engine's gate.
func (g *Gate) Withdraw(ctx context.Context) error {
	c, err := connectTo(ctx, g.Config)
	if err != nil {
		return err
	}
	return c.withdraw(ctx, g.Name)
}

func (c *cluster) withdraw(ctx context.Context, name string) error {
	// without the permission it cannot have registered a webhook either
	if err := c.RemoveGate(ctx, name); err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	return nil
}

// IsEngine reports whether a user is an engine, by the identities published last. Current API servers do not even call
// the webhook for these users.
func (g *Gate) IsEngine(user, _ string) bool {
	published := g.published.Load()
	return published != nil && slices.Contains(*published, user)
}
