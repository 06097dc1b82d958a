package watch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// widget is an object of a cluster, with these labels.
func widget(namespace, name string, labels map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(labels)
	return u
}

// kept is what the watches of these tests keep of an object.
type kept struct {
	metav1.PartialObjectMetadata
	owner string
}

func keep(u *unstructured.Unstructured) (*kept, error) {
	k := &kept{owner: u.GetLabels()["owner"]}
	k.Namespace, k.Name, k.ResourceVersion = u.GetNamespace(), u.GetName(), u.GetResourceVersion()
	return k, nil
}

func owners(k *kept) []string { return []string{k.owner} }

func cluster(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{widgets: "WidgetList"}, objects...)
}

// run runs a watch until the end of the test, or of its bubble.
func run(t *testing.T, do func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { do(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// heard records what a handler receives.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) add(words ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, strings.Join(words, " "))
}

// taken returns the lines since the last call.
func (h *heard) taken() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return lines
}

func (h *heard) handler() Handler[*kept] {
	return Handler[*kept]{
		Added: func(k *kept, initial bool) {
			if initial {
				h.add("initial", k.Name)
			} else {
				h.add("added", k.Name)
			}
		},
		Updated: func(before, k *kept) { h.add("updated", k.Name, "of", before.owner, "to", k.owner) },
		Deleted: func(k *kept) { h.add("deleted", k.Name, "of", k.owner) },
	}
}

func names(all []*kept) (names []string) {
	for _, k := range all {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return names
}

func TestWatch_KeepsReducedObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, h := cluster(widget("shop", "a", map[string]string{"owner": "x"}), widget("bank", "b", nil)), &heard{}
		w := New(Untyped(client, widgets), keep, Options{}).Index("owner", owners).Handle(h.handler())
		require.Nil(t, w.Get("shop", "a"), "it is empty until it runs")
		require.False(t, w.Synced())
		require.False(t, w.Live("shop"))
		run(t, w.Run)
		synctest.Wait()
		require.True(t, w.Synced())
		require.True(t, w.Live("shop"))
		require.Equal(t, "x", w.Get("shop", "a").owner)
		require.Nil(t, w.Get("shop", "b"), "that name is in another namespace")
		require.Equal(t, []string{"a", "b"}, names(w.List()))
		require.Equal(t, []string{"a"}, names(w.By("owner", "x")))
		require.Equal(t, []string{"x"}, w.Values("owner"), "an empty value is not indexed")
		require.ElementsMatch(t, []string{"initial a", "initial b"}, h.taken())

		all := client.Resource(widgets)
		_, err := all.Namespace("shop").Create(t.Context(), widget("shop", "c", nil), metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		_, err = all.Namespace("shop").Update(t.Context(), widget("shop", "a", map[string]string{"owner": "y"}),
			metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, all.Namespace("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		synctest.Wait()
		require.Equal(t, []string{"added c", "updated a of x to y", "deleted a of y"}, h.taken())
		require.Nil(t, w.Get("shop", "a"))
	})
}

func TestWatch_RequestsOnlyWhatItCovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := cluster()
		run(t, New(Untyped(client, widgets), keep, Options{Namespaces: []string{"shop", "bank"}, Labels: "ours=true",
			Fields: "metadata.name=a"}).Run)
		synctest.Wait()
		asked := map[string]int{}
		for _, action := range client.Actions() {
			switch one := action.(type) {
			case clienttesting.ListAction:
				require.Equal(t, "ours=true", one.GetListRestrictions().Labels.String())
				require.Equal(t, "metadata.name=a", one.GetListRestrictions().Fields.String())
			case clienttesting.WatchAction:
				require.Equal(t, "ours=true", one.GetWatchRestrictions().Labels.String())
				require.Equal(t, "metadata.name=a", one.GetWatchRestrictions().Fields.String())
			}
			asked[action.GetVerb()+" "+action.GetNamespace()]++
		}
		require.Equal(t, map[string]int{"list shop": 1, "watch shop": 1, "list bank": 1, "watch bank": 1}, asked,
			"one list and one watch in each namespace")
	})
}

// The objects of a typed client may be kept whole.
func TestWatch_KeepsTypedObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "order"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}})
		w := New(From(client, client.CoreV1().Services), Whole[*corev1.Service], Options{})
		run(t, w.Run)
		synctest.Wait()
		require.Equal(t, "10.0.0.1", w.Get("shop", "order").Spec.ClusterIP)
	})
}

// An object is deleted while the watch is interrupted: only the next list shows that it no longer exists.
func TestWatch_PassesLastState_WhenDeletionWasMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, h := cluster(widget("shop", "a", map[string]string{"owner": "x"})), &heard{}
		streams := make(chan *apiwatch.FakeWatcher, 10)
		client.PrependWatchReactor("*", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
			stream := apiwatch.NewFake()
			streams <- stream
			return true, stream, nil
		})
		w := New(Untyped(client, widgets), keep, Options{Failed: func(_ string, err error) { h.add(err.Error()) }}).
			Handle(h.handler())
		run(t, w.Run)
		stream := <-streams
		require.NoError(t, client.Resource(widgets).Namespace("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		expired := apierrors.NewResourceExpired("too old").Status()
		stream.Error(&expired)
		<-streams
		synctest.Wait()
		require.Equal(t, []string{"initial a", "deleted a of x"}, h.taken(), "an expired watch is no failure")
		require.True(t, w.Live("shop"))
	})
}

func TestWatch_IsNotLive_AfterFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, h := cluster(widget("shop", "a", nil), widget("bank", "b", nil)), &heard{}
		var failing sync.Map
		failing.Store("shop", apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no role")))
		client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			err, fails := failing.Load(action.GetNamespace())
			if !fails {
				return false, nil, nil
			}
			return true, nil, err.(error)
		})
		warned := &heard{}
		once := Once(func(namespace string, _ error) { warned.add(namespace) })
		w := New(Untyped(client, widgets), keep, Options{Namespaces: []string{"shop", "bank"},
			Failed: func(namespace string, err error) {
				h.add(namespace, err.Error())
				once(namespace, err)
			}})
		run(t, w.Run)
		time.Sleep(10 * time.Second)
		failures := h.taken()
		require.Greater(t, len(failures), 1, "it is retried")
		require.Contains(t, failures[0], "shop failed to list example.com/v1, Resource=widgets", "the error names what")
		require.Equal(t, []string{"shop"}, warned.taken(), "but reported once")
		require.False(t, w.Synced())
		require.False(t, w.Live("shop"))
		require.True(t, w.Live("bank"), "another namespace is not affected")
		require.Equal(t, []string{"b"}, names(w.List()))
		require.False(t, w.Live("other"), "a namespace that is not watched")

		failing.Clear()
		require.Eventually(t, w.Synced, time.Minute, time.Second)
		require.NotNil(t, w.Get("shop", "a"))
		require.False(t, w.Live("shop"), "it may fail again")
		time.Sleep(distrustPeriod + time.Second)
		require.True(t, w.Live("shop"))
	})
}

func TestWatch_CallsSynced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		synced := make(chan int, 2)
		var w *Watch[*kept]
		w = New(Untyped(cluster(widget("shop", "a", nil)), widgets), keep,
			Options{Synced: func() { synced <- len(w.List()) }})
		run(t, w.Run)
		require.Equal(t, 1, <-synced)
		time.Sleep(time.Hour)
		require.Empty(t, synced, "once")
	})
}

// An unchanged object is passed again after Resync, without a request.
func TestWatch_RepeatsObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, h := cluster(widget("shop", "a", nil)), &heard{}
		run(t, New(Untyped(client, widgets), keep, Options{Resync: time.Minute}).Handle(OnChange(func(k *kept) {
			h.add(k.Name)
		})).Run)
		synctest.Wait()
		require.Equal(t, []string{"a"}, h.taken())
		time.Sleep(150 * time.Second)
		require.NotEmpty(t, h.taken())
		require.Len(t, client.Actions(), 2, "a list and a watch")
	})
}

func TestOnce_IgnoresResourcesThatDoNotExist(t *testing.T) {
	t.Parallel()
	var reported []string
	once := Once(func(namespace string, _ error) { reported = append(reported, namespace) })
	once("shop", apierrors.NewNotFound(widgets.GroupResource(), ""))
	once("bank", errors.New("unreachable"))
	once("bank", errors.New("unreachable"))
	once("", errors.New("unreachable"))
	require.Equal(t, []string{"bank", ""}, reported)
}
