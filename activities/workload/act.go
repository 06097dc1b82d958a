package workload

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/workloadops"
)

const (
	// rereadEvery is how often a workload is read while its watch does not work.
	rereadEvery = time.Second
	// settle is how long a change of a pod is left to bring others with it.
	settle = 50 * time.Millisecond
)

// write makes one write, which may end the operation.
func (t *operationJob) write(ctx context.Context, o *object, d workloadops.NextAction) (attempt.Next, error) {
	end, ends := d.Ending()
	if ends {
		// The answer is put on record first: once the claim is given back, nothing on the workload tells what was done.
		t.Note(func(p *workloadops.Progress) { p.Ending = &end })
		if err := t.Record(ctx); err != nil {
			return attempt.Next{}, err
		}
	}
	after, err := t.patch(ctx, o, d.Write)
	if err != nil {
		if kube.Classify(err) == kube.Rejected {
			// Most likely somebody was faster; the next look tells.
			t.rejected, t.rejectedError = o.GetResourceVersion(), err
			return attempt.Next{}, nil
		}
		return attempt.Next{}, err
	}
	t.a.options.Logger.InfoContext(ctx, "workload changed",
		"workload", t.req.Workload.String(), "operation", t.req.Operation, "step", d.Write.Step, "reason", d.Reason)
	if ends {
		return t.ends(&end)
	}
	t.fresh = after
	return attempt.Next{}, nil
}

func (t *operationJob) patch(ctx context.Context, o *object, w *workloadops.Write) (*object, error) {
	body, err := jsonPatch(o, w)
	if err != nil {
		return nil, err
	}
	point := string(t.req.Operation) + "/" + w.Step
	failpoint.Hit("workload.patch.before/" + point)
	after, err := t.a.patch(ctx, t.kind.resource, o.Unstructured, body)
	failpoint.Hit("workload.patch.after/" + point)
	if err != nil {
		return nil, err
	}
	return t.kind.observe(after), nil
}

// wait waits for a change of the workload, and of its pods when the decision asks for that.
func (t *operationJob) wait(d workloadops.NextAction) attempt.Next {
	next := attempt.Next{Action: attempt.Wait, Reason: d.Reason, Within: t.sub.within(t.Now(), t.nextLook, false),
		Listen: func(context.Context) (<-chan struct{}, error) { return t.sub.wake, nil }}
	if d.WatchPods && t.podsAt.version != "" {
		next.Listen = t.watchPods
	}
	return next
}

// watchPods listens for changes of the workload, and of its pods from where they were last read.
func (t *operationJob) watchPods(ctx context.Context) (<-chan struct{}, error) {
	seconds := int64(t.a.options.ListenFor/time.Second) + 1
	pods, err := t.a.client.CoreV1().Pods(t.req.Workload.Namespace).Watch(ctx, metav1.ListOptions{
		LabelSelector: t.podsAt.selector, ResourceVersion: t.podsAt.version, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return nil, err
	}
	go func() {
		defer pods.Stop()
		select {
		case <-ctx.Done():
			return
		case <-pods.ResultChan():
		}
		select {
		case <-ctx.Done():
		case <-time.After(settle):
			t.sub.ring()
		}
	}()
	return t.sub.wake, nil
}
