package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/instant"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// seenAt returns the time that many seconds after noon.
func seenAt(seconds int) *instant.Micro {
	at := instant.MicroOf(noon.Add(time.Duration(seconds) * time.Second))
	return &at
}

// numbers returns an observed status: requested, updated, available and unavailable replicas.
func numbers(version string, asked, updated, available, unavailable int32) kuscia.PartyDeploymentStatus {
	return kuscia.PartyDeploymentStatus{Replicas: asked, UpdatedReplicas: updated, AvailableReplicas: available,
		UnavailableReplicas: unavailable,
		Version:             version, ObservedAt: seenAt(0)}
}

// pair returns a serving of bob and alice, in this order, with their status; nil means unknown.
func pair(op *kuscia.Operation, bob, alice *kuscia.PartyDeploymentStatus) *kuscia.KusciaDeployment {
	kd := &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: "s1", UID: "u1"},
		Spec: kuscia.KusciaDeploymentSpec{Parties: []kuscia.Party{{DomainID: "bob"},
			{DomainID: "alice", Role: "host"}}}}
	kd.Status.Operation, kd.Status.Served = op, &kuscia.Served{Digest: "old"}
	all := map[string]map[string]kuscia.PartyDeploymentStatus{}
	if bob != nil {
		all["bob"] = map[string]kuscia.PartyDeploymentStatus{"s1": *bob}
	}
	if alice != nil {
		all["alice"] = map[string]kuscia.PartyDeploymentStatus{"s1-host": *alice}
	}
	kd.Status.PartyDeploymentStatuses = all
	return kd
}

func with(e kuscia.PartyDeploymentStatus, change func(e *kuscia.PartyDeploymentStatus)) *kuscia.PartyDeploymentStatus {
	change(&e)
	return &e
}

var (
	running   = &kuscia.Operation{Kind: serving.KindUpdate, Version: "new"}
	done      = &kuscia.Operation{Kind: serving.KindUpdate, Version: "new", Done: true}
	goingBack = &kuscia.Operation{Kind: serving.KindUpdate, Version: "old", Reason: serving.ReasonUpdateRolledBack,
		Message: "party bob: bad; every party goes back"}
	rolledBack = &kuscia.Operation{Kind: serving.KindUpdate, Version: "old", Done: true,
		Reason: serving.ReasonUpdateRolledBack, Message: "party bob: bad"}
	failedInBob = &kuscia.Operation{Kind: serving.KindRecreate, Version: "new", Done: true,
		Reason: serving.ReasonPartyFailed, Message: "party bob: bad"}
)

type phaseCase struct {
	reason     string
	op         *kuscia.Operation
	bob, alice *kuscia.PartyDeploymentStatus
	unserved   bool
	// The expected phases of the serving and of the two parties.
	whole, ofBob, ofAlice kuscia.Phase
	word, message         string
	available             int
}

var whole = with(numbers("new", 2, 2, 2, 0), func(*kuscia.PartyDeploymentStatus) {})
var wholeOld = with(numbers("old", 2, 2, 2, 0), func(*kuscia.PartyDeploymentStatus) {})
var partial = with(numbers("new", 2, 2, 1, 1), func(e *kuscia.PartyDeploymentStatus) {
	e.PodReason, e.PodMessage = "CrashLoopBackOff", "pod x"
})
var none = with(numbers("new", 2, 2, 0, 2), func(e *kuscia.PartyDeploymentStatus) {
	e.PodReason, e.PodMessage = "ImagePullBackOff", "pod x: no such image"
})
var away = with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Unreachable = "no worker" })
var pulling = with(*none, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "no such image" })

var phaseCases = map[string]phaseCase{
	"nothing begun": {reason: "no operation has begun", whole: kuscia.PhasePending},
	"nothing seen": {reason: "an operation runs, and no party has been observed", op: running,
		whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhasePending, ofAlice: kuscia.PhasePending},
	"half of it seen": {reason: "one party does not run the requested version while the operation runs", op: running,
		bob: whole, whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhaseAvailable, available: 1},
	"all complete while it runs": {reason: "all parties are complete", op: running, bob: whole, alice: whole,
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable,
		ofAlice: kuscia.PhaseAvailable, available: 2},
	"old numbers while it runs": {reason: "replica counts from before an update never count for the new version",
		op: running, bob: wholeOld, alice: wholeOld,
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseProgressing, ofAlice: kuscia.PhaseProgressing},
	"old numbers when it is done": {reason: "the observation of the new version is still missing", op: done, bob: whole,
		alice: wholeOld,
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseProgressing, available: 1},
	"old numbers name no pod": {reason: "the status of an old pod says nothing about the new version", op: running,
		alice: whole,
		bob:   with(*partial, func(e *kuscia.PartyDeploymentStatus) { e.Version = "old" }),
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseProgressing, ofAlice: kuscia.PhaseAvailable, available: 1},
	"fewer than requested while it runs": {reason: "while an operation runs, fewer replicas than requested are " +
		"progress", op: running, bob: partial, alice: whole,
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseProgressing, ofAlice: kuscia.PhaseAvailable, available: 1,
		word: "CrashLoopBackOff", message: "party bob: pod x"},
	"complete": {reason: "ended and complete", op: done, bob: whole, alice: whole, whole: kuscia.PhaseAvailable,
		ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2},
	"fewer than requested": {reason: "ended, every party serves, one with fewer replicas than requested", op: done,
		bob: whole, alice: partial, whole: kuscia.PhasePartialAvailable,
		ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhasePartialAvailable, available: 2, word: "CrashLoopBackOff",
		message: "party alice/host: pod x"},
	"pods lost an hour later": {reason: "a party without an available replica does not serve, also when no operation runs", op: done, bob: whole, alice: none,
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseProgressing, available: 1,
		word: "ImagePullBackOff", message: "party alice/host: pod x: no such image"},
	"surging": {reason: "an unavailable new pod and an available old one are not complete", op: done, bob: whole,
		alice: with(numbers("new", 1, 1, 1, 1), func(*kuscia.PartyDeploymentStatus) {}),
		whole: kuscia.PhasePartialAvailable,
		ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhasePartialAvailable, available: 2},
	"none requested": {reason: "a party with 0 requested replicas is available", op: done,
		bob: with(numbers("new", 0, 0, 0, 0), func(*kuscia.PartyDeploymentStatus) {}), alice: whole,
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2},
	"unreachable": {reason: "an unreachable party is unknown, whatever its last observation", op: done, bob: away,
		alice: whole, whole: kuscia.PhaseUnknown,
		ofBob: kuscia.PhaseUnknown, ofAlice: kuscia.PhaseAvailable, available: 1, word: serving.ReasonPartyUnreachable,
		message: "party bob: no worker"},
	"unreachable while it runs": {reason: "a creation waits for unreachable parties, and the status names them",
		op: running, bob: away, alice: whole, whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhaseUnknown, ofAlice: kuscia.PhaseAvailable, available: 1, word: serving.ReasonPartyUnreachable,
		message: "party bob: no worker"},
	"failed": {reason: "a failure stays visible with its reason", op: failedInBob, bob: pulling, alice: whole,
		whole: kuscia.PhaseFailed,
		ofBob: kuscia.PhaseFailed, ofAlice: kuscia.PhaseAvailable, available: 1, word: serving.ReasonPartyFailed,
		message: "party bob: bad"},
	"failed with some pods": {reason: "available pods do not hide a failure", op: failedInBob, alice: whole,
		bob:   with(*partial, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "bad" }),
		whole: kuscia.PhaseFailed, ofBob: kuscia.PhaseFailed, ofAlice: kuscia.PhaseAvailable, available: 1,
		word: serving.ReasonPartyFailed, message: "party bob: bad"},
	"failed and repaired": {reason: "a failure is cleared when everything that was requested runs", op: failedInBob,
		alice: whole,
		bob:   with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "bad" }),
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2},
	"failed creation": {reason: "a failed creation makes the serving failed, although no party was ever observed",
		op: failedInBob, unserved: true,
		whole: kuscia.PhaseFailed, ofBob: kuscia.PhasePending, ofAlice: kuscia.PhasePending,
		word: serving.ReasonPartyFailed, message: "party bob: bad"},
	"failed creation, repaired": {reason: "the status follows the observations: a complete serving has not failed",
		op: failedInBob, unserved: true, bob: whole, alice: whole,
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2},
	"refused from the start": {reason: "a spec that cannot be run is failed, whatever exists", unserved: true,
		bob: whole, alice: whole,
		op: &kuscia.Operation{Kind: serving.KindRefuse, Done: true, Reason: serving.ReasonValidateFailed,
			Message: "no parties"},
		whole: kuscia.PhaseFailed, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2,
		word: serving.ReasonValidateFailed, message: "no parties"},
	"a change refused": {reason: "the serving continues, and the refusal is shown", bob: whole, alice: whole,
		op: &kuscia.Operation{Kind: serving.KindRefuse, Version: "new", Done: true,
			Reason: serving.ReasonValidateFailed, Message: "bad"},
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2,
		word: serving.ReasonValidateFailed, message: "bad"},
	"rollback": {reason: "a rollback is progress, and shows its reason", op: goingBack, bob: wholeOld, alice: whole,
		whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseProgressing, available: 1,
		word: serving.ReasonUpdateRolledBack, message: goingBack.Message},
	"rollback fails": {reason: "a failing rollback is shown as failed, although it is retried", op: goingBack,
		bob: wholeOld, alice: pulling,
		whole: kuscia.PhaseFailed, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseFailed, available: 1,
		word: serving.ReasonUpdateRolledBack, message: goingBack.Message},
	"a party failed, the others go on": {reason: "a running creation has not failed yet", op: running, bob: pulling,
		whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhaseFailed, word: serving.ReasonPartyFailed, message: "party bob: no such image"},
	"rolled back": {reason: "the phase is that of the serving version, and the reason stays until the next " +
		"successful update", op: rolledBack, bob: wholeOld, alice: wholeOld,
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2,
		word: serving.ReasonUpdateRolledBack, message: "party bob: bad"},
	"objects deleted": {reason: "deleted objects are being restored", op: done, alice: whole,
		bob:   with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Missing = []string{"Service/a", "ConfigMap/b"} }),
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseProgressing, ofAlice: kuscia.PhaseAvailable, available: 1,
		word: serving.ReasonObjectsMissing, message: "party bob: another client has deleted Service/a, ConfigMap/b"},
	"two in trouble": {reason: "of several parties in the same phase, the first in the spec provides the reason, not " +
		"the first by name", op: done, bob: partial, alice: partial,
		whole: kuscia.PhasePartialAvailable, ofBob: kuscia.PhasePartialAvailable, ofAlice: kuscia.PhasePartialAvailable,
		available: 2,
		word:      "CrashLoopBackOff", message: "party bob: pod x"},
}

func TestUpdatePhases(t *testing.T) {
	t.Parallel()
	for name, tc := range phaseCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kd := pair(tc.op, tc.bob, tc.alice)
			if tc.unserved {
				kd.Status.Served = nil
			}
			serving.UpdatePhases(kd)
			st := kd.Status
			require.Equal(t, tc.whole, st.Phase, tc.reason)
			require.Equal(t, tc.ofBob, st.PartyDeploymentStatuses["bob"]["s1"].Phase, tc.reason)
			require.Equal(t, tc.ofAlice, st.PartyDeploymentStatuses["alice"]["s1-host"].Phase, tc.reason)
			require.Equal(t, tc.word, st.Reason, tc.reason)
			require.Equal(t, tc.message, st.Message, tc.reason)
			require.Equal(t, tc.available, st.AvailableParties, tc.reason)
			require.Equal(t, 2, st.TotalParties)
			again := kd.DeepCopy()
			serving.UpdatePhases(again)
			require.Equal(t, kd, again, "repeating it changes nothing")
		})
	}
}

func TestUpdatePhases_DropsUnknownParties(t *testing.T) {
	t.Parallel()
	kd := pair(done, whole, whole)
	kd.Status.PartyDeploymentStatuses["carol"] = map[string]kuscia.PartyDeploymentStatus{"s1": *none}
	kd.Status.PartyDeploymentStatuses["alice"]["s1-guest"] = *none
	serving.UpdatePhases(kd)
	require.Equal(t, kuscia.PhaseAvailable, kd.Status.Phase, "parties outside of the spec do not count")
	require.NotContains(t, kd.Status.PartyDeploymentStatuses, "carol")
	require.NotContains(t, kd.Status.PartyDeploymentStatuses["alice"], "s1-guest")
}

func TestUpdatePhases_ClearsFailure_WhenNoOperationRuns(t *testing.T) {
	t.Parallel()
	repaired := with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "bad" })
	kd := pair(running, repaired, whole)
	serving.UpdatePhases(kd)
	require.Equal(t, "bad", kd.Status.PartyDeploymentStatuses["bob"]["s1"].Failure,
		"only the running operation may clear its failure")
	kd = pair(failedInBob, repaired, whole)
	serving.UpdatePhases(kd)
	require.Empty(t, kd.Status.PartyDeploymentStatuses["bob"]["s1"].Failure)
}

func TestUpdatePhases_ShowsFailedRemoval(t *testing.T) {
	t.Parallel()
	stuck := with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "it lacks a permission" })
	kd := pair(&kuscia.Operation{Kind: serving.KindDelete}, stuck, nil)
	serving.UpdatePhases(kd)
	require.Equal(t, kuscia.PhaseFailed, kd.Status.PartyDeploymentStatuses["bob"]["s1"].Phase,
		"a party that cannot be removed is failed, even if it serves")
	require.Equal(t, kuscia.PhaseFailed, kd.Status.Phase)
	require.Contains(t, kd.Status.Message, "it lacks a permission")
}

// snapshotOf returns a snapshot of bob's Deployment "d1" at some resourceVersion.
func snapshotOf(version string, available int32) serving.DeploymentSnapshot {
	return serving.DeploymentSnapshot{ObservedDeployment: serving.ObservedDeployment{DeploymentUID: "d1",
		CreatedAt: noon.UTC(), ResourceVersion: version, Replicas: 2}, UpdatedReplicas: 2, AvailableReplicas: available,
		UnavailableReplicas: 2 - available, Version: "new"}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	of := func(seen serving.DeploymentSnapshot) serving.Observation {
		return serving.Observation{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1", Snapshot: seen}
	}
	but := func(seen serving.DeploymentSnapshot, change func(
		s *serving.DeploymentSnapshot)) serving.DeploymentSnapshot {
		change(&seen)
		return seen
	}
	cases := map[string]struct {
		reason string
		o      serving.Observation
		news   bool
	}{
		"more": {"other replica counts are new", of(snapshotOf("11", 2)), true},
		"same": {"the same replica counts are not written again", of(snapshotOf("12", 1)), false},
		"missing": {"a dependent object is deleted without a change of the Deployment itself",
			of(but(snapshotOf("10", 1), func(s *serving.DeploymentSnapshot) {
				s.Missing = []string{"Service/a"}
			})), true},
		"absent": {"a deleted Deployment is reported with its last resourceVersion",
			of(snapshotOf("10", 1).Deleted("s1")), true},
		"late":   {"an observation of an older resourceVersion arrived late", of(snapshotOf("9", 2)), false},
		"digits": {"resourceVersions are compared as numbers", of(snapshotOf("9999", 2)), true},
		"remade": {"a recreated Deployment has new resourceVersions",
			of(but(snapshotOf("3", 0), func(s *serving.DeploymentSnapshot) {
				s.DeploymentUID, s.CreatedAt = "d2", noon.Add(time.Second)
			})), true},
		"before": {"an observation of the previous Deployment arrived late",
			of(but(snapshotOf("99", 0), func(s *serving.DeploymentSnapshot) {
				s.DeploymentUID, s.CreatedAt = "d0", noon.Add(-time.Second)
			})), false},
		"another": {"a deleted serving of the same name is another one",
			serving.Observation{ID: "s1", UID: "u0", Domain: "bob", Deployment: "s1", Snapshot: snapshotOf("11", 2)},
			false},
		"stranger": {"a party that the serving does not have is ignored",
			serving.Observation{ID: "s1", UID: "u1", Domain: "carol", Deployment: "s1", Snapshot: snapshotOf("11", 2)},
			false},
		"other role": {"a Deployment that the party does not have is ignored",
			serving.Observation{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1-host",
				Snapshot: snapshotOf("11", 2)}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kd := pair(done, nil, nil)
			require.True(t, serving.Observe(kd, []serving.Observation{of(snapshotOf("10", 1))}, noon),
				"the first observation is new")
			serving.MarkUnreachable(kd, map[string]string{"bob": "silent"})
			before := kd.Status.PartyDeploymentStatuses["bob"]["s1"]
			before.Unreachable = "" // an observation shows that the worker is reachable
			setBob(kd, before)
			require.Equal(t, tc.news, serving.Observe(kd, []serving.Observation{tc.o}, noon.Add(5*time.Second)),
				tc.reason)
			require.NotContains(t, kd.Status.PartyDeploymentStatuses, "carol", tc.reason)
			require.NotContains(t, kd.Status.PartyDeploymentStatuses["bob"], "s1-host", tc.reason)
			entry := kd.Status.PartyDeploymentStatuses["bob"]["s1"]
			if !tc.news {
				require.Equal(t, before, entry, tc.reason)
				return
			}
			require.Equal(t, seenAt(5), entry.ObservedAt, tc.reason)
			require.Equal(t, tc.o.Snapshot.AvailableReplicas, entry.AvailableReplicas, tc.reason)
			require.Equal(t, tc.o.Snapshot.Missing, entry.Missing, tc.reason)
		})
	}
}

func setBob(kd *kuscia.KusciaDeployment, entry kuscia.PartyDeploymentStatus) {
	kd.Status.PartyDeploymentStatuses["bob"]["s1"] = entry
}

func TestObserve_AcceptsOlderVersion_WhenClusterWasRestored(t *testing.T) {
	t.Parallel()
	kd := pair(done, nil, nil)
	o := serving.Observation{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1", Snapshot: snapshotOf("1000", 2)}
	require.True(t, serving.Observe(kd, []serving.Observation{o}, noon))
	o.Snapshot = snapshotOf("10", 1)
	require.False(t, serving.Observe(kd, []serving.Observation{o}, noon.Add(time.Minute)),
		"an observation that arrived late")
	require.True(t, serving.Observe(kd, []serving.Observation{o}, noon.Add(10*time.Minute)),
		"no observation takes that long: the cluster was restored from a backup")
}

func TestObserve_ClearsUnreachable(t *testing.T) {
	t.Parallel()
	kd := pair(done, away, nil)
	require.True(t, serving.Observe(kd, []serving.Observation{{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1",
		Snapshot: snapshotOf("1", 2)}}, noon))
	require.Empty(t, kd.Status.PartyDeploymentStatuses["bob"]["s1"].Unreachable)
}

func TestObserve_CopiesConditions(t *testing.T) {
	t.Parallel()
	kd := pair(done, nil, nil)
	seen := snapshotOf("1", 2)
	seen.Conditions = []serving.ConditionSnapshot{{Type: "Progressing", Status: "True", Reason: "r", Message: "m",
		UpdatedAt: noon, ChangedAt: noon.Add(time.Second)}}
	require.True(t, serving.Observe(kd, []serving.Observation{{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1",
		Snapshot: seen}}, noon))
	require.Equal(t, []appsv1.DeploymentCondition{{Type: "Progressing", Status: "True", Reason: "r", Message: "m",
		LastUpdateTime:     metav1.NewTime(noon),
		LastTransitionTime: metav1.NewTime(noon.Add(time.Second))}},
		kd.Status.PartyDeploymentStatuses["bob"]["s1"].Conditions)
}

// TestRemovedParties_DoNotCountButStay checks parties that an operation has included and the spec has removed: they do
// not count, but are kept.
func TestRemovedParties_DoNotCountButStay(t *testing.T) {
	t.Parallel()
	kd := pair(done, whole, nil)
	serving.MarkBegun(kd, []serving.PartyTarget{{Domain: "bob", Deployment: "s1", Queue: "q-bob"},
		{Domain: "alice", Role: "host", Deployment: "s1-host", Queue: "q-alice"},
		{Domain: "carol", Role: "guest", Deployment: "s1-guest", Queue: "q-carol"}})
	serving.UpdatePhases(kd)
	require.Equal(t, []serving.PartyTarget{{Domain: "carol", Role: "guest", Deployment: "s1-guest", Queue: "q-carol"}},
		serving.RemovedParties(kd))
	require.Equal(t, 2, kd.Status.TotalParties)
	require.Equal(t, 1, kd.Status.AvailableParties)
	o := serving.Observation{ID: "s1", UID: "u1", Domain: "carol", Deployment: "s1-guest", Snapshot: snapshotOf("1", 2)}
	require.True(t, serving.Observe(kd, []serving.Observation{o}, noon), "its Deployment is still observed")
	kd.Spec.Parties = append(kd.Spec.Parties, kuscia.Party{DomainID: "carol", Role: "guest"})
	serving.UpdatePhases(kd)
	require.Empty(t, serving.RemovedParties(kd))
	require.Equal(t, "q-carol", kd.Status.PartyDeploymentStatuses["carol"]["s1-guest"].Queue,
		"an observation keeps the party's queue")
	require.Equal(t, 2, kd.Status.AvailableParties, "it counts again as soon as the spec lists it")
}

func changedFields(e kuscia.PartyDeploymentStatus,
	change func(e *kuscia.PartyDeploymentStatus)) kuscia.PartyDeploymentStatus {
	return *with(e, change)
}

func TestObserve_KeepsFailure(t *testing.T) {
	t.Parallel()
	kd := pair(done, pulling, nil)
	serving.UpdatePhases(kd)
	news := serving.Observe(kd, []serving.Observation{{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1",
		Snapshot: snapshotOf("1", 1)}}, noon)
	require.True(t, news)
	require.Equal(t, "no such image", kd.Status.PartyDeploymentStatuses["bob"]["s1"].Failure,
		"an observation keeps the operation's failure")
}

func TestMarkUnreachable(t *testing.T) {
	t.Parallel()
	kd := pair(done, whole, nil)
	require.True(t, serving.MarkUnreachable(kd, map[string]string{"bob": "silent for 21 s", "alice": "never seen",
		"carol": "?"}))
	require.NotContains(t, kd.Status.PartyDeploymentStatuses, "carol")
	require.Equal(t, "never seen", kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Unreachable,
		"a party that was never observed is marked, too")
	require.Equal(t, "host", kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Role)
	older := map[string]string{"bob": "silent for 26 s", "alice": "never seen"}
	require.True(t, serving.IsMarkedUnreachable(kd, older), "IsMarkedUnreachable agrees with MarkUnreachable")
	require.False(t, serving.MarkUnreachable(kd, older), "a longer duration is no change")
	require.False(t, serving.IsMarkedUnreachable(kd, nil), "a party that is reachable again has to be marked")
	require.True(t, serving.MarkUnreachable(kd, map[string]string{"bob": "silent for 31 s"}))
	require.Empty(t, kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Unreachable,
		"a party without a reason is reachable")
	serving.UpdatePhases(kd)
	require.Equal(t, kuscia.PhasePending, kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Phase,
		"a reachable worker says nothing about pods")
}

func TestMarkFailed(t *testing.T) {
	t.Parallel()
	kd := pair(done, pulling, nil)
	serving.MarkFailed(kd, []serving.PartyTarget{{Domain: "bob", Deployment: "s1"},
		{Domain: "alice", Deployment: "s1-host"}}, map[int]string{1: "refused"})
	require.Empty(t, kd.Status.PartyDeploymentStatuses["bob"]["s1"].Failure, "a party without a failure has not failed")
	require.Equal(t, "refused", kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Failure,
		"a party that was never observed can fail")
}

// TestMark_UsesIndicesOfOperation checks that results of an operation are assigned to the right party, although the
// spec has another order.
func TestMark_UsesIndicesOfOperation(t *testing.T) {
	t.Parallel()
	lacks := with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Missing = []string{"Service/a"} })
	kd := pair(done, lacks, lacks)
	parties := []serving.PartyTarget{{Domain: "alice", Deployment: "s1-host"}, {Domain: "bob", Deployment: "s1"}}
	serving.MarkFailed(kd, parties, map[int]string{1: "quota"})
	serving.MarkComplete(kd, parties, map[int]time.Time{0: noon.Add(time.Second)})
	bob, alice := kd.Status.PartyDeploymentStatuses["bob"]["s1"], kd.Status.PartyDeploymentStatuses["alice"]["s1-host"]
	require.Equal(t, "quota", bob.Failure)
	require.NotEmpty(t, bob.Missing, "it is still to be restored")
	require.Empty(t, alice.Failure)
	require.Empty(t, alice.Missing)
}

func TestUpdatePhases_ShowsFailedRemoval_OfRemovedParty(t *testing.T) {
	t.Parallel()
	kd := pair(&kuscia.Operation{Kind: serving.KindDelete}, whole, whole)
	carol := serving.PartyTarget{Domain: "carol", Deployment: "s1", Queue: "q-carol"}
	serving.MarkBegun(kd, []serving.PartyTarget{carol})
	serving.MarkFailed(kd, []serving.PartyTarget{carol}, map[int]string{0: "it lacks a permission"})
	serving.UpdatePhases(kd)
	require.Equal(t, kuscia.PhaseFailed, kd.Status.Phase)
	require.Equal(t, "party carol: it lacks a permission", kd.Status.Message)
}

func TestMarkComplete_ClearsOnlyEarlierDrift(t *testing.T) {
	t.Parallel()
	lacks := with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Missing = []string{"Service/a"} })
	missing := func(complete map[int]time.Time) []string {
		kd := pair(done, lacks, nil)
		serving.MarkComplete(kd, []serving.PartyTarget{{Domain: "bob", Deployment: "s1"},
			{Domain: "alice", Deployment: "s1-host"}}, complete)
		require.NotContains(t, kd.Status.PartyDeploymentStatuses, "alice", "an unobserved party has no status")
		return kd.Status.PartyDeploymentStatuses["bob"]["s1"].Missing
	}
	soon, before := noon.Add(time.Second), noon.Add(-time.Second)
	require.Empty(t, missing(map[int]time.Time{0: soon, 1: soon}), "the party was seen complete since")
	require.NotEmpty(t, missing(map[int]time.Time{0: before}),
		"it was deleted after that, and would not be reported again")
	require.NotEmpty(t, missing(map[int]time.Time{1: soon}), "another party does not matter")
}

func TestCarryReason(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		former   *kuscia.Operation
		op       kuscia.Operation
		expected string
	}{
		"first": {"there is no previous operation", nil, kuscia.Operation{Kind: serving.KindCreate},
			""},
		"recreation": {"restoring objects is not a successful update", rolledBack,
			kuscia.Operation{Kind: serving.KindRecreate}, serving.ReasonUpdateRolledBack},
		"recreation that waits": {"nor is waiting for a cluster", rolledBack,
			kuscia.Operation{Kind: serving.KindRecreate, Reason: serving.ReasonPartyUnreachable},
			serving.ReasonUpdateRolledBack},
		"recreation that fails": {"the new failure has priority", rolledBack,
			kuscia.Operation{Kind: serving.KindRecreate, Reason: serving.ReasonPartyFailed}, serving.ReasonPartyFailed},
		"recreation once more": {"the failure of the previous recreation ends with a successful one", failedInBob,
			kuscia.Operation{Kind: serving.KindRecreate}, ""},
		"update": {"an update has its own reason", rolledBack,
			kuscia.Operation{Kind: serving.KindUpdate}, ""},
		"recreation after refusal": {"a refused change is still refused",
			&kuscia.Operation{Reason: serving.ReasonValidateFailed}, kuscia.Operation{Kind: serving.KindRecreate},
			serving.ReasonValidateFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serving.CarryReason(tc.former, &tc.op)
			require.Equal(t, tc.expected, tc.op.Reason, tc.reason)
		})
	}
}
