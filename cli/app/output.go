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
	"slipway.io/slipway/release/strictyaml"
)

// The forms of output. Names prints how each thing is called, one on a line; jsonPath picks values out of it.
const (
	Table    = "table"
	YAML     = "yaml"
	Names    = "name"
	jsonForm = "json"
	jsonPath = "jsonpath="
)

// OutputFlag adds -o to a command. Its value is checked when the flags are parsed.
func (a *App) OutputFlag(command *cobra.Command) {
	a.Output = Table
	command.Flags().VarP((*outputValue)(&a.Output), "output", "o", "`form` of the output: table, json, yaml, name or jsonpath={…}")
	FlagChoices(command, "output", Table, jsonForm, YAML, Names, jsonPath)
}

// FlagChoices completes a flag with these words.
func FlagChoices[T ~string](command *cobra.Command, flag string, words ...T) {
	var choices []string
	for _, w := range words {
		choices = append(choices, string(w))
	}
	_ = command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

type outputValue string

func (v *outputValue) String() string { return string(*v) }

func (v *outputValue) Type() string { return "form" }

func (v *outputValue) Set(text string) error {
	template, isPath := strings.CutPrefix(text, jsonPath)
	if !isPath && !slices.Contains([]string{Table, jsonForm, YAML, Names}, text) {
		return fmt.Errorf("want table, json, yaml, name or jsonpath={…}")
	}
	*v = outputValue(text)
	return jsonpath.New("output").Parse(template)
}

// PrintObject prints the object in the form that programs read; done is false when a table is wanted.
func (a *App) PrintObject(object any) (done bool, err error) {
	if a.Output == Table {
		return false, nil
	}
	return true, a.printAs(a.Output, object)
}

// PrintYAML prints the object as YAML, whatever -o says.
func (a *App) PrintYAML(object any) error { return a.printAs(YAML, object) }

// PrintEach is PrintObject for one object of many: JSON takes one line, YAML one document.
func (a *App) PrintEach(object any) (done bool, err error) {
	text, err := json.Marshal(object)
	switch {
	case a.Output == Table || err != nil:
		return a.Output != Table, err
	case a.Output == jsonForm:
		a.Printf(a.Out, "%s\n", text)
		return true, nil
	case a.Output == YAML:
		a.Printf(a.Out, "---\n")
	}
	return true, a.printAs(a.Output, json.RawMessage(text))
}

func (a *App) printAs(output string, object any) error {
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return err
	}
	switch output {
	case jsonForm:
	case YAML:
		text, err = yaml.JSONToYAML(text)
	default:
		text, err = picked(output, text)
	}
	if err != nil {
		return err
	}
	if shown := strings.TrimRight(string(text), "\n"); shown != "" {
		a.Printf(a.Out, "%s\n", shown)
	}
	return nil
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
	if err := path.Parse(strings.TrimPrefix(output, jsonPath)); err != nil {
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

// ParseOneOf reads values in any case; nil when there are none.
func ParseOneOf[T ~string](flag string, names []string, known []T) (*[]T, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var values []T
	for _, name := range names {
		n := slices.IndexFunc(known, func(v T) bool { return strings.EqualFold(string(v), name) })
		if n < 0 {
			return nil, noneOf(flag, name, known)
		}
		values = append(values, known[n])
	}
	return &values, nil
}

// CheckOneOf refuses the value of a flag that is neither empty nor known.
func CheckOneOf[T ~string](flag, value string, known []T) error {
	if value == "" || slices.Contains(known, T(value)) {
		return nil
	}
	return noneOf(flag, value, known)
}

func noneOf[T ~string](flag, value string, known []T) error {
	return Usagef("--%s %q is none of %s", flag, value, strictyaml.List(known))
}

// Took is how long something ran, or has run so far; "" when it has not begun.
func (a *App) Took(from, to *time.Time) string { return a.Drawing().Took(from, to) }
