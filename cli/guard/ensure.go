package guard

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Ensure installs or updates the guard with its defaults, for an engine that connects to the cluster with this config.
// It keeps the identities, kinds and namespaces of an existing installation and adds the engine's identity. It returns
// a message about what it did. Parts that refer to Rollouts are left out, and done is false, until the cluster has the
// Rollout definition. With gate false, the gate is left out. The error is failure.Refused if Kruise Rollouts also runs
// in the cluster and would release the same workloads.
func Ensure(ctx context.Context, config *rest.Config, gate bool) (message string, done bool, err error) {
	c, err := connectTo(ctx, config)
	if err != nil {
		return "", false, err
	}
	if c.policies.Mutating == "" && c.policies.Validating == "" {
		return fmt.Sprintf("no guard installed: this cluster (%s) does not serve admission policies", c.version), true,
			nil
	}
	wanted, me, err := c.guardOptions(ctx)
	if err != nil {
		return "", false, err
	}
	wanted.NoGate = !gate
	if err := c.checkNoKruise(ctx, wanted); err != nil {
		return "", false, err
	}
	return "the guard is installed; changes by this engine are allowed: " + me, c.hasRollouts || !gate,
		c.applyAll(ctx, wanted)
}

// currentUser returns the user name of this process in the cluster.
func (c *cluster) currentUser(ctx context.Context) (string, error) {
	review, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}
