package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
)

// options says what to serve, where and from which file.
type options struct {
	IP         string
	Port       int
	UIIP       string
	UIPort     int
	Headless   bool
	DBFilename string // empty: in memory
	Namespaces []string
	// Retention of closed workflows, for namespaces that are created by this start.
	Retention        time.Duration
	SearchAttributes map[string]enumspb.IndexedValueType
	DynamicConfig    map[string]any
	LogLevel         string
	LogFormat        string
}

func (o options) frontendAddress() string { return net.JoinHostPort(o.IP, strconv.Itoa(o.Port)) }
func (o options) uiAddress() string       { return net.JoinHostPort(o.UIIP, strconv.Itoa(o.UIPort)) }

// The CLI's words on the left, the server's on the right.
var (
	logLevels  = map[string]string{"debug": "debug", "info": "info", "warn": "warn", "error": "error", "never": "fatal"}
	logFormats = map[string]string{"text": "console", "pretty": "console", "json": "json"}
)

// parseFlags refuses every flag and value that it does not know; usage goes to out.
func parseFlags(args []string, out io.Writer) (options, error) {
	if len(args) >= 2 && args[0] == "server" && args[1] == "start-dev" {
		args = args[2:]
	}
	o := options{SearchAttributes: map[string]enumspb.IndexedValueType{}, DynamicConfig: map[string]any{}}
	set := flag.NewFlagSet("temporal-dev server start-dev", flag.ContinueOnError)
	set.SetOutput(out)
	o.declare(set)
	if err := set.Parse(args); err != nil {
		return options{}, err
	}
	if set.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q: only flags are taken, see --help", set.Arg(0))
	}
	return o.complete()
}

func (o *options) declare(set *flag.FlagSet) {
	set.StringVar(&o.IP, "ip", "127.0.0.1", "address that the server listens on")
	set.IntVar(&o.Port, "port", 7233, "port of the server's gRPC API")
	set.StringVar(&o.UIIP, "ui-ip", "", "address that the Web UI listens on (default: that of --ip)")
	set.IntVar(&o.UIPort, "ui-port", 0, "port of the Web UI (default: that of --port plus 1000)")
	set.BoolVar(&o.Headless, "headless", false, "serve without the Web UI")
	set.StringVar(&o.DBFilename, "db-filename", "", "SQLite file that keeps everything over a restart (default: in memory)")
	set.DurationVar(&o.Retention, "retention", 24*time.Hour, "how long a new namespace keeps closed workflows")
	set.StringVar(&o.LogLevel, "log-level", "error", "debug, info, warn, error or never")
	set.StringVar(&o.LogFormat, "log-format", "text", "text or json")
	set.Func("namespace", "namespace to have, may be repeated (default: default)", func(v string) error {
		o.Namespaces = append(o.Namespaces, v)
		return nil
	})
	set.Func("search-attribute", "`Name=Type` of a search attribute to have in every namespace, may be repeated", o.addSearchAttribute)
	set.Func("dynamic-config-value", "`key=json` of the server's dynamic configuration, may be repeated", o.addDynamicConfig)
}

func (o *options) addSearchAttribute(value string) error {
	name, typeName, ok := strings.Cut(value, "=")
	if !ok || name == "" {
		return errors.New("want Name=Type, for example Team=Keyword")
	}
	kind, err := enumspb.IndexedValueTypeFromString(typeName)
	if err != nil || kind == enumspb.INDEXED_VALUE_TYPE_UNSPECIFIED {
		return fmt.Errorf("unknown type %q: want Bool, Datetime, Double, Int, Keyword, KeywordList or Text", typeName)
	}
	o.SearchAttributes[name] = kind
	return nil
}

func (o *options) addDynamicConfig(value string) error {
	key, text, ok := strings.Cut(value, "=")
	if !ok || key == "" {
		return errors.New(`want key=json, for example history.timerProcessorMaxTimeShift="10ms"`)
	}
	var parsed any
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		return fmt.Errorf("the value of %s is not JSON (a string needs its quotes): %w", key, err)
	}
	// The server tells whole numbers from fractions by their Go type.
	if number, ok := parsed.(float64); ok && number == float64(int(number)) {
		parsed = int(number)
	}
	o.DynamicConfig[key] = parsed
	return nil
}

// complete fills in what depends on other flags and checks the rest.
func (o options) complete() (options, error) {
	if net.ParseIP(o.IP) == nil {
		return options{}, fmt.Errorf("--ip %q is not an IP address", o.IP)
	}
	if o.UIIP == "" {
		o.UIIP = o.IP
	}
	if net.ParseIP(o.UIIP) == nil {
		return options{}, fmt.Errorf("--ui-ip %q is not an IP address", o.UIIP)
	}
	if o.UIPort == 0 {
		o.UIPort = o.Port + 1000
	}
	for _, given := range []struct {
		flag string
		port int
	}{{"--port", o.Port}, {"--ui-port", o.UIPort}} {
		if given.port < 1 || given.port > 65535 {
			return options{}, fmt.Errorf("%s %d is not a port: want 1 to 65535", given.flag, given.port)
		}
	}
	if o.Retention < time.Hour {
		return options{}, fmt.Errorf("--retention %s is too short: the server wants at least 1h", o.Retention)
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{"default"}
	}
	slices.Sort(o.Namespaces)
	o.Namespaces = slices.Compact(o.Namespaces)
	level, format := logLevels[o.LogLevel], logFormats[o.LogFormat]
	if level == "" {
		return options{}, fmt.Errorf("unknown --log-level %q: want debug, info, warn, error or never", o.LogLevel)
	}
	if format == "" {
		return options{}, fmt.Errorf("unknown --log-format %q: want text or json", o.LogFormat)
	}
	o.LogLevel, o.LogFormat = level, format
	return o, nil
}
