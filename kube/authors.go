package kube

import (
	"context"
	"fmt"
	"time"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/guard"
)

// How long an Authors keeps checks and the labels of namespaces, and how old they may be if an object shows something
// else: another process has read newer ones, and both would write the status in turns.
const keepChecks, keepLabels, keepDiffering = 10 * time.Second, time.Minute, time.Second

// Authors judges whether the API server has checked that the authors of an object may change what it refers to.
type Authors struct {
	cluster            Cluster
	checks, namespaces recent.Cache
}

// NewAuthors returns the judge of a cluster's objects.
func NewAuthors(cluster Cluster) *Authors { return &Authors{cluster: cluster} }

// unknownChecks is the reason if the process may not read what checks authors.
const unknownChecks = "whether its authors may change the objects that it refers to is unknown: this engine's " +
	"account may not read admission policies or namespaces (deploy/rbac/centre.yaml)"

// Unchecked returns why nothing proves that, and what to do; "" if it is proved.
func (a *Authors) Unchecked(ctx context.Context, o author.Object) (string, error) {
	why, err := a.judge(ctx, o, keepChecks, keepLabels)
	if err != nil || why == o.Shown {
		return why, err
	}
	return a.judge(ctx, o, keepDiffering, keepDiffering)
}

// judge is Unchecked by checks and labels of namespaces that are at most this old.
func (a *Authors) judge(ctx context.Context, o author.Object, checks, labels time.Duration) (string, error) {
	found, err := recent.Get(ctx, &a.checks, "", checks, a.cluster.authorChecks)
	switch {
	case err != nil:
		return "", err
	case found.forbidden:
		return unknownChecks, nil
	case len(found.checks) == 0:
		return author.Unchecked(o, nil, nil), nil
	}
	of, err := recent.Get(ctx, &a.namespaces, o.Namespace, labels,
		func(ctx context.Context) (map[string]string, error) {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			found, err := a.cluster.Client.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return found.Labels, nil
		})
	if apierrors.IsForbidden(err) {
		return unknownChecks, nil
	}
	return author.Unchecked(o, found.checks, of), err
}

// authorChecks are what checks authors on a cluster; forbidden is true if the account may not read that.
type authorChecks struct {
	checks    []author.Check
	forbidden bool
}

// authorChecks returns what checks authors on the cluster. Webhooks that the account may not read don't count.
func (c Cluster) authorChecks(ctx context.Context) (authorChecks, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	versions, err := FindPolicyVersions(c.Client.Discovery())
	if err != nil {
		return authorChecks{}, err
	}
	policies, err := c.Guards(ctx, PolicyVersions{Validating: versions.Validating}, "")
	if apierrors.IsForbidden(err) {
		return authorChecks{forbidden: true}, nil
	}
	if err != nil {
		return authorChecks{}, err
	}
	hooks, err := c.Gates(ctx, "")
	if err != nil && !apierrors.IsForbidden(err) {
		return authorChecks{}, err
	}
	return authorChecks{checks: guard.AuthorChecks(policies, hooks)}, nil
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
