package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// maxServingWrites is the promised maximum of writes to API servers for the creation of one serving of two parties.
// Each of its eight objects takes one write: a server-side apply that creates it never overwrites another client's
// object, and owns its fields, so that drift in them is detected.
const maxServingWrites = 22

// TestLongServingsAtOnce measures n servings of two parties created at once, compared with their Deployments, Services
// and ConfigMaps alone.
func TestLongServingsAtOnce(t *testing.T) {
	harness.Long(t)
	measureServings(t, 20)
}

// TestSoakServingsAtOnce has the size for which figures are published.
func TestSoakServingsAtOnce(t *testing.T) {
	harness.Soak(t)
	measureServings(t, 200)
}

func measureServings(t *testing.T, n int) {
	stack, counted := stackOf(t, n)
	e := harness.Start(t, harness.Options{SeparateWorker: true, Stack: &stack})
	parties := []string{e.Namespace(t, "alice"), e.Namespace(t, "bob")}
	image := servingImage(t, e)

	waitSettled(t, e)
	servedFirst := requestsServed(t, e)
	plain := measure(t, e, func() {
		each(n, func(i int) { createPlain(t, e, parties, fmt.Sprintf("plain-%d", i)) })
		for _, party := range parties {
			waitFor(t, deploymentsOf(e, party), n, isAvailable)
		}
	})
	waitSettled(t, e)
	servedPlain := requestsServed(t, e).since(servedFirst)
	for _, party := range parties {
		deleteCompared(t, e, party)
	}
	waitSettled(t, e)
	servedFirst = requestsServed(t, e)
	before := counted.snapshot()
	ours := measure(t, e, func() {
		createServings(t, e, parties, image, n)
	})
	waitSettled(t, e)
	servedOurs := requestsServed(t, e).since(servedFirst)
	after := counted.snapshot()
	fmt.Printf("\n%d servings of 2 parties, 1 pod each, created at once; plain: their Deployments, Services and "+
		"ConfigMaps alone\n", n)
	printRatios(t, "servings", plain, ours)
	printServed(n, servedPlain, servedOurs)
	fmt.Printf("  history: %d events for the creation of one\n", e.Events(serving.WorkflowPrefix("s0")+"1"))
	printTypes(e.History(serving.WorkflowPrefix("s0") + "1"))
	fmt.Printf("  peak memory: server %d MiB, worker %d MiB\n\n", ours.serverRSS>>20, ours.workerRSS>>20)
	harness.Covered(t, n, "servings at once")
	after.check(t, before, n, maxServingWrites)
}

// servingImage creates the AppImage of the servings and returns its name.
func servingImage(t *testing.T, e *harness.Engine) string {
	image := harness.RandomName("image")
	e.MustKuscia("/api/v1/appimage/create", fmt.Sprintf(
		`{"name":%q,"image":{"name":"registry.test/app","tag":"v1"},"config_templates":{"app.conf":"{\"id\":\"{{.SERVING_ID}}\"}"},
		"deploy_templates":[{"name":"app","replicas":1,"containers":[{"name":"app","config_volume_mounts":[{"mount_path":"/etc/app.conf","sub_path":"app.conf"}],
		"ports":[{"name":"service","scope":"Cluster"},{"name":"internal","scope":"Domain"}]}]}]}`, image))
	images := e.Dynamic(t).Resource(kuscia.AppImageResource)
	// the engine may have ended by then
	t.Cleanup(func() { _ = images.Delete(context.Background(), image, metav1.DeleteOptions{}) })
	return image
}

// createServings creates servings of two parties until there are n, and returns when all are Available.
func createServings(t *testing.T, e *harness.Engine, parties []string, image string, n int) {
	list, err := servingsOf(t, e).list(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	there := meta.LenList(list)
	each(n-there, func(i int) {
		createServing(e, fmt.Sprintf("s%d", i+there), parties, image)
	})
	waitFor(t, servingsOf(t, e), n, servingIsAvailable)
}

// createServing creates a serving of two parties.
func createServing(e *harness.Engine, id string, parties []string, image string) {
	e.MustKuscia("/api/v1/serving/create",
		fmt.Sprintf(
			`{"serving_id":%q,"initiator":%q,"serving_input_config":"{}","parties":[{"domain_id":%q,"app_image":%q},{"domain_id":%q,"app_image":%q}]}`,
			id, parties[0], parties[0], image, parties[1], image))
}

func servingIsAvailable(object runtime.Object) bool {
	phase, _, _ := unstructured.NestedString(object.(*unstructured.Unstructured).Object, "status", "phase")
	return phase == string(kuscia.PhaseAvailable)
}

func servingsOf(t *testing.T, e *harness.Engine) objectSource {
	client := e.Dynamic(t).Resource(kuscia.KusciaDeploymentResource).Namespace(e.Home)
	return objectSource{watch: client.Watch, list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
		error) {
		return client.List(ctx, o)
	}}
}

// createPlain creates the objects that a serving has in its parties, without a serving.
func createPlain(t *testing.T, e *harness.Engine, parties []string, name string) {
	labels := map[string]string{"app": name, comparisonLabel: ""}
	one := int32(1)
	for _, party := range parties {
		for _, port := range []string{"service", "internal"} {
			_, err := e.Kube.CoreV1().Services(party).Create(context.Background(),
				&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + port, Labels: labels},
					Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: labels,
						Ports: []corev1.ServicePort{{Name: port, Port: 8080, TargetPort: intstr.FromInt32(8080)}}}},
				metav1.CreateOptions{})
			require.NoError(t, err)
		}
		_, err := e.Kube.CoreV1().ConfigMaps(party).Create(context.Background(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
				Data: map[string]string{"app.conf": fmt.Sprintf(`{"id":%q}`, name)}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = e.Kube.AppsV1().Deployments(party).Create(context.Background(),
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
				Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
							Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
								ConfigMap: &corev1.ConfigMapVolumeSource{
									LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}},
							Containers: []corev1.Container{{Name: "app", Image: "registry.test/app:v1",
								VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/app.conf",
									SubPath: "app.conf"}}}}}}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// isAvailable reports whether a Deployment has an available pod.
func isAvailable(object runtime.Object) bool {
	d, is := object.(*appsv1.Deployment)
	return is && d.Status.AvailableReplicas > 0
}
