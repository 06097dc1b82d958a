package guard

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/guard"
)

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

	published atomic.Pointer[[]string]
}

// Publish registers or removes the webhook, depending on the setting and on the cluster's policies. It returns when to
// check again.
func (g *Gate) Publish(ctx context.Context, client admission.WebhookClientConfig) (time.Duration, error) {
	c, err := connectTo(ctx, g.Config)
	if err != nil {
		return 0, err
	}
	if g.Mode != settings.GateWebhook && (g.Mode != settings.GateAuto || c.policies.Mutating != "") {
		return gateInterval, c.withdraw(ctx, g.Name)
	}
	wanted, _, err := c.guardOptions(ctx)
	if err != nil {
		return 0, err
	}
	wanted.Name, wanted.NoRollouts = g.Name, !c.hasRollouts
	g.published.Store(&wanted.Identities)
	again := webhookInterval
	if !c.hasRollouts { // the definition may be applied after the engine started
		again = definitionInterval
	}
	return again, c.PutGate(ctx, guard.Webhooks(wanted, client))
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
func (g *Gate) IsEngine(user, namespace string) bool {
	published := g.published.Load()
	return published != nil && guard.Installed{Identities: *published}.Passes(user, namespace)
}

// guardOptions returns the options of the installed guard, or the defaults, with this process's identity added to the
// allowed ones.
func (c *cluster) guardOptions(ctx context.Context) (o guard.Options, me string, err error) {
	review, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return o, "", err
	}
	me = review.Status.UserInfo.Username
	o = guard.Options{Identities: guard.DefaultIdentities()}
	found, err := c.Guards(ctx, c.policies, guard.DefaultName)
	if err != nil && !apierrors.IsForbidden(err) {
		return o, me, err
	}
	for _, i := range guard.Find(found) {
		o = i.Options()
	}
	if !slices.Contains(o.Identities, me) {
		o.Identities = append(o.Identities, me)
	}
	return o, me, nil
}

// Ensure installs or updates the guard with its defaults, for an engine that connects to the cluster with this config.
// It keeps the identities, kinds and namespaces of an existing installation and adds the engine's identity. It returns
// a message about what it did. Parts that refer to Rollouts are left out, and done is false, until the cluster has the
// Rollout definition. With gate false, the gate is left out. The error is failure.Refused if Kruise Rollouts also runs
// in the cluster and would release the same workloads.
func Ensure(ctx context.Context, config *rest.Config, gate bool) (message string, done bool, err error) {
	c, err := connectTo(ctx, config)
	if err != nil {
		return "", false, err
	}
	if c.policies.Mutating == "" && c.policies.Validating == "" {
		return fmt.Sprintf("no guard installed: this cluster (%s) does not serve admission policies", c.version), true,
			nil
	}
	wanted, me, err := c.guardOptions(ctx)
	if err != nil {
		return "", false, err
	}
	wanted.NoGate = !gate
	if err := c.checkNoKruise(ctx, wanted); err != nil {
		return "", false, err
	}
	return "the guard is installed; changes by this engine are allowed: " + me, c.hasRollouts || !gate,
		c.applyAll(ctx, wanted)
}
