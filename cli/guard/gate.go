package guard

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/guard"
)

// How often to ask whether the cluster still needs no webhook, whether the API server still calls it, and, while the cluster has no
// definition of Rollouts, whether it has one.
const (
	gateAgain       = 10 * time.Minute
	calledAgain     = time.Minute
	definitionAgain = 10 * time.Second
)

// Gate is the gate of one engine where policies don't hold what Rollouts name: the API server is told of a webhook.
type Gate struct {
	// Config reaches the cluster; Name is the configuration's, one for each engine.
	Config *rest.Config
	Name   string
	// By is what holds: one of the values of settings.Settings.Gate.
	By string

	told atomic.Pointer[[]string]
}

// Publish has the API server call the webhook, or not, as the setting and the cluster want it.
func (g *Gate) Publish(ctx context.Context, client admission.WebhookClientConfig) (time.Duration, error) {
	c, err := connectTo(ctx, g.Config)
	if err != nil {
		return 0, err
	}
	if g.By != settings.GateWebhook && (g.By != settings.GateAuto || c.serves.Mutating != "") {
		return gateAgain, c.withdraw(ctx, g.Name)
	}
	wanted, _, err := c.wanted(ctx)
	if err != nil {
		return 0, err
	}
	wanted.Name, wanted.NoRollouts = g.Name, !c.rollouts
	g.told.Store(&wanted.Identities)
	again := calledAgain
	if !c.rollouts { // whoever applies the definition may be slower
		again = definitionAgain
	}
	return again, c.PutGate(ctx, guard.Webhooks(wanted, client))
}

// Withdraw has the API server call no webhook of this engine's gate.
func (g *Gate) Withdraw(ctx context.Context) error {
	c, err := connectTo(ctx, g.Config)
	if err != nil {
		return err
	}
	return c.withdraw(ctx, g.Name)
}

func (c *cluster) withdraw(ctx context.Context, name string) error {
	if err := c.RemoveGate(ctx, name); err != nil && !apierrors.IsForbidden(err) { // who may not, can't have made one
		return err
	}
	return nil
}

// Engine says whether a user is an engine, as the API server was told last. It doesn't even ask about those, unless it is too old for that.
func (g *Gate) Engine(user, namespace string) bool {
	told := g.told.Load()
	return told != nil && guard.Installed{Identities: *told}.Passes(user, namespace)
}

// wanted are the options of the guard that is installed, or the default ones, with the identity of this process among those that pass.
func (c *cluster) wanted(ctx context.Context) (o guard.Options, me string, err error) {
	if me, err = c.me(ctx); err != nil {
		return o, "", err
	}
	o = guard.Options{Identities: guard.DefaultIdentities()}
	found, err := c.Guards(ctx, c.serves, guard.DefaultName)
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
