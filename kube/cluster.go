// Package kube contains Slipway's access to Kubernetes clusters: clients, classes of errors, permissions.
package kube

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"slipway.io/slipway/pause"
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

// Cluster is a cluster that a worker acts on.
//
// Get, List and Pods read what decisions are based on: a workload, its revisions, its pods, its routes. Decisions
// tolerate a stale answer, since every write carries the state it was based on as a precondition. A cache can be added
// to them under one condition: a read after a rejected write must not be older than the rejection, because callers
// treat a second rejected write of the same version as refused.
type Cluster struct {
	Client  Typed
	Objects dynamic.Interface
	// namespaces are those that the worker serves; empty: all.
	namespaces []string
	granted    *recent.Cache
}

// NewCluster returns the cluster of these clients; the worker serves these namespaces, or all if there are none.
func NewCluster(client Typed, objects dynamic.Interface, namespaces []string) Cluster {
	return Cluster{Client: client, Objects: objects, namespaces: namespaces, granted: &recent.Cache{}}
}

// Serves reports whether the worker serves a namespace.
func (c Cluster) Serves(namespace string) bool {
	return len(c.namespaces) == 0 || slices.Contains(c.namespaces, namespace)
}

// Patch sends a JSON Patch and returns the resulting object. A dry run changes nothing.
func (c Cluster) Patch(ctx context.Context, ref Ref, patch []byte, dry bool) (*unstructured.Unstructured, error) {
	return c.write(ctx, ref, dry, func(ctx context.Context, client dynamic.ResourceInterface, dryRun []string) (
		*unstructured.Unstructured, error) {
		return client.Patch(ctx, ref.Name, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: fieldmanager.Slipway, DryRun: dryRun})
	})
}

// Create creates an object. A dry run changes nothing.
func (c Cluster) Create(ctx context.Context, ref Ref, o *unstructured.Unstructured,
	dry bool) (*unstructured.Unstructured, error) {
	return c.write(ctx, ref, dry, func(ctx context.Context, client dynamic.ResourceInterface, dryRun []string) (
		*unstructured.Unstructured, error) {
		return client.Create(ctx, o, metav1.CreateOptions{FieldManager: fieldmanager.Slipway, DryRun: dryRun})
	})
}

// Delete deletes an object if it still has this UID and, unless version is "", this version.
func (c Cluster) Delete(ctx context.Context, ref Ref, uid types.UID, version string) error {
	only := metav1.Preconditions{UID: &uid}
	if version != "" {
		only.ResourceVersion = &version
	}
	background := metav1.DeletePropagationBackground
	_, err := c.write(ctx, ref, false, func(ctx context.Context, client dynamic.ResourceInterface, _ []string) (
		*unstructured.Unstructured, error) {
		return nil, client.Delete(ctx, ref.Name, metav1.DeleteOptions{Preconditions: &only, PropagationPolicy: &background})
	})
	return err
}

// write makes a write and records it for the reads of this context, unless it is a dry run.
func (c Cluster) write(ctx context.Context, ref Ref, dry bool, do func(ctx context.Context,
	client dynamic.ResourceInterface, dryRun []string) (*unstructured.Unstructured, error)) (*unstructured.Unstructured,
	error) {
	var dryRun []string
	if dry {
		dryRun = []string{metav1.DryRunAll}
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	after, err := do(call, c.Objects.Resource(ref.Resource).Namespace(ref.Namespace), dryRun)
	if dry && err == nil {
		return after, nil
	}
	return recordWrite(ctx, ref, after, err)
}

// Get reads one object.
func (c Cluster) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	return readOnce(ctx, ref, func() (*unstructured.Unstructured, error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return c.Objects.Resource(ref.Resource).Namespace(ref.Namespace).Get(call, ref.Name, metav1.GetOptions{})
	})
}

// List reads the objects of a namespace that a label selector matches; "" matches all.
func (c Cluster) List(ctx context.Context, resource schema.GroupVersionResource,
	namespace, selector string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	_, err := pages(ctx, c.Objects.Resource(resource).Namespace(namespace).List, selector,
		func(list *unstructured.UnstructuredList) { all = append(all, list.Items...) })
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Pods calls each with every pod of a namespace that a label selector matches. It returns the resourceVersion from
// which a watch continues without a gap.
func (c Cluster) Pods(ctx context.Context, namespace, selector string, each func(*corev1.Pod)) (version string,
	err error) {
	return pages(ctx, c.Client.CoreV1().Pods(namespace).List, selector, func(list *corev1.PodList) {
		for i := range list.Items {
			each(&list.Items[i])
		}
	})
}

// pages reads what a label selector matches, page by page, and returns the resourceVersion of the last one.
func pages[L metav1.ListInterface](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error),
	selector string, each func(L)) (version string, err error) {
	options := metav1.ListOptions{LabelSelector: selector, Limit: page}
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		found, err := list(call, options)
		cancel()
		if err != nil {
			return "", err
		}
		each(found)
		if options.Continue = found.GetContinue(); options.Continue == "" {
			return found.GetResourceVersion(), nil
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

// namespaceFile has the namespace of the pod in which a process runs.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// PodNamespace returns the namespace of this pod in the cluster that Connect finds; "" if the process runs outside of
// that cluster.
func PodNamespace(o Options) string {
	if _, err := rest.InClusterConfig(); err != nil || o.Kubeconfig != "" || o.Context != "" {
		return ""
	}
	text, _ := os.ReadFile(namespaceFile) // every pod with an account has it
	return strings.TrimSpace(string(text))
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

// reads are the objects that were read, or written, within a context.
type reads struct {
	mu      sync.Mutex
	objects map[Ref]read
}

type read struct {
	object *unstructured.Unstructured
	err    error
}

type readsKey struct{}

// WithReadCache returns a context in which each object is read at most once. It is for one round of decisions, whose
// parts have to see the same state. A write by this Cluster within the context is visible afterwards; a failed write
// makes the object be read again.
func WithReadCache(ctx context.Context) context.Context {
	return context.WithValue(ctx, readsKey{}, &reads{objects: map[Ref]read{}})
}

// readOnce reads an object, unless it was read in this context before. "Not found" is cached too, other errors are not.
// Each caller gets its own copy.
func readOnce(ctx context.Context, ref Ref, get func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured,
	error) {
	r, is := ctx.Value(readsKey{}).(*reads)
	if !is {
		return get()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known, was := r.objects[ref]
	if !was {
		known.object, known.err = get()
		if known.err == nil || apierrors.IsNotFound(known.err) {
			r.objects[ref] = known
		}
	}
	if known.err != nil {
		return nil, known.err
	}
	return known.object.DeepCopy(), nil
}

// recordWrite records the result of a write in this context. Each caller gets its own copy.
func recordWrite(ctx context.Context, ref Ref, after *unstructured.Unstructured, err error) (*unstructured.Unstructured,
	error) {
	r, is := ctx.Value(readsKey{}).(*reads)
	if !is {
		return after, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.objects, ref)
	if err == nil && after != nil {
		r.objects[ref] = read{object: after.DeepCopy()}
	}
	return after, err
}

const (
	// parallelCalls is how many requests Parallel has in progress at once.
	parallelCalls = 8
	// retryPause is the pause before an unanswered request is retried.
	retryPause = time.Second
)

// Parallel makes requests, at most eight at once, and returns the first error. An unanswered request is retried once,
// so that a short interruption does not fail it.
func Parallel(ctx context.Context, jobs []func(ctx context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelCalls)
	for _, job := range jobs {
		group.Go(func() error { return retryOnce(ctx, job) })
	}
	return group.Wait()
}

func retryOnce(ctx context.Context, job func(ctx context.Context) error) error {
	err := job(ctx)
	if err == nil || Classify(err) != Unreachable {
		return err
	}
	if pause.For(ctx, retryPause) != nil {
		return err
	}
	return job(ctx)
}
