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

// again is how long the player waits before it tries again what the API server or a missing object has kept it from.
const again = 300 * time.Millisecond

// play is one pod and what runs of it.
type play struct {
	*Player
	pod    *corev1.Pod
	folder string
	status *status

	// ctx ends when nothing of the pod may go on any longer.
	ctx  context.Context
	kill context.CancelFunc
	// asked is closed when the pod is to end within its grace.
	asked   chan struct{}
	askOnce sync.Once
	grace   time.Duration
}

func newPlay(p *Player, pod *corev1.Pod) *play {
	ctx, kill := context.WithCancel(p.ctx)
	return &play{Player: p, pod: pod, folder: filepath.Join(p.folder, string(pod.UID)), status: newStatus(pod), ctx: ctx, kill: kill, asked: make(chan struct{})}
}

// ask says that the pod is to end.
func (p *play) ask(grace *int64) {
	p.askOnce.Do(func() {
		if grace != nil {
			p.grace = time.Duration(*grace) * time.Second
		}
		close(p.asked)
	})
}

func (p *play) ending() bool {
	select {
	case <-p.asked:
		return true
	case <-p.ctx.Done():
		return true
	default:
		return false
	}
}

// pause waits, and says no when the pod is to end before.
func (p *play) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.asked:
		return false
	case <-p.ctx.Done():
		return false
	}
}

// run plays the pod until its object is gone.
func (p *play) run() {
	defer p.kill()
	defer os.RemoveAll(p.folder)
	if ended := p.pod.Status.Phase == corev1.PodSucceeded || p.pod.Status.Phase == corev1.PodFailed; !ended {
		var reports sync.WaitGroup
		defer reports.Wait()
		reports.Go(p.report)
		p.perform()
	}
	select {
	case <-p.asked:
	case <-p.ctx.Done():
		return
	}
	p.persist(p.write)
	p.persist(p.remove)
	p.kill()
}

// perform runs the containers until each has come to its end.
func (p *play) perform() {
	p.persist(func(ctx context.Context) error {
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

// prepare makes the volumes, which may have to wait for what they are made of. It says no when the pod is to end before.
func (p *play) prepare() bool {
	for {
		err := p.makeVolumes()
		if err == nil {
			return !p.ending()
		}
		p.status.hold(err.Error())
		if !p.pause(again) {
			return false
		}
	}
}

// initialize runs the init containers and says whether the containers are to follow.
func (p *play) initialize() bool {
	for i := range p.pod.Spec.InitContainers {
		if !p.newRunner(&p.pod.Spec.InitContainers[i], p.status.inits, i).run() {
			return false
		}
	}
	return !p.ending()
}

// persist does something until it succeeds or the pod's object is gone.
func (p *play) persist(do func(context.Context) error) {
	for p.ctx.Err() == nil {
		err := do(p.ctx)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // a conflict: another pod of that name
			return
		}
		select {
		case <-time.After(again):
		case <-p.ctx.Done():
		}
	}
}

// report writes the status whenever it has changed.
func (p *play) report() {
	for {
		select {
		case <-p.status.changed:
			p.persist(p.write)
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *play) write(ctx context.Context) error {
	p.status.writing.Lock()
	defer p.status.writing.Unlock()
	return p.patch(ctx, map[string]any{"status": p.status.document()}, "status")
}

func (p *play) annotate(ctx context.Context, annotations map[string]any) error {
	return p.patch(ctx, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// patch changes this pod and no other of its name.
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
	_, err = p.kube.CoreV1().Pods(p.pod.Namespace).Patch(ctx, p.pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, subresources...)
	return err
}

// remove takes the object of a pod away that has ended.
func (p *play) remove(ctx context.Context) error {
	now := int64(0)
	return p.kube.CoreV1().Pods(p.pod.Namespace).Delete(ctx, p.pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.pod.UID}})
}
