package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Permission is one thing that an account may do or not. Namespace "" stands for every namespace, Name "" for every object.
type Permission = authv1.ResourceAttributes

// everywhere is the permission in all namespaces.
func everywhere(p Permission) Permission {
	p.Namespace = metav1.NamespaceAll
	return p
}

// Needs are the permissions for some verbs on a resource.
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
	// refused says that somebody was refused by these answers: whoever is asked to grant it, and does, is not to be refused by them once more.
	refused atomic.Bool
}

// NewPermissions asks about the account of client.
func NewPermissions(client Typed) *Permissions { return &Permissions{client: client} }

// permissionsLast is how long counts what was said of permissions: hundreds of releases may be checked in a second.
const permissionsLast = time.Second

// granted is what was asked of an account a moment ago.
type granted struct {
	mu      sync.Mutex
	current *Permissions
	from    time.Time
}

func (g *granted) now(client Typed) *Permissions {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current == nil || g.current.refused.Load() || time.Since(g.from) >= permissionsLast {
		g.current, g.from = NewPermissions(client), time.Now()
	}
	return g.current
}

// Ask asks for these permissions: by a review of the rules in each namespace, and one by one what the rules do not tell. Where there are more namespaces
// than permissions it asks for all namespaces first, so that an account with rights on the whole cluster costs a handful of requests however many
// namespaces there are.
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
	whole := make([]Permission, len(needs))
	for i, n := range needs {
		whole[i] = everywhere(n)
	}
	if err := p.ask(ctx, whole); err != nil {
		return err
	}
	return p.ask(ctx, slices.DeleteFunc(slices.Clone(needs), p.allowed))
}

// Lacking asks for these permissions and says which of them are not granted; "" when all are.
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
	return Together(ctx, jobs)
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
	whole, _ := p.answers.Load(everywhere(n))
	here, _ := p.answers.Load(n)
	return whole == true || here == true
}

// Lacks says which of the permissions, all asked for before, are not granted, and what to do; "" when all are.
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
	p.refused.Store(true)
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
