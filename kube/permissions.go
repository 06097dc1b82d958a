package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/strictyaml"
)

// Permission is one action that an account may be allowed. Namespace "" means every namespace, Name "" every object.
type Permission = authv1.ResourceAttributes

// everywhere returns the permission for all namespaces.
func everywhere(p Permission) Permission {
	p.Namespace = metav1.NamespaceAll
	return p
}

// Needs returns the permissions for some verbs on a resource.
func Needs(resource schema.GroupVersionResource, namespace string, verbs ...string) []Permission {
	out := make([]Permission, len(verbs))
	for i, verb := range verbs {
		out[i] = Permission{Verb: verb, Group: resource.Group, Resource: resource.Resource, Namespace: namespace}
	}
	return out
}

// Permissions asks an API server about the permissions of this process, each of them once.
type Permissions struct {
	client  Typed
	answers sync.Map // Permission to bool
	// cache shares these answers; nil: they are not shared. It drops them when they refuse a caller: after the missing
	// permission is granted, the refusal must not be used.
	cache *recent.Cache
}

// NewPermissions returns an empty set of answers about client's account.
func NewPermissions(client Typed) *Permissions { return &Permissions{client: client} }

// permissionsTTL is how long answers are cached: hundreds of releases may be checked in a second.
const permissionsTTL = time.Second

// Permissions answers for the account of this cluster's clients. Answers are cached for a second.
func (c Cluster) Permissions() *Permissions {
	p, _ := recent.Get(context.Background(), c.granted, "", permissionsTTL,
		func(context.Context) (*Permissions, error) {
			return &Permissions{client: c.Client, cache: c.granted}, nil
		})
	return p
}

// Ask fetches these permissions: by a review of the rules in each namespace, and one by one what the rules do not show.
// If there are more namespaces than permissions it first asks for all namespaces, so that an account with cluster-wide
// permissions costs a few requests for any number of namespaces.
func (p *Permissions) Ask(ctx context.Context, needs []Permission) error {
	in, kinds := map[string][]Permission{}, map[Permission]bool{}
	for _, n := range needs {
		if _, known := p.answers.Load(n); !known {
			in[n.Namespace] = append(in[n.Namespace], n)
			kinds[everywhere(n)] = true
		}
	}
	if len(in) >= len(kinds) && len(in) > 1 {
		if err := p.ask(ctx, slices.Collect(maps.Keys(kinds))); err != nil {
			return err
		}
		return p.ask(ctx, p.denied(needs))
	}
	delete(in, metav1.NamespaceAll)
	for namespace, needed := range in {
		if err := p.reviewRules(ctx, namespace, needed); err != nil {
			return err
		}
	}
	return p.ask(ctx, p.denied(needs))
}

// Lacking fetches these permissions and returns which of them are not granted; "" if all are.
func (p *Permissions) Lacking(ctx context.Context, needs []Permission) (string, error) {
	if err := p.Ask(ctx, needs); err != nil {
		return "", err
	}
	return p.Lacks(needs), nil
}

func (p *Permissions) ask(ctx context.Context, needs []Permission) error {
	var jobs []func(ctx context.Context) error
	asked := map[Permission]bool{}
	for _, n := range needs {
		if _, known := p.answers.Load(n); !known && !asked[n] {
			asked[n] = true
			jobs = append(jobs, func(ctx context.Context) error { return p.askOne(ctx, n) })
		}
	}
	return Parallel(ctx, jobs)
}

func (p *Permissions) askOne(ctx context.Context, n Permission) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	question := &authv1.SelfSubjectAccessReview{Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &n}}
	review, err := p.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, question, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	p.answers.Store(n, review.Status.Allowed)
	return nil
}

func (p *Permissions) allowed(n Permission) bool {
	clusterWide, _ := p.answers.Load(everywhere(n))
	here, _ := p.answers.Load(n)
	return clusterWide == true || here == true
}

// denied returns those of the permissions that are not known to be granted.
func (p *Permissions) denied(needs []Permission) []Permission {
	return slices.DeleteFunc(slices.Clone(needs), p.allowed)
}

// Lacks returns which of the permissions, all fetched before, are not granted, and what to do; "" if all are.
func (p *Permissions) Lacks(needs []Permission) string {
	lacking := map[string][]string{}
	for _, n := range p.denied(needs) {
		name := n.Resource
		if n.Subresource != "" {
			name += "/" + n.Subresource
		}
		lacking[n.Namespace] = append(lacking[n.Namespace], n.Verb+" "+name)
	}
	if len(lacking) == 0 {
		return ""
	}
	p.cache.Forget()
	var parts []string
	for namespace, names := range lacking {
		slices.Sort(names)
		where := "in all namespaces"
		if namespace != metav1.NamespaceAll {
			where = "in namespace " + namespace
		}
		parts = append(parts, strings.Join(slices.Compact(names), ", ")+" "+where)
	}
	slices.Sort(parts)
	return fmt.Sprintf("this party's worker may not %s: grant it that", strings.Join(parts, ", nor "))
}

// reviewRules records which of these permissions, all in one namespace, the account's rules grant, by one request. What
// the rules do not grant is not known to be denied, since an authorizer need not list all its rules
// (https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access).
func (p *Permissions) reviewRules(ctx context.Context, namespace string, needs []Permission) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	review, err := p.client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
		&authv1.SelfSubjectRulesReview{Spec: authv1.SelfSubjectRulesReviewSpec{Namespace: namespace}},
		metav1.CreateOptions{})
	switch {
	case err != nil && Classify(err) == Unreachable:
		return err
	case err != nil: // ask one by one instead
		return nil
	}
	for _, n := range needs {
		if slices.ContainsFunc(review.Status.ResourceRules, func(r authv1.ResourceRule) bool { return grants(r, n) }) {
			p.answers.Store(n, true)
		}
	}
	return nil
}

// grants reports whether a rule grants a permission. "*" means all; "*/NAME" means that subresource of every resource.
func grants(r authv1.ResourceRule, n Permission) bool {
	has := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, "*") }
	resource := has(r.Resources, n.Resource)
	if n.Subresource != "" {
		resource = has(r.Resources, n.Resource+"/"+n.Subresource) || slices.Contains(r.Resources, "*/"+n.Subresource)
	}
	named := len(r.ResourceNames) == 0 || n.Name != "" && slices.Contains(r.ResourceNames, n.Name)
	return resource && named && has(r.Verbs, n.Verb) && has(r.APIGroups, n.Group)
}

// Rights returns the permissions that a manifest's Roles and ClusterRoles grant, by role name. names replaces names of
// namespaces and objects. A ClusterRole with a RoleBinding grants them in these namespaces, or in the whole cluster if
// there are none.
func Rights(manifest []byte, names map[string]string, namespaces ...string) (map[string][]Permission, error) {
	var roles []rbacv1.Role // a ClusterRole has the same fields, as far as they matter here
	inNamespaces := map[string]bool{}
	for _, document := range strictyaml.Split(manifest) {
		var o struct {
			rbacv1.Role `json:",inline"`
			RoleRef     rbacv1.RoleRef `json:"roleRef"`
		}
		if err := yaml.Unmarshal(document, &o); err != nil {
			return nil, fmt.Errorf("read a manifest of rights: %w", err)
		}
		switch o.Kind {
		case "Role", "ClusterRole":
			roles = append(roles, o.Role)
		case "RoleBinding":
			if o.RoleRef.Kind == "ClusterRole" {
				inNamespaces[o.RoleRef.Name] = len(namespaces) > 0
			}
		}
	}
	rights := map[string][]Permission{}
	for _, role := range roles {
		where := []string{renamed(names, role.Namespace)}
		if role.Kind == "ClusterRole" && inNamespaces[role.Name] {
			where = namespaces
		}
		for _, rule := range role.Rules {
			for _, namespace := range where {
				rights[role.Name] = append(rights[role.Name], ruleRights(rule, names, namespace)...)
			}
		}
	}
	return rights, nil
}

func renamed(names map[string]string, name string) string {
	if other, is := names[name]; is {
		return other
	}
	return name
}

// ruleRights returns the permissions that a rule grants in a namespace.
func ruleRights(rule rbacv1.PolicyRule, names map[string]string, namespace string) (out []Permission) {
	objects := rule.ResourceNames
	if len(objects) == 0 {
		objects = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, name := range objects {
				for _, verb := range rule.Verbs {
					out = append(out, Permission{Verb: verb, Group: group, Resource: resource, Subresource: subresource,
						Name: renamed(names, name), Namespace: namespace})
				}
			}
		}
	}
	return out
}

// Denied fetches these permissions, and returns those that are not granted.
func (p *Permissions) Denied(ctx context.Context, needs []Permission) ([]Permission, error) {
	if err := p.Ask(ctx, needs); err != nil {
		return nil, err
	}
	return p.denied(needs), nil
}
