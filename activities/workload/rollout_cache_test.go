package workload_test

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// unreliable configures the faults of watches.
type unreliable struct {
	// body replaces what the server sends.
	body func(io.ReadCloser) io.ReadCloser
	// back makes each continued watch start again at the version of the first continuation: it then shows older events
	// again.
	back bool
}

// watched replaces what all watches of workloads and revisions send.
func (b *bench) watched(u unreliable) {
	var mu sync.Mutex
	first := map[string]string{}
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		if query.Get("watch") != "true" || !strings.HasSuffix(r.URL.Path, "/deployments") &&
			!strings.HasSuffix(r.URL.Path, "/replicasets") {
			return nil, nil
		}
		if version := query.Get("resourceVersion"); u.back && version != "" && query.Get("sendInitialEvents") == "" {
			mu.Lock()
			first[r.URL.Path] = cmp.Or(first[r.URL.Path], version)
			query.Set("resourceVersion", first[r.URL.Path])
			mu.Unlock()
			r = r.Clone(r.Context())
			r.URL.RawQuery = query.Encode()
		}
		response, err := b.traffic.next.RoundTrip(r)
		if err == nil {
			response.Body = u.body(response.Body)
		}
		return response, err
	})
}

// late is a body that arrives late.
type late struct {
	io.ReadCloser
	by     time.Duration
	begin  sync.Once
	chunks chan chunk
	rest   []byte
}

// chunk is a piece of a body, and when it may be read.
type chunk struct {
	bytes []byte
	at    time.Time
	err   error
}

func (l *late) fetch() {
	for {
		buffer := make([]byte, 32<<10)
		n, err := l.ReadCloser.Read(buffer)
		l.chunks <- chunk{buffer[:n], time.Now().Add(l.by), err}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (l *late) Read(p []byte) (int, error) {
	l.begin.Do(func() { go l.fetch() })
	if len(l.rest) == 0 {
		c := <-l.chunks
		if c.err != nil {
			return 0, c.err
		}
		time.Sleep(time.Until(c.at)) // not yet arrived
		l.rest = c.bytes
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// torn is a body that breaks off after a number of bytes.
type torn struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (t *torn) Read(p []byte) (int, error) {
	if t.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := t.ReadCloser.Read(p[:min(len(p), t.left)])
	t.left -= n
	return n, err
}

// behind delays what watches send.
func behind(by time.Duration) unreliable {
	return unreliable{body: func(r io.ReadCloser) io.ReadCloser {
		return &late{ReadCloser: r, by: by, chunks: make(chan chunk, 1000)}
	}}
}

// breaking makes watches break off after this number of bytes.
func breaking(bytes int) func(io.ReadCloser) io.ReadCloser {
	return func(r io.ReadCloser) io.ReadCloser { return &torn{ReadCloser: r, left: bytes} }
}

// Lagging watches only cost time: no write that moves pods is based on them.
func TestMove_WithLaggingWatches(t *testing.T) {
	moveByWatches(newBench(t), "the watches are three seconds late", behind(3*time.Second))
}

// The same holds for watches that are older than any attempt, break repeatedly, or continue with older events.
func TestLongMove_WithUnreliableWatches(t *testing.T) {
	harness.Long(t)
	for name, c := range map[string]struct {
		reason  string
		watches unreliable
	}{
		"TenSeconds": {"the watches show the time before the attempt", behind(10 * time.Second)},
		"Break":      {"they break off after some events", unreliable{body: breaking(60 << 10)}},
		"Older": {"after each interruption they repeat all earlier events",
			unreliable{body: breaking(200 << 10), back: true}},
	} {
		t.Run(name, func(t *testing.T) {
			moveByWatches(newBench(t), c.reason, c.watches)
		})
	}
}

// moveByWatches makes a rollout of three steps and finalises it, with surge and without, and checks the split at each
// step and the pods throughout.
func moveByWatches(b *bench, reason string, watches unreliable) {
	b.use(b.config, workloads.Options{ListenFor: 2 * time.Second})
	b.watched(watches)
	for name, limits := range map[string][2]string{"surging": {"0", "1"}, "taking": {"1", "0"}} {
		b.deployment(name, 5, own(limits[0], limits[1]))
		b.settled(observer.Name{Kind: "Deployment", Name: name}, 5)
		before := b.state(b.release(name, strategy.StylePartition, "").name)
		floor, ceiling := 5, 6
		if limits[0] == "1" {
			floor, ceiling = 4, 5
		}
		held := b.watchFloor(name, floor, ceiling)
		r := b.release(name, strategy.StylePartition, "x:second")
		r.begin()
		for step, replicas := range []string{"20%", "60%"} {
			moved := r.move(step+1, replicas)
			require.Equal(b.t, []int32{1, 3}[step], moved.Updated, "%s: it stops at exactly this number", reason)
			b.holds(name, map[string]int{"x:second": int(moved.Updated), "x:good": 5 - int(moved.Updated)})
		}
		last := r.moveRequest(3, "100%")
		last.Settle, last.Native = false, true
		r.moved(last)
		r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
		held()
		b.requireFinalised(before, name, "x:second", 5)
	}
}

// An event between two activities of one leg wakes no waiting attempt: the next activity must not wait for another
// event, which may never come.
func TestMove_SeesEventsBetweenActivities(t *testing.T) {
	b := newBench(t)
	b.deployment("app", 2, nil)
	b.settled(observer.Name{Kind: "Deployment", Name: "app"}, 2)
	ctx, end := workloads.ShareReads(t.Context())
	defer end()
	r := b.release("app", strategy.StylePartition, "x:second")
	var err error
	r.begun, err = b.acts.Begin(ctx, rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(),
		Change: r.change})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		d, err := b.kube.AppsV1().Deployments(b.namespace).Get(t.Context(), "app", metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration == d.Generation
	}, harness.Patience, harness.Tick, "the native controller sees the claim")
	b.claimTold("app")
	began := time.Now()
	moved, err := b.acts.Move(ctx, r.moveRequest(1, "50%"))
	require.NoError(t, err)
	require.Equal(t, int32(1), moved.Updated)
	require.Less(t, time.Since(began), 8*time.Second,
		"an activity that has missed it reads again only after ten seconds")
}

// The preflight's knowledge of the new version is kept: a Move right after its claim decides from the watch cache, and
// sends no read to the server.
func TestMove_AfterBeginSendsNoReads(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"before", "app"} { // the first one starts the watches
		b.deployment(name, 2, own("1", "0"))
		b.settled(observer.Name{Kind: "Deployment", Name: name}, 2)
		ctx, end := workloads.ShareReads(t.Context())
		defer end()
		r := b.release(name, strategy.StylePartition, "x:second")
		first := r.moveRequest(1, "100%")
		first.Native, first.Settle, first.Predicted = true, false, r.preflight().Predicted
		var err error
		r.begun, err = b.acts.BeginMoving(ctx, rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(),
			Change: r.change},
			func(rollout.BeginResult) *rollout.MoveRequest { return &first })
		require.NoError(t, err)
		require.True(t, r.begun.TemplateWritten)
		var asked atomic.Int32
		b.traffic.set(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && r.URL.Query().Get("watch") != "true" {
				asked.Add(1)
			}
			return nil, nil
		})
		moved, err := b.acts.Move(ctx, first)
		b.traffic.set(nil)
		require.NoError(t, err)
		require.Equal(t, int32(2), moved.Updated)
		if name == "app" {
			require.Zero(t, asked.Load())
		}
	}
}

// claimTold returns when a watch that starts now has shown the claim in its current state: then a long-running one has
// shown it as well.
func (b *bench) claimTold(name string) {
	b.t.Helper()
	watcher, err := b.kube.AppsV1().Deployments(b.namespace).Watch(b.t.Context(),
		metav1.ListOptions{LabelSelector: workload.SelectClaimed})
	require.NoError(b.t, err)
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if d, is := event.Object.(*appsv1.Deployment); is && d.Name == name &&
			d.Status.ObservedGeneration == d.Generation {
			return
		}
	}
}

// A decision from the watch cache must not be written into a workload that a user has taken over for repair since: the
// patch itself tests that the annotation is still absent.
func TestPatch_CanTestAbsentAnnotation(t *testing.T) {
	b := newBench(t)
	b.deployment("app", 1, func(d *appsv1.Deployment) { d.Annotations = map[string]string{"other": "is there"} })
	patch := func() error {
		body, err := json.Marshal([]jsonpatch.Op{jsonpatch.Test(jsonpatch.Annotation(rollout.AnnotationRepair), nil),
			jsonpatch.Add("/spec/paused", true)})
		require.NoError(t, err)
		_, err = b.kube.AppsV1().Deployments(b.namespace).Patch(t.Context(), "app", types.JSONPatchType, body,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	require.NoError(t, patch(), "the annotation is absent")
	_, err := b.kube.AppsV1().Deployments(b.namespace).Patch(t.Context(), "app", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+rollout.AnnotationRepair+`":"alice"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, kube.Rejected, kube.Classify(patch()), "the annotation is present")
}
