package pods

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

func strategyOf(text string) map[string]json.RawMessage {
	return map[string]json.RawMessage{pathUpdateStrategy: json.RawMessage(text)}
}

func TestPartitionRefusals(t *testing.T) {
	ordered := partitioned{nested: true, ordinals: true}
	for _, test := range []struct {
		reason   string
		tech     Technique
		strategy string
		updated  int32
		total    int32
		want     string
	}{
		{"a settled StatefulSet can be rolled out", ordered, `{"type":"RollingUpdate"}`, 4, 4, ""},
		{"one that is updated by deletion only cannot", ordered, `{"type":"OnDelete"}`, 4, 4,
			"set its update type to RollingUpdate"},
		{"nor can such a DaemonSet", byDeletion{}, `{"type":"OnDelete"}`, 4, 4, "set its update type to RollingUpdate"},
		{"a paused update would never move", ordered, `{"rollingUpdate":{"paused":true}}`, 4, 4, "resume it first"},
		{"nor would a paused CloneSet", partitioned{share: true}, `{"paused":true}`, 4, 4, "resume it first"},
		{"an update under way passes by itself: it is not refused", ordered, `{"type":"RollingUpdate"}`, 3, 4, ""},
		{"a partition of its own is no obstacle", ordered, `{"rollingUpdate":{"partition":2}}`, 4, 4, ""},
		{"deletion makes pods unavailable, which maxUnavailable 0 forbids", byDeletion{},
			`{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}`, 4, 4, "set maxUnavailable to at least 1"},
	} {
		got := test.tech.refusalReason(Observed{Snapshot: workload.Snapshot{Settings: strategyOf(test.strategy),
			Replicas: 4, Updated: test.updated, Total: test.total}})
		if test.want == "" {
			require.Empty(t, got, test.reason)
		} else {
			require.Contains(t, got, test.want, test.reason)
		}
	}
}

func TestWithPartition_ChangesOnlyPartition(t *testing.T) {
	for _, test := range []struct {
		reason     string
		tech       partitioned
		own        string
		keep, size int32
		want       string
	}{
		{"a StatefulSet has it in rollingUpdate", partitioned{nested: true, ordinals: true},
			`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":2,"partition":0}}`, 3, 4,
			`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":2,"partition":3}}`},
		{"a missing rollingUpdate is added", partitioned{nested: true}, `{"type":"RollingUpdate"}`, 3, 4,
			`{"type":"RollingUpdate","rollingUpdate":{"partition":3}}`},
		{"a CloneSet gets a share where one fits, and unknown fields stay", partitioned{share: true},
			`{"type":"InPlaceIfPossible","scatterStrategy":[{"key":"a"}]}`, 3, 4,
			`{"type":"InPlaceIfPossible","scatterStrategy":[{"key":"a"}],"partition":"75%"}`},
		{"a missing strategy is added with a partition", partitioned{share: true}, ``, 0, 4, `{"partition":0}`},
	} {
		require.JSONEq(t, test.want, string(test.tech.withPartition(json.RawMessage(test.own), test.keep, test.size)),
			test.reason)
	}
}

func TestFinalSettings_RestoreOwnPartitionLast(t *testing.T) {
	own := `{"rollingUpdate":{"partition":2,"maxUnavailable":1}}`
	first, last := partitioned{nested: true, ordinals: true}.finalSettings(
		Observed{Saved: &rollout.Saved{Settings: strategyOf(own)}})
	require.JSONEq(t, `{"rollingUpdate":{"partition":0,"maxUnavailable":1}}`, string(first[0].Value),
		"its own partition would keep pods back")
	require.JSONEq(t, own, string(last[0].Value), "it is restored at the end")
	first, last = partitioned{share: true}.finalSettings(
		Observed{Saved: &rollout.Saved{Settings: strategyOf(`{"partition":"0%"}`)}})
	require.JSONEq(t, `{"partition":"0%"}`, string(first[0].Value), "a partition of nothing keeps nothing back")
	require.Empty(t, last)
}

func TestFinalSettings_SayThatAdvancedDaemonSetIsNotPaused_UnderRolloutObject(t *testing.T) {
	for _, c := range []struct {
		reason, declared, own, want string
		tech                        partitioned
	}{
		{"absent", "new", `{"rollingUpdate":{"maxUnavailable":1}}`, `{"rollingUpdate":{"maxUnavailable":1,"paused":false}}`,
			partitioned{nested: true}},
		{"as its owner has it", "new", `{"rollingUpdate":{"paused":true}}`, `{"rollingUpdate":{"paused":true}}`,
			partitioned{nested: true}},
		{"over HTTP everything is as it was", "", `{"rollingUpdate":{}}`, `{"rollingUpdate":{}}`, partitioned{nested: true}},
		{"a StatefulSet has no such field", "new", `{"rollingUpdate":{}}`, `{"rollingUpdate":{}}`,
			partitioned{nested: true, ordinals: true}},
	} {
		first, _ := c.tech.finalSettings(Observed{Saved: &rollout.Saved{Settings: strategyOf(c.own),
			Declared: c.declared}})
		require.JSONEq(t, c.want, string(first[0].Value), c.reason)
	}
}

// TestShareOf_KeepsExactNumber checks the share against the rule by which a CloneSet's controller resolves it.
func TestShareOf_KeepsExactNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int32Range(1, 2000).Draw(t, "size")
		keep := rapid.Int32Range(0, size).Draw(t, "keep")
		got := shareOf(keep, size)
		kept := int32(0)
		switch v := got.(type) {
		case int32:
			kept = v
		case string:
			var percent float64
			_, err := fmt.Sscanf(v, "%f%%", &percent)
			require.NoError(t, err)
			kept = int32(math.Ceil(percent * float64(size) / 100))
			if v != "100%" && size > 1 {
				kept = min(kept, size-1)
			}
		}
		require.Equal(t, keep, kept, "%v of %d", got, size)
		if size <= 100 && keep > 0 && keep < size {
			require.IsType(t, "", got, "up to a hundred pods there always is a share, and it keeps the proportion "+
				"when the workload is scaled")
		}
	})
}

func TestKeep_TakesHighestOrdinalFirst_OnStepBack(t *testing.T) {
	ordered := partitioned{nested: true, ordinals: true}
	saved := Observed{Saved: &rollout.Saved{Settings: strategyOf(`{"rollingUpdate":{"maxUnavailable":1}}`)}}
	back := func(size, from, target int32) task {
		return task{Request: rollout.MoveRequest{Back: true, From: from}, Size: size, Target: target}
	}
	require.Equal(t, int32(10), ordered.keep(back(10, 4, 6), saved), "none of the four new pods has to go back yet")
	require.Equal(t, int32(9), ordered.keep(back(10, 4, 7), saved), "one: that of ordinal 9")
	require.Equal(t, int32(6), ordered.keep(back(10, 4, 10), saved), "all four: from ordinal 6 on")
	require.Equal(t, int32(7), ordered.keep(task{Size: 10, Target: 3}, saved), "forward: the three highest")
	unordered := Observed{Saved: &rollout.Saved{Settings: strategyOf(
		`{"rollingUpdate":{"unorderedUpdate":{"priorityStrategy":{}}}}`)}}
	require.Equal(t, int32(3), ordered.keep(back(10, 4, 7), unordered),
		"without an order the partition is a number of pods")
	require.Equal(t, int32(3), partitioned{share: true}.keep(back(10, 4, 7), saved), "as for a CloneSet")
}

// A controller that goes by a partition would finish the step by itself: halted in the middle, the partition allows
// only the pods that have moved.
func TestPauseSettings_KeepMovedPods_WhenHalted(t *testing.T) {
	saved := Observed{Saved: &rollout.Saved{Settings: strategyOf(`{"rollingUpdate":{"maxUnavailable":1}}`)}}
	ordered := partitioned{nested: true, ordinals: true}
	for _, test := range []struct {
		reason string
		tech   Technique
		task   task
		want   string
	}{
		{"three of eight have moved", ordered, task{Request: rollout.MoveRequest{Halt: true}, Size: 10, Target: 8,
			Total: 3, Placed: true}, `{"rollingUpdate":{"maxUnavailable":1,"partition":7}}`},
		{"before the new revision is made none has", ordered,
			task{Request: rollout.MoveRequest{Halt: true}, Size: 10, Target: 8, Placed: true},
			`{"rollingUpdate":{"maxUnavailable":1,"partition":10}}`},
		{"on a rollback one of four is back", ordered,
			task{Request: rollout.MoveRequest{Halt: true, Back: true, From: 4}, Size: 10, Target: 10, Total: 7,
				Placed: true}, `{"rollingUpdate":{"maxUnavailable":1,"partition":9}}`},
		{"another client's template gets no partition", ordered,
			task{Request: rollout.MoveRequest{Halt: true}, Size: 10, Target: 8, Total: 3}, ""},
		{"a paused step keeps its own", ordered, task{Size: 10, Target: 8, Total: 8, Placed: true}, ""},
		{"a blue-green removes no old pod", cloneSetBlueGreen{partitioned{share: true}},
			task{Request: rollout.MoveRequest{Halt: true}, Size: 10, Target: 5, Total: 3, Placed: true}, ""},
	} {
		got := test.tech.pauseSettings(test.task, saved)
		if test.want == "" {
			require.Empty(t, got, test.reason)
			continue
		}
		require.Len(t, got, 1, test.reason)
		require.JSONEq(t, test.want, string(got[0].Value), test.reason)
	}
}

func TestCloneSetStep_EndsWhenSurplusIsDeleted(t *testing.T) {
	pod := func(name, revision string) workload.Pod {
		return workload.Pod{Name: name, Revision: revision, Ready: true}
	}
	for _, test := range []struct {
		reason string
		change func(seen *Observed, task *task)
		want   workload.Action
	}{
		{"both new pods are ready, and their surge has left a third stable one", func(*Observed, *task) {},
			workload.ActWait},
		{"it is being deleted: the split is as requested", func(seen *Observed, _ *task) {
			seen.Pods[4].Deleting = true
		}, workload.ActDone},
		{"a new pod is missing: that is decided by the counts, not here", func(seen *Observed, task *task) {
			seen.Pods = seen.Pods[1:]
			task.Total, task.Ready = 1, 1
		}, workload.ActDone},
		{"a new pod is unready and tolerated: its controller may not be allowed to remove another",
			func(seen *Observed, task *task) {
				seen.Pods[0].Ready = false
				task.Ready, task.Tolerated = 1, 1
			}, workload.ActDone},
		{"on a step back, the new pods are left over", func(seen *Observed, task *task) {
			task.Request, task.Aim = rollout.MoveRequest{Back: true, From: 2}, Revision{Name: "old", Hash: "old"}
			task.Total, task.Ready = 3, 3
			task.Target = 3
		}, workload.ActWait},
	} {
		seen := Observed{Snapshot: workload.Snapshot{PodsSeen: true, Replicas: 4,
			Settings: strategyOf(`{"maxSurge":1,"partition":"50%"}`),
			Pods: []workload.Pod{pod("a", "new"), pod("b", "new"), pod("c", "old"), pod("d", "old"),
				pod("e", "old")}}, Saved: &rollout.Saved{Settings: strategyOf(`{"maxSurge":1}`)}}
		task := task{Size: 4, Target: 2, Total: 2, Ready: 2, Placed: true, Aim: Revision{Name: "new", Hash: "new"}}
		test.change(&seen, &task)
		if task.Request.Back {
			seen.Settings = map[string]json.RawMessage{pathUpdateStrategy: partitioned{share: true}.withPartition(
				json.RawMessage(`{"maxSurge":1}`), task.Size-task.Target, task.Size)}
		}
		require.Equal(t, test.want, partitioned{share: true}.next(task, seen).Action, test.reason)
	}
}

func TestRetry_StopsForeignUpdateFirst_OfOrdinals(t *testing.T) {
	ordered := partitioned{nested: true, ordinals: true}
	own := strategyOf(`{"rollingUpdate":{"partition":0}}`)
	task := task{Request: rollout.MoveRequest{OverwriteDrift: true}, Size: 2, Target: 1,
		Aim: Revision{Name: "w-new", Hash: "w-new"}}
	seen := Observed{Snapshot: workload.Snapshot{PodsSeen: true, Replicas: 2,
		Settings: strategyOf(`{"rollingUpdate":{"partition":1}}`),
		Pods:     []workload.Pod{{Name: "w-0", Ready: true}, {Name: "w-1", Deleting: true}}},
		Saved: &rollout.Saved{Settings: own}}
	d := ordered.next(task, seen)
	require.Equal(t, "hold", d.Write.Step, "first no more pods are removed")
	require.Nil(t, d.Write.Template)
	seen.Settings = map[string]json.RawMessage{pathUpdateStrategy: d.Write.Settings[0].Value}
	require.Equal(t, workload.ActWait, ordered.next(task, seen).Action, "then the missing pod comes back")
	seen.Pods[1] = workload.Pod{Name: "w-1", Ready: true}
	d = ordered.next(task, seen)
	require.NotNil(t, d.Write.Template, "and then the template is set, with the partition of the step")
	require.JSONEq(t, `{"rollingUpdate":{"partition":1}}`, string(d.Write.Settings[0].Value))
	seen.Pods[1] = workload.Pod{Name: "w-1", Reason: "ImagePullBackOff"}
	require.NotNil(t, ordered.next(task, seen).Write.Template, "it does not wait for a pod that the edit has broken")
}

func TestBlockingPods_IncludeNoReadyPod(t *testing.T) {
	target := Revision{Name: "w-target", Hash: "target"}
	seen := Observed{Snapshot: workload.Snapshot{PodsSeen: true, Pods: []workload.Pod{
		{Name: "ready", Revision: "new", Ready: true}, {Name: "stuck", Revision: "new"},
		{Name: "leaving", Revision: "new", Deleting: true}, {Name: "own", Revision: "target"},
	}}}
	stuck := partitioned{ordinals: true}.blockingPods(target, seen)
	require.Len(t, stuck, 1)
	require.Equal(t, "stuck", stuck[0].Name, "only the controller removes a pod that serves; a pod of the target "+
		"version never goes")
	require.Empty(t, partitioned{share: true}.blockingPods(target, seen),
		"other controllers do not wait for broken pods")
	require.Empty(t, partitioned{ordinals: true}.blockingPods(Revision{}, seen),
		"as long as the revision is not known, no pod is of another")
}

// TestDeletion_KeepsMaxUnavailable simulates a DaemonSet's nodes: in every state of the pods, no deletion removes an
// available pod beyond maxUnavailable, none is of the target version, and no more pods become new than requested.
func TestDeletion_KeepsMaxUnavailable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int32Range(1, 12).Draw(t, "size")
		limit := rapid.Int32Range(1, size).Draw(t, "maxUnavailable")
		tolerated := rapid.Int32Range(0, 2).Draw(t, "tolerated")
		task := task{Size: size, Target: rapid.Int32Range(0, size).Draw(t, "target"),
			Aim: Revision{Name: "w-new", Hash: "new"}, Placed: true, Tolerated: tolerated}
		seen := Observed{Snapshot: workload.Snapshot{PodsSeen: true, Replicas: size,
			Settings: strategyOf(string(onDelete))},
			Saved: &rollout.Saved{Settings: strategyOf(fmt.Sprintf(`{"rollingUpdate":{"maxUnavailable":%d}}`, limit))}}
		serving, old, unready, coming := int32(0), int32(0), int32(0), size
		for i := range size {
			p := workload.Pod{Name: fmt.Sprint(i),
				Revision:  rapid.SampledFrom([]string{"old", "new"}).Draw(t, "revision"),
				Available: rapid.Bool().Draw(t, "available"), Deleting: rapid.IntRange(0, 5).Draw(t, "leaving") == 0}
			if rapid.IntRange(0, 7).Draw(t, "missing") == 0 {
				continue
			}
			p.Ready = p.Available
			seen.Pods = append(seen.Pods, p)
			if p.Deleting {
				continue
			}
			if p.Available {
				serving++
			} else if p.Revision == "new" {
				unready++
			}
			if p.Revision == "new" {
				task.Total++
			} else {
				old++
			}
			coming--
		}
		d := byDeletion{}.next(task, seen)
		if d.Action != workload.ActDelete {
			return
		}
		taken := int32(0)
		for _, p := range d.Delete {
			require.Equal(t, "old", p.Revision)
			require.False(t, p.Deleting)
			if p.Available {
				taken++
			}
		}
		if taken > 0 {
			require.LessOrEqual(t, size-serving+taken, limit+min(tolerated, unready), "of %d pods that serve, %d go",
				serving, taken)
		}
		require.LessOrEqual(t, task.Total+coming+int32(len(d.Delete)), task.Target,
			"a node without a pod gets a new one as well")
	})
}

func TestDeletion_TakesUnhealthyPodsFirst(t *testing.T) {
	task := task{Size: 4, Target: 2, Aim: Revision{Name: "w-new", Hash: "new"}, Placed: true}
	seen := Observed{Snapshot: workload.Snapshot{PodsSeen: true, Replicas: 4,
		Settings: strategyOf(string(onDelete))}, Saved: &rollout.Saved{Settings: strategyOf(
		`{"rollingUpdate":{"maxUnavailable":1}}`)}}
	for i, available := range []bool{true, true, false, true} {
		seen.Pods = append(seen.Pods, workload.Pod{Name: fmt.Sprint(i), Revision: "old", Ready: available,
			Available: available})
	}
	d := byDeletion{}.next(task, seen)
	require.Len(t, d.Delete, 1, "one is unavailable already, and one may be")
	require.Equal(t, "2", d.Delete[0].Name)
}

// Another client's update type was undone, but the controller may still act by it, and remove a pod in addition to the
// deleted one.
func TestDeletion_Waits_WhenControllerLags(t *testing.T) {
	task := task{Size: 2, Target: 1, Aim: Revision{Name: "w-new", Hash: "new"}, Placed: true}
	seen := Observed{Snapshot: workload.Snapshot{PodsSeen: true, Replicas: 2, Generation: 7, ObservedGeneration: 6,
		Settings: strategyOf(string(onDelete)),
		Pods: []workload.Pod{{Name: "0", Revision: "old", Ready: true, Available: true},
			{Name: "1", Revision: "old", Ready: true, Available: true}}},
		Saved: &rollout.Saved{}}
	require.Equal(t, workload.ActWait, byDeletion{}.next(task, seen).Action)
	seen.ObservedGeneration = 7
	require.Equal(t, workload.ActDelete, byDeletion{}.next(task, seen).Action)
}

func TestCloneSetBlueGreen(t *testing.T) {
	tech := cloneSetBlueGreen{partitioned{share: true}}
	own := map[string]json.RawMessage{pathUpdateStrategy: json.RawMessage(
		`{"type":"ReCreate","maxUnavailable":"20%","partition":0,"maxSurge":0}`)}
	borrowed := func(surge int) map[string]json.RawMessage {
		return map[string]json.RawMessage{pathMinReadySeconds: gateMinReady,
			pathUpdateStrategy: json.RawMessage(fmt.Sprintf(
				`{"type":"ReCreate","maxUnavailable":0,"partition":0,"maxSurge":%d}`, surge))}
	}
	subject := rollout.MoveRequest{Replicas: intstr.FromString("100%")}
	at := func(settings map[string]json.RawMessage) Observed {
		return Observed{Snapshot: workload.Snapshot{Replicas: 4, Settings: settings},
			Saved: &rollout.Saved{Settings: own}}
	}
	first := tech.next(task{Request: subject, Size: 4, Target: 4}, at(own))
	require.Equal(t, workload.ActWrite, first.Action)
	require.NotNil(t, first.Write.Template, "template, surge and gate are one write")
	require.Len(t, first.Write.Settings, 2)
	require.JSONEq(t, `{"type":"ReCreate","maxUnavailable":0,"partition":0,"maxSurge":"100%"}`,
		string(first.Write.Settings[0].Value), "as the step states it")
	require.Equal(t, workload.ActWait, tech.next(
		task{Request: subject, Size: 4, Target: 4, Total: 3, Ready: 3, Placed: true}, at(borrowed(4))).Action,
		"a surge of all that is still coming up")
	require.Equal(t, workload.ActDone, tech.next(
		task{Request: subject, Size: 4, Target: 4, Total: 4, Ready: 4, Placed: true}, at(borrowed(4))).Action)
	require.Equal(t, workload.ActWrite, tech.next(
		task{Request: subject, Size: 4, Target: 2, Total: 1, Ready: 1, Placed: true}, at(borrowed(1))).Action,
		"up to a half it grows")
	refused := tech.next(task{Request: subject, Size: 4, Target: 4, Total: 2, Ready: 2, Placed: true}, at(borrowed(2)))
	require.Equal(t, workload.ActFail, refused.Action,
		"its controller would not go beyond a half, so it is refused instead of waiting")
	require.Equal(t, failure.Refused, refused.Failure.Kind)
	back, _ := tech.finalSettings(at(borrowed(4)))
	require.Len(t, back, 2, "strategy and gate")
	require.JSONEq(t, string(own[pathUpdateStrategy]), string(back[0].Value))
	require.Empty(t, back[1].Value, "a field that was absent is removed again")
}

// A controller that goes by ordinals is stopped before all pods move to the stable version; otherwise two pods would be
// unavailable at once.
func TestHaltUpdate_StopsUpdate_OfOrdinals(t *testing.T) {
	t.Parallel()
	tech := partitioned{nested: true, ordinals: true}
	stable := Revision{Name: "web-1", Hash: "web-1"}
	ready := workload.Pod{Name: "ready", Ready: true, Revision: "web-1"}
	fresh := workload.Pod{Name: "fresh", Ready: true, Revision: "web-2"}
	out := workload.Pod{Name: "out", Revision: "web-2"}
	own := strategyOf(`{"type":"RollingUpdate","rollingUpdate":{"partition":0}}`)
	at := func(partition int) map[string]json.RawMessage {
		return strategyOf(fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"partition":%d}}`, partition))
	}
	for _, c := range []struct {
		reason   string
		settings map[string]json.RawMessage
		pods     []workload.Pod
		updated  int32
		want     workload.Action
	}{
		{"nothing is under way: the pods move at once", at(2), []workload.Pod{ready, ready, fresh}, 1, ""},
		{"an unavailable pod stops the update first", at(1), []workload.Pod{ready, out, fresh}, 1,
			workload.ActWrite},
		{"so does one that is about to be removed", at(1), []workload.Pod{ready, ready, fresh}, 1,
			workload.ActWrite},
		{"a new pod that is not ready is deleted: it comes back as the stable version", at(3),
			[]workload.Pod{ready, out, fresh}, 1, workload.ActDelete},
		{"it waits for a pod that is starting", at(3), []workload.Pod{ready, fresh}, 1, workload.ActWait},
		{"once every pod is ready, they move", at(3), []workload.Pod{ready, ready, fresh}, 1, ""},
	} {
		seen := Observed{Snapshot: workload.Snapshot{Replicas: 3, Updated: c.updated, Settings: c.settings,
			Pods: c.pods, PodsSeen: true}, Saved: &rollout.Saved{Settings: own}}
		d, waits := tech.haltUpdate(stable, seen)
		require.Equal(t, c.want, d.Action, c.reason)
		require.Equal(t, c.want != "", waits, c.reason)
	}
}

// A CloneSet's controller surges by no more than what is still to be updated: a blue-green that could not continue is
// refused before it begins.
func TestStepRefusal_WhenCloneSetCannotSurge(t *testing.T) {
	t.Parallel()
	steps := func(replicas ...string) (out []strategy.Step) {
		for _, r := range replicas {
			out = append(out, strategy.Step{Replicas: intstr.Parse(r)})
		}
		return out
	}
	for _, c := range []struct {
		reason string
		tech   Technique
		steps  []strategy.Step
		want   int
		refuse bool
	}{
		{"everything at once can be made", cloneSetBlueGreen{}, steps("100%", "100%"), 0, false},
		{"up to a half it grows", cloneSetBlueGreen{}, steps("1", "50%"), 0, false},
		{"beyond a half it does not", cloneSetBlueGreen{}, steps("50%", "50%", "100%"), 2, true},
		{"a Deployment does", deploymentBlueGreen{}, steps("50%", "100%"), 0, false},
	} {
		step, reason := StepRefusal(c.tech, c.steps, 4)
		require.Equal(t, c.refuse, reason != "", c.reason)
		require.Equal(t, c.want, step, c.reason)
	}
}
