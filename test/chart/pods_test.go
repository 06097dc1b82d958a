package chart

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/test/harness"
)

// pod is a process that runs a container of a Deployment of the chart: with its arguments and environment, the files of
// its volumes, and the token of its ServiceAccount as the only credential.
type pod struct {
	*harness.Process
	// address is that of the API, or of a worker's health and metrics endpoint; webhooks is that of a server's
	// webhooks.
	address, webhooks string
	probes            []*corev1.Probe
	client            *http.Client
}

// listens matches an argument that names a port of the pod, on every interface.
var listens = regexp.MustCompile(`^(--[a-z-]*listen)=:(\d+)$`)

// node runs pods of Deployments, like a kubelet.
type node struct {
	t     testing.TB
	stack harness.Stack
	// extraArgs are additional arguments of the pods.
	extraArgs []string
}

// start starts one more pod of a Deployment.
func (n node) start(d *appsv1.Deployment) *pod {
	n.t.Helper()
	spec := d.Spec.Template.Spec
	require.Len(n.t, spec.Containers, 1)
	container := spec.Containers[0]
	require.True(n.t, *spec.AutomountServiceAccountToken)
	account := n.stack.Login(n.t, d.Namespace, spec.ServiceAccountName)
	files := n.mount(d.Namespace, spec.Volumes, container.VolumeMounts)
	p := &pod{client: &http.Client{Timeout: probePatience},
		probes: []*corev1.Probe{container.StartupProbe, container.ReadinessProbe}}
	args := []string{}
	for _, arg := range container.Args {
		args = append(args, n.translate(arg, files, p))
	}
	env := []string{}
	for _, variable := range container.Env {
		env = append(env, variable.Name+"="+variable.Value)
	}
	p.Process = harness.Run(n.t, n.stack.Binary("slipway"),
		append(append(args, "--kubeconfig", account.Kubeconfig), n.extraArgs...), env)
	return p
}

// translate returns an argument with the files and ports of this machine instead of the pod's.
func (n node) translate(arg string, files map[string]string, p *pod) string {
	if listen := listens.FindStringSubmatch(arg); listen != nil {
		address := "127.0.0.1:" + harness.FreePort(n.t)
		switch listen[1] {
		case "--listen", "--metrics-listen":
			p.address = address
		case "--webhook-listen":
			p.webhooks = address
		}
		return listen[1] + "=" + address
	}
	for mounted, folder := range files {
		if flag, path, is := strings.Cut(arg, "="); is && (path == mounted || strings.HasPrefix(path, mounted+"/")) {
			return flag + "=" + folder + strings.TrimPrefix(path, mounted)
		}
	}
	return arg
}

// mount writes the content of volumes and returns the local folders by mount path.
func (n node) mount(namespace string, volumes []corev1.Volume, mounts []corev1.VolumeMount) map[string]string {
	n.t.Helper()
	folders := map[string]string{}
	for _, mount := range mounts {
		for _, volume := range volumes {
			if volume.Name != mount.Name || volume.EmptyDir != nil {
				continue
			}
			folders[mount.MountPath] = n.t.TempDir()
			for name, content := range n.contents(namespace, volume) {
				require.NoError(n.t, os.WriteFile(filepath.Join(folders[mount.MountPath], name), content, 0o600))
			}
		}
	}
	return folders
}

func (n node) contents(namespace string, volume corev1.Volume) map[string][]byte {
	n.t.Helper()
	if volume.Secret != nil {
		secret, err := n.stack.Kube.CoreV1().Secrets(namespace).Get(context.Background(), volume.Secret.SecretName,
			metav1.GetOptions{})
		require.NoError(n.t, err)
		return secret.Data
	}
	require.NotNil(n.t, volume.ConfigMap, "volume %s", volume.Name)
	files := map[string][]byte{}
	found, err := n.stack.Kube.CoreV1().ConfigMaps(namespace).Get(context.Background(), volume.ConfigMap.Name,
		metav1.GetOptions{})
	require.NoError(n.t, err)
	for name, text := range found.Data {
		files[name] = []byte(text)
	}
	return files
}

// ready returns nil if the startup and readiness probes of the Deployment succeed.
func (p *pod) ready() error {
	for _, probe := range p.probes {
		response, err := p.client.Get(fmt.Sprintf("http://%s%s", p.address, probe.HTTPGet.Path))
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", probe.HTTPGet.Path, response.Status)
		}
	}
	return nil
}
