package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

// A release that is rolling back writes to its workload many times before its object shows it: the command that caused
// it is sent once, and again only if it had no effect.
func TestCommandIsNotResent_WithinResendAfter(t *testing.T) {
	t.Parallel()
	var all sentCommands
	name, now := cache.ObjectName{Namespace: "a", Name: "b"}, time.Unix(0, 0)
	require.Zero(t, all.recentlySent(name, "rollback", now), "it was not sent")
	all.note(name, "rollback", now)
	require.Equal(t, 3*time.Second, all.recentlySent(name, "rollback", now.Add(2*time.Second)))
	require.Zero(t, all.recentlySent(name, "rollback", now.Add(resendAfter)), "it had no effect")
	require.Zero(t, all.recentlySent(name, "approve", now), "another command")
	require.Zero(t, all.recentlySent(name, "", now), "no key, no command")
	all.forget(name)
	require.Zero(t, all.recentlySent(name, "rollback", now), "a recreated object is a different one")
}
