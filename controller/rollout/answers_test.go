package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
)

// A release on its way back writes to its workload many times before its object shows it: what asked for it is passed on once, and again only if
// nothing came of it.
func TestACommandIsPassedOnOnceForAWhile(t *testing.T) {
	t.Parallel()
	var all answers
	name, now := cache.ObjectName{Namespace: "a", Name: "b"}, time.Unix(0, 0)
	require.Zero(t, all.holds(name, "rollback", now), "nobody has passed it on")
	all.note(name, "rollback", now)
	require.Equal(t, 3*time.Second, all.holds(name, "rollback", now.Add(2*time.Second)))
	require.Zero(t, all.holds(name, "rollback", now.Add(answerHolds)), "nothing came of it")
	require.Zero(t, all.holds(name, "approve", now), "another command is another")
	require.Zero(t, all.holds(name, "", now), "what has no key is no command")
	all.forget(name)
	require.Zero(t, all.holds(name, "rollback", now), "an object of that name is another")
}
