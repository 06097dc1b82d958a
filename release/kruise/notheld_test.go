package kruise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/kruise/v1beta1"
)

// Since when a template is what it is, and by whom, is read from the workload's managed fields, in whole seconds.
func TestFindNotHeld(t *testing.T) {
	t.Parallel()
	since := noon.Add(time.Minute) // the Rollout is younger than its workload
	wrote := func(manager string, after time.Duration) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: &metav1.Time{Time: since.Add(after)},
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{}}}}`)}
	}
	labelled := wrote("slipway-gate", time.Minute)
	labelled.FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)
	for _, c := range []struct {
		reason string
		known  bool
		fields []metav1.ManagedFieldsEntry
		by     string
		is     bool
	}{
		{"a change after the Rollout's creation", false, []metav1.ManagedFieldsEntry{wrote("kubectl", time.Second),
			labelled}, "kubectl", true},
		{"one in the same second may have come after it", false, []metav1.ManagedFieldsEntry{wrote("kubectl", 0)},
			"kubectl", true},
		{"the workload's own creation is no change", false, []metav1.ManagedFieldsEntry{wrote("kubectl",
			-time.Minute)}, "", false},
		{"an older one", false, []metav1.ManagedFieldsEntry{wrote("kubectl", -time.Second)}, "", false},
		{"the API server names no client", false, nil, "", false},
		{"of a template that served before, any client's", true, []metav1.ManagedFieldsEntry{wrote("kubectl",
			-time.Second)}, "kubectl", true},
		{"also one that left no trace, because it only removed fields", true, nil, "", true},
		{"not that of a release", true, []metav1.ManagedFieldsEntry{wrote("kubectl", 0), wrote("slipway", time.Second)},
			"", false},
		{"but one after it", true, []metav1.ManagedFieldsEntry{wrote("slipway", 0), wrote("kubectl", time.Second)},
			"kubectl", true},
	} {
		r, w := object(first), deployment(nil)
		r.CreationTimestamp, w.CreationTimestamp = metav1.NewTime(since), metav1.NewTime(noon)
		if c.known {
			r.Status.Slipway = &v1beta1.EngineStatus{Template: "old"}
		}
		w.ManagedFields = c.fields
		change := FindNotHeld(r, w)
		require.Equal(t, c.is, change != nil, c.reason)
		if c.is {
			require.Equal(t, c.by, change.Manager, c.reason)
		}
	}
}

// No client takes the change for a release that has succeeded, until the next release.
func TestReported_ShowsNoSuccess_UntilNextRelease(t *testing.T) {
	t.Parallel()
	succeeded := object(func(r *v1beta1.Rollout) {
		all := conditionList{now: noon}
		all.set(v1beta1.ConditionProgressing, false, v1beta1.ReasonCompleted, "released")
		all.set(v1beta1.ConditionSucceeded, true, "", "released")
		r.Status.Conditions = all.list
	})
	moving := deployment(func(w *Workload) {
		unheld(w)
		w.Updated = 1
	})
	next := Snapshot{Object: succeeded, Now: noon}.Reported(moving, "nothing held it")
	require.Equal(t, DoWriteStatus, next.Kind)
	succeeded.Status = *next.Status
	requireNotHeld(t, succeeded.Status)
	require.Equal(t, "nothing held it. 1 of 4 pods have it", succeeded.Status.Message)
	require.Equal(t, "new", succeeded.Status.Slipway.Template, "it is reported once")

	moved := deployment(unheld)
	next = Decide(Snapshot{Object: succeeded, Workload: moved, Now: noon})
	require.Equal(t, DoWriteStatus, next.Kind)
	requireNotHeld(t, *next.Status)
	require.Equal(t, "nothing held it. 4 of 4 pods have it", next.Status.Message)

	announced := AnnouncedStatus(succeeded, deployment(held), "", noon)
	require.Empty(t, conditionOf(announced.Conditions, v1beta1.ConditionNotHeld).Type)

	quiet := Snapshot{Object: object(nil), Now: noon}.Reported(moving, "")
	require.Empty(t, conditionOf(quiet.Status.Conditions, v1beta1.ConditionNotHeld).Type)
	require.Equal(t, "new", quiet.Status.Slipway.Template)
}

func requireNotHeld(t *testing.T, s v1beta1.RolloutStatus) {
	t.Helper()
	for _, c := range []struct{ kind, status string }{{v1beta1.ConditionProgressing, "False"},
		{v1beta1.ConditionSucceeded, "False"}, {v1beta1.ConditionNotHeld, "True"}} {
		shown := conditionOf(s.Conditions, c.kind)
		require.Equal(t, c.status, shown.Status, c.kind)
		require.Equal(t, reasonNotHeld, shown.Reason, c.kind)
		require.Equal(t, "nothing held it", shown.Message, c.kind)
	}
}
