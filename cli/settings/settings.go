// Package settings is the configuration of Slipway: it declares the settings, reads and validates their values, and
// records where each value came from.
//
// The sources of a value, in order of precedence: the command's flag, the environment variable SLIPWAY_<NAME>, the YAML
// file in --config or SLIPWAY_CONFIG, the default. An empty environment variable counts as unset.
package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/release/strictyaml"
)

// Settings are the values that a command runs with. A setting that the command does not have (see Register) has its
// default value.
//
// Each field declares one setting, in the order of the documentation. Its type determines how the value is parsed (see
// kinds). Its tags:
//
//	name     the name: of the flag, of the key in the file, and, in upper case, of the environment variable
//	for      the groups of commands that have the setting
//	default  the default; "" without this tag
//	dev      the default of `slipway dev`, if it differs
//	choices  the values of an enumeration, also for shell completion
//	max      the largest number
//	check    how to validate a value, or each element of a list (see checks)
//	empty    yes: an empty value is valid, as it always is if it is the default; no: it is refused in a flag and among
//	         the elements of a list, because it is probably a mistake, such as an unset shell variable
//	help     the description in the help of the command and in `slipway config`
type Settings struct {
	// The listeners for requests.
	Listen           string   `name:"listen" for:"server dev" default:"127.0.0.1:8080" check:"listen" help:"address of the HTTP API; port 0 selects a free port; an address other than loopback requires --api-token-file or --api-ca-file"`
	APITokenFile     string   `name:"api-token-file" for:"server dev client" help:"file with the token of the HTTP API, at least 32 characters: the server requires it, creates the file if it does not exist, and reloads it when it changes; other commands send it"`
	APICertFile      string   `name:"api-cert-file" for:"server dev client" help:"TLS certificate for the HTTP API: of the server, or the client certificate of other commands"`
	APIKeyFile       string   `name:"api-key-file" for:"server dev client" help:"key of that certificate"`
	APICAFile        string   `name:"api-ca-file" for:"server dev client" help:"CA of the peer's certificate: the server then requires client certificates of this CA, and other commands trust only servers of this CA"`
	AllowedHosts     []string `name:"allowed-hosts" for:"server worker dev codec package-serve" check:"host" help:"allowed Host headers of requests, in addition to loopback and the listen addresses; required behind a proxy or a Kubernetes Service"`
	TrustedProxies   []string `name:"trusted-proxies" for:"server dev" check:"network" help:"networks, as 10.0.0.0/8, and addresses of proxies whose X-Forwarded-For names the client, for the log and limits by address; empty: none"`
	MaxEventStreams  int      `name:"max-event-streams" for:"server dev" default:"1000" max:"100000" help:"maximum number of open event streams of the HTTP API"`
	KusciaListen     string   `name:"kuscia-listen" for:"server dev" default:"127.0.0.1:8082" check:"listen" empty:"yes" help:"address of Kuscia's API over HTTP; port 0 selects a free port; empty: disabled"`
	KusciaGRPCListen string   `name:"kuscia-grpc-listen" for:"server dev" default:"127.0.0.1:8083" check:"listen" empty:"yes" help:"address of Kuscia's API over gRPC; port 0 selects a free port; empty: disabled"`
	KusciaProtocol   string   `name:"kuscia-protocol" for:"server dev" default:"NOTLS" choices:"NOTLS TLS MTLS" help:"protection of Kuscia's API: MTLS (requires a client certificate and the token), TLS (requires the token) or NOTLS (requires the token of the HTTP API if that has one; for loopback only)"`
	KusciaInsecure   bool     `name:"kuscia-insecure" for:"server dev" default:"false" help:"allow NOTLS for Kuscia's API on addresses other than loopback"`
	KusciaCertFile   string   `name:"kuscia-cert-file" for:"server dev" help:"certificate of Kuscia's API, for TLS and MTLS"`
	KusciaKeyFile    string   `name:"kuscia-key-file" for:"server dev" help:"key of that certificate"`
	KusciaCAFile     string   `name:"kuscia-ca-file" for:"server dev" help:"CA of the client certificates for Kuscia's API, for MTLS"`
	KusciaTokenFile  string   `name:"kuscia-token-file" for:"server dev" help:"file with the token of Kuscia's API, at least 32 characters, for TLS and MTLS; created if it does not exist, reloaded when it changes"`

	// The webhooks that API servers call.
	WebhookListen    string `name:"webhook-listen" for:"server dev" dev:"127.0.0.1:9443" check:"fixed-listen" help:"address of the webhooks for the API server, required to serve v1alpha1 Rollouts; empty: disabled"`
	WebhookURL       string `name:"webhook-url" for:"server dev" check:"https-url" help:"base URL of the webhooks for the API server; empty: --webhook-listen, if that is a loopback address"`
	WebhookService   string `name:"webhook-service" for:"server dev" check:"service" help:"Service of the webhooks for the API server, as namespace/name or namespace/name:port (default port: 443)"`
	WebhookCertFile  string `name:"webhook-cert-file" for:"server dev" help:"certificate chain of the webhooks; reloaded within ten minutes; empty: created and renewed by the engine, with --register-webhooks"`
	WebhookKeyFile   string `name:"webhook-key-file" for:"server dev" help:"key of that certificate"`
	WebhookClientCA  string `name:"webhook-client-ca-file" for:"server dev" help:"CAs of API servers: only clients with a certificate of one of them are served by the gate's webhook; empty: every client that reaches it"`
	RegisterWebhooks bool   `name:"register-webhooks" for:"server dev" default:"false" dev:"true" help:"register the webhooks with the API server, by writing the conversion of the definition of Rollouts and the configuration of the gate's webhook; false: an administrator has installed them (the Helm chart, or slipway guard install), and /readyz says what is missing"`
	Gate             string `name:"gate" for:"server dev" default:"auto" choices:"auto policy webhook off" help:"how workloads named by Rollouts are held: by admission policies (slipway guard install), by webhooks, or not at all; auto: policies if they are installed, otherwise webhooks"`

	// The package store and its users.
	PackageListen           string        `name:"package-listen" for:"package-serve dev" default:"127.0.0.1:8085" check:"listen" help:"address of the package store; port 0 selects a free port"`
	PackageDir              string        `name:"package-dir" for:"package-serve dev" help:"folder of the package store; if neither it nor --package-bucket is set, slipway dev runs no package store"`
	PackageBucket           string        `name:"package-bucket" for:"package-serve dev" check:"bucket" help:"bucket of the package store, instead of --package-dir, as s3://name or s3://name/prefix; credentials are found as by other AWS programs: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials, or a role"`
	PackageS3Endpoint       string        `name:"package-s3-endpoint" for:"package-serve dev" default:"https://s3.amazonaws.com" check:"url" help:"URL of the bucket's S3 service"`
	PackageS3Region         string        `name:"package-s3-region" for:"package-serve dev" help:"region of the bucket; empty: detected"`
	PackageTokenFile        string        `name:"package-token-file" for:"package-serve dev" help:"file with the token required for all requests to the package store except downloads; created if it does not exist, reloaded when it changes; empty: the file token in --package-dir; required with a bucket"`
	PackageCertFile         string        `name:"package-cert-file" for:"package-serve dev" help:"certificate of the package store, for TLS"`
	PackageKeyFile          string        `name:"package-key-file" for:"package-serve dev" help:"key of that certificate"`
	SourceAllow             []string      `name:"source-allow" for:"worker dev" default:"public" check:"source" help:"allowed sources of packages: public, or hosts, *.domains, addresses and networks, each with an optional port"`
	PackageStore            string        `name:"package-store" for:"worker dev package-push" check:"url" help:"base URL of the party's package store, reachable from its pods; empty: pods download packages from their source"`
	PackageStoreTokenFile   string        `name:"package-store-token-file" for:"worker dev package-push" help:"file with the token of the package store; reloaded when it changes"`
	PackageStoreCAFile      string        `name:"package-store-ca-file" for:"worker dev package-push" help:"CAs of the certificate of the package store, which this process and its pods trust for the store only; reloaded when it changes; empty: those of the system"`
	PackageKeep             time.Duration `name:"package-keep" for:"worker dev" default:"24h" help:"how long the store keeps packages that no pod template, revision or record refers to"`
	PackageMaxBytes         int64         `name:"package-max-bytes" for:"worker dev package-push package-serve" default:"2Gi" help:"maximum size of a package, in bytes or, for example, as 500Mi or 2Gi"`
	PackageTempBytes        int64         `name:"package-temp-bytes" for:"worker dev package-serve" default:"8Gi" help:"maximum total size of unfinished packages on disk, the downloads of a worker or the uploads to a package store; further ones are repeated later; at least --package-max-bytes"`
	PackageMaxUnpackedBytes int64         `name:"package-max-unpacked-bytes" for:"worker dev package-push" default:"8Gi" help:"maximum total size of the unpacked files of a package"`
	Image                   string        `name:"image" for:"worker dev" dev:"slipway:local" help:"Slipway image with which pods download and unpack packages; empty: items that deploy packages are rejected"`

	// The connection to Temporal and the encryption of its data.
	TemporalAddress     string `name:"temporal-address" for:"server worker dev" default:"127.0.0.1:7233" check:"dial" help:"address of the Temporal server"`
	TemporalNamespace   string `name:"temporal-namespace" for:"server worker dev" default:"default" check:"not-empty" help:"Temporal namespace of the engine"`
	TemporalTLS         string `name:"temporal-tls" for:"server worker dev" default:"auto" choices:"auto on off" help:"whether to use TLS for the connection to Temporal; auto: if a CA, a certificate, a server name or an API key is set"`
	TemporalCAFile      string `name:"temporal-ca-file" for:"server worker dev" help:"CAs of Temporal's certificate; empty: the system's CAs; all files for the connection to Temporal are reloaded when they change"`
	TemporalCertFile    string `name:"temporal-cert-file" for:"server worker dev" help:"client certificate chain for Temporal"`
	TemporalKeyFile     string `name:"temporal-key-file" for:"server worker dev" help:"key of that certificate"`
	TemporalServerName  string `name:"temporal-server-name" for:"server worker dev" help:"server name in Temporal's certificate; empty: the host of --temporal-address"`
	TemporalAPIKeyFile  string `name:"temporal-api-key-file" for:"server worker dev" help:"file with the API key for Temporal"`
	TemporalCodecKeyDir string `name:"temporal-codec-key-dir" for:"server worker dev codec" help:"folder with the keys that encrypt all release data in Temporal: one file per key, named by its ID, and a file named current with the ID of the active key; all processes of an engine need the same keys; empty: no encryption"`
	CodecRequire        bool   `name:"codec-require" for:"server worker dev" default:"false" help:"refuse what Temporal delivers unencrypted, except empty payloads, and send nothing unencrypted; requires --temporal-codec-key-dir with a current key"`
	TemporalUI          string `name:"temporal-ui" for:"server dev codec" default:"http://127.0.0.1:8233" check:"url" empty:"yes" help:"base URL of the Temporal Web UI, for links; slipway codec accepts requests from its pages"`
	TemporalUIUpstream  string `name:"temporal-ui-upstream" for:"server dev" check:"url" help:"URL of Temporal's own server of its Web UI, which the server publishes on --temporal-ui-listen with the hosts, the origins and the credentials of the HTTP API; empty: not published"`
	TemporalUIListen    string `name:"temporal-ui-listen" for:"server dev" default:"127.0.0.1:8233" check:"listen" help:"address of the published Temporal Web UI; browsers send the token of --api-token-file as the password of any user; port 0 selects a free port"`
	CodecListen         string `name:"codec-listen" for:"codec" default:"127.0.0.1:8086" check:"listen" help:"address of the codec server; an address other than loopback requires --codec-token-file and --codec-cert-file"`
	CodecCertFile       string `name:"codec-cert-file" for:"codec" help:"certificate of the codec server, for TLS"`
	CodecKeyFile        string `name:"codec-key-file" for:"codec" help:"key of that certificate"`
	CodecTokenFile      string `name:"codec-token-file" for:"codec" help:"file with the token of the codec server; created if it does not exist, reloaded when it changes"`

	// All others.
	MetricsListen          string        `name:"metrics-listen" for:"worker" check:"listen" help:"address of a worker's /healthz, /readyz and /metrics; empty: disabled"`
	Kubeconfig             string        `name:"kubeconfig" for:"server worker dev" help:"kubeconfig file; empty: in-cluster, then KUBECONFIG, then ~/.kube/config"`
	Context                string        `name:"context" for:"server worker dev" help:"context of the kubeconfig; empty: the current context"`
	OwnAccount             string        `name:"own-account" for:"server worker dev" default:"auto" choices:"auto off" help:"whether a process whose kubeconfig is a person's makes itself a service account with the rights of deploy/rbac, and acts as that; off: it acts as that person, whose edits then pass the guard and the gate wherever the engine's do"`
	Namespace              string        `name:"namespace" for:"server worker dev" default:"slipway" check:"namespace" help:"namespace of the engine in the home cluster"`
	EngineName             string        `name:"engine-name" for:"server worker dev" check:"namespace" help:"display name of the engine, if several engines work on one cluster, the same for servers and workers; empty: its namespace"`
	ServingNamespace       string        `name:"serving-namespace" for:"server worker dev" default:"cross-domain" check:"namespace" help:"namespace of the home cluster with the KusciaDeployments of this engine's servings; two engines on one cluster need different ones"`
	InstallCRDs            bool          `name:"install-crds" for:"server dev" default:"false" dev:"true" help:"install or update the custom resource definitions at startup"`
	InstallGuard           bool          `name:"install-guard" for:"dev" default:"true" help:"install the guard in the API server at startup, like slipway guard install"`
	EngineIdentity         []string      `name:"engine-identity" for:"server dev" check:"identity" empty:"no" help:"users whose edits pass the guard and the gate that this process installs, in addition to its own account: those of other engines, and of parties' workers, on the cluster; can be repeated"`
	Parties                []string      `name:"party" for:"worker" check:"party" empty:"no" help:"serve only the queue of this party (alice, or alice=QUEUE if its Party object sets a queue); can be repeated; empty: the engine's queue and the default party's"`
	WatchNamespaces        []string      `name:"watch-namespaces" for:"server worker dev" check:"namespace" help:"watch workloads and manage Rollout objects only in these namespaces; empty: all namespaces"`
	ServingsInAnyNamespace bool          `name:"servings-in-any-namespace" for:"worker dev" default:"false" help:"allow servings in namespaces without the label slipway.io/servings=allowed"`
	TrafficKinds           []string      `name:"traffic-kinds" for:"worker dev" check:"traffic-kind" help:"kinds of objects that rollouts may route by, as resource.group, in place of the default: Ingresses, the routes of the Gateway API, Istio's VirtualService and DestinationRule, and each kind that a script of the administrator's is for"`
	TenantScripts          []string      `name:"tenant-scripts" for:"worker dev" check:"namespace" help:"namespaces whose own ConfigMap slipway-traffic-scripts is used for their workloads; empty: only the administrator's scripts are used"`
	RequireGate            bool          `name:"require-gate" for:"worker dev" default:"false" help:"refuse what neither the admission policies of the guard nor the webhooks have checked: releases of Rollouts and TrafficRoutings of which nothing proves that their authors may change the objects that these refer to, and commands in the status of Rollouts whose sender nothing in the API server verifies; false: warn, and record the sender as unverified"`
	ReleasePolicyFile      string        `name:"release-policy-file" for:"worker dev" help:"YAML file with what the party allows in the pods of all releases: rollouts, plans, servings and builds; empty: the preset baseline with --party, otherwise everything"`
	ServingPolicyFile      string        `name:"serving-policy-file" for:"worker dev" help:"YAML file with what the party allows in pods of servings; empty: all except privileges"`
	BuildPolicyFile        string        `name:"build-policy-file" for:"worker dev" help:"YAML file with what the party allows in Jobs of builds; empty: as serving-policy-file"`
	MaxConcurrentServices  int           `name:"max-concurrent-services" for:"server dev" default:"50" help:"maximum number of services of one task that are released at the same time"`
	MaxConcurrentWorkloads int           `name:"max-concurrent-workloads" for:"server dev" default:"100" max:"1000" help:"maximum number of workloads of one service that a PARALLEL release changes at once, up to 1000"`
	UnreachableBudget      time.Duration `name:"unreachable-budget" for:"server worker dev" default:"120s" check:"whole-seconds" help:"how long a cluster may be unreachable before a release is interrupted"`
	RecordLimit            int           `name:"record-limit" for:"worker dev" default:"50" help:"number of records of past releases to keep per plan"`
	WorkerVersioning       bool          `name:"worker-versioning" for:"worker dev" default:"true" help:"use Temporal Worker Versioning, so that the newest running build gets the work; set false for a Temporal server without worker deployments"`
	KubeQPS                float32       `name:"kube-qps" for:"server worker dev" default:"1000" help:"maximum requests per second of this process to one Kubernetes API server"`
	KubeBurst              int           `name:"kube-burst" for:"server worker dev" default:"2000" help:"maximum burst of requests to one Kubernetes API server"`
	TraceEndpoint          string        `name:"trace-endpoint" for:"server worker dev" check:"url" help:"base URL of the OpenTelemetry collector for spans of requests and activities (OTLP over HTTP); empty: no tracing"`
	TraceSampleRatio       float32       `name:"trace-sample-ratio" for:"server worker dev" default:"1" max:"1" help:"fraction of traces to send, greater than 0 and at most 1"`
	LogLevel               string        `name:"log-level" for:"server worker dev package-serve codec" default:"info" choices:"debug info warn error" help:"minimum log level: debug, info, warn or error"`
	LogFormat              string        `name:"log-format" for:"server worker dev package-serve codec" default:"text" choices:"text json" help:"log format: text or json"`
	ShutdownTimeout        time.Duration `name:"shutdown-timeout" for:"server worker dev package-serve codec" default:"20s" help:"how long a process waits for running work when it is stopped"`
	API                    string        `name:"api" for:"client" default:"http://127.0.0.1:8080" check:"url" help:"base URL of the Slipway API"`
}

// Group is a command, or a family of commands, that has settings.
type Group string

// The groups. Dev runs the server and the worker in one process and has the settings of both.
const (
	Server Group = "server"
	Worker Group = "worker"
	Dev    Group = "dev"
	Client Group = "client"
	// PackageServe and PackagePush are `slipway package serve` and `slipway package push`.
	PackageServe Group = "package-serve"
	PackagePush  Group = "package-push"
	// Codec is the codec server of the Temporal UI.
	Codec Group = "codec"
)

// Groups are all groups, in the order of the documentation.
var Groups = []Group{Server, Worker, Dev, Client, PackageServe, PackagePush, Codec}

// The values of OwnAccount.
const (
	OwnAccountAuto = "auto"
	OwnAccountOff  = "off"
)

// The values of Gate.
const (
	GateAuto    = "auto"
	GatePolicy  = "policy"
	GateWebhook = "webhook"
	GateOff     = "off"
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
