package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/revision"
)

func TestTask_Restorations_CombineItemsOfService(t *testing.T) {
	t.Parallel()
	all, notes := stopThenStart().Restorations("444", 0)
	require.Empty(t, notes)
	require.Equal(t, []Restoration{{Task: "t-1", Party: "default", Namespace: "shop", Kind: "Deployment", Name: "mail",
		Replicas: size(2), SizeAfter: size(3)}}, all,
		"all items of a service together restore the state before the first one")
	one, _ := stopThenStart().Restorations("444", 1)
	require.Equal(t, size(0), one[0].Replicas, "one item restores the state before it")

	half := Task{ID: "t-1", Services: []ServiceStatus{{ServiceID: "444", Deployment: HTTPUploadDeploy,
		State: ItemFailed, Workloads: []WorkloadStatus{
			{Kind: "Deployment", Name: "mail", State: ItemFailed, Changed: true,
				Change: revision.Change{Before: &revision.Revision{Template: "a"},
					After: &revision.Revision{Template: "b"}}},
			{Kind: "Deployment", Name: "cart", State: ItemFailed},
		}}}}
	all, _ = half.Restorations("444", 0)
	require.Len(t, all, 1, "a failed item may have changed something; an unchanged workload is not restored")
	require.Equal(t, &revision.Revision{Template: "a"}, all[0].Template)
}

func TestResolveRestorations(t *testing.T) {
	t.Parallel()
	missing := stopThenStart()
	missing.Services[0].Workloads[0].Name, missing.Services[1].Workloads[0].Name = "removed", "removed"
	still := Task{ID: "t-2", Services: []ServiceStatus{{ServiceID: "444", Deployment: Stop}}}
	records := map[string]Recorded{"t-1": {Task: stopThenStart()}, "t-2": {Task: still},
		"t-3": {Problem: "task t-3 is not over: wait, or stop it first"}, "t-4": {Task: missing}}
	for name, test := range map[string]struct {
		reason, wants, field string
		item                 Item
	}{
		"Fine": {"a service that the task changed", "", "", Item{ServiceID: "444", RestoreTask: "t-1"}},
		"NoRecord": {"its record is not complete yet", "task t-3 is not over", "restoreTask",
			Item{ServiceID: "444", RestoreTask: "t-3"}},
		"NoService": {"the task does not have the service", "task t-1 has no service 111: it has 444", "restoreTask",
			Item{ServiceID: "111", RestoreTask: "t-1"}},
		"NoItem": {"the item does not exist", "task t-1 has no item 3: it has 2", "restoreItem",
			Item{ServiceID: "444", RestoreTask: "t-1", RestoreItem: 3}},
		"Nothing": {"nothing was changed", "has changed nothing of service 444", "restoreTask",
			Item{ServiceID: "444", RestoreTask: "t-2"}},
		"NotListed": {"the workload is no longer in the catalogue",
			"Deployment shop/removed, which task t-4 changed, is no longer among the workloads", "serviceId",
			Item{ServiceID: "444", RestoreTask: "t-4"}},
		"Unselected": {"the label does not select it", "selects nothing that task t-1 changed", "deployLabel",
			Item{ServiceID: "444", RestoreTask: "t-1", DeployLabel: "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.item.Deployment = Restore
			resolved, errs := ResolveRestorations(Document{Items: []Item{test.item}}, testCatalogue(), records)
			if test.wants == "" {
				require.Empty(t, errs, test.reason)
				require.Len(t, resolved[1], 1, test.reason)
				return
			}
			require.Len(t, errs, 1, test.reason)
			require.True(t, strings.HasSuffix(errs[0].Field, test.field), errs[0].Field)
			require.Contains(t, errs[0].Reason, test.wants, test.reason)
			require.Empty(t, resolved, test.reason)
		})
	}
}

func TestRerun(t *testing.T) {
	t.Parallel()
	task, snap := sampleTask()
	again, err := Rerun(task, snap)
	require.NoError(t, err)
	require.Equal(t, snap.Document.Items[3:], again.Items, "the failed and the skipped items, unchanged")
	require.Equal(t, snap.Document.Comment, again.Comment)
	for _, state := range []TaskState{TaskSucceeded, TaskRunning, TaskPaused, TaskInterrupted} {
		task.State = state
		_, err := Rerun(task, snap)
		require.True(t, failure.Is(err, failure.Conflict), "%s: %v", state, err)
	}
}

// The package store keeps the package that a RESTORE removes as well as the one that it restores, since the reverse of
// the RESTORE needs it.
func TestTask_Packages_IncludesBothSidesOfRestore(t *testing.T) {
	t.Parallel()
	task := Task{Services: []ServiceStatus{{ServiceID: "444", Deployment: Restore,
		Workloads: []WorkloadStatus{{Change: revision.Change{FromPackage: "b", ToPackage: "a"}},
			{Change: revision.Change{ToPackage: "a"}}}}}}
	require.Equal(t, []string{"a", "b"}, task.Packages())
}

func TestReverseName_IsStableAndUniquePerTask(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^shop-reverse-[a-z2-7]{10}$`, ReverseName("shop", "shop-1"))
	first, again := ReverseName("shop", "shop-1"), ReverseName("shop", "shop-1")
	require.Equal(t, first, again, "a task has one reverse plan")
	require.NotEqual(t, ReverseName("shop", "shop-1"), ReverseName("shop", "shop-2"))
	require.Len(t, ReverseName(strings.Repeat("x", 63), "x"), 63, "it fits the limit")
}
