package plan

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/revision"
)

func at(seconds int) *time.Time {
	moment := time.Date(2026, 7, 1, 10, 0, seconds, 0, time.FixedZone("CST", 8*3600))
	return &moment
}

func size(n int32) *int32 { return &n }

// sampleTask returns a task of four waves: a stop, a start, a restart together with a start that failed, and a stop
// that was skipped.
func sampleTask() (Task, Snapshot) {
	status := func(kind, name string, changed bool) WorkloadStatus {
		return WorkloadStatus{Party: "default", Namespace: "shop", Kind: kind, Name: name, State: ItemSucceeded,
			Changed: changed}
	}
	order, db := status("Deployment", "order", true), status("StatefulSet", "db", true)
	order.Message, order.FromReplicas, order.ToReplicas, order.FromRevision,
		order.ToRevision = "stopped: no pod is left", size(3), size(0), "4", "4"
	db.Message, db.FromReplicas, db.ToReplicas = "stopped: no pod is left", size(2), size(0)
	cart := status("Deployment", "cart", true)
	cart.Message, cart.FromReplicas, cart.ToReplicas = "started: 1 of 1 pods are ready", size(0), size(1)
	agent := status("DaemonSet", "agent", true)
	agent.Message, agent.FromRevision, agent.ToRevision = "restarted", "a-1", "a-2"
	mail := status("Deployment", "mail", false)
	mail.State, mail.Message = ItemFailed, "ImagePullBackOff: manifest | unknown\nsee <registry>"
	task := Task{
		ID: "t-1", Plan: "shop", Comment: "release of the shop", Actor: "li", ExecuteReason: "release 2.4",
		State: TaskFailed, Reason: "service 444 failed: ImagePullBackOff",
		CreatedAt: *at(0), StartedAt: at(1), FinishedAt: at(59),
		Services: []ServiceStatus{
			{ServiceID: "222", Priority: 2, Deployment: Start, Method: Sequential, State: ItemSucceeded, Reason: "done",
				StartedAt: at(20), FinishedAt: at(30), Workloads: []WorkloadStatus{cart}},
			{ServiceID: "111", Priority: 3, Deployment: Stop, Method: Parallel, State: ItemSucceeded, Reason: "done",
				StartedAt: at(1), FinishedAt: at(20), Workloads: []WorkloadStatus{order, db}},
			{ServiceID: "333", Priority: 1, Deployment: Restart, State: ItemSucceeded, Reason: "done",
				StartedAt: at(30), FinishedAt: at(40), Workloads: []WorkloadStatus{agent}},
			{ServiceID: "444", Priority: 1, Deployment: Start, State: ItemFailed, Reason: "ImagePullBackOff",
				StartedAt: at(30), FinishedAt: at(59), Workloads: []WorkloadStatus{mail}},
			{ServiceID: "555", Priority: 0, Deployment: Stop, State: ItemSkipped,
				Reason: "never begun: the task is Failed"},
		},
		History: []audit.Entry{{At: *at(5), Actor: "ann", Via: "cli", Verb: VerbPause, Reason: "lunch",
			Outcome: audit.Accepted, Message: "pausing"}},
		Workflow: &audit.WorkflowRef{ID: "task/t-1", URL: "http://127.0.0.1:8233/x"},
	}
	snap := Snapshot{Task: "t-1", Plan: "shop", Services: testCatalogue(), Document: Document{Items: []Item{
		{ServiceID: "222", Priority: 2, Deployment: Start, ContainerExecMethod: Sequential, DeployLabel: "back"},
		{ServiceID: "111", Priority: 3, Deployment: Stop, ContainerExecMethod: Parallel},
		{ServiceID: "333", Priority: 1, Deployment: Restart},
		{ServiceID: "444", Priority: 1, Deployment: Start},
		{ServiceID: "555", Priority: 0, Deployment: Stop},
	}}}
	back := snap.Services["222"]
	back.Workloads[1].Labels = []string{"back"}
	return task, snap
}

const wantMarkdown = "# Report of task t-1\n" + `
**Failed**: service 444 failed: ImagePullBackOff

- Plan: shop
- Comment: release of the shop
- Executed by: li
- Reason given: release 2.4
- Created: 2026-07-01T02:00:00Z
- Time: 2026-07-01T02:00:01Z to 2026-07-01T02:00:59Z (58s)
- Services: 5: 3 Succeeded, 1 Failed, 1 Skipped
- Workflow: task/t-1 http://127.0.0.1:8233/x

## Wave 1 of 4 (priority 3)

### Service 111: STOP, Succeeded

- What happened: done
- Time: 2026-07-01T02:00:01Z to 2026-07-01T02:00:20Z (19s)
- Containers: PARALLEL

| Workload | State | Size | Revision | What was done |
|---|---|---|---|---|
| Deployment shop/order | Succeeded | 3 to 0 | 4 | stopped: no pod is left |
| StatefulSet shop/db | Succeeded | 2 to 0 | - | stopped: no pod is left |

## Wave 2 of 4 (priority 2)

### Service 222: START, Succeeded

- What happened: done
- Time: 2026-07-01T02:00:20Z to 2026-07-01T02:00:30Z (10s)
- Containers: SEQUENTIAL

| Workload | State | Size | Revision | What was done |
|---|---|---|---|---|
| Deployment shop/cart | Succeeded | 0 to 1 | - | started: 1 of 1 pods are ready |

## Wave 3 of 4 (priority 1)

### Service 333: RESTART, Succeeded

- What happened: done
- Time: 2026-07-01T02:00:30Z to 2026-07-01T02:00:40Z (10s)

| Workload | State | Size | Revision | What was done |
|---|---|---|---|---|
| DaemonSet shop/agent | Succeeded | - | a-1 to a-2 | restarted |

### Service 444: START, Failed

- What happened: ImagePullBackOff
- Time: 2026-07-01T02:00:30Z to 2026-07-01T02:00:59Z (29s)

| Workload | State | Size | Revision | What was done |
|---|---|---|---|---|
| Deployment shop/mail | Failed | - | - | ImagePullBackOff: manifest \| unknown see &lt;registry> |

## Wave 4 of 4 (priority 0)

### Service 555: STOP, Skipped

- What happened: never begun: the task is Failed
- Time: not begun

## Decisions

Actor names are self-reported.

| When | Who | Through | On | Verb | Outcome | Reason given | Answer |
|---|---|---|---|---|---|---|---|
| 2026-07-01T02:00:05Z | ann | cli | task | pause | accepted | lunch | pausing |

## Reverse plan

- START of service 444 on Deployment shop/mail is Failed and no change is on record: check it before you reverse it by hand.
- RESTART has no reverse: the workloads of service 333 have new pods of the same version.

Created and executed, this plan restores what the task changed:

` + "```yaml" + `
comment: reverse of task t-1 of plan shop
deployPlanItems:
  - serviceId: 222
    priority: 2
    deployment: RESTORE
    containerExecMethod: SEQUENTIAL
    deployLabel: back
    restoreTask: t-1
  - serviceId: 111
    priority: 1
    deployment: RESTORE
    containerExecMethod: PARALLEL
    restoreTask: t-1
` + "```\n"

func TestReport_AsMarkdown(t *testing.T) {
	t.Parallel()
	require.Equal(t, wantMarkdown, markdown(t, NewReport(sampleTask())))
}

func TestReport_AsJSON_ContainsUsableReversePlan(t *testing.T) {
	t.Parallel()
	task, snap := sampleTask()
	raw, err := json.Marshal(NewReport(task, snap))
	require.NoError(t, err)
	var flat map[string]any
	require.NoError(t, json.Unmarshal(raw, &flat))
	require.Equal(t, "t-1", flat["id"], "the task's own fields are at the top level")
	require.Len(t, flat["waves"], 4)
	reverse := flat["reverse"].(map[string]any)
	document, err := json.Marshal(reverse["document"])
	require.NoError(t, err)
	_, warnings, errs := Decode(document)
	require.NoError(t, errs.Err(), "the reverse plan of the JSON report can be sent unchanged")
	require.Empty(t, warnings)
	var back Report
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, NewReport(task, snap).Reverse, back.Reverse)
}

func TestReverse_ByOperationAndRecordedChanges(t *testing.T) {
	t.Parallel()
	sized := func(kind, name string, from, to int32) WorkloadStatus {
		return WorkloadStatus{Party: "default", Namespace: "shop", Kind: kind, Name: name, State: ItemSucceeded,
			Changed: from != to, Change: revision.Change{FromReplicas: size(from), ToReplicas: size(to)}}
	}
	deployed := sized("Deployment", "mail", 1, 1)
	deployed.Changed, deployed.Before, deployed.After = true, &revision.Revision{Template: "a"},
		&revision.Revision{Template: "b"}
	earlier := deployed
	earlier.Before, earlier.After = nil, nil
	restarted := sized("Deployment", "order", 1, 1)
	restarted.Changed = true
	one := func(id ServiceID) []Item {
		return []Item{{ServiceID: id, Deployment: Restore, Priority: 1, RestoreTask: "t-1"}}
	}
	nothing := "Nothing is to be reversed by a plan."
	for name, test := range map[string]struct {
		reason    string
		item      Item
		workloads []WorkloadStatus
		want      []Item
		notes     []string
	}{
		"Stop": {"the size is restored", Item{ServiceID: "111", Deployment: Stop},
			[]WorkloadStatus{sized("Deployment", "order", 3, 0)}, one("111"), nil},
		"Label": {
			"the item's label is kept, so that services that share a workload do not conflict",
			Item{ServiceID: "111", Deployment: Stop, DeployLabel: "blue , green"},
			[]WorkloadStatus{sized("Deployment", "order", 3, 0)},
			[]Item{{ServiceID: "111", Deployment: Restore, Priority: 1, RestoreTask: "t-1",
				DeployLabel: "blue , green"}}, nil,
		},
		"Grown": {"from some pods to more", Item{ServiceID: "111", Deployment: Start},
			[]WorkloadStatus{sized("Deployment", "order", 2, 3)}, one("111"), nil},
		"Upload": {"the record has the earlier template", Item{ServiceID: "444", Deployment: HTTPUploadDeploy},
			[]WorkloadStatus{deployed}, one("444"), nil},
		"Restored": {"a reverse can be reversed as well", Item{ServiceID: "444", Deployment: Restore},
			[]WorkloadStatus{deployed}, one("444"), nil},
		"NothingChanged": {"an unchanged workload is not restored", Item{ServiceID: "111", Deployment: Stop},
			[]WorkloadStatus{sized("Deployment", "order", 0, 0)}, nil, []string{nothing}},
		"Restart": {
			"a restart cannot be reversed", Item{ServiceID: "111", Deployment: Restart}, []WorkloadStatus{restarted},
			nil,
			[]string{"RESTART has no reverse: the workloads of service 111 have new pods of the same version.",
				nothing},
		},
		"EarlierRecord": {
			"a record of an earlier version lacks the template", Item{ServiceID: "444", Deployment: HTTPUploadDeploy},
			[]WorkloadStatus{earlier}, nil,
			[]string{"Deployment shop/mail of service 444: the record doesn't say which pod template it had before, " +
				"since an earlier version of Slipway wrote it: deploy the version that it had by hand.", nothing},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snap := Snapshot{Services: testCatalogue(), Document: Document{Items: []Item{test.item}}}
			task := Task{ID: "t-1", Plan: "shop", State: TaskSucceeded, Services: []ServiceStatus{
				{ServiceID: test.item.ServiceID, Deployment: test.item.Deployment, State: ItemSucceeded,
					Workloads: test.workloads},
			}}
			reverse := NewReport(task, snap).Reverse
			require.Equal(t, test.notes, reverse.Notes, test.reason)
			if test.want == nil {
				require.Nil(t, reverse.Document, test.reason)
				return
			}
			require.Equal(t, &Document{Comment: "reverse of task t-1 of plan shop", Items: test.want}, reverse.Document,
				test.reason)
		})
	}
}

// stopThenStart returns a task that stops a service and starts it again later.
func stopThenStart() Task {
	w := WorkloadStatus{Namespace: "shop", Kind: "Deployment", Name: "mail", State: ItemSucceeded, Changed: true}
	started, stopped := w, w
	started.FromReplicas, started.ToReplicas, stopped.FromReplicas, stopped.ToReplicas = size(0), size(3), size(2),
		size(0)
	return Task{ID: "t-1", Plan: "shop", State: TaskPaused, Services: []ServiceStatus{
		{ServiceID: "444", Priority: 1, Deployment: Start, Workloads: []WorkloadStatus{started}},
		{ServiceID: "444", Priority: 9, Deployment: Stop, Workloads: []WorkloadStatus{stopped}},
	}}
}

func TestReverse_NamesEachItem_WhenServiceOccursTwice(t *testing.T) {
	t.Parallel()
	reverse := NewReport(stopThenStart(), Snapshot{}).Reverse
	require.Equal(t, []Item{{ServiceID: "444", Priority: 2, Deployment: Restore, RestoreTask: "t-1", RestoreItem: 1},
		{ServiceID: "444", Priority: 1, Deployment: Restore, RestoreTask: "t-1", RestoreItem: 2}},
		reverse.Document.Items,
		"the last wave is reversed first, and each item names its original")
	require.Equal(t, []string{"The task is Paused: this covers what it has done so far.",
		"The plan can be executed once the task has ended."}, reverse.Notes)
}

func TestReport_OfPendingAndRunningTask(t *testing.T) {
	t.Parallel()
	text := markdown(t, NewReport(Task{ID: "t-1", State: TaskPending, Reason: "about to start"}, Snapshot{}))
	require.Contains(t, text, "No command was sent to the task.")
	require.Contains(t, text, "- The task is Pending: this covers what it has done so far.\n- Nothing is to be "+
		"reversed by a plan.\n")
	running := Task{ID: "t-1", State: TaskRunning, StartedAt: at(1), Services: []ServiceStatus{{
		ServiceID: "111", State: ItemRunning, Deployment: Stop, StartedAt: at(1),
		Workloads: []WorkloadStatus{{Party: "alice", Namespace: "shop", Kind: "Deployment", Name: "order",
			State: ItemRunning, Change: revision.Change{ToReplicas: size(0), FromRevision: "1"}}},
	}}}
	text = markdown(t, NewReport(running, Snapshot{Services: map[ServiceID]catalog.Service{}}))
	require.Contains(t, text, "- Time: since 2026-07-01T02:00:01Z\n")
	require.Contains(t, text, "| alice: Deployment shop/order | Running | to 0 | from 1 | - |")
}

func markdown(t require.TestingT, r Report) string {
	text, err := r.Markdown()
	require.NoError(t, err)
	return text
}

// rolledOut returns a task whose only service was released by a rollout that was rolled back.
func rolledOut() (Task, RolloutReport) {
	view := RolloutStatus{Party: "default", Namespace: "shop", Name: "mail", Record: "rollout-mail-1",
		Phase: rolloutRolledBack, Steps: 2}
	task := Task{ID: "t-1", State: TaskFailed, StartedAt: at(1), FinishedAt: at(9), Services: []ServiceStatus{{
		ServiceID: "444", Deployment: HTTPUploadDeploy, State: ItemFailed, RollOut: true, StartedAt: at(1),
		FinishedAt: at(9),
		Workloads: []WorkloadStatus{{Namespace: "shop", Kind: "Deployment", Name: "mail", State: ItemFailed,
			Rollout: &view}}}},
		History: []audit.Entry{{At: *at(7), Actor: "ann", Via: "cli", Verb: VerbPause, Outcome: audit.Accepted,
			Message: "pausing"}}}
	history := []audit.Entry{{At: *at(5), Actor: "li", Via: "http", Verb: "approve", Step: 1, Reason: "fine so far",
		Outcome: audit.Accepted, Message: "approved"},
		{At: *at(8), Actor: "wang", Via: "cli", Verb: "rollback", Reason: "errors", Outcome: audit.Accepted,
			Message: "going back"}}
	return task, RolloutReport{RolloutStatus: view, ServiceID: "444", Replicas: size(3), History: history}
}

func TestReport_ListsDecisionsOnRollouts(t *testing.T) {
	t.Parallel()
	task, one := rolledOut()
	text := markdown(t, NewReport(task, Snapshot{}, one))
	require.Contains(t, text,
		`| 2026-07-01T02:00:05Z | li | http | rollout shop/mail | approve of step 1 | accepted | fine so far | approved |
| 2026-07-01T02:00:07Z | ann | cli | task | pause | accepted | - | pausing |
| 2026-07-01T02:00:08Z | wang | cli | rollout shop/mail | rollback | accepted | errors | going back |
`, "decisions on the task and on its rollouts are listed together, in the order of time")
	require.Contains(t, text, "- Released by: rollout shop/mail, RolledBack (record rollout-mail-1)\n",
		"the rollout is named")
	require.Contains(t, text, "| Deployment shop/mail | Failed | 3 |",
		"a rollout keeps the size, which its record contains")

	task.History, one.History = nil, nil
	require.Contains(t, markdown(t, NewReport(task, Snapshot{}, one)),
		"No command was sent to the task or to its rollouts.\n\n## Reverse plan")
	one.Unknown = "its record is not kept any more"
	require.Contains(t, markdown(t, NewReport(task, Snapshot{}, one)), "No command was sent to the task.\n\n"+
		"The decisions on rollout shop/mail are not known: its record is not kept any more.\n\n## Reverse plan",
		"without its record, the decisions on a rollout are not known")
}

// A workload whose rollout was rolled back or never began needs no check: it is unchanged.
func TestReverse_NotesUncertainRollouts(t *testing.T) {
	t.Parallel()
	uncertain := "HTTP_UPLOAD_DEPLOY of service 444 on Deployment shop/mail is %s and no change is on record: check " +
		"it before you reverse it by hand."
	nothing := "Nothing is to be reversed by a plan."
	for name, test := range map[string]struct {
		reason  string
		state   ItemState
		rollout *RolloutStatus
		notes   []string
	}{
		"RolledBack": {"all pods have the stable version", ItemFailed, &RolloutStatus{Phase: rolloutRolledBack},
			[]string{nothing}},
		"NeverBegun": {"a rollout that was refused has written nothing", ItemFailed, nil, []string{nothing}},
		"Terminated": {"a rollout whose workflow was terminated may have left changes", ItemFailed,
			&RolloutStatus{Phase: "Failed"}, []string{fmt.Sprintf(uncertain, ItemFailed), nothing}},
		"Running": {"its end is not known yet", ItemRunning, &RolloutStatus{Phase: "Progressing"},
			[]string{fmt.Sprintf(uncertain, ItemRunning), nothing}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task, _ := rolledOut()
			task.Services[0].Workloads[0].State, task.Services[0].Workloads[0].Rollout = test.state, test.rollout
			require.Equal(t, test.notes, NewReport(task, Snapshot{}).Reverse.Notes, test.reason)
		})
	}
}

func TestShownDuration_MatchesShownSeconds(t *testing.T) {
	t.Parallel()
	moment := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339Nano, text)
		require.NoError(t, err)
		return parsed
	}
	for name, test := range map[string]struct {
		reason, from, to string
		want             time.Duration
	}{
		"AsShown": {"22:59:43 to 22:59:44 is one second, although less time passed", "2026-07-01T22:59:43.9Z",
			"2026-07-01T22:59:44.1Z", time.Second},
		"Within": {"within one shown second it is 0", "2026-07-01T22:59:43.1Z", "2026-07-01T22:59:43.9Z", 0},
		"Long": {"9.6 s that are shown as 10 s apart", "2026-07-01T22:59:40.5Z", "2026-07-01T22:59:50.1Z",
			10 * time.Second},
		"Backwards": {"two clocks may disagree", "2026-07-01T22:59:43Z", "2026-07-01T22:59:40Z", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, ShownDuration(moment(test.from), moment(test.to)), test.reason)
		})
	}
}
