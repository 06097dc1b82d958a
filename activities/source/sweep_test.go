package source

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"slipway.io/slipway/release/source"
)

// templateOf returns a pod template that runs a package.
func templateOf(sha256 string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{source.AnnotationPackage: "sha256:" + sha256}}}
}

func TestSweep_KeepsReferencedAndRecentPackages(t *testing.T) {
	t.Parallel()
	at := metav1.ObjectMeta{Namespace: "shop", Name: "order"}
	revision, err := json.Marshal(map[string]any{"spec": map[string]any{"template": templateOf("revision")}})
	require.NoError(t, err)
	client := fake.NewClientset(
		&appsv1.Deployment{ObjectMeta: at, Spec: appsv1.DeploymentSpec{Template: templateOf("deployment")}},
		&appsv1.StatefulSet{ObjectMeta: at, Spec: appsv1.StatefulSetSpec{Template: templateOf("statefulset")}},
		&appsv1.DaemonSet{ObjectMeta: at, Spec: appsv1.DaemonSetSpec{Template: templateOf("daemonset")}},
		&appsv1.ReplicaSet{ObjectMeta: at, Spec: appsv1.ReplicaSetSpec{Template: templateOf("replicaset")}},
		&appsv1.ControllerRevision{ObjectMeta: at, Data: runtime.RawExtension{Raw: revision}},
	)
	now := time.Now()
	store := &memoryStore{packages: map[string][]byte{},
		used: map[string]time.Time{"new": now.Add(-time.Hour), "moment": now.Add(-48 * time.Hour)}}
	for _, sha256 := range []string{"deployment", "statefulset", "daemonset", "replicaset", "revision", "new",
		"unreferenced", "moment"} {
		store.packages[sha256] = nil
	}
	options := loopback()
	options.Store = store
	a, err := New(client, options)
	require.NoError(t, err)
	unnamed, err := a.Unnamed(t.Context(), source.UnreferencedRequest{})
	require.NoError(t, err)
	require.Equal(t, source.Unreferenced{SHA256: []string{"moment", "unreferenced"}, KeepSeconds: 24 * 60 * 60},
		unnamed)

	store.used["moment"] = now // a release has started to use it in the meantime
	_, err = client.AppsV1().Deployments("shop").Create(t.Context(),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"},
			Spec: appsv1.DeploymentSpec{Template: templateOf("late")}}, metav1.CreateOptions{})
	require.NoError(t, err)
	store.packages["late"] = nil
	removed, err := a.Remove(t.Context(), source.Unreferenced{SHA256: []string{"absent", "late", "moment",
		"unreferenced"}})
	require.NoError(t, err)
	require.Equal(t, source.Removed{Packages: 1}, removed,
		"a package that is used, referenced or absent by now is not removed")
	require.NotContains(t, store.packages, "unreferenced")
	require.Len(t, store.packages, 8)
}
