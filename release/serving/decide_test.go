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
		// phase is that of alice; bob is always available.
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
		"new": {reason: "the finalizer is added before anything is created", state: state{unguarded: true},
			do:   serving.DoAddFinalizer,
			says: "its finalizer is missing: it must stay until its parties' objects are deleted"},
		"guarded": {reason: "no operation has started", do: serving.DoStart, kind: serving.KindCreate,
			says: "no version has run in all parties yet"},
		"guard lost": {reason: "a removed finalizer is added again, also while an operation runs",
			do:    serving.DoAddFinalizer,
			state: state{unguarded: true, served: served, op: &kuscia.Operation{Generation: 2}},
			says:  "its finalizer is missing: it must stay until its parties' objects are deleted"},
		"first version failed": {reason: "there is no previous version: it is created with the changed spec",
			do: serving.DoStart, kind: serving.KindCreate,
			state: state{op: &kuscia.Operation{Generation: 1, Done: true, Reason: serving.ReasonPartyFailed}},
			says:  "no version has run in all parties yet"},
		"changed": {reason: "a version that served is updated", do: serving.DoStart, kind: serving.KindUpdate,
			state: state{served: served, op: &kuscia.Operation{Generation: 1, Done: true}},
			says:  "generation 2 of its spec is new"},
		"changed while an update runs": {reason: "the newer operation asks the older one to give way",
			do: serving.DoStart, kind: serving.KindUpdate,
			state: state{served: served, op: &kuscia.Operation{Generation: 1}},
			says:  "generation 2 of its spec is new"},
		"under way": {reason: "a running operation is not started again",
			state: state{served: served, op: &kuscia.Operation{Generation: 2}},
			says:  "an operation has started for the current spec"},
		"rolled back": {reason: "a failed spec is not retried", says: "an operation has started for the current spec",
			state: state{served: served, op: &kuscia.Operation{Generation: 2, Done: true,
				Reason: serving.ReasonUpdateRolledBack}}},
		"refused": {reason: "an AppImage or a party may have been added, or the policy changed, without a change of " +
			"the spec", do: serving.DoStart,
			kind: serving.KindCreate, says: "the reason for the refusal may no longer apply",
			state: state{op: &kuscia.Operation{Kind: serving.KindRefuse, Generation: 2, Done: true,
				Reason: serving.ReasonValidateFailed}}},
		"refused change": {reason: "the serving is updated as soon as the change can be run", do: serving.DoStart,
			kind: serving.KindUpdate, says: "the reason for the refusal may no longer apply",
			state: state{served: served, op: &kuscia.Operation{Kind: serving.KindRecreate, Generation: 2, Done: true,
				Reason: serving.ReasonValidateFailed}}},
		"refused and missing": {reason: "the served version is restored nevertheless", do: serving.DoStart,
			kind: serving.KindRecreate,
			says: "another client has deleted Service/a of party bob",
			state: state{served: served, missing: missing,
				op: &kuscia.Operation{Kind: serving.KindRefuse, Generation: 2, Done: true,
					Reason: serving.ReasonValidateFailed}}},
		"object deleted": {reason: "a deleted object is restored", do: serving.DoStart, kind: serving.KindRecreate,
			says:  "another client has deleted Service/a of party bob",
			state: state{served: served, op: &kuscia.Operation{Generation: 2, Done: true}, missing: missing}},
		"missing while it runs": {reason: "the running operation restores it",
			says:  "an operation has started for the current spec",
			state: state{served: served, op: &kuscia.Operation{Generation: 2}, missing: missing}},
		"missing and never served": {reason: "there is no version to restore",
			says:  "an operation has started for the current spec",
			state: state{op: &kuscia.Operation{Generation: 2, Done: true}, missing: missing}},
		"missing again": {reason: "a failed recreation is not repeated at once", do: serving.DoStart,
			kind: serving.KindRecreate,
			says: "another client has deleted Service/a of party bob", wait: noon.Add(5 * time.Minute),
			state: state{served: served, missing: missing,
				op: &kuscia.Operation{Kind: serving.KindRecreate, Generation: 2, Done: true,
					Reason: serving.ReasonPartyFailed, StartedAt: &started}}},
		"missing after a rolled-back update": {reason: "a successful recreation causes no delay", do: serving.DoStart,
			kind: serving.KindRecreate,
			says: "another client has deleted Service/a of party bob", state: state{served: served, missing: missing,
				op: &kuscia.Operation{Kind: serving.KindRecreate, Generation: 2, Done: true,
					Reason: serving.ReasonUpdateRolledBack, StartedAt: &started}}},
		"complete after all": {reason: "a failed creation that became complete later can be rolled back to",
			do: serving.DoStart, kind: serving.KindCreate,
			says: "every party runs the version after all: it becomes the version to roll back to",
			wait: noon.Add(5 * time.Minute), state: state{phase: kuscia.PhaseAvailable,
				op: &kuscia.Operation{Kind: serving.KindCreate, Generation: 2, Done: true,
					Reason: serving.ReasonPartyFailed, StartedAt: &started}}},
		"failed still": {reason: "a failed spec is not retried", says: "an operation has started for the current spec",
			state: state{phase: kuscia.PhaseFailed,
				op: &kuscia.Operation{Kind: serving.KindCreate, Generation: 2, Done: true,
					Reason: serving.ReasonPartyFailed, StartedAt: &started}}},
		"deleted": {reason: "a deletion has priority", do: serving.DoStart, kind: serving.KindDelete,
			says: "it has been deleted",
			state: state{deleting: true, served: served, op: &kuscia.Operation{Kind: serving.KindUpdate, Generation: 1},
				missing: missing}},
		"deleted before anything": {reason: "an operation may have started that is not in the status yet",
			do: serving.DoStart, kind: serving.KindDelete,
			says: "it has been deleted", state: state{deleting: true}},
		"being deleted": {reason: "one deletion is enough",
			state: state{deleting: true, op: &kuscia.Operation{Kind: serving.KindDelete, Generation: 1}},
			says:  "its deletion is in progress"},
		"let go": {reason: "without the finalizer nothing is left to delete",
			state: state{deleting: true, unguarded: true},
			says:  "it is being deleted, and its finalizer is already removed"},
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
			kd.Status.PartyDeploymentStatuses["alice"]["s1-host"] = changedFields(*whole,
				func(e *kuscia.PartyDeploymentStatus) { e.Phase = tc.state.phase })
			kd.Status.PartyDeploymentStatuses["bob"]["s1"] = changedFields(*whole,
				func(e *kuscia.PartyDeploymentStatus) { e.Missing, e.Phase = tc.state.missing, kuscia.PhaseAvailable })
			d := serving.Decide(kd)
			require.Equal(t, serving.NextAction{Do: tc.do, Kind: tc.kind, Reason: tc.says, NotBefore: tc.wait}, d,
				tc.reason)
		})
	}
}
