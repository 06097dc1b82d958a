package serving

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"slipway.io/slipway/recent"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
)

// watching is a controller whose watch has these servings.
func watching(t *testing.T, servings ...*kuscia.KusciaDeployment) *Controller {
	t.Helper()
	objects := make([]runtime.Object, len(servings))
	for i, kd := range servings {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kd)
		require.NoError(t, err)
		objects[i] = object(raw)
	}
	return watchingObjects(t, objects...)
}

func object(raw map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: raw}
	u.SetGroupVersionKind(kuscia.GroupVersion.WithKind("KusciaDeployment"))
	return u
}

func watchingObjects(t *testing.T, objects ...runtime.Object) *Controller {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{kuscia.KusciaDeploymentResource: "KusciaDeploymentList"}
	c := New(&fakeHome{}, dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...),
		nil, Options{Servings: "cross-domain", Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { c.cached.Run(ctx) })
	t.Cleanup(func() { cancel(); ended.Wait() })
	require.Eventually(t, c.cached.Synced, 10*time.Second, time.Millisecond)
	return c
}

// servingBetween is a serving of these domains, all reachable, without an operation in progress.
func servingBetween(name string, domains ...string) *kuscia.KusciaDeployment {
	kd := &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "cross-domain"},
		Spec: kuscia.KusciaDeploymentSpec{InputConfig: "large"}}
	for _, domain := range domains {
		kd.Spec.Parties = append(kd.Spec.Parties, kuscia.Party{DomainID: domain})
	}
	return kd
}

func TestCheckVisitsAffectedServings(t *testing.T) {
	t.Parallel()
	away, busy, over := servingBetween("away", "bob"), servingBetween("busy", "alice"), servingBetween("over", "alice")
	away.Status.PartyDeploymentStatuses =
		map[string]map[string]kuscia.PartyDeploymentStatus{"bob": {"away": {Unreachable: "silent since noon"}}}
	busy.Status.Operation = &kuscia.Operation{WorkflowID: "serving/busy/1", RunID: "r"}
	over.Status.Operation = &kuscia.Operation{WorkflowID: "serving/over/1", RunID: "r", Done: true}
	c := watching(t, servingBetween("quiet", "alice", "bob"), away, busy, over,
		servingBetween("third", "carol", "carol"))
	of := map[string]string{"alice": "q-alice", "bob": "q-bob", "carol": "q-carol"}
	here, missing := party.Presence{Reachable: party.Reachable},
		party.Presence{Reachable: party.Unreachable, Reason: "silent"}
	for name, tc := range map[string]struct {
		reason string
		found  map[string]party.Presence
		want   []string
	}{
		"all there": {"a status that names an unreachable party may need an update, and an operation is signalled; " +
			"other servings are not visited",
			map[string]party.Presence{"q-alice": here, "q-bob": here, "q-carol": here}, []string{"away", "busy"}},
		"one missing": {"each serving of an unreachable party names it, once",
			map[string]party.Presence{"q-alice": here, "q-bob": here, "q-carol": missing},
			[]string{"away", "busy", "third"}},
		"two missing": {"in order of name, whichever index finds them",
			map[string]party.Presence{"q-alice": missing, "q-bob": missing, "q-carol": here},
			[]string{"away", "busy", "over", "quiet"}},
		"not known": {"an unknown presence changes nothing", nil, []string{"away", "busy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var names []string
			for _, kd := range c.affected(of, tc.found) {
				names = append(names, kd.Name)
			}
			require.Equal(t, tc.want, names, tc.reason)
		})
	}
}

// presences always gives the same answer, and records the queues asked for.
type presences struct {
	found map[string]party.Presence
	asked [][]string
}

func (p *presences) Of(_ context.Context, queues ...string) map[string]party.Presence {
	p.asked = append(p.asked, queues)
	return p.found
}

func TestCheckQueriesEachQueueOnce(t *testing.T) {
	t.Parallel()
	recorded := servingBetween("recorded", "carol")
	recorded.Status.PartyDeploymentStatuses =
		map[string]map[string]kuscia.PartyDeploymentStatus{"dave": {"missing": {Queue: "q-dave"}}}
	c := watching(t, servingBetween("one", "alice", "bob"), servingBetween("two", "bob", "alice"), recorded)
	asked := &presences{found: map[string]party.Presence{"q-alice": {Reachable: party.Reachable}}}
	p := newParties(c, asked)
	p.began = time.Now().Add(-time.Hour)
	for domain, queue := range map[string]string{"alice": "q-alice", "bob": "q-alice", "carol": "", "dave": ""} {
		_, err := recent.Get(t.Context(), &p.queues, domain, queueTTL,
			func(context.Context) (string, error) { return queue, nil })
		require.NoError(t, err)
	}
	require.Equal(t, asked.found, p.check(t.Context()))
	require.Equal(t, [][]string{{"q-alice", "q-dave"}}, asked.asked,
		"two domains with one queue cause one query; a domain known only from a serving's status is queried by the "+
			"recorded queue; a domain without a queue is not queried")

	require.Nil(t, newParties(watching(t), asked).check(t.Context()), "without servings there is nothing to query")
	require.Len(t, asked.asked, 1)
}

// movedHome answers with one queue for every domain, or with an error, after a while.
type movedHome struct {
	homeStore
	queue string
	err   error
	takes time.Duration
}

func (h *movedHome) Queue(context.Context, string) (string, bool, error) {
	time.Sleep(h.takes)
	return h.queue, h.err == nil, h.err
}

func TestQueueOfADomainIsCached_AndKeptWhileItCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		home := &movedHome{queue: "q-old"}
		p := newParties(&Controller{home: home}, nil)
		expect := func(want, reason string) {
			ctx, cancel := context.WithTimeout(t.Context(), queueWait)
			defer cancel()
			require.Equal(t, want, p.queue(ctx, "alice"), reason)
			synctest.Wait() // the read has left home
		}
		expect("q-old", "it is read")
		home.queue = "q-new"
		time.Sleep(queueTTL - time.Second)
		expect("q-old", "it is cached")
		home.err = errors.New("the home cluster does not answer")
		time.Sleep(48 * time.Hour)
		expect("q-old", "the queue that was read last is kept, however long ago that was")
		home.err = nil
		expect("q-new", "it has moved")
		time.Sleep(queueTTL)
		home.queue, home.takes = "q-newer", time.Minute
		began := time.Now()
		expect("q-new", "a check does not wait longer for an answer")
		require.Equal(t, queueWait, time.Since(began))
		time.Sleep(time.Minute)
		synctest.Wait()
		home.takes = 0
		expect("q-newer", "the answer came later")
	})
}

func TestWatchCacheKeepsWhatDecisionsNeed(t *testing.T) {
	t.Parallel()
	kd := servingBetween("s", "alice")
	kd.Status.Served = &kuscia.Served{Digest: "d", Version: []byte("large")}
	kept := watching(t, kd).indexed(byDomain, "alice")
	require.Len(t, kept, 1)
	require.Empty(t, kept[0].Spec.InputConfig, "an input config is large")
	require.Equal(t, &kuscia.Served{Digest: "d"}, kept[0].Status.Served, "a version too; its digest identifies it")

	odd := object(map[string]any{"metadata": map[string]any{"name": "odd", "namespace": "cross-domain"},
		"spec": map[string]any{"parties": "none"}})
	c := watchingObjects(t, odd)
	require.Len(t, c.cached.List(), 1, "an undecodable object must not end the watch of all others")
	require.Empty(t, c.cached.Values(byDomain), "no index has it")
	require.False(t, c.nothingToDo("odd"), "the reconciliation reads it again and reports the error")
}
