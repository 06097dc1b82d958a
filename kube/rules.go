package kube

import (
	"context"
	"slices"

	authv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
