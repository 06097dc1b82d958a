package kruise

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// object is a Rollout of two steps at rest, whose workload serves the template "old".
func object(change func(r *v1beta1.Rollout)) *v1beta1.Rollout {
	r := &v1beta1.Rollout{}
	r.Name, r.Namespace, r.UID, r.Generation = "web", "shop", "uid", 1
	r.Finalizers = []string{v1beta1.Finalizer}
	r.Spec.WorkloadRef = v1beta1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	r.Spec.Strategy.Canary = &v1beta1.CanaryStrategy{Steps: make([]v1beta1.CanaryStep, 2)}
	r.Annotations = map[string]string{AnnotationHash: StrategyHash(r.Spec.Strategy), KeyEngine: "slipway/uid"}
	r.Status = Resting(r, deployment(nil), noon)
	r.Status.Slipway.Seq = 1
	if change != nil {
		change(r)
	}
	return r
}

func deployment(change func(w *Workload)) *Workload {
	w := &Workload{Ref: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, Template: "old", Revision: "r1", Size: 4, Total: 4,
		Updated: 4, Ready: 4, Observed: 1}
	w.Name, w.Namespace, w.Generation, w.Labels = "web", "shop", 1, map[string]string{gate.Label: "web"}
	if change != nil {
		change(w)
	}
	return w
}

func held(w *Workload) {
	w.Template, w.Held, w.By, w.Generation, w.Observed = "new", gate.Held{"/spec/paused": json.RawMessage("null")}, "alice", 2, 2
}

func numbered(id string) func(w *Workload) {
	return func(w *Workload) { w.RolloutID = id }
}

// open is a release of "new" under way.
func open(state rollout.StepState) func(r *v1beta1.Rollout) {
	return func(r *v1beta1.Rollout) {
		v := rollout.View{Template: "new", Generation: 1, Gate: "gate", Status: rollout.Status{Phase: rollout.PhaseProgressing, LastUpdateTime: noon, CurrentStepIndex: 1, NextStepIndex: 2,
			CurrentStepState: state, WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitApproval}, Steps: make([]rollout.StepStatus, 2)}}
		r.Status = Showing(v, r, noon)
		r.Status.Slipway.Seq = 7
	}
}

func claimed(template string) func(w *Workload) {
	return func(w *Workload) {
		w.Template, w.Claim, w.By, w.Generation, w.Observed = template, "rollout/default/shop/web@run", "bob", 5, 5
		w.Saved = &rollout.Saved{Name: "web", Declared: "new", StableTemplate: "old"}
	}
}

// coming is a workload of which one pod is new.
func coming(w *Workload) {
	claimed("new")(w)
	w.Total, w.Updated, w.Ready = 4, 1, 4
}

func both(changes ...func(r *v1beta1.Rollout)) func(r *v1beta1.Rollout) {
	return func(r *v1beta1.Rollout) {
		for _, change := range changes {
			change(r)
		}
	}
}

func announced(r *v1beta1.Rollout) {
	r.Status = Announced(r, deployment(held), "", noon)
	r.Status.Slipway.Seq = 2
}

// forgotten is announced after a release that ended before it began: which template served is not known.
func forgotten(r *v1beta1.Rollout) {
	announced(r)
	r.Status.Slipway.Template = ""
}

func TestDecide(t *testing.T) {
	t.Parallel()
	deleted := func(r *v1beta1.Rollout) { r.DeletionTimestamp = &metav1.Time{Time: noon} }
	disabled := func(r *v1beta1.Rollout) { r.Spec.Disabled, r.Generation = true, 2 }
	for _, c := range []struct {
		reason   string
		object   *v1beta1.Rollout
		workload *Workload
		now      time.Duration
		do       Do
		verb     rollout.Verb
	}{
		{"what is new gets a finalizer first: it has to be told before it goes", object(func(r *v1beta1.Rollout) { r.Finalizers = nil }), deployment(nil), 0, DoGuard, ""},
		{"one with the finalizer of another controller of before names who looks after it", object(func(r *v1beta1.Rollout) { delete(r.Annotations, KeyEngine) }), deployment(nil), 0, DoGuard, ""},
		{"a deletion needs no name", object(both(func(r *v1beta1.Rollout) { delete(r.Annotations, KeyEngine) }, deleted)), nil, 0, DoUnguard, ""},
		{"other tools compare the hash", object(func(r *v1beta1.Rollout) { delete(r.Annotations, AnnotationHash) }), deployment(nil), 0, DoHash, ""},
		{"a workload that is named is marked", object(nil), deployment(func(w *Workload) { w.Labels = nil }), 0, DoMark, ""},
		{"what is whole and shown needs nothing", object(nil), deployment(nil), 0, DoNothing, ""},
		{"another size is shown", object(nil), deployment(func(w *Workload) { w.Updated, w.Ready, w.Total, w.Generation = 6, 6, 6, 2 }), 0, DoShow, ""},
		{"a native update that nobody holds is shown, and nothing else", object(nil), deployment(func(w *Workload) { w.Template, w.Generation = "new", 2 }), 0, DoShow, ""},
		{"a change that is held is announced", object(nil), deployment(held), 0, DoShow, ""},
		{"until three seconds later the object may be edited", object(announced), deployment(held), 2 * time.Second, DoNothing, ""},
		{"then it begins", object(announced), deployment(held), 3 * time.Second, DoBegin, ""},
		{"one that its owner has paused waits for him", object(announced), deployment(func(w *Workload) {
			held(w)
			w.Held["/spec/paused"] = json.RawMessage("true")
		}), time.Minute, DoShow, ""},
		{"a template that is what it was is released from the gate", object(announced), deployment(func(w *Workload) {
			held(w)
			w.Template = "old"
		}), time.Minute, DoRelease, ""},
		{"so is one of which all pods are, when a release that ended before it began has left nobody to know what it was", object(forgotten), deployment(func(w *Workload) {
			held(w)
			w.Template = "old"
		}), time.Minute, DoRelease, ""},
		{"with pods of another template it begins", object(forgotten), deployment(func(w *Workload) {
			held(w)
			w.Updated = 0
		}), time.Minute, DoBegin, ""},
		{"what its controller has not looked at may still be whole only in its status", object(forgotten), deployment(func(w *Workload) {
			held(w)
			w.Observed = 1
		}), time.Minute, DoBegin, ""},
		{"another release on the workload is waited for", object(announced), deployment(func(w *Workload) {
			held(w)
			w.Claim = "task/x"
		}), time.Minute, DoNothing, ""},
		{"a template that had to give way begins by itself", object(announced), deployment(func(w *Workload) { w.Next = "new" }), time.Minute, DoBegin, ""},
		{"another rollout-id alone is announced as well", object(nil), deployment(numbered("7")), 0, DoShow, ""},
		{"and begins a release", object(func(r *v1beta1.Rollout) { r.Status = Announced(r, deployment(numbered("7")), "", noon) }), deployment(numbered("7")), 3 * time.Second,
			DoBegin, ""},
		{"the one that was released begins none", object(func(r *v1beta1.Rollout) { r.Status.Slipway.RolloutID = "7" }), deployment(numbered("7")), 0, DoShow, ""},
		{"nor does one of a workload without pods", object(nil), deployment(func(w *Workload) {
			numbered("7")(w)
			w.Size = 0
		}), 3 * time.Second, DoShow, ""},
		{"with a change that is held it is one release", object(announced), deployment(func(w *Workload) {
			numbered("7")(w)
			held(w)
		}), 3 * time.Second, DoBegin, ""},
		{"StepReady is an approval", object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) { r.Status.CanaryStatus.CurrentStepState = "StepReady" })),
			deployment(claimed("new")), 0, DoCommand, rollout.VerbApprove},
		{"another next step is a jump", object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) { r.Status.CanaryStatus.NextStepIndex = 1 })),
			deployment(claimed("new")), 0, DoCommand, rollout.VerbJump},
		{"the stable template by somebody's hand is a rollback", object(open(rollout.StatePaused)), deployment(claimed("old")), 0, DoCommand, rollout.VerbRollback},
		{"by the release's own it is none", object(open(rollout.StatePaused)), deployment(func(w *Workload) {
			claimed("old")(w)
			w.Saved.Homeward = "claim stable"
		}), 0, DoShow, ""},
		{"what is changed again before it began stops the release", object(open(rollout.StateUpgrade)), deployment(func(w *Workload) {
			held(w)
			w.Template = "newer"
		}), 0, DoCommand, rollout.VerbStop},
		{"one that has given everything back is over: its end is about to be shown", object(open(rollout.StateUpgrade)), deployment(nil), 0, DoNothing, ""},
		{"a third template takes the place of the second", object(open(rollout.StatePaused)), deployment(claimed("newer")), 0, DoSupersede, ""},
		{"but not in a blue-green", object(both(func(r *v1beta1.Rollout) {
			r.Spec.Strategy = v1beta1.RolloutStrategy{BlueGreen: &v1beta1.BlueGreenStrategy{Steps: make([]v1beta1.CanaryStep, 2)}}
			r.Annotations[AnnotationHash] = StrategyHash(r.Spec.Strategy)
		}, open(rollout.StateUpgrade))), deployment(claimed("newer")), 0, DoNothing, ""},
		{"a template that came back is told to the release that waits since it was another", object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) {
			r.Status.Conditions = append(r.Status.Conditions, v1beta1.Condition{Type: v1beta1.ConditionStalled, Status: "True", Reason: reasonRedeclared})
		})), deployment(claimed("new")), 0, DoCommand, rollout.VerbRetry},
		{"pods of a step that come are not counted at once", object(open(rollout.StateUpgrade)), deployment(coming), 9 * time.Second, DoNothing, ""},
		{"but now and then", object(open(rollout.StateUpgrade)), deployment(coming), 20 * time.Second, DoShow, ""},
		{"an edited object is told to its release", object(both(open(rollout.StateUpgrade), func(r *v1beta1.Rollout) { r.Generation = 2 })), deployment(claimed("new")), 0,
			DoReplan, rollout.VerbReplan},
		{"a disabled one lets go of its release first", object(both(open(rollout.StatePaused), disabled)), deployment(claimed("new")), 0, DoCommand, rollout.VerbDetach},
		{"then of its workload", object(disabled), deployment(nil), 0, DoLetGo, ""},
		{"then it says so", object(disabled), deployment(func(w *Workload) { w.Labels = nil }), 0, DoShow, ""},
		{"a deleted one the same", object(both(open(rollout.StatePaused), deleted)), deployment(claimed("new")), 0, DoCommand, rollout.VerbDetach},
		{"and then it goes", object(deleted), deployment(func(w *Workload) { w.Labels = nil }), 0, DoUnguard, ""},
		{"also when its workload is gone", object(deleted), nil, 0, DoUnguard, ""},
		{"a release whose workload is gone ends", object(open(rollout.StateUpgrade)), nil, 0, DoCommand, rollout.VerbDetach},
	} {
		next := Decide(Seen{Object: c.object, Workload: c.workload, Now: noon.Add(c.now)})
		require.Equal(t, c.do, next.Do, "%s: %s", c.reason, next.Reason)
		require.Equal(t, c.verb, next.Command.Verb, c.reason)
	}
}

// A rollout-id that a workload has when it is first seen, while its Rollout is disabled, or without pods, needs no release.
func TestTheFirstRolloutIDIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	first := object(func(r *v1beta1.Rollout) { r.Status = v1beta1.RolloutStatus{} })
	require.Equal(t, "7", Resting(first, deployment(numbered("7")), noon).Slipway.RolloutID, "nobody has asked for a release of it")
	require.Empty(t, Resting(object(nil), deployment(numbered("7")), noon).Slipway.RolloutID, "later it is another")
	disabled := object(func(r *v1beta1.Rollout) { r.Spec.Disabled = true })
	require.Equal(t, "7", Resting(disabled, deployment(numbered("7")), noon).Slipway.RolloutID, "a disabled Rollout releases nothing")
	away := object(nil)
	away.Status = Resting(away, nil, noon)
	require.Equal(t, "7", Resting(away, deployment(numbered("7")), noon).Slipway.RolloutID, "a workload that is made again is a new one")
	begun := Decide(Seen{Object: object(func(r *v1beta1.Rollout) { r.Status = Announced(r, deployment(numbered("7")), "", noon) }), Workload: deployment(func(w *Workload) {
		numbered("7")(w)
		w.By = "alice"
	}), Now: noon.Add(Beginning)})
	require.Equal(t, DoBegin, begun.Do)
	require.Empty(t, begun.By, "alice has changed the template once: nothing notes who changes a label")
	require.Equal(t, "the workload's rollout-id has changed", begun.Reason)
}

// A definition of the other project's own, or one of an older build, drops what it does not know of a status. Then what was released must not be released
// again and again, and another rollout-id still begins a release.
func TestADroppedRolloutIDBeginsNoReleaseOnceMore(t *testing.T) {
	t.Parallel()
	over := noon
	v := rollout.View{Template: "old", Status: rollout.Status{Phase: rollout.PhaseHealthy, RolloutID: "7", FinishedAt: &over, Record: "shop-web-1",
		Steps: make([]rollout.StepStatus, 2)}}
	released := object(func(r *v1beta1.Rollout) { r.Status = Showing(v, r, noon) })
	require.Equal(t, DoShow, settled(t, released, deployment(numbered("7"))), "it was released")
	require.Equal(t, DoBegin, settled(t, released, deployment(numbered("8"))), "another is another release")
	first := object(func(r *v1beta1.Rollout) { r.Status = v1beta1.RolloutStatus{} })
	require.Equal(t, DoShow, settled(t, first, deployment(numbered("7"))), "nor does what the workload has when it is first seen need one")
	released.Status.Slipway = dropped(released.Status.Slipway)
	require.Equal(t, "7", Resting(released, deployment(numbered("7")), noon).Slipway.RolloutID, "where it can be kept it is noted again")
}

// settled is what is to be done about an object when nothing that is shown changes it any more, on a cluster that drops the rollout-id of each status.
func settled(t *testing.T, r *v1beta1.Rollout, w *Workload) Do {
	t.Helper()
	r = r.DeepCopy()
	r.Status.Slipway = dropped(r.Status.Slipway)
	for range 10 {
		next := Decide(Seen{Object: r, Workload: w, Now: noon.Add(time.Hour)})
		if next.Do != DoShow {
			if next.Do == DoNothing && !next.At.IsZero() {
				next = Decide(Seen{Object: r, Workload: w, Now: next.At})
			}
			return next.Do
		}
		next.Status.Slipway = dropped(next.Status.Slipway)
		if Same(*next.Status, r.Status) {
			return DoShow
		}
		r.Status = *next.Status
	}
	require.Fail(t, "it is never at rest", "%+v", r.Status)
	return ""
}

func dropped(s *v1beta1.EngineStatus) *v1beta1.EngineStatus {
	if s == nil {
		return nil
	}
	without := *s
	without.RolloutID = ""
	return &without
}

// A pause that the object had asked for ends when the object says so, however soon: the status may be written when the object says otherwise already.
func TestTheObjectsOwnPauseEndsWithIt(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		r := object(func(r *v1beta1.Rollout) { r.Generation = 3 }) // paused at generation 2, and not any more
		v := rollout.View{Template: "new", Generation: 2, PausedByObject: own, Status: rollout.Status{Phase: rollout.PhaseProgressing, CurrentStepIndex: 1, NextStepIndex: 2,
			Paused: true, CurrentStepState: rollout.StatePaused, Steps: make([]rollout.StepStatus, 2)}}
		r.Status = Showing(v, r, noon)
		next := Decide(Seen{Object: r, Workload: deployment(claimed("new")), Now: noon})
		require.Equal(t, DoReplan, next.Do)
		require.Equal(t, own, next.First != nil && next.First.Verb == rollout.VerbResume, "one that somebody has sent by another way stays")
		r.Status.ObservedGeneration = 3
		next = Decide(Seen{Object: r, Workload: deployment(claimed("new")), Now: noon})
		require.Equal(t, own, next.Do == DoCommand && next.Command.Verb == rollout.VerbResume, "also when it was unpaused before anybody was shown the pause")
	}
}

// Whatever is decided, the same thing seen twice is one command: several servers see it.
func TestOneCommandHasOneKey(t *testing.T) {
	t.Parallel()
	approved := object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) { r.Status.CanaryStatus.CurrentStepState = "StepReady" }))
	first := Decide(Seen{Object: approved, Workload: deployment(claimed("new")), Now: noon})
	again := Decide(Seen{Object: approved.DeepCopy(), Workload: deployment(claimed("new")), Now: noon.Add(time.Second)})
	require.Equal(t, first.Key, again.Key, "two servers, or one that has forgotten")
	approved.Status.Slipway.Seq++
	later := Decide(Seen{Object: approved, Workload: deployment(claimed("new")), Now: noon})
	require.NotEqual(t, first.Key, later.Key, "the answer to another state is another command")

	resting := object(open(rollout.StatePaused))
	for _, template := range []string{"old", "newer"} {
		first = Decide(Seen{Object: resting, Workload: deployment(claimed(template)), Now: noon})
		again = Decide(Seen{Object: resting, Now: noon, Workload: deployment(func(w *Workload) {
			claimed(template)(w)
			w.Generation++
		})})
		require.Equal(t, first.Key, again.Key, "a release on its way back writes to the workload before that shows it")
	}

	disabled := object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) { r.Spec.Disabled, r.Generation = true, 2 }))
	first = Decide(Seen{Object: disabled, Workload: deployment(claimed("new")), Now: noon})
	disabled.Status.Slipway.Seq++
	again = Decide(Seen{Object: disabled, Workload: deployment(claimed("new")), Now: noon})
	require.Equal(t, first.Key, again.Key, "a release that lets go shows each of its steps")
	disabled.Status.Conditions = append(disabled.Status.Conditions, v1beta1.Condition{Type: v1beta1.ConditionStalled, Status: "True"})
	require.NotEqual(t, first.Key, Decide(Seen{Object: disabled, Workload: deployment(claimed("new")), Now: noon}).Key, "one that is stuck tries again")

	first = Decide(Seen{Object: object(announced), Workload: deployment(held), Now: noon.Add(Beginning)})
	other := Decide(Seen{Object: object(announced), Now: noon.Add(Beginning), Workload: deployment(func(w *Workload) {
		held(w)
		w.Template = "newer"
	})})
	require.Equal(t, DoBegin, other.Do)
	require.NotEqual(t, first.Key, other.Key, "whoever began the first release may have died before it ran, and cannot be asked about the second")
}

// What was counted while a step's pods come is not taken back by the release, which counts them when they are there.
func TestPodsOfAStepAreCounted(t *testing.T) {
	t.Parallel()
	r := object(open(rollout.StateUpgrade))
	next := Decide(Seen{Object: r, Workload: deployment(coming), Now: noon.Add(time.Second)})
	require.Equal(t, noon.Add(countEvery), next.At, "it is looked again")
	next = Decide(Seen{Object: r, Workload: deployment(coming), Now: next.At})
	require.Equal(t, int32(1), next.Status.CanaryStatus.CanaryReplicas)
	require.Equal(t, int32(1), next.Status.CanaryStatus.CanaryReadyReplicas, "four are ready, and three are old")
	r.Status = *next.Status
	v := rollout.View{Template: "new", Status: rollout.Status{Phase: rollout.PhaseProgressing, CurrentStepIndex: 1, CurrentStepState: rollout.StateUpgrade,
		Replicas: 4, Steps: make([]rollout.StepStatus, 2)}}
	require.Equal(t, int32(1), Showing(v, r, noon).CanaryStatus.CanaryReplicas)
	v.Ending = rollout.EndRollback
	require.Equal(t, int32(0), Showing(v, r, noon).CanaryStatus.CanaryReplicas, "on the way back there are fewer and fewer")
	v.Ending = rollout.EndNone
	v.Status.CurrentStepState = rollout.StateTrafficRouting
	require.Equal(t, int32(0), Showing(v, r, noon).CanaryStatus.CanaryReplicas, "then the release knows")
}

// Which revisions a release is about stays visible until the release itself knows them: nothing that was shown goes out for a moment.
func TestWhatWasAnnouncedStaysUntilTheReleaseKnows(t *testing.T) {
	t.Parallel()
	r := object(announced)
	r.Status.CanaryStatus.CanaryRevision, r.Status.CanaryStatus.PodTemplateHash, r.Status.CanaryStatus.ObservedRolloutID = "r2", "r2", "r2"
	first := rollout.View{Template: "new", Status: rollout.Status{Record: "one", Phase: rollout.PhaseProgressing, CurrentStepIndex: 1, Steps: make([]rollout.StepStatus, 2)}}
	shows := func(v rollout.View) []string {
		s := Showing(v, r, noon).CanaryStatus
		return []string{s.CanaryRevision, s.PodTemplateHash, s.ObservedRolloutID, s.StableRevision}
	}
	require.Equal(t, []string{"r2", "r2", "r2", "r1"}, shows(first), "it claims the workload yet")
	r.Status = Showing(first, r, noon)
	require.Equal(t, []string{"r2", "r2", "r2", "r1"}, shows(first), "and takes longer")
	second := first
	second.Status.Record = "two"
	require.Equal(t, []string{"", "", "", ""}, shows(second), "another release takes its place: what it will be of is not known yet")
	known := first
	known.Status.CanaryRevision, known.Status.PodTemplateHash, known.Status.StableRevision = "r3", "r3", "r0"
	require.Equal(t, []string{"r3", "r3", "r3", "r0"}, shows(known), "the workload was changed once more before it was claimed")
	ended := first
	ended.Status.FinishedAt = &noon
	require.Empty(t, Showing(ended, r, noon).CanaryStatus.CanaryRevision, "it ended before it had begun")
}

func TestStepPausedIsNeverShownWithoutSomebodyToWaitFor(t *testing.T) {
	t.Parallel()
	view := func(wait rollout.WaitKind, stalled string, ending rollout.Ending) rollout.View {
		return rollout.View{Ending: ending, Stalled: stalled, Status: rollout.Status{Phase: rollout.PhaseProgressing, CurrentStepIndex: 1,
			CurrentStepState: rollout.StatePaused, WaitingFor: &rollout.WaitingFor{Kind: wait}}}
	}
	for _, c := range []struct {
		reason string
		view   rollout.View
		shown  bool
	}{
		{"an approval is waited for", view(rollout.WaitApproval, "", rollout.EndNone), true},
		{"the pause of a step is waited for", view(rollout.WaitTimer, "", rollout.EndNone), true},
		{"somebody else's edit is looked at", view(rollout.WaitPods, "", rollout.EndNone), false},
		{"it waits for somebody to decide about an edit", view(rollout.WaitDrift, "edited", rollout.EndNone), false},
		{"it is on its way back", view(rollout.WaitPods, "", rollout.EndRollback), false},
		{"it is finishing", view(rollout.WaitPods, "", rollout.EndSuccess), false},
	} {
		require.Equal(t, c.shown, Showing(c.view, object(nil), noon).CurrentStepState == string(rollout.StatePaused), c.reason)
	}
}

func TestAnUndoLeavesTheNumberOfTheWorkload(t *testing.T) {
	t.Parallel()
	numbered := deployment(func(w *Workload) { w.RolloutID = "7" })
	over := noon
	v := rollout.View{Template: "old", Status: rollout.Status{Phase: rollout.PhaseHealthy, FinishedAt: &over, Steps: make([]rollout.StepStatus, 1)}}
	undone := func(r *v1beta1.Rollout) { r.Status.Slipway.RolloutID = "7"; r.Status = Showing(v, r, noon) }
	require.Equal(t, DoShow, Decide(Seen{Object: object(undone), Workload: numbered, Now: noon}).Do, "a release of its own number is another: the next one is announced")
	require.Equal(t, v1beta1.PhaseProgressing, Decide(Seen{Object: object(undone), Workload: numbered, Now: noon}).Status.Phase)

	v.Status.Undo = &strategy.Undo{}
	next := Decide(Seen{Object: object(undone), Workload: numbered, Now: noon})
	require.Equal(t, v1beta1.PhaseHealthy, next.Status.Phase, "an undo has none: nothing begins, %s", next.Reason)
	require.Equal(t, int32(2), next.Status.CanaryStatus.CurrentStepIndex, "and it reads as complete, though it had no steps")
	require.Equal(t, int32(2), object(undone).Status.CanaryStatus.CurrentStepIndex)
}
