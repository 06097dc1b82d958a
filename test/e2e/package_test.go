package e2e

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/sources"
)

// zipOf returns an archive of one file.
func zipOf(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	entry, err := w.Create(name)
	require.NoError(t, err)
	_, err = entry.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// putPackage replaces the package at a path with one that contains the text, and returns its digest.
func putPackage(t *testing.T, web *sources.Files, path, text string) string {
	t.Helper()
	content := zipOf(t, "index.html", text)
	web.Put(path, content)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// packagePlan returns a plan that deploys a service's package.
func packagePlan(service, uri, extra string) string {
	return "deployPlanItems: [{serviceId: " + service + ", deployment: HTTP_UPLOAD_DEPLOY, httpSrcUri: '" + uri + "'" +
		extra + "}]"
}

// templates returns the pod templates of a Deployment and a StatefulSet.
func templates(t *testing.T, e *harness.Engine, deployment, statefulSet string) []corev1.PodTemplateSpec {
	t.Helper()
	d, err := e.Kube.AppsV1().Deployments(e.Apps).Get(context.Background(), deployment, metav1.GetOptions{})
	require.NoError(t, err)
	s, err := e.Kube.AppsV1().StatefulSets(e.Apps).Get(context.Background(), statefulSet, metav1.GetOptions{})
	require.NoError(t, err)
	return []corev1.PodTemplateSpec{d.Spec.Template, s.Spec.Template}
}

// The owner replaces a package at the same URL: each execution deploys the current bytes, unchanged bytes change
// nothing, and a missing package changes nothing.
func TestPackageIsDeployed(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: packageOptions})
	web := sources.NewFiles(t)
	e.Deployment("front", 3, nil)
	e.StatefulSet("back", 2, func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	e.WaitReadyPods("front", 3)
	e.WaitReadyPods("back", 2)
	e.PutService("111", "package: {container: app, mountPath: /app}\n", "Deployment/front", "StatefulSet/back")
	e.PutPlan("upload", packagePlan("111", web.URL+"/latest.zip?signature=s3cr3t", ""))

	first := putPackage(t, web, "/latest.zip", "one")
	before := e.PodUIDs("front")
	task := e.WaitTask(e.Execute("upload"), plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	require.Equal(t, 1, web.Downloads("/latest.zip"), "one download, however many workloads and pods there are")
	for _, template := range templates(t, e, "front", "back") {
		require.Equal(t, "sha256:"+first, template.Annotations[source.AnnotationPackage])
		fetch := template.Spec.InitContainers[0]
		require.Equal(t, "registry.test/slipway:v1", fetch.Image)
		require.Contains(t, fetch.Args, first)
		require.Equal(t, web.URL+"/latest.zip?signature=s3cr3t", fetch.Env[0].Value, "pods need the whole URL")
	}
	after := e.PodUIDs("front")
	require.Len(t, after, 3)
	for uid := range after {
		require.NotContains(t, before, uid, "every pod is replaced")
	}
	shown := task.Services[0].Package
	require.NotNil(t, shown)
	require.Equal(t, first, shown.SHA256)
	require.Equal(t, web.URL+"/latest.zip?…", shown.URL)
	report := e.Call(http.MethodGet, "/api/v1/tasks/"+task.ID+"/report", "").Body
	require.Contains(t, string(report), first)
	require.NotContains(t, string(report), "s3cr3t", "a report hides the signature")
	requireHiddenInHistories(t, e, task.ID, "s3cr3t")

	t.Run("SameBytes", func(t *testing.T) {
		e, uids := e.WithT(t), e.PodUIDs("front")
		generation := generations(t, e)
		again := e.WaitTask(e.Execute("upload"), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, again.State, again.Reason)
		require.Equal(t, "nothing to do", again.Services[0].Reason, "the same digest changes nothing")
		require.Equal(t, generation, generations(t, e))
		require.Equal(t, uids, e.PodUIDs("front"))
	})
	t.Run("Overwritten", func(t *testing.T) {
		e := e.WithT(t)
		second := putPackage(t, web, "/latest.zip", "two")
		next := e.WaitTask(e.Execute("upload"), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, next.State, next.Reason)
		for _, template := range templates(t, e, "front", "back") {
			require.Equal(t, "sha256:"+second, template.Annotations[source.AnnotationPackage])
			require.Len(t, template.Spec.InitContainers, 1)
		}
	})
	t.Run("Removed", func(t *testing.T) {
		e := e.WithT(t)
		web.Remove("/latest.zip")
		generation := generations(t, e)
		failed := e.WaitTask(e.Execute("upload"), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskFailed, failed.State)
		require.Contains(t, failed.Reason, "404")
		require.NotContains(t, failed.Reason, "s3cr3t")
		require.Equal(t, generation, generations(t, e), "nothing is changed")
	})
	require.NotContains(t, e.Processes[0].Output(), "s3cr3t", "nor is it logged")
}

// generations returns those of the two workloads.
func generations(t *testing.T, e *harness.Engine) []int64 {
	t.Helper()
	d, err := e.Kube.AppsV1().Deployments(e.Apps).Get(context.Background(), "front", metav1.GetOptions{})
	require.NoError(t, err)
	s, err := e.Kube.AppsV1().StatefulSets(e.Apps).Get(context.Background(), "back", metav1.GetOptions{})
	require.NoError(t, err)
	return []int64{d.Generation, s.Generation}
}

// requireHiddenInHistories requires that a secret appears neither in the history of a task nor in that of its first
// item.
func requireHiddenInHistories(t *testing.T, e *harness.Engine, task, secret string) {
	t.Helper()
	for _, workflow := range []string{plan.WorkflowID(task), plan.ItemWorkflowID(task, 1, "111")} {
		events := e.Workflows.GetWorkflowHistory(context.Background(), workflow, "", false, 0)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(t, err)
			text, err := json.Marshal(event)
			require.NoError(t, err)
			require.NotContains(t, event.String()+string(text), secret, "%s, event %d", workflow, event.EventId)
		}
	}
}

// An author of a plan cannot make the engine fetch from a forbidden address.
func TestPackagesOfForbiddenAddressesAreRefused(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	web := sources.NewFiles(t)
	e.Deployment("web", 1, nil)
	e.WaitReadyPods("web", 1)
	e.PutService("forbidden", "package: {container: app, mountPath: /app}\n", "Deployment/web")
	for name, uri := range map[string]string{"loopback": web.URL + "/a.zip",
		"metadata": "http://169.254.169.254/latest/meta-data", "private": "http://10.0.0.1/a.zip",
		"mapped": "http://[::ffff:127.0.0.1]/a.zip"} {
		t.Run(name, func(t *testing.T) {
			e.PutPlan("forbidden-"+name, packagePlan("forbidden", uri, ""))
			a := e.Call(http.MethodPost, "/api/v1/plans/forbidden-"+name+"/execute", "")
			require.Equal(t, http.StatusUnprocessableEntity, a.Status, "%s", a.Body)
			require.Contains(t, string(a.Body),
				"allow it with --source-allow (SLIPWAY_SOURCE_ALLOW) of the party's worker")
			require.Equal(t, "deployPlanItems[0].httpSrcUri", a.Problem().Errors[0].Field,
				"the error refers to the URL, not to the service")
		})
	}
	a := e.Call(http.MethodPut, "/api/v1/plans/forbidden-user",
		packagePlan("forbidden", "https://user:s3cr3t@packages.test/a.zip", ""))
	require.Equal(t, http.StatusBadRequest, a.Status)
	require.NotContains(t, string(a.Body), "s3cr3t")
	require.Zero(t, web.Downloads("/a.zip"))
}
