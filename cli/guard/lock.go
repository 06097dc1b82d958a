package guard

import (
	"context"
	"slices"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/guard"
)

// checkLock reports whether the installation has the lock before it is installed again. The error is failure.Refused if
// the lock is wanted where it would hold nothing.
func (c *cluster) checkLock(ctx context.Context, wanted guard.Options) (locked bool, err error) {
	if wanted.Lock && c.policies.Validating == "" {
		return false, failure.New(failure.Refused, "cannot lock the guard: this cluster (%s) does not serve "+
			"validating admission policies. Use Kubernetes 1.30 or newer, or leave --lock out", c.version)
	}
	found, err := c.Guards(ctx, c.policies, wanted.Name)
	if err != nil {
		return false, explain("install", err)
	}
	return slices.ContainsFunc(guard.Find(found), guard.Installed.Locked), nil
}

// printUnlocked says that an installation without --lock has removed the lock.
func printUnlocked(a *app.App, wasLocked bool, wanted guard.Options) {
	if wasLocked && !wanted.Lock {
		a.Printf(a.Out, "The lock was removed: users who may edit workloads can get past the gate. To keep it, "+
			"install with --lock\n")
	}
}

// lockState says whether an installation has the lock.
func lockState(i guard.Installed) string {
	if i.Locked() {
		return "yes: repair, deletion and size 0 need the permission " + guard.Override
	}
	return "no: users who may edit workloads can get past the gate (slipway guard install --lock)"
}
