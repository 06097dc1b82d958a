package harness

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/rollout"
)

// EngineUser is the identity of engines that tests run behind a guard.
const EngineUser = "slipway-test-engine"

// Guard is a guard that a test installed in the API server, for namespaces of tests.
type Guard struct {
	Name  string
	stack Stack
}

// InstallGuard installs a guard that lets only EngineUser pass. No namespace is under it yet.
func (s Stack) InstallGuard(t testing.TB) *Guard {
	t.Helper()
	return s.InstallGuardFor(t, EngineUser)
}

// InstallGuardFor installs a guard that lets these users pass; without users, the default ones.
func (s Stack) InstallGuardFor(t testing.TB, users ...string) *Guard {
	t.Helper()
	g := &Guard{Name: RandomName("guard"), stack: s}
	run := func(args ...string) {
		out, err := exec.Command(s.Binary("slipway"),
			append([]string{"guard"}, append(args, "--name", g.Name, "--kubeconfig",
				s.Kubeconfig)...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Logf("guard %s: %s", args[0], out)
	}
	t.Cleanup(func() { run("remove") })
	install := []string{"install", "--namespace-selector", guard.LabelGuard + "=" + g.Name}
	for _, user := range users {
		install = append(install, "--engine-identity", user)
	}
	run(install...)
	return g
}

// EnforceOn puts a namespace under the guard and waits until the guard is in force.
func (g *Guard) EnforceOn(t testing.TB, namespace string) {
	t.Helper()
	LabelNamespace(t, g.stack.Kube, namespace, guard.LabelGuard, g.Name)
	services := g.stack.Kube.CoreV1().Services(namespace)
	probe := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "probe",
		Annotations: map[string]string{rollout.AnnotationHeldBy: "probe",
			rollout.AnnotationRestore: `[{"op":"remove","path":"/spec/selector"}]`}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"app": "probe"}}}
	_, err := services.Create(context.Background(), probe, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, refused := services.Patch(context.Background(), probe.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"slipway.io/held-by":null}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		kept, err := services.Patch(context.Background(), probe.Name, types.MergePatchType,
			[]byte(`{"spec":{"selector":{"app":"other"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(refused) && err == nil && kept.Spec.Selector["app"] == "probe"
	}, Patience, Tick, "the guard is not in force")
	require.NoError(t, services.Delete(context.Background(), probe.Name, metav1.DeleteOptions{}))
}

// WaitStatusProtected waits until the guard refuses status writes to a Rollout by the user of the client rollouts. It
// uses a dry run: a write that succeeded would leave no change for the next attempt, and an unchanged status is never
// refused.
func (g *Guard) WaitStatusProtected(t testing.TB, rollouts dynamic.ResourceInterface, name string) {
	t.Helper()
	var got *unstructured.Unstructured
	require.Eventually(t, func() bool {
		var err error
		got, err = rollouts.Patch(context.Background(), name, types.MergePatchType,
			[]byte(`{"status":{"message":"not the engine's"}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
	}, Patience, Tick, "the guard %s is not in force over the status of %v", g.Name, &got)
}

// Impersonate returns the administrator's client configuration under another user name.
func (s Stack) Impersonate(user string) *rest.Config {
	config := rest.CopyConfig(s.REST)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return config
}

// KubeconfigAs writes a kubeconfig of the stack's administrator under another user name and returns its path.
func (s Stack) KubeconfigAs(t testing.TB, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(s.Kubeconfig)
	require.NoError(t, err)
	for _, info := range config.AuthInfos {
		info.Impersonate, info.ImpersonateGroups = user, []string{"system:masters"}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// StartGuarded starts an engine as EngineUser and returns it with the guard that the tests of the package share.
func StartGuarded(t testing.TB) (*Engine, *Guard) {
	t.Helper()
	return StartGuardedWith(t, Options{})
}

// StartGuardedWith is StartGuarded with options.
func StartGuardedWith(t testing.TB, o Options) (*Engine, *Guard) {
	t.Helper()
	g := SharedGuard(t)
	o.Kubeconfig = func(e *Engine) string { return e.KubeconfigAs(t, EngineUser) }
	return Start(t, o), g
}
