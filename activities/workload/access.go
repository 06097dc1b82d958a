package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	authv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// need is one permission.
type need struct{ group, resource, verb, namespace string }

// needs are the permissions that operations on a kind take, in one namespace.
func (a *Activities) needs(s scope) []need {
	var out []need
	for _, verb := range []string{"get", "list", "watch", "patch"} {
		out = append(out, need{kinds[s.kind].resource.Group, kinds[s.kind].resource.Resource, verb, s.namespace})
	}
	for _, verb := range []string{"list", "watch", "delete"} {
		out = append(out, need{"", "pods", verb, s.namespace})
	}
	return out
}

// lacking says, for each kind and namespace, which permissions this worker does not have; "" when it has all. Each permission is asked for
// once; in all namespaces first, so that a worker with rights on the whole cluster costs a handful of requests however many namespaces
// there are.
func (a *Activities) lacking(ctx context.Context, groups map[scope][]int) (map[scope]string, error) {
	asked := &reviews{a: a, answers: map[need]bool{}}
	everywhere, single := map[need]bool{}, map[need]bool{}
	for s := range groups {
		for _, n := range a.needs(s) {
			n.namespace = metav1.NamespaceAll
			everywhere[n] = true
		}
	}
	if err := asked.ask(ctx, everywhere); err != nil {
		return nil, err
	}
	for s := range groups {
		for _, n := range a.needs(s) {
			if !asked.allowed(n) {
				single[n] = true
			}
		}
	}
	if err := asked.ask(ctx, single); err != nil {
		return nil, err
	}
	out := map[scope]string{}
	for s := range groups {
		out[s] = asked.lacks(a.needs(s))
	}
	return out, nil
}

// reviews are the answers of the API server on our permissions.
type reviews struct {
	a       *Activities
	mu      sync.Mutex
	answers map[need]bool
}

func (r *reviews) allowed(n need) bool {
	all := n
	all.namespace = metav1.NamespaceAll
	return r.answers[all] || r.answers[n]
}

func (r *reviews) ask(ctx context.Context, needs map[need]bool) error {
	var jobs []func(ctx context.Context) error
	for n := range needs {
		jobs = append(jobs, func(ctx context.Context) error {
			call, cancel := r.a.call(ctx)
			defer cancel()
			review, err := r.a.client.AuthorizationV1().SelfSubjectAccessReviews().Create(call, &authv1.SelfSubjectAccessReview{
				Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{
					Group: n.group, Resource: n.resource, Verb: n.verb, Namespace: n.namespace,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.answers[n] = review.Status.Allowed
			return nil
		})
	}
	return together(ctx, jobs)
}

// lacks names the permissions that are not there: "patch deployments, delete pods".
func (r *reviews) lacks(needs []need) string {
	var names []string
	for _, n := range needs {
		if !r.allowed(n) {
			names = append(names, n.verb+" "+n.resource)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("this party's worker may not %s in namespace %s: grant it that", strings.Join(names, ", "), needs[0].namespace)
}
