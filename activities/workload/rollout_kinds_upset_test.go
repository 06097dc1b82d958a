package workload_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/kruise"
)

// dieAfterWrite replaces the activities, and kills their process at the instant of its n-th write: the write is made,
// but its answer and everything after it is lost. died reports whether that happened.
func (d *dock) dieAfterWrite(n int32) (died func() bool) {
	d.t.Helper()
	d.use(d.config, workloads.Options{ListenFor: 2 * time.Second})
	alive, die := context.WithCancel(d.t.Context())
	d.process = worker.Options{BackgroundActivityContext: alive}
	var writes atomic.Int32
	lost := errors.New("the process died")
	line := d.traffic
	line.set(func(r *http.Request) (*http.Response, error) {
		if writes.Load() >= n {
			return nil, lost
		}
		if r.Method != http.MethodPatch && r.Method != http.MethodDelete || r.URL.Query().Has("dryRun") {
			return nil, nil
		}
		response, err := line.next.RoundTrip(r)
		if writes.Add(1) < n {
			return response, err
		}
		if err == nil {
			_ = response.Body.Close()
		}
		die()
		return nil, lost
	})
	return func() bool { die(); return writes.Load() >= n }
}

func TestKindsContinue_AfterProcessDied(t *testing.T) {
	eachKind(t, 5, func(t *testing.T, k releasable) {
		d := newDock(t, k)
		r := d.release()
		r.budget = 0
		stop := d.watchFloor("w", 3, 4)
		// Each activity is started by a process that dies after its first write, then by one that dies after its
		// second, and so on, until one completes it.
		through := func(name string, req, result any) {
			t.Helper()
			for n := int32(1); n < 20; n++ {
				died := d.dieAfterWrite(n)
				err := r.attempt(name, req, result)
				if !died() && err == nil {
					return
				}
			}
			t.Fatalf("%s did not end", name)
		}
		through(activityBegin, rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(),
			Change: r.change}, &r.begun)
		var moved rollout.MoveResult
		through(activityMove, r.moveRequest(1, "50%"), &moved)
		d.holds(quarterSteps[1].split)
		r.template = moved.Template
		var finished rollout.MoveResult
		through(activityFinish, r.finishRequest(rollout.FinishResume, rollout.SideStable), &finished)
		stop()
		d.use(d.config, workloads.Options{})
		r.finish(rollout.FinishRelease, rollout.SideStable)
		d.requireEnded("x:good", 4)
	})
}

// A step is halted while its pods move: pods that have moved stay, and no other moves until the step continues,
// whichever controller replaces the pods.
func TestKindsHalt_DuringStep(t *testing.T) {
	eachKind(t, 6, func(t *testing.T, k releasable) {
		k.spec = withSlowPods(t, k.spec)
		d := newDock(t, k)
		r := d.release()
		r.budget = 0
		r.begin()
		stop := d.watchFloor("w", 3, 4)
		died := d.dieAfterWrite(1)
		require.Error(t, r.attempt(activityMove, r.moveRequest(1, "100%"), &rollout.MoveResult{}),
			"the result with its template is lost")
		require.True(t, died(), "its controller was allowed to move the step's pods")
		d.use(d.config, workloads.Options{})
		halt := r.moveRequest(1, "100%")
		halt.Halt = true
		require.Less(t, r.moved(halt).Updated, int32(4))
		d.quiet()
		require.Eventually(t, func() bool {
			now := d.split("w")
			return now["x:good"]+now["x:new"] == 4
		}, patience, tick, "the pod that was being replaced becomes ready")
		split := d.split("w")
		require.NotZero(t, split["x:good"], "it was halted within the step: %v", split)
		d.holds(split)
		r.move(1, "100%")
		r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
		stop()
		d.requireEnded("x:new", 4)
	})
}

// withSlowPods is a spec whose pods take a while to become ready.
func withSlowPods(t *testing.T, spec string) string {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(spec), &fields))
	slow := map[string]any{"dev.slipway.io/behaviour": "slow", "dev.slipway.io/ready-after": "3s"}
	fields["template"] = map[string]any{"metadata": map[string]any{"annotations": slow}}
	out, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(out)
}

func TestKindsRollBack_FrozenSplit(t *testing.T) {
	eachKind(t, 7, func(t *testing.T, k releasable) {
		d := newDock(t, k)
		r := d.release()
		r.begin()
		r.move(1, "50%")
		r.finish(rollout.FinishFreeze, rollout.SideStable)
		require.NotContains(t, d.object().GetLabels(), workload.LabelClaimed, "the claim is released")
		require.Contains(t, d.object().GetAnnotations(), workload.AnnotationRollout, "the saved state remains")
		d.holds(quarterSteps[1].split)
		next := d.release()
		next.run = "run-2"
		require.NotNil(t, next.begin().Adopted, "the next release finds the frozen split")
		next.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
		d.requireEnded("x:good", 4)
	})
}

func TestKindsStopToNewVersion_DuringStep(t *testing.T) {
	eachKind(t, 8, func(t *testing.T, k releasable) {
		d := newDock(t, k)
		r := d.release()
		r.begin()
		stop := d.watchFloor("w", 3, 4)
		r.move(1, "25%")
		r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
		stop()
		d.requireEnded("x:new", 4)
	})
}

func TestKindsFollowScaling_WhilePaused(t *testing.T) {
	eachKind(t, 9, func(t *testing.T, k releasable) {
		if !k.sized {
			return
		}
		d := newDock(t, k)
		r := d.release()
		r.begin()
		r.move(1, "50%")
		for _, size := range []int{8, 2, 4} {
			d.edit(fmt.Sprintf(`{"spec":{"replicas":%d}}`, size))
			require.Eventually(t, func() bool { return len(d.pods("w")) == size }, patience, tick)
			d.quiet()
			look := r.moveRequest(1, "50%")
			look.Inspect = true
			got := r.moved(look)
			require.Equal(t, int32(size), got.Replicas)
			require.GreaterOrEqual(t, got.UpdatedReady, int32(size/2), "a new size is followed: %s", got.Message)
			if k.kind == "CloneSet" {
				require.Equal(t, map[string]int{"x:new": size / 2, "x:good": size - size/2}, d.split("w"),
					"the split of a CloneSet keeps its proportion")
			}
		}
		r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
		d.requireEnded("x:good", 4)
	})
}

func TestKindsWithOwnPartition(t *testing.T) {
	eachKind(t, 10, func(t *testing.T, k releasable) {
		own := `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`
		switch k.title {
		case "DaemonSet":
			return
		case "CloneSet":
			own = `{"spec":{"updateStrategy":{"partition":2}}}`
		}
		d := newDock(t, k)
		d.edit(own)
		d.quiet()
		d.before = d.specNow()
		r := d.release()
		r.begin()
		r.move(1, "25%")
		r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
		d.requireEnded("x:new", 4)
	})
}

func TestKindsWithOnDeleteAreRefused(t *testing.T) {
	eachKind(t, 11, func(t *testing.T, k releasable) {
		if k.kind == "CloneSet" {
			return
		}
		d := newDock(t, k)
		d.edit(`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
		d.quiet()
		refusals := d.release().preflight().Refusals
		require.Len(t, refusals, 1)
		require.Contains(t, refusals[0].Reason, "set its update type to RollingUpdate first")
	})
}

func cloneSetDock(t *testing.T) *dock {
	t.Helper()
	return newDock(t, releasable{"CloneSet", "CloneSet", kruise.CloneSets,
		`{"replicas":4,"updateStrategy":{"maxUnavailable":1}}`, true})
}

func TestCloneSetBlueGreen(t *testing.T) {
	for _, test := range []struct {
		to   rollout.Side
		want string
	}{{rollout.SideNew, "x:new"}, {rollout.SideStable, "x:good"}} {
		t.Run(string(test.to), func(t *testing.T) {
			d := cloneSetDock(t)
			r := d.release()
			r.style = strategy.StyleBlueGreen
			r.begin()
			stop := d.watchFloor("w", 4, 8)
			require.Equal(t, int32(4), r.move(1, "100%").UpdatedReady)
			d.holds(map[string]int{"x:good": 4, "x:new": 4})
			uids := podUIDs(d)
			r.finish(rollout.FinishResumeAndRelease, test.to)
			stop()
			d.requireEnded(test.want, 4)
			for name, uid := range podUIDs(d) {
				require.Equal(t, uids[name], uid, "finalising creates no pod")
			}
		})
	}
}

func TestCloneSetBlueGreenUpToAHalf(t *testing.T) {
	d := cloneSetDock(t)
	r := d.release()
	r.style = strategy.StyleBlueGreen
	r.begin()
	stop := d.watchFloor("w", 4, 6)
	r.move(1, "25%")
	d.holds(map[string]int{"x:good": 4, "x:new": 1})
	r.move(2, "50%")
	d.holds(map[string]int{"x:good": 4, "x:new": 2})
	for _, image := range []string{"x:good", "x:new"} {
		d.editImage(image)
		d.quiet()
		d.holds(map[string]int{"x:good": 4, "x:new": 2})
	}
	refused := r.moveFails(r.moveRequest(3, "100%"), failure.Refused)
	require.Contains(t, refused.Message(), "only in its first step")
	d.holds(map[string]int{"x:good": 4, "x:new": 2})
	r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
	stop()
	d.requireEnded("x:good", 4)
}
