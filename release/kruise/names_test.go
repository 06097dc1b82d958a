package kruise

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
)

// Each action that names a user says where the name was read: what records it there decides whether it counts.
func TestActions_SayWhereTheirUserWasRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		snapshot func() Snapshot
		kind     ActionKind
		source   NameSource
		named    string
	}{
		"Approval": {func() Snapshot {
			o := object(open(rollout.StatePaused))
			o.Status.CanaryStatus.CurrentStepState, o.Status.Slipway.By = "StepReady", "cfo"
			return Snapshot{Object: o, Workload: deployment(held)}
		}, DoCommand, NamedInStatus, "cfo"},
		"Edit": {func() Snapshot {
			o := object(open(rollout.StatePaused))
			o.Generation, o.Annotations[gate.AnnotationEditor] = 2, "cfo"
			return Snapshot{Object: o, Workload: deployment(held)}
		}, DoReplan, NamedOnRollout, "cfo"},
		"Pause": {func() Snapshot {
			o := object(open(rollout.StatePaused))
			o.Generation, o.Annotations[gate.AnnotationEditor], o.Spec.Strategy.Paused = 2, "cfo", true
			return Snapshot{Object: o, Workload: deployment(held)}
		}, DoReplan, NamedOnRollout, "cfo"},
		"Disabled": {func() Snapshot {
			o := object(open(rollout.StatePaused))
			o.Spec.Disabled, o.Annotations[gate.AnnotationEditor] = true, "cfo"
			return Snapshot{Object: o, Workload: deployment(held)}
		}, DoCommand, NamedOnRollout, "cfo"},
		"Start": {func() Snapshot {
			o := object(func(o *v1beta1.Rollout) {
				o.Status = AnnouncedStatus(o, deployment(held), "", noon.Add(-AnnouncementDelay))
			})
			return Snapshot{Object: o, Workload: deployment(held), Now: noon}
		}, DoStart, NamedOnWorkload, "alice"},
		"Stop": {func() Snapshot {
			o := object(open(rollout.StatePaused))
			return Snapshot{Object: o, Workload: deployment(func(w *Workload) { held(w); w.Template = "third" })}
		}, DoCommand, NamedOnWorkload, "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := Decide(c.snapshot())
			require.Equal(t, c.kind, next.Kind, next.Reason)
			require.Equal(t, c.source, next.NameSource)
			require.True(t, next.Named())
			require.Equal(t, c.named, next.By+next.Command.Actor)
			marked := next.Unverified()
			require.Equal(t, "unverified: "+c.named, marked.By+marked.Command.Actor)
			if next.First != nil {
				require.Equal(t, "unverified: "+c.named, marked.First.Actor)
				require.Equal(t, c.named, next.First.Actor, "the action itself is unchanged")
			}
		})
	}
}

// A command without a name has none to mark, and is refused all the same where the gate is required.
func TestRefusedCommand_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	o := object(open(rollout.StatePaused))
	o.Status.CanaryStatus.CurrentStepState = "StepReady"
	next := Decide(Snapshot{Object: o, Workload: deployment(held)})
	require.False(t, next.Named())
	require.Empty(t, next.Unverified().Command.Actor)
	refused := next.RefusedCommand("the gate is not installed").Command
	require.True(t, strings.HasSuffix(refused.Refuse, "(--require-gate): the gate is not installed. `slipway rollout "+
		"approve` works meanwhile"), refused.Refuse)
	require.Equal(t, next.Command.State, refused.State, "the release answers the state that the object shows")
}
