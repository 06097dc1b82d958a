package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/sources"
)

// packageBuildScript is a repository's build.sh: it archives the repository and uploads the archive.
const packageBuildScript = `git archive --format=tar.gz --output=/tmp/app.tar.gz HEAD
rest=${SLIPWAY_BUILD_PACKAGE#http://}
host=${rest%%/*}
exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
printf 'PUT /%s HTTP/1.0\r\nContent-Length: %s\r\n\r\n' "${rest#*/}" "$(stat -c %s /tmp/app.tar.gz)" >&3
cat /tmp/app.tar.gz >&3
head -n 1 <&3 | grep 201
printf '%s sha256:%s' "$SLIPWAY_BUILD_PACKAGE" "$(sha256sum /tmp/app.tar.gz | cut -d' ' -f1)" >/dev/termination-log
`

// A build that yields a package continues like HTTP_UPLOAD_DEPLOY: the package is fetched, checked and pinned. The
// engine refuses bytes whose digest differs from the one that the build reported.
func TestBuiltPackageIsDeployed(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: []string{"--source-allow", "127.0.0.0/8", "--image",
		"registry.test/slipway:v1"}})
	b := newBuilder(t, e)
	web := sources.NewFiles(t)
	uploads := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			web.ServeHTTP(w, r)
			return
		}
		content, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		web.Put(r.URL.Path, content)
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(uploads.Close)
	e.Deployment("order", 2, nil)
	e.WaitReadyPods("order", 2)
	e.PutService("112", "package: {container: app, mountPath: /app}\n"+
		buildSpec(`package: "`+uploads.URL+`/order-{{commit}}.tar.gz"`, loginEnv, cloneScript), "Deployment/order")
	e.PutPlan("compile", compilePlan("112", b.repository, "main"))
	commit := b.repository.Push("main", map[string]string{"app.txt": "one", "build.sh": packageBuildScript})

	task := b.run(t, "compile")
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	service := task.Services[0]
	require.Equal(t, uploads.URL+"/order-"+commit+".tar.gz", service.Package.URL)
	require.Equal(t, "tar.gz", service.Package.Format)
	d, err := e.Kube.AppsV1().Deployments(e.Apps).Get(context.Background(), "order", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "sha256:"+service.Package.SHA256, d.Spec.Template.Annotations[source.AnnotationPackage])
	require.Equal(t, 1, web.Downloads("/order-"+commit+".tar.gz"))

	web.Put("/order-"+commit+".tar.gz", zipOf(t, "index.html", "replaced"))
	failed := b.run(t, "compile")
	require.Equal(t, plan.TaskFailed, failed.State)
	require.Contains(t, failed.Reason, "is not what the build of service 112 has made")
	require.Len(t, buildJobs(t, e, "112"), 1)
}

// The catalogue accepts examples/builds/services.yaml, and an API server accepts the Jobs.
func TestBuildSamples_AreAccepted_ByCatalogueAndAPIServer(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	text, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "examples", "builds", "services.yaml"))
	require.NoError(t, err)
	documents := strictyaml.Split(text)
	require.Len(t, documents, 2)
	for _, document := range documents {
		var object struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     json.RawMessage   `json:"spec"`
		}
		require.NoError(t, yaml.Unmarshal(document, &object))
		service, wrong := catalog.Decode(object.Spec)
		require.NoError(t, wrong.Err())
		digest, err := build.TemplateDigest(service.Build.JobTemplate.Raw)
		require.NoError(t, err)
		request := build.Request{Namespace: e.Apps, Commit: "0123456789abcdef0123456789abcdef01234567",
			By: "task/a/1-" + object.Metadata.Name,
			Order: build.Order{Service: object.Metadata.Name, Repository: "https://git.example.com/shop/order.git",
				Branch: "main", Image: service.Build.Image,
				Package: service.Build.Package, TemplateSHA256: digest, DeadlineSeconds: service.BuildDeadline()}}
		job, err := request.Job(service.Build.JobTemplate.Raw)
		require.NoError(t, err)
		made, err := e.Kube.BatchV1().Jobs(e.Apps).Create(context.Background(), job,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		require.NoError(t, err)
		require.Equal(t, batchv1.NonIndexedCompletion, *made.Spec.CompletionMode)
	}
}
