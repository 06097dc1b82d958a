package kube

import (
	"context"
	"fmt"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/guard"
)

// How long the answers of an Authors are kept. New objects need a check that is older than a few seconds anyway.
const authorChecksTTL, namespaceLabelsTTL = 10 * time.Second, time.Minute

// Authors judges whether the API server has checked that the authors of an object may change what it refers to.
type Authors struct {
	cluster            Cluster
	checks, namespaces recent.Cache
}

// NewAuthors returns the judge of a cluster's objects.
func NewAuthors(cluster Cluster) *Authors { return &Authors{cluster: cluster} }

// unknownChecks is the reason if the process may not read what checks authors.
const unknownChecks = "whether its authors may change the objects that it refers to is unknown: this engine's " +
	"account may not read admission policies (deploy/rbac/centre.yaml)"

// Unchecked returns why nothing proves that, and what to do; "" if it is proved.
func (a *Authors) Unchecked(ctx context.Context, o author.Object) (string, error) {
	checks, err := recent.Get(ctx, &a.checks, "", authorChecksTTL, a.cluster.authorChecks)
	if apierrors.IsForbidden(err) {
		return unknownChecks, nil
	}
	if err != nil || len(checks) == 0 {
		return author.Unchecked(o, nil, nil), err
	}
	labels, err := recent.Get(ctx, &a.namespaces, o.Namespace, namespaceLabelsTTL,
		func(ctx context.Context) (map[string]string, error) {
			found, err := a.cluster.Client.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return found.Labels, nil
		})
	if err != nil {
		return "", err
	}
	return author.Unchecked(o, checks, labels), nil
}

// authorChecks returns what checks authors on the cluster. Webhooks that the account may not read don't count.
func (c Cluster) authorChecks(ctx context.Context) ([]author.Check, error) {
	versions, err := FindPolicyVersions(c.Client.Discovery())
	if err != nil {
		return nil, err
	}
	policies, err := c.Guards(ctx, PolicyVersions{Validating: versions.Validating}, "")
	if err != nil {
		return nil, err
	}
	var hooks []admission.MutatingWebhookConfiguration
	if hooks, err = c.Gates(ctx, ""); err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	return guard.AuthorChecks(policies, hooks), nil
}

// May asks the API server whether a user has a permission.
func (c Cluster) May(ctx context.Context, question authorization.SubjectAccessReviewSpec) (bool, error) {
	answer, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorization.SubjectAccessReview{Spec: question}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("a permission of user %s can't be asked for: %w", question.User, err)
	}
	return answer.Status.Allowed, nil
}
