package workload

import (
	"context"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/guard"
)

// guardMaxAge is how long the state of the guard is cached, and how long reading it may take.
const guardMaxAge = 10 * time.Second

// guardView is the state of the guard in the API server.
type guardView struct {
	// served is true when the cluster has mutating policies.
	served bool
	// unknown is the reason why the worker cannot read the guard, "" when it can.
	unknown string
	found   []guard.Installed
	// user is the worker's own user name.
	user string
}

func (a *Activities) readGuard(ctx context.Context) (v guardView, err error) {
	ctx, cancel := context.WithTimeout(ctx, guardMaxAge)
	defer cancel()
	versions, err := kube.FindPolicyVersions(a.cluster.Client.Discovery())
	if err != nil {
		return v, err
	}
	objects, err := a.cluster.Guards(ctx, versions, "")
	if v.unknown, err = unreadable(ctx, a.cluster, versions, err); err != nil {
		return v, err
	}
	v.served, v.found = versions.Mutating != "", guard.Find(objects)
	review, err := a.cluster.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil {
		v.user = review.Status.UserInfo.Username
	}
	return v, nil
}

// unreadable is the reason why the worker cannot read policies, "" if it can; err is the error of the read.
func unreadable(ctx context.Context, cluster kube.Cluster, versions kube.PolicyVersions, err error) (string, error) {
	if err == nil {
		return "", nil
	}
	if !kube.IsAny(err, kube.Forbidden, kube.Refused) {
		return "", err
	}
	var needs []kube.Permission
	for _, resource := range versions.Resources() {
		needs = append(needs, kube.Needs(resource, metav1.NamespaceAll, "list")...)
	}
	lacking, asked := cluster.Permissions().Lacking(ctx, needs)
	if lacking == "" && asked == nil {
		lacking = kube.Text(err)
	}
	return lacking, asked
}

// checkGuard adds notices for what the rollout will borrow and the API server does not guard, unless the namespace opts
// out. If the guard would treat this engine as another client, the engine could not work: that is refused.
func (p *rolloutPreflight) checkGuard(ctx context.Context) error {
	var labels map[string]string
	namespace, err := p.a.namespace(ctx, p.req.Workload.Namespace)
	known := err == nil
	if known {
		labels = namespace.GetLabels()
	} else if !kube.IsAny(err, kube.Forbidden, kube.Refused, kube.Missing) {
		return err
	}
	if labels[guard.LabelGuard] == guard.NamespaceOff {
		return nil
	}
	v, err := recent.Get(ctx, &p.a.guard, "guard", guardMaxAge, p.a.readGuard)
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(slices.Clone(v.found), func(i guard.Installed) bool {
		return known && !i.Guards(labels)
	})
	for _, i := range found {
		// if the namespace's labels are unknown, it may not guard
		if i.Guards(labels) && v.user != "" && !i.Passes(v.user) {
			_ = p.refuse("", "the guard %s of this cluster doesn't know this engine and would undo what the engine writes: "+
				"run `slipway guard install` with --engine-identity %s", i.Name, v.user)
		}
	}
	switch {
	case v.unknown != "":
		p.notice("it is unknown whether the API server guards this release: %s", v.unknown)
	case !v.served:
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
