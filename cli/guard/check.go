package guard

import (
	"context"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/guard"
	rollouts "slipway.io/slipway/release/kruise/admission"
	"slipway.io/slipway/release/phrase"
)

// byAdministrator is what to do about a missing part of the gate.
const byAdministrator = "an administrator has to install it (the Helm chart, or slipway guard install)"

// Check returns what is wrong with the webhook of the gate that an administrator has installed, for a server at this
// address, whose certificate chain is in place of the CA; "" for nothing. It writes nothing.
func (g *Gate) Check(ctx context.Context, client admission.WebhookClientConfig) (problem string, err error) {
	c, err := connectTo(ctx, g.Config)
	if err != nil {
		return "", err
	}
	all, err := c.Gates(ctx, g.Name)
	if err != nil {
		return "", err
	}
	object := "MutatingWebhookConfiguration " + g.Name
	needed := g.needsWebhook(c)
	if !needed && len(all) > 0 { // then it may hold in place of policies that are not installed
		if needed, err = g.lacksPolicies(ctx, c); err != nil {
			return "", err
		}
	}
	switch {
	case len(all) == 0 && needed && g.Authors:
		return "the " + object + " is missing, so that authors of Rollouts may refer to objects that they may not " +
			"change: " + byAdministrator, nil
	case len(all) == 0 && needed:
		return "the " + object + " is missing, so that changes of workloads which Rollouts name are not held: " +
			byAdministrator, nil
	case len(all) == 0:
		return "", nil
	case !needed:
		return "the " + object + " is not needed: admission policies do the same, or --gate is off. Delete it", nil
	}
	have := &all[0]
	identities, _ := guard.WebhookIdentities(have)
	g.published.Store(&identities)
	want := g.configuration(guard.Options{Name: g.Name, Identities: identities, NoRollouts: !c.hasRollouts}, client)
	problems := guard.WebhookProblems(have, want)
	for _, w := range have.Webhooks {
		wrong := kube.CheckTrust(w.ClientConfig.CABundle, client.CABundle, kube.WebhookHost(client))
		if wrong != nil && len(problems) == 0 {
			problems = append(problems, wrong.Error())
		}
	}
	if len(problems) > 0 {
		return "the " + object + " is not this engine's: " + phrase.List(problems, 3) + ": " + byAdministrator, nil
	}
	return "", nil
}

// lacksPolicies reports whether no admission policy holds workloads on this cluster, so that a webhook has to, unless
// the setting says otherwise. That the API server could have policies is not enough.
func (g *Gate) lacksPolicies(ctx context.Context, c *cluster) (bool, error) {
	if g.needsWebhook(c) || g.Authors || g.Mode != settings.GateAuto || !c.hasRollouts {
		return g.needsWebhook(c), nil
	}
	problems, err := c.gateProblems(ctx)
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	return len(problems) > 0, err
}

// needsWebhook reports whether the webhook has to be registered on this cluster: policies could not hold workloads.
func (g *Gate) needsWebhook(c *cluster) bool {
	if g.Authors {
		return c.hasRollouts && (g.Mode == settings.GateWebhook || g.Mode == settings.GateAuto &&
			c.policies.Validating == "")
	}
	return g.Mode == settings.GateWebhook || g.Mode == settings.GateAuto && c.policies.Mutating == ""
}

// CheckPolicies returns what the cluster lacks of the admission policies that hold workloads for Rollouts, and of those
// that check Rollouts themselves. It writes nothing.
func (g *Gate) CheckPolicies(ctx context.Context) (problems []string, err error) {
	c, err := connectTo(ctx, g.Config)
	if err != nil || !c.hasRollouts {
		return nil, err
	}
	switch byPolicy := g.Mode == settings.GateAuto || g.Mode == settings.GatePolicy; {
	case byPolicy && c.policies.Mutating != "":
		if problems, err = c.gateProblems(ctx); err != nil {
			return nil, err
		}
		if len(problems) > 0 && g.Mode == settings.GateAuto {
			// its own check says what is wrong with a webhook
			hooks, err := c.Gates(ctx, g.Name)
			if err != nil {
				return nil, err
			}
			if len(hooks) > 0 {
				problems = nil
			}
		}
	case g.Mode == settings.GatePolicy:
		problems = []string{"the API server has no mutating admission policies, so that changes of workloads which " +
			"Rollouts name are not held: serve a webhook for them (--webhook-listen)"}
	}
	if c.policies.Validating == "" {
		return problems, nil
	}
	missing, err := c.missingRolloutPolicies(ctx)
	if len(missing) > 0 {
		problems = append(problems, "the cluster lacks "+phrase.List(missing, 3)+" (deploy/rollouts), which check "+
			"Rollouts: an administrator has to install them")
	}
	return problems, err
}

// gateProblems returns why no installation of the guard holds all workloads that Rollouts name.
func (c *cluster) gateProblems(ctx context.Context) (problems []string, err error) {
	found, err := c.Guards(ctx, c.policies, "")
	if err != nil {
		return nil, err
	}
	for _, i := range guard.Find(found) {
		if !i.Gates() {
			continue
		}
		var lacking []string
		for _, kind := range guard.Gated(true) {
			if state := stateOf(i, kind); state != guarded {
				lacking = append(lacking, kind+" ("+state+")")
			}
		}
		if len(lacking) == 0 {
			return nil, nil
		}
		problems = append(problems, "the gate "+i.Name+" is incomplete: "+phrase.List(lacking, 3)+": run `slipway "+
			"guard install` again")
	}
	if len(problems) == 0 {
		problems = []string{"the gate is not installed, so that changes of workloads which Rollouts name are not " +
			"held: " + byAdministrator}
	}
	return problems, nil
}

// missingRolloutPolicies returns the policies and bindings of deploy/rollouts that the cluster lacks.
func (c *cluster) missingRolloutPolicies(ctx context.Context) (missing []string, err error) {
	there := map[string]bool{}
	for _, resource := range (kube.PolicyVersions{Validating: c.policies.Validating}).Resources() {
		list, err := c.List(ctx, resource, "", "")
		if err != nil {
			return nil, err
		}
		for i := range list {
			there[list[i].GetKind()+" "+list[i].GetName()] = true
		}
	}
	for _, policy := range rollouts.Policies() {
		if name := policy.GetKind() + " " + policy.GetName(); !there[name] {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
