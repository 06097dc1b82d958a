package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The forms of output.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

// outputFlag adds -o to a command. Its value is checked when the flags are parsed.
func outputFlag(command *cobra.Command, into *string) {
	*into = outputTable
	command.Flags().VarP((*outputValue)(into), "output", "o", "`form` of the output: table, json or yaml")
	_ = command.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{outputTable, outputJSON, outputYAML}, cobra.ShellCompDirectiveNoFileComp))
}

type outputValue string

func (v *outputValue) String() string { return string(*v) }
func (v *outputValue) Type() string   { return "form" }

func (v *outputValue) Set(text string) error {
	switch text {
	case outputTable, outputJSON, outputYAML:
		*v = outputValue(text)
		return nil
	}
	return fmt.Errorf("want table, json or yaml")
}

// printObject prints the object as JSON or YAML; done is false when a table is wanted.
func (a *app) printObject(output string, object any) (done bool, err error) {
	if output == outputTable {
		return false, nil
	}
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return true, err
	}
	if output == outputYAML {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return true, err
		}
	}
	a.printf(a.out, "%s\n", strings.TrimRight(string(text), "\n"))
	return true, nil
}

// table lays text out in columns. Its last column is as wide as it has to be.
type table struct {
	rows [][]string
}

func newTable(titles ...string) *table { return &table{rows: [][]string{titles}} }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	var widths []int
	for _, row := range t.rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], displayWidth(oneLine(cell)))
		}
	}
	var text strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for n, cell := range row {
			line.WriteString(padded(oneLine(cell), widths[n]+3))
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return text.String()
}

// orDash shows an empty cell as a dash.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// age is how long ago that was, for a table.
func (a *app) age(t time.Time) string { return shortDuration(a.now().Sub(t)) }

// shortDuration is a duration in its two largest units: 9s, 3m05s, 2h10m, 4d3h. Less than nothing, as between two clocks, is 0s.
func shortDuration(d time.Duration) string {
	seconds := max(int64(d/time.Second), 0)
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%dm%02ds", seconds/60, seconds%60)
	case seconds < 86400:
		return fmt.Sprintf("%dh%02dm", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%dd%dh", seconds/86400, seconds/3600%24)
}
