package kube

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/guard"
)

// Protection is what the API server does to edits by clients other than engines, as this process sees it.
type Protection struct {
	guard.Protection
	// Served is true when the cluster has mutating policies.
	Served bool
	// Unknown is the reason why this process cannot read the policies, "" when it can.
	Unknown string
	// User is the user name of this process; "" if it is unknown.
	User string
	// Authors are the checks of the authors of Rollouts and TrafficRoutings.
	Authors []author.Check
}

// ProtectionReader reads the Protection of a cluster. Its callers share what was read for a while. A nil reader knows
// of no guard.
type ProtectionReader struct {
	cluster Cluster
	answers recent.Cache
}

// NewProtectionReader returns a reader for a cluster.
func NewProtectionReader(cluster Cluster) *ProtectionReader {
	return &ProtectionReader{cluster: cluster}
}

// protectionTimeout bounds one read.
const protectionTimeout = 10 * time.Second

// Read returns the protection as it was at most fresh ago.
func (r *ProtectionReader) Read(ctx context.Context, fresh time.Duration) (Protection, error) {
	if r == nil {
		return Protection{}, nil
	}
	return recent.Get(ctx, &r.answers, "protection", fresh, r.read)
}

func (r *ProtectionReader) read(ctx context.Context) (p Protection, err error) {
	ctx, cancel := context.WithTimeout(ctx, protectionTimeout)
	defer cancel()
	versions, err := FindPolicyVersions(r.cluster.Client.Discovery())
	if err != nil {
		return p, err
	}
	objects, err := r.cluster.Guards(ctx, versions, "")
	if p.Unknown, err = r.unreadable(ctx, versions, err); err != nil {
		return p, err
	}
	p.Served, p.Installed = versions.Mutating != "", guard.Find(objects)
	// only workers of the centre may read webhooks: a party's cluster has no Rollouts
	p.Webhooks, err = r.cluster.Gates(ctx, "")
	if err != nil && !IsAny(err, Forbidden, Refused) {
		return p, err
	}
	p.Authors = guard.AuthorChecks(objects, p.Webhooks)
	review, err := r.cluster.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil {
		p.User = review.Status.UserInfo.Username
	}
	return p, nil
}

// Guards returns the guards and the webhooks of gates, and the reason if this process cannot read the policies.
func (r *ProtectionReader) Guards(ctx context.Context, fresh time.Duration) (guard.Protection, string, error) {
	p, err := r.Read(ctx, fresh)
	return p.Protection, p.Unknown, err
}

// namespaceLabels are the labels of a namespace; known is false if this process may not read them, or if there is no
// such namespace: missing.
type namespaceLabels struct {
	of             map[string]string
	known, missing bool
}

// NamespaceLabels returns the labels of a namespace as they were at most fresh ago; known is false if this process may
// not read them.
func (r *ProtectionReader) NamespaceLabels(ctx context.Context, name string, fresh time.Duration) (
	of map[string]string, known bool, err error) {
	found, err := r.namespace(ctx, name, fresh)
	return found.of, found.known, err
}

// MissesNamespace reports whether the cluster had no namespace of this name, at most fresh ago. It is false if this
// process may not read it, or if the cluster does not answer.
func (r *ProtectionReader) MissesNamespace(ctx context.Context, name string, fresh time.Duration) bool {
	found, err := r.namespace(ctx, name, fresh)
	return err == nil && found.missing
}

func (r *ProtectionReader) namespace(ctx context.Context, name string, fresh time.Duration) (namespaceLabels, error) {
	return recent.Get(ctx, &r.answers, "namespace "+name, fresh,
		func(ctx context.Context) (namespaceLabels, error) { return r.readLabels(ctx, name) })
}

func (r *ProtectionReader) readLabels(ctx context.Context, name string) (namespaceLabels, error) {
	ctx, cancel := context.WithTimeout(ctx, protectionTimeout)
	defer cancel()
	namespace, err := r.cluster.Get(ctx, Ref{Resource: namespacesResource, Name: name})
	switch {
	case err == nil:
		return namespaceLabels{of: namespace.GetLabels(), known: true}, nil
	case apierrors.IsNotFound(err):
		return namespaceLabels{missing: true}, nil
	case IsAny(err, Forbidden, Refused, Missing):
		return namespaceLabels{}, nil
	}
	return namespaceLabels{}, err
}

var namespacesResource = corev1.SchemeGroupVersion.WithResource("namespaces")

// Unlisted returns why the API server would undo what this process writes in a namespace, "" for one that is not known:
// a guard, or the webhook of a gate, does not know its account. It returns "" if none does, or if this process may not
// read them. The guards were read at most fresh ago, the labels of the namespace at most labels ago.
func (r *ProtectionReader) Unlisted(ctx context.Context, namespace string, fresh, labels time.Duration) (string,
	error) {
	if r == nil {
		return "", nil
	}
	var of map[string]string
	var err error
	if namespace != "" {
		of, _, err = r.NamespaceLabels(ctx, namespace, labels)
	}
	if err != nil || of[guard.LabelGuard] == guard.NamespaceOff {
		return "", err
	}
	p, err := r.Read(ctx, fresh)
	if err != nil || p.User == "" {
		return "", err
	}
	return guard.UnlistedReason(p.User, p.Unlisted(p.User, of)), nil
}

// unreadable is the reason why this process cannot read policies, "" if it can; err is the error of the read.
func (r *ProtectionReader) unreadable(ctx context.Context, versions PolicyVersions, err error) (string, error) {
	if err == nil {
		return "", nil
	}
	if !IsAny(err, Forbidden, Refused) {
		return "", err
	}
	var needs []Permission
	for _, resource := range versions.Resources() {
		needs = append(needs, Needs(resource, metav1.NamespaceAll, "list")...)
	}
	lacking, asked := r.cluster.Permissions().Lacking(ctx, needs)
	if lacking == "" && asked == nil {
		lacking = Text(err)
	}
	return lacking, asked
}
