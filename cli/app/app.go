// Package app holds what all commands share: streams and terminal, flags, names, exit codes, output formats and the
// connection to the engine.
package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/strictyaml"
)

// App holds the streams, the terminal and the clock of a command line.
type App struct {
	// Name is the program name from the command line. If it is the kubectl plugin's, help shows "kubectl slipway"; ""
	// means slipway.
	Name     string
	In       io.Reader
	Out, Err io.Writer
	// Screen returns the size of the terminal behind Out, in characters; ok is false if Out is not a terminal.
	Screen func() (width, height int, ok bool)
	Colour bool
	// InIsTerminal reports whether In is a terminal, so that the user can answer questions.
	InIsTerminal bool
	// ErrIsTerminal reports whether Err is a terminal.
	ErrIsTerminal bool
	Now           func() time.Time
	// Wait sleeps between attempts and returns early when the context ends.
	Wait func(ctx context.Context, d time.Duration)
	// Output is the output format from -o.
	Output string
	// MaxFindings bounds the printed findings per document; 0 prints all.
	MaxFindings int
	// ArgsAccepted is set when a command's arguments have been accepted. Earlier errors are usage errors.
	ArgsAccepted bool
}

// New returns an App for these streams.
func New(in io.Reader, out, errors *os.File) *App {
	a := &App{In: in, Out: out, Err: errors, Now: time.Now,
		Wait: func(ctx context.Context, d time.Duration) { _ = pause.For(ctx, d) }}
	a.Screen = func() (int, int, bool) {
		fd := int(out.Fd())
		if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
			return 0, 0, false
		}
		width, height, err := term.GetSize(fd)
		return width, height, err == nil && width > 0 && height > 4
	}
	if file, ok := in.(*os.File); ok {
		a.InIsTerminal = term.IsTerminal(int(file.Fd()))
	}
	a.ErrIsTerminal = term.IsTerminal(int(errors.Fd()))
	_, _, terminal := a.Screen()
	a.Colour = terminal && os.Getenv("NO_COLOR") == ""
	return a
}

// Printf writes text for users. It ignores write errors, because there is no other place to report them.
func (a *App) Printf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// Draw prints the lines to Out.
func (a *App) Draw(lines []string) {
	for _, line := range lines {
		a.Printf(a.Out, "%s\n", line)
	}
}

// Drawing returns the drawing settings for this terminal.
func (a *App) Drawing() render.Drawing { return render.Drawing{Colour: a.Colour, Now: a.Now} }

// RequireConfirmation asks the user to confirm. Without a terminal it returns a usage error that names the flags that
// confirm instead.
func (a *App) RequireConfirmation(question, flags string) error {
	if !a.InIsTerminal {
		return Usagef("confirmation is required, but standard input is not a terminal: add %s", flags)
	}
	if !a.Confirm(question) {
		a.Printf(a.Err, "Nothing was changed.\n")
		return &ExitError{Code: ExitFailure}
	}
	return nil
}

// Confirm asks a yes/no question. Anything but y or yes means no.
func (a *App) Confirm(question string) bool {
	a.Printf(a.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.In).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// The output formats. Names prints one object name per line; jsonPath prints the fields that a JSONPath template
// selects.
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
	command.Flags().VarP((*outputValue)(&a.Output), "output", "o",
		"output `format`: table, json, yaml, name or jsonpath={…}")
	FlagChoices(command, "output", Table, jsonForm, YAML, Names, jsonPath)
}

// FlagChoices registers shell completion of a flag with these words.
func FlagChoices[T ~string](command *cobra.Command, flag string, words ...T) {
	var choices []string
	for _, w := range words {
		choices = append(choices, string(w))
	}
	_ = command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

type outputValue string

func (v *outputValue) String() string { return string(*v) }

func (v *outputValue) Type() string { return "format" }

func (v *outputValue) Set(text string) error {
	template, isPath := strings.CutPrefix(text, jsonPath)
	if !isPath && !slices.Contains([]string{Table, jsonForm, YAML, Names}, text) {
		return fmt.Errorf("must be table, json, yaml, name or jsonpath={…}")
	}
	*v = outputValue(text)
	return jsonpath.New("output").Parse(template)
}

// PrintObject prints the object in the format of -o; done is false for a table, which the caller prints.
func (a *App) PrintObject(object any) (done bool, err error) {
	if a.Output == Table {
		return false, nil
	}
	return true, a.printAs(a.Output, object)
}

// Print prints the object in the format of -o; for a table, it calls table, which may be nil.
func (a *App) Print(object any, table func()) error {
	done, err := a.PrintObject(object)
	if !done && err == nil && table != nil {
		table()
	}
	return err
}

// PrintYAML prints the object as YAML, regardless of -o.
func (a *App) PrintYAML(object any) error { return a.printAs(YAML, object) }

// PrintEach is PrintObject for one object of a stream: JSON on one line, YAML as one document.
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
		text, err = selectFields(output, text)
	}
	if err != nil {
		return err
	}
	if shown := strings.TrimRight(string(text), "\n"); shown != "" {
		a.Printf(a.Out, "%s\n", shown)
	}
	return nil
}

// selectFields applies -o name or -o jsonpath to an object.
func selectFields(output string, object []byte) ([]byte, error) {
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

// namesIn returns the names of the items in a response, or its own name, in the form that other commands accept.
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

// Age returns the time since t as text for a table.
func (a *App) Age(t time.Time) string { return render.ShortDuration(a.Now().Sub(t)) }

// AgeIfAny is Age, or "" if the time is unknown.
func (a *App) AgeIfAny(t *time.Time) string {
	if t == nil {
		return ""
	}
	return a.Age(*t)
}

// ParseOneOf parses the values of a flag, ignoring case, and returns them as they are known.
func ParseOneOf[T ~string](flag string, names []string, known []T) (values []string, err error) {
	for _, name := range names {
		n := slices.IndexFunc(known, func(v T) bool { return strings.EqualFold(string(v), name) })
		if n < 0 {
			return nil, invalidChoice(flag, name, known)
		}
		values = append(values, string(known[n]))
	}
	return values, nil
}

// CheckOneOf returns an error if the value of a flag is neither empty nor known.
func CheckOneOf[T ~string](flag, value string, known []T) error {
	if value == "" || slices.Contains(known, T(value)) {
		return nil
	}
	return invalidChoice(flag, value, known)
}

func invalidChoice[T ~string](flag, value string, known []T) error {
	return Usagef("invalid --%s %q: must be one of %s", flag, value, strictyaml.List(known))
}

// Elapsed returns how long something ran, or has run so far; "" if it has not started.
func (a *App) Elapsed(from, to *time.Time) string { return a.Drawing().Elapsed(from, to) }
