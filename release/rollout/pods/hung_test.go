package pods

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// counted is how many pods of a revision there are, and how many of them are ready.
type counted struct{ total, ready int32 }

// hangs is a workload of this size whose revisions r1, r2, … have these pods. The newest one is of its template, and
// its unready pods cannot pull their image.
func hangs(reportsCounts bool, size int32, revisions ...counted) Observed {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	seen := Observed{Snapshot: workload.Snapshot{Replicas: size, PodsSeen: true, Now: now,
		Settings: map[string]json.RawMessage{}}, UID: "uid"}
	for i, c := range revisions {
		name := fmt.Sprintf("r%d", i+1)
		r := Revision{Name: name, Hash: name, Template: "t" + name, Number: int64(i + 1),
			Images: map[string]string{"app": fmt.Sprintf("x:%d", i+1)}}
		if reportsCounts {
			r.HasCounts, r.Desired, r.Total, r.Ready, r.Available = true, c.total, c.total, c.ready, c.ready
		}
		for n := range c.total {
			p := workload.Pod{Name: fmt.Sprintf("%s-%d", name, n), Revision: name, Ordinal: -1, Ready: n < c.ready,
				Available: n < c.ready, Since: now.Add(-time.Minute)}
			if !p.Ready {
				p.Reason = "ImagePullBackOff"
			}
			seen.Pods = append(seen.Pods, p)
		}
		seen.Revisions, seen.Template, seen.Updated = append(seen.Revisions, r), r.Template, c.total
		seen.Total, seen.Ready = seen.Total+c.total, seen.Ready+c.ready
	}
	return seen
}

func rollingLimits(unavailable, surge int) map[string]json.RawMessage {
	return map[string]json.RawMessage{pathStrategy: rolling(int32(unavailable), int32(surge))}
}

// Which revision is the stable one while the workload's own update hangs, by kind.
func TestHung_NamesStableRevision_ByKind(t *testing.T) {
	t.Parallel()
	ordered := partitioned{nested: true, ordinals: true}
	clones, nodes := partitioned{share: true}, byDeletion{}
	for _, c := range []struct {
		reason string
		tech   Technique
		counts bool
		size   int32
		pods   []counted
		change func(*Observed)
		want   string
	}{
		{"ReplicaSets: the older one serves in the size less maxUnavailable", deploymentPartition{}, true, 4,
			[]counted{{3, 3}, {2, 0}}, nil, "r1"},
		{"the newest such one, if there are several", deploymentPartition{}, true, 4,
			[]counted{{3, 3}, {3, 3}, {1, 0}}, nil, "r2"},
		{"an older update that hung is not it", deploymentPartition{}, true, 4, []counted{{3, 3}, {1, 0}, {1, 0}}, nil,
			"r1"},
		{"too few of the older one: the one with most ready pods, which is the update's own", deploymentPartition{},
			true, 4, []counted{{1, 1}, {4, 2}}, nil, "r2"},
		{"as many ready pods of both: the older one", deploymentPartition{}, true, 4, []counted{{2, 2}, {3, 2}}, nil,
			"r1"},
		{"none is ready: none can be named", deploymentPartition{}, true, 4, []counted{{3, 0}, {2, 0}}, nil, "?"},
		{"none is ready: the one that a record calls Healthy", deploymentPartition{}, true, 4,
			[]counted{{0, 0}, {3, 0}, {2, 0}},
			func(o *Observed) { o.Served = &strategy.Revision{Template: "tr1"} }, "r1"},
		{"whose revision is still kept", deploymentPartition{}, true, 4, []counted{{3, 0}, {2, 0}},
			func(o *Observed) { o.Served = &strategy.Revision{Template: "t-pruned", Name: "pruned"} }, "?"},
		{"Recreate takes out all pods: the one before the update", deploymentPartition{}, true, 2,
			[]counted{{0, 0}, {0, 0}, {2, 0}}, func(o *Observed) {
				o.Settings[pathStrategy] = json.RawMessage(`{"type":"Recreate"}`)
				o.Progress.Reason = "ReplicaSetUpdated"
			}, "r2"},
		{"a Deployment whose update has ended is no update that hangs", deploymentPartition{}, true, 2,
			[]counted{{0, 0}, {2, 0}}, func(o *Observed) {
				o.Settings[pathStrategy] = json.RawMessage(`{"type":"Recreate"}`)
				o.Progress.Reason = "NewReplicaSetAvailable"
			}, ""},
		{"a new Deployment that never served begins from what it has", deploymentPartition{}, true, 4,
			[]counted{{4, 0}}, func(o *Observed) { o.Progress.Reason = "ReplicaSetUpdated" }, ""},
		{"an update that goes on is waited for", deploymentPartition{}, true, 4, []counted{{3, 3}, {2, 0}},
			func(o *Observed) {
				for i := range o.Pods {
					o.Pods[i].Reason = "ContainerCreating"
				}
			}, ""},
		{"past its progress deadline it hangs, whatever its pods say", deploymentPartition{}, true, 4,
			[]counted{{3, 3}, {2, 0}}, func(o *Observed) {
				for i := range o.Pods {
					o.Pods[i].Reason = "NotReady"
				}
				o.Progress = ProgressOf{reasonTimedOut, `ReplicaSet "web-1" has timed out progressing.`}
			}, "r1"},
		{"a pod that runs between two crashes is in trouble, too", deploymentPartition{}, true, 4,
			[]counted{{3, 3}, {1, 0}}, func(o *Observed) { o.Pods[3].Reason, o.Pods[3].Restarts = "NotReady", 2 }, "r1"},
		{"a pod of the stable version in trouble is not its", deploymentPartition{}, true, 4,
			[]counted{{4, 3}, {1, 1}}, nil, ""},
		{"its controller has not seen the last change", deploymentPartition{}, true, 4, []counted{{3, 3}, {2, 0}},
			func(o *Observed) { o.Generation = 2 }, ""},

		{"StatefulSet: currentRevision serves", ordered, false, 4, []counted{{3, 3}, {1, 0}},
			func(o *Observed) { o.Current, o.Update = "r1", "r2" }, "r1"},
		{"its only pod is of the update: the current revision, from before it", ordered, false, 1,
			[]counted{{0, 0}, {0, 0}, {1, 0}}, func(o *Observed) { o.Current, o.Update = "r1", "r3" }, "r1"},
		{"whose update has ended, and whose pod broke later", ordered, false, 1, []counted{{0, 0}, {1, 0}},
			func(o *Observed) { o.Current, o.Update = "r2", "r2" }, ""},
		{"a partition of its own keeps pods back: no trouble", ordered, false, 4, []counted{{3, 3}, {1, 1}},
			func(o *Observed) { o.Current, o.Update = "r1", "r2" }, ""},
		{"a pod that is unready without a reason is waited for", ordered, false, 4, []counted{{3, 3}, {1, 0}},
			func(o *Observed) { o.Pods[3].Reason = "NotReady" }, ""},
		{"but not beyond the deadline of a kind that has none", ordered, false, 4, []counted{{3, 3}, {1, 0}},
			func(o *Observed) {
				o.Pods[3].Reason, o.Pods[3].Since = "NotReady", o.Now.Add(-11*time.Minute)
			}, "r1"},

		{"DaemonSet: by the pods of its ControllerRevisions", nodes, false, 4, []counted{{3, 3}, {1, 0}}, nil, "r1"},
		{"one node, with only the update's pod: begins from that, as ever", nodes, false, 1, []counted{{0, 0}, {1, 0}},
			nil, ""},
		{"CloneSet: 20 % may be out by default", clones, false, 5, []counted{{4, 4}, {1, 0}}, nil, "r1"},
		{"with a maxUnavailable of its own", clones, false, 5, []counted{{3, 3}, {1, 1}, {1, 0}}, func(o *Observed) {
			o.Settings[pathUpdateStrategy] = json.RawMessage(`{"maxUnavailable":2}`)
		}, "r1"},
	} {
		seen := hangs(c.counts, c.size, c.pods...)
		if c.counts {
			seen.Settings = rollingLimits(1, 1)
		}
		if c.change != nil {
			c.change(&seen)
		}
		u, hung := Hung(c.tech, seen)
		got := u.Stable.Name
		if u.Unknown {
			got = "?"
		}
		require.Equal(t, c.want, got, c.reason)
		require.Equal(t, c.want != "", hung, c.reason)
		if hung {
			require.NotEmpty(t, u.Trouble, c.reason)
		}
	}
}

func overRequest(kind string) rollout.BeginRequest {
	return rollout.BeginRequest{Strategy: strategy.Strategy{Style: strategy.StylePartition},
		Unsettled: rollout.UnsettledReport, Subject: rollout.Subject{Name: "web", Claim: "rollout/default/shop/web@run",
			DeadlineSeconds: 60, Workload: catalog.Workload{Namespace: "shop",
				WorkloadRef: catalog.WorkloadRef{APIVersion: catalog.APIVersion, Kind: kind, Name: "web"}}}}
}

// The first write takes the claim, sets the stable template and keeps the workload's own controller from moving pods.
func TestBegin_HoldsWorkloadWithStableTemplate_WhenOwnUpdateHangs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason   string
		kind     string
		tech     Technique
		counts   bool
		settings string
		surge    int32
	}{
		{"a Deployment is paused with the pods that it has", "Deployment", deploymentPartition{}, true, pathPaused, 1},
		{"for a blue-green as well", "Deployment", deploymentBlueGreen{}, true, pathPaused, 1},
		{"a StatefulSet keeps every ordinal", "StatefulSet", partitioned{nested: true, ordinals: true}, false,
			pathUpdateStrategy, 0},
		{"a DaemonSet replaces pods by deletion only", "DaemonSet", byDeletion{}, false, pathUpdateStrategy, 0},
		{"an extra workload runs beside it: its own controller makes it whole", "Deployment", deploymentExtra{}, true,
			"", 0},
	} {
		seen := hangs(c.counts, 4, counted{3, 3}, counted{2, 0})
		if c.counts {
			seen.Settings = rollingLimits(1, 1)
		} else {
			seen.Pods = seen.Pods[:4]
		}
		d := Begin(c.tech, overRequest(c.kind), seen)
		require.Equal(t, workload.ActWrite, d.Action, "%s: %s", c.reason, d.Reason)
		require.Equal(t, "r1", d.Begun.Stable, c.reason)
		require.Equal(t, "tr1", d.Begun.StableTemplate, c.reason)
		require.Equal(t, &workload.Template{Revision: "r1"}, d.Write.Template, c.reason)
		require.True(t, d.Write.OnlyIfUnchanged, c.reason)
		saved, err := rollout.ParseSaved(d.Write.Annotations[workload.AnnotationRollout])
		require.NoError(t, err)
		require.Equal(t, "r2", saved.Over, c.reason)
		require.Equal(t, int64(3), saved.StableNumber, "%s: its controller numbers it anew", c.reason)
		fields := map[string]string{}
		for _, s := range d.Write.Settings {
			fields[s.Path] = string(s.Value)
		}
		if c.settings == "" {
			require.Empty(t, fields, c.reason)
			continue
		}
		require.Contains(t, fields, c.settings, c.reason)
		if c.surge > 0 {
			require.JSONEq(t, fmt.Sprintf(`{"template":"","replicas":0,"surge":%d}`, c.surge),
				d.Write.Annotations[rollout.AnnotationSettled], "%s: with a smaller surge it would be scaled down",
				c.reason)
		}
	}
}

// Without the pods it is not known whether an update hangs: they are read before it is reported, and while it is waited
// for, only from time to time.
func TestBegin_ReadsPods_BeforeItReportsOwnUpdate(t *testing.T) {
	t.Parallel()
	seen := hangs(true, 4, counted{3, 3}, counted{2, 0})
	seen.Settings, seen.Pods, seen.PodsSeen = rollingLimits(1, 1), nil, false
	req := overRequest("Deployment")
	require.Equal(t, workload.ActReadPods, Begin(deploymentPartition{}, req, seen).Action)
	req.Unsettled = ""
	require.Equal(t, workload.ActReadPods, Begin(deploymentPartition{}, req, seen).Action)
	req.Unsettled = rollout.UnsettledWait
	require.Equal(t, workload.ActWait, Begin(deploymentPartition{}, req, seen).Action)
	settled := hangs(true, 4, counted{4, 4})
	settled.Settings, settled.Pods, settled.PodsSeen = rollingLimits(1, 1), nil, false
	require.Equal(t, workload.ActWrite, Begin(deploymentPartition{}, req, settled).Action,
		"a settled workload needs no look at its pods")
}

func TestBegin_IsRefusedWithRevisions_WhenNoneHasReadyPod(t *testing.T) {
	t.Parallel()
	seen := hangs(true, 4, counted{3, 0}, counted{2, 0})
	seen.Settings = rollingLimits(1, 1)
	d := Begin(deploymentPartition{}, overRequest("Deployment"), seen)
	require.Equal(t, workload.ActFail, d.Action)
	require.Equal(t, failure.Refused, d.Failure.Kind)
	require.Contains(t, d.Reason, "its own update to revision r2 (app=x:2) hangs (pod r2-0: ImagePullBackOff)")
	require.Contains(t, d.Reason, "r2 (app=x:2): 0 of 2 pods ready; r1 (app=x:1): 0 of 3 pods ready")
}

// A workload that declares the new version is held already: its template stays.
func TestBegin_KeepsDeclaredTemplate_WhenOwnUpdateHangs(t *testing.T) {
	t.Parallel()
	seen := hangs(true, 4, counted{3, 3}, counted{2, 0})
	seen.Settings = rollingLimits(1, 1)
	seen.Settings[pathPaused] = json.RawMessage("true")
	seen.Held, seen.Template, seen.Declared = gate.Held{pathPaused: json.RawMessage("null")}, "t-new", "t-new"
	req := overRequest("Deployment")
	d := Begin(deploymentPartition{}, req, seen)
	require.Equal(t, workload.ActWrite, d.Action, d.Reason)
	require.Equal(t, "begin", d.Write.Step)
	require.Nil(t, d.Write.Template)
	require.Equal(t, "r1", d.Begun.Stable)
	require.Equal(t, "r1", d.Write.Labels[rollout.LabelStableRevision])

	extra := ForDeclared(deploymentExtra{}, true)
	req.Strategy.Style = strategy.StyleCanary
	d = Begin(extra, req, seen)
	require.NotEmpty(t, d.Begun.Unsettled, "beside an extra workload the stable one is made whole first")
	req.Unsettled = rollout.UnsettledWait
	d = Begin(extra, req, seen)
	require.Equal(t, "settle", d.Write.Step, d.Reason)
	require.Equal(t, "r1", d.Write.Template.Revision, "not to the version that hangs")
	require.Equal(t, rollout.AnnotationNext, d.Write.KeepTemplate)
	unread := seen
	unread.Pods, unread.PodsSeen = nil, false
	require.Equal(t, workload.ActReadPods, Begin(extra, req, unread).Action, "which one is not known without its pods")

	// back to the version that serves: there is nothing to go through
	seen.Template, seen.Declared = "tr1", "tr1"
	d = Begin(deploymentPartition{}, overRequest("Deployment"), seen)
	require.True(t, d.Begun.AlreadyComplete, d.Reason)
}

// A StatefulSet's controller waits for each broken pod: the release deletes those of the update that hung, and no
// other, and waits for what replaces them before the first ready pod goes.
func TestMove_DeletesBrokenPodsOfHungUpdate_BeforeReadyPodGoes(t *testing.T) {
	t.Parallel()
	tech := partitioned{nested: true, ordinals: true}
	subject := overRequest("StatefulSet").Subject
	seen := hangs(false, 4, counted{2, 2}, counted{2, 1})
	seen.Settings[pathUpdateStrategy] = json.RawMessage(`{"type":"RollingUpdate","rollingUpdate":{"partition":4}}`)
	seen.Claim, seen.Template, seen.Expected = subject.Claim, "tr1", "t-new"
	seen.Saved = &rollout.Saved{Stable: "r1", StableTemplate: "tr1", Over: "r2", Claim: subject.Claim,
		Style: strategy.StylePartition, Settings: strategyOf(`{"type":"RollingUpdate"}`)}
	for _, native := range []bool{false, true} {
		req := rollout.MoveRequest{Subject: subject, Step: 1, Style: strategy.StylePartition, Native: native}
		req.Replicas.IntVal = 1
		d := Move(tech, req, seen)
		require.Equal(t, workload.ActDelete, d.Action, d.Reason)
		require.Len(t, d.Delete, 1)
		require.Equal(t, "r2-1", d.Delete[0].Name, "the broken one of the update that hung")

		starting := seen
		starting.Pods = append(seen.Pods[:3:3], workload.Pod{Name: "new", Revision: "r1", Reason: "ContainerCreating"})
		d = Move(tech, req, starting)
		require.Equal(t, workload.ActWait, d.Action, d.Reason)
		require.Contains(t, d.Reason, "update that hung")

		starting.Pods[3].Ready = true
		d = Move(tech, req, starting)
		require.Equal(t, workload.ActWrite, d.Action, d.Reason)
		require.NotNil(t, d.Write.Template, "only now the new template")
	}
	ownTrouble := seen
	ownTrouble.Pods = append([]workload.Pod{{Name: "r1-x", Revision: "r1", Reason: "CrashLoopBackOff"}},
		seen.Pods[1:3]...)
	ownTrouble.Replicas = 3
	req := rollout.MoveRequest{Subject: subject, Step: 1, Style: strategy.StylePartition}
	req.Replicas.IntVal = 1
	require.Equal(t, workload.ActWrite, Move(tech, req, ownTrouble).Action,
		"a stable pod with a trouble of its own is neither deleted nor waited for")
}
