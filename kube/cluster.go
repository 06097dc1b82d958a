// Package kube contains Slipway's access to Kubernetes clusters: clients, classes of errors, permissions.
package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/fieldmanager"
)

const (
	// callTimeout bounds one request.
	callTimeout = 5 * time.Second
	// page is how many objects one request reads.
	page = 500
)

// Ref names one object.
type Ref struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// Reader reads what decisions are based on: a workload, its revisions, its pods, its routes. Decisions tolerate a stale
// answer, since every write carries the state it was based on as a precondition. NewCluster's Reader asks the API
// server. A cache can replace it under one condition: a read after a rejected write must not be older than the
// rejection, because callers treat a second rejected write of the same version as refused.
type Reader interface {
	// Get reads one object.
	Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error)
	// List reads the objects of a namespace that a label selector matches; "" matches all.
	List(ctx context.Context, resource schema.GroupVersionResource, namespace,
		selector string) ([]unstructured.Unstructured, error)
	// Pods calls each with every pod of a namespace that a label selector matches. It returns the resourceVersion from
	// which a watch continues without a gap.
	Pods(ctx context.Context, namespace, selector string, each func(*corev1.Pod)) (version string, err error)
}

// Cluster is a cluster that a worker acts on.
type Cluster struct {
	Reader
	Client  Typed
	Objects dynamic.Interface
	// namespaces are those that the worker serves; empty: all.
	namespaces []string
	granted    *recent.Cache
}

// NewCluster returns the cluster of these clients; the worker serves these namespaces, or all if there are none.
func NewCluster(client Typed, objects dynamic.Interface, namespaces []string) Cluster {
	return Cluster{Reader: apiReader{client, objects}, Client: client, Objects: objects, namespaces: namespaces,
		granted: &recent.Cache{}}
}

// Serves reports whether the worker serves a namespace.
func (c Cluster) Serves(namespace string) bool {
	return len(c.namespaces) == 0 || slices.Contains(c.namespaces, namespace)
}

// Patch sends a JSON Patch and returns the resulting object. A dry run changes nothing.
func (c Cluster) Patch(ctx context.Context, ref Ref, patch []byte, dry bool) (*unstructured.Unstructured, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	after, err := c.Objects.Resource(ref.Resource).Namespace(ref.Namespace).Patch(call, ref.Name, types.JSONPatchType,
		patch,
		metav1.PatchOptions{FieldManager: fieldmanager.Slipway, DryRun: dryRun(dry)})
	if dry && err == nil {
		return after, nil
	}
	return recordWrite(ctx, ref, after, err)
}

// Create creates an object. A dry run changes nothing.
func (c Cluster) Create(ctx context.Context, ref Ref, o *unstructured.Unstructured,
	dry bool) (*unstructured.Unstructured, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	after, err := c.Objects.Resource(ref.Resource).Namespace(ref.Namespace).Create(call, o,
		metav1.CreateOptions{FieldManager: fieldmanager.Slipway, DryRun: dryRun(dry)})
	if dry && err == nil {
		return after, nil
	}
	return recordWrite(ctx, ref, after, err)
}

// Delete deletes an object if it still has this UID and, unless version is "", this version.
func (c Cluster) Delete(ctx context.Context, ref Ref, uid types.UID, version string) error {
	only := metav1.Preconditions{UID: &uid}
	if version != "" {
		only.ResourceVersion = &version
	}
	background := metav1.DeletePropagationBackground
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.Objects.Resource(ref.Resource).Namespace(ref.Namespace).Delete(call, ref.Name,
		metav1.DeleteOptions{Preconditions: &only, PropagationPolicy: &background})
	_, err = recordWrite(ctx, ref, nil, err)
	return err
}

func dryRun(dry bool) []string {
	if !dry {
		return nil
	}
	return []string{metav1.DryRunAll}
}

// apiReader is the Reader that asks the API server each time.
type apiReader struct {
	client  Typed
	objects dynamic.Interface
}

// Get implements Reader.
func (l apiReader) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	return readOnce(ctx, ref, func() (*unstructured.Unstructured, error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return l.objects.Resource(ref.Resource).Namespace(ref.Namespace).Get(call, ref.Name, metav1.GetOptions{})
	})
}

// List implements Reader, page by page.
func (l apiReader) List(ctx context.Context, resource schema.GroupVersionResource,
	namespace, selector string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	options := metav1.ListOptions{LabelSelector: selector, Limit: page}
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		list, err := l.objects.Resource(resource).Namespace(namespace).List(call, options)
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

// Pods implements Reader, page by page.
func (l apiReader) Pods(ctx context.Context, namespace, selector string, each func(*corev1.Pod)) (version string,
	err error) {
	options := metav1.ListOptions{LabelSelector: selector, Limit: page}
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		list, err := l.client.CoreV1().Pods(namespace).List(call, options)
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

// Options configure which cluster to use, and how fast.
type Options struct {
	// Kubeconfig is a file; "": the first that exists of the pod's own account, KUBECONFIG and ~/.kube/config. Context
	// is one of its contexts; "": the current one.
	Kubeconfig, Context string
	// QPS and Burst limit the requests per second of all clients together. 0: only the API server's own limits apply.
	QPS   float32
	Burst int
	// UserAgent is the User-Agent header of the requests.
	UserAgent string
}

// Connect finds the cluster's configuration. It makes no request.
func Connect(o Options) (*rest.Config, error) {
	config, err := find(o)
	if err != nil {
		return nil, fmt.Errorf("no cluster found: %w; select one with --kubeconfig and --context", err)
	}
	return Configure(config, o), nil
}

// Configure returns a copy of config for clients whose errors Classify understands. All clients of a cluster are made
// from it, because they share its rate limit.
func Configure(config *rest.Config, o Options) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.UserAgent = o.QPS, o.Burst, o.UserAgent
	if o.QPS == 0 {
		config.QPS = -1 // client-go reads 0 as its default of 5 per second
	} else {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.QPS, o.Burst)
	}
	config.Wrap(reviewRefusals)
	return config
}

func find(o Options) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if o.Kubeconfig != "" {
		rules.ExplicitPath = o.Kubeconfig
	} else if o.Context == "" {
		if config, err := rest.InClusterConfig(); err == nil {
			return config, nil
		}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
}

// NewClients returns the two clients of a cluster: for Kubernetes' built-in kinds, and for any kind.
func NewClients(config *rest.Config) (Typed, dynamic.Interface, error) {
	typed, err := NewTyped(config)
	if err != nil {
		return nil, nil, err
	}
	untyped, err := NewUntyped(config)
	return typed, untyped, err
}
