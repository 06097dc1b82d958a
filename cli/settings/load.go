package settings

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/release/strictyaml"
)

// Load returns the value of every setting that is registered on the parsed flags, and where each came from. The error
// (Errors) lists all invalid settings with their sources. The provenance is complete even then, so that it can be
// shown.
func Load(flags *pflag.FlagSet) (Settings, Provenance, error) {
	return load(flags, os.LookupEnv, os.Environ())
}

func load(flags *pflag.FlagSet, lookup func(string) (string, bool), environ []string) (Settings, Provenance, error) {
	provenance := Provenance{UnknownEnv: unknownEnv(environ)}
	var problems Errors
	file, path := map[string]fileValue(nil), configPath(flags, lookup)
	if path != "" {
		provenance.File = path
		var failed []error
		file, failed = readFile(path)
		problems = append(problems, failed...)
	}
	result, others := Settings{}, definitions(&Settings{})
	for n, d := range definitions(&result) {
		if err := d.apply(d.defaultValue); err != nil {
			return Settings{}, provenance, fmt.Errorf("the default of %s is invalid (a bug in Slipway): %w", d.name,
				err)
		}
		inFile, given := file[d.name]
		flag := registered(flags, d.name)
		if flag == nil {
			// The setting belongs to another command. One file may serve all commands, so the value is validated, but
			// not used.
			if given {
				problems = check(problems, others[n], inFile.text,
					Source{Kind: fromFile, Name: path, Line: inFile.line})
			}
			continue
		}
		text, source := flag.DefValue, Source{Kind: FromDefault}
		if value, ok := lookup(d.env()); flag.Changed {
			text, source = flag.Value.String(), Source{Kind: fromFlag, Name: "--" + d.name}
		} else if ok && value != "" {
			text, source = value, Source{Kind: fromEnv, Name: d.env()}
		} else if given {
			text, source = inFile.text, Source{Kind: fromFile, Name: path, Line: inFile.line}
		}
		if d.neverEmpty && flag.Changed && text == "" {
			problems = append(problems, fmt.Errorf("%s (%s): is empty: set a value or remove the flag", d.name, source))
		}
		problems = check(problems, d, text, source)
		if d.kind() == kindList {
			text = strings.Join(splitList(text), ",")
		}
		provenance.Entries = append(provenance.Entries,
			Entry{Name: d.name, Value: text, Source: source, Env: d.env(), Description: d.description})
	}
	if len(problems) > 0 {
		return result, provenance, problems
	}
	return result, provenance, nil
}

// registered returns the flag that Register added; nil if there is none, or if the command has its own flag with that
// name.
func registered(flags *pflag.FlagSet, name string) *pflag.Flag {
	flag := flags.Lookup(name)
	if flag == nil {
		return nil
	}
	if _, ours := flag.Value.(*flagValue); !ours {
		return nil
	}
	return flag
}

func check(problems Errors, d definition, text string, source Source) Errors {
	if err := d.apply(text); err != nil {
		return append(problems, fmt.Errorf("%s (%s): %w", d.name, source, err))
	}
	return problems
}

func configPath(flags *pflag.FlagSet, lookup func(string) (string, bool)) string {
	if flag := flags.Lookup(FlagConfig); flag != nil && flag.Changed {
		return flag.Value.String()
	}
	path, _ := lookup(EnvConfig)
	return path
}

// foreignEnv are the prefixes of variables for the local stack and the tests.
var foreignEnv = []string{"SLIPWAY_DEV_", "SLIPWAY_TEST_"}

// unknownEnv returns variables that look like settings but are not. They are not an error: for a Service named slipway,
// Kubernetes itself sets SLIPWAY_PORT and others in every pod.
func unknownEnv(environ []string) []string {
	var unknown []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		foreign := slices.ContainsFunc(foreignEnv, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if !strings.HasPrefix(name, "SLIPWAY_") || name == EnvConfig || foreign {
			continue
		}
		setting := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "SLIPWAY_"), "_", "-"))
		if d, known := definitionOf(setting); !known || d.env() != name {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// sourceKind is the kind of place that a value came from.
type sourceKind string

// The kinds, in order of precedence.
const (
	fromFlag    sourceKind = "flag"
	fromEnv     sourceKind = "env"
	fromFile    sourceKind = "file"
	FromDefault sourceKind = "default"
)

// Source is where a value came from.
type Source struct {
	Kind sourceKind
	// Name is the flag with its dashes, the environment variable, or the file's path.
	Name string
	// Line is the line in the file.
	Line int
}

// String returns "flag --listen", "env SLIPWAY_LISTEN", "file slipway.yaml:3" or "default".
func (s Source) String() string {
	switch s.Kind {
	case fromFile:
		return fmt.Sprintf("file %s:%d", s.Name, s.Line)
	case fromFlag, fromEnv:
		return string(s.Kind) + " " + s.Name
	}
	return string(s.Kind)
}

// MarshalJSON encodes the source as its String.
func (s Source) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// Entry is one setting with its value as text and its source.
type Entry struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	Source      Source `json:"source"`
	Env         string `json:"env"`
	Description string `json:"description"`
}

// Provenance contains the settings of a command and their sources, in the order of the documentation.
type Provenance struct {
	Entries []Entry `json:"settings"`
	// File is the configuration file; empty if none is used.
	File string `json:"file,omitempty"`
	// UnknownEnv are environment variables that start with SLIPWAY_ but are not settings.
	UnknownEnv []string `json:"unknownEnv,omitempty"`
}

// Errors are all errors in the settings.
type Errors []error

func (e Errors) Error() string {
	if len(e) == 1 {
		return "invalid setting: " + e[0].Error()
	}
	lines := []string{fmt.Sprintf("%d invalid settings:", len(e))}
	for _, problem := range e {
		lines = append(lines, "  "+problem.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors for errors.Is and errors.As.
func (e Errors) Unwrap() []error { return e }

// FlagConfig is the flag that names the configuration file, and EnvConfig its environment variable.
const (
	FlagConfig = "config"
	EnvConfig  = "SLIPWAY_CONFIG"
)

// Register adds --config and the flags of all settings of these groups. With one group, the defaults are that group's
// own (dev installs the custom resource definitions); with several, the common ones. Values are validated by Load, all
// at once, not while flags are parsed.
func Register(flags *pflag.FlagSet, groups ...Group) {
	flags.Var(&flagValue{kind: kindText}, FlagConfig,
		"YAML file with settings; the keys are the names of the flags (env "+EnvConfig+")")
	for _, d := range definitions(&Settings{}) {
		if !d.appliesTo(groups) {
			continue
		}
		value := &flagValue{kind: d.kind(), text: d.defaultValue}
		if d.devDefault != "" && slices.Equal(groups, []Group{Dev}) {
			value.text = d.devDefault
		}
		flag := flags.VarPF(value, d.name, "", d.description+" (env "+d.env()+")")
		if d.kind() == kindBool {
			flag.NoOptDefVal = "true"
		}
	}
}

// Choices returns the values of an enumeration setting, for shell completion; nil for other settings.
func Choices(name string) []string {
	d, _ := definitionOf(name)
	return d.choices
}

// flagValue holds a flag's text.
type flagValue struct {
	kind, text string
	set        bool
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return v.kind }

// Set sets the value. The flag of a list may be repeated; the first one replaces the default.
func (v *flagValue) Set(text string) error {
	if v.kind == kindList && v.set {
		text = v.text + "," + text
	}
	v.text, v.set = text, true
	return nil
}

type fileValue struct {
	text string
	line int
}

// readFile reads the configuration file strictly: a mapping of known setting names to values, each set once. It returns
// all errors with their lines.
func readFile(path string) (map[string]fileValue, []error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{fmt.Errorf("cannot read the configuration file: %w", err)}
	}
	documents := strictyaml.Split(text)
	switch {
	case len(documents) == 0:
		return nil, nil
	case len(documents) > 1:
		return nil, []error{fmt.Errorf("%s: contains more than one document: want one", path)}
	}
	var document yaml.Node
	if err := yaml.Unmarshal(documents[0], &document); err != nil {
		return nil, []error{fmt.Errorf("%s: %w", path, err)}
	}
	if len(document.Content) == 0 {
		return nil, nil // only comments after a byte-order mark
	}
	return readMapping(path, document.Content[0])
}

func readMapping(path string, node *yaml.Node) (map[string]fileValue, []error) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return nil, nil
	}
	if node.Kind != yaml.MappingNode {
		return nil, []error{fmt.Errorf("%s:%d: want one setting per line, as `name: value`", path, node.Line)}
	}
	values := map[string]fileValue{}
	var problems []error
	for n := 0; n+1 < len(node.Content); n += 2 {
		key, value := node.Content[n], node.Content[n+1]
		text, err := readEntry(key, value, values)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %w", path, key.Line, err))
			continue
		}
		values[key.Value] = fileValue{text: text, line: key.Line}
	}
	return values, problems
}

func readEntry(key, value *yaml.Node, seen map[string]fileValue) (string, error) {
	d, known := definitionOf(key.Value)
	if !known {
		return "", fmt.Errorf("unknown setting %q%s", key.Value, suggestion(key.Value))
	}
	if earlier, twice := seen[key.Value]; twice {
		return "", fmt.Errorf("%s is set twice; first on line %d", key.Value, earlier.line)
	}
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if value.Kind == yaml.SequenceNode && d.kind() == kindList {
		return readList(key.Value, value)
	}
	if value.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("%s: want a single value of type %s", key.Value, d.kind())
	}
	if value.Tag == "!!null" {
		return "", fmt.Errorf("%s has no value: set one or remove the line", key.Value)
	}
	return value.Value, nil
}

func readList(name string, node *yaml.Node) (string, error) {
	var parts []string
	for _, part := range node.Content {
		if part.Kind != yaml.ScalarNode || part.Tag == "!!null" {
			return "", fmt.Errorf("%s: want a list of single values", name)
		}
		parts = append(parts, part.Value)
	}
	return strings.Join(parts, ","), nil
}

// suggestion names the most similar setting, if there is one.
func suggestion(name string) string {
	var known []string
	for _, d := range definitions(&Settings{}) {
		known = append(known, d.name)
	}
	if near := strictyaml.Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return "; list them with `slipway config`"
}
