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

// seenAt is when something was seen, in seconds after noon.
func seenAt(seconds int) *instant.Micro {
	at := instant.MicroOf(noon.Add(time.Duration(seconds) * time.Second))
	return &at
}

// numbers is what is seen of a Deployment: asked, new and available pods, and those that are not available.
func numbers(version string, asked, updated, available, unavailable int32) kuscia.PartyDeploymentStatus {
	return kuscia.PartyDeploymentStatus{Replicas: asked, UpdatedReplicas: updated, AvailableReplicas: available, UnavailableReplicas: unavailable,
		Version: version, ObservedAt: seenAt(0)}
}

// pair is a serving of bob and alice, in this order, with what is known of them; nil is nothing.
func pair(op *kuscia.Operation, bob, alice *kuscia.PartyDeploymentStatus) *kuscia.KusciaDeployment {
	kd := &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: "s1", UID: "u1"},
		Spec: kuscia.KusciaDeploymentSpec{Parties: []kuscia.Party{{DomainID: "bob"}, {DomainID: "alice", Role: "host"}}}}
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
	running    = &kuscia.Operation{Kind: serving.KindUpdate, Version: "new"}
	done       = &kuscia.Operation{Kind: serving.KindUpdate, Version: "new", Done: true}
	goingBack  = &kuscia.Operation{Kind: serving.KindUpdate, Version: "old", Reason: serving.ReasonUpdateRolledBack, Message: "party bob: bad; every party goes back"}
	rolledBack = &kuscia.Operation{Kind: serving.KindUpdate, Version: "old", Done: true, Reason: serving.ReasonUpdateRolledBack, Message: "party bob: bad"}
	partFailed = &kuscia.Operation{Kind: serving.KindRecreate, Version: "new", Done: true, Reason: serving.ReasonPartyFailed, Message: "party bob: bad"}
)

type phaseCase struct {
	reason     string
	op         *kuscia.Operation
	bob, alice *kuscia.PartyDeploymentStatus
	unserved   bool
	// What the whole and the two parties are expected to be.
	whole, ofBob, ofAlice kuscia.Phase
	word, message         string
	available             int
}

var whole = with(numbers("new", 2, 2, 2, 0), func(*kuscia.PartyDeploymentStatus) {})
var wholeOld = with(numbers("old", 2, 2, 2, 0), func(*kuscia.PartyDeploymentStatus) {})
var partial = with(numbers("new", 2, 2, 1, 1), func(e *kuscia.PartyDeploymentStatus) { e.PodReason, e.PodMessage = "CrashLoopBackOff", "pod x" })
var none = with(numbers("new", 2, 2, 0, 2), func(e *kuscia.PartyDeploymentStatus) {
	e.PodReason, e.PodMessage = "ImagePullBackOff", "pod x: no such image"
})
var away = with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Unreachable = "no worker" })
var pulling = with(*none, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "no such image" })

var phaseCases = map[string]phaseCase{
	"nothing begun": {reason: "nothing is known before an operation has begun", whole: kuscia.PhasePending},
	"nothing seen": {reason: "an operation runs, and nothing has been seen of any party", op: running, whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhasePending, ofAlice: kuscia.PhasePending},
	"half of it seen": {reason: "one party lacks what was asked while the operation runs", op: running, bob: whole, whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhaseAvailable, available: 1},
	"all whole while it runs": {reason: "nobody lacks anything", op: running, bob: whole, alice: whole, whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable,
		ofAlice: kuscia.PhaseAvailable, available: 2},
	"old numbers while it runs": {reason: "numbers of before an update never count for after it", op: running, bob: wholeOld, alice: wholeOld,
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseProgressing, ofAlice: kuscia.PhaseProgressing},
	"old numbers when it is done": {reason: "not even as a part of it: the new ones are on their way", op: done, bob: whole, alice: wholeOld,
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseProgressing, available: 1},
	"old numbers name no pod": {reason: "what a pod of before says is no news of the new version", op: running, alice: whole,
		bob:   with(*partial, func(e *kuscia.PartyDeploymentStatus) { e.Version = "old" }),
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseProgressing, ofAlice: kuscia.PhaseAvailable, available: 1},
	"fewer than asked while it runs": {reason: "while an operation runs, less than asked is progress", op: running, bob: partial, alice: whole,
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseProgressing, ofAlice: kuscia.PhaseAvailable, available: 1,
		word: "CrashLoopBackOff", message: "party bob: pod x"},
	"whole": {reason: "done and whole", op: done, bob: whole, alice: whole, whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2},
	"fewer than asked": {reason: "done, every party serves, one with fewer replicas than asked", op: done, bob: whole, alice: partial, whole: kuscia.PhasePartialAvailable,
		ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhasePartialAvailable, available: 2, word: "CrashLoopBackOff", message: "party alice/host: pod x"},
	"pods lost an hour later": {reason: "a party without an available replica does not serve, also when nothing is being done", op: done, bob: whole, alice: none,
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseProgressing, available: 1,
		word: "ImagePullBackOff", message: "party alice/host: pod x: no such image"},
	"surging": {reason: "one new pod that is not available beside an old one that is does not make it whole", op: done, bob: whole,
		alice: with(numbers("new", 1, 1, 1, 1), func(*kuscia.PartyDeploymentStatus) {}), whole: kuscia.PhasePartialAvailable,
		ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhasePartialAvailable, available: 2},
	"none asked": {reason: "replicas 0 asked counts as available", op: done, bob: with(numbers("new", 0, 0, 0, 0), func(*kuscia.PartyDeploymentStatus) {}), alice: whole,
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2},
	"away": {reason: "what cannot be reached is unknown, whatever was last seen of it", op: done, bob: away, alice: whole, whole: kuscia.PhaseUnknown,
		ofBob: kuscia.PhaseUnknown, ofAlice: kuscia.PhaseAvailable, available: 1, word: serving.ReasonPartyUnreachable, message: "party bob: no worker"},
	"away while it runs": {reason: "a creation waits for the absent, and the status names them", op: running, bob: away, alice: whole, whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhaseUnknown, ofAlice: kuscia.PhaseAvailable, available: 1, word: serving.ReasonPartyUnreachable, message: "party bob: no worker"},
	"failed": {reason: "a failure stays visible with its reason", op: partFailed, bob: pulling, alice: whole, whole: kuscia.PhaseFailed,
		ofBob: kuscia.PhaseFailed, ofAlice: kuscia.PhaseAvailable, available: 1, word: serving.ReasonPartyFailed, message: "party bob: bad"},
	"failed with some pods": {reason: "a failure is not hidden by the pods that are there", op: partFailed, alice: whole,
		bob:   with(*partial, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "bad" }),
		whole: kuscia.PhaseFailed, ofBob: kuscia.PhaseFailed, ofAlice: kuscia.PhaseAvailable, available: 1, word: serving.ReasonPartyFailed, message: "party bob: bad"},
	"failed and repaired": {reason: "a failure goes when everything that was asked runs", op: partFailed, alice: whole,
		bob:   with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "bad" }),
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2},
	"failed creation": {reason: "a creation that failed is failed as a whole, also in a party of which nothing was ever seen", op: partFailed, unserved: true,
		whole: kuscia.PhaseFailed, ofBob: kuscia.PhasePending, ofAlice: kuscia.PhasePending, word: serving.ReasonPartyFailed, message: "party bob: bad"},
	"failed creation, repaired": {reason: "the status keeps up with the world: what runs whole has not failed", op: partFailed, unserved: true, bob: whole, alice: whole,
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2},
	"refused from the start": {reason: "a spec that cannot be run is failed, whatever is there", unserved: true, bob: whole, alice: whole,
		op:    &kuscia.Operation{Kind: serving.KindRefuse, Done: true, Reason: serving.ReasonValidateFailed, Message: "no parties"},
		whole: kuscia.PhaseFailed, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2, word: serving.ReasonValidateFailed, message: "no parties"},
	"a change refused": {reason: "what serves goes on serving, and the refusal is told", bob: whole, alice: whole,
		op:    &kuscia.Operation{Kind: serving.KindRefuse, Version: "new", Done: true, Reason: serving.ReasonValidateFailed, Message: "bad"},
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2, word: serving.ReasonValidateFailed, message: "bad"},
	"going back": {reason: "a way back is an operation, and says why it is taken", op: goingBack, bob: wholeOld, alice: whole, whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseProgressing, available: 1, word: serving.ReasonUpdateRolledBack, message: goingBack.Message},
	"the way back fails": {reason: "nobody should wait in good faith for a way back that fails, although it is tried again", op: goingBack, bob: wholeOld, alice: pulling,
		whole: kuscia.PhaseFailed, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseFailed, available: 1, word: serving.ReasonUpdateRolledBack, message: goingBack.Message},
	"a party failed, the others go on": {reason: "a creation that still runs is not failed as a whole yet", op: running, bob: pulling, whole: kuscia.PhaseProgressing,
		ofBob: kuscia.PhaseFailed, word: serving.ReasonPartyFailed, message: "party bob: no such image"},
	"rolled back": {reason: "the state is what is serving, and the reason stays until the next good update", op: rolledBack, bob: wholeOld, alice: wholeOld,
		whole: kuscia.PhaseAvailable, ofBob: kuscia.PhaseAvailable, ofAlice: kuscia.PhaseAvailable, available: 2, word: serving.ReasonUpdateRolledBack, message: "party bob: bad"},
	"objects deleted": {reason: "what somebody has deleted is being put back", op: done, alice: whole,
		bob:   with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Missing = []string{"Service/a", "ConfigMap/b"} }),
		whole: kuscia.PhaseProgressing, ofBob: kuscia.PhaseProgressing, ofAlice: kuscia.PhaseAvailable, available: 1,
		word: serving.ReasonObjectsMissing, message: "party bob: somebody has deleted Service/a, ConfigMap/b"},
	"two in trouble": {reason: "of several parties in the same phase the first in the spec says why, not the first by name", op: done, bob: partial, alice: partial,
		whole: kuscia.PhasePartialAvailable, ofBob: kuscia.PhasePartialAvailable, ofAlice: kuscia.PhasePartialAvailable, available: 2,
		word: "CrashLoopBackOff", message: "party bob: pod x"},
}

func TestPhases(t *testing.T) {
	t.Parallel()
	for name, tc := range phaseCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kd := pair(tc.op, tc.bob, tc.alice)
			if tc.unserved {
				kd.Status.Served = nil
			}
			serving.Settle(kd)
			st := kd.Status
			require.Equal(t, tc.whole, st.Phase, tc.reason)
			require.Equal(t, tc.ofBob, st.PartyDeploymentStatuses["bob"]["s1"].Phase, tc.reason)
			require.Equal(t, tc.ofAlice, st.PartyDeploymentStatuses["alice"]["s1-host"].Phase, tc.reason)
			require.Equal(t, tc.word, st.Reason, tc.reason)
			require.Equal(t, tc.message, st.Message, tc.reason)
			require.Equal(t, tc.available, st.AvailableParties, tc.reason)
			require.Equal(t, 2, st.TotalParties)
			again := kd.DeepCopy()
			serving.Settle(again)
			require.Equal(t, kd, again, "nothing new is nothing new")
		})
	}
}

func TestSettleDropsWhoLeft(t *testing.T) {
	t.Parallel()
	kd := pair(done, whole, whole)
	kd.Status.PartyDeploymentStatuses["carol"] = map[string]kuscia.PartyDeploymentStatus{"s1": *none}
	kd.Status.PartyDeploymentStatuses["alice"]["s1-guest"] = *none
	serving.Settle(kd)
	require.Equal(t, kuscia.PhaseAvailable, kd.Status.Phase, "who is not in the spec counts for nothing")
	require.NotContains(t, kd.Status.PartyDeploymentStatuses, "carol")
	require.NotContains(t, kd.Status.PartyDeploymentStatuses["alice"], "s1-guest")
}

func TestFailureGoesOnlyWhenNothingRuns(t *testing.T) {
	t.Parallel()
	repaired := with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "bad" })
	kd := pair(running, repaired, whole)
	serving.Settle(kd)
	require.Equal(t, "bad", kd.Status.PartyDeploymentStatuses["bob"]["s1"].Failure, "what an operation has said of a failure is its own to take back")
	kd = pair(partFailed, repaired, whole)
	serving.Settle(kd)
	require.Empty(t, kd.Status.PartyDeploymentStatuses["bob"]["s1"].Failure)
}

func TestARemovalThatFailsShows(t *testing.T) {
	t.Parallel()
	stuck := with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Failure = "it lacks a permission" })
	kd := pair(&kuscia.Operation{Kind: serving.KindDelete}, stuck, nil)
	serving.Settle(kd)
	require.Equal(t, kuscia.PhaseFailed, kd.Status.PartyDeploymentStatuses["bob"]["s1"].Phase, "what cannot be removed is no success, however well it runs")
	require.Equal(t, kuscia.PhaseFailed, kd.Status.Phase)
	require.Contains(t, kd.Status.Message, "it lacks a permission")
}

// sight is what a worker sees of bob's Deployment "d1" at some resource version.
func sight(version string, available int32) serving.Seen {
	return serving.Seen{Look: serving.Look{DeploymentUID: "d1", CreatedAt: noon.UTC(), ResourceVersion: version, Replicas: 2}, UpdatedReplicas: 2, AvailableReplicas: available,
		UnavailableReplicas: 2 - available, Version: "new"}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	of := func(seen serving.Seen) serving.Observation {
		return serving.Observation{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1", Seen: seen}
	}
	but := func(seen serving.Seen, change func(s *serving.Seen)) serving.Seen {
		change(&seen)
		return seen
	}
	cases := map[string]struct {
		reason string
		o      serving.Observation
		news   bool
	}{
		"more":       {"other numbers are news", of(sight("11", 2)), true},
		"same":       {"the same numbers are none, and are not written, however often the object was", of(sight("12", 1)), false},
		"missing":    {"what belongs to a Deployment goes without a change of the Deployment itself", of(but(sight("10", 1), func(s *serving.Seen) { s.Missing = []string{"Service/a"} })), true},
		"gone":       {"a Deployment that is gone has no version but its last one", of(sight("10", 1).Gone("s1")), true},
		"overtaken":  {"a look at an older version came late", of(sight("9", 2)), false},
		"digits":     {"versions are numbers, not words", of(sight("9999", 2)), true},
		"remade":     {"a new Deployment counts from the start", of(but(sight("3", 0), func(s *serving.Seen) { s.DeploymentUID, s.CreatedAt = "d2", noon.Add(time.Second) })), true},
		"before":     {"a look at the Deployment of before came late", of(but(sight("99", 0), func(s *serving.Seen) { s.DeploymentUID, s.CreatedAt = "d0", noon.Add(-time.Second) })), false},
		"another":    {"a former serving of the same name is another one", serving.Observation{ID: "s1", UID: "u0", Domain: "bob", Deployment: "s1", Seen: sight("11", 2)}, false},
		"stranger":   {"a party that the serving does not have counts for nothing", serving.Observation{ID: "s1", UID: "u1", Domain: "carol", Deployment: "s1", Seen: sight("11", 2)}, false},
		"other role": {"nor does a Deployment that the party does not have", serving.Observation{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1-host", Seen: sight("11", 2)}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kd := pair(done, nil, nil)
			require.True(t, serving.Observe(kd, []serving.Observation{of(sight("10", 1))}, noon), "what was never seen is news")
			serving.MarkUnreachable(kd, map[string]string{"bob": "silent"})
			before := kd.Status.PartyDeploymentStatuses["bob"]["s1"]
			before.Unreachable = "" // who sees something is there
			setBob(kd, before)
			require.Equal(t, tc.news, serving.Observe(kd, []serving.Observation{tc.o}, noon.Add(5*time.Second)), tc.reason)
			require.NotContains(t, kd.Status.PartyDeploymentStatuses, "carol", tc.reason)
			require.NotContains(t, kd.Status.PartyDeploymentStatuses["bob"], "s1-host", tc.reason)
			entry := kd.Status.PartyDeploymentStatuses["bob"]["s1"]
			if !tc.news {
				require.Equal(t, before, entry, tc.reason)
				return
			}
			require.Equal(t, seenAt(5), entry.ObservedAt, tc.reason)
			require.Equal(t, tc.o.Seen.AvailableReplicas, entry.AvailableReplicas, tc.reason)
			require.Equal(t, tc.o.Seen.Missing, entry.Missing, tc.reason)
		})
	}
}

func setBob(kd *kuscia.KusciaDeployment, entry kuscia.PartyDeploymentStatus) {
	kd.Status.PartyDeploymentStatuses["bob"]["s1"] = entry
}

func TestARestoredClusterIsHeard(t *testing.T) {
	t.Parallel()
	kd := pair(done, nil, nil)
	o := serving.Observation{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1", Seen: sight("1000", 2)}
	require.True(t, serving.Observe(kd, []serving.Observation{o}, noon))
	o.Seen = sight("10", 1)
	require.False(t, serving.Observe(kd, []serving.Observation{o}, noon.Add(time.Minute)), "a look that came late")
	require.True(t, serving.Observe(kd, []serving.Observation{o}, noon.Add(10*time.Minute)), "no look is under way for so long: the cluster counts anew")
}

func TestWhoSeesSomethingIsThere(t *testing.T) {
	t.Parallel()
	kd := pair(done, away, nil)
	require.True(t, serving.Observe(kd, []serving.Observation{{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1", Seen: sight("1", 2)}}, noon))
	require.Empty(t, kd.Status.PartyDeploymentStatuses["bob"]["s1"].Unreachable)
}

func TestConditionsAreShownAsTheyWereSeen(t *testing.T) {
	t.Parallel()
	kd := pair(done, nil, nil)
	seen := sight("1", 2)
	seen.Conditions = []serving.SeenCondition{{Type: "Progressing", Status: "True", Reason: "r", Message: "m", UpdatedAt: noon, ChangedAt: noon.Add(time.Second)}}
	require.True(t, serving.Observe(kd, []serving.Observation{{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1", Seen: seen}}, noon))
	require.Equal(t, []appsv1.DeploymentCondition{{Type: "Progressing", Status: "True", Reason: "r", Message: "m", LastUpdateTime: metav1.NewTime(noon),
		LastTransitionTime: metav1.NewTime(noon.Add(time.Second))}}, kd.Status.PartyDeploymentStatuses["bob"]["s1"].Conditions)
}

// TestPartiesThatTheSpecLeavesOut are those that an operation has begun with: they do not count, and they are not forgotten.
func TestPartiesThatTheSpecLeavesOut(t *testing.T) {
	t.Parallel()
	kd := pair(done, whole, nil)
	serving.Begun(kd, []serving.PartyTarget{{Domain: "bob", Deployment: "s1", Queue: "q-bob"}, {Domain: "alice", Role: "host", Deployment: "s1-host", Queue: "q-alice"},
		{Domain: "carol", Role: "guest", Deployment: "s1-guest", Queue: "q-carol"}})
	serving.Settle(kd)
	require.Equal(t, []serving.PartyTarget{{Domain: "carol", Role: "guest", Deployment: "s1-guest", Queue: "q-carol"}}, serving.LeftOut(kd))
	require.Equal(t, 2, kd.Status.TotalParties)
	require.Equal(t, 1, kd.Status.AvailableParties)
	o := serving.Observation{ID: "s1", UID: "u1", Domain: "carol", Deployment: "s1-guest", Seen: sight("1", 2)}
	require.True(t, serving.Observe(kd, []serving.Observation{o}, noon), "what it runs is still seen")
	kd.Spec.Parties = append(kd.Spec.Parties, kuscia.Party{DomainID: "carol", Role: "guest"})
	serving.Settle(kd)
	require.Empty(t, serving.LeftOut(kd))
	require.Equal(t, "q-carol", kd.Status.PartyDeploymentStatuses["carol"]["s1-guest"].Queue, "an observation does not make the party's queue forgotten")
	require.Equal(t, 2, kd.Status.AvailableParties, "it counts again as soon as the spec names it")
}

func changed(e kuscia.PartyDeploymentStatus, change func(e *kuscia.PartyDeploymentStatus)) kuscia.PartyDeploymentStatus {
	return *with(e, change)
}

func TestObserveKeepsWhatOperationsSay(t *testing.T) {
	t.Parallel()
	kd := pair(done, pulling, nil)
	serving.Settle(kd)
	news := serving.Observe(kd, []serving.Observation{{ID: "s1", UID: "u1", Domain: "bob", Deployment: "s1", Seen: sight("1", 1)}}, noon)
	require.True(t, news)
	require.Equal(t, "no such image", kd.Status.PartyDeploymentStatuses["bob"]["s1"].Failure, "a worker sees pods, and knows nothing of the operation's failure")
}

func TestMarkAway(t *testing.T) {
	t.Parallel()
	kd := pair(done, whole, nil)
	require.True(t, serving.MarkUnreachable(kd, map[string]string{"bob": "silent for 21 s", "alice": "never seen", "carol": "?"}))
	require.NotContains(t, kd.Status.PartyDeploymentStatuses, "carol")
	require.Equal(t, "never seen", kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Unreachable, "also who was never seen is named")
	require.Equal(t, "host", kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Role)
	older := map[string]string{"bob": "silent for 26 s", "alice": "never seen"}
	require.True(t, serving.IsMarkedUnreachable(kd, older), "whoever asks before marking hears the same")
	require.False(t, serving.MarkUnreachable(kd, older), "a sentence that only grows older is no news")
	require.False(t, serving.IsMarkedUnreachable(kd, nil), "who is marked and back has to be marked anew")
	require.True(t, serving.MarkUnreachable(kd, map[string]string{"bob": "silent for 31 s"}))
	require.Empty(t, kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Unreachable, "who is not named is there")
	serving.Settle(kd)
	require.Equal(t, kuscia.PhasePending, kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Phase, "that a worker is there says nothing of pods")
}

func TestMarkFailed(t *testing.T) {
	t.Parallel()
	kd := pair(done, pulling, nil)
	serving.MarkFailed(kd, []serving.PartyTarget{{Domain: "bob", Deployment: "s1"}, {Domain: "alice", Deployment: "s1-host"}}, map[int]string{1: "refused"})
	require.Empty(t, kd.Status.PartyDeploymentStatuses["bob"]["s1"].Failure, "who is not named has not failed")
	require.Equal(t, "refused", kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Failure, "a party of which nothing was seen can fail")
}

// TestPlacesAreTheOperations: what an operation says of a party is of that party, in whatever order the spec has come to name them.
func TestPlacesAreTheOperations(t *testing.T) {
	t.Parallel()
	lacks := with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Missing = []string{"Service/a"} })
	kd := pair(done, lacks, lacks)
	parties := []serving.PartyTarget{{Domain: "alice", Deployment: "s1-host"}, {Domain: "bob", Deployment: "s1"}}
	serving.MarkFailed(kd, parties, map[int]string{1: "quota"})
	serving.MarkComplete(kd, parties, map[int]time.Time{0: noon.Add(time.Second)})
	bob, alice := kd.Status.PartyDeploymentStatuses["bob"]["s1"], kd.Status.PartyDeploymentStatuses["alice"]["s1-host"]
	require.Equal(t, "quota", bob.Failure)
	require.NotEmpty(t, bob.Missing, "it is still to be put back")
	require.Empty(t, alice.Failure)
	require.Empty(t, alice.Missing)
}

func TestARemovalThatFailsWhereTheSpecHasLeftShows(t *testing.T) {
	t.Parallel()
	kd := pair(&kuscia.Operation{Kind: serving.KindDelete}, whole, whole)
	carol := serving.PartyTarget{Domain: "carol", Deployment: "s1", Queue: "q-carol"}
	serving.Begun(kd, []serving.PartyTarget{carol})
	serving.MarkFailed(kd, []serving.PartyTarget{carol}, map[int]string{0: "it lacks a permission"})
	serving.Settle(kd)
	require.Equal(t, kuscia.PhaseFailed, kd.Status.Phase)
	require.Equal(t, "party carol: it lacks a permission", kd.Status.Message)
}

func TestMarkCompleteForgetsOnlyWhatWasBefore(t *testing.T) {
	t.Parallel()
	lacks := with(*whole, func(e *kuscia.PartyDeploymentStatus) { e.Missing = []string{"Service/a"} })
	missing := func(complete map[int]time.Time) []string {
		kd := pair(done, lacks, nil)
		serving.MarkComplete(kd, []serving.PartyTarget{{Domain: "bob", Deployment: "s1"}, {Domain: "alice", Deployment: "s1-host"}}, complete)
		require.NotContains(t, kd.Status.PartyDeploymentStatuses, "alice", "nothing is known of who was not seen")
		return kd.Status.PartyDeploymentStatuses["bob"]["s1"].Missing
	}
	soon, before := noon.Add(time.Second), noon.Add(-time.Second)
	require.Empty(t, missing(map[int]time.Time{0: soon, 1: soon}), "everything was seen in its place since")
	require.NotEmpty(t, missing(map[int]time.Time{0: before}), "it was deleted after that: nobody would tell it once more")
	require.NotEmpty(t, missing(map[int]time.Time{1: soon}), "another party's objects say nothing of this one's")
}

func TestCarry(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		former   *kuscia.Operation
		op       kuscia.Operation
		expected string
	}{
		"first":                    {"there is nothing to hand on", nil, kuscia.Operation{Kind: serving.KindCreate}, ""},
		"recreation":               {"to put back what was deleted is no good update", rolledBack, kuscia.Operation{Kind: serving.KindRecreate}, serving.ReasonUpdateRolledBack},
		"recreation that waits":    {"nor is to wait for a cluster", rolledBack, kuscia.Operation{Kind: serving.KindRecreate, Reason: serving.ReasonPartyUnreachable}, serving.ReasonUpdateRolledBack},
		"recreation that fails":    {"what is new is told first", rolledBack, kuscia.Operation{Kind: serving.KindRecreate, Reason: serving.ReasonPartyFailed}, serving.ReasonPartyFailed},
		"recreation once more":     {"a failure of the recreation before is over when this one is not failed", partFailed, kuscia.Operation{Kind: serving.KindRecreate}, ""},
		"update":                   {"an update speaks for itself", rolledBack, kuscia.Operation{Kind: serving.KindUpdate}, ""},
		"recreation after refusal": {"a refused change is still refused", &kuscia.Operation{Reason: serving.ReasonValidateFailed}, kuscia.Operation{Kind: serving.KindRecreate}, serving.ReasonValidateFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serving.Carry(tc.former, &tc.op)
			require.Equal(t, tc.expected, tc.op.Reason, tc.reason)
		})
	}
}
