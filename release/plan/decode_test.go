package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/test/race"
)

// oneItem returns a plan of one item with these lines; its key serviceId is on line 2.
func oneItem(lines ...string) string {
	return "deployPlanItems:\n- serviceId: 111\n  " + strings.Join(lines, "\n  ") + "\n"
}

func TestDecodeRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text, field string
		item, line          int
		contains            string
	}{
		"NoItems": {"a plan needs an item", "comment: x\n", "deployPlanItems", 0, 1,
			"is required: a plan has at least one item"},
		"EmptyItems": {"a plan needs an item", "comment: x\ndeployPlanItems: []\n", "deployPlanItems", 0, 2,
			"at least one item"},
		"NullItems": {"the list is missing", "comment: x\ndeployPlanItems:\n", "deployPlanItems", 0, 2,
			"has no value"},
		"ItemsNoList": {"the items must be a list", "deployPlanItems: {serviceId: 1}\n", "deployPlanItems", 0, 1,
			"must be a list, not a mapping"},
		"NoMapping": {"a plan is a mapping", "- serviceId: 1\n", "", 0, 1,
			"must be a mapping with the keys comment, deployPlanItems, notBefore, windows, freezes, not a list"},
		"UnknownTop": {"unknown keys are refused", "name: x\n" + oneItem("deployment: STOP"), "name", 0, 1,
			"unknown key \"name\": the keys here are comment, deployPlanItems"},
		"TopCase": {"keys are case-sensitive",
			strings.Replace(oneItem("deployment: STOP"), "deployPlanItems", "DeployPlanItems", 1), "DeployPlanItems", 0,
			1, `did you mean "deployPlanItems"? Keys are case-sensitive`},
		"RepeatedTop": {"which value applies is ambiguous", oneItem("deployment: STOP") + "comment: a\ncomment: b\n",
			"comment", 0, 5, "appears twice (lines 4 and 5)"},
		"CommentNumber": {"a comment is text", "comment: 3\n" + oneItem("deployment: STOP"), "comment", 0, 1,
			"put it in quotes"},
		"ItemNoMapping": {"an item is a mapping", "deployPlanItems:\n- 111\n", "deployPlanItems[0]", 1, 2,
			"must be a mapping with the keys serviceId, priority"},
		"ItemNull": {"the item is missing", "deployPlanItems:\n- serviceId: 1\n  deployment: STOP\n-\n",
			"deployPlanItems[1]", 2, 4, "has no value"},
		"NoService": {"the service is required", "deployPlanItems:\n- deployment: STOP\n",
			"deployPlanItems[0].serviceId", 1, 2, "is required"},
		"NoDeployment": {"the deployment has no default", oneItem("priority: 3"), "deployPlanItems[0].deployment", 1,
			2, "is required: write one of START, STOP, RESTART, HTTP_UPLOAD_DEPLOY, COMPILE_DEPLOY, RESTORE"},
		"BadDeployment": {"the deployment is unknown", oneItem("deployment: DESTROY"), "deployPlanItems[0].deployment",
			1, 3, `must be one of START, STOP, RESTART, HTTP_UPLOAD_DEPLOY, COMPILE_DEPLOY, RESTORE, not "DESTROY"`},
		"CaseDeployment": {"values are case-sensitive", oneItem("deployment: Stop"), "deployPlanItems[0].deployment", 1,
			3, "did you mean STOP?"},
		"BadMethod": {"the method is unknown", oneItem("deployment: STOP", "containerExecMethod: SERIAL"),
			"deployPlanItems[0].containerExecMethod", 1, 4, "must be one of PARALLEL, SEQUENTIAL"},
		"NearMethod": {"a misspelt method", oneItem("deployment: STOP", "containerExecMethod: sequental"),
			"deployPlanItems[0].containerExecMethod", 1, 4, "did you mean SEQUENTIAL?"},
		"NullMethod": {"the value is missing", oneItem("deployment: STOP", "containerExecMethod:"),
			"deployPlanItems[0].containerExecMethod", 1, 4, "has no value"},
		"MisspeltKey": {"a misspelt key would be ignored", oneItem("deployment: STOP", "prioirty: 3"),
			"deployPlanItems[0].prioirty", 1, 4, `unknown key "prioirty": did you mean "priority"?`},
		"UnknownKey": {"unknown keys are refused", oneItem("deployment: STOP", "replicas: 3"),
			"deployPlanItems[0].replicas", 1, 4, "unknown key"},
		"RepeatedKey": {"which value applies is ambiguous",
			oneItem("deployment: STOP", "priority: 1", "priority: 2"), "deployPlanItems[0].priority", 1, 5,
			"appears twice (lines 4 and 5): keep one"},
		"MergeKey": {"merge keys are refused", oneItem("deployment: STOP", "<<: {priority: 1}"),
			"deployPlanItems[0]", 1, 4, "merge key"},
		"Alias": {"aliases are refused", "comment: &c STOP\n" + oneItem("deployment: *c"),
			"deployPlanItems[0].deployment", 1, 4, "is an alias (*c)"},
		"Anchor": {"anchors are refused", "comment: &c STOP\n" + oneItem("deployment: STOP"), "comment", 0, 1,
			"has an anchor (&c)"},
		"Fraction": {"a priority is an integer", oneItem("deployment: STOP", "priority: 3.5"),
			"deployPlanItems[0].priority", 1, 4, "whole number"},
		"WordPriority": {"a priority is not text", oneItem("deployment: STOP", "priority: high"),
			"deployPlanItems[0].priority", 1, 4, "must be a whole number, not the text"},
		"HugePriority": {"more than 64 bits", oneItem("deployment: STOP", "priority: 9223372036854775808"),
			"deployPlanItems[0].priority", 1, 4, "must be from"},
		"NullPriority": {"an empty priority would silently be the default", oneItem("deployment: STOP", "priority:"),
			"deployPlanItems[0].priority", 1, 4, "has no value"},
		"FloatService": {"this number is not an ID", "deployPlanItems:\n- serviceId: 1e3\n  deployment: STOP\n",
			"deployPlanItems[0].serviceId", 1, 2, "put it in quotes"},
		"BoolService": {"a boolean is not an ID", "deployPlanItems:\n- serviceId: true\n  deployment: STOP\n",
			"deployPlanItems[0].serviceId", 1, 2, "put it in quotes"},
		"NullService": {"the ID is missing", "deployPlanItems:\n- serviceId:\n  deployment: STOP\n",
			"deployPlanItems[0].serviceId", 1, 2, "has no value"},
		"CharsetService": {"the ID has an illegal character",
			"deployPlanItems:\n- serviceId: a/b\n  deployment: STOP\n", "deployPlanItems[0].serviceId", 1, 2,
			`"a/b" is not a legal ID`},
		"LongService": {"the ID is too long", "deployPlanItems:\n- serviceId: " + strings.Repeat("9", 64) +
			"\n  deployment: STOP\n", "deployPlanItems[0].serviceId", 1, 2, "at most 63"},
		"EmptyLabel": {"an empty label would select everything", oneItem("deployment: STOP", `deployLabel: ""`),
			"deployPlanItems[0].deployLabel", 1, 4, "is empty"},
		"EmptyPart": {"a label is missing", oneItem("deployment: STOP", "deployLabel: a,,b"),
			"deployPlanItems[0].deployLabel", 1, 4, "has an empty part"},
		"OnlyComma": {"empty labels would select everything", oneItem("deployment: STOP", `deployLabel: ","`),
			"deployPlanItems[0].deployLabel", 1, 4, "has an empty part"},
		"CharsetLabel": {"the label has an illegal character", oneItem("deployment: STOP", "deployLabel: a b"),
			"deployPlanItems[0].deployLabel", 1, 4, `"a b" is not a legal label`},
		"NumberLabel": {"a label is text", oneItem("deployment: STOP", "deployLabel: 1"),
			"deployPlanItems[0].deployLabel", 1, 4, "put it in quotes"},
		"ListLabel": {"labels are one text in the source document",
			oneItem("deployment: STOP", "deployLabel: [a]"), "deployPlanItems[0].deployLabel", 1, 4,
			"must be text, not a list"},
		"NoTask": {"the task is required", oneItem("deployment: RESTORE"), "deployPlanItems[0].restoreTask", 1,
			2, "is required: RESTORE needs the task whose changes are reversed"},
		"BadTask": {"the ID of a task has no slash", oneItem("deployment: RESTORE", "restoreTask: a/b"),
			"deployPlanItems[0].restoreTask", 1, 4, `"a/b" is not the ID of a task`},
		"BadTaskItem": {"items are counted from 1",
			oneItem("deployment: RESTORE", "restoreTask: shop-1", "restoreItem: 0"), "deployPlanItems[0].restoreItem",
			1, 5, "must be from 1 to 1000, not 0"},
		"NoPackage": {"the source document requires it", oneItem("deployment: HTTP_UPLOAD_DEPLOY"),
			"deployPlanItems[0].httpSrcUri", 1, 2, "is required: HTTP_UPLOAD_DEPLOY needs"},
		"BadPackage": {"the URL must be absolute", oneItem("deployment: HTTP_UPLOAD_DEPLOY", "httpSrcUri: app.zip"),
			"deployPlanItems[0].httpSrcUri", 1, 4, "is not an absolute URL"},
		"NoRepository": {"the source document requires it",
			oneItem("deployment: COMPILE_DEPLOY", "compileRepoBranch: master"), "deployPlanItems[0].compileRepoPath", 1,
			2, "is required: COMPILE_DEPLOY needs"},
		"NoBranch": {"the source document requires it",
			oneItem("deployment: COMPILE_DEPLOY", "compileRepoPath: http://git/a.git"),
			"deployPlanItems[0].compileRepoBranch", 1, 2, "is required"},
		"BadBranch": {"the name of the branch is illegal",
			oneItem("deployment: COMPILE_DEPLOY", "compileRepoPath: http://git/a.git", "compileRepoBranch: a..b"),
			"deployPlanItems[0].compileRepoBranch", 1, 5, "is not the name of a branch"},
		"Syntax": {"YAML does not allow tabs", oneItem("deployment: STOP", "\tpriority: 1"), "", 0, 4,
			"indented with a tab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, errs := Decode([]byte(test.text))
			for _, one := range errs {
				if one.Field == test.field && strings.Contains(one.Reason, test.contains) {
					require.Equal(t, test.line, one.Line, "%s: the line", test.reason)
					require.Equal(t, test.item, one.Item, "%s: the item", test.reason)
					return
				}
			}
			require.Failf(t, "not refused, or not for the right reason", "%s: want %s: %s; got %v", test.reason,
				test.field, test.contains, errs)
		})
	}
}

func TestDecode_AcceptsUnusualButLegalPlans(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text string
		want         Item
	}{
		"Smallest": {"the two required keys", oneItem("deployment: START"),
			Item{ServiceID: "111", Deployment: Start}},
		"Negative": {"a negative priority", oneItem("deployment: STOP", "priority: -9223372036854775808"),
			Item{ServiceID: "111", Deployment: Stop, Priority: math.MinInt64}},
		"Largest": {"64 bits", oneItem("deployment: STOP", "priority: 9223372036854775807"),
			Item{ServiceID: "111", Deployment: Stop, Priority: math.MaxInt64}},
		"Spelling": {"0111 stays 0111", "deployPlanItems: [{serviceId: 0111, deployment: STOP}]",
			Item{ServiceID: "0111", Deployment: Stop}},
		"JSON": {"JSON, ID as text", `{"deployPlanItems":[{"serviceId":"0111","deployment":"STOP"}]}`,
			Item{ServiceID: "0111", Deployment: Stop}},
		"JSONNumber": {"JSON, ID as number",
			`{"deployPlanItems":[{"serviceId":111,"deployment":"STOP","priority":-3}]}`,
			Item{ServiceID: "111", Deployment: Stop, Priority: -3}},
		"Labels": {"labels with blanks between", oneItem("deployment: STOP", "deployLabel: a, b_1"),
			Item{ServiceID: "111", Deployment: Stop, DeployLabel: "a, b_1"}},
		"CommentNothing": {"the source document allows an empty comment", "comment:\n" + oneItem("deployment: RESTART"),
			Item{ServiceID: "111", Deployment: Restart}},
		"Compile": {
			"a compile deploy", oneItem("deployment: COMPILE_DEPLOY", "compileRepoPath: git@git.local:shop/order.git",
				"compileRepoBranch: feature/a-1"),
			Item{ServiceID: "111", Deployment: CompileDeploy, CompileRepoPath: "git@git.local:shop/order.git",
				CompileRepoBranch: "feature/a-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, warnings, errs := Decode([]byte(test.text))
			require.NoError(t, errs.Err(), test.reason)
			require.Empty(t, warnings, test.reason)
			require.Equal(t, []Item{test.want}, d.Items, test.reason)
		})
	}
}

func TestDecode_ReturnsAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	_, _, errs := Decode([]byte(`coment: x
deployPlanItems:
- serviceId: 1.5
  priority: high
  deployment: stop
- ServiceId: 222
  deployment: STOP
- serviceId: 333
  deployment: COMPILE_DEPLOY
  deployLabel: a,,b
  priority: 1
  priority: 2
`))
	var got []string
	for _, one := range errs {
		got = append(got, fmt.Sprintf("%d %s:%d", one.Item, one.Field, one.Line))
	}
	require.Equal(t, []string{
		"0 coment:1",
		"1 deployPlanItems[0].serviceId:3", "1 deployPlanItems[0].priority:4", "1 deployPlanItems[0].deployment:5",
		"2 deployPlanItems[1].ServiceId:6", "2 deployPlanItems[1].serviceId:6",
		"3 deployPlanItems[2].compileRepoPath:8", "3 deployPlanItems[2].compileRepoBranch:8",
		"3 deployPlanItems[2].deployLabel:10", "3 deployPlanItems[2].priority:12",
	}, got, "every error, in line order")
}

func TestDecode_RefusesSameServiceTwiceInOneWave(t *testing.T) {
	t.Parallel()
	item := func(id string, priority int) string {
		return fmt.Sprintf("- {serviceId: %s, priority: %d, deployment: STOP}\n", id, priority)
	}
	for name, test := range map[string]struct {
		reason, items string
		errs          strictyaml.Errors
	}{
		"Twice": {
			"the two would change one service at the same time", item("111", 3) + item("222", 3) + item("111", 3),
			strictyaml.Errors{{
				Item: 3, Field: "deployPlanItems[2].serviceId", Line: 4,
				Reason: "names service 111 twice in one wave (items 1 and 3): both have the priority 3; give each a " +
					"priority of its own, or keep one of them",
			}},
		},
		"ThreeTimes": {
			"reported once for all of them", item("111", 0) + item("111", 0) + item("111", 0),
			strictyaml.Errors{{
				Item: 2, Field: "deployPlanItems[1].serviceId", Line: 3,
				Reason: "names service 111 more than twice in one wave (items 1, 2 and 3): all have the priority 0; " +
					"give each a priority of its own, or keep one of them",
			}},
		},
		"TwoWaves":      {"stop first, start in a later wave", item("111", 3) + item("111", 1), nil},
		"OtherSpelling": {"0111 and 111 are different services", item("0111", 3) + item("111", 3), nil},
		"TextAndNumber": {
			"a number and a text of the same spelling are the same service", item("111", 3) + item(`"111"`, 3),
			strictyaml.Errors{{
				Item: 2, Field: "deployPlanItems[1].serviceId", Line: 3,
				Reason: "names service 111 twice in one wave (items 1 and 2): both have the priority 3; give each a " +
					"priority of its own, or keep one of them",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, errs := Decode([]byte("deployPlanItems:\n" + test.items))
			require.Equal(t, test.errs, errs, test.reason)
		})
	}
	_, _, errs := Decode([]byte("deployPlanItems:\n" + item("111", 0) +
		"- {serviceId: 111, priority: x, deployment: STOP}\n"))
	require.Len(t, errs, 1, "an item with an unreadable priority is in no wave")
}

func TestDecode_WarnsOfUnusedKeysAndRepeatedLabels(t *testing.T) {
	t.Parallel()
	_, warnings, errs := Decode([]byte(oneItem("deployment: STOP", "httpSrcUri: not even a URL", "deployLabel: a,b,a")))
	require.NoError(t, errs.Err(), "keys of another deployment are legal with any value")
	require.Equal(t, []Warning{
		{Item: 1, Field: "deployPlanItems[0].httpSrcUri", Line: 4,
			Reason: "is not used: the deployment is STOP, and only HTTP_UPLOAD_DEPLOY has the address of the code " +
				"package"},
		{Item: 1, Field: "deployPlanItems[0].deployLabel", Line: 5, Reason: "names the label a twice"},
	}, warnings)
}

// A presigned URL in a plan is kept in etcd, by the plan and by the records of its tasks.
func TestDecode_WarnsOfSignedPackages(t *testing.T) {
	t.Parallel()
	const signed = "https://bucket.s3.amazonaws.com/order.zip?X-Amz-Signature=S3CRET"
	for _, deployment := range []string{"HTTP_UPLOAD_DEPLOY", "STOP"} {
		_, warnings, errs := Decode([]byte(oneItem("deployment: "+deployment, "httpSrcUri: "+signed)))
		require.NoError(t, errs.Err(), "it is deployed as before")
		require.NotEmpty(t, warnings, deployment)
		last := warnings[len(warnings)-1]
		require.Equal(t, "deployPlanItems[0].httpSrcUri", last.Field)
		require.Equal(t, 4, last.Line)
		require.Contains(t, last.Reason, "has the parameter x-amz-signature")
		require.Contains(t, last.Reason, "package.credentials of service 111 names (key `query`)")
		require.NotContains(t, last.Reason, "S3CRET")
	}
	_, warnings, _ := Decode([]byte(oneItem("deployment: HTTP_UPLOAD_DEPLOY",
		"httpSrcUri: https://host/order.zip?version=1.2")))
	require.Empty(t, warnings)
}

func TestDecode_ReadsThousandItemsWithinTwoSeconds(t *testing.T) {
	race.SkipBounds(t)
	t.Parallel()
	build := func(n int) string {
		var b strings.Builder
		b.WriteString("deployPlanItems:\n")
		for i := range n {
			fmt.Fprintf(&b, "- serviceId: %d\n  priority: %d\n  deployment: RESTART\n  containerExecMethod: "+
				"SEQUENTIAL\n  deployLabel: a,b\n", i, i/100)
		}
		return b.String()
	}
	begin := time.Now()
	d, _, errs := Decode([]byte(build(maxItems)))
	require.NoError(t, errs.Err())
	require.Len(t, d.Items, maxItems)
	require.Len(t, d.Waves(), 10)
	require.Less(t, time.Since(begin), 2*time.Second, "the largest plan is decoded within 2 s")

	_, _, errs = Decode([]byte(build(maxItems + 1)))
	require.Equal(t, strictyaml.Errors{{Field: "deployPlanItems", Line: 1,
		Reason: "has 1001 items: a plan has at most 1000, so split it"}}, errs)

	_, _, errs = Decode([]byte(strings.ReplaceAll(build(maxItems), "RESTART", "Restart")))
	require.Len(t, errs, 101, "the first hundred errors, and that there are more")
	require.Equal(t, "the document: has more errors: only the first 100 are listed; correct them, and check again",
		errs[100].Error())
	require.True(t, errs.Cut())
}

func TestValidate_AppliesSameRules_WithoutLines(t *testing.T) {
	t.Parallel()
	warnings, errs := Document{Items: []Item{
		{ServiceID: "111", Deployment: Stop, HTTPSrcURI: "x"},
		{ServiceID: "a/b", Deployment: "STPO", DeployLabel: ","},
		{},
	}}.Validate()
	require.Equal(t, strictyaml.Errors{
		{Item: 2, Field: "deployPlanItems[1].serviceId",
			Reason: `"a/b" is not a legal ID: use letters, digits, "-" and ".", and begin and end each part between dots with a letter or digit`},
		{Item: 2, Field: "deployPlanItems[1].deployment",
			Reason: `must be one of START, STOP, RESTART, HTTP_UPLOAD_DEPLOY, COMPILE_DEPLOY, RESTORE, not "STPO": did you mean STOP?`},
		{Item: 2, Field: "deployPlanItems[1].deployLabel",
			Reason: "has an empty part: separate the labels by single commas, and leave the key out to take all " +
				"workloads"},
		{Item: 3, Field: "deployPlanItems[2].serviceId", Reason: "is required: name the service of the catalogue"},
		{Item: 3, Field: "deployPlanItems[2].deployment",
			Reason: "is required: write one of START, STOP, RESTART, HTTP_UPLOAD_DEPLOY, COMPILE_DEPLOY, RESTORE"},
	}, errs, "the same rules apply to a Kubernetes object, without lines")
	require.Len(t, warnings, 1)
	_, errs = Document{}.Validate()
	require.Len(t, errs, 1)
}

func TestServiceID_UnmarshalsTextAndInteger(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, json string
		want         ServiceID
		refusal      string
	}{
		"Text":   {"a text", `{"serviceId":"0111"}`, "0111", ""},
		"Number": {"a number", `{"serviceId":111}`, "111", ""},
		"Large": {"more digits than a float holds", `{"serviceId":123456789012345678901}`, "123456789012345678901",
			""},
		"Absent":   {"validation refuses it", `{}`, "", ""},
		"Null":     {"validation refuses it", `{"serviceId":null}`, "", ""},
		"Fraction": {"it is not an ID", `{"serviceId":1.5}`, "", "must be a whole number or text, not 1.5"},
		"Exponent": {"it is not an ID", `{"serviceId":1e3}`, "", "not 1e3"},
		"Bool":     {"it is not an ID", `{"serviceId":true}`, "", "not true"},
		"List":     {"it is not an ID", `{"serviceId":[1]}`, "", "not [1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var item Item
			err := json.Unmarshal([]byte(test.json), &item)
			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal, test.reason)
				return
			}
			require.NoError(t, err, test.reason)
			require.Equal(t, test.want, item.ServiceID, test.reason)
		})
	}
	raw, err := json.Marshal(map[ServiceID]int{"0111": 1})
	require.NoError(t, err)
	var back map[ServiceID]int
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, map[ServiceID]int{"0111": 1}, back, "as a map key an ID keeps its spelling")
}
