package workload

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/activities/trouble"
	"slipway.io/slipway/release/workloadops"
)

const (
	// rereadEvery is how often a workload is read while its watch does not work.
	rereadEvery = time.Second
	// settle is how long a change of a pod is left to bring others with it.
	settle = 50 * time.Millisecond
)

// write makes one write; it returns the end when the operation ends with it.
func (t *attempt) write(ctx context.Context, o *object, d workloadops.Decision) (*workloadops.Ending, error) {
	end, ends := d.Ends()
	if ends {
		// The answer is put on record first: once the claim is given back, nothing on the workload tells what was done.
		t.beat.Note(func(p *workloadops.Progress) { p.Ending = &end })
		if err := tell(ctx, t.beat, t.a.options.Recorder); err != nil {
			return nil, err
		}
	}
	after, err := t.patch(ctx, o, d.Write)
	if err != nil {
		if trouble.Sort(err) == rejected {
			// Most likely somebody was faster; the next look tells.
			t.rejected, t.rejectedError = o.meta.ResourceVersion, err
			return nil, nil
		}
		return nil, err
	}
	t.a.options.Logger.InfoContext(ctx, "workload changed", "workload", t.req.Workload.String(), "operation", t.req.Operation, "step", d.Write.Step, "reason", d.Reason)
	if ends {
		return &end, nil
	}
	t.fresh = after
	return nil, nil
}

func (t *attempt) patch(ctx context.Context, o *object, w *workloadops.Write) (*object, error) {
	body, err := jsonPatch(o, w)
	if err != nil {
		return nil, err
	}
	point := string(t.req.Operation) + "/" + w.Step
	call, cancel := t.a.call(ctx)
	defer cancel()
	failpoint.Hit("workload.patch.before/" + point)
	after, err := t.kind.patch(call, o.meta.Namespace, o.meta.Name, body)
	failpoint.Hit("workload.patch.after/" + point)
	return after, err
}

// delete deletes pods, each only as it was seen. One that is gone or has changed is left to the next look.
func (t *attempt) delete(ctx context.Context, pods []workloadops.Pod) error {
	for _, p := range pods {
		uid := types.UID(p.UID)
		version := p.Version
		call, cancel := t.a.call(ctx)
		failpoint.Hit("pod.delete.before/" + string(t.req.Operation))
		err := t.a.client.CoreV1().Pods(t.req.Workload.Namespace).Delete(call, p.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
		failpoint.Hit("pod.delete.after/" + string(t.req.Operation))
		cancel()
		if err != nil {
			if kind := trouble.Sort(err); kind != missing && kind != changed {
				return err
			}
		}
	}
	return nil
}

// wait listens until something changes, and ends the attempt when its time is over.
func (t *attempt) wait(ctx context.Context, d workloadops.Decision) error {
	now := t.a.options.Now()
	if !now.Before(t.until) {
		return t.notReady()
	}
	timer := time.NewTimer(t.listenFor(now))
	defer timer.Stop()
	var podEvents <-chan watch.Event
	if d.WatchPods && t.podsAt.version != "" {
		pods, err := t.watchPods(ctx)
		if err != nil {
			return err
		}
		defer pods.Stop()
		podEvents = pods.ResultChan()
	}
	select {
	case <-t.sub.wake:
		return nil
	case <-podEvents:
		return t.pause(ctx, settle)
	case <-timer.C:
		return nil
	case <-stopping(ctx):
		return t.notReady()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listenFor is how long to listen without having looked again.
func (t *attempt) listenFor(now time.Time) time.Duration {
	d := t.until.Sub(now)
	if now.Before(t.nextLook) {
		d = min(d, t.nextLook.Sub(now))
	}
	left := time.Duration(t.req.DeadlineSeconds)*time.Second - t.beat.Now().Elapsed()
	d = min(d, max(left, 0)+10*time.Millisecond)
	if !t.sub.live(now) {
		d = min(d, rereadEvery)
	}
	return d
}

// watchPods watches the workload's pods from where they were last read.
func (t *attempt) watchPods(ctx context.Context) (watch.Interface, error) {
	seconds := int64(t.a.options.ListenFor/time.Second) + 1
	return t.a.client.CoreV1().Pods(t.req.Workload.Namespace).Watch(ctx, metav1.ListOptions{
		LabelSelector: t.podsAt.selector, ResourceVersion: t.podsAt.version, TimeoutSeconds: &seconds,
	})
}
