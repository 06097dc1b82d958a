package workload_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/strategy"
)

// After a failed Move the rollout waits for a user; as at a pause, an edit by another client moves no pod meanwhile.
func TestFailedMove_StopsPods(t *testing.T) {
	for _, c := range []struct {
		reason string
		breaks func(b *bench)
		kind   failure.Kind
		says   string
	}{
		{"its deadline has passed", func(b *bench) {
			b.speedUpClock("/deployments/web", changesUntilMoving)
		}, failure.WorkloadFailed, "new pods are ready"},
		{"the server refuses a change", func(b *bench) {
			b.refuseChange("/deployments/web", changesUntilMoving+1)
		}, failure.Refused, "no more of this"},
		{"another client edits the template", func(b *bench) {
			b.editsAfter("/deployments/web", changesUntilMoving)
		}, failure.Drift, "changed its pod template"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 10, own("1", "0"))
			b.settled(web(), 10)
			r := b.release("web", strategy.StylePartition, "x:new")
			r.begin()
			r.move(1, "50%")
			c.breaks(b)
			require.Contains(t, r.moveFails(r.moveRequest(2, "100%"), c.kind).Message(), c.says)
			b.traffic.set(nil)
			require.JSONEq(t, `{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1,"maxSurge":0}}`,
				b.strategyOf("web"))
			if c.kind == failure.Drift { // its controller was faster
				return
			}
			whole := func() bool {
				split := b.split("web")
				return split["x:third"]+split["x:new"]+split["x:good"] == 10 && len(b.pods("web")) == 10
			}
			require.Eventually(t, whole, patience, tick)
			split := b.split("web")
			require.Greater(t, split["x:new"], 5, "it stopped within a step")
			stop := b.watchFloor("web", 9, 10)
			b.merge(web(), `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x:third"}]}}}}`)
			marker := b.touch("web")
			require.Eventually(t, func() bool {
				d, err := b.kube.AppsV1().Deployments(b.namespace).Get(t.Context(), "web", metav1.GetOptions{})
				require.NoError(t, err)
				return d.Spec.Paused && d.Status.ObservedGeneration >= marker && whole()
			}, patience, tick)
			stop()
			require.Equal(t, split, b.split("web"), "its controller has seen the edit, and no pod has moved")
		})
	}
}

// changesUntilMoving is the number of changes of a Deployment until its pods move on after a pause: the gate, the
// question, and the first limit.
const changesUntilMoving = 3

// speedUpClock makes the clock of the activities jump ahead once this number of changes of an object were made.
func (b *bench) speedUpClock(path string, n int64) {
	var changed, looks atomic.Int64
	b.use(b.config, workload.Options{Now: func() time.Time {
		if changed.Load() >= n {
			looks.Add(1)
		}
		return time.Now().Add(time.Duration(looks.Load()) * 20 * time.Second)
	}})
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, path) {
			changed.Add(1)
		}
		return nil, nil
	})
}

// refuseChange makes the server refuse the n-th change of an object from now on, as an admission rule would, also when
// the client repeats it because it has the permission (kube.Configure); it accepts later ones.
func (b *bench) refuseChange(path string, n int32) {
	var made atomic.Int32
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, path) ||
			strings.Contains(r.URL.RawQuery, "dryRun") {
			return nil, nil
		}
		if change := made.Add(1); change != n && change != n+1 {
			return nil, nil
		}
		return answer(r, http.StatusForbidden,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"admission webhook denied the request: no more of this","code":403}`), nil
	})
}

// editsAfter sets another image, as another client, once this number of changes of an object were made.
func (b *bench) editsAfter(path string, n int32) {
	var made atomic.Int32
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, path) &&
			!strings.Contains(r.URL.RawQuery, "dryRun") && made.Add(1) == n+1 {
			b.merge(web(), `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x:other"}]}}}}`)
		}
		return nil, nil
	})
}

func (b *bench) strategyOf(name string) string {
	b.t.Helper()
	d, err := b.kube.AppsV1().Deployments(b.namespace).Get(b.t.Context(), name, metav1.GetOptions{})
	require.NoError(b.t, err)
	raw, err := json.Marshal(d.Spec.Strategy)
	require.NoError(b.t, err)
	return string(raw)
}
