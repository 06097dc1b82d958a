// Package player runs the containers of marked pods of the local stack as processes. The stack's nodes are simulated:
// its KWOK stages only write the status of a pod. A player does a kubelet's work for marked pods: it creates the pod's
// volumes, runs its init containers one after the other and then its containers, restarts failed ones by the restart
// policy, writes the pod's status, and ends the pod when it is deleted.
//
// A process has its own file system: a discarded copy-on-write overlay of the machine's, with the pod's volumes mounted
// in it. The network is the machine's. Not supported are probes (a container is ready while it runs), lifecycle hooks,
// resources, activeDeadlineSeconds of a pod (that of a Job works), and changes of a running pod; the sources of volumes
// and variables are read when the pod starts. A pod with a sidecar init container, or with a volume or variable of
// another kind than emptyDir, secret, configMap, projected and downwardAPI, waits and shows the reason.
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

// The annotations of the local stack (deploy/dev/kwok/behaviour.jq). No stage handles the behaviour "played", so that
// such a pod stays Pending. While a player runs the pod, the two times delay the stages that complete and delete it.
// They take effect only if the player has died.
const (
	annotationBehaviour = "dev.slipway.io/behaviour"
	behaviourPlayed     = "played"
	annotationComplete  = "dev.slipway.io/complete-after"
	annotationDelete    = "dev.slipway.io/delete-after"

	completeAfter, deleteAfter = "24h", "10m"
)

// Mark assigns a pod, or a pod template, to the player of its namespace.
func Mark(pod *metav1.ObjectMeta) {
	metav1.SetMetaDataAnnotation(pod, annotationBehaviour, behaviourPlayed)
}

// Options configure a player.
type Options struct {
	// Namespace is the namespace of the marked pods.
	Namespace string
	// Images maps images to programs of this machine that replace their entry points. A container of another image has
	// no process: an init container succeeds at once; another container is ready at once and runs until its pod ends.
	Images map[string]string
	// Backoff is the first delay before an ended container runs again. It doubles up to eight times its value. 0 means
	// one second.
	Backoff time.Duration
}

// Player runs the marked pods of a namespace.
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

// Start runs the marked pods of a namespace until the test ends. It skips the test if processes cannot have their own
// file system.
func Start(t testing.TB, stack harness.Stack, options Options) *Player {
	t.Helper()
	if options.Backoff == 0 {
		options.Backoff = time.Second
	}
	ctx, end := context.WithCancel(context.Background())
	p := &Player{options: options, kube: stack.Kube, folder: t.TempDir(), ctx: ctx, plays: map[types.UID]*play{},
		logs: map[string]*output{}}
	if err := checkSupport(filepath.Join(p.folder, "probe")); err != nil {
		end()
		t.Skipf("needs root and mount namespaces with overlay file systems, to run containers as processes: %v", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(stack.Kube, 0, informers.WithNamespace(options.Namespace))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { p.podChanged(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { p.podChanged(object.(*corev1.Pod)) },
		DeleteFunc: p.podDeleted,
	})
	require.NoError(t, err)
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		end()
		factory.Shutdown()
		p.playing.Wait()
		p.releasePods()
	})
	return p
}

// podChanged handles a new or changed pod.
func (p *Player) podChanged(pod *corev1.Pod) {
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
		one.requestEnd(pod.DeletionGracePeriodSeconds)
	}
}

// podDeleted handles the deletion of a pod's object by any client: all its processes must end.
func (p *Player) podDeleted(object any) {
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

// releasePods returns the remaining pods to the stages of the stack, which delete them on request.
func (p *Player) releasePods() {
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

// Logs returns what the container of a pod has written so far, in all its runs.
func (p *Player) Logs(pod, container string) string {
	text, _ := os.ReadFile(p.output(pod, container).path) // no file: nothing was written
	return string(text)
}

// Volume returns the folder of a volume of a pod, "" if the player does not run the pod. It is deleted with the pod.
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
