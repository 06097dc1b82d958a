package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/test/buckets"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/sources"
)

// The party's store keeps the packages that a template, a revision or a record refers to, and removes the others. Here
// the Deployment keeps no old revision, and the plan keeps one record.
func TestLongPackageStore_RemovesUnreferencedPackages(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testPackageSweep(t, harness.Options{Args: []string{"--package-dir", filepath.Join(t.TempDir(), "packages")}})
}

// A store in a bucket does the same and leaves nothing else in the bucket.
func TestLongPackageBucket_RemovesUnreferencedPackages(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := buckets.Start(t)
	o := harness.Options{Args: []string{"--package-bucket", "s3://" + buckets.Name, "--package-s3-endpoint", server.URL,
		"--package-token-file", filepath.Join(t.TempDir(), "token")}}
	for name, value := range buckets.Environment {
		o.Env = append(o.Env, name+"="+value)
	}
	testPackageSweep(t, o)
	require.Len(t, server.Keys(), 2, "the referenced package, and its times")
}

func testPackageSweep(t *testing.T, o harness.Options) {
	store := "http://127.0.0.1:" + harness.FreePort(t)
	o.Args = append(o.Args, "--source-allow", "127.0.0.0/8", "--package-listen", store[len("http://"):],
		"--package-keep", "1s", "--record-limit", "1")
	e := harness.Start(t, o)
	web := sources.NewFiles(t)
	e.Deployment("front", 2, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32) })
	e.WaitReadyPods("front", 2)
	e.PutService("111", "package: {container: app, mountPath: /app}\n", "Deployment/front")
	e.PutPlan("upload", packagePlan("111", web.URL+"/latest.zip", ""))
	has := func(sha256 string) bool {
		answer, err := http.Head(source.StoreURL(store, sha256))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode == http.StatusOK
	}
	var digests []string
	for _, text := range []string{"one", "two", "three"} {
		digests = append(digests, putPackage(t, web, "/latest.zip", text))
		task := e.WaitTask(e.Execute("upload"), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
		require.True(t, task.Services[0].Package.Stored)
		require.Equal(t, digests[len(digests)-1], task.Services[0].Workloads[0].ToPackage)
		require.True(t, has(digests[len(digests)-1]))
	}
	// Each execution sweeps, unless the previous sweep was too recent; the same bytes change nothing meanwhile.
	require.Eventually(t, func() bool {
		task := e.WaitTask(e.Execute("upload"), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
		return !has(digests[0]) && !has(digests[1])
	}, harness.Patience, harness.Tick, "unreferenced packages are removed")
	require.True(t, has(digests[2]), "the package that the pods run is kept")
}

// The API server accepts the manifests of deploy/packages unchanged, and the command accepts their arguments.
func TestPackageStoreManifests_AreAccepted_ByAPIServer(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	for _, name := range []string{"store.yaml", "store-s3.yaml"} {
		t.Run(name, func(t *testing.T) { testManifestIsAccepted(t, e, name) })
	}
}

func testManifestIsAccepted(t *testing.T, e *harness.Engine, name string) {
	text, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy", "packages", name))
	require.NoError(t, err)
	resources := map[string]schema.GroupVersionResource{"Service": {Version: "v1", Resource: "services"},
		"PersistentVolumeClaim": {Version: "v1", Resource: "persistentvolumeclaims"},
		"Deployment":            {Group: "apps", Version: "v1", Resource: "deployments"},
		"NetworkPolicy":         {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		"PodDisruptionBudget":   {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}}
	for _, document := range strictyaml.Split(text) {
		var object unstructured.Unstructured
		require.NoError(t, yaml.Unmarshal(document, &object.Object))
		object.SetNamespace(e.Apps)
		_, err := e.Dynamic(t).Resource(resources[object.GetKind()]).Namespace(e.Apps).Create(context.Background(),
			&object,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		require.NoError(t, err, object.GetKind())
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		for _, container := range containers {
			args, _, _ := unstructured.NestedStringSlice(container.(map[string]any), "args")
			// the command parses every flag before it prints the help
			help, err := exec.Command(e.Binary("slipway"), append(args, "--help")...).CombinedOutput()
			require.NoError(t, err, "%s", help)
		}
	}
}
