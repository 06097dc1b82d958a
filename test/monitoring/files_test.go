package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// root is the folder of the repository.
const root = "../.."

// path returns the path of a file in deploy/monitoring.
func path(name string) string { return filepath.Join(root, "deploy", "monitoring", name) }

// ruleFile is a rule file of Prometheus.
type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readRules(t *testing.T) ruleFile {
	t.Helper()
	var f ruleFile
	readYAML(t, path("rules.yaml"), &f)
	require.NotEmpty(t, f.Groups)
	return f
}

// alerts returns all rules of the file.
func (f ruleFile) alerts() (all []rule) {
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// readYAML decodes a file, which must not have fields that are unknown to the target.
func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	require.NoError(t, d.Decode(into), file)
}

// dashboard holds the checked fields of a Grafana dashboard.
type dashboard struct {
	Title      string  `json:"title"`
	UID        string  `json:"uid"`
	Editable   bool    `json:"editable"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []variable `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []target `json:"targets"`
}

type target struct {
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	RefID        string     `json:"refId"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type variable struct {
	Name       string `json:"name"`
	Label      string `json:"label"`
	Type       string `json:"type"`
	Query      string `json:"query"`
	Refresh    int    `json:"refresh"`
	Multi      bool   `json:"multi"`
	IncludeAll bool   `json:"includeAll"`
	AllValue   string `json:"allValue"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(path("dashboard.json"))
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)
	return d
}

// data returns the panels with data, without the row headings.
func (d dashboard) data() (panels []panel) {
	for _, p := range d.Panels {
		if p.Type != "row" {
			panels = append(panels, p)
		}
	}
	return panels
}

var grafanaVariable = regexp.MustCompile(`\$(__)?[a-z_]+`)

// expression returns a query as Grafana sends it, with span instead of its own ranges.
func (v dashboard) expression(expr, span string) string {
	return grafanaVariable.ReplaceAllStringFunc(expr, func(name string) string {
		if strings.HasPrefix(name, "$__") {
			return span
		}
		for _, variable := range v.Templating.List {
			if "$"+variable.Name == name {
				return variable.AllValue
			}
		}
		return name
	})
}
