package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
)

// The worker dies before and after every write of a build. Each commit is built by one Job and rolled out once.
func TestSoakBuild_RunsOneJob_WhenWorkerKilled(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	c := newUnstartedSupervised(t)
	o := harness.Options{Binary: "slipway-failpoints", SeparateWorker: true,
		WorkerEnv: append(c.env(), "SLIPWAY_SOURCE_ALLOW=127.0.0.0/8")}
	c.Engine = harness.Start(t, o)
	c.process, c.restart = c.Processes[1], func() *harness.Process { return c.Worker(o) }
	c.superviseUntilTheEnd()
	b := newBuilder(t, c.Engine)
	c.Deployment("order", 2, nil)
	c.WaitReadyPods("order", 2)
	c.PutService("111", buildSpec(`image: "registry.test/order:{{commit}}"`, loginEnv, cloneScript), "Deployment/order")
	c.PutPlan("compile", compilePlan("111", b.repository, "main"))

	kills := 0
	dieAt := func(point string, want plan.TaskState) {
		t.Logf("kill at %s", point)
		died, made := c.deathCount(), countCreatedJobs(t, c.Engine)
		require.NoError(t, os.WriteFile(c.armFile, fmt.Appendf(nil, `{"name":%q}`, point), 0o600))
		generation := c.DeploymentGeneration("order")
		task := b.run(t, "compile")
		require.Equal(t, want, task.State, task.Reason)
		require.Greater(t, c.deathCount(), died, "the worker never reached %s", point)
		require.Len(t, made(), 1, "one Job for one build, wherever the worker dies")
		if want == plan.TaskSucceeded {
			require.Equal(t, task.Services[0].Build.Image, imageOf(t, c.Engine, "order"))
			require.Equal(t, generation+2, c.DeploymentGeneration("order"),
				"it is rolled out once: one write of the template, one that restores the borrowed fields")
		}
		kills++
	}
	for i, point := range []string{"build.create.before", "build.create.after", "build.record.before",
		"build.record.after"} {
		b.repository.Push("main", map[string]string{"app.txt": fmt.Sprint("version ", i), "build.sh": imageBuildScript})
		dieAt(point, plan.TaskSucceeded)
	}
	b.repository.Push("main", map[string]string{"broken": ""})
	require.Equal(t, plan.TaskFailed, b.run(t, "compile").State)
	for _, point := range []string{"build.replace.before", "build.replace.after"} {
		dieAt(point, plan.TaskFailed)
	}
	harness.Covered(t, kills, "kills of a worker while it builds")
}

// countCreatedJobs starts a watch. The function that it returns lists the build Jobs created since then, including
// those already deleted.
func countCreatedJobs(t *testing.T, e *harness.Engine) func() map[types.UID]string {
	t.Helper()
	options := metav1.ListOptions{LabelSelector: build.LabelService}
	list, err := e.Kube.BatchV1().Jobs(e.Apps).List(context.Background(), options)
	require.NoError(t, err)
	options.ResourceVersion = list.ResourceVersion
	return func() map[types.UID]string {
		changes, err := e.Kube.BatchV1().Jobs(e.Apps).Watch(context.Background(), options)
		require.NoError(t, err)
		defer changes.Stop()
		now, err := e.Kube.BatchV1().Jobs(e.Apps).List(context.Background(),
			metav1.ListOptions{LabelSelector: build.LabelService})
		require.NoError(t, err)
		latest := map[types.UID]string{}
		for _, job := range now.Items {
			latest[job.UID] = job.ResourceVersion
		}
		made, seen := map[types.UID]string{}, map[types.UID]string{}
		// Once the watch has delivered the latest version of every existing Job, it has delivered all earlier events
		// too.
		for event := range changes.ResultChan() {
			job, is := event.Object.(*batchv1.Job)
			require.True(t, is, "%v", event)
			seen[job.UID] = job.ResourceVersion
			if event.Type == watch.Added {
				made[job.UID] = job.Name
			}
			if sawAllJobs(latest, seen, list.Items) {
				break
			}
		}
		return made
	}
}

// sawAllJobs reports whether the watch has delivered the latest version of every existing Job that changed since the
// watch began.
func sawAllJobs(latest, seen map[types.UID]string, before []batchv1.Job) bool {
	old := map[types.UID]string{}
	for _, job := range before {
		old[job.UID] = job.ResourceVersion
	}
	for uid, version := range latest {
		if old[uid] != version && seen[uid] != version {
			return false
		}
	}
	return true
}
