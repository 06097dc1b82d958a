package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	served := &kuscia.Served{Digest: "old"}
	started := metav1.NewTime(noon)
	missing := []string{"Service/a"}
	type state struct {
		op                  *kuscia.Operation
		served              *kuscia.Served
		missing             []string
		unguarded, deleting bool
		// alice's phase; bob is always whole.
		phase kuscia.Phase
	}
	cases := map[string]struct {
		reason string
		state  state
		do     serving.Do
		kind   string
		says   string
		wait   time.Time
	}{
		"new": {reason: "the finalizer comes before anything that would have to be cleaned up", state: state{unguarded: true}, do: serving.DoGuard,
			says: "it must not go before what its parties run"},
		"guarded": {reason: "nothing has been begun with", do: serving.DoStart, kind: serving.KindCreate, says: "no version of it has come to run yet"},
		"guard lost": {reason: "somebody has taken the finalizer off: it comes back, also while an operation runs", do: serving.DoGuard,
			state: state{unguarded: true, served: served, op: &kuscia.Operation{Generation: 2}}, says: "it must not go before what its parties run"},
		"first version failed": {reason: "there is no version to go back to: it is created with the changed spec", do: serving.DoStart, kind: serving.KindCreate,
			state: state{op: &kuscia.Operation{Generation: 1, Done: true, Reason: serving.ReasonPartyFailed}}, says: "no version of it has come to run yet"},
		"changed": {reason: "a version that served is updated", do: serving.DoStart, kind: serving.KindUpdate,
			state: state{served: served, op: &kuscia.Operation{Generation: 1, Done: true}}, says: "generation 2 of its spec is new"},
		"changed while an update runs": {reason: "the newer operation asks the older one to give way", do: serving.DoStart, kind: serving.KindUpdate,
			state: state{served: served, op: &kuscia.Operation{Generation: 1}}, says: "generation 2 of its spec is new"},
		"under way": {reason: "what is under way is not begun again", state: state{served: served, op: &kuscia.Operation{Generation: 2}},
			says: "everything that was asked has been begun with"},
		"rolled back": {reason: "what failed is not tried again with the same spec", says: "everything that was asked has been begun with",
			state: state{served: served, op: &kuscia.Operation{Generation: 2, Done: true, Reason: serving.ReasonUpdateRolledBack}}},
		"refused": {reason: "an AppImage or a party may have come, or the policy may have been changed, which is no change of the spec", do: serving.DoStart,
			kind: serving.KindCreate, says: "what it was refused for may have been put right",
			state: state{op: &kuscia.Operation{Kind: serving.KindRefuse, Generation: 2, Done: true, Reason: serving.ReasonValidateFailed}}},
		"refused change": {reason: "what serves is updated as soon as the change can be run", do: serving.DoStart,
			kind: serving.KindUpdate, says: "what it was refused for may have been put right",
			state: state{served: served, op: &kuscia.Operation{Kind: serving.KindRecreate, Generation: 2, Done: true, Reason: serving.ReasonValidateFailed}}},
		"refused and missing": {reason: "what served is put back all the same", do: serving.DoStart, kind: serving.KindRecreate,
			says:  "somebody has deleted Service/a of party bob",
			state: state{served: served, missing: missing, op: &kuscia.Operation{Kind: serving.KindRefuse, Generation: 2, Done: true, Reason: serving.ReasonValidateFailed}}},
		"deleted by somebody": {reason: "what a party runs is put back", do: serving.DoStart, kind: serving.KindRecreate, says: "somebody has deleted Service/a of party bob",
			state: state{served: served, op: &kuscia.Operation{Generation: 2, Done: true}, missing: missing}},
		"missing while it runs": {reason: "the operation that runs puts it there", says: "everything that was asked has been begun with",
			state: state{served: served, op: &kuscia.Operation{Generation: 2}, missing: missing}},
		"missing and never served": {reason: "there is no version to put back", says: "everything that was asked has been begun with",
			state: state{op: &kuscia.Operation{Generation: 2, Done: true}, missing: missing}},
		"missing again": {reason: "a recreation that failed is not begun again at once", do: serving.DoStart, kind: serving.KindRecreate,
			says: "somebody has deleted Service/a of party bob", wait: noon.Add(5 * time.Minute),
			state: state{served: served, missing: missing,
				op: &kuscia.Operation{Kind: serving.KindRecreate, Generation: 2, Done: true, Reason: serving.ReasonPartyFailed, StartedAt: &started}}},
		"missing after a rolled-back update": {reason: "a recreation that went well is no reason to wait", do: serving.DoStart, kind: serving.KindRecreate,
			says: "somebody has deleted Service/a of party bob", state: state{served: served, missing: missing,
				op: &kuscia.Operation{Kind: serving.KindRecreate, Generation: 2, Done: true, Reason: serving.ReasonUpdateRolledBack, StartedAt: &started}}},
		"whole after all": {reason: "a creation that failed and came whole later is a version to go back to", do: serving.DoStart, kind: serving.KindCreate,
			says: "every party has come to run it after all: now it is a version to go back to", wait: noon.Add(5 * time.Minute), state: state{phase: kuscia.PhaseAvailable,
				op: &kuscia.Operation{Kind: serving.KindCreate, Generation: 2, Done: true, Reason: serving.ReasonPartyFailed, StartedAt: &started}}},
		"failed still": {reason: "what failed is not tried again with the same spec", says: "everything that was asked has been begun with", state: state{phase: kuscia.PhaseFailed,
			op: &kuscia.Operation{Kind: serving.KindCreate, Generation: 2, Done: true, Reason: serving.ReasonPartyFailed, StartedAt: &started}}},
		"deleted": {reason: "a deletion comes before everything else", do: serving.DoStart, kind: serving.KindDelete, says: "it has been deleted",
			state: state{deleting: true, served: served, op: &kuscia.Operation{Kind: serving.KindUpdate, Generation: 1}, missing: missing}},
		"deleted before anything": {reason: "an operation may have been started whose word has not arrived", do: serving.DoStart, kind: serving.KindDelete,
			says: "it has been deleted", state: state{deleting: true}},
		"being deleted": {reason: "one deletion is enough", state: state{deleting: true, op: &kuscia.Operation{Kind: serving.KindDelete, Generation: 1}},
			says: "its deletion is under way"},
		"let go": {reason: "without a finalizer of ours nothing of ours is left", state: state{deleting: true, unguarded: true},
			says: "it is being deleted, and nothing of it is left"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kd := pair(tc.state.op, whole, whole)
			kd.Generation, kd.Status.Served = 2, tc.state.served
			if !tc.state.unguarded {
				kd.Finalizers = []string{"somebody/else", kuscia.Finalizer}
			}
			if tc.state.deleting {
				kd.DeletionTimestamp = &started
			}
			kd.Status.PartyDeploymentStatuses["alice"]["s1-host"] = changed(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Phase = tc.state.phase })
			kd.Status.PartyDeploymentStatuses["bob"]["s1"] = changed(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Missing, e.Phase = tc.state.missing, kuscia.PhaseAvailable })
			d := serving.Decide(kd)
			require.Equal(t, serving.NextAction{Do: tc.do, Kind: tc.kind, Reason: tc.says, NotBefore: tc.wait}, d, tc.reason)
		})
	}
}
