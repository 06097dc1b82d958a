package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/source"
)

func compiling(services map[ServiceID]catalog.Service, id ServiceID) Snapshot {
	return Snapshot{Task: "shop-1", Services: services, UnreachableBudgetSeconds: 120,
		Queues: map[string]string{"default": "slipway.party.default", "alice": "slipway.party.alice"},
		Document: Document{Items: []Item{{ServiceID: id, Deployment: CompileDeploy,
			CompileRepoPath: "git@git.test:order.git", CompileRepoBranch: "main"}}}}
}

// A task carries references to the build's template; only the worker of another party gets the template itself.
func TestSnapshotBuild_CarriesTemplate_OnlyForOtherParty(t *testing.T) {
	t.Parallel()
	services := testCatalogue()
	snap := compiling(services, "444")
	order := snap.Build(0)
	require.NotNil(t, order)
	require.Equal(t, []string{"444", "git@git.test:order.git", "git.test:order.git", "main", "app:{{commit}}", "",
		"shop-1"},
		[]string{order.Service, order.Repository, order.Shown, order.Branch, order.Image, order.Package, order.Task})
	require.Equal(t, 1, order.Item)
	require.EqualValues(t, 600, order.DeadlineSeconds)
	require.Len(t, order.TemplateSHA256, 64)
	require.Empty(t, order.Template, "the engine's own workers read it from the record, so that no history contains it")
	require.Nil(t, snap.Package(0), "an image build has no package")
	require.Equal(t, &source.Image{Container: "app"}, snap.Image(0), "package.container is the default container")

	service := services["444"]
	service.Workloads[0].Party = "alice"
	service.Build.Container, service.Build.DeadlineSeconds, service.Build.Credentials = "web", 1800, "git"
	services["444"] = service
	order = compiling(services, "444").Build(0)
	require.JSONEq(t, string(service.Build.JobTemplate.Raw), string(order.Template),
		"a party's own worker cannot read the record")
	require.EqualValues(t, 1800, order.DeadlineSeconds)
	require.EqualValues(t, 600, order.ResolveSeconds)
	require.Equal(t, "git", order.Credentials)
	require.Equal(t, "web", compiling(services, "444").Image(0).Container)

	pkg := compiling(services, "888")
	require.Nil(t, pkg.Image(0))
	require.Equal(t, "https://c{{commit}}.files/", pkg.Package(0).URL, "the commit is filled in once it is known")
	pkg.Document.Items[0].Deployment = Restart
	require.Nil(t, pkg.Build(0))
	require.Nil(t, pkg.Image(0))
	require.Nil(t, pkg.Package(0))
}

func TestReport_ShowsBuildAndItsLog(t *testing.T) {
	t.Parallel()
	task := Task{ID: "shop-1", State: TaskFailed, Services: []ServiceStatus{{ServiceID: "444",
		Deployment: CompileDeploy, State: ItemFailed, Reason: "it failed",
		Build: &BuildStatus{Repository: "https://git.test/order.git", Branch: "main", Commit: "abc", Party: "alice",
			Namespace: "shop", Job: "j", Reused: true,
			Image: "registry.test/order@sha256:00", Log: "one | two\n# three"}}}}
	text, err := NewReport(task, compiling(testCatalogue(), "444")).Markdown()
	require.NoError(t, err)
	require.Contains(t, text, "- Build: https://git.test/order.git, branch main, commit abc, by Job shop/j of party "+
		"alice, which an earlier task has run\n"+
		"- Built: registry.test/order@sha256:00\n")
	require.Contains(t, text, "\nThe end of the build's log:\n\n    one | two\n    # three\n",
		"the log is shown verbatim")
}
