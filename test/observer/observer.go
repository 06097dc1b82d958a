// Package observer watches a test's namespace and replays its changes in the order of resourceVersion, so that a test
// can check invariants after every single change.
package observer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Observer records every change of one namespace that its feeds report.
type Observer struct {
	feeds  []*feed
	cancel context.CancelFunc
	ending sync.WaitGroup

	mu      sync.Mutex
	first   []runtime.Object
	changes []change
	times   map[uint64]time.Time // when each change arrived
	gap     error
}

// change is one event of a watch.
type change struct {
	version uint64
	kind    watch.EventType
	object  runtime.Object
}

// Start begins to observe the apps/v1 workloads and the pods of a namespace; the observer ends with the test. The
// existing objects are the first state of the record.
func Start(t *testing.T, client kubernetes.Interface, namespace string) *Observer {
	t.Helper()
	return start(t, feedsOfPlans(client, namespace))
}

func start(t *testing.T, feeds []*feed) *Observer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o := &Observer{feeds: feeds, cancel: cancel, times: map[uint64]time.Time{}}
	t.Cleanup(o.Stop)
	for _, f := range o.feeds {
		list, err := f.list(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		items, err := meta.ExtractList(list)
		require.NoError(t, err)
		o.first = append(o.first, items...)
		m, err := meta.ListAccessor(list)
		require.NoError(t, err)
		f.version = m.GetResourceVersion()
	}
	for _, f := range o.feeds {
		o.ending.Go(func() { o.follow(ctx, f) })
	}
	return o
}

// Stop ends the watches and keeps the record. At the end of the test it is called again.
func (o *Observer) Stop() {
	o.cancel()
	o.ending.Wait()
}

// Timeline returns what has happened until now. It waits until every change that the API server has made so far has
// arrived.
func (o *Observer) Timeline(t *testing.T) *Timeline {
	t.Helper()
	o.catchUp(t)
	o.mu.Lock()
	defer o.mu.Unlock()
	tl, err := newTimeline(o.first, o.changes)
	require.NoError(t, err)
	return tl
}

// catchUp waits until every change that the API server has made so far has arrived.
func (o *Observer) catchUp(t *testing.T) {
	t.Helper()
	until := time.Now().Add(time.Minute)
	for lags := o.lag(t); lags != ""; lags = o.lag(t) {
		require.True(t, time.Now().Before(until), "the watches do not catch up: %s", lags)
		time.Sleep(50 * time.Millisecond) // until the next check
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	require.NoError(t, o.gap, "the record has a gap")
}

// RequireAtMostOneUnavailable fails the test if more than one pod of a service was unavailable at any moment while a
// release claimed it.
func (o *Observer) RequireAtMostOneUnavailable(t *testing.T, service ...Name) {
	t.Helper()
	tl := o.Timeline(t)
	most, at := tl.MostUnavailable(service...)
	require.LessOrEqual(t, most, int32(1), "unavailable pods of %v at once, after version %d (%s):\n%s", service,
		at.Version, at.What, tl)
}

// lag compares the record with the present objects. It returns "" if they are equal, else the first difference.
func (o *Observer) lag(t *testing.T) string {
	present := map[string]string{}
	for _, f := range o.feeds {
		// each: a busy API server takes a while for all of them
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		list, err := f.list(ctx, metav1.ListOptions{})
		cancel()
		if err != nil {
			return err.Error()
		}
		items, err := meta.ExtractList(list)
		require.NoError(t, err)
		for _, item := range items {
			present[key(item)] = versionText(item)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gap != nil {
		return ""
	}
	recorded := map[string]string{}
	for _, item := range o.first {
		recorded[key(item)] = versionText(item)
	}
	for _, c := range o.changes {
		if c.kind == watch.Deleted {
			delete(recorded, key(c.object))
		} else {
			recorded[key(c.object)] = versionText(c.object)
		}
	}
	for name, version := range present {
		if recorded[name] != version {
			return fmt.Sprintf("%s has version %s, recorded is %q", name, version, recorded[name])
		}
		delete(recorded, name)
	}
	for name := range recorded {
		return name + " is deleted, but still recorded"
	}
	return ""
}

// follow records one watch and restarts it whenever it breaks, also while the API server is unreachable.
func (o *Observer) follow(ctx context.Context, f *feed) {
	for ctx.Err() == nil {
		w, err := f.watch(ctx, metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true})
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				o.setGap(err)
				return
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		for event := range w.ResultChan() {
			if !o.record(f, event) {
				break
			}
		}
		w.Stop()
	}
}

// record records one event; false means that the watch must be restarted.
func (o *Observer) record(f *feed, event watch.Event) bool {
	if event.Type == watch.Error {
		if err := apierrors.FromObject(event.Object); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			o.setGap(err)
		}
		return false
	}
	f.version = versionText(event.Object)
	if event.Type == watch.Bookmark {
		return true
	}
	version, err := strconv.ParseUint(f.version, 10, 64)
	if err != nil {
		o.setGap(err)
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.times[version] = time.Now()
	o.changes = append(o.changes, change{version: version, kind: event.Type, object: event.Object})
	return true
}

func (o *Observer) setGap(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gap = err
}

func versionText(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}
