package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/strictyaml"
)

// exampleDocument is the example of the source document, character for character: comments after tabs, keys of other
// deployments in an item, blanks at the ends of lines, and an indented closing "...".
const exampleDocument = "comment: 这是一个发布计划的注释\t\t# 此次编排发布的备注,可以为空\n\ndeployPlanItems:   \t\t\t# 发布计划的具体内容\n - " +
	"serviceId: 111  \t\t\t# !!必填项!! 服务id\n   priority: 3\t\t\t\t\t# 该服务在所有待发布服务序列中的优先级\n   deployment: " +
	"HTTP_UPLOAD_DEPLOY   # !!必填项!! 此次服务的发布方式    \n   containerExecMethod: PARALLEL  # 容器部署的执行方式(串行或并行)   \n   " +
	"deployLabel: label1\t\t# 此次服务发布支持的标签,多个标签以逗号(,)分隔\n   httpSrcUri: http://exapmle.zip   # http上传部署的代码包地址\n   " +
	"compileRepoPath: http://git...   # 编译部署的git仓库地址   \n   compileRepoBranch: master        # 编译部署git分支名称\n   \n - " +
	"serviceId: 222  \t\n   priority: 1\t\t\t\t\t   \n   deployment: STOP\n   containerExecMethod: PARALLEL\n   \n   " +
	"...\n"

func TestDecode_AcceptsExampleOfSourceDocument(t *testing.T) {
	t.Parallel()
	d, warnings, errs := Decode([]byte(exampleDocument))
	require.NoError(t, errs.Err())
	require.Equal(t, Document{
		Comment: "这是一个发布计划的注释",
		Items: []Item{
			{
				ServiceID: "111", Priority: 3, Deployment: HTTPUploadDeploy, ContainerExecMethod: Parallel,
				DeployLabel: "label1",
				HTTPSrcURI:  "http://exapmle.zip", CompileRepoPath: "http://git...", CompileRepoBranch: "master",
			},
			{ServiceID: "222", Priority: 1, Deployment: Stop, ContainerExecMethod: Parallel},
		},
	}, d)
	require.Equal(t, []Warning{
		{
			Item: 1, Field: "deployPlanItems[0].compileRepoPath", Line: 10,
			Reason: "is not used: the deployment is HTTP_UPLOAD_DEPLOY, and only COMPILE_DEPLOY has the address of " +
				"the Git repository",
		},
		{
			Item: 1, Field: "deployPlanItems[0].compileRepoBranch", Line: 11,
			Reason: "is not used: the deployment is HTTP_UPLOAD_DEPLOY, and only COMPILE_DEPLOY has the branch that " +
				"is compiled",
		},
	}, warnings)
	require.Equal(t, []Wave{{Priority: 3, Items: []int{0}}, {Priority: 1, Items: []int{1}}}, d.Waves())
	require.Equal(t, "item 1, line 10, deployPlanItems[0].compileRepoPath: "+warnings[0].Reason,
		strictyaml.FieldError(warnings[0]).Error())
}

func TestDecode_AcceptsDocumentEndMarkerWithDeeperIndentation(t *testing.T) {
	t.Parallel()
	// If the keys are copied without their indentation, the closing dots are indented deeper than the last key.
	d, _, errs := Decode([]byte("deployPlanItems:\n- serviceId: 222\n  deployment: STOP\n  containerExecMethod: " +
		"PARALLEL\n   \n   ...\n"))
	require.NoError(t, errs.Err())
	require.Equal(t, Parallel, d.Items[0].ContainerExecMethod, "the dots are not part of the preceding value")
}
