// Package guard installs, shows and removes the guard in the API server, with nothing but a kubeconfig.
package guard

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/rollout/traffic"
)

const long = `Install, show and remove the guard: admission policies with which the API server itself keeps what a running release has
borrowed. When somebody else edits such an object, the API server puts the borrowed fields back to what they were and accepts the rest of
the edit. Edits of slipway.io labels and annotations are refused. Deletion, scaling and status are never affected.

It installs the gate as well: a workload that a Rollout names doesn't move pods by itself when somebody changes its pod template.

It needs only a kubeconfig, no engine. Fields are guarded on Kubernetes 1.36 or newer, or 1.34 with the v1beta1 API switched on.`

// options are the flags that the commands share.
type options struct {
	kubeconfig, context, name string
}

// Command is slipway guard.
func Command(a *app.App) *cobra.Command {
	var o options
	command := &cobra.Command{Use: "guard", Short: "Protect what running releases have borrowed, in the API server", Long: long}
	f := command.PersistentFlags()
	f.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("SLIPWAY_KUBECONFIG"),
		"kubeconfig `file` of the workloads' cluster; empty: in-cluster, then KUBECONFIG, then ~/.kube/config")
	f.StringVar(&o.context, "context", "", "`context` of the kubeconfig; empty: its current one")
	f.StringVar(&o.name, "name", guard.DefaultName, "`name` of the installation, with which the names of its policies begin")
	_ = command.MarkPersistentFlagFilename("kubeconfig")
	command.AddCommand(installCommand(a, &o), statusCommand(a, &o), removeCommand(a, &o))
	return command
}

// cluster is a cluster, and the versions in which it serves policies.
type cluster struct {
	kube.Cluster
	serves kube.PolicyVersions
	// rollouts says that it knows Rollouts, by Slipway's definition.
	rollouts bool
	// version is the API server's own version.
	version string
}

// connect finds the cluster and asks what it serves.
func (o options) connect(ctx context.Context) (*cluster, error) {
	config, err := kube.Connect(kube.Options{Kubeconfig: o.kubeconfig, Context: o.context, UserAgent: version.UserAgent()})
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
		return nil, fmt.Errorf("the cluster %s can't be reached: %w", config.Host, err)
	}
	c.version = server.GitVersion
	c.serves, err = kube.FindPolicyVersions(typed.Discovery())
	if err != nil {
		return nil, fmt.Errorf("the cluster %s doesn't say which policies it serves: %w", config.Host, err)
	}
	whose, err := c.RolloutsDefinition(ctx)
	if err != nil {
		return nil, fmt.Errorf("the cluster %s doesn't say whether it knows Rollouts: %w", config.Host, err)
	}
	c.rollouts = whose == kube.DefinitionOurs
	return c, nil
}

// refused explains why a change of the policies failed.
func refused(verb string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("you may not %s the guard on this cluster: ask an administrator of the cluster for it (%w)", verb, err)
	}
	return fmt.Errorf("the guard: %w", err)
}

// custom reads kinds as --object gives them: "resource.group".
func custom(names []string) ([]traffic.Kind, error) {
	var out []traffic.Kind
	for _, name := range names {
		r := schema.ParseGroupResource(name)
		if r.Group == "" || r.Resource == "" || strings.ToLower(name) != name {
			return nil, app.Usagef("--object %s names no kind of custom object: write it as virtualservices.networking.istio.io", name)
		}
		out = append(out, traffic.CustomKind(r.Group, r.Resource))
	}
	return out, nil
}

func removeCommand(a *app.App, o *options) *cobra.Command {
	return &cobra.Command{
		Use: "remove", Short: "Remove the guard", Args: cobra.NoArgs,
		Long: "Remove the guard and the gate. Running releases continue: the engine still restores what others change, but can't prevent it. " +
			"A change of the pod template of a workload that a Rollout names moves its pods at once.",
		RunE: func(c *cobra.Command, _ []string) error {
			cluster, err := o.connect(c.Context())
			if err != nil {
				return err
			}
			n, err := cluster.remove(c.Context(), o.name, nil)
			switch {
			case err != nil:
				return refused("remove", err)
			case n == 0:
				a.Printf(a.Out, "The guard %s is not installed: nothing to remove\n", o.name)
			default:
				a.Printf(a.Out, "The guard %s is removed\n", o.name)
			}
			return nil
		},
	}
}

// remove deletes the policies and bindings of an installation but for those to keep, and says how many there were.
func (c *cluster) remove(ctx context.Context, name string, keep map[string]bool) (n int, err error) {
	found, err := c.Guards(ctx, c.serves, name)
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
