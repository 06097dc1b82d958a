package rollout

import (
	"context"
	"time"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/workload"
)

// protectionTTL is how long the answer that names are recorded is used. The opposite answer is used for protectionRetry
// only: an approval right after the gate was installed counts.
const protectionTTL, protectionRetry = 10 * time.Second, time.Second

// attribute marks the users of an action as unverified, or has its command refused, if nothing in the API server
// records their names now: a client can have written any name.
func (c *Controller) attribute(ctx context.Context, r *v1beta1.Rollout, next kruise.NextAction) (kruise.NextAction,
	error) {
	required := c.options.RequireGate && next.NameSource == kruise.NamedInStatus
	if !next.Named() && !required {
		return next, nil
	}
	// read anew: a cached label would hide that the guard was switched off here
	labels, err := c.home.NamespaceLabels(ctx, r.Namespace)
	if err != nil {
		return next, err
	}
	recorded, unknown, err := c.records(ctx, r, next.NameSource, labels)
	if err != nil || recorded {
		return next, err
	}
	why := "the gate is not installed for the namespace " + r.Namespace + ", or not as this version of Slipway " +
		"writes it: run `slipway guard install`"
	if unknown != "" {
		why = "whether the gate is installed is unknown: " + unknown
	}
	next = next.Unverified()
	if required {
		next = next.RefusedCommand(why)
	}
	c.options.Log.WarnContext(ctx, "the user of a command is not verified", "rollout", r.Namespace+"/"+r.Name,
		"verb", next.Command.Verb, "actor", next.Command.Actor+next.By, "refused", required, "problem", why)
	return next, nil
}

// records reports whether the API server records the names from a source, for a Rollout in a namespace with these
// labels, or why that is unknown.
func (c *Controller) records(ctx context.Context, r *v1beta1.Rollout, source kruise.NameSource,
	labels map[string]string) (recorded bool, unknown string, err error) {
	for _, fresh := range []time.Duration{protectionTTL, protectionRetry} {
		p, why, err := c.options.Protection(ctx, fresh)
		if err != nil {
			return false, "", err
		}
		unknown = why
		switch source {
		case kruise.NamedInStatus:
			recorded = p.NamesCommands(labels)
		case kruise.NamedOnRollout:
			recorded = p.NamesEdits(labels)
		case kruise.NamedOnWorkload:
			kind := workload.Of(r.Spec.WorkloadRef.APIVersion, r.Spec.WorkloadRef.Kind)
			recorded = p.NamesTemplates(kind.Resource.GroupResource().String(), labels)
		}
		if recorded {
			break
		}
	}
	return recorded, unknown, nil
}
