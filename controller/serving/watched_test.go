package serving

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
)

// watching is a controller whose watch has these servings.
func watching(t *testing.T, servings ...*kuscia.KusciaDeployment) *Controller {
	c, err := New(&fakeHome{}, dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), nil,
		Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for _, kd := range servings {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kd)
		require.NoError(t, err)
		kept, err := c.reduce(&unstructured.Unstructured{Object: raw})
		require.NoError(t, err)
		require.NoError(t, c.informer.GetIndexer().Add(kept))
	}
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
	here, gone := party.Presence{Reachable: party.Reachable},
		party.Presence{Reachable: party.Unreachable, Reason: "silent"}
	for name, tc := range map[string]struct {
		reason string
		found  map[string]party.Presence
		want   []string
	}{
		"all there": {"a status that names an unreachable party may need an update, and an operation is signalled; " +
			"other servings are not visited",
			map[string]party.Presence{"q-alice": here, "q-bob": here, "q-carol": here}, []string{"away", "busy"}},
		"one gone": {"each serving of an unreachable party names it, once",
			map[string]party.Presence{"q-alice": here, "q-bob": here, "q-carol": gone},
			[]string{"away", "busy", "third"}},
		"two gone": {"in order of name, whichever index finds them",
			map[string]party.Presence{"q-alice": gone, "q-bob": gone, "q-carol": here},
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
		map[string]map[string]kuscia.PartyDeploymentStatus{"dave": {"gone": {Queue: "q-dave"}}}
	c := watching(t, servingBetween("one", "alice", "bob"), servingBetween("two", "bob", "alice"), recorded)
	asked := &presences{found: map[string]party.Presence{"q-alice": {Reachable: party.Reachable}}}
	p := newParties(c, asked)
	p.began = time.Now().Add(-time.Hour)
	for domain, queue := range map[string]string{"alice": "q-alice", "bob": "q-alice", "carol": "", "dave": ""} {
		p.queues[domain] = knownQueue{name: queue, at: time.Now()}
	}
	require.Equal(t, asked.found, p.check(t.Context()))
	require.Equal(t, [][]string{{"q-alice", "q-dave"}}, asked.asked,
		"two domains with one queue cause one query; a domain known only from a serving's status is queried by the "+
			"recorded queue; a domain without a queue is not queried")

	require.Nil(t, newParties(watching(t), asked).check(t.Context()), "without servings there is nothing to query")
	require.Len(t, asked.asked, 1)
}

func TestWatchCacheKeepsWhatDecisionsNeed(t *testing.T) {
	t.Parallel()
	kd := servingBetween("s", "alice")
	kd.Status.Served = &kuscia.Served{Digest: "d", Version: []byte("large")}
	kept := watching(t, kd).indexed(byDomain, "alice")
	require.Len(t, kept, 1)
	require.Empty(t, kept[0].Spec.InputConfig, "an input config is large")
	require.Equal(t, &kuscia.Served{Digest: "d"}, kept[0].Status.Served, "a version too; its digest identifies it")

	odd := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "odd"},
		"spec": map[string]any{"parties": "none"}}}
	c := watching(t)
	same, err := c.reduce(odd)
	require.NoError(t, err, "an undecodable object must not end the watch of all others")
	require.NoError(t, c.informer.GetIndexer().Add(same))
	_, err = servingOf(same)
	require.Error(t, err, "the reconciliation reads it again and reports the error")
}
