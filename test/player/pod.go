package player

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// retryInterval is the delay before the player repeats a failed request or looks again for a missing object.
const retryInterval = 300 * time.Millisecond

// play is one pod and its processes.
type play struct {
	*Player
	pod    *corev1.Pod
	folder string
	status *status

	// ctx ends when all processes of the pod must end.
	ctx  context.Context
	kill context.CancelFunc
	// endRequested is closed when the pod must end within its grace period.
	endRequested chan struct{}
	endOnce      sync.Once
	grace        time.Duration
}

func newPlay(p *Player, pod *corev1.Pod) *play {
	ctx, kill := context.WithCancel(p.ctx)
	return &play{Player: p, pod: pod, folder: filepath.Join(p.folder, string(pod.UID)), status: newStatus(pod),
		ctx: ctx, kill: kill, endRequested: make(chan struct{})}
}

// requestEnd makes the pod end.
func (p *play) requestEnd(grace *int64) {
	p.endOnce.Do(func() {
		if grace != nil {
			p.grace = time.Duration(*grace) * time.Second
		}
		close(p.endRequested)
	})
}

func (p *play) ending() bool {
	select {
	case <-p.endRequested:
		return true
	case <-p.ctx.Done():
		return true
	default:
		return false
	}
}

// pause waits; it returns false if the pod must end before.
func (p *play) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.endRequested:
		return false
	case <-p.ctx.Done():
		return false
	}
}

// run runs the pod until its object is deleted.
func (p *play) run() {
	defer p.kill()
	defer os.RemoveAll(p.folder)
	if ended := p.pod.Status.Phase == corev1.PodSucceeded || p.pod.Status.Phase == corev1.PodFailed; !ended {
		var reports sync.WaitGroup
		defer reports.Wait()
		reports.Go(p.report)
		p.runContainers()
	}
	select {
	case <-p.endRequested:
	case <-p.ctx.Done():
		return
	}
	p.retry(p.write)
	p.retry(p.remove)
	p.kill()
}

// runContainers runs the containers until all have ended.
func (p *play) runContainers() {
	p.retry(func(ctx context.Context) error {
		return p.annotate(ctx, map[string]any{annotationComplete: completeAfter, annotationDelete: deleteAfter})
	})
	if !p.prepare() || !p.initialize() {
		return
	}
	var containers sync.WaitGroup
	for i := range p.pod.Spec.Containers {
		containers.Go(func() { p.newRunner(&p.pod.Spec.Containers[i], p.status.mains, i).run() })
	}
	containers.Wait()
}

// prepare creates the volumes and retries until their sources exist. It returns false if the pod must end before.
func (p *play) prepare() bool {
	for {
		err := p.makeVolumes()
		if err == nil {
			return !p.ending()
		}
		p.status.setWaitingMessage(err.Error())
		if !p.pause(retryInterval) {
			return false
		}
	}
}

// initialize runs the init containers and reports whether the containers may start.
func (p *play) initialize() bool {
	for i := range p.pod.Spec.InitContainers {
		if !p.newRunner(&p.pod.Spec.InitContainers[i], p.status.inits, i).run() {
			return false
		}
	}
	return !p.ending()
}

// retry calls do until it succeeds or the pod's object is deleted.
func (p *play) retry(do func(context.Context) error) {
	for p.ctx.Err() == nil {
		err := do(p.ctx)
		// a conflict means another pod of that name
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		select {
		case <-time.After(retryInterval):
		case <-p.ctx.Done():
		}
	}
}

// report writes the status after each change.
func (p *play) report() {
	for {
		select {
		case <-p.status.changed:
			p.retry(p.write)
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *play) write(ctx context.Context) error {
	p.status.writeMu.Lock()
	defer p.status.writeMu.Unlock()
	return p.patch(ctx, map[string]any{"status": p.status.document()}, "status")
}

func (p *play) annotate(ctx context.Context, annotations map[string]any) error {
	return p.patch(ctx, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// patch changes this pod, and no other pod of the same name.
func (p *play) patch(ctx context.Context, change map[string]any, subresources ...string) error {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		change["metadata"] = metadata
	}
	metadata["uid"] = p.pod.UID
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.pod.Name, err)
	}
	_, err = p.kube.CoreV1().Pods(p.pod.Namespace).Patch(ctx, p.pod.Name, types.StrategicMergePatchType, body,
		metav1.PatchOptions{}, subresources...)
	return err
}

// remove deletes the object of an ended pod.
func (p *play) remove(ctx context.Context) error {
	now := int64(0)
	return p.kube.CoreV1().Pods(p.pod.Namespace).Delete(ctx, p.pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.pod.UID}})
}
