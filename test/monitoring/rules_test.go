// Package monitoring tests deploy/monitoring: the files themselves, and a rehearsal with a real Prometheus that scrapes
// a real engine.
package monitoring

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryAlertIsDocumented checks that each alert names its subject and links to a runbook, and that
// docs/operations.md lists exactly the existing alerts.
func TestEveryAlertIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	require.NoError(t, err)
	headings := anchors(string(text))
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(Slipway[A-Za-z]+)` \\| ([a-z]+) \\|").FindAllStringSubmatch(
		string(text), -1) {
		documented[row[1]] = row[2]
	}
	alerts := map[string]string{}
	for _, r := range readRules(t).alerts() {
		alerts[r.Alert] = r.Labels["severity"]
		require.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		require.Equal(t, []string{"description", "runbook_url", "summary"}, slices.Sorted(maps.Keys(r.Annotations)),
			r.Alert)
		file, heading, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		require.Equal(t, "docs/operations.md", file, r.Alert)
		require.Contains(t, headings, heading, "%s: docs/operations.md lacks the linked heading", r.Alert)
		if !strings.HasPrefix(r.Expr, "absent(") {
			require.Contains(t, r.Annotations["description"], "{{ $labels.", "%s must name its subject", r.Alert)
		}
	}
	require.Equal(t, alerts, documented, "docs/operations.md must list all alerts with their severities")
}

// anchors returns the link anchors of a document's headings.
func anchors(document string) (all []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(document, -1) {
		kept := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// ruleTests are the unit tests that promtool runs (deploy/dev/lint.sh).
type ruleTests struct {
	RuleFiles          []string `yaml:"rule_files"`
	EvaluationInterval string   `yaml:"evaluation_interval"`
	Tests              []struct {
		Name     string `yaml:"name"`
		Interval string `yaml:"interval"`
		Series   []any  `yaml:"input_series"`
		Alerts   []struct {
			Name     string           `yaml:"alertname"`
			At       string           `yaml:"eval_time"`
			Expected []map[string]any `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

// TestEveryAlertHasAUnitTest checks that every alert has a unit test in which it is quiet, fires and is quiet again.
func TestEveryAlertHasAUnitTest(t *testing.T) {
	t.Parallel()
	var tests ruleTests
	readYAML(t, path("rules.test.yaml"), &tests)
	seen := map[string][]bool{}
	for _, test := range tests.Tests {
		for _, alert := range test.Alerts {
			seen[alert.Name] = append(seen[alert.Name], len(alert.Expected) > 0)
		}
	}
	for _, r := range readRules(t).alerts() {
		require.Equal(t, []bool{false, true, false}, seen[r.Alert], "%s must be quiet, fire and be quiet again",
			r.Alert)
	}
}
