package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Reader reads what decisions are made from: a workload, its revisions, its pods, what routes to it. Decisions tolerate an answer that is
// old, since every write carries what it was decided on as a precondition. Live asks the API server; a cache can stand in its place, with
// one duty: jobs take a rejected write as refused when the object that they read next still has the version of before, so that a read after
// a rejected write must not be older than the rejection.
type Reader interface {
	// Get reads one object.
	Get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	// List reads the objects of a namespace that a label selector matches; "" matches all.
	List(ctx context.Context, resource schema.GroupVersionResource, namespace, selector string) ([]unstructured.Unstructured, error)
	// Pods calls each with every pod of a namespace that a label selector matches. It returns the version from which a watch that misses
	// nothing goes on.
	Pods(ctx context.Context, namespace, selector string, each func(*corev1.Pod)) (version string, err error)
}

// page is how many objects one request reads.
const page = 500

// Live is the Reader that asks the API server each time.
type Live struct {
	Objects dynamic.Interface
	Client  kubernetes.Interface
	// Timeout is how long one request may take.
	Timeout time.Duration
}

// Get reads one object.
func (l Live) Get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	call, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	return l.Objects.Resource(resource).Namespace(namespace).Get(call, name, metav1.GetOptions{})
}

// List reads objects, page by page.
func (l Live) List(ctx context.Context, resource schema.GroupVersionResource,
	namespace, selector string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	options := metav1.ListOptions{LabelSelector: selector, Limit: page}
	for {
		call, cancel := context.WithTimeout(ctx, l.Timeout)
		list, err := l.Objects.Resource(resource).Namespace(namespace).List(call, options)
		cancel()
		if err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// Pods reads pods, page by page.
func (l Live) Pods(ctx context.Context, namespace, selector string, each func(*corev1.Pod)) (version string, err error) {
	options := metav1.ListOptions{LabelSelector: selector, Limit: page}
	for {
		call, cancel := context.WithTimeout(ctx, l.Timeout)
		list, err := l.Client.CoreV1().Pods(namespace).List(call, options)
		cancel()
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			each(&list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return list.ResourceVersion, nil
		}
	}
}
