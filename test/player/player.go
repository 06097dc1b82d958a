// Package player plays the containers of marked pods of the local stack as processes. The stack's nodes run nothing: its stages write the status of
// a pod. A marked pod is left to a player, which does what a kubelet does: it makes the pod's volumes, runs its init containers one after the other
// and then its containers, begins again what fails as the restart policy says, writes the pod's status, and ends the pod when it is deleted.
//
// A process has a file system of its own: that of the machine, of which it changes a copy that goes with it, with the pod's volumes mounted in it. The
// network is the machine's. Not played are probes (a container is ready while it runs), lifecycle hooks, resources, activeDeadlineSeconds of a pod (a
// Job's own works), and changes of a running pod; what a volume or a variable is made of is read when the pod begins. A pod with an init container that
// goes on, or with a volume or variable of another kind than emptyDir, secret, configMap, projected and downwardAPI, waits and says why.
package player

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/test/harness"
)

// The annotations of the local stack (deploy/dev/kwok/behaviour.jq). No stage knows the behaviour "played", so that a pod that has it stays Pending. Once
// a player has it, the two times keep the stages from completing and deleting it: they are for a pod whose player has died.
const (
	annotationBehaviour = "dev.slipway.io/behaviour"
	behaviourPlayed     = "played"
	annotationComplete  = "dev.slipway.io/complete-after"
	annotationDelete    = "dev.slipway.io/delete-after"

	completeAfter, deleteAfter = "24h", "10m"
)

// Mark gives a pod, or the template of pods, to the player of its namespace.
func Mark(pod *metav1.ObjectMeta) {
	metav1.SetMetaDataAnnotation(pod, annotationBehaviour, behaviourPlayed)
}

// Options are what a player plays, and with what.
type Options struct {
	// Namespace is where it looks for marked pods.
	Namespace string
	// Images are the programs of this machine that stand for the entry points of images. A container of another image has no process: an init container
	// succeeds at once, another is ready at once and runs until its pod goes.
	Images map[string]string
	// Backoff is how long a container that has ended waits before it runs again: at first, it doubles up to eight times that. 0: one second.
	Backoff time.Duration
}

// Player plays the marked pods of a namespace.
type Player struct {
	options Options
	kube    kubernetes.Interface
	folder  string
	ctx     context.Context

	mu      sync.Mutex
	plays   map[types.UID]*play
	logs    map[string]*output
	playing sync.WaitGroup
}

// Start plays the marked pods of a namespace until the test ends, and skips the test where processes cannot have a file system of their own.
func Start(t testing.TB, stack harness.Stack, options Options) *Player {
	t.Helper()
	if options.Backoff == 0 {
		options.Backoff = time.Second
	}
	ctx, end := context.WithCancel(context.Background())
	p := &Player{options: options, kube: stack.Kube, folder: t.TempDir(), ctx: ctx, plays: map[types.UID]*play{}, logs: map[string]*output{}}
	if err := probe(filepath.Join(p.folder, "probe")); err != nil {
		end()
		t.Skipf("needs root and mount namespaces with overlay file systems, to run containers as processes: %v", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(stack.Kube, 0, informers.WithNamespace(options.Namespace))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { p.see(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { p.see(object.(*corev1.Pod)) },
		DeleteFunc: p.lose,
	})
	require.NoError(t, err)
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		end()
		factory.Shutdown()
		p.playing.Wait()
		p.leave()
	})
	return p
}

// see takes in a pod that is new or has changed.
func (p *Player) see(pod *corev1.Pod) {
	if pod.Annotations[annotationBehaviour] != behaviourPlayed || pod.Spec.NodeName == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one, known := p.plays[pod.UID]
	if !known {
		one = newPlay(p, pod)
		p.plays[pod.UID] = one
		p.playing.Go(one.run)
	}
	if pod.DeletionTimestamp != nil {
		one.ask(pod.DeletionGracePeriodSeconds)
	}
}

// lose takes in that a pod is no more, whoever has deleted it: nothing of it may go on.
func (p *Player) lose(object any) {
	if unseen, is := object.(cache.DeletedFinalStateUnknown); is {
		object = unseen.Obj
	}
	pod, is := object.(*corev1.Pod)
	if !is {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if one, known := p.plays[pod.UID]; known {
		one.kill()
		delete(p.plays, pod.UID)
	}
}

// leave gives the pods that are left back to the stages of the stack, which delete them when they are asked to.
func (p *Player) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pods := p.kube.CoreV1().Pods(p.options.Namespace)
	for _, one := range p.plays {
		now, err := pods.Get(ctx, one.pod.Name, metav1.GetOptions{})
		switch {
		case err != nil || now.UID != one.pod.UID:
		case now.DeletionTimestamp != nil:
			_ = one.remove(ctx)
		default:
			_ = one.annotate(ctx, map[string]any{annotationComplete: nil, annotationDelete: nil})
		}
	}
}

// Logs is what the container of a pod has written so far, in all its runs.
func (p *Player) Logs(pod, container string) string {
	text, _ := os.ReadFile(p.output(pod, container).path) // not there: nothing was written
	return string(text)
}

// Volume is the folder of a volume of a pod, "" when the player has no such pod. It goes with the pod.
func (p *Player) Volume(pod, volume string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.plays {
		if one.pod.Name == pod {
			return one.volume(volume)
		}
	}
	return ""
}
