// Package kube is how Slipway talks to Kubernetes clusters: clients, classes of errors, permissions.
package kube

import (
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say which cluster to talk to, and how fast.
type Options struct {
	// Kubeconfig is a file, "": the pod's own account, KUBECONFIG or ~/.kube/config, whichever is there first. Context is one of its
	// contexts, "": the current one.
	Kubeconfig, Context string
	// QPS and Burst bound the requests per second of each client. 0: the API server's own fairness is the only bound.
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
// is the one place that bounds requests.
func Configure(config *rest.Config, o Options) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.UserAgent = o.QPS, o.Burst, o.UserAgent
	if o.QPS == 0 {
		config.QPS = -1 // client-go takes 0 for its default of 5 a second
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

// NewClients makes the two clients of one cluster: for the kinds that Kubernetes has itself, and for any.
func NewClients(config *rest.Config) (kubernetes.Interface, dynamic.Interface, error) {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	untyped, err := dynamic.NewForConfig(config)
	return typed, untyped, err
}
