package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/player"
	"slipway.io/slipway/test/sources"
)

// documentPlan is the example of the source document, with a third service that is compiled. Like the original it has
// tabs before comments, keys of other operations, and dots at the end.
const documentPlan = `comment: 这是一个发布计划的注释		# 此次编排发布的备注,可以为空

deployPlanItems:   			# 发布计划的具体内容
 - serviceId: 111  			# !!必填项!! 服务id
   priority: 3					# 该服务在所有待发布服务序列中的优先级
   deployment: HTTP_UPLOAD_DEPLOY   # !!必填项!! 此次服务的发布方式
   containerExecMethod: PARALLEL  # 容器部署的执行方式(串行或并行)
   deployLabel: label1		# 此次服务发布支持的标签,多个标签以逗号(,)分隔
   httpSrcUri: WEB/example.zip   # http上传部署的代码包地址
   compileRepoPath: GIT   # 编译部署的git仓库地址
   compileRepoBranch: master        # 编译部署git分支名称

 - serviceId: 222
   priority: 1
   deployment: STOP
   containerExecMethod: PARALLEL

 - serviceId: 333
   priority: 2
   deployment: COMPILE_DEPLOY
   compileRepoPath: GIT
   compileRepoBranch: master

   ...
`

// The example of the source document runs completely: a package by HTTP into the pods of one label, a build of a branch
// that changes between two runs, and a STOP, one wave after another, with a report of everything. The pods' containers
// and the build are real processes.
func TestSourceDocumentPlan_UploadsBuildsAndStops(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: packageOptions})
	web, git := sources.NewFiles(t), sources.NewGit(t, "", "")
	repository := git.Repository(t, "built")
	played := player.Start(t, e.Stack, player.Options{Namespace: e.Apps,
		Images: map[string]string{shellImage: "/bin/bash",
			"registry.test/slipway:v1": e.Binary("slipway")}})
	e.Deployment("front", 2, func(d *appsv1.Deployment) { player.Mark(&d.Spec.Template.ObjectMeta) })
	for name, replicas := range map[string]int32{"unlabelled": 1, "stopped": 2, "built": 2} {
		e.Deployment(name, replicas, nil)
	}
	for name, replicas := range map[string]int{"front": 2, "unlabelled": 1, "stopped": 2, "built": 2} {
		e.WaitReadyPods(name, replicas)
	}
	labelled := "workloads:\n- {namespace: " + e.Apps +
		", workloadRef: {apiVersion: apps/v1, kind: Deployment, name: front}, labels: [label1]}\n- {namespace: " +
		"" + e.Apps + ", workloadRef: {apiVersion: apps/v1, kind: Deployment, name: unlabelled}, labels: [label2]}\n" +
		"package: {container: app, mountPath: /app}\n"
	require.Equal(t, http.StatusCreated, e.Call(http.MethodPut, "/api/v1/services/111", labelled).Status)
	e.PutService("222", "", "Deployment/stopped")
	e.PutService("333", buildSpec(`image: "registry.test/built:{{commit}}"`, "", anonymousCloneScript),
		"Deployment/built")
	e.PutPlan("document", strings.NewReplacer("WEB", web.URL, "GIT", repository.URL).Replace(documentPlan))
	untouched := e.DeploymentGeneration("unlabelled")

	for run, text := range []string{"one", "two"} {
		digest := putPackage(t, web, "/example.zip", text)
		commit := repository.Push("master", map[string]string{"app.txt": text, "build.sh": imageBuildScript})
		e.ScaleDeployment("stopped", 2)
		e.WaitReadyPods("stopped", 2)

		task := e.WaitTask(e.Execute("document"), plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted)
		require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
		uploaded, stopped, built := task.Services[0], task.Services[1], task.Services[2]
		require.Equal(t, digest, uploaded.Package.SHA256)
		require.Equal(t, commit, built.Build.Commit)
		require.False(t, built.Build.Reused, "run %d has a different commit", run+1)
		require.Equal(t, built.Build.Image, imageOf(t, e, "built"))
		require.Len(t, buildJobs(t, e, "333"), run+1)
		e.WaitReadyPods("stopped", 0)
		require.Equal(t, untouched, e.DeploymentGeneration("unlabelled"),
			"deployLabel skips workloads without the label")
		requireInOrder(t, uploaded.FinishedAt, built.StartedAt)
		requireInOrder(t, built.FinishedAt, stopped.StartedAt)

		pods := e.PodUIDs("front")
		require.Len(t, pods, 2)
		list, err := e.Kube.CoreV1().Pods(e.Apps).List(context.Background(),
			metav1.ListOptions{LabelSelector: "app=front"})
		require.NoError(t, err)
		for _, pod := range list.Items {
			if pod.DeletionTimestamp != nil {
				continue
			}
			content, err := os.ReadFile(filepath.Join(played.Volume(pod.Name, source.VolumePackage),
				source.FolderContent, "index.html"))
			require.NoError(t, err)
			require.Equal(t, text, string(content), "every pod has exactly the fetched content")
		}
		report := string(e.Call(http.MethodGet, "/api/v1/tasks/"+task.ID+"/report", "", "Accept", "text/markdown").Body)
		for _, part := range []string{"这是一个发布计划的注释", digest, commit, built.Build.Image,
			"### Service 111: HTTP\\_UPLOAD\\_DEPLOY", "### Service 222: STOP", "Reverse plan"} {
			require.Contains(t, strings.ReplaceAll(report, "HTTP_UPLOAD", "HTTP\\_UPLOAD"),
				strings.ReplaceAll(part, "\\_DEPLOY", "_DEPLOY"), "the report is complete")
		}
	}
}

// requireInOrder requires one wave to end before the next begins.
func requireInOrder(t *testing.T, ended, began *time.Time) {
	t.Helper()
	require.NotNil(t, ended)
	require.NotNil(t, began)
	require.False(t, began.Before(*ended), "a wave begins after the previous one has ended")
}
