package serving

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
)

// fakeHome has the AppImage "app" and every party but mallory. It counts writes of a status.
type fakeHome struct {
	homeStore
	writes int
}

func (*fakeHome) GetAppImage(_ context.Context, name string) (*kuscia.AppImage, error) {
	if name != "app" {
		return nil, failure.New(failure.NotFound, "no %s", name)
	}
	return &kuscia.AppImage{Spec: kuscia.AppImageSpec{Image: kuscia.AppImageInfo{Name: "app", Tag: "1"},
		DeployTemplates: []kuscia.DeployTemplate{{Name: "all",
			Spec: kuscia.PodTemplate{Containers: []kuscia.Container{{Name: "main"}}}}}}}, nil
}

func (*fakeHome) Engine(context.Context) (workload.Engine, error) {
	return workload.Engine{UID: "uid-a", Name: "a"}, nil
}

func (*fakeHome) Queue(_ context.Context, domain string) (string, bool, error) {
	return "q-" + domain, domain != "mallory", nil
}

func (h *fakeHome) UpdateServingStatus(context.Context, *kuscia.KusciaDeployment) error {
	h.writes++
	return nil
}

// signals counts the signals sent to workflows.
type signals struct {
	client.Client
	sent []serving.PresenceSignal
}

func (s *signals) SignalWorkflow(_ context.Context, _, _, _ string, arg any) error {
	s.sent = append(s.sent, arg.(serving.PresenceSignal))
	return nil
}

// asked is a serving of these domains.
func asked(domains ...string) *kuscia.KusciaDeployment {
	kd := &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: "s1", UID: "u1", Generation: 2}}
	for _, domain := range domains {
		kd.Spec.Parties = append(kd.Spec.Parties, kuscia.Party{DomainID: domain, AppImageRef: "app"})
	}
	if len(domains) > 0 {
		kd.Spec.Initiator = domains[0]
	}
	return kd
}

// servedBefore is a serving whose previous version has the parties alice and bob.
func servedBefore(t *testing.T, kd *kuscia.KusciaDeployment) *kuscia.KusciaDeployment {
	home := &fakeHome{}
	image, err := home.GetAppImage(t.Context(), "app")
	require.NoError(t, err)
	v := serving.Snapshot(asked("alice", "bob"), map[string]kuscia.AppImageSpec{"app": image.Spec})
	packed, err := v.Pack()
	require.NoError(t, err)
	digest, err := v.Digest()
	require.NoError(t, err)
	kd.Status.Served = &kuscia.Served{Digest: digest, Version: packed}
	return kd
}

func withPolicy(kd *kuscia.KusciaDeployment, policy string) *kuscia.KusciaDeployment {
	kd.Annotations = map[string]string{serving.AnnotationPolicy: policy}
	return kd
}

func domainsOf(in serving.Input) (domains []string) {
	for _, p := range in.Parties {
		domains = append(domains, p.Domain)
	}
	return domains
}

func TestOperationInput(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		kd       *kuscia.KusciaDeployment
		kind     string
		domains  []string
		refusals string
	}{
		"creation": {reason: "all that the spec names", kd: asked("alice", "bob"), kind: serving.KindCreate,
			domains: []string{"alice", "bob"}},
		"unknown party": {reason: "a domain must be a party or a namespace", kd: asked("alice", "mallory"),
			kind: serving.KindCreate, domains: []string{"alice"},
			refusals: "domain mallory is neither a party nor a namespace"},
		"policy for a stranger": {reason: "a policy entry for another party would be ignored", kind: serving.KindCreate,
			refusals: "parties[0] is carol",
			kd:       withPolicy(asked("alice", "bob"), `{"order":"sequential","parties":["carol"]}`)},
		"policy": {reason: "a policy is part of the operation's input",
			kd:   withPolicy(asked("alice"), `{"order":"sequential","parties":["alice"]}`),
			kind: serving.KindCreate, domains: []string{"alice"}},
		"update": {reason: "another order is legal", kd: servedBefore(t, asked("bob", "alice")),
			kind: serving.KindUpdate, domains: []string{"bob", "alice"}},
		"a party is new": {reason: "it could not be rolled back", kd: servedBefore(t, asked("alice", "bob", "carol")),
			kind:     serving.KindUpdate,
			refusals: "party carol is new"},
		"deletion": {reason: "parties with workloads are cleaned up, regardless of the current spec",
			kd: servedBefore(t, asked("alice", "mallory")), kind: serving.KindDelete,
			domains: []string{"alice", "bob"}},
		"left out before it served": {reason: "what an operation may have created there would never be removed",
			kd:   begunWith(asked("alice"), "alice", "bob"),
			kind: serving.KindCreate, refusals: "party bob is left out"},
		"added before it served": {reason: "nothing has to be removed", kd: begunWith(asked("alice", "bob"), "alice"),
			kind: serving.KindCreate, domains: []string{"alice", "bob"}},
		"deletion before it served": {reason: "parties that may have workloads are cleaned up, even if the party is " +
			"unknown now",
			kd: begunWith(asked("alice", "mallory"), "bob", "mallory"), kind: serving.KindDelete,
			domains: []string{"alice", "mallory", "bob"}},
		"recreation of what the spec has left": {reason: "the version that served is restored, regardless of the " +
			"current spec", kd: servedBefore(t, asked("alice")),
			kind: serving.KindRecreate, domains: []string{"alice", "bob"}},
		"recreation": {reason: "the version that served is restored", kd: servedBefore(t, asked("alice", "bob")),
			kind: serving.KindRecreate, domains: []string{"alice", "bob"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Controller{home: &fakeHome{}, options: Options{UnreachableBudget: 2 * time.Minute}}
			in, refusals, err := c.input(t.Context(), tc.kd, tc.kind)
			require.NoError(t, err)
			require.Equal(t, tc.domains, domainsOf(in), tc.reason)
			if tc.refusals != "" {
				require.Contains(t, refusals, tc.refusals, tc.reason)
				return
			}
			require.Empty(t, refusals, tc.reason)
			require.Equal(t, int64(120), in.UnreachableBudgetSeconds)
			require.Equal(t, tc.kind == serving.KindDelete, in.TargetDigest == "", tc.reason)
			require.Equal(t, tc.kind == serving.KindUpdate, in.PreviousDigest != "", tc.reason)
		})
	}
}

// begunWith is a serving with an operation that began with these parties; none has served.
func begunWith(kd *kuscia.KusciaDeployment, domains ...string) *kuscia.KusciaDeployment {
	var targets []serving.PartyTarget
	for _, domain := range domains {
		targets = append(targets, serving.PartyTarget{Domain: domain, Deployment: "s1", Queue: "q-" + domain})
	}
	serving.MarkBegun(kd, targets)
	serving.UpdatePhases(kd)
	return kd
}

func TestRefusalIsWrittenOnce(t *testing.T) {
	t.Parallel()
	home := &fakeHome{}
	c := &Controller{home: home}
	kd := asked("alice")
	require.NoError(t, c.refuse(t.Context(), kd, "no such AppImage"))
	require.Equal(t, kuscia.PhaseFailed, kd.Status.Phase)
	require.NoError(t, c.refuse(t.Context(), kd, "no such AppImage"))
	require.Equal(t, 1, home.writes, "each write would trigger processing")
	require.NoError(t, c.refuse(t.Context(), kd, "another reason"))
	require.Equal(t, 2, home.writes)
	kd.Generation++
	require.NoError(t, c.refuse(t.Context(), kd, "another reason"))
	require.Equal(t, 3, home.writes, "another spec is refused again")
}

func TestRefusalDuringAnOperationIsWrittenOnce(t *testing.T) {
	t.Parallel()
	home, log := &fakeHome{}, &bytes.Buffer{}
	c := &Controller{home: home, options: Options{Log: slog.New(slog.NewTextHandler(log, nil))}}
	kd := asked("alice")
	op := kuscia.Operation{Kind: serving.KindUpdate, Generation: 1, WorkflowID: "serving/s1/1"}
	kd.Status.Operation, kd.Status.ObservedGeneration = op.DeepCopy(), 1
	for range 2 {
		require.NoError(t, c.refuse(t.Context(), kd, "no such AppImage"))
	}
	require.Equal(t, 1, home.writes, "each write would trigger processing")
	require.Equal(t, &kuscia.Refused{Generation: 2, Message: "no such AppImage"}, kd.Status.Refused)
	require.Equal(t, &op, kd.Status.Operation, "the operation in progress continues")
	require.EqualValues(t, 1, kd.Status.ObservedGeneration, "no operation has begun with the spec")
	require.Equal(t, 1, strings.Count(log.String(), "no such AppImage"))
	require.NoError(t, c.refuse(t.Context(), kd, "another reason"))
	require.Equal(t, 2, home.writes, "a new refusal is written")

	kd.Status.Operation.Done = true
	require.NoError(t, c.refuse(t.Context(), kd, "another reason"))
	require.Equal(t, serving.ReasonValidateFailed, kd.Status.Operation.Reason)
	require.Nil(t, kd.Status.Refused, "without an operation in progress the refusal is the last operation")

	kd.Status.Refused = &kuscia.Refused{Generation: 2}
	serving.MarkBegun(kd, nil)
	require.Nil(t, kd.Status.Refused, "a spec that an operation runs is not refused")
}

func TestOperationIsSignalledPresence(t *testing.T) {
	t.Parallel()
	started := func(ago time.Duration) *metav1.Time {
		at := metav1.NewTime(time.Now().Add(-ago))
		return &at
	}
	here, missing := party.Presence{Reachable: party.Reachable},
		party.Presence{Reachable: party.Unreachable, Reason: "silent"}
	cases := map[string]struct {
		reason  string
		started *metav1.Time
		looks   []party.Presence
		told    []string
		// own is how long this controller had run when it started the operation; 0: another one started it.
		own time.Duration
	}{
		"there from the start": {"an expected state costs no history", started(-time.Hour),
			[]party.Presence{here, here}, nil, 0},
		"goes and comes": {"each change is signalled once", started(-time.Hour),
			[]party.Presence{missing, missing, here, here}, []string{"silent", ""}, 0},
		"begun before": {"an earlier controller may have signalled that the worker is unreachable",
			started(time.Hour), []party.Presence{here, here}, []string{""}, 0},
		"its own": {"this controller knows all its signals", started(time.Hour),
			[]party.Presence{here, missing}, []string{"silent"}, startupPeriod},
		"its own, at first": {"in the startup period, another one may have signalled", started(time.Hour),
			[]party.Presence{here, here}, []string{""}, time.Second},
		"begun before, and away": {"or may not have signalled", started(time.Hour), []party.Presence{missing, missing},
			[]string{"silent"}, 0},
		"unknown": {"an unknown presence is not signalled", started(time.Hour),
			[]party.Presence{{Reachable: party.Unknown}}, nil, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			temporal := &signals{}
			p := newParties(&Controller{temporal: temporal}, nil)
			if tc.own > 0 {
				p.began = time.Now().Add(-tc.own)
				p.noteStart("r")
			}
			for _, look := range tc.looks {
				p.signal(t.Context(), &kuscia.Operation{WorkflowID: "serving/s1/2", RunID: "r", StartedAt: tc.started},
					asked("alice"), map[string]string{"alice": "q-alice"},
					map[string]party.Presence{"q-alice": look})
			}
			var told []string
			for _, s := range temporal.sent {
				require.Equal(t, "q-alice", s.Queue)
				told = append(told, s.Unreachable)
			}
			require.Equal(t, tc.told, told, tc.reason)
		})
	}
}
