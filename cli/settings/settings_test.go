package settings

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// loadFrom parses the arguments for the groups and loads with that environment and, unless empty, that configuration file.
func loadFrom(t *testing.T, groups []Group, args []string, env map[string]string, file string) (Settings, Provenance, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "slipway.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		args = append(args, "--config", path)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Register(flags, groups...)
	require.NoError(t, flags.Parse(args))
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	lookup := func(name string) (string, bool) { value, ok := env[name]; return value, ok }
	result, provenance, err := load(flags, lookup, environ)
	return result, withoutFolder(provenance), hideFolder(err, provenance.File)
}

// withoutFolder leaves of each path its last element, since the folder of a test is random.
func withoutFolder(p Provenance) Provenance {
	for n := range p.Entries {
		if p.Entries[n].Source.Kind == fromFile {
			p.Entries[n].Source.Name = filepath.Base(p.Entries[n].Source.Name)
		}
	}
	return p
}

type hidden string

func (h hidden) Error() string { return string(h) }

func hideFolder(err error, file string) error {
	if err == nil || file == "" {
		return err
	}
	return hidden(strings.ReplaceAll(err.Error(), file, filepath.Base(file)))
}

func sourceOf(t *testing.T, p Provenance, name string) (value, source string) {
	t.Helper()
	for _, e := range p.Entries {
		if e.Name == name {
			return e.Value, e.Source.String()
		}
	}
	require.Failf(t, "no entry", "the provenance does not list %s", name)
	return "", ""
}

func TestPrecedenceAndProvenance(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		groups  []Group
		args    []string
		env     map[string]string
		file    string
		setting string
		value   string
		source  string
	}{
		"Default": {
			reason: "With nothing given, the default counts and says so.",
			groups: []Group{Server}, setting: "listen", value: "127.0.0.1:8080", source: "default",
		},
		"FileOverDefault": {
			reason: "The file wins over the default, and its line is named.",
			groups: []Group{Server}, file: "# addresses\nlisten: 127.0.0.1:9001\n", setting: "listen",
			value: "127.0.0.1:9001", source: "file slipway.yaml:2",
		},
		"EnvOverFile": {
			reason: "The environment wins over the file.",
			groups: []Group{Server}, file: "listen: 127.0.0.1:9001\n", env: map[string]string{"SLIPWAY_LISTEN": "127.0.0.1:9002"},
			setting: "listen", value: "127.0.0.1:9002", source: "env SLIPWAY_LISTEN",
		},
		"FlagOverEnv": {
			reason: "The flag wins over everything.",
			groups: []Group{Server}, file: "listen: 127.0.0.1:9001\n", env: map[string]string{"SLIPWAY_LISTEN": "127.0.0.1:9002"},
			args: []string{"--listen", "127.0.0.1:9003"}, setting: "listen", value: "127.0.0.1:9003", source: "flag --listen",
		},
		"FlagWithDefaultsValue": {
			reason: "A flag that repeats the default still wins over the environment: it was given.",
			groups: []Group{Server}, env: map[string]string{"SLIPWAY_LISTEN": "127.0.0.1:9002"},
			args: []string{"--listen", "127.0.0.1:8080"}, setting: "listen", value: "127.0.0.1:8080", source: "flag --listen",
		},
		"EmptyEnv": {
			reason: "An empty variable counts as absent, as compose files pass on variables that are not set.",
			groups: []Group{Server}, env: map[string]string{"SLIPWAY_LISTEN": ""}, setting: "listen", value: "127.0.0.1:8080", source: "default",
		},
		"EmptyFlag": {
			reason: "An empty flag is a value: it switches a worker's listener off again.",
			groups: []Group{Worker}, env: map[string]string{"SLIPWAY_METRICS_LISTEN": ":9090"}, args: []string{"--metrics-listen", ""},
			setting: "metrics-listen", value: "", source: "flag --metrics-listen",
		},
		"RepeatedFlag": {
			reason: "A list's flag may be repeated, each with several parts; a part given twice counts once.",
			groups: []Group{Worker}, args: []string{"--party", "alice,bob", "--party", "carol=own.queue", "--party", "bob"},
			setting: "party", value: "alice,bob,carol=own.queue", source: "flag --party",
		},
		"ListInFile": {
			reason: "A list in the file may be a YAML sequence.",
			groups: []Group{Worker}, file: "watch-namespaces: [shop, bank]\n", setting: "watch-namespaces", value: "shop,bank",
			source: "file slipway.yaml:1",
		},
		"FlagReplacesListOfFile": {
			reason: "A list is replaced by the stronger source, never joined with it.",
			groups: []Group{Worker}, file: "watch-namespaces: [shop, bank]\n", args: []string{"--watch-namespaces", "post"},
			setting: "watch-namespaces", value: "post", source: "flag --watch-namespaces",
		},
		"DevInstallsDefinitions": {
			reason: "Dev's own default of install-crds is true.",
			groups: []Group{Dev}, setting: "install-crds", value: "true", source: "default",
		},
		"DevHasItsOwnImage": {
			reason: "Dev's image is the one that is built here.",
			groups: []Group{Dev}, setting: "image", value: "slipway:local", source: "default",
		},
		"WorkerHasNoImage": {
			reason: "A worker has to be told its image.",
			groups: []Group{Worker}, setting: "image", value: "", source: "default",
		},
		"ServerDoesNot": {
			reason: "A server does not install definitions unless told.",
			groups: []Group{Server}, setting: "install-crds", value: "false", source: "default",
		},
		"BoolFlagAlone": {
			reason: "A switch needs no value.",
			groups: []Group{Server}, args: []string{"--install-crds"}, setting: "install-crds", value: "true", source: "flag --install-crds",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, provenance, err := loadFrom(t, c.groups, c.args, c.env, c.file)
			require.NoError(t, err, c.reason)
			value, source := sourceOf(t, provenance, c.setting)
			require.Equal(t, c.value, value, c.reason)
			require.Equal(t, c.source, source, c.reason)
		})
	}
}

func TestConfigFileByEnvironment(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "own.yaml")
	require.NoError(t, os.WriteFile(path, []byte("log-level: debug\n"), 0o600))
	result, provenance, err := loadFrom(t, []Group{Server}, nil, map[string]string{EnvConfig: path}, "")
	require.NoError(t, err)
	require.Equal(t, "debug", result.LogLevel, "SLIPWAY_CONFIG names the file when no flag does")
	require.Equal(t, path, provenance.File)

	result, _, err = loadFrom(t, []Group{Server}, nil, map[string]string{EnvConfig: path}, "log-level: warn\n")
	require.NoError(t, err)
	require.Equal(t, "warn", result.LogLevel, "--config wins over SLIPWAY_CONFIG")
}

func TestEverySettingReachesItsField(t *testing.T) {
	t.Parallel()
	file := `
listen: "0.0.0.0:1"
api-token-file: /etc/slipway/token
api-cert-file: /etc/slipway/crt
api-key-file: /etc/slipway/key
api-ca-file: /etc/slipway/ca
allowed-hosts: [slipway.example, 10.0.0.7]
max-event-streams: 12
kuscia-listen: "0.0.0.0:8"
kuscia-grpc-listen: "0.0.0.0:9"
kuscia-protocol: MTLS
kuscia-insecure: true
kuscia-cert-file: /etc/kuscia/crt
kuscia-key-file: /etc/kuscia/key
kuscia-ca-file: /etc/kuscia/ca
kuscia-token-file: /etc/kuscia/token
webhook-listen: 0.0.0.0:7
webhook-url: https://webhooks.example/
webhook-service: slipway/slipway:8443
webhook-cert-file: /etc/webhook/crt
webhook-key-file: /etc/webhook/key
gate: webhook
metrics-listen: ":2"
temporal-address: temporal:3
temporal-namespace: prod
temporal-tls: "on"
temporal-ca-file: /etc/temporal/ca
temporal-cert-file: /etc/temporal/crt
temporal-key-file: /etc/temporal/key
temporal-server-name: temporal.example
temporal-api-key-file: /etc/temporal/api-key
temporal-codec-key-dir: /etc/codec
temporal-ui: https://temporal.example/ui/
codec-listen: 0.0.0.0:6
codec-cert-file: /etc/codec.crt
codec-key-file: /etc/codec.key
codec-token-file: /etc/codec.token
kubeconfig: /etc/kube
context: home
namespace: engine
engine-name: blue
serving-namespace: servings
install-crds: true
install-guard: true
party: [alice]
watch-namespaces: shop, bank
servings-in-any-namespace: true
serving-policy-file: /etc/slipway/servings.yaml
build-policy-file: /etc/slipway/builds.yaml
package-listen: 0.0.0.0:5
package-dir: /var/lib/packages
package-bucket: s3://packages/slipway
package-s3-endpoint: https://s3.example/
package-s3-region: eu-north-1
package-token-file: /etc/packages/token
package-cert-file: /etc/packages/crt
package-key-file: /etc/packages/key
source-allow: [public, "10.0.0.0/8:443"]
package-store: https://packages.example/
package-store-token-file: /etc/store/token
package-keep: 36h
package-max-bytes: 500Mi
package-max-unpacked-bytes: 1000000
image: registry.example/slipway:2
max-concurrent-services: 7
max-concurrent-workloads: 11
unreachable-budget: 30s
record-limit: 8
worker-versioning: true
rollback-window: 48h
trace-endpoint: http://collector.example:4318/
trace-sample-ratio: 0.5
kube-qps: 2.5
kube-burst: 9
log-level: warn
log-format: json
shutdown-timeout: 1m
api: http://slipway.example:80/
`
	want := Settings{
		KusciaListen: "0.0.0.0:8", KusciaGRPCListen: "0.0.0.0:9", KusciaProtocol: "MTLS", KusciaInsecure: true,
		KusciaCertFile: "/etc/kuscia/crt", KusciaKeyFile: "/etc/kuscia/key", KusciaCAFile: "/etc/kuscia/ca", KusciaTokenFile: "/etc/kuscia/token",
		WebhookListen: "0.0.0.0:7", WebhookURL: "https://webhooks.example", WebhookService: "slipway/slipway:8443",
		WebhookCertFile: "/etc/webhook/crt", WebhookKeyFile: "/etc/webhook/key", Gate: "webhook",
		APITokenFile: "/etc/slipway/token", APICertFile: "/etc/slipway/crt", APIKeyFile: "/etc/slipway/key", APICAFile: "/etc/slipway/ca",
		AllowedHosts: []string{"slipway.example", "10.0.0.7"}, MaxEventStreams: 12,
		Listen: "0.0.0.0:1", MetricsListen: ":2", TemporalAddress: "temporal:3", TemporalNamespace: "prod",
		TemporalTLS: "on", TemporalCAFile: "/etc/temporal/ca", TemporalCertFile: "/etc/temporal/crt", TemporalKeyFile: "/etc/temporal/key",
		TemporalServerName: "temporal.example", TemporalAPIKeyFile: "/etc/temporal/api-key", TemporalCodecKeyDir: "/etc/codec",
		CodecListen: "0.0.0.0:6", CodecCertFile: "/etc/codec.crt", CodecKeyFile: "/etc/codec.key", CodecTokenFile: "/etc/codec.token",
		TemporalUI: "https://temporal.example/ui", Kubeconfig: "/etc/kube", Context: "home", Namespace: "engine",
		EngineName: "blue", ServingNamespace: "servings", InstallCRDs: true, InstallGuard: true,
		PackageListen: "0.0.0.0:5", PackageDir: "/var/lib/packages", PackageBucket: "s3://packages/slipway", PackageS3Endpoint: "https://s3.example",
		PackageS3Region: "eu-north-1", PackageTokenFile: "/etc/packages/token",
		PackageCertFile: "/etc/packages/crt", PackageKeyFile: "/etc/packages/key", SourceAllow: []string{"public", "10.0.0.0/8:443"}, PackageStore: "https://packages.example",
		PackageStoreTokenFile: "/etc/store/token", PackageKeep: 36 * time.Hour, PackageMaxBytes: 500 << 20, PackageMaxUnpackedBytes: 1000000, Image: "registry.example/slipway:2",
		Parties: []string{"alice"}, WatchNamespaces: []string{"shop", "bank"}, ServingsInAnyNamespace: true, ServingPolicyFile: "/etc/slipway/servings.yaml", BuildPolicyFile: "/etc/slipway/builds.yaml", MaxConcurrentServices: 7, MaxConcurrentWorkloads: 11,
		UnreachableBudget: 30 * time.Second,
		RecordLimit:       8, WorkerVersioning: true, RollbackWindow: 48 * time.Hour, TraceEndpoint: "http://collector.example:4318", TraceSampleRatio: 0.5, KubeQPS: 2.5, KubeBurst: 9, LogLevel: "warn", LogFormat: "json", ShutdownTimeout: time.Minute,
		API: "http://slipway.example:80",
	}
	result, provenance, err := loadFrom(t, Groups, nil, nil, file)
	require.NoError(t, err)
	require.Equal(t, want, result, "a setting that is accepted is honoured")
	require.Len(t, provenance.Entries, len(definitions(&Settings{})), "the provenance lists every setting")

	env := map[string]string{}
	for _, e := range provenance.Entries {
		env[e.Env] = e.Value
	}
	result, provenance, err = loadFrom(t, Groups, nil, env, "")
	require.NoError(t, err)
	require.Equal(t, want, result, "each setting can be given by its environment variable")
	require.Empty(t, provenance.UnknownEnv)
	for _, e := range provenance.Entries {
		require.Equal(t, "env "+e.Env, e.Source.String())
	}
}

func TestProblemsAreReportedAllAtOnce(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		groups []Group
		args   []string
		env    map[string]string
		file   string
		want   string
	}{
		"SeveralSources": {
			reason: "Every problem is named in one go, each with its setting and source.",
			groups: []Group{Server},
			args:   []string{"--listen", "127.0.0.1:70000"},
			env:    map[string]string{"SLIPWAY_UNREACHABLE_BUDGET": "120"},
			file:   "log-level: loud\nkube-burst: -1\nrecord-limit: 0\n",
			want: `5 settings are wrong:
  listen (flag --listen): "127.0.0.1:70000" has no usable port: want a number from 0 to 65535
  unreachable-budget (env SLIPWAY_UNREACHABLE_BUDGET): "120" is not a duration; examples are 90s, 2m and 1h30m
  record-limit (file slipway.yaml:3): 0 is too small: want at least 1
  kube-burst (file slipway.yaml:2): -1 is too small: want at least 1
  log-level (file slipway.yaml:1): "loud" is not one of debug, info, warn, error`,
		},
		"StrictFile": {
			reason: "Unknown, repeated, empty and ill-formed entries of the file are refused with their lines.",
			groups: []Group{Server},
			file:   "lisen: 127.0.0.1:1\nlisten: 127.0.0.1:1\nlisten: 127.0.0.1:2\ncontext:\nnamespace: [a]\nwibble-wobble: 1\nparty: [{a: b}]\n",
			want: `6 settings are wrong:
  slipway.yaml:1: unknown setting "lisen"; did you mean listen?
  slipway.yaml:3: listen is set a second time; the first time is on line 2
  slipway.yaml:4: context has no value: give one or remove the line
  slipway.yaml:5: namespace: want a single value of type string
  slipway.yaml:6: unknown setting "wibble-wobble"; ` + "`slipway config`" + ` lists them all
  slipway.yaml:7: party: want a list of single values`,
		},
		"OtherSpelling": {
			reason: "A key in the spelling of another program is met with the right one.",
			groups: []Group{Server}, file: "temporal_address: a:1\n",
			want: `a setting is wrong: slipway.yaml:1: unknown setting "temporal_address"; did you mean temporal-address?`,
		},
		"NotAMapping": {
			reason: "A file of another shape is refused.",
			groups: []Group{Server}, file: "- listen\n",
			want: "a setting is wrong: slipway.yaml:1: want settings as `name: value`, one on each line",
		},
		"TwoDocuments": {
			reason: "A second document would be ignored, so it is refused.",
			groups: []Group{Server}, file: "listen: a:1\n---\nlisten: a:2\n",
			want: "a setting is wrong: slipway.yaml: holds more than one document: want one",
		},
		"OtherCommandsSetting": {
			reason: "A file may serve every command, so a client checks the server's entries as well.",
			groups: []Group{Client}, file: "listen: nowhere\n",
			want: `a setting is wrong: listen (file slipway.yaml:1): "nowhere" is not host:port; an example is 127.0.0.1:8080`,
		},
		"NegativeDuration": {
			reason: "A negative time is refused.",
			groups: []Group{Server}, args: []string{"--shutdown-timeout=-5s"},
			want: "a setting is wrong: shutdown-timeout (flag --shutdown-timeout): -5s is too short: want more than 0s",
		},
		"FractionOfASecond": {
			reason: "The budget travels in seconds: a fraction would be dropped silently.",
			groups: []Group{Server}, args: []string{"--unreachable-budget=1500ms"},
			want: "a setting is wrong: unreachable-budget (flag --unreachable-budget): 1500ms is not a whole number of seconds",
		},
		"NoHost": {
			reason: "One cannot dial every interface.",
			groups: []Group{Server}, args: []string{"--temporal-address", ":7233"},
			want: `a setting is wrong: temporal-address (flag --temporal-address): ":7233" names no host; an example is 127.0.0.1:7233`,
		},
		"NotAURL": {
			reason: "An address without a scheme is no URL.",
			groups: []Group{Client}, args: []string{"--api", "127.0.0.1:8080"},
			want: `a setting is wrong: api (flag --api): "127.0.0.1:8080" is not a URL that starts with http:// or https:// and names a host`,
		},
		"NotANumber": {
			reason: "NaN is a number to the parser and none to a rate.",
			groups: []Group{Server}, args: []string{"--kube-qps", "NaN"},
			want: "a setting is wrong: kube-qps (flag --kube-qps): NaN is out of range: want more than 0 and less than 1000000",
		},
		"WrongNames": {
			reason: "Names that Kubernetes would refuse are refused here.",
			groups: []Group{Worker}, args: []string{"--party", "alice,Bob"},
			env: map[string]string{"SLIPWAY_NAMESPACE": "a_b", "SLIPWAY_INSTALL_CRDS": "yes"},
			want: `2 settings are wrong:
  namespace (env SLIPWAY_NAMESPACE): "a_b" is not a namespace: want lower-case letters, digits and -, at most 63
  party (flag --party): "Bob" is not the name of a party: want lower-case letters, digits, - and ., at most 63`,
		},
		"NoQueue": {
			reason: "A party's own queue has a name.",
			groups: []Group{Worker}, args: []string{"--party", "alice="},
			want: `a setting is wrong: party (flag --party): "alice=" names no queue after the =: want 1 to 255 characters`,
		},
		"TwoQueues": {
			reason: "A worker that polls a queue of nobody looks well and does nothing.",
			groups: []Group{Worker}, args: []string{"--party", "a=b=c"},
			want: `a setting is wrong: party (flag --party): "a=b=c" has a second =: want PARTY or PARTY=QUEUE`,
		},
		"QueueWithoutParty": {
			reason: "A queue belongs to a party.",
			groups: []Group{Worker}, args: []string{"--party", "=b"},
			want: `a setting is wrong: party (flag --party): "" is not the name of a party: want lower-case letters, digits, - and ., at most 63`,
		},
		"EmptyParty": {
			reason: "A shell variable that is not set must not make the centre's worker out of a party's.",
			groups: []Group{Worker}, args: []string{"--party", ""},
			want: "a setting is wrong: party (flag --party): names nothing: leave the flag out, or give a value",
		},
		"EmptyPartyAmongOthers": {
			reason: "Nor may the variable of one party of several be dropped silently.",
			groups: []Group{Worker}, args: []string{"--party", "alice", "--party", ""},
			want: `a setting is wrong: party (flag --party): "alice," has an empty party among the others: remove it, or name it`,
		},
		"QueueWithBlank": {
			reason: "A blank in a queue's name is a slip.",
			groups: []Group{Worker}, env: map[string]string{"SLIPWAY_PARTY": "alice=my queue"},
			want: `a setting is wrong: party (env SLIPWAY_PARTY): "alice=my queue" names a queue with a blank or a character that cannot be printed: want the queue of the Party object`,
		},
		"EnginesQueue": {
			reason: "A party's worker would take the engine's work and fail at it.",
			groups: []Group{Worker}, file: "party: [alice=slipway]\n",
			want: `a setting is wrong: party (file slipway.yaml:1): "alice=slipway" names the engine's own queue, which a party's worker cannot serve: want the queue of the Party object`,
		},
		"NoSource": {
			reason: "An entry that allows nothing, or more than it says, is refused.",
			groups: []Group{Worker}, args: []string{"--source-allow", "public", "--source-allow", "http://a.example"},
			want: `a setting is wrong: source-allow (flag --source-allow): entry "http://a.example" of SLIPWAY_SOURCE_ALLOW: this is a URL: write the host, with a port or without`,
		},
		"NoSizes": {
			reason: "A size is a number of bytes with or without a unit, and more than nothing.",
			groups: []Group{Worker}, args: []string{"--package-max-bytes", "2 GB"}, env: map[string]string{"SLIPWAY_PACKAGE_MAX_UNPACKED_BYTES": "0"},
			want: `2 settings are wrong:
  package-max-bytes (flag --package-max-bytes): "2 GB" is not a size; examples are 500Mi, 2Gi and 1048576
  package-max-unpacked-bytes (env SLIPWAY_PACKAGE_MAX_UNPACKED_BYTES): 0 is too small: want at least 1 byte`,
		},
		"NotABool": {
			reason: "Only true and false are.",
			groups: []Group{Server}, env: map[string]string{"SLIPWAY_INSTALL_CRDS": "yes"},
			want: `a setting is wrong: install-crds (env SLIPWAY_INSTALL_CRDS): "yes" is neither true nor false`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := loadFrom(t, c.groups, c.args, c.env, c.file)
			require.EqualError(t, err, c.want, c.reason)
		})
	}
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	_, provenance, err := loadFrom(t, []Group{Server}, []string{"--config", "no-such-file.yaml"}, nil, "")
	require.ErrorContains(t, err, "the configuration file cannot be read: open no-such-file.yaml")
	require.NotEmpty(t, provenance.Entries, "the table can be shown in spite of it")
}

func TestEmptyFileIsLegal(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"# nothing yet\n", "---\n...\n", "{}\n"} {
		_, _, err := loadFrom(t, []Group{Server}, nil, nil, file)
		require.NoError(t, err, "a file that sets nothing is a file: %q", file)
	}
}

func TestUnknownEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{"SLIPWAY_LISTEM": "x", "SLIPWAY_LISTEN": "a:1", "PATH": "/bin", "SLIPWAY_DEV_BIN": "x",
		"SLIPWAY_TEST_BIN": "x", "SLIPWAY-LISTEN": "y"}
	_, provenance, err := loadFrom(t, []Group{Server}, nil, env, "")
	require.NoError(t, err, "Kubernetes sets SLIPWAY_PORT and the like by itself, so it cannot be an error")
	require.Equal(t, []string{"SLIPWAY_LISTEM"}, provenance.UnknownEnv)
}

func TestUnregisteredSettingsHoldTheirDefaults(t *testing.T) {
	t.Parallel()
	result, provenance, err := loadFrom(t, []Group{Client}, nil, map[string]string{"SLIPWAY_KUBE_BURST": "x"}, "kube-burst: 3\n")
	require.NoError(t, err, "the environment of another command's setting is not looked at")
	require.Equal(t, 2000, result.KubeBurst)
	require.Len(t, provenance.Entries, 5)
}

func TestProvenanceAsJSON(t *testing.T) {
	t.Parallel()
	_, provenance, err := loadFrom(t, []Group{Client}, []string{"--api", "http://a"}, nil, "")
	require.NoError(t, err)
	provenance.Entries = provenance.Entries[len(provenance.Entries)-1:]
	text, err := json.Marshal(provenance)
	require.NoError(t, err)
	require.JSONEq(t, `{"settings":[{"name":"api","value":"http://a","source":"flag --api","env":"SLIPWAY_API","description":"base URL of the Slipway API"}]}`, string(text))
}
