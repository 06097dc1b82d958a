package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/release/plan"
)

func TestLocate(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]int{
		"":                               0, // the whole document
		"comment":                        1,
		"deployPlanItems":                2, // the line of its key
		"deployPlanItems[1].serviceId":   7,
		"deployPlanItems[1].httpSrcUri":  7, // missing: the first line of its item
		"deployPlanItems[7].serviceId":   2, // no such item
		"deployPlanItems[x]":             2,
		"comment.more":                   1,
		"deployPlanItems[2].deployment":  12,
		"deployPlanItems[2].deployment[": 12,
	} {
		got := manifest.Locate([]byte(shopPlan), []client.FieldProblem{{Field: field, Reason: "r"}})
		require.Equal(t, want, got[0].Line, "the line of %q", field)
	}
	require.Equal(t, 5, manifest.Locate([]byte(shopPlan), []client.FieldProblem{{Field: "comment", Line: 5}})[0].Line,
		"the engine's line is kept")
	require.Equal(t, 0, manifest.Locate([]byte("a: ["), []client.FieldProblem{{Field: "a"}})[0].Line,
		"invalid YAML has no lines")
}

func TestReadDocument_KeepsLineNumbersOfFile(t *testing.T) {
	t.Parallel()
	const tail = "items: {}\n" // an unknown key on the expected line
	cases := map[string]struct {
		reason, text string
		line         int
	}{
		"Block": {"A block mapping.", "# 计划\napiVersion: slipway.io/v1alpha1\nkind: DeployPlan\nmetadata: {name: " +
			"shop}\nspec:\n  # the plan\n  comment: c\n  " +
			"" + tail + "  deployPlanItems: [{serviceId: 1, deployment: STOP}]\nstatus: {}\n",
			8},
		"First": {"The spec may come first.", "spec:\n  comment: c\n  " + tail +
			"  deployPlanItems: [{serviceId: 1, deployment: STOP}]\n\nkind: DeployPlan\napiVersion: " +
			"slipway.io/v1alpha1\nmetadata: {name: shop}\n", 3},
		"JSON": {"JSON, its spec in the middle.", "{\"apiVersion\": \"slipway.io/v1alpha1\",\n\"kind\": " +
			"\"DeployPlan\", \"spec\": {\"comment\": \"计划\",\n\"items\": {},\n\"deployPlanItems\": [{\"serviceId\": " +
			"1, \"deployment\": \"STOP\"}]\n} ,\n\"metadata\": {\"name\": \"shop\"}}", 3},
		"Last": {"JSON, its spec at the end.", "{\"apiVersion\": \"slipway.io/v1alpha1\", \"kind\": \"DeployPlan\", " +
			"\"metadata\": {\"name\": \"shop\"},\n\"计\": 1, \"spec\": {\"deployPlanItems\": [{\"serviceId\": 1, " +
			"\"deployment\": \"STOP\"}],\n\"items\": {}}}\n", 3},
		"Flow": {"A value in flow style within a block.",
			"apiVersion: slipway.io/v1alpha1\nkind: DeployPlan\nmetadata: {name: shop}\nspec: {deployPlanItems: " +
				"[{serviceId: 1, deployment: STOP}],\n  items: {}}\nstatus: {}\n", 5},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := manifest.ReadDocument("f", []byte(c.text))
			_, _, wrong := plan.Decode(d.Body)
			require.Len(t, wrong, 1, "%s\n%s", c.reason, d.Body)
			require.Equal(t, c.line, wrong[0].Line, "%s %s", c.reason, wrong[0].Reason)
			require.True(t, strings.HasPrefix(wrong[0].Reason, "unknown key"), wrong[0].Reason)
			require.Equal(t, "shop", d.Name, c.reason)
		})
	}
}
