package guard

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/release/guard"
)

// Ensure installs the guard with its defaults, or brings it up to date, for an engine that connects to the cluster as config says. It keeps
// the identities, kinds and namespaces of an installation that is there, adds the engine's identity, and says what it found or did.
func Ensure(ctx context.Context, config *rest.Config) (string, error) {
	c, err := connectTo(config)
	if err != nil {
		return "", err
	}
	if c.serves.Mutating == "" && c.serves.Validating == "" {
		return fmt.Sprintf("this cluster (%s) serves no admission policies: nothing is guarded", c.version), nil
	}
	review, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	me := review.Status.UserInfo.Username
	found, err := c.Guards(ctx, c.serves, guard.DefaultName)
	if err != nil {
		return "", err
	}
	wanted := guard.Options{Identities: guard.DefaultIdentities()}
	for _, i := range guard.Find(found) {
		wanted = i.Options()
	}
	if !slices.Contains(wanted.Identities, me) {
		wanted.Identities = append(wanted.Identities, me)
	}
	return "the guard is installed; edits by this engine pass: " + me, c.put(ctx, wanted)
}
