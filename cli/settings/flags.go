package settings

import "github.com/spf13/pflag"

// FlagConfig is the flag that names the configuration file, and EnvConfig its environment variable.
const (
	FlagConfig = "config"
	EnvConfig  = "SLIPWAY_CONFIG"
)

// Register adds the flags of every setting that a command of these groups takes, and --config. With one group the defaults are that
// group's own (dev installs the custom resource definitions); with several they are the common ones.
// Values are checked by Load, all at once, not while the flags are parsed.
func Register(flags *pflag.FlagSet, groups ...Group) {
	flags.Var(&flagValue{kind: kindText}, FlagConfig, "YAML file of settings, by the names of these flags (env "+EnvConfig+")")
	for _, d := range definitions {
		if !d.takenBy(groups) {
			continue
		}
		value := &flagValue{kind: d.kind, text: d.fallbackFor(groups)}
		flag := flags.VarPF(value, d.name, "", d.description+" (env "+d.env()+")")
		if d.kind == kindBool {
			flag.NoOptDefVal = "true"
		}
	}
}

// Choices are the values of a setting that is an enumeration, nil for others; for shell completion.
func Choices(name string) []string {
	d, _ := definitionOf(name)
	return d.choices
}

// flagValue keeps a flag's text as it was given.
type flagValue struct {
	kind kind
	text string
	set  bool
}

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return string(v.kind) }

// Set takes a value. A list may be given by repeating its flag; the first one replaces the default.
func (v *flagValue) Set(text string) error {
	if v.kind == kindList && v.set {
		text = v.text + "," + text
	}
	v.text, v.set = text, true
	return nil
}
