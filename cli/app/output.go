package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/cli/render"
)

// The forms of output.
const (
	Table = "table"
	JSON  = "json"
	YAML  = "yaml"
)

// Name prints how each thing is called, one on a line; JSONPath picks values out of it.
const (
	Names    = "name"
	JSONPath = "jsonpath="
)

// OutputFlag adds -o to a command. Its value is checked when the flags are parsed.
func OutputFlag(command *cobra.Command, into *string) {
	*into = Table
	command.Flags().VarP((*outputValue)(into), "output", "o", "`form` of the output: table, json, yaml, name or jsonpath={…}")
	_ = command.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{Table, JSON, YAML, Names, JSONPath}, cobra.ShellCompDirectiveNoFileComp))
}

type outputValue string

func (v *outputValue) String() string { return string(*v) }

func (v *outputValue) Type() string { return "form" }

func (v *outputValue) Set(text string) error {
	switch text {
	case Table, JSON, YAML, Names:
		*v = outputValue(text)
		return nil
	}
	template, isPath := strings.CutPrefix(text, JSONPath)
	if !isPath {
		return fmt.Errorf("want table, json, yaml, name or jsonpath={…}")
	}
	*v = outputValue(text)
	return jsonpath.New("output").Parse(template)
}

// PrintObject prints the object in the form that programs read; done is false when a table is wanted.
func (a *App) PrintObject(output string, object any) (done bool, err error) {
	if output == Table {
		return false, nil
	}
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return true, err
	}
	switch output {
	case JSON:
	case YAML:
		text, err = yaml.JSONToYAML(text)
	default:
		text, err = picked(output, text)
	}
	if err != nil {
		return true, err
	}
	if shown := strings.TrimRight(string(text), "\n"); shown != "" {
		a.Printf(a.Out, "%s\n", shown)
	}
	return true, nil
}

// picked is what name or jsonpath leave of an object.
func picked(output string, object []byte) ([]byte, error) {
	var value any
	if err := json.Unmarshal(object, &value); err != nil {
		return nil, err
	}
	if output == Names {
		return []byte(strings.Join(namesIn(value), "\n")), nil
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(strings.TrimPrefix(output, JSONPath)); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err := path.Execute(&text, value)
	return text.Bytes(), err
}

// namesIn are the names of what an answer holds: those of its items, or its own. A name is one that the other commands take.
func namesIn(value any) []string {
	var names []string
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			names = append(names, namesIn(item)...)
		}
	case map[string]any:
		if items, isList := value["items"]; isList {
			return namesIn(items)
		}
		namespace, _ := value["namespace"].(string)
		for _, key := range []string{"id", "name", "task"} {
			name, _ := value[key].(string)
			switch {
			case name == "":
				continue
			case key == "name" && namespace != "":
				name = namespace + "/" + name
			}
			return []string{name}
		}
	}
	return names
}

// Age is how long ago that was, for a table.
func (a *App) Age(t time.Time) string { return render.ShortDuration(a.Now().Sub(t)) }

// AgeIfAny is Age, "" for a time that is not known.
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
