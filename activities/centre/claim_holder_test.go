package centre_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
)

// A release that has left its split frozen has ended, but not given it back. A later one of the same name has: what
// brings the split back then is a copy. Temporal doesn't know that; the records do.
func TestClaimHolder_KnowsByRecords_WhetherSplitWasGivenBack(t *testing.T) {
	t.Parallel()
	home, temporal := newStore(t), newFakeTemporal()
	a := centre.NewActivities(home, temporal, nil, 0)
	temporal.set("rollout/default/shop/web", "now", "now", running)
	spec := strategy.Spec{Party: catalog.DefaultParty, Namespace: "shop", Name: "web",
		WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for i, ended := range []struct {
		run   string
		phase rollout.Phase
		// began is true if the release had claimed the workload; restores, if it deployed nothing.
		began, restores bool
	}{{"first", rollout.PhaseHealthy, true, false}, {"frozen", rollout.PhaseCancelled, true, false},
		{"finished", rollout.PhaseHealthy, true, false}, {"second", rollout.PhaseCancelled, true, false},
		{"undone", rollout.PhaseRolledBack, true, false}, {"third", rollout.PhaseCancelled, true, false},
		{"restoring", rollout.PhaseRolledBack, false, true}, {"last", rollout.PhaseCancelled, true, false},
		{"neverBegan", rollout.PhaseRolledBack, false, false}} {
		stable := ""
		if ended.began {
			stable = "web-1"
		}
		record, err := store.NewRolloutRecord(machine.Request{Spec: spec, Revision: int64(i + 1),
			RollBackFrozen: ended.restores, CreatedAt: at.Add(time.Duration(i) * time.Minute)})
		require.NoError(t, err)
		record.Name = fmt.Sprintf("shop-web-%d", i)
		record.Spec.CreatedAt = instant.MicroOf(at.Add(time.Duration(i) * time.Minute))
		require.NoError(t, home.CreateRecord(testContext(t), record))
		require.NoError(t, home.CompleteRollout(testContext(t), record.Name, rollout.Status{Party: catalog.DefaultParty,
			Namespace: "shop", Name: "web", Phase: ended.phase, CreatedAt: at, StableRevision: stable,
			Workflow: &audit.WorkflowRef{RunID: ended.run}}, 0))
	}
	for _, c := range []struct {
		reason, claim string
		ended         bool
	}{
		{"it gave everything back itself", "first", true},
		{"the next one did", "frozen", true},
		{"the next one did before it was rolled back", "second", true},
		{"the next one only restored it", "third", true},
		{"the next one was rolled back before it began", "last", false},
		{"it has no record, as one that was killed", "killed", false},
	} {
		answer, err := a.ClaimHolder(testContext(t),
			workload.ClaimHolderRequest{Claim: "rollout/default/shop/web@" + c.claim})
		require.NoError(t, err, c.reason)
		require.True(t, answer.Dead, c.reason)
		require.Equal(t, c.ended, answer.Ended, c.reason)
	}
}
