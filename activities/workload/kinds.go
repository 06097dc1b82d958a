package workload

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"slipway.io/slipway/release/workloadops"
)

// kind adapts one kind of workload. To support another kind, write another adapter.
type kind interface {
	// resource is the kind's name in URLs and permissions: "deployments".
	resource() string
	get(ctx context.Context, namespace, name string) (*object, error)
	// list returns one page, and where the next begins.
	list(ctx context.Context, namespace string, options metav1.ListOptions) (page []*object, next string, err error)
	patch(ctx context.Context, namespace, name string, body []byte) (*object, error)
	// owns says whether a pod that the workload's selector matches is really the workload's.
	owns(o *object, pod *corev1.Pod) bool
	source
}

// source is where a kind's shared watch comes from.
type source interface {
	example() runtime.Object
	listAll(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error)
	watchAll(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error)
}

// object is a workload as it was read, without what nobody here needs.
type object struct {
	meta     metav1.ObjectMeta
	selector *metav1.LabelSelector
	// hasReplicas says that the size is spelt out in the object, as it always is on a real API server.
	hasReplicas bool
	// templateAnnotated says that the pod template has annotations.
	templateAnnotated bool
	minReadySeconds   int32
	// seen is what Decide goes by, pods and time left out.
	seen workloadops.Observed
}

func newKinds(client kubernetes.Interface) map[string]kind {
	return map[string]kind{
		workloadops.KindDeployment:  deployments{client.AppsV1()},
		workloadops.KindStatefulSet: statefulSets{client.AppsV1()},
		workloadops.KindDaemonSet:   daemonSets{client.AppsV1()},
	}
}

// newObject fills in what all kinds have in common.
func newObject(meta metav1.ObjectMeta, selector *metav1.LabelSelector, template corev1.PodTemplateSpec) *object {
	o := &object{meta: meta, selector: selector, templateAnnotated: len(template.Annotations) > 0}
	o.seen = workloadops.Observed{
		Claim:      meta.Annotations[workloadops.AnnotationClaimedBy],
		Rollout:    savedBy(meta.Labels, meta.Annotations),
		Generation: meta.Generation,
		Deleting:   meta.DeletionTimestamp != nil,
		Settings:   map[string]json.RawMessage{},
		Remembered: meta.Annotations[workloadops.AnnotationReplicas],
		LeftAt:     meta.Annotations[workloadops.AnnotationLeftAt],
		Marker:     template.Annotations[workloadops.AnnotationRestartedBy],
	}
	if text, saved := meta.Annotations[workloadops.AnnotationOriginal]; saved {
		original, err := workloadops.ParseOriginal(text)
		if err != nil {
			o.seen.OriginalProblem = err.Error()
		}
		o.seen.Original = original
	}
	return o
}

// setting notes a field that may be borrowed; a field that is not set is left out.
func (o *object) setting(path string, value any) {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // the fields are plain API types: they always marshal
	}
	if string(raw) != "null" {
		o.seen.Settings[path] = raw
	}
}

// size sets the asked size; an absent one means 1 (Kubernetes API).
func (o *object) size(replicas *int32) {
	o.seen.Replicas = 1
	if replicas != nil {
		o.hasReplicas = true
		o.seen.Replicas = *replicas
	}
}

// savedBy is what a rollout has saved on a workload; "" when none has, or when it is a stale copy (workloadops.LabelRollout).
func savedBy(labels, annotations map[string]string) string {
	if labels[workloadops.LabelRollout] == "" {
		return ""
	}
	return annotations[workloadops.AnnotationRollout]
}
