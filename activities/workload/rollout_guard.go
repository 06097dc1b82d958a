package workload

import (
	"context"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/guard"
)

// guardMaxAge is how long a check before a release uses what was read about the guard, guardStepAge how long the writes
// of a release do; these use the labels of a namespace for labelsStepAge.
const guardMaxAge, guardStepAge, labelsStepAge = 10 * time.Second, 15 * time.Second, time.Second

// unlisted returns why the API server would undo what this worker writes in a namespace, "" if it would not. The
// objects that a user repairs are not guarded.
func (a *Activities) unlisted(ctx context.Context, namespace string, fresh, labels time.Duration) (string, error) {
	if a.options.Repairing {
		return "", nil
	}
	return a.protection.Unlisted(ctx, namespace, fresh, labels)
}

// requireListed refuses a write that the API server would undo.
func (t *job) requireListed(ctx context.Context) error {
	reason, err := t.a.unlisted(ctx, t.workload.Namespace, guardStepAge, labelsStepAge)
	if reason != "" {
		return t.refuse("%s", reason)
	}
	return err
}

// checkGuard adds notices for what the rollout will borrow and the API server does not guard, unless the namespace opts
// out.
func (p *rolloutPreflight) checkGuard(ctx context.Context) error {
	labels, known, err := p.a.protection.NamespaceLabels(ctx, p.req.Workload.Namespace, p.labelsAge(ctx))
	if err != nil || labels[guard.LabelGuard] == guard.NamespaceOff {
		return err
	}
	v, err := p.a.protection.Read(ctx, guardMaxAge)
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(slices.Clone(v.Installed), func(i guard.Installed) bool {
		return known && !i.Guards(labels)
	})
	switch {
	case v.Unknown != "":
		p.notice("it is unknown whether the API server guards this release: %s", v.Unknown)
	case !known && v.Served:
		p.notice("it is unknown which guards apply to namespace %s: this party's worker may not get namespaces",
			p.req.Workload.Namespace)
	case !v.Served:
		p.notice("this cluster can't guard the release against edits by others (it has no mutating admission policies); " +
			"the engine only restores what they change")
	case len(found) == 0:
		p.notice("the API server doesn't guard this release against edits by others; `slipway guard install` changes that")
	default:
		if missing := p.unguarded(found); len(missing) > 0 {
			p.notice("the API server doesn't guard %s against edits by others; `slipway guard status` shows why",
				strings.Join(missing, ", "))
		}
	}
	return nil
}

// unguarded are the kinds that the rollout borrows and none of these installations guards. Custom objects are compared
// by their group only.
func (p *rolloutPreflight) unguarded(found []guard.Installed) (missing []string) {
	guarded := map[string]bool{}
	for _, i := range found {
		for name := range i.Version {
			if !slices.Contains(i.Unbound, name) {
				_, group, _ := strings.Cut(name, ".")
				guarded[name], guarded["."+group] = true, true
			}
		}
	}
	needs := func(name, shown string) {
		if !guarded[name] && !slices.Contains(missing, shown) {
			missing = append(missing, shown)
		}
	}
	kind := p.req.Workload.WorkloadRef.Lookup().Resource.GroupResource().String()
	needs(kind, kind)
	needs(guard.Marks, guard.Marks)
	for _, r := range p.req.Strategy.Routings {
		const ingresses, httpRoutes = "ingresses.networking.k8s.io", "httproutes.gateway.networking.k8s.io"
		switch needs("services", "services"); {
		case r.Ingress != nil:
			needs(ingresses, ingresses)
		case r.HTTPRoute != "":
			needs(httpRoutes, httpRoutes)
		}
		for _, custom := range r.Custom {
			group, _, _ := strings.Cut(custom.APIVersion, "/")
			needs("."+group, custom.Kind+" of "+group)
		}
	}
	return missing
}
