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

// object returns an idle Rollout of two steps, whose workload serves the template "old".
func object(change func(r *v1beta1.Rollout)) *v1beta1.Rollout {
	r := &v1beta1.Rollout{}
	r.Name, r.Namespace, r.UID, r.Generation = "web", "shop", "uid", 1
	r.Finalizers = []string{v1beta1.Finalizer}
	r.Spec.WorkloadRef = v1beta1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	r.Spec.Strategy.Canary = &v1beta1.CanaryStrategy{Steps: make([]v1beta1.CanaryStep, 2)}
	r.Annotations = map[string]string{AnnotationHash: StrategyHash(r.Spec.Strategy), KeyEngine: "slipway/uid"}
	r.Status = IdleStatus(r, deployment(nil), noon)
	r.Status.Slipway.Seq = 1
	if change != nil {
		change(r)
	}
	return r
}

func deployment(change func(w *Workload)) *Workload {
	w := &Workload{Ref: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, Template: "old",
		Revision: "r1", Size: 4, Total: 4,
		Updated: 4, Ready: 4, Observed: 1, Moves: true}
	w.Name, w.Namespace, w.Generation, w.Labels = "web", "shop", 1, map[string]string{gate.Label: "web"}
	if change != nil {
		change(w)
	}
	return w
}

func held(w *Workload) {
	w.Template, w.Held, w.By, w.Generation, w.Observed = "new", gate.Held{"/spec/paused": json.RawMessage("null")},
		"alice", 2, 2
}

// unheld changes the template although an object names the workload.
func unheld(w *Workload) {
	w.Template, w.Generation = "new", 2
}

// first is an object that the engine has not seen with its workload yet.
func first(r *v1beta1.Rollout) {
	r.Status, r.CreationTimestamp = v1beta1.RolloutStatus{}, metav1.NewTime(noon)
}

func numbered(id string) func(w *Workload) {
	return func(w *Workload) { w.RolloutID = id }
}

// open makes the object show a release of "new" in progress.
func open(state rollout.StepState) func(r *v1beta1.Rollout) {
	return func(r *v1beta1.Rollout) {
		v := rollout.View{Template: "new", Generation: 1, Gate: "gate",
			Status: rollout.Status{Phase: rollout.PhaseProgressing, LastUpdateTime: noon, CurrentStepIndex: 1,
				NextStepIndex:    2,
				CurrentStepState: state, WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitApproval},
				Steps: make([]rollout.StepStatus, 2)}}
		r.Status = ReleaseStatus(v, r, noon)
		r.Status.Slipway.Seq = 7
	}
}

func claimed(template string) func(w *Workload) {
	return func(w *Workload) {
		w.Template, w.Claim, w.By, w.Generation, w.Observed = template, "rollout/default/shop/web@run", "bob", 5, 5
		w.Saved = &rollout.Saved{Name: "web", Declared: "new", StableTemplate: "old"}
	}
}

// coming is a workload that has one pod of the new template.
func partlyUpdated(w *Workload) {
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
	r.Status = AnnouncedStatus(r, deployment(held), "", noon)
	r.Status.Slipway.Seq = 2
}

// forgotten is announced after a release that ended before it claimed the workload: the template that served before is
// unknown.
func announcedWithoutTemplate(r *v1beta1.Rollout) {
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
		do       ActionKind
		verb     rollout.Verb
	}{
		{"a new object first gets a finalizer, so that its deletion waits for the engine",
			object(func(r *v1beta1.Rollout) { r.Finalizers = nil }), deployment(nil), 0, DoAddFinalizer, ""},
		{"an object with the finalizer of a previous controller gets the engine's name",
			object(func(r *v1beta1.Rollout) {
				delete(r.Annotations, KeyEngine)
			}), deployment(nil), 0, DoAddFinalizer, ""},
		{"a deleted object needs no engine's name", object(both(func(r *v1beta1.Rollout) {
			delete(r.Annotations, KeyEngine)
		}, deleted)), nil, 0, DoRemoveFinalizer, ""},
		{"a missing strategy hash is written", object(func(r *v1beta1.Rollout) {
			delete(r.Annotations, AnnotationHash)
		}), deployment(nil), 0, DoWriteHash, ""},
		{"the named workload is marked", object(nil), deployment(func(w *Workload) { w.Labels = nil }), 0, DoMark, ""},
		{"a complete workload whose status is shown needs nothing", object(nil), deployment(nil), 0, DoNothing, ""},
		{"a new size is shown", object(nil), deployment(func(w *Workload) {
			w.Updated, w.Ready, w.Total, w.Generation = 6, 6, 6, 2
		}), 0, DoWriteStatus, ""},
		{"a template change without a hold is reported", object(nil), deployment(unheld), 0, DoReport, ""},
		{"not of a workload without pods", object(nil), deployment(func(w *Workload) {
			unheld(w)
			w.Size = 0
		}), 0, DoWriteStatus, ""},
		{"nor of one whose controller moves no pod by itself", object(nil), deployment(func(w *Workload) {
			unheld(w)
			w.Moves = false
		}), 0, DoWriteStatus, ""},
		{"nor if only the digest is another one, after an upgrade of the engine", object(nil),
			deployment(func(w *Workload) {
				unheld(w)
				w.Generation = 1
			}), 0, DoWriteStatus, ""},
		{"nor while the Rollout is disabled", object(both(disabled, func(r *v1beta1.Rollout) {
			r.Spec.Disabled, r.Status.Phase = false, v1beta1.PhaseDisabled
		})), deployment(unheld), 0, DoWriteStatus, ""},
		{"a new object asks whether a change came before its first look", object(first), deployment(nil), time.Minute,
			DoReport, ""},
		{"an old one does not", object(first), deployment(nil), time.Hour, DoWriteStatus, ""},
		{"unless pods of two templates are there", object(first), deployment(func(w *Workload) {
			w.Updated, w.Total = 1, 5
		}), time.Hour, DoReport, ""},
		{"an object of another controller asks nothing", object(both(first, func(r *v1beta1.Rollout) {
			r.Status.Phase = v1beta1.PhaseHealthy
		})), deployment(nil), time.Minute, DoWriteStatus, ""},
		{"a change that was held before the first look is announced", object(first), deployment(func(w *Workload) {
			held(w)
			w.Updated = 0
		}), time.Minute, DoWriteStatus, ""},
		{"and its release starts", object(both(first, func(r *v1beta1.Rollout) {
			r.Status = AnnouncedStatus(r, deployment(held), "", noon)
		})), deployment(func(w *Workload) {
			held(w)
			w.Updated = 0
		}), time.Minute, DoStart, ""},
		{"a held change is announced", object(nil), deployment(held), 0, DoWriteStatus, ""},
		{"for three seconds the object may still be edited", object(announced), deployment(held), 2 * time.Second,
			DoNothing, ""},
		{"then the release starts", object(announced), deployment(held), 3 * time.Second, DoStart, ""},
		{"a workload paused by its owner waits until it is resumed", object(announced), deployment(func(w *Workload) {
			held(w)
			w.Held["/spec/paused"] = json.RawMessage("true")
		}), time.Minute, DoWriteStatus, ""},
		{"the hold ends when the template is the stable one again", object(announced), deployment(func(w *Workload) {
			held(w)
			w.Template = "old"
		}), time.Minute, DoUnhold, ""},
		{"it also ends when all pods have the template and the stable template is unknown",
			object(announcedWithoutTemplate), deployment(func(w *Workload) {
				held(w)
				w.Template = "old"
			}), time.Minute, DoUnhold, ""},
		{"with pods of another template the release starts", object(announcedWithoutTemplate),
			deployment(func(w *Workload) {
				held(w)
				w.Updated = 0
			}), time.Minute, DoStart, ""},
		{"an outdated status does not prove that all pods are updated", object(announcedWithoutTemplate),
			deployment(func(w *Workload) {
				held(w)
				w.Observed = 1
			}), time.Minute, DoStart, ""},
		{"another release that claims the workload is waited for", object(announced), deployment(func(w *Workload) {
			held(w)
			w.Claim = "task/x"
		}), time.Minute, DoNothing, ""},
		{"a template that waited for another release starts automatically", object(announced),
			deployment(func(w *Workload) { w.Next = "new" }), time.Minute, DoStart, ""},
		{"a changed rollout-id alone is announced too", object(nil), deployment(numbered("7")), 0, DoWriteStatus, ""},
		{"and starts a release", object(func(r *v1beta1.Rollout) {
			r.Status = AnnouncedStatus(r, deployment(numbered("7")), "", noon)
		}), deployment(numbered("7")), 3 * time.Second,
			DoStart, ""},
		{"the released rollout-id starts none", object(func(r *v1beta1.Rollout) {
			r.Status.Slipway.RolloutID = "7"
		}), deployment(numbered("7")), 0, DoWriteStatus, ""},
		{"nor does the rollout-id of a workload without pods", object(nil), deployment(func(w *Workload) {
			numbered("7")(w)
			w.Size = 0
		}), 3 * time.Second, DoWriteStatus, ""},
		{"a changed rollout-id and a held change are one release", object(announced), deployment(func(w *Workload) {
			numbered("7")(w)
			held(w)
		}), 3 * time.Second, DoStart, ""},
		{"StepReady is an approval", object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) {
			r.Status.CanaryStatus.CurrentStepState = "StepReady"
		})),
			deployment(claimed("new")), 0, DoCommand, rollout.VerbApprove},
		{"another next step is a jump", object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) {
			r.Status.CanaryStatus.NextStepIndex = 1
		})),
			deployment(claimed("new")), 0, DoCommand, rollout.VerbJump},
		{"the stable template set by a user is a rollback", object(open(rollout.StatePaused)),
			deployment(claimed("old")), 0, DoCommand, rollout.VerbRollback},
		{"set by the release itself it is not", object(open(rollout.StatePaused)), deployment(func(w *Workload) {
			claimed("old")(w)
			w.Saved.FinalTemplateBy = "claim stable"
		}), 0, DoWriteStatus, ""},
		{"a change before the workload is claimed stops the release", object(open(rollout.StateUpgrade)),
			deployment(func(w *Workload) {
				held(w)
				w.Template = "newer"
			}), 0, DoCommand, rollout.VerbStop},
		{"a release that has restored everything has ended: its end will be shown", object(open(rollout.StateUpgrade)),
			deployment(nil), 0, DoNothing, ""},
		{"a third template supersedes the second", object(open(rollout.StatePaused)), deployment(claimed("newer")), 0,
			DoSupersede, ""},
		{"but not in a blue-green", object(both(func(r *v1beta1.Rollout) {
			r.Spec.Strategy = v1beta1.RolloutStrategy{BlueGreen: &v1beta1.BlueGreenStrategy{Steps: make(
				[]v1beta1.CanaryStep, 2)}}
			r.Annotations[AnnotationHash] = StrategyHash(r.Spec.Strategy)
		}, open(rollout.StateUpgrade))), deployment(claimed("newer")), 0, DoNothing, ""},
		{"a release stalled by a redeclaration is retried once its template is declared again",
			object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) {
				r.Status.Conditions = append(r.Status.Conditions,
					v1beta1.Condition{Type: v1beta1.ConditionStalled, Status: "True", Reason: reasonRedeclared})
			})), deployment(claimed("new")), 0, DoCommand, rollout.VerbRetry},
		{"new pods of a step are not counted at once", object(open(rollout.StateUpgrade)), deployment(partlyUpdated),
			2 * time.Second, DoNothing, ""},
		{"but periodically", object(open(rollout.StateUpgrade)), deployment(partlyUpdated), 21 * time.Second,
			DoWriteStatus, ""},
		{"an edit of the object is forwarded to its release",
			object(both(open(rollout.StateUpgrade), func(r *v1beta1.Rollout) {
				r.Generation = 2
			})), deployment(claimed("new")), 0,
			DoReplan, rollout.VerbReplan},
		{"a disabled object detaches its release first", object(both(open(rollout.StatePaused), disabled)),
			deployment(claimed("new")), 0, DoCommand, rollout.VerbDetach},
		{"then it removes the marks from its workload", object(disabled), deployment(nil), 0, DoUnmark, ""},
		{"then it shows that", object(disabled), deployment(func(w *Workload) {
			w.Labels = nil
		}), 0, DoWriteStatus, ""},
		{"a deleted object detaches its release too", object(both(open(rollout.StatePaused), deleted)),
			deployment(claimed("new")), 0, DoCommand, rollout.VerbDetach},
		{"and then loses its finalizer", object(deleted), deployment(func(w *Workload) {
			w.Labels = nil
		}), 0, DoRemoveFinalizer, ""},
		{"also if its workload was deleted", object(deleted), nil, 0, DoRemoveFinalizer, ""},
		{"a release whose workload was deleted ends", object(open(rollout.StateUpgrade)), nil, 0, DoCommand,
			rollout.VerbDetach},
	} {
		next := Decide(Snapshot{Object: c.object, Workload: c.workload, Now: noon.Add(c.now)})
		require.Equal(t, c.do, next.Kind, "%s: %s", c.reason, next.Reason)
		require.Equal(t, c.verb, next.Command.Verb, c.reason)
	}
}

// A rollout-id that a workload has when it is first seen, while its Rollout is disabled, or without pods, needs no
// release.
func TestFirstRolloutID_StartsNoRelease(t *testing.T) {
	t.Parallel()
	first := object(func(r *v1beta1.Rollout) { r.Status = v1beta1.RolloutStatus{} })
	require.Equal(t, "7", IdleStatus(first, deployment(numbered("7")), noon).Slipway.RolloutID,
		"the first rollout-id needs no release")
	require.Empty(t, IdleStatus(object(nil), deployment(numbered("7")), noon).Slipway.RolloutID,
		"a later rollout-id is a new one")
	disabled := object(func(r *v1beta1.Rollout) { r.Spec.Disabled = true })
	require.Equal(t, "7", IdleStatus(disabled, deployment(numbered("7")), noon).Slipway.RolloutID,
		"a disabled Rollout releases nothing")
	missing := object(nil)
	missing.Status = IdleStatus(missing, nil, noon)
	require.Equal(t, "7", IdleStatus(missing, deployment(numbered("7")), noon).Slipway.RolloutID,
		"a recreated workload is a new one")
	begun := Decide(Snapshot{Object: object(func(r *v1beta1.Rollout) {
		r.Status = AnnouncedStatus(r, deployment(numbered("7")), "", noon)
	}), Workload: deployment(func(w *Workload) {
		numbered("7")(w)
		w.By = "alice"
	}), Now: noon.Add(AnnouncementDelay)})
	require.Equal(t, DoStart, begun.Kind)
	require.Empty(t, begun.By, "alice changed the template earlier: no policy records who changes a label")
	require.Equal(t, "the workload's rollout-id has changed", begun.Reason)
	require.True(t, begun.Declared.NewID)
	changed := Decide(Snapshot{Object: object(announced), Workload: deployment(func(w *Workload) {
		numbered("7")(w)
		held(w)
	}), Now: noon.Add(AnnouncementDelay)})
	require.Equal(t, DoStart, changed.Kind)
	require.False(t, changed.Declared.NewID, "with another template, pods are replaced")
}

// A release of a new rollout-id has one version, in every style: a blue-green can be replaced by another one.
func TestThirdVersion_SupersedesBlueGreen_WhenOnlyRolloutIDIsNew(t *testing.T) {
	t.Parallel()
	r := object(func(r *v1beta1.Rollout) {
		r.Spec.Strategy.BlueGreen, r.Spec.Strategy.Canary = &v1beta1.BlueGreenStrategy{
			Steps: make([]v1beta1.CanaryStep, 2)}, nil
		open(rollout.StatePaused)(r)
		r.Annotations[AnnotationHash] = StrategyHash(r.Spec.Strategy)
	})
	for stable, replaced := range map[string]bool{"old": false, "new": true} {
		w := deployment(claimed("third"))
		w.Saved.StableTemplate = stable
		next := Decide(Snapshot{Object: r, Workload: w, Now: noon})
		require.Equal(t, replaced, next.Kind == DoSupersede, "the stable template is %s: %s", stable, next.Kind)
	}
}

// A definition of the upstream project, or of an older build, drops unknown status fields. The released version must
// not be released again and again, and a changed rollout-id still starts a release.
func TestRolloutID_StartsNoSecondRelease_WhenStatusFieldIsDropped(t *testing.T) {
	t.Parallel()
	over := noon
	v := rollout.View{Template: "old", Status: rollout.Status{Phase: rollout.PhaseHealthy, RolloutID: "7",
		FinishedAt: &over, Record: "shop-web-1",
		Steps: make([]rollout.StepStatus, 2)}}
	released := object(func(r *v1beta1.Rollout) { r.Status = ReleaseStatus(v, r, noon) })
	require.Equal(t, DoWriteStatus, settledAction(t, released, deployment(numbered("7"))), "it was released")
	require.Equal(t, DoStart, settledAction(t, released, deployment(numbered("8"))),
		"a new rollout-id is a new release")
	first := object(func(r *v1beta1.Rollout) { r.Status = v1beta1.RolloutStatus{} })
	require.Equal(t, DoWriteStatus, settledAction(t, first, deployment(numbered("7"))),
		"the first rollout-id needs no release either")
	released.Status.Slipway = dropped(released.Status.Slipway)
	require.Equal(t, "7", IdleStatus(released, deployment(numbered("7")), noon).Slipway.RolloutID,
		"once the field can be stored, it is written again")
}

// settled returns the next action once writing the status changes nothing any more, on a cluster that drops the
// rollout-id of each status.
func settledAction(t *testing.T, r *v1beta1.Rollout, w *Workload) ActionKind {
	t.Helper()
	r = r.DeepCopy()
	r.Status.Slipway = dropped(r.Status.Slipway)
	for range 10 {
		next := Decide(Snapshot{Object: r, Workload: w, Now: noon.Add(time.Hour)})
		if next.Kind != DoWriteStatus {
			if next.Kind == DoNothing && !next.At.IsZero() {
				next = Decide(Snapshot{Object: r, Workload: w, Now: next.At})
			}
			return next.Kind
		}
		next.Status.Slipway = dropped(next.Status.Slipway)
		if SameStatus(*next.Status, r.Status) {
			return DoWriteStatus
		}
		r.Status = *next.Status
	}
	require.Fail(t, "the status never settles", "%+v", r.Status)
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

// A pause from the object's spec ends when the spec unpauses, however soon: the status may show the pause only after
// the spec has changed again.
func TestRolloutPause_EndsWithSpec_OnlyWhenObjectPaused(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		r := object(func(r *v1beta1.Rollout) { r.Generation = 3 }) // paused at generation 2, and not any more
		v := rollout.View{Template: "new", Generation: 2, PausedByObject: own,
			Status: rollout.Status{Phase: rollout.PhaseProgressing, CurrentStepIndex: 1, NextStepIndex: 2,
				Paused: true, CurrentStepState: rollout.StatePaused, Steps: make([]rollout.StepStatus, 2)}}
		r.Status = ReleaseStatus(v, r, noon)
		next := Decide(Snapshot{Object: r, Workload: deployment(claimed("new")), Now: noon})
		require.Equal(t, DoReplan, next.Kind)
		require.Equal(t, own, next.First != nil && next.First.Verb == rollout.VerbResume,
			"a pause sent another way stays")
		r.Status.ObservedGeneration = 3
		next = Decide(Snapshot{Object: r, Workload: deployment(claimed("new")), Now: noon})
		require.Equal(t, own, next.Kind == DoCommand && next.Command.Verb == rollout.VerbResume,
			"also when the object was unpaused before the status showed the pause")
	}
}

// The same state seen twice results in one command: several servers see it.
func TestDecide_ReturnsSameKey_ForSameState(t *testing.T) {
	t.Parallel()
	approved := object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) {
		r.Status.CanaryStatus.CurrentStepState = "StepReady"
	}))
	first := Decide(Snapshot{Object: approved, Workload: deployment(claimed("new")), Now: noon})
	again := Decide(Snapshot{Object: approved.DeepCopy(), Workload: deployment(claimed("new")),
		Now: noon.Add(time.Second)})
	require.Equal(t, first.Key, again.Key, "two servers, or one that restarted")
	approved.Status.Slipway.Seq++
	later := Decide(Snapshot{Object: approved, Workload: deployment(claimed("new")), Now: noon})
	require.NotEqual(t, first.Key, later.Key, "a reaction to another state is another command")

	waiting := object(open(rollout.StatePaused))
	for _, template := range []string{"old", "newer"} {
		first = Decide(Snapshot{Object: waiting, Workload: deployment(claimed(template)), Now: noon})
		again = Decide(Snapshot{Object: waiting, Now: noon, Workload: deployment(func(w *Workload) {
			claimed(template)(w)
			w.Generation++
		})})
		require.Equal(t, first.Key, again.Key, "a release that rolls back writes to the workload before its status "+
			"shows that")
	}

	disabled := object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) {
		r.Spec.Disabled, r.Generation = true, 2
	}))
	first = Decide(Snapshot{Object: disabled, Workload: deployment(claimed("new")), Now: noon})
	disabled.Status.Slipway.Seq++
	again = Decide(Snapshot{Object: disabled, Workload: deployment(claimed("new")), Now: noon})
	require.Equal(t, first.Key, again.Key, "a release that detaches writes a new status for each of its steps")
	disabled.Status.Conditions = append(disabled.Status.Conditions,
		v1beta1.Condition{Type: v1beta1.ConditionStalled, Status: "True"})
	require.NotEqual(t, first.Key, Decide(Snapshot{Object: disabled, Workload: deployment(claimed("new")),
		Now: noon}).Key, "a stalled release is asked again")

	first = Decide(Snapshot{Object: object(announced), Workload: deployment(held), Now: noon.Add(AnnouncementDelay)})
	other := Decide(Snapshot{Object: object(announced), Now: noon.Add(AnnouncementDelay),
		Workload: deployment(func(w *Workload) {
			held(w)
			w.Template = "newer"
		})})
	require.Equal(t, DoStart, other.Kind)
	require.NotEqual(t, first.Key, other.Key, "the process that started the first release may have died before the "+
		"release ran")
}

// The release does not overwrite the counts that were shown while a step's pods start: it counts them only once they
// are ready.
func TestPodsOfAStepAreCounted_WhileTheyStart(t *testing.T) {
	t.Parallel()
	r := object(open(rollout.StateUpgrade))
	next := Decide(Snapshot{Object: r, Workload: deployment(partlyUpdated), Now: noon.Add(time.Second)})
	require.Equal(t, noon.Add(countEvery), next.At, "the next count is due then")
	next = Decide(Snapshot{Object: r, Workload: deployment(partlyUpdated), Now: next.At})
	require.Equal(t, int32(1), next.Status.CanaryStatus.CanaryReplicas)
	require.Equal(t, int32(1), next.Status.CanaryStatus.CanaryReadyReplicas, "four are ready, and three are old")
	r.Status = *next.Status
	extra := deployment(partlyUpdated)
	extra.Saved.Style = strategy.StyleCanary
	counted := Decide(Snapshot{Object: r, Workload: extra, Extra: &Extra{Total: 2, Ready: 1}, Now: noon.Add(countEvery)})
	require.Equal(t, int32(2), counted.Status.CanaryStatus.CanaryReplicas, "those of an extra workload too")
	require.Equal(t, DoNothing, Decide(Snapshot{Object: r, Workload: extra, Now: noon.Add(countEvery)}).Kind,
		"it has none yet")
	v := rollout.View{Template: "new", Status: rollout.Status{Phase: rollout.PhaseProgressing, CurrentStepIndex: 1,
		CurrentStepState: rollout.StateUpgrade,
		Replicas:         4, Steps: make([]rollout.StepStatus, 2)}}
	require.Equal(t, int32(1), ReleaseStatus(v, r, noon).CanaryStatus.CanaryReplicas)
	v.Ending = rollout.EndRollback
	require.Equal(t, int32(0), ReleaseStatus(v, r, noon).CanaryStatus.CanaryReplicas,
		"during a rollback their number falls")
	v.Ending = rollout.EndNone
	v.Status.CurrentStepState = rollout.StateTrafficRouting
	require.Equal(t, int32(0), ReleaseStatus(v, r, noon).CanaryStatus.CanaryReplicas,
		"after the upgrade the release's own count is shown")
}

// The announced revisions stay visible until the release reports its own: they never disappear in between.
func TestAnnouncedRevisionsStay_UntilReleaseReportsItsOwn(t *testing.T) {
	t.Parallel()
	r := object(announced)
	r.Status.CanaryStatus.CanaryRevision, r.Status.CanaryStatus.PodTemplateHash,
		r.Status.CanaryStatus.ObservedRolloutID = "r2", "r2", "r2"
	first := rollout.View{Template: "new", Status: rollout.Status{Record: "one", Phase: rollout.PhaseProgressing,
		CurrentStepIndex: 1, Steps: make([]rollout.StepStatus, 2)}}
	shows := func(v rollout.View) []string {
		s := ReleaseStatus(v, r, noon).CanaryStatus
		return []string{s.CanaryRevision, s.PodTemplateHash, s.ObservedRolloutID, s.StableRevision}
	}
	require.Equal(t, []string{"r2", "r2", "r2", "r1"}, shows(first), "it is still claiming the workload")
	r.Status = ReleaseStatus(first, r, noon)
	require.Equal(t, []string{"r2", "r2", "r2", "r1"}, shows(first),
		"it is still claiming the workload, one status later")
	second := first
	second.Status.Record = "two"
	require.Equal(t, []string{"", "", "", ""}, shows(second),
		"another release replaced it: its revisions are unknown yet")
	known := first
	known.Status.CanaryRevision, known.Status.PodTemplateHash, known.Status.StableRevision = "r3", "r3", "r0"
	require.Equal(t, []string{"r3", "r3", "r3", "r0"}, shows(known),
		"the workload was changed again before it was claimed")
	ended := first
	ended.Status.FinishedAt = &noon
	require.Empty(t, ReleaseStatus(ended, r, noon).CanaryStatus.CanaryRevision,
		"it ended before it claimed the workload")
}

func TestStepPausedIsShown_OnlyWhileWaitingForApprovalOrTimer(t *testing.T) {
	t.Parallel()
	view := func(wait rollout.WaitKind, stalled string, ending rollout.Ending) rollout.View {
		return rollout.View{Ending: ending, Stalled: stalled,
			Status: rollout.Status{Phase: rollout.PhaseProgressing, CurrentStepIndex: 1,
				CurrentStepState: rollout.StatePaused, WaitingFor: &rollout.WaitingFor{Kind: wait}}}
	}
	for _, c := range []struct {
		reason string
		view   rollout.View
		shown  bool
	}{
		{"it waits for an approval", view(rollout.WaitApproval, "", rollout.EndNone), true},
		{"it waits for the end of a timed pause", view(rollout.WaitTimer, "", rollout.EndNone), true},
		{"it checks a change by another client", view(rollout.WaitPods, "", rollout.EndNone), false},
		{"it waits for a decision about drift", view(rollout.WaitDrift, "edited", rollout.EndNone), false},
		{"it is rolling back", view(rollout.WaitPods, "", rollout.EndRollback), false},
		{"it is finishing", view(rollout.WaitPods, "", rollout.EndSuccess), false},
	} {
		require.Equal(t, c.shown, ReleaseStatus(c.view, object(nil),
			noon).CurrentStepState == string(rollout.StatePaused), c.reason)
	}
}

func TestUndo_KeepsRolloutIDOfWorkload(t *testing.T) {
	t.Parallel()
	numbered := deployment(func(w *Workload) { w.RolloutID = "7" })
	over := noon
	v := rollout.View{Template: "old", Status: rollout.Status{Phase: rollout.PhaseHealthy, FinishedAt: &over,
		Steps: make([]rollout.StepStatus, 1)}}
	undone := func(r *v1beta1.Rollout) { r.Status.Slipway.RolloutID = "7"; r.Status = ReleaseStatus(v, r, noon) }
	require.Equal(t, DoWriteStatus, Decide(Snapshot{Object: object(undone), Workload: numbered, Now: noon}).Kind,
		"this release has no rollout-id: the workload's rollout-id is announced as a new release")
	require.Equal(t, v1beta1.PhaseProgressing, Decide(
		Snapshot{Object: object(undone), Workload: numbered, Now: noon}).Status.Phase)

	v.Status.Undo = &strategy.Undo{}
	next := Decide(Snapshot{Object: object(undone), Workload: numbered, Now: noon})
	require.Equal(t, v1beta1.PhaseHealthy, next.Status.Phase, "an undo has no rollout-id: no release starts, %s",
		next.Reason)
	require.Equal(t, int32(2), next.Status.CanaryStatus.CurrentStepIndex,
		"it is shown as complete although it had no steps")
	require.Equal(t, int32(2), object(undone).Status.CanaryStatus.CurrentStepIndex)
}

// Clients of Kruise Rollouts compare the revisions in the status with the labels of pods.
func TestStatus_ShowsRevisionsAsPodsHaveThem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ apiVersion, kind, revision, shown string }{
		{"apps/v1", "Deployment", "5f67b774dd", "5f67b774dd"},
		{"apps/v1", "StatefulSet", "web-5f67b774dd", "web-5f67b774dd"},
		{"apps/v1", "DaemonSet", "web-5f67b774dd", "5f67b774dd"},
		{"apps.kruise.io/v1alpha1", "CloneSet", "web-5f67b774dd", "5f67b774dd"},
		{"apps.kruise.io/v1beta1", "StatefulSet", "web-5f67b774dd", "web-5f67b774dd"},
		{"apps.kruise.io/v1alpha1", "DaemonSet", "web-5f67b774dd", "5f67b774dd"},
	} {
		r := object(func(r *v1beta1.Rollout) {
			r.Spec.WorkloadRef.APIVersion, r.Spec.WorkloadRef.Kind = c.apiVersion, c.kind
		})
		w := deployment(func(w *Workload) {
			w.Revision, w.Ref = c.revision, catalog.WorkloadRef{APIVersion: c.apiVersion, Kind: c.kind, Name: "web"}
		})
		v := rollout.View{Template: "new", Status: rollout.Status{StableRevision: c.revision, CanaryRevision: c.revision,
			PodTemplateHash: c.revision, CurrentStepIndex: 1, Steps: make([]rollout.StepStatus, 2)}}
		for _, s := range []v1beta1.RolloutStatus{IdleStatus(r, w, noon), AnnouncedStatus(r, w, "", noon),
			ReleaseStatus(v, r, noon)} {
			common := s.CanaryStatus.CommonStatus
			require.Equal(t, c.shown, s.CanaryStatus.CanaryRevision, c)
			require.Equal(t, c.shown, common.PodTemplateHash, c)
			require.Equal(t, c.shown, common.ObservedRolloutID, c)
			if s.CanaryStatus.StableRevision != "r1" { // announced: the one that served before
				require.Equal(t, c.shown, common.StableRevision, c)
			}
		}
	}
}

// On its way back in batches a release waits at its steps like on its way there: clients see the state in which they
// approve. A rollback at once does not wait for an approval.
func TestStatus_ShowsPauses_OfRollbackInBatches(t *testing.T) {
	t.Parallel()
	back := func(waiting *rollout.WaitingFor) string {
		v := rollout.View{Template: "new", Ending: rollout.EndRollback, Status: rollout.Status{CurrentStepIndex: 1,
			Phase: rollout.PhaseProgressing, CurrentStepState: rollout.StatePaused, WaitingFor: waiting,
			Steps: make([]rollout.StepStatus, 2)}}
		return ReleaseStatus(v, object(nil), noon).CurrentStepState
	}
	require.Equal(t, "StepPaused", back(&rollout.WaitingFor{Kind: rollout.WaitApproval}))
	require.Equal(t, "StepPaused", back(&rollout.WaitingFor{Kind: rollout.WaitTimer}))
	require.Equal(t, "StepUpgrade", back(&rollout.WaitingFor{Kind: rollout.WaitPods}))
	require.Equal(t, "StepUpgrade", back(nil))
}
