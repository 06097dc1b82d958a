package monitoring

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/test/harness"
)

// prometheus is the Prometheus server of one test.
type prometheus struct {
	t   *testing.T
	url string
	// fired are the names of the alerts that have fired.
	fired map[string]bool
}

// scrapeInterval is the scrape and evaluation interval of the rehearsal. Its rules use window instead of ranges in
// minutes, and longWindow instead of ranges in hours.
const (
	scrapeInterval = time.Second
	window         = "20s"
	longWindow     = "40s"
)

// startPrometheus starts a server that scrapes the targets of these jobs and evaluates the rules.
func startPrometheus(t *testing.T, rules ruleFile, jobs map[string][]string) *prometheus {
	t.Helper()
	program, dir := findPrometheus(t), t.TempDir()
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		require.NoError(t, err)
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	var scrapes []map[string]any
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		scrapes = append(scrapes, map[string]any{"job_name": job,
			"static_configs": []any{map[string]any{"targets": jobs[job]}}})
	}
	interval := scrapeInterval.String()
	config := write("prometheus.yml", map[string]any{
		"global": map[string]any{"scrape_interval": interval, "scrape_timeout": interval,
			"evaluation_interval": interval},
		"rule_files": []string{write("rules.yaml", rules)}, "scrape_configs": scrapes})
	address := "127.0.0.1:" + harness.FreePort(t)
	harness.Run(t, program, []string{"--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", address,
		"--log.level", "warn"}, nil)
	p := &prometheus{t: t, url: "http://" + address, fired: map[string]bool{}}
	require.Eventually(t, func() bool {
		response, err := http.Get(p.url + "/-/ready")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, harness.Patience, harness.Tick, "Prometheus did not become ready")
	return p
}

// findPrometheus returns the path of the program. Without it the test is skipped.
func findPrometheus(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("needs Prometheus: install Debian's package prometheus (deploy/dev/install-debian.sh)")
	}
	return program
}

// get queries Prometheus' API and decodes the data of the response.
func (p *prometheus) get(path string, values url.Values, into any) error {
	response, err := http.Get(p.url + path + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", values, answer.Error)
	}
	return nil
}

// sample is one series of a query result.
type sample struct {
	labels map[string]string
	value  float64
}

// query evaluates an expression now.
func (p *prometheus) query(expr string) ([]sample, error) {
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := p.get("/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return nil, err
	}
	var samples []sample
	for _, r := range data.Result {
		value, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		samples = append(samples, sample{r.Metric, value})
	}
	return samples, nil
}

// number returns the only value of an expression.
func (p *prometheus) number(expr string) float64 {
	p.t.Helper()
	samples, err := p.query(expr)
	require.NoError(p.t, err)
	require.Len(p.t, samples, 1, expr)
	return samples[0].value
}

// firing returns the alerts that fire now, each as its name and some of its labels: `SlipwayFight kind=rollout`.
func (p *prometheus) firing() (all []string) {
	p.t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	require.NoError(p.t, p.get("/api/v1/alerts", nil, &data))
	for _, a := range data.Alerts {
		if a.State != "firing" {
			continue
		}
		text := a.Labels["alertname"]
		p.fired[text] = true
		for _, label := range []string{"kind", "party", "job", "workflow_type"} {
			aggregated := label == "job" && (a.Labels["kind"] != "" || a.Labels["party"] != "" ||
				a.Labels["workflow_type"] != "")
			if value := a.Labels[label]; value != "" && !aggregated {
				text += " " + label + "=" + value
			}
		}
		all = append(all, text)
	}
	return all
}

// waitFiring returns when all of these alerts fire at the same time.
func (p *prometheus) waitFiring(alerts ...string) {
	p.t.Helper()
	var missing []string
	require.Eventually(p.t, func() bool {
		now := p.firing()
		missing = slices.DeleteFunc(slices.Clone(alerts), func(alert string) bool {
			return slices.Contains(now, alert)
		})
		return len(missing) == 0
	}, harness.Patience, scrapeInterval/2, "these alerts do not fire: %v", &missing)
}

// waitCleared returns when none of these alerts fires.
func (p *prometheus) waitCleared(alerts ...string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		now := p.firing()
		return !slices.ContainsFunc(alerts, func(alert string) bool { return slices.Contains(now, alert) })
	}, harness.Patience, scrapeInterval/2, "one of these alerts does not clear: %v", alerts)
}

// waitQuiet returns when no alert fires.
func (p *prometheus) waitQuiet() {
	p.t.Helper()
	var left []string
	require.Eventually(p.t, func() bool {
		left = p.firing()
		return len(left) == 0
	}, harness.Patience, scrapeInterval/2, "these alerts still fire: %v", &left)
}

var (
	ofMinutes     = regexp.MustCompile(`\[\d+m\]`)
	ofHours       = regexp.MustCompile(`\[\d+h\]`)
	longThreshold = regexp.MustCompile(`> (8 \* 3600|\d{3,})$`)
)

// shortened returns the rules with short windows, with thresholds of 2 seconds for waiting releases, and without `for`.
func (f ruleFile) shortened() ruleFile {
	var out ruleFile
	for _, g := range f.Groups {
		g.Rules = slices.Clone(g.Rules)
		for i, r := range g.Rules {
			r.For = ""
			r.Expr = ofHours.ReplaceAllString(ofMinutes.ReplaceAllString(r.Expr, "["+window+"]"), "["+longWindow+"]")
			r.Expr = longThreshold.ReplaceAllString(r.Expr, "> 2")
			g.Rules[i] = r
		}
		out.Groups = append(out.Groups, g)
	}
	return out
}

// dashboardCoverage records which queries of a dashboard have returned data.
type dashboardCoverage struct {
	mu      sync.Mutex
	answers map[string]bool
}

func newDashboardCoverage() *dashboardCoverage { return &dashboardCoverage{answers: map[string]bool{}} }

// queryAll sends every query of the dashboard, as Grafana does.
func (s *dashboardCoverage) queryAll(p *prometheus, d dashboard) {
	p.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, panel := range d.data() {
		for _, to := range panel.Targets {
			samples, err := p.query(d.expression(to.Expr, window))
			require.NoError(p.t, err, panel.Title)
			s.answers[panel.Title+" "+to.RefID] = s.answers[panel.Title+" "+to.RefID] || len(samples) > 0
		}
	}
}

// empty returns the queries that have never returned data.
func (s *dashboardCoverage) empty() (never []string) {
	for query, answered := range s.answers {
		if !answered {
			never = append(never, query)
		}
	}
	return never
}

var labelValues = regexp.MustCompile(`^label_values\((.+), ([a-z]+)\)$`)

// choices returns the values that a variable of the dashboard offers.
func (p *prometheus) choices(d dashboard, v variable) (values []string) {
	p.t.Helper()
	parts := labelValues.FindStringSubmatch(v.Query)
	require.NotNil(p.t, parts, v.Query)
	require.NoError(p.t, p.get("/api/v1/label/"+parts[2]+"/values",
		url.Values{"match[]": {d.expression(parts[1], window)}}, &values))
	return values
}
