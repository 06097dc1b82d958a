package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/serving/admission"
)

// NewNamespace creates a Kubernetes namespace for one test and deletes it when the test ends.
func NewNamespace(t testing.TB, kube kubernetes.Interface, prefix string) string {
	t.Helper()
	name := RandomName(prefix)
	require.NoError(t, createNamespace(kube, name))
	t.Cleanup(func() { removeNamespace(kube, name) })
	return name
}

// ensureNamespace creates a namespace unless it exists.
func ensureNamespace(t testing.TB, kube kubernetes.Interface, name string) {
	t.Helper()
	if err := createNamespace(kube, name); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
}

// createNamespace creates a namespace that allows servings, because most callers use it as a party. No guard and no
// other engine of the stack applies to it.
func createNamespace(kube kubernetes.Interface, name string) error {
	_, err := kube.CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{admission.LabelServings: admission.ServingsAllowed,
				guard.LabelGuard: guard.NamespaceOff,
				kruise.KeyEngine: "nobody"}}}, metav1.CreateOptions{})
	return err
}

// LabelNamespace sets a label of a namespace; an empty value removes the label.
func LabelNamespace(t testing.TB, kube kubernetes.Interface, namespace, label, value string) {
	t.Helper()
	labels := map[string]any{label: value}
	if value == "" {
		labels[label] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	require.NoError(t, err)
	_, err = kube.CoreV1().Namespaces().Patch(context.Background(), namespace, types.MergePatchType, patch,
		metav1.PatchOptions{})
	require.NoError(t, err)
}

// collections are the API collections in which tests leave objects; owners come before what they own. Events are not
// listed: they expire.
var collections = []struct {
	version string
	kinds   []string
}{
	{"apis/kuscia.secretflow/v1alpha1", []string{"kusciadeployments", "appimages"}},
	{"apis/slipway.io/v1alpha1", []string{"deployplans", "releaserecords", "releaseservices", "parties"}},
	{"apis/rollouts.kruise.io/v1beta1", []string{"rollouts"}},
	{"apis/rollouts.kruise.io/v1alpha1", []string{"trafficroutings"}},
	{"apis/apps.kruise.io/v1alpha1", []string{"clonesets", "daemonsets"}},
	{"apis/apps.kruise.io/v1beta1", []string{"statefulsets"}},
	{"apis/autoscaling/v2", []string{"horizontalpodautoscalers"}},
	{"apis/networking.k8s.io/v1", []string{"ingresses"}},
	{"apis/gateway.networking.k8s.io/v1", []string{"httproutes"}},
	{"apis/networking.istio.io/v1", []string{"virtualservices", "destinationrules"}},
	{"apis/rbac.authorization.k8s.io/v1", []string{"rolebindings", "roles"}},
	{"apis/apps/v1", []string{"deployments", "statefulsets", "daemonsets", "replicasets", "controllerrevisions"}},
	{"apis/discovery.k8s.io/v1", []string{"endpointslices"}},
	{"api/v1", []string{"services", "pods", "resourcequotas", "secrets", "configmaps", "serviceaccounts"}},
}

// finalizedCollections hold objects with finalizers of an engine. When the engine has ended, these finalizers would
// block the deletion of the namespace.
var finalizedCollections = []string{"apis/rollouts.kruise.io/v1beta1/namespaces/%s/rollouts",
	"apis/kuscia.secretflow/v1alpha1/namespaces/%s/kusciadeployments",
	"apis/rollouts.kruise.io/v1alpha1/namespaces/%s/trafficroutings"}

// removeNamespace empties a namespace and deletes it. Kubernetes' own namespace controller deletes and lists every kind
// it has, repeatedly while a pod is left: those were half of all requests of a test run.
func removeNamespace(kube kubernetes.Interface, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if kube.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}) != nil {
		return
	}
	now, client := metav1.NewDeleteOptions(0), kube.CoreV1().RESTClient()
	for _, path := range finalizedCollections {
		removeFinalizers(ctx, client, fmt.Sprintf(path, name))
	}
	for _, c := range collections {
		for _, kind := range c.kinds {
			err := client.Delete().AbsPath(c.version, "namespaces", name, kind).Body(now).Do(ctx).Error()
			if err != nil && !apierrors.IsNotFound(err) { // the kind is not installed
				return // Kubernetes deletes the rest after some seconds
			}
		}
	}
	_, _ = kube.CoreV1().Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.UpdateOptions{})
}

// removeFinalizers removes the finalizers of the objects of a collection.
func removeFinalizers(ctx context.Context, client rest.Interface, collection string) {
	raw, err := client.Get().AbsPath(collection).Do(ctx).Raw()
	var found metav1.PartialObjectMetadataList
	if err != nil || json.Unmarshal(raw, &found) != nil {
		return
	}
	for _, object := range found.Items {
		patch := client.Patch(types.MergePatchType).AbsPath(collection,
			object.Name).Body([]byte(`{"metadata":{"finalizers":null}}`))
		_ = patch.Do(ctx).Error()
	}
}
