// Package kube is how Slipway talks to Kubernetes clusters: clients, classes of errors, permissions.
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

	"slipway.io/slipway/release/fieldmanager"
)

const (
	// callTimeout is how long one request may take.
	callTimeout = 5 * time.Second
	// page is how many objects one request reads.
	page = 500
)

// Ref is where one object is found.
type Ref struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// Reader reads what decisions are made from: a workload, its revisions, its pods, what routes to it. Decisions tolerate an answer that is
// old, since every write carries what it was decided on as a precondition. NewCluster's asks the API server; a cache can stand in its
// place, with one duty: jobs take a second rejected write of the same version as refused, so that a read after a rejected write must not be
// older than the rejection.
type Reader interface {
	// Get reads one object.
	Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error)
	// List reads the objects of a namespace that a label selector matches; "" matches all.
	List(ctx context.Context, resource schema.GroupVersionResource, namespace, selector string) ([]unstructured.Unstructured, error)
	// Pods calls each with every pod of a namespace that a label selector matches. It returns the version from which a watch that misses
	// nothing goes on.
	Pods(ctx context.Context, namespace, selector string, each func(*corev1.Pod)) (version string, err error)
}

// Cluster is a cluster that a worker acts on.
type Cluster struct {
	Reader
	Client  Typed
	Objects dynamic.Interface
	// namespaces are those that the worker serves; empty: all.
	namespaces []string
	granted    *granted
}

// NewCluster is the cluster of these clients, of which the worker serves some namespaces; none: all.
func NewCluster(client Typed, objects dynamic.Interface, namespaces []string) Cluster {
	return Cluster{Reader: live{client, objects}, Client: client, Objects: objects, namespaces: namespaces,
		granted: &granted{}}
}

// Permissions ask about the account of this cluster's clients. What was answered counts for a second.
func (c Cluster) Permissions() *Permissions { return c.granted.now(c.Client) }

// Serves says whether the worker serves a namespace.
func (c Cluster) Serves(namespace string) bool {
	return len(c.namespaces) == 0 || slices.Contains(c.namespaces, namespace)
}

// Patch sends a JSON Patch, and returns the object as it is then. A dry run only says what would come of it.
func (c Cluster) Patch(ctx context.Context, ref Ref, patch []byte, dry bool) (*unstructured.Unstructured, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	after, err := c.Objects.Resource(ref.Resource).Namespace(ref.Namespace).Patch(call, ref.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: fieldmanager.Slipway, DryRun: dryRun(dry)})
	if dry && err == nil {
		return after, nil
	}
	return noted(ctx, ref, after, err)
}

// Create makes an object. A dry run only says what would come of it.
func (c Cluster) Create(ctx context.Context, ref Ref, o *unstructured.Unstructured, dry bool) (*unstructured.Unstructured, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	after, err := c.Objects.Resource(ref.Resource).Namespace(ref.Namespace).Create(call, o,
		metav1.CreateOptions{FieldManager: fieldmanager.Slipway, DryRun: dryRun(dry)})
	if dry && err == nil {
		return after, nil
	}
	return noted(ctx, ref, after, err)
}

// Delete deletes an object, only as it was seen: of this UID and, unless that is "", of this version.
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
	_, err = noted(ctx, ref, nil, err)
	return err
}

func dryRun(dry bool) []string {
	if !dry {
		return nil
	}
	return []string{metav1.DryRunAll}
}

// live is the Reader that asks the API server each time.
type live struct {
	client  Typed
	objects dynamic.Interface
}

// Get implements Reader.
func (l live) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	return once(ctx, ref, func() (*unstructured.Unstructured, error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return l.objects.Resource(ref.Resource).Namespace(ref.Namespace).Get(call, ref.Name, metav1.GetOptions{})
	})
}

// List implements Reader, page by page.
func (l live) List(ctx context.Context, resource schema.GroupVersionResource,
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
func (l live) Pods(ctx context.Context, namespace, selector string, each func(*corev1.Pod)) (version string, err error) {
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

// Options say which cluster to talk to, and how fast.
type Options struct {
	// Kubeconfig is a file, "": the pod's own account, KUBECONFIG or ~/.kube/config, whichever is there first. Context is one of its
	// contexts, "": the current one.
	Kubeconfig, Context string
	// QPS and Burst bound the requests per second of all clients together. 0: the API server's own fairness is the only bound.
	QPS   float32
	Burst int
	// UserAgent is what the API server notes about the requests.
	UserAgent string
}

// Connect finds a cluster. It makes no request yet.
func Connect(o Options) (*rest.Config, error) {
	config, err := find(o)
	if err != nil {
		return nil, fmt.Errorf("no cluster to work with: %w; --kubeconfig and --context say which one to take", err)
	}
	return Configure(config, o), nil
}

// Configure is a copy of config for clients whose errors Classify understands. Every client of a cluster is made from what it returns: this
// is the one place that bounds requests, and all of them share the bound.
func Configure(config *rest.Config, o Options) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.UserAgent = o.QPS, o.Burst, o.UserAgent
	if o.QPS == 0 {
		config.QPS = -1 // client-go takes 0 for its default of 5 a second
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
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
}

// NewClients makes the two clients of one cluster: for the kinds that Kubernetes has itself, and for any.
func NewClients(config *rest.Config) (Typed, dynamic.Interface, error) {
	typed, err := NewTyped(config)
	if err != nil {
		return nil, nil, err
	}
	untyped, err := NewUntyped(config)
	return typed, untyped, err
}
