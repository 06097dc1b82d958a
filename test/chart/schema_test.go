package chart

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"slipway.io/slipway/test/compose"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/programs"
)

// databases is an installation whose Temporal databases are in a PostgreSQL of the test.
type databases struct {
	*installation
	compose.Database
	values map[string]any
}

const schemaSelector = "app.kubernetes.io/component=temporal-schema"

// TestSoakTemporalSchemaJob_RunsBeforeInstallAndUpgrade checks that the databases are set up before the installation
// and updated before each upgrade. If that fails, Helm stops.
func TestSoakTemporalSchemaJob_RunsBeforeInstallAndUpgrade(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	d := newDatabases(t)
	jobs := d.stack.Kube.BatchV1().Jobs(d.namespace)
	d.runJobPods(t)

	d.helm("install", d.release, chartDir(), "--values", values(t, d.values))
	d.RequireSchema(t, "temporal", "temporal_visibility")
	left, err := jobs.List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, left.Items, "a successful Job must be deleted")
	history := d.Query(t, "temporal", "SELECT count(*) FROM schema_update_history")
	d.helm("upgrade", d.release, chartDir(), "--values", values(t, d.values))
	require.Equal(t, history, d.Query(t, "temporal", "SELECT count(*) FROM schema_update_history"),
		"an up-to-date schema must not change")

	d.Query(t, "postgres", "CREATE ROLE plain LOGIN PASSWORD '"+d.Password+"'")
	d.values["temporalSchema"].(map[string]any)["user"] = "plain"
	d.values["server"] = map[string]any{"replicas": 5}
	_, errors, err := d.tryHelm("upgrade", d.release, chartDir(), "--values", values(t, d.values))
	require.Error(t, err)
	require.Contains(t, errors, "pre-upgrade hooks failed")
	require.EqualValues(t, 2, *d.deployment("server").Spec.Replicas, "nothing may be upgraded before its databases")
	failed, err := jobs.List(context.Background(), metav1.ListOptions{LabelSelector: schemaSelector})
	require.NoError(t, err)
	require.Len(t, failed.Items, 1, "the failed Job must stay, with the logs of its pods")

	// A user without the right to create databases suffices if it owns existing ones.
	for _, name := range []string{"own", "own_visibility"} {
		d.Query(t, "postgres", "CREATE DATABASE "+name+" OWNER plain")
	}
	d.values["temporalSchema"].(map[string]any)["databases"] = map[string]any{"default": "own",
		"visibility": "own_visibility", "create": false}
	d.helm("upgrade", d.release, chartDir(), "--values", values(t, d.values))
	d.RequireSchema(t, "own", "own_visibility")
	require.EqualValues(t, 5, *d.deployment("server").Spec.Replicas)

	d.secret("database-ca", "ca.crt", readFile(t, d.Encrypt(t)))
	for _, name := range []string{"encrypted", "encrypted_visibility"} {
		d.Query(t, "postgres", "CREATE DATABASE "+name+" OWNER plain")
	}
	schema := d.values["temporalSchema"].(map[string]any)
	schema["databases"] = map[string]any{"default": "encrypted", "visibility": "encrypted_visibility", "create": false}
	schema["tls"] = map[string]any{"enabled": true, "caSecret": map[string]any{"name": "database-ca"}}
	d.helm("upgrade", d.release, chartDir(), "--values", values(t, d.values))
	d.RequireSchema(t, "encrypted", "encrypted_visibility")
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// secret creates a Secret with one entry.
func (d *databases) secret(name, key, value string) {
	d.t.Helper()
	_, err := d.stack.Kube.CoreV1().Secrets(d.namespace).Create(context.Background(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name},
			StringData: map[string]string{key: value}}, metav1.CreateOptions{})
	require.NoError(d.t, err)
}

func newDatabases(t *testing.T) *databases {
	t.Helper()
	stack := harness.SharedStack(t)
	home, shop := stack.Namespace(t, "home"), stack.Namespace(t, "shop")
	d := &databases{installation: &installation{node: node{t: t, stack: stack}, release: harness.RandomName("slipway"),
		namespace: home}, Database: compose.StartDatabase(t)}
	d.secret("database", "password", d.Password)
	d.values = map[string]any{"watchNamespaces": []string{shop},
		"servingNamespace": map[string]any{"name": shop, "create": false}, "crds": map[string]any{"install": false},
		"temporalSchema": map[string]any{"enabled": true, "image": "temporalio/admin-tools:1.32.1", "host": d.Host,
			"port": number(t, d.Port), "user": d.User, "passwordSecret": map[string]any{"name": "database"},
			// No node has this label: the test itself runs the pods.
			"nodeSelector": map[string]any{"slipway.test/node": "none"}}}
	t.Cleanup(func() { _, _, _ = d.tryHelm("uninstall", d.release, "--ignore-not-found") })
	return d
}

// runJobPods runs the commands of the Job's pods, with the environment of their containers, and sets the pods' phase to
// the outcome.
func (d *databases) runJobPods(t *testing.T) {
	t.Helper()
	path := programs.Folder(t, "compose")
	pods, err := d.stack.Kube.CoreV1().Pods(d.namespace).Watch(t.Context(),
		metav1.ListOptions{LabelSelector: schemaSelector})
	require.NoError(t, err)
	go func() {
		for event := range pods.ResultChan() {
			if pod, is := event.Object.(*corev1.Pod); is && event.Type == watch.Added {
				d.runPod(t, pod, path)
			}
		}
	}()
}

func (d *databases) runPod(t *testing.T, pod *corev1.Pod, path string) {
	container, phase := pod.Spec.Containers[0], corev1.PodSucceeded
	command := exec.CommandContext(t.Context(), container.Command[0], container.Command[1:]...)
	command.Env = []string{"PATH=" + path + string(os.PathListSeparator) + os.Getenv("PATH")}
	files := d.mount(d.namespace, pod.Spec.Volumes, container.VolumeMounts)
	for _, variable := range container.Env {
		for mounted, folder := range files {
			variable.Value = strings.Replace(variable.Value, mounted+"/", folder+"/", 1)
		}
		if variable.ValueFrom != nil {
			ref := variable.ValueFrom.SecretKeyRef
			secret, err := d.stack.Kube.CoreV1().Secrets(d.namespace).Get(t.Context(), ref.Name, metav1.GetOptions{})
			if err != nil {
				t.Errorf("the Secret of a pod of the Job: %v", err)
				return
			}
			variable.Value = string(secret.Data[ref.Key])
		}
		command.Env = append(command.Env, variable.Name+"="+variable.Value)
	}
	if out, err := command.CombinedOutput(); err != nil {
		t.Logf("a pod of the Job failed: %s", out)
		phase = corev1.PodFailed
	}
	patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	_, err := d.stack.Kube.CoreV1().Pods(d.namespace).Patch(t.Context(), pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	assert.True(t, err == nil || t.Context().Err() != nil, "%v", err)
}

// TestSchemaJob_HasImageOfTestedTemporal checks that the Job's image is that of compose, whose server checks the schema
// at its start.
func TestSchemaJob_HasImageOfTestedTemporal(t *testing.T) {
	t.Parallel()
	text := readFile(t, filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "docker-compose.yml"))
	job := find(t, render(t, sets["Everything"]...), "Job", "engine-temporal-schema")
	image, _ := containerOf(t, job)["image"].(string)
	require.Contains(t, text, "image: "+image+"\n")
}
