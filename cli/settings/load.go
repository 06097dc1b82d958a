package settings

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Load finds the value of every setting that was registered on the parsed flags, and says where each came from. The error lists every
// problem at once, each with the setting and its source (Errors). The provenance is complete even then, so that it can be shown.
func Load(flags *pflag.FlagSet) (Settings, Provenance, error) {
	return load(flags, os.LookupEnv, os.Environ())
}

// load is Load with the environment given.
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
	result := Settings{}
	for _, d := range definitions {
		if err := d.apply(&result, d.fallback); err != nil {
			return Settings{}, provenance, fmt.Errorf("the default of %s is wrong, which is a mistake in Slipway: %w", d.name, err)
		}
		fromFile, inFile := file[d.name]
		flag := registered(flags, d.name)
		if flag == nil {
			// Another command's setting: a file may serve them all, so the value is checked here and used there.
			if inFile {
				problems = check(problems, d, &Settings{}, fromFile.text, Source{Kind: FromFile, Name: path, Line: fromFile.line})
			}
			continue
		}
		text, source := flag.DefValue, Source{Kind: FromDefault}
		if value, ok := lookup(d.env()); flag.Changed {
			text, source = flag.Value.String(), Source{Kind: FromFlag, Name: "--" + d.name}
		} else if ok && value != "" {
			text, source = value, Source{Kind: FromEnv, Name: d.env()}
		} else if inFile {
			text, source = fromFile.text, Source{Kind: FromFile, Name: path, Line: fromFile.line}
		}
		if d.neverEmpty && flag.Changed && text == "" {
			problems = append(problems, fmt.Errorf("%s (%s): names nothing: leave the flag out, or give a value", d.name, source))
		}
		problems = check(problems, d, &result, text, source)
		provenance.Entries = append(provenance.Entries, entry(d, text, source))
	}
	if len(problems) > 0 {
		return result, provenance, problems
	}
	return result, provenance, nil
}

// registered is the flag that Register added; nil when there is none, or when the command has a flag of its own by that name.
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

func check(problems Errors, d definition, into *Settings, text string, source Source) Errors {
	if err := d.apply(into, text); err != nil {
		return append(problems, fmt.Errorf("%s (%s): %w", d.name, source, err))
	}
	return problems
}

func entry(d definition, text string, source Source) Entry {
	if d.kind == kindList {
		text = strings.Join(splitList(text), ",")
	}
	return Entry{Name: d.name, Value: text, Source: source, Env: d.env(), Description: d.description}
}

func configPath(flags *pflag.FlagSet, lookup func(string) (string, bool)) string {
	if flag := flags.Lookup(FlagConfig); flag != nil && flag.Changed {
		return flag.Value.String()
	}
	path, _ := lookup(EnvConfig)
	return path
}

// foreignEnv are the prefixes of variables that belong to the local stack and to the tests.
var foreignEnv = []string{"SLIPWAY_DEV_", "SLIPWAY_TEST_"}

// unknownEnv are the variables that look like settings and are none. They are no error: Kubernetes itself gives every pod SLIPWAY_PORT and
// the like when a Service is called slipway.
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

// Errors are all that is wrong with the settings.
type Errors []error

func (e Errors) Error() string {
	if len(e) == 1 {
		return "a setting is wrong: " + e[0].Error()
	}
	lines := []string{fmt.Sprintf("%d settings are wrong:", len(e))}
	for _, problem := range e {
		lines = append(lines, "  "+problem.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives each of the errors to errors.Is and errors.As.
func (e Errors) Unwrap() []error { return e }
