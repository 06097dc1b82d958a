package guard

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Ensure installs the guard with its defaults, or brings it up to date, for an engine that connects to the cluster as config says. It keeps
// the identities, kinds and namespaces of an installation that is there, adds the engine's identity, and says what it found or did. What
// refers to Rollouts is left out, and done is false, while the cluster doesn't know them. Without gate, the gate is left out. It fails with
// failure.Refused while something else releases what Rollouts name.
func Ensure(ctx context.Context, config *rest.Config, gate bool) (said string, done bool, err error) {
	c, err := connectTo(ctx, config)
	if err != nil {
		return "", false, err
	}
	if c.serves.Mutating == "" && c.serves.Validating == "" {
		return fmt.Sprintf("this cluster (%s) serves no admission policies: nothing is guarded", c.version), true, nil
	}
	wanted, me, err := c.wanted(ctx)
	if err != nil {
		return "", false, err
	}
	wanted.NoGate = !gate
	if err := c.alone(ctx, wanted); err != nil {
		return "", false, err
	}
	return "the guard is installed; edits by this engine pass: " + me, c.rollouts || !gate, c.put(ctx, wanted)
}

// me is who this process is for the cluster.
func (c *cluster) me(ctx context.Context) (string, error) {
	review, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}
