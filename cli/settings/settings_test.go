package settings

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/source"
	"slipway.io/slipway/temporal/link"
)

// loadFrom parses the arguments for the groups, and loads with this environment and, unless empty, this configuration
// file.
func loadFrom(t *testing.T, groups []Group, args []string, env map[string]string, file string) (Settings, Provenance,
	error) {
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
	result, provenance, err := load(flags, func(name string) string { return env[name] }, environ)
	return result, withoutFolder(provenance), hideFolder(err, provenance.File)
}

// withoutFolder removes the test's temporary folder from the paths.
func withoutFolder(p Provenance) Provenance {
	for n, e := range p.Entries {
		if p.File != "" {
			p.Entries[n].Source = Source(strings.ReplaceAll(string(e.Source), p.File, filepath.Base(p.File)))
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
			return e.Value, string(e.Source)
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
			reason: "Without a value the default is used, and its source is default.",
			groups: []Group{Server}, setting: "listen", value: "127.0.0.1:8080", source: "default",
		},
		"FileOverDefault": {
			reason: "The file takes precedence over the default, and its line is named.",
			groups: []Group{Server}, file: "# addresses\nlisten: 127.0.0.1:9001\n", setting: "listen",
			value: "127.0.0.1:9001", source: "file slipway.yaml:2",
		},
		"EnvOverFile": {
			reason: "The environment takes precedence over the file.",
			groups: []Group{Server}, file: "listen: 127.0.0.1:9001\n",
			env:     map[string]string{"SLIPWAY_LISTEN": "127.0.0.1:9002"},
			setting: "listen", value: "127.0.0.1:9002", source: "env SLIPWAY_LISTEN",
		},
		"FlagOverEnv": {
			reason: "The flag takes precedence over all other sources.",
			groups: []Group{Server}, file: "listen: 127.0.0.1:9001\n",
			env:  map[string]string{"SLIPWAY_LISTEN": "127.0.0.1:9002"},
			args: []string{"--listen", "127.0.0.1:9003"}, setting: "listen", value: "127.0.0.1:9003",
			source: "flag --listen",
		},
		"FlagWithDefaultsValue": {
			reason: "A flag with the default's value still takes precedence over the environment.",
			groups: []Group{Server}, env: map[string]string{"SLIPWAY_LISTEN": "127.0.0.1:9002"},
			args: []string{"--listen", "127.0.0.1:8080"}, setting: "listen", value: "127.0.0.1:8080",
			source: "flag --listen",
		},
		"EmptyEnv": {
			reason: "An empty variable counts as unset, because compose files pass unset variables on as empty.",
			groups: []Group{Server}, env: map[string]string{"SLIPWAY_LISTEN": ""}, setting: "listen",
			value: "127.0.0.1:8080", source: "default",
		},
		"EmptyFlag": {
			reason: "An empty flag is a value: it disables a worker's listener.",
			groups: []Group{Worker}, env: map[string]string{"SLIPWAY_METRICS_LISTEN": ":9090"},
			args:    []string{"--metrics-listen", ""},
			setting: "metrics-listen", value: "", source: "flag --metrics-listen",
		},
		"RepeatedFlag": {
			reason: "The flag of a list may be repeated, each with several elements; duplicates are dropped.",
			groups: []Group{Worker}, args: []string{"--party", "alice,bob", "--party", "carol=own.queue", "--party",
				"bob"},
			setting: "party", value: "alice,bob,carol=own.queue", source: "flag --party",
		},
		"ListInFile": {
			reason: "A list in the file may be a YAML sequence.",
			groups: []Group{Worker}, file: "watch-namespaces: [shop, bank]\n", setting: "watch-namespaces",
			value:  "shop,bank",
			source: "file slipway.yaml:1",
		},
		"FlagReplacesListOfFile": {
			reason: "A list is replaced by the source with precedence, not merged.",
			groups: []Group{Worker}, file: "watch-namespaces: [shop, bank]\n",
			args:    []string{"--watch-namespaces", "post"},
			setting: "watch-namespaces", value: "post", source: "flag --watch-namespaces",
		},
		"DevInstallsDefinitions": {
			reason: "The default of install-crds in dev is true.",
			groups: []Group{Dev}, setting: "install-crds", value: "true", source: "default",
		},
		"DevHasItsOwnImage": {
			reason: "The default image in dev is the local build.",
			groups: []Group{Dev}, setting: "image", value: "slipway:local", source: "default",
		},
		"WorkerHasNoImage": {
			reason: "A worker has no default image.",
			groups: []Group{Worker}, setting: "image", value: "", source: "default",
		},
		"ServerDoesNot": {
			reason: "A server does not install definitions by default.",
			groups: []Group{Server}, setting: "install-crds", value: "false", source: "default",
		},
		"BoolFlagAlone": {
			reason: "A boolean flag needs no value.",
			groups: []Group{Server}, args: []string{"--install-crds"}, setting: "install-crds", value: "true",
			source: "flag --install-crds",
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
	require.Equal(t, "debug", result.LogLevel, "SLIPWAY_CONFIG is used without --config")
	require.Equal(t, path, provenance.File)

	result, _, err = loadFrom(t, []Group{Server}, nil, map[string]string{EnvConfig: path}, "log-level: warn\n")
	require.NoError(t, err)
	require.Equal(t, "warn", result.LogLevel, "--config takes precedence over SLIPWAY_CONFIG")
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
trusted-proxies: [10.0.0.0/8, "fd00::7"]
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
webhook-client-ca-file: /etc/webhook/clients
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
codec-require: true
temporal-ui: https://temporal.example/ui/
temporal-ui-upstream: http://temporal-ui:8080
temporal-ui-listen: 0.0.0.0:12
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
own-account: off
engine-identity: [anna, "system:serviceaccount:other:engine"]
party: [alice]
watch-namespaces: shop, bank
servings-in-any-namespace: true
traffic-kinds: [httpproxies.projectcontour.io]
tenant-scripts: [shop]
release-policy-file: /etc/slipway/releases.yaml
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
package-store-ca-file: /etc/store/ca
package-temp-bytes: 3Gi
package-keep: 36h
package-max-bytes: 500Mi
package-max-unpacked-bytes: 1000000
image: registry.example/slipway:2
max-concurrent-services: 7
max-concurrent-workloads: 11
unreachable-budget: 30s
record-limit: 8
worker-versioning: true
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
		KusciaCertFile: "/etc/kuscia/crt", KusciaKeyFile: "/etc/kuscia/key", KusciaCAFile: "/etc/kuscia/ca",
		KusciaTokenFile: "/etc/kuscia/token",
		WebhookListen:   "0.0.0.0:7", WebhookURL: "https://webhooks.example", WebhookService: "slipway/slipway:8443",
		WebhookCertFile: "/etc/webhook/crt", WebhookKeyFile: "/etc/webhook/key",
		WebhookClientCA: "/etc/webhook/clients", Gate: "webhook",
		APITokenFile: "/etc/slipway/token", APICertFile: "/etc/slipway/crt", APIKeyFile: "/etc/slipway/key",
		APICAFile:    "/etc/slipway/ca",
		AllowedHosts: []string{"slipway.example", "10.0.0.7"}, TrustedProxies: []string{"10.0.0.0/8", "fd00::7"},
		MaxEventStreams: 12,
		Listen:          "0.0.0.0:1", MetricsListen: ":2", TemporalAddress: "temporal:3", TemporalNamespace: "prod",
		TemporalTLS: "on", TemporalCAFile: "/etc/temporal/ca", TemporalCertFile: "/etc/temporal/crt",
		TemporalKeyFile:    "/etc/temporal/key",
		TemporalServerName: "temporal.example", TemporalAPIKeyFile: "/etc/temporal/api-key",
		TemporalCodecKeyDir: "/etc/codec", CodecRequire: true,
		CodecListen: "0.0.0.0:6", CodecCertFile: "/etc/codec.crt", CodecKeyFile: "/etc/codec.key",
		CodecTokenFile: "/etc/codec.token",
		TemporalUI:     "https://temporal.example/ui", TemporalUIUpstream: "http://temporal-ui:8080",
		TemporalUIListen: "0.0.0.0:12", Kubeconfig: "/etc/kube", Context: "home", Namespace: "engine",
		OwnAccount: OwnAccountOff, EngineIdentity: []string{"anna", "system:serviceaccount:other:engine"},
		EngineName: "blue", ServingNamespace: "servings", InstallCRDs: true, InstallGuard: true,
		PackageListen: "0.0.0.0:5", PackageDir: "/var/lib/packages", PackageBucket: "s3://packages/slipway",
		PackageS3Endpoint: "https://s3.example",
		PackageS3Region:   "eu-north-1", PackageTokenFile: "/etc/packages/token",
		PackageCertFile: "/etc/packages/crt", PackageKeyFile: "/etc/packages/key",
		SourceAllow: []string{"public", "10.0.0.0/8:443"}, PackageStore: "https://packages.example",
		PackageStoreTokenFile: "/etc/store/token",
		PackageStoreCAFile:    "/etc/store/ca", PackageTempBytes: 3 << 30, PackageKeep: 36 * time.Hour,
		PackageMaxBytes:         500 << 20,
		PackageMaxUnpackedBytes: 1000000, Image: "registry.example/slipway:2",
		Parties: []string{"alice"}, WatchNamespaces: []string{"shop", "bank"}, ServingsInAnyNamespace: true,
		TrafficKinds: []string{"httpproxies.projectcontour.io"}, TenantScripts: []string{"shop"},
		ReleasePolicyFile: "/etc/slipway/releases.yaml",
		ServingPolicyFile: "/etc/slipway/servings.yaml", BuildPolicyFile: "/etc/slipway/builds.yaml",
		MaxConcurrentServices: 7, MaxConcurrentWorkloads: 11,
		UnreachableBudget: 30 * time.Second,
		RecordLimit:       8, WorkerVersioning: true,
		TraceEndpoint: "http://collector.example:4318", TraceSampleRatio: 0.5, KubeQPS: 2.5, KubeBurst: 9,
		LogLevel: "warn", LogFormat: "json", ShutdownTimeout: time.Minute,
		API: "http://slipway.example:80",
	}
	result, provenance, err := loadFrom(t, Groups, nil, nil, file)
	require.NoError(t, err)
	require.Equal(t, want, result, "every setting is stored in its field")
	require.Len(t, provenance.Entries, len(definitions), "the provenance lists every setting")

	env := map[string]string{}
	for _, e := range provenance.Entries {
		env[e.Env] = e.Value
	}
	result, provenance, err = loadFrom(t, Groups, nil, env, "")
	require.NoError(t, err)
	require.Equal(t, want, result, "each setting can be set by its environment variable")
	require.Empty(t, provenance.UnknownEnv)
	for _, e := range provenance.Entries {
		require.Equal(t, "env "+e.Env, string(e.Source))
	}
}

// A misspelt tag or value of a tag would be ignored.
func TestDeclarations_AreComplete(t *testing.T) {
	t.Parallel()
	tags := []string{"name", "for", "default", "dev", "choices", "max", "check", "empty", "help"}
	for _, d := range definitions {
		for _, pair := range regexp.MustCompile(`(\w+):"`).FindAllStringSubmatch(string(d.Tag), -1) {
			require.Contains(t, tags, pair[1], d.name)
		}
		require.Regexp(t, `^[a-z0-9-]+$`, d.name, "it is also the name of an environment variable")
		require.NotEmpty(t, d.help, d.name)
		require.Contains(t, kinds, d.Type, d.name)
		for _, group := range strings.Fields(d.Tag.Get("for")) {
			require.Contains(t, Groups, Group(group), d.name)
		}
		if check := d.Tag.Get("check"); check != "" {
			require.Contains(t, checks, check, d.name)
		}
		require.Contains(t, []string{"", "yes", "no"}, d.Tag.Get("empty"), d.name)
		require.NoError(t, d.set(&Settings{}, d.defaultValue), "%s: a command without the setting has its default", d.name)
	}
	for _, group := range Groups {
		_, provenance, err := loadFrom(t, []Group{group}, nil, nil, "")
		require.NoError(t, err, "the defaults of %s are valid", group)
		require.NotEmpty(t, provenance.Entries, "%s has settings", group)
	}
}

// Tags contain only literals: those that other packages define must agree with them.
func TestLiteralsInTags_AgreeWithTheirPackages(t *testing.T) {
	t.Parallel()
	defaults, _, err := loadFrom(t, Groups, nil, nil, "")
	require.NoError(t, err)
	require.Equal(t, source.DefaultLimits.Bytes, defaults.PackageMaxBytes)
	require.Equal(t, source.DefaultLimits.UnpackedBytes, defaults.PackageMaxUnpackedBytes)
	for name, choices := range map[string][]string{
		"temporal-tls": {link.TLSAuto, link.TLSOn, link.TLSOff},
		"gate":         {GateAuto, GatePolicy, GateWebhook, GateOff},
		"own-account":  {OwnAccountAuto, OwnAccountOff},
	} {
		d, _ := definitionOf(name)
		require.Equal(t, choices, d.choices, name)
	}
}

func TestLoad_ReportsAllErrorsTogether(t *testing.T) {
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
			reason: "All errors are reported, each with its setting and source.",
			groups: []Group{Server},
			args:   []string{"--listen", "127.0.0.1:70000"},
			env:    map[string]string{"SLIPWAY_UNREACHABLE_BUDGET": "2 min"},
			file:   "log-level: loud\nkube-burst: -1\nrecord-limit: 0\n",
			want: `5 invalid settings:
  listen (flag --listen): "127.0.0.1:70000" has no valid port: want a number from 0 to 65535
  unreachable-budget (env SLIPWAY_UNREACHABLE_BUDGET): "2 min" is not a duration: use, for example, 90 (in seconds), 90s, 5m or 1h30m
  record-limit (file slipway.yaml:3): 0 is too small: want at least 1
  kube-burst (file slipway.yaml:2): -1 is too small: want at least 1
  log-level (file slipway.yaml:1): "loud" is not one of debug, info, warn, error`,
		},
		"StrictFile": {
			reason: "Unknown, repeated, empty and malformed entries of the file are rejected with their lines.",
			groups: []Group{Server},
			file: "lisen: 127.0.0.1:1\nlisten: 127.0.0.1:1\nlisten: 127.0.0.1:2\ncontext:\nnamespace: " +
				"[a]\nwibble-wobble: 1\nparty: [{a: b}]\n",
			want: `6 invalid settings:
  slipway.yaml:1: unknown setting "lisen"; did you mean listen?
  slipway.yaml:3: listen is set twice; first on line 2
  slipway.yaml:4: context has no value: set one or remove the line
  slipway.yaml:5: namespace: want a single value of type string
  slipway.yaml:6: unknown setting "wibble-wobble"; list them with ` + "`slipway config`" + `
  slipway.yaml:7: party: want a list of single values`,
		},
		"OtherSpelling": {
			reason: "A misspelt key is corrected.",
			groups: []Group{Server}, file: "temporal_address: a:1\n",
			want: `invalid setting: slipway.yaml:1: unknown setting "temporal_address"; did you mean temporal-address?`,
		},
		"NotAMapping": {
			reason: "A file that is not a mapping is rejected.",
			groups: []Group{Server}, file: "- listen\n",
			want: "invalid setting: slipway.yaml:1: want one setting per line, as `name: value`",
		},
		"TwoDocuments": {
			reason: "A second document would be ignored, so it is rejected.",
			groups: []Group{Server}, file: "listen: a:1\n---\nlisten: a:2\n",
			want: "invalid setting: slipway.yaml: contains more than one document: want one",
		},
		"OtherCommandsSetting": {
			reason: "A file may be used by all commands, so a client validates the server's entries too.",
			groups: []Group{Client}, file: "listen: nowhere\n",
			want: `invalid setting: listen (file slipway.yaml:1): "nowhere" is not host:port: use, for example, 127.0.0.1:8080`,
		},
		"NegativeDuration": {
			reason: "A negative duration is rejected.",
			groups: []Group{Server}, args: []string{"--shutdown-timeout=-5s"},
			want: "invalid setting: shutdown-timeout (flag --shutdown-timeout): -5s is too short: want more than 0s",
		},
		"FractionOfASecond": {
			reason: "The budget is transmitted in seconds: a fraction would be lost.",
			groups: []Group{Server}, args: []string{"--unreachable-budget=1500ms"},
			want: "invalid setting: unreachable-budget (flag --unreachable-budget): 1500ms is not a whole number of " +
				"seconds",
		},
		"NoHost": {
			reason: "An address to connect to needs a host.",
			groups: []Group{Server}, args: []string{"--temporal-address", ":7233"},
			want: `invalid setting: temporal-address (flag --temporal-address): ":7233" has no host: use, for example, 127.0.0.1:7233`,
		},
		"NotANetwork": {
			reason: "A proxy is trusted by its address, not by a name.",
			groups: []Group{Server}, args: []string{"--trusted-proxies", "10.0.0.7,10.0.0.0/33"},
			want: `invalid setting: trusted-proxies (flag --trusted-proxies): "10.0.0.0/33" is neither a network nor an address: use, for example, 10.0.0.0/8 or 10.0.0.7`,
		},
		"NotAURL": {
			reason: "An address without a scheme is not a URL.",
			groups: []Group{Client}, args: []string{"--api", "127.0.0.1:8080"},
			want: `invalid setting: api (flag --api): "127.0.0.1:8080" is not an http:// or https:// URL with a host`,
		},
		"NotANumber": {
			reason: "The parser accepts NaN, but a rate must not be NaN.",
			groups: []Group{Server}, args: []string{"--kube-qps", "NaN"},
			want: "invalid setting: kube-qps (flag --kube-qps): NaN is out of range: want more than 0 and less than " +
				"1000000",
		},
		"WrongNames": {
			reason: "Names that Kubernetes would reject are rejected.",
			groups: []Group{Worker}, args: []string{"--party", "alice,Bob"},
			env: map[string]string{"SLIPWAY_NAMESPACE": "a_b", "SLIPWAY_INSTALL_CRDS": "yes"},
			want: `2 invalid settings:
  namespace (env SLIPWAY_NAMESPACE): "a_b" is not a namespace: want lower-case letters, digits and -, at most 63
  party (flag --party): "Bob" is not a party name: want lower-case letters, digits, - and ., at most 63`,
		},
		"NoQueue": {
			reason: "The queue of a party must not be empty.",
			groups: []Group{Worker}, args: []string{"--party", "alice="},
			want: `invalid setting: party (flag --party): "alice=" has no valid queue after the =: want 1 to 255 characters`,
		},
		"TwoQueues": {
			reason: "A worker that polls an unused queue looks healthy, but does nothing.",
			groups: []Group{Worker}, args: []string{"--party", "a=b=c"},
			want: `invalid setting: party (flag --party): "a=b=c" has a second =: want PARTY or PARTY=QUEUE`,
		},
		"QueueWithoutParty": {
			reason: "A queue needs a party.",
			groups: []Group{Worker}, args: []string{"--party", "=b"},
			want: `invalid setting: party (flag --party): "" is not a party name: want lower-case letters, digits, - and ., at most 63`,
		},
		"EmptyParty": {
			reason: "An unset shell variable must not turn a party's worker into the centre's.",
			groups: []Group{Worker}, args: []string{"--party", ""},
			want: "invalid setting: party (flag --party): is empty: set a value or remove the flag",
		},
		"EmptyPartyAmongOthers": {
			reason: "An unset variable for one of several parties is rejected too.",
			groups: []Group{Worker}, args: []string{"--party", "alice", "--party", ""},
			want: `invalid setting: party (flag --party): "alice," contains an empty party: remove it, or set its name`,
		},
		"QueueWithBlank": {
			reason: "A space in a queue's name is rejected.",
			groups: []Group{Worker}, env: map[string]string{"SLIPWAY_PARTY": "alice=my queue"},
			want: `invalid setting: party (env SLIPWAY_PARTY): "alice=my queue" has a queue with a space or an unprintable character: want the queue of the Party object`,
		},
		"EnginesQueue": {
			reason: "A party's worker cannot execute the engine's tasks.",
			groups: []Group{Worker}, file: "party: [alice=slipway]\n",
			want: `invalid setting: party (file slipway.yaml:1): "alice=slipway" has the engine's own queue, which a party's worker cannot serve: want the queue of the Party object`,
		},
		"NoSource": {
			reason: "An entry that is a URL is rejected.",
			groups: []Group{Worker}, args: []string{"--source-allow", "public", "--source-allow", "http://a.example"},
			want: `invalid setting: source-allow (flag --source-allow): entry "http://a.example" of SLIPWAY_SOURCE_ALLOW: this is a URL: write the host, with a port or without`,
		},
		"NoSizes": {
			reason: "A size is a positive number of bytes with an optional unit.",
			groups: []Group{Worker}, args: []string{"--package-max-bytes", "2 GB"},
			env: map[string]string{"SLIPWAY_PACKAGE_MAX_UNPACKED_BYTES": "0"},
			want: `2 invalid settings:
  package-max-bytes (flag --package-max-bytes): "2 GB" is not a size: use, for example, 500Mi, 2Gi or 1048576
  package-max-unpacked-bytes (env SLIPWAY_PACKAGE_MAX_UNPACKED_BYTES): 0 is too small: want at least 1 byte`,
		},
		"NotABool": {
			reason: "Only true and false are accepted.",
			groups: []Group{Server}, env: map[string]string{"SLIPWAY_INSTALL_CRDS": "yes"},
			want: `invalid setting: install-crds (env SLIPWAY_INSTALL_CRDS): "yes" must be true or false`,
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
	require.ErrorContains(t, err, "cannot read the configuration file: open no-such-file.yaml")
	require.NotEmpty(t, provenance.Entries, "the table can be shown nevertheless")
}

func TestEmptyFile_IsAccepted(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"# nothing yet\n", "---\n...\n", "{}\n"} {
		_, _, err := loadFrom(t, []Group{Server}, nil, nil, file)
		require.NoError(t, err, "a file without settings is accepted: %q", file)
	}
}

func TestUnknownEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{"SLIPWAY_LISTEM": "x", "SLIPWAY_LISTEN": "a:1", "PATH": "/bin", "SLIPWAY_DEV_BIN": "x",
		"SLIPWAY_TEST_BIN": "x", "SLIPWAY-LISTEN": "y"}
	_, provenance, err := loadFrom(t, []Group{Server}, nil, env, "")
	require.NoError(t, err, "Kubernetes itself sets SLIPWAY_PORT and others, so it is not an error")
	require.Equal(t, []string{"SLIPWAY_LISTEM"}, provenance.UnknownEnv)
}

func TestUnregisteredSettings_HaveDefaults(t *testing.T) {
	t.Parallel()
	result, provenance, err := loadFrom(t, []Group{Client}, nil, map[string]string{"SLIPWAY_KUBE_BURST": "x"},
		"kube-burst: 3\n")
	require.NoError(t, err, "environment variables of other commands' settings are ignored")
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
	require.JSONEq(t,
		`{"settings":[{"name":"api","value":"http://a","source":"flag --api","env":"SLIPWAY_API","description":"base URL of the Slipway API"}]}`, string(text))
}
