package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/recent"
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
		return p.askEverywhere(ctx, needs)
	}
	for namespace, needed := range in {
		if namespace == metav1.NamespaceAll {
			continue
		}
		if err := p.reviewRules(ctx, namespace, needed); err != nil {
			return err
		}
	}
	return p.ask(ctx, slices.DeleteFunc(slices.Clone(needs), p.allowed))
}

func (p *Permissions) askEverywhere(ctx context.Context, needs []Permission) error {
	clusterWide := make([]Permission, len(needs))
	for i, n := range needs {
		clusterWide[i] = everywhere(n)
	}
	if err := p.ask(ctx, clusterWide); err != nil {
		return err
	}
	return p.ask(ctx, slices.DeleteFunc(slices.Clone(needs), p.allowed))
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

// Lacks returns which of the permissions, all fetched before, are not granted, and what to do; "" if all are.
func (p *Permissions) Lacks(needs []Permission) string {
	lacking := map[string][]string{}
	for _, n := range needs {
		if !p.allowed(n) {
			name := n.Resource
			if n.Subresource != "" {
				name += "/" + n.Subresource
			}
			lacking[n.Namespace] = append(lacking[n.Namespace], n.Verb+" "+name)
		}
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
