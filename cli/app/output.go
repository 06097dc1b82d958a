package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/cli/render"
)

// The forms of output.
const (
	Table = "table"
	JSON  = "json"
	YAML  = "yaml"
)

// OutputFlag adds -o to a command. Its value is checked when the flags are parsed.
func OutputFlag(command *cobra.Command, into *string) {
	*into = Table
	command.Flags().VarP((*outputValue)(into), "output", "o", "`form` of the output: table, json or yaml")
	_ = command.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{Table, JSON, YAML}, cobra.ShellCompDirectiveNoFileComp))
}

type outputValue string

func (v *outputValue) String() string { return string(*v) }

func (v *outputValue) Type() string { return "form" }

func (v *outputValue) Set(text string) error {
	switch text {
	case Table, JSON, YAML:
		*v = outputValue(text)
		return nil
	}
	return fmt.Errorf("want table, json or yaml")
}

// PrintObject prints the object as JSON or YAML; done is false when a table is wanted.
func (a *App) PrintObject(output string, object any) (done bool, err error) {
	if output == Table {
		return false, nil
	}
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return true, err
	}
	if output == YAML {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return true, err
		}
	}
	a.Printf(a.Out, "%s\n", strings.TrimRight(string(text), "\n"))
	return true, nil
}

// Age is how long ago that was, for a table.
func (a *App) Age(t time.Time) string { return render.ShortDuration(a.Now().Sub(t)) }

func (a *App) AgeIfAny(t *time.Time) string {
	if t == nil {
		return ""
	}
	return a.Age(*t)
}

// Joined lists names for people.
func Joined[T ~string](values []T) string {
	var names []string
	for _, v := range values {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}

// ParseOneOf reads values in any case; nil when there are none.
func ParseOneOf[T ~string](flag string, names []string, known []T) (*[]T, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var values []T
	for _, name := range names {
		n := slices.IndexFunc(known, func(v T) bool { return strings.EqualFold(string(v), name) })
		if n < 0 {
			return nil, Usagef("--%s %q is none of %s", flag, name, Joined(known))
		}
		values = append(values, known[n])
	}
	return &values, nil
}

// Took is how long something ran, or has run so far; empty when it has not begun.
func (a *App) Took(from, to *time.Time) string {
	switch {
	case from == nil:
		return ""
	case to == nil:
		return render.ShortDuration(a.Now().Sub(*from))
	}
	return render.ShortDuration(to.Sub(*from))
}
