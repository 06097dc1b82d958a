package e2e

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/sources"
	"slipway.io/slipway/workflows"
)

// The party's store has what a template, a revision or a record names, and loses the rest: here no revision is kept, and one record of the plan.
func TestLongPackageStoreIsSwept(t *testing.T) {
	t.Parallel()
	store := "http://127.0.0.1:" + harness.FreePort(t)
	e := harness.Start(t, harness.Options{Args: []string{"--source-allow", "127.0.0.0/8", "--package-dir", filepath.Join(t.TempDir(), "packages"),
		"--package-listen", store[len("http://"):], "--package-keep", "1s", "--record-limit", "1"}})
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
		if text == "one" {
			e.Record(plan.ItemWorkflowID(task.ID, 1, "111"), "service-release-package-stored")
		}
	}
	// Each execution sweeps once the pause of the sweep before it is over; the same bytes roll nothing meanwhile.
	require.Eventually(t, func() bool {
		task := e.WaitTask(e.Execute("upload"), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
		return !has(digests[0]) && !has(digests[1])
	}, harness.Patience, harness.Tick, "what nothing names any more is removed")
	require.True(t, has(digests[2]), "what the pods run stays")
	e.RecordNewest(workflows.TypePackageSweep, "package-sweep")
}
