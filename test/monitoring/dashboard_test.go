package monitoring

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exceptions is dashboard-linter's file of allowed deviations with their reasons.
type exceptions struct {
	Exclusions map[string]struct {
		Reason  string `yaml:"reason"`
		Entries []struct {
			Dashboard string `yaml:"dashboard"`
			Panel     string `yaml:"panel"`
		} `yaml:"entries"`
	} `yaml:"exclusions"`
}

// excepted reports whether a panel is excepted from a rule.
func (e exceptions) excepted(rule, title string) bool {
	for _, entry := range e.Exclusions[rule].Entries {
		if entry.Panel == title {
			return true
		}
	}
	return false
}

// TestDashboardVariables checks rules of dashboard-linter under their names there. The program itself is not available
// where the tests run.
func TestDashboardVariables(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	require.False(t, d.Editable, "uneditable-dashboard: edits must be made in the file")
	variables := map[string]variable{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v
		if v.Type == "query" {
			require.Equal(t, 2, v.Refresh, "template-on-time-change-reload-rule: %s", v.Name)
			require.True(t, v.Multi && v.IncludeAll, v.Name)
		}
	}
	require.Equal(t, "Data source", variables["datasource"].Label, "template-datasource-rule")
	require.Equal(t, "prometheus", variables["datasource"].Query, "template-datasource-rule")
	for _, name := range []string{"job", "instance"} {
		require.Equal(t, strings.ToUpper(name[:1])+name[1:], variables[name].Label, "template-%s-rule", name)
		require.Equal(t, ".+", variables[name].AllValue, "template-%s-rule", name)
	}
	for _, name := range []string{"job", "instance", "kind", "party"} {
		require.Regexp(t, `^label_values\(.+, `+name+`\)$`, variables[name].Query, "template-label-promql-rule")
	}
}

// units are the Grafana units that the panels use.
var units = []string{"short", "s", "bytes", "percentunit", "reqps"}

func TestDashboardPanels(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	var allowed exceptions
	readYAML(t, path(".lint"), &allowed)
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, p := range d.data() {
		require.False(t, ids[p.ID] || titles[p.Title], "ID or title of panel %d, %s, is not unique", p.ID, p.Title)
		ids[p.ID], titles[p.Title] = true, true
		require.NotEmpty(t, p.Title, "panel-title-description-rule")
		require.NotEmpty(t, p.Description, "panel-title-description-rule: %s", p.Title)
		require.Equal(t, "$datasource", p.Datasource.UID, "panel-datasource-rule: %s", p.Title)
		require.Contains(t, units, p.FieldConfig.Defaults.Unit, "panel-units-rule: %s", p.Title)
		require.NotEmpty(t, p.Targets, "panel-no-targets-rule: %s", p.Title)
		for _, to := range p.Targets {
			checkTarget(t, allowed, p, to)
		}
	}
	for rule, exclusion := range allowed.Exclusions {
		require.NotEmpty(t, exclusion.Reason, rule)
		for _, entry := range exclusion.Entries {
			require.True(t, titles[entry.Panel], "%s: there is no panel %q", rule, entry.Panel)
			require.Equal(t, d.Title, entry.Dashboard)
		}
	}
}

var (
	selectors = regexp.MustCompile(`[a-z_]+\{[^}]*\}`)
	ranges    = regexp.MustCompile(`\[([^\]]*)\]`)
	counters  = regexp.MustCompile(`([a-z]+)\((slipway|temporal|process)_[a-z_]+_(total|count|sum|bucket)\{`)
	matchers  = regexp.MustCompile(`\{[^}]*\}`)
)

func checkTarget(t *testing.T, allowed exceptions, p panel, to target) {
	t.Helper()
	require.NotEmpty(t, to.LegendFormat, p.Title)
	require.Equal(t, "$datasource", to.Datasource.UID, p.Title)
	found := selectors.FindAllString(to.Expr, -1)
	require.NotEmpty(t, found, p.Title)
	for _, selector := range found {
		require.Contains(t, selector, `job=~"$job"`, "target-job-rule: %s", p.Title)
		require.Contains(t, selector, `instance=~"$instance"`, "target-instance-rule: %s", p.Title)
	}
	for _, span := range ranges.FindAllStringSubmatch(matchers.ReplaceAllString(to.Expr, ""), -1) {
		if !allowed.excepted("target-rate-interval-rule", p.Title) {
			require.Equal(t, "$__rate_interval", span[1], "target-rate-interval-rule: %s", p.Title)
		}
	}
	for _, counter := range counters.FindAllStringSubmatch(to.Expr, -1) {
		require.Contains(t, []string{"rate", "increase"}, counter[1], "target-counter-agg-rule: %s", p.Title)
	}
}

// TestDashboardLayout checks that panels fit on Grafana's grid of 24 columns and do not overlap.
func TestDashboardLayout(t *testing.T) {
	t.Parallel()
	taken := map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, taken[at], "%s overlaps %s", p.Title, taken[at])
				taken[at] = p.Title
			}
		}
	}
}
