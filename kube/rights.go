package kube

import (
	"context"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/strictyaml"
)

// Rights returns the permissions that a manifest's Roles and ClusterRoles grant, by role name. names replaces names of
// namespaces and objects. A ClusterRole's permissions are returned for these namespaces, or for the whole cluster if
// there are none.
func Rights(manifest []byte, names map[string]string, namespaces ...string) (map[string][]Permission, error) {
	rights := map[string][]Permission{}
	for _, document := range strictyaml.Split(manifest) {
		var role rbacv1.Role // a ClusterRole has the same fields, as far as they matter here
		if err := yaml.Unmarshal(document, &role); err != nil {
			return nil, fmt.Errorf("read a manifest of rights: %w", err)
		}
		where := []string{renamed(names, role.Namespace)}
		if role.Kind == "ClusterRole" && len(namespaces) > 0 {
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
func (p *Permissions) Denied(ctx context.Context, needs []Permission) (denied []Permission, err error) {
	if err := p.Ask(ctx, needs); err != nil {
		return nil, err
	}
	for _, n := range needs {
		if !p.allowed(n) {
			denied = append(denied, n)
		}
	}
	return denied, nil
}
