package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/release/strictyaml"
)

// Load returns the value of every setting that is registered on the parsed flags, and where each came from. The error
// lists all invalid settings with their sources. The provenance is complete even then, so that it can be shown.
func Load(flags *pflag.FlagSet) (Settings, Provenance, error) {
	return load(flags, os.Getenv, os.Environ())
}

func load(flags *pflag.FlagSet, getenv func(string) string, environ []string) (Settings, Provenance, error) {
	provenance := Provenance{File: getenv(EnvConfig), UnknownEnv: unknownEnv(environ)}
	if flag := flags.Lookup(FlagConfig); flag != nil && flag.Changed {
		provenance.File = flag.Value.String()
	}
	file, wrong := readFile(provenance.File)
	var result Settings
	for _, d := range definitions {
		_ = d.set(&result, d.defaultValue) // a test ensures that it is valid
		flag, inFile := registered(flags, d.name), file[d.name]
		if flag == nil {
			// The setting belongs to another command. One file may serve all commands, so the value is validated, but
			// not used.
			if inFile.source != "" {
				wrong = wrong.add(d, inFile, d.set(&Settings{}, inFile.text))
			}
			continue
		}
		v := choose(flag, getenv, inFile)
		if flag.Changed && v.text == "" && d.Tag.Get("empty") == "no" {
			wrong = wrong.add(d, v, errors.New("is empty: set a value or remove the flag"))
		}
		wrong = wrong.add(d, v, d.set(&result, v.text))
		if d.kind() == kindList {
			v.text = strings.Join(splitList(v.text), ",")
		}
		provenance.Entries = append(provenance.Entries,
			Entry{Name: d.name, Value: v.text, Source: v.source, Env: EnvName(d.name), Description: d.help})
	}
	if len(wrong) > 0 {
		return result, provenance, wrong
	}
	return result, provenance, nil
}

// value is the text of a setting and where it came from; line is its line in the file.
type value struct {
	text   string
	source Source
	line   int
}

// choose returns the value that takes precedence.
func choose(flag *pflag.Flag, getenv func(string) string, inFile value) value {
	env := EnvName(flag.Name)
	switch text := getenv(env); {
	case flag.Changed:
		return value{text: flag.Value.String(), source: Source("flag --" + flag.Name)}
	case text != "":
		return value{text: text, source: Source("env " + env)}
	case inFile.source != "":
		return inFile
	}
	return value{text: flag.DefValue, source: FromDefault}
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
		known := slices.ContainsFunc(definitions, func(d definition) bool { return EnvName(d.name) == name })
		if strings.HasPrefix(name, "SLIPWAY_") && name != EnvConfig && !foreign && !known {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// Source is where a value came from: "flag --listen", "env SLIPWAY_LISTEN", "file slipway.yaml:3" or FromDefault.
type Source string

// FromDefault is the source of a default.
const FromDefault Source = "default"

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

// problems are all errors in the settings.
type problems []error

func (p problems) Error() string {
	if len(p) == 1 {
		return "invalid setting: " + p[0].Error()
	}
	lines := []string{fmt.Sprintf("%d invalid settings:", len(p))}
	for _, problem := range p {
		lines = append(lines, "  "+problem.Error())
	}
	return strings.Join(lines, "\n")
}

// add adds an error of a setting's value; nil adds nothing.
func (p problems) add(d definition, v value, err error) problems {
	if err == nil {
		return p
	}
	return append(p, fmt.Errorf("%s (%s): %w", d.name, v.source, err))
}

// FlagConfig is the flag that names the configuration file, and EnvConfig its environment variable.
const (
	FlagConfig = "config"
	EnvConfig  = "SLIPWAY_CONFIG"
)

// Register adds --config and the flags of all settings of these groups. With one group, the defaults are that group's
// own (dev installs the custom resource definitions); with several, the common ones. Values are validated by Load, all
// at once, not while flags are parsed.
func Register(flags *pflag.FlagSet, groups ...Group) {
	flags.Var(&flagValue{kind: "string"}, FlagConfig,
		"YAML file with settings; the keys are the names of the flags (env "+EnvConfig+")")
	for _, d := range definitions {
		if !d.appliesTo(groups...) {
			continue
		}
		value := &flagValue{kind: d.kind(), text: d.defaultValue, choices: d.choices}
		if dev, differs := d.Tag.Lookup("dev"); differs && slices.Equal(groups, []Group{Dev}) {
			value.text = dev
		}
		flag := flags.VarPF(value, d.name, "", d.help+" (env "+EnvName(d.name)+")")
		if d.kind() == kindBool {
			flag.NoOptDefVal = "true"
		}
	}
}

// registered returns the flag that Register added; nil if there is none, or if the command has its own flag with that
// name.
func registered(flags *pflag.FlagSet, name string) *pflag.Flag {
	if flag := flags.Lookup(name); flag != nil {
		if _, ours := flag.Value.(*flagValue); ours {
			return flag
		}
	}
	return nil
}

// Choices returns the values of the flag of an enumeration, for shell completion; nil for other flags.
func Choices(flag *pflag.Flag) []string {
	if value, ours := flag.Value.(*flagValue); ours {
		return value.choices
	}
	return nil
}

// flagValue holds a flag's text.
type flagValue struct {
	kind, text string
	choices    []string
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

// readFile reads the configuration file strictly: a mapping of known setting names to values, each set once. It returns
// all errors with their lines. Without a path it returns nothing.
func readFile(path string) (map[string]value, problems) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, problems{fmt.Errorf("cannot read the configuration file: %w", err)}
	}
	documents := strictyaml.Split(text)
	if len(documents) > 1 {
		return nil, problems{fmt.Errorf("%s: contains more than one document: want one", path)}
	}
	var document yaml.Node
	if err := yaml.Unmarshal(slices.Concat(documents...), &document); err != nil {
		return nil, problems{fmt.Errorf("%s: %w", path, err)}
	}
	if len(document.Content) == 0 || document.Content[0].Tag == "!!null" {
		return nil, nil // without settings, for example only comments
	}
	return readMapping(path, document.Content[0])
}

func readMapping(path string, node *yaml.Node) (map[string]value, problems) {
	if node.Kind != yaml.MappingNode {
		return nil, problems{fmt.Errorf("%s:%d: want one setting per line, as `name: value`", path, node.Line)}
	}
	values := map[string]value{}
	var wrong problems
	for pair := range slices.Chunk(node.Content, 2) {
		key := pair[0]
		text, err := readEntry(key.Value, pair[1], values)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s:%d: %w", path, key.Line, err))
			continue
		}
		values[key.Value] = value{text, Source(fmt.Sprintf("file %s:%d", path, key.Line)), key.Line}
	}
	return values, wrong
}

func readEntry(name string, node *yaml.Node, seen map[string]value) (string, error) {
	d, known := definitionOf(name)
	if !known {
		return "", fmt.Errorf("unknown setting %q%s", name, suggestion(name))
	}
	if earlier, twice := seen[name]; twice {
		return "", fmt.Errorf("%s is set twice; first on line %d", name, earlier.line)
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case node.Kind == yaml.SequenceNode && d.kind() == kindList:
		var parts []string
		for _, part := range node.Content {
			if part.Kind != yaml.ScalarNode || part.Tag == "!!null" {
				return "", fmt.Errorf("%s: want a list of single values", name)
			}
			parts = append(parts, part.Value)
		}
		return strings.Join(parts, ","), nil
	case node.Kind != yaml.ScalarNode:
		return "", fmt.Errorf("%s: want a single value of type %s", name, d.kind())
	case node.Tag == "!!null":
		return "", fmt.Errorf("%s has no value: set one or remove the line", name)
	}
	return node.Value, nil
}

// suggestion names the most similar setting, if there is one.
func suggestion(name string) string {
	var known []string
	for _, d := range definitions {
		known = append(known, d.name)
	}
	if near := strictyaml.Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return "; list them with `slipway config`"
}
