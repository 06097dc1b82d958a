package plan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/revision"
)

const labelRule = `[A-Za-z0-9]([-_.A-Za-z0-9]{0,8}[A-Za-z0-9])?`

// anyID draws legal IDs, including those that YAML would parse as another type.
func anyID() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9]([-A-Za-z0-9]{0,8}[A-Za-z0-9])?(\.[A-Za-z0-9]{1,4})?`),
		rapid.SampledFrom([]string{"0111", "111", "1e3", "0x1F", "0o17", "1.5", "null", "true", "yes", "no", "NaN",
			"2016-07-01", "0", "99999999999999999999", "0b1", "on", "y"}),
	)
}

func anyItem(t *rapid.T, operations []Operation) Item {
	item := Item{
		ServiceID:           ServiceID(anyID().Draw(t, "id")),
		Priority:            rapid.OneOf(rapid.Int64Range(-2, 2), rapid.Int64()).Draw(t, "priority"),
		Deployment:          rapid.SampledFrom(operations).Draw(t, "deployment"),
		ContainerExecMethod: rapid.SampledFrom([]Method{"", Parallel, Sequential}).Draw(t, "method"),
		DeployLabel:         rapid.StringMatching(`(`+labelRule+`( ?, ?`+labelRule+`){0,2})?`).Draw(t, "labels"),
	}
	switch item.Deployment {
	case HTTPUploadDeploy:
		item.HTTPSrcURI = rapid.StringMatching(
			`https?://[a-z]{1,8}(\.[a-z]{2,3})?(:[1-9][0-9]{1,3})?/[-a-zA-Z0-9/?#=]{0,20}`).Draw(t, "uri")
	case Restore:
		item.RestoreTask = rapid.StringMatching(`[a-z0-9]{1,8}-[0-9]{14}-[a-z2-7]{5}`).Draw(t, "task")
		item.RestoreItem = rapid.Int64Range(0, maxItems).Draw(t, "item of the task")
	case CompileDeploy:
		item.CompileRepoPath = rapid.StringMatching(`(https?://|ssh://git@|git@)[a-z]{1,8}:22/[a-z]{1,8}\.git`).Draw(t,
			"repository")
		item.CompileRepoBranch = rapid.StringMatching(`[a-z]{1,5}(/[a-z0-9#]{1,5})?`).Draw(t, "branch")
	}
	return item
}

// anyDocument draws valid plans without repeated services.
func anyDocument(t *rapid.T, operations []Operation) Document {
	d := Document{Comment: rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \t\r\n#:"'|>\-x]{0,12}`)).Draw(t,
		"comment")}
	taken := map[string]bool{}
	for range rapid.IntRange(1, 12).Draw(t, "items") {
		item := anyItem(t, operations)
		place := fmt.Sprint(item.ServiceID, "/", item.Priority)
		if !taken[place] {
			taken[place] = true
			d.Items = append(d.Items, item)
		}
	}
	return d
}

func TestEncode_RoundTripsThroughDecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := anyDocument(t, operations)
		text, err := Encode(d)
		require.NoError(t, err)
		again, _, errs := Decode(text)
		require.NoError(t, errs.Err(), "as YAML:\n%s", text)
		require.Equal(t, d, again, "as YAML:\n%s", text)
		twice, err := Encode(again)
		require.NoError(t, err)
		require.Equal(t, string(text), string(twice), "the encoding is unique")

		raw, err := json.Marshal(d)
		require.NoError(t, err)
		again, _, errs = Decode(raw)
		require.NoError(t, errs.Err(), "as JSON: %s", raw)
		require.Equal(t, d, again, "as JSON: %s", raw)
		var object Document
		require.NoError(t, json.Unmarshal(raw, &object))
		require.Equal(t, d, object, "as a Kubernetes object: %s", raw)
	})
}

func TestWaves_PartitionItemsByPriority(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := anyDocument(t, operations)
		var all []int
		waves := d.Waves()
		for n, wave := range waves {
			require.NotEmpty(t, wave.Items, "no wave is empty")
			require.True(t, slices.IsSorted(wave.Items), "within a wave the document's order holds")
			if n > 0 {
				require.Greater(t, waves[n-1].Priority, wave.Priority, "larger priorities go first")
			}
			for _, i := range wave.Items {
				require.Equal(t, wave.Priority, d.Items[i].Priority)
			}
			all = append(all, wave.Items...)
		}
		slices.Sort(all)
		every := make([]int, len(d.Items))
		for i := range every {
			every[i] = i
		}
		require.Equal(t, every, all, "every item is in exactly one wave")
	})
}

// anyService draws valid catalogue entries with few labels, so that workloads share them.
func anyService(t *rapid.T, name string) catalog.Service {
	var s catalog.Service
	for n := range rapid.IntRange(1, 4).Draw(t, "workloads") {
		s.Workloads = append(s.Workloads, catalog.Workload{
			Namespace: "shop", WorkloadRef: catalog.WorkloadRef{APIVersion: catalog.APIVersion,
				Kind: "Deployment", Name: fmt.Sprintf("w%d-%s", n, name)},
			Labels: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(t,
				"labels"),
		})
	}
	return s
}

// anyTask draws a plan and the outcome of its execution.
func anyTask(t *rapid.T) (Task, Snapshot) {
	d := anyDocument(t, []Operation{Start, Stop, Restart})
	snap := Snapshot{Task: "t-1", Plan: "shop", Document: d, Services: map[ServiceID]catalog.Service{}}
	task := Task{ID: "t-1", Plan: "shop", State: rapid.SampledFrom(
		[]TaskState{TaskSucceeded, TaskFailed, TaskRunning}).Draw(t, "state")}
	for i := range d.Items {
		item := &snap.Document.Items[i]
		item.DeployLabel = rapid.SampledFrom([]string{"", "a", "b,c"}).Draw(t, "label")
		if _, known := snap.Services[item.ServiceID]; !known {
			snap.Services[item.ServiceID] = anyService(t, fmt.Sprint(i))
		}
		status := ServiceStatus{ServiceID: item.ServiceID, Priority: item.Priority, Deployment: item.Deployment,
			Method: item.ContainerExecMethod}
		for _, w := range snap.Selected(i) {
			status.Workloads = append(status.Workloads, WorkloadStatus{
				Party: w.PartyOrDefault(), Namespace: w.Namespace, Kind: w.WorkloadRef.Kind, Name: w.WorkloadRef.Name,
				State: rapid.SampledFrom([]ItemState{ItemPending, ItemRunning, ItemSucceeded, ItemFailed,
					ItemSkipped}).Draw(t, "workload"),
				Changed: rapid.Bool().Draw(t, "changed"),
				Change:  revision.Change{FromReplicas: size(3), ToReplicas: size(0)},
			})
		}
		task.Services = append(task.Services, status)
	}
	return task, snap
}

func TestReverse_IsValidPlan_ForRandomTasks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		task, snap := anyTask(t)
		report := NewReport(task, snap)
		require.NotEmpty(t, markdown(t, report))
		if report.Reverse.Document == nil {
			require.NotEmpty(t, report.Reverse.Notes, "without a plan the notes give a reason")
			return
		}
		reverse := *report.Reverse.Document
		text, err := Encode(reverse)
		require.NoError(t, err)
		again, warnings, errs := Decode(text)
		require.NoError(t, errs.Err(), "it is a valid plan:\n%s", text)
		require.Empty(t, warnings)
		require.Equal(t, reverse, again)
		require.Empty(t, Resolve(reverse, snap.Services), "it can be done with the catalogue that the task ran with")
		requireReverses(t, task, snap, reverse)
	})
}

// requireReverses checks that the plan reverses all changes, item by item in the opposite order, and that the notes
// name what it leaves out.
func requireReverses(t *rapid.T, task Task, snap Snapshot, reverse Document) {
	waves := snap.Document.Waves()
	restorations, errs := ResolveRestorations(reverse, snap.Services, map[string]Recorded{task.ID: {Task: task}})
	require.Empty(t, errs)
	reversed := map[int]bool{}
	for n, item := range reverse.Items {
		if n > 0 {
			require.GreaterOrEqual(t, reverse.Items[n-1].Priority, item.Priority,
				"items are listed in the order of their release")
		}
		// The first wave has the number 1 and so the smallest priority: it is reversed last.
		wave := waves[item.Priority-1]
		at := slices.IndexFunc(wave.Items, func(i int) bool { return task.Services[i].ServiceID == item.ServiceID })
		require.GreaterOrEqual(t, at, 0, "item %d of the reverse plan reverses an item of wave %d", n+1, item.Priority)
		i := wave.Items[at]
		reversed[i] = true
		require.Equal(t, Restore, item.Deployment)
		require.Equal(t, snap.Document.Items[i].ContainerExecMethod, item.ContainerExecMethod, "the method is kept")
		var wanted []string
		for _, w := range task.Services[i].Workloads {
			if w.Changed {
				wanted = append(wanted, w.Name)
			}
		}
		var restored []string
		for _, r := range restorations[n+1] {
			restored = append(restored, r.Name)
			require.Equal(t, int32(3), *r.Replicas)
			require.Equal(t, int32(0), *r.SizeAfter)
		}
		require.ElementsMatch(t, wanted, restored, "item %d of the reverse plan restores exactly the changed workloads",
			n+1)
	}
	for i, status := range task.Services {
		changed := slices.ContainsFunc(status.Workloads, func(w WorkloadStatus) bool { return w.Changed })
		if changed && !reversed[i] {
			require.Equal(t, Restart, status.Deployment, "nothing but restarts are left out")
			require.True(t, slices.ContainsFunc(NewReport(task, snap).Reverse.Notes, func(note string) bool {
				return strings.Contains(note, string(status.ServiceID))
			}), "the notes name service %s, which is left out", status.ServiceID)
		}
	}
	require.Equal(t, task.ID, reverse.ReversedTask())
}

// lineBreak matches the line ends of YAML.
var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")

func FuzzDecodePlan(f *testing.F) {
	for _, seed := range []string{
		exampleDocument, oneItem("deployment: STOP", "priority: -1"),
		`{"comment":"\ud83d\ude00","deployPlanItems":[{"serviceId":111,"deployment":"START"}]}`,
		oneItem("deployment: COMPILE_DEPLOY", "compileRepoPath: git@a:b", "compileRepoBranch: master"),
		"deployPlanItems: &a [*a]", "? [a]\n: b\n", "{", "\x00",
		"deployPlanItems:\n- {serviceId: 1, deployment: STOP}\n- {serviceId: 1, deployment: STOP}\n", "a: 1\n   ...\n",
		"\t", "<<: {<<: {}}", "%YAML 1.1\n---\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		begin := time.Now()
		d, _, errs := Decode(data)
		require.Less(t, time.Since(begin), 10*time.Second)
		if len(errs) > 0 {
			for _, one := range errs {
				require.Positive(t, one.Line, "every error has its line: %v", one)
				require.LessOrEqual(t, one.Line, 1+len(lineBreak.FindAll(data, -1)), "and that line exists: %v", one)
				require.NotEmpty(t, one.Reason)
			}
			return
		}
		_, errs = d.Validate()
		require.Empty(t, errs, "Validate accepts what Decode accepts")
		text, err := Encode(d)
		require.NoError(t, err)
		again, _, errs := Decode(text)
		require.NoError(t, errs.Err(), "an encoded plan can be decoded:\n%s", text)
		require.Equal(t, d, again)
	})
}
