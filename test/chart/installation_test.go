package chart

import (
	"context"
	"io"
	"math/rand/v2"
	"net"

	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/test/harness"
)

// probePatience is the timeout of a probe.
const probePatience = 5 * time.Second

// token is the API token of every installation.
const token = "the-token-of-all-tests-of-the-chart"

// installation is a release of the chart on a cluster. Its pods are processes of the test.
type installation struct {
	node
	release, namespace string

	mu      sync.Mutex
	servers []*pod
}

// install installs the chart with these values, as a release of a random name.
func install(t testing.TB, stack harness.Stack, namespace string, content map[string]any) *installation {
	t.Helper()
	i := &installation{node: node{t: t, stack: stack}, release: harness.RandomName("slipway"), namespace: namespace}
	_, err := stack.Kube.CoreV1().Secrets(namespace).Create(context.Background(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "slipway-api-token"},
			StringData: map[string]string{"token": token}}, metav1.CreateOptions{})
	require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	i.helm("install", i.release, chartDir(), "--values", values(t, content))
	t.Cleanup(func() { _, _, _ = i.tryHelm("uninstall", i.release, "--ignore-not-found") })
	return i
}

func (i *installation) tryHelm(args ...string) (out, errors string, err error) {
	return tryHelm(i.t, append(args, "--namespace", i.namespace, "--kubeconfig", i.stack.Kubeconfig)...)
}

func (i *installation) helm(args ...string) string {
	i.t.Helper()
	out, errors, err := i.tryHelm(args...)
	require.NoError(i.t, err, "helm %v: %s", args, errors)
	return out
}

// deployment returns the Deployment of a component.
func (i *installation) deployment(component string) *appsv1.Deployment {
	i.t.Helper()
	d, err := i.stack.Kube.AppsV1().Deployments(i.namespace).Get(context.Background(), i.release+"-"+component,
		metav1.GetOptions{})
	require.NoError(i.t, err)
	return d
}

// run starts the pods of the components, as many as the Deployments require, and waits until they are ready. It returns
// the workers.
func (i *installation) run(components ...string) (workers []*pod) {
	i.t.Helper()
	for _, component := range components {
		d := i.deployment(component)
		for range *d.Spec.Replicas {
			if p := i.start(d); component == "server" {
				i.servers = append(i.servers, p)
			} else {
				workers = append(workers, p)
			}
		}
	}
	for _, p := range append(i.backends(), workers...) {
		i.waitReady(p)
	}
	return workers
}

func (i *installation) waitReady(p *pod) {
	i.t.Helper()
	var last error
	require.Eventually(i.t, func() bool {
		last = p.ready()
		return last == nil || p.Ended()
	}, harness.Patience, harness.Tick, "a pod did not become ready: %v", &last)
	require.NoError(i.t, last, "%s", p.Output())
}

func (i *installation) backends() []*pod {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]*pod(nil), i.servers...)
}

// replace does a rolling update by the Deployment's strategy: each new pod is ready before an old one is stopped.
func (i *installation) replace(component string, old []*pod) (now []*pod) {
	i.t.Helper()
	d := i.deployment(component)
	require.Equal(i.t, 0, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
	for _, p := range old {
		fresh := i.start(d)
		i.waitReady(fresh)
		now = append(now, fresh)
		if component == "server" {
			i.mu.Lock()
			i.servers = append(i.servers[1:len(i.servers):len(i.servers)], fresh)
			i.mu.Unlock()
		}
		require.NoError(i.t, p.Stop(), "%s", p.Output())
	}
	return now
}

// service acts as the Service of the API: it forwards to one of the servers.
func (i *installation) service() (address string) {
	return harness.Balance(i.t, func() (servers []*url.URL) {
		for _, server := range i.backends() {
			servers = append(servers, &url.URL{Scheme: "http", Host: server.address})
		}
		return servers
	})
}

// proxyWebhooks acts as the Service of the webhooks, on this port.
func (i *installation) proxyWebhooks(port int) {
	i.t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	require.NoError(i.t, err)
	i.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go i.forward(from)
		}
	}()
}

func (i *installation) forward(from net.Conn) {
	defer from.Close()
	servers := i.backends()
	if len(servers) == 0 {
		return
	}
	to, err := net.Dial("tcp", servers[rand.IntN(len(servers))].webhooks)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// engine returns a client's view of the installation.
func (i *installation) engine(temporalNamespace, apps string) *harness.Engine {
	url := i.service()
	e := &harness.Engine{Stack: i.stack, URL: url, KusciaURL: url, Token: token, Apps: apps, Home: i.namespace,
		TemporalNamespace: temporalNamespace,
		Workflows:         i.stack.Temporal(i.t, temporalNamespace)}
	return e.WithT(i.t)
}
