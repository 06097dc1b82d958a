package kube

import (
	"context"
	"fmt"
	"time"

	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/author"
)

// How old what checks authors may be, and how old if an object shows something else: another process has read newer
// checks, and both would write the status in turns.
const checksAge, differingAge = 10 * time.Second, time.Second

// unknownChecks is the reason if the process may not read what checks authors.
const unknownChecks = "whether its authors may change the objects that it refers to is unknown: this engine's " +
	"account may not read admission policies or namespaces (deploy/rbac/centre.yaml)"

// Unchecked returns why nothing proves that the authors of an object may change what it refers to, and what to do; ""
// if it is proved.
func (r *ProtectionReader) Unchecked(ctx context.Context, o author.Object) (string, error) {
	why, err := r.judge(ctx, o, checksAge)
	if err != nil || why == o.Shown {
		return why, err
	}
	return r.judge(ctx, o, differingAge)
}

// judge is Unchecked by checks that are at most this old.
func (r *ProtectionReader) judge(ctx context.Context, o author.Object, fresh time.Duration) (string, error) {
	p, err := r.Read(ctx, fresh)
	switch {
	case err != nil:
		return "", err
	case p.Unknown != "":
		return unknownChecks, nil
	case len(p.Authors) == 0:
		return author.Unchecked(o, nil, nil), nil
	}
	of, known, err := r.NamespaceLabels(ctx, o.Namespace, fresh)
	if err != nil || !known {
		return unknownChecks, err
	}
	return author.Unchecked(o, p.Authors, of), nil
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
