package main

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
)

func TestParseFlags(t *testing.T) {
	o, err := parseFlags([]string{"server", "start-dev", "--ip", "127.0.0.1", "--port", "7300", "--namespace", "b", "--namespace", "a", "--namespace", "a",
		"--search-attribute", "Team=Keyword", "--search-attribute", "Since=Datetime", "--dynamic-config-value", `history.timerProcessorMaxTimeShift="10ms"`,
		"--dynamic-config-value", "frontend.enableServerVersionCheck=false", "--dynamic-config-value", "matching.numTaskqueueReadPartitions=1",
		"--log-level", "never", "--log-format", "json", "--retention", "72h"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, options{
		IP: "127.0.0.1", Port: 7300, UIIP: "127.0.0.1", UIPort: 8300, Namespaces: []string{"a", "b"}, Retention: 72 * time.Hour,
		SearchAttributes: map[string]enumspb.IndexedValueType{"Team": enumspb.INDEXED_VALUE_TYPE_KEYWORD, "Since": enumspb.INDEXED_VALUE_TYPE_DATETIME},
		DynamicConfig: map[string]any{
			"history.timerProcessorMaxTimeShift": "10ms", "frontend.enableServerVersionCheck": false, "matching.numTaskqueueReadPartitions": 1},
		LogLevel: "fatal", LogFormat: "json",
	}, o)
}

func TestParseFlagsRefuses(t *testing.T) {
	cases := []struct {
		reason string
		args   []string
		want   string
	}{
		{"a flag of the CLI that this server does not have", []string{"--ui-asset-path", "x"}, "flag provided but not defined"},
		{"a word that is no flag", []string{"start"}, `unexpected argument "start"`},
		{"an address by name", []string{"--ip", "localhost"}, "not an IP address"},
		{"a port that none can be", []string{"--port", "70000"}, "--port 70000 is not a port"},
		{"a UI port beyond the last", []string{"--port", "65000"}, "--ui-port 66000 is not a port"},
		{"an attribute without a type", []string{"--search-attribute", "Team"}, "want Name=Type"},
		{"an attribute of an unknown type", []string{"--search-attribute", "Team=String"}, `unknown type "String"`},
		{"a configuration value that is a bare word", []string{"--dynamic-config-value", "a.b=10ms"}, "is not JSON (a string needs its quotes)"},
		{"a retention below the server's minimum", []string{"--retention", "10m"}, "at least 1h"},
		{"an unknown log level", []string{"--log-level", "loud"}, "unknown --log-level"},
		{"an unknown log format", []string{"--log-format", "xml"}, "unknown --log-format"},
	}
	for _, c := range cases {
		_, err := parseFlags(c.args, io.Discard)
		require.ErrorContains(t, err, c.want, c.reason)
	}
}
