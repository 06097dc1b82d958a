package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

func workload(kind, name string, labels ...string) catalog.Workload {
	return catalog.Workload{Namespace: "shop", WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: kind,
		Name: name}, Labels: labels}
}

func testCatalogue() map[ServiceID]catalog.Service {
	template := apiextensionsv1.JSON{
		Raw: []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"build","image":"golang"}]}}}}`)}
	alice := workload("Deployment", "order", "web")
	alice.Party = "alice"
	return map[ServiceID]catalog.Service{
		"111": {Workloads: []catalog.Workload{workload("Deployment", "order", "web", "blue"),
			workload("StatefulSet", "db", "data")}},
		"222": {Workloads: []catalog.Workload{workload("Deployment", "order", "front"),
			workload("Deployment", "cart")}},
		"333": {Workloads: []catalog.Workload{workload("DaemonSet", "agent", "node"),
			workload("Deployment", "agent-api", "api")}},
		"444": {
			Workloads: []catalog.Workload{workload("Deployment", "mail")},
			Package:   &catalog.Package{Container: "app", MountPath: "/app"},
			Build:     &catalog.Build{JobTemplate: template, Image: "app:{{commit}}"},
		},
		"777": {
			Workloads: []catalog.Workload{workload("Deployment", "news")},
			Build:     &catalog.Build{JobTemplate: template, Package: "https://files/{{commit}}.zip"},
		},
		"888": {
			Workloads: []catalog.Workload{workload("Deployment", "shop")},
			Package:   &catalog.Package{Container: "app", MountPath: "/app", Unpack: new(bool)},
			Build:     &catalog.Build{JobTemplate: template, Package: "https://c{{commit}}.files/"},
		},
		"555": {Workloads: []catalog.Workload{alice}},
		"666": {Workloads: []catalog.Workload{{Namespace: "shop",
			WorkloadRef: catalog.WorkloadRef{APIVersion: "batch/v1", Kind: "Job", Name: "x"}}}},
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	upload := Item{ServiceID: "111", Deployment: HTTPUploadDeploy, HTTPSrcURI: "http://files/app.zip"}
	compile := Item{ServiceID: "111", Deployment: CompileDeploy, CompileRepoPath: "http://git/a.git",
		CompileRepoBranch: "master"}
	uploadable, compilable := upload, compile
	uploadable.ServiceID, compilable.ServiceID = "444", "444"
	packaging := func(id ServiceID) Item { i := compile; i.ServiceID = id; return i }
	from := func(address string) Item { i := compilable; i.CompileRepoPath = address; return i }
	for name, test := range map[string]struct {
		reason string
		items  []Item
		errs   strictyaml.Errors
	}{
		"Valid": {"a plan without problems", []Item{{ServiceID: "111", Deployment: Stop, Priority: 2},
			{ServiceID: "222", Deployment: Restart, Priority: 1}}, nil},
		"Unknown": {"the service is unknown", []Item{{ServiceID: "999", Deployment: Stop}}, strictyaml.Errors{{
			Item: 1, Field: "deployPlanItems[0].serviceId",
			Reason: `service 999 is not in the catalogue: create it (PUT /api/v1/services/999)`,
		}}},
		"LabelOfNone": {"a label that selects nothing",
			[]Item{{ServiceID: "111", Deployment: Stop, DeployLabel: "green"}}, strictyaml.Errors{{
				Item: 1, Field: "deployPlanItems[0].deployLabel",
				Reason: "selects nothing: no workload of service 111 carries the label green; its workloads carry web, " +
					"blue, data",
			}}},
		"LabelsOfNone": {"a label for a service without labels",
			[]Item{{ServiceID: "444", Deployment: Stop, DeployLabel: "a,b"}}, strictyaml.Errors{{
				Item: 1, Field: "deployPlanItems[0].deployLabel",
				Reason: "selects nothing: no workload of service 444 carries any of the labels a, b; none of them " +
					"carries any label",
			}}},
		"DaemonStop": {"a DaemonSet has no size", []Item{{ServiceID: "333", Deployment: Stop}}, strictyaml.Errors{{
			Item: 1, Field: "deployPlanItems[0].deployment",
			Reason: "STOP cannot be done to DaemonSet shop/agent of service 333: a DaemonSet has no size; use " +
				"RESTART, or select other workloads by deployLabel",
		}}},
		"DaemonStart": {"a DaemonSet has no size",
			[]Item{{ServiceID: "333", Deployment: Start, DeployLabel: "node,api"}},
			strictyaml.Errors{{Item: 1, Field: "deployPlanItems[0].deployment"}}},
		"DaemonRestart": {"a DaemonSet can be restarted", []Item{{ServiceID: "333", Deployment: Restart}}, nil},
		"DaemonUnselected": {"a DaemonSet that is not selected is not stopped",
			[]Item{{ServiceID: "333", Deployment: Stop, DeployLabel: "api"}}, nil},
		"NoPackage": {"the catalogue does not define where the package goes", []Item{upload}, strictyaml.Errors{{
			Item: 1, Field: "deployPlanItems[0].deployment",
			Reason: "service 111 has no `package` in the catalogue, which says how a code package reaches its " +
				"containers: add it",
		}}},
		"NoBuild": {"the catalogue does not define how it is compiled", []Item{compile}, strictyaml.Errors{{
			Item: 1, Field: "deployPlanItems[0].deployment",
			Reason: "service 111 has no `build` in the catalogue, which says how it is compiled: add it",
		}}},
		"Package": {"the catalogue defines it", []Item{uploadable}, nil},
		"Build":   {"the catalogue defines it", []Item{compilable}, nil},
		"BuildPackage": {"the catalogue does not define where the built package goes", []Item{packaging("777")},
			strictyaml.Errors{{
				Item: 1, Field: "deployPlanItems[0].deployment",
				Reason: "service 777 has no `package` in the catalogue, which says how a code package reaches its " +
					"containers: add it",
			}}},
		"BuildWhole": {"a package that is not unpacked needs a file name", []Item{packaging("888")}, strictyaml.Errors{{
			Item: 1, Field: "deployPlanItems[0].deployment",
			Reason: "names no file, and the package of service 888 is not unpacked (unpack: false): set package.file " +
				"in the catalogue",
		}}},
		"GitProtocol": {"a protocol without authentication and encryption", []Item{from("git://git.test/a.git")},
			strictyaml.Errors{{
				Item: 1, Field: "deployPlanItems[0].compileRepoPath",
				Reason: "git://git.test/a.git: git:// is neither encrypted nor authenticated: use https or ssh",
			}}},
		"GitQuery": {"a query may be a secret, and workflow histories contain the address",
			[]Item{from("https://git.test/a.git?token=s3cr3t")}, strictyaml.Errors{{
				Item: 1, Field: "deployPlanItems[0].compileRepoPath",
				Reason: "https://git.test/a.git?…: the address of a Git repository has no query: put credentials into " +
					"the Secret that build.credentials names",
			}}},
		"Invalid": {"an entry that was not written through the engine", []Item{{ServiceID: "666", Deployment: Restart}},
			strictyaml.Errors{{
				Item: 1, Field: "deployPlanItems[0].serviceId",
				Reason: `the catalogue entry of service 666 is not valid: workloads[0].workloadRef.kind: "Job" of "batch/v1" is not available yet: Deployment, StatefulSet and DaemonSet of apps/v1 are`,
			}}},
		"Shared": {"two services would change one object at the same time",
			[]Item{{ServiceID: "111", Deployment: Restart}, {ServiceID: "444", Deployment: Restart},
				{ServiceID: "222", Deployment: Stop}}, strictyaml.Errors{{
				Item: 3, Field: "deployPlanItems[2].serviceId",
				Reason: "services 111 (item 1) and 222 (item 3) both change Deployment shop/order in one wave: give the " +
					"items different priorities, or narrow one by deployLabel",
			}}},
		"SharedApart": {"in different waves they may",
			[]Item{{ServiceID: "111", Deployment: Restart, Priority: 1}, {ServiceID: "222", Deployment: Stop}}, nil},
		"SharedUnselected": {"the labels select different workloads",
			[]Item{{ServiceID: "111", Deployment: Restart, DeployLabel: "data"}, {ServiceID: "222", Deployment: Stop}},
			nil},
		"OtherParty": {"the same name in another party's cluster is another object",
			[]Item{{ServiceID: "111", Deployment: Restart}, {ServiceID: "555", Deployment: Stop}}, nil},
		"All": {"all errors at once", []Item{{ServiceID: "999", Deployment: Stop}, {ServiceID: "333", Deployment: Stop},
			{ServiceID: "111", Deployment: Stop, DeployLabel: "x"}}, strictyaml.Errors{
			{Item: 1, Field: "deployPlanItems[0].serviceId"}, {Item: 2, Field: "deployPlanItems[1].deployment"},
			{Item: 3, Field: "deployPlanItems[2].deployLabel"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Resolve(Document{Items: test.items}, testCatalogue())
			require.Len(t, got, len(test.errs), "%s: %v", test.reason, got)
			for i, want := range test.errs {
				if want.Reason == "" {
					want.Reason = got[i].Reason
				}
				require.Equal(t, want, got[i], test.reason)
			}
		})
	}
}

func TestResolve_RefusesTooManyWorkloads(t *testing.T) {
	t.Parallel()
	var service catalog.Service
	for i := range 2001 {
		service.Workloads = append(service.Workloads, workload("Deployment", fmt.Sprintf("w%d", i)))
	}
	service.Package = &catalog.Package{Container: "app", MountPath: "/app"}
	for operation, fits := range map[Operation]bool{Restart: true, HTTPUploadDeploy: false, Restore: false} {
		item := Item{ServiceID: "1", Deployment: operation, HTTPSrcURI: "http://files/app.zip", RestoreTask: "t-1"}
		errs := Resolve(Document{Items: []Item{item}}, map[ServiceID]catalog.Service{"1": service})
		require.Equal(t, fits, len(errs) == 0, "%s: the state of templates is larger: %v", operation, errs)
	}
}
