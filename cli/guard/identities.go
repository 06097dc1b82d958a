package guard

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/phrase"
)

// List are the users whose edits pass, as a command was started with them.
type List struct {
	Identities []string
	// With is the command that writes the list.
	With string
}

// me returns the user name of this client.
func (c *cluster) me(ctx context.Context) (string, error) {
	review, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// installedGuard returns the installation of a name as far as this client may read it; the zero value for none.
func (c *cluster) installedGuard(ctx context.Context, name string) (guard.Installed, error) {
	found, err := c.Guards(ctx, c.policies, name)
	if err != nil && !apierrors.IsForbidden(err) {
		return guard.Installed{}, err
	}
	for _, i := range guard.Find(found) {
		return i, nil
	}
	return guard.Installed{}, nil
}

// sign returns options with a list of identities in place of those of before, and who writes it. If that is the same
// writer of the same list, the time remains.
func (c *cluster) sign(ctx context.Context, o guard.Options, list List, before []string,
	written guard.Written) (guard.Options, error) {
	me, err := c.me(ctx)
	if err != nil {
		return o, err
	}
	o.Identities, o.Written = list.Identities, guard.Written{By: me, With: list.With, At: phrase.Time(time.Now())}
	return o.Since(before, written), nil
}

// droppedText says that identities are no longer allowed, and what to do about it.
func droppedText(dropped []string) string {
	return fmt.Sprintf("no longer on the list of users whose edits pass: %s. If an engine or a party's worker on this "+
		"cluster has this account, name it with --engine-identity", strings.Join(dropped, ", "))
}

// printIdentities prints which users' edits pass, who wrote that, and what does not hold because of it.
func printIdentities(a *app.App, identities []string, written guard.Written) {
	a.Printf(a.Out, "allowed      %s\n", render.OneLine(strings.Join(identities, ", ")))
	if written != (guard.Written{}) {
		a.Printf(a.Out, "written      by %s with %s, %s\n", render.OneLine(written.By), render.OneLine(written.With),
			render.OneLine(written.At))
	}
	for _, person := range guard.People(identities) {
		a.Printf(a.Out, "WARNING      %[1]s is no service account: nothing that %[1]s edits is held, restored or refused. "+
			"Give the engine an account of its own\n", render.OneLine(person))
	}
}

// EnsureOptions say what Ensure installs.
type EnsureOptions struct {
	List
	// Gate includes the gate.
	Gate bool
}

// Ensure installs or updates the guard with its defaults, for an engine that connects to the cluster with this config.
// It keeps the kinds and namespaces of an existing installation, and none of its identities. It returns a message about
// what it did. Parts that refer to Rollouts are left out, and done is false, until the cluster has the Rollout
// definition. The error is failure.Refused if Kruise Rollouts also runs in the cluster and would release the same
// workloads.
func Ensure(ctx context.Context, config *rest.Config, o EnsureOptions) (message string, done bool, err error) {
	c, err := connectTo(ctx, config)
	if err != nil {
		return "", false, err
	}
	if c.policies.Mutating == "" && c.policies.Validating == "" {
		return fmt.Sprintf("no guard installed: this cluster (%s) does not serve admission policies", c.version), true,
			nil
	}
	before, err := c.installedGuard(ctx, guard.DefaultName)
	if err != nil {
		return "", false, err
	}
	wanted := before.Options()
	wanted.Name, wanted.NoGate = guard.DefaultName, !o.Gate
	if wanted, err = c.sign(ctx, wanted, o.List, before.Identities, before.Written); err != nil {
		return "", false, err
	}
	if err := c.checkNoKruise(ctx, wanted); err != nil {
		return "", false, err
	}
	message = "the guard is installed; changes by these users are allowed: " + strings.Join(wanted.Identities, ", ")
	if dropped := wanted.Dropped(before.Identities); len(dropped) > 0 {
		message += "; " + droppedText(dropped)
	}
	return message, c.hasRollouts || !o.Gate, c.applyAll(ctx, wanted)
}
