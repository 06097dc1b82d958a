package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/player"
	"slipway.io/slipway/test/sources"
)

// shellImage is an image whose containers the player runs as processes.
const shellImage = "shell:local"

// cloneScript fetches the commit named by the environment and runs the repository's build.sh.
const cloneScript = `set -eu
git -c http.extraHeader="Authorization: Basic $LOGIN" clone --quiet --no-checkout "$SLIPWAY_GIT_URL" /tmp/code
cd /tmp/code
git checkout --quiet --detach "$SLIPWAY_GIT_COMMIT"
exec bash -eu build.sh
`

// anonymousCloneScript is cloneScript for a repository that needs no login.
const anonymousCloneScript = `set -eu
git clone --quiet --no-checkout "$SLIPWAY_GIT_URL" /tmp/code
cd /tmp/code
git checkout --quiet --detach "$SLIPWAY_GIT_COMMIT"
exec bash -eu build.sh
`

// imageBuildScript is a repository's build.sh that simulates the build of an image.
const imageBuildScript = `echo "compiling $SLIPWAY_GIT_COMMIT of branch $SLIPWAY_GIT_BRANCH for service $SLIPWAY_SERVICE"
echo "fetched from http://me:pa55word@mirror.test/lib?signature=123"
[ ! -e broken ] || { echo "order.c:3: syntax error"; exit 3; }
printf '%s@sha256:%s\n' "$SLIPWAY_BUILD_IMAGE" "$(sha256sum app.txt | cut -d' ' -f1)" >/dev/termination-log
`

// builder is an engine whose namespace has a player, with a repository that needs a login.
type builder struct {
	*harness.Engine
	repository *sources.Repository
}

func newBuilder(t *testing.T, e *harness.Engine) *builder {
	t.Helper()
	git := sources.NewGit(t, "ann", "s3cr3t")
	player.Start(t, e.Stack, player.Options{Namespace: e.Apps, Images: map[string]string{shellImage: "/bin/bash"}})
	_, err := e.Kube.CoreV1().Secrets(e.Apps).Create(context.Background(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "git"},
			StringData: map[string]string{"username": "ann", "password": "s3cr3t", "hosts": git.URL,
				"login": base64.StdEncoding.EncodeToString([]byte("ann:s3cr3t"))}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return &builder{e, git.Repository(t, "order")}
}

// loginEnv passes the login from the Secret of newBuilder to the Job.
const loginEnv = "[{name: LOGIN, valueFrom: {secretKeyRef: {name: git, key: login}}}]"

// buildSpec returns the catalogue's build section of a service whose Job runs a script. With an empty env the
// repository needs no login.
func buildSpec(yields, env, script string) string {
	if env != "" {
		yields, env = yields+"\n  credentials: git", "env: "+env
	}
	return fmt.Sprintf(`build:
  %s
  deadlineSeconds: 120
  jobTemplate:
    spec:
      template:
        metadata: {annotations: {dev.slipway.io/behaviour: played}}
        spec:
          terminationGracePeriodSeconds: 1
          containers:
          - name: build
            image: %s
            args: [-c, %q]
            %s
`, yields, shellImage, script, env)
}

// compilePlan returns a plan that compiles a branch.
func compilePlan(service string, repository *sources.Repository, branch string) string {
	return "deployPlanItems: [{serviceId: " + service + ", deployment: COMPILE_DEPLOY, compileRepoPath: '" +
		repository.URL + "', compileRepoBranch: " + branch + "}]"
}

// buildJobs returns the Jobs of a service's builds.
func buildJobs(t *testing.T, e *harness.Engine, service string) []batchv1.Job {
	t.Helper()
	list, err := e.Kube.BatchV1().Jobs(e.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: build.LabelService + "=" + service})
	require.NoError(t, err)
	return list.Items
}

func imageOf(t *testing.T, e *harness.Engine, deployment string) string {
	t.Helper()
	d, err := e.Kube.AppsV1().Deployments(e.Apps).Get(context.Background(), deployment, metav1.GetOptions{})
	require.NoError(t, err)
	return d.Spec.Template.Spec.Containers[0].Image
}

// run executes a plan and waits until its task ends.
func (b *builder) run(t *testing.T, name string) plan.Task {
	t.Helper()
	return b.WithT(t).WaitTask(b.WithT(t).Execute(name), plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted)
}

// A Job builds a branch, and the resulting image is rolled out by its digest. A commit is built once; a failed build
// changes no pod.
func TestBuildIsDeployed(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: []string{"--source-allow", "127.0.0.0/8"}})
	b := newBuilder(t, e)
	e.Deployment("order", 2, nil)
	e.WaitReadyPods("order", 2)
	e.PutService("111", buildSpec(`image: "registry.test/order:{{commit}}"`, loginEnv, cloneScript), "Deployment/order")
	e.PutPlan("compile", compilePlan("111", b.repository, "main"))
	first := b.repository.Push("main", map[string]string{"app.txt": "one", "build.sh": imageBuildScript})

	before := e.PodUIDs("order")
	task := b.run(t, "compile")
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	// sha256sum of "one"
	const one = "registry.test/order@sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
	require.Equal(t, one, imageOf(t, e, "order"))
	for uid := range e.PodUIDs("order") {
		require.NotContains(t, before, uid, "every pod is replaced")
	}
	shown := task.Services[0].Build
	require.NotNil(t, shown)
	require.Equal(t, first, shown.Commit)
	require.Equal(t, one, shown.Image)
	require.False(t, shown.Reused)
	made := buildJobs(t, e, "111")
	require.Len(t, made, 1)
	require.Equal(t, shown.Job, made[0].Name)
	require.Equal(t, first, made[0].Annotations[build.AnnotationCommit])
	report := string(e.Call(http.MethodGet, "/api/v1/tasks/"+task.ID+"/report", "", "Accept", "text/markdown").Body)
	require.Contains(t, report, first)
	require.Contains(t, report, one)
	requireHiddenInHistories(t, e, task.ID, "http.extraHeader") // the Job's template is a manifest

	t.Run("SameCommit", func(t *testing.T) {
		uids := e.PodUIDs("order")
		again := b.run(t, "compile")
		require.Equal(t, plan.TaskSucceeded, again.State, again.Reason)
		require.Equal(t, "nothing to do", again.Services[0].Reason)
		require.True(t, again.Services[0].Build.Reused, "the same commit is not built again")
		require.Equal(t, uids, e.PodUIDs("order"))
		require.Len(t, buildJobs(t, e, "111"), 1)
	})
	t.Run("FailedBuild", func(t *testing.T) {
		uids := e.PodUIDs("order")
		b.repository.Push("main", map[string]string{"broken": ""})
		failed := b.run(t, "compile")
		require.Equal(t, plan.TaskFailed, failed.State)
		require.Contains(t, failed.Reason, "container build ended with exit code 3: order.c:3: syntax error")
		log := failed.Services[0].Build.Log
		require.Contains(t, log, "compiling "+failed.Services[0].Build.Commit+" of branch main for service 111\n")
		require.Contains(t, log, "http://mirror.test/lib?…", "a report hides credentials and queries of URLs")
		require.NotContains(t, log, "pa55word")
		require.Equal(t, plan.ItemSkipped, failed.Services[0].Workloads[0].State)
		require.Equal(t, one, imageOf(t, e, "order"))
		require.Equal(t, uids, e.PodUIDs("order"), "no pod is replaced")

		was := buildJobs(t, e, "111")
		b.run(t, "compile")
		now := buildJobs(t, e, "111")
		require.Len(t, now, len(was))
		require.NotEqual(t, was, now, "the next task retries a failed build")
	})
	t.Run("AnotherBranch", func(t *testing.T) {
		second := b.repository.Push("repaired", map[string]string{"broken": "", "app.txt": "two",
			"build.sh": strings.ReplaceAll(imageBuildScript, "broken", "no-such")})
		e.PutPlan("compile", compilePlan("111", b.repository, "repaired"))
		next := b.run(t, "compile")
		require.Equal(t, plan.TaskSucceeded, next.State, next.Reason)
		require.Equal(t, second, next.Services[0].Build.Commit)
		require.Equal(t, "registry.test/order@sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3",
			imageOf(t, e, "order"))
	})
	t.Run("UnknownBranch", func(t *testing.T) {
		e.PutPlan("compile", compilePlan("111", b.repository, "no-such"))
		failed := b.run(t, "compile")
		require.Equal(t, plan.TaskFailed, failed.State)
		require.Contains(t, failed.Reason, "the repository has no branch no-such")
	})
	require.NotContains(t, e.Processes[0].Output(), "s3cr3t")
}
