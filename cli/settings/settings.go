// Package settings is the configuration of Slipway: it defines the settings, reads and validates their values, and
// records where each value came from.
//
// The sources of a value, in order of precedence: the command's flag, the environment variable SLIPWAY_<NAME>, the YAML
// file in --config or SLIPWAY_CONFIG, the default. An empty environment variable counts as unset.
package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/source"
	"slipway.io/slipway/temporal/link"
)

// Settings are the values that a command runs with, described in their definitions. A setting that the command does not
// have (see Register) has its default value.
type Settings struct {
	Listen                  string
	APITokenFile            string
	APICertFile             string
	APIKeyFile              string
	APICAFile               string
	AllowedHosts            []string
	MaxEventStreams         int
	KusciaListen            string
	KusciaGRPCListen        string
	KusciaProtocol          string
	KusciaInsecure          bool
	KusciaCertFile          string
	KusciaKeyFile           string
	KusciaCAFile            string
	KusciaTokenFile         string
	WebhookListen           string
	WebhookURL              string
	WebhookService          string
	WebhookCertFile         string
	WebhookKeyFile          string
	Gate                    string
	MetricsListen           string
	TemporalAddress         string
	TemporalNamespace       string
	TemporalTLS             string
	TemporalCAFile          string
	TemporalCertFile        string
	TemporalKeyFile         string
	TemporalServerName      string
	TemporalAPIKeyFile      string
	TemporalCodecKeyDir     string
	TemporalUI              string
	CodecListen             string
	CodecCertFile           string
	CodecKeyFile            string
	CodecTokenFile          string
	Kubeconfig              string
	Context                 string
	Namespace               string
	EngineName              string
	ServingNamespace        string
	KubeQPS                 float32
	KubeBurst               int
	InstallCRDs             bool
	InstallGuard            bool
	Parties                 []string
	WatchNamespaces         []string
	ServingsInAnyNamespace  bool
	ServingPolicyFile       string
	BuildPolicyFile         string
	PackageListen           string
	PackageDir              string
	PackageBucket           string
	PackageS3Endpoint       string
	PackageS3Region         string
	PackageTokenFile        string
	PackageCertFile         string
	PackageKeyFile          string
	SourceAllow             []string
	PackageStore            string
	PackageStoreTokenFile   string
	PackageKeep             time.Duration
	PackageMaxBytes         int64
	PackageMaxUnpackedBytes int64
	Image                   string
	MaxConcurrentServices   int
	MaxConcurrentWorkloads  int
	UnreachableBudget       time.Duration
	RecordLimit             int
	WorkerVersioning        bool
	TraceEndpoint           string
	TraceSampleRatio        float32
	RollbackWindow          time.Duration
	LogLevel                string
	LogFormat               string
	ShutdownTimeout         time.Duration
	API                     string
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

// definition defines one setting. Values are text until they are applied; elements of a list are separated by commas.
type definition struct {
	name, defaultValue, description string
	// devDefault is the default for `slipway dev`, if it differs.
	devDefault string
	groups     []Group
	// choices are the values of an enumeration, for validation and shell completion.
	choices []string
	// neverEmpty rejects an empty flag, which is usually a mistake, such as an unset shell variable.
	neverEmpty bool
	// target points to the field for the value; its type determines how the value is parsed.
	target any
	// check validates a value beyond its type; it may be nil.
	check func(text string) error
}

type baseURL string

// kind returns the type of the setting as shown in the help.
func (d definition) kind() string {
	switch d.target.(type) {
	case *[]string:
		return kindList
	case *int:
		return "int"
	case *int64:
		return "size"
	case *float32:
		return "number"
	case *time.Duration:
		return "duration"
	case *bool:
		return kindBool
	}
	return kindText
}

const (
	kindText = "string"
	kindList = "list"
	kindBool = "bool"
)

// apply parses the value and stores it.
func (d definition) apply(text string) error {
	if len(d.choices) > 0 && !slices.Contains(d.choices, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(d.choices, ", "))
	}
	var err error
	switch into := d.target.(type) {
	case *string:
		*into = text
	case *baseURL:
		*into = baseURL(strings.TrimRight(text, "/"))
	case *[]string:
		*into = splitList(text)
	case *bool:
		*into = text == "true"
		if text != "true" && text != "false" {
			err = fmt.Errorf("%q must be true or false", text)
		}
	case *int:
		*into, err = positive(text)
	case *int64:
		*into, err = size(text)
	case *float32:
		*into, err = rate(text)
	case *time.Duration:
		*into, err = duration(text)
	}
	if err == nil && d.check != nil {
		err = d.check(text)
	}
	return err
}

var (
	engine       = []Group{Server, Worker, Dev}
	serverGroups = []Group{Server, Dev}
	workers      = []Group{Worker, Dev}
	// serverAndClient have settings on which server and client must agree.
	serverAndClient = []Group{Server, Dev, Client}
	// longRunning are the processes that run until they are stopped.
	longRunning  = []Group{Server, Worker, Dev, PackageServe, Codec}
	packageStore = []Group{PackageServe, Dev}
	// packageUsers read or write the package store.
	packageUsers = []Group{Worker, Dev, PackagePush}
)

// The values of Gate.
const (
	GateAuto    = "auto"
	GatePolicy  = "policy"
	GateWebhook = "webhook"
	GateOff     = "off"
)

// definitions returns all settings, in the order of the documentation. They store their values in s.
func definitions(s *Settings) []definition {
	return slices.Concat(listenerSettings(s), webhookSettings(s), packageSettings(s), temporalSettings(s),
		otherSettings(s))
}

// listenerSettings returns the settings of the listeners for requests.
func listenerSettings(s *Settings) []definition {
	return []definition{
		{name: "listen", defaultValue: "127.0.0.1:8080", groups: serverGroups, check: listenAddress, target: &s.Listen,
			description: "address of the HTTP API; port 0 selects a free port; an address other than loopback " +
				"requires --api-token-file or --api-ca-file"},
		{name: "api-token-file", groups: serverAndClient, target: &s.APITokenFile,
			description: "file with the token of the HTTP API: the server requires it, and creates the file if it " +
				"does not exist; other commands send it"},
		{name: "api-cert-file", groups: serverAndClient, target: &s.APICertFile,
			description: "TLS certificate for the HTTP API: of the server, or the client certificate of other commands"},
		{name: "api-key-file", groups: serverAndClient, target: &s.APIKeyFile,
			description: "key of that certificate"},
		{name: "api-ca-file", groups: serverAndClient, target: &s.APICAFile,
			description: "CA of the peer's certificate: the server then requires client certificates of this CA, and other " +
				"commands trust only servers of this CA"},
		{name: "allowed-hosts", groups: slices.Concat(engine, []Group{Codec}), check: each(hostName),
			target: &s.AllowedHosts,
			description: "allowed Host headers of requests, in addition to loopback and the listen addresses; " +
				"required behind a proxy or a Kubernetes Service"},
		{name: "max-event-streams", defaultValue: "1000", groups: serverGroups, check: atMost(100000),
			target:      &s.MaxEventStreams,
			description: "maximum number of open event streams of the HTTP API"},
		{name: "kuscia-listen", defaultValue: "127.0.0.1:8082", groups: serverGroups, check: optional(listenAddress),
			target:      &s.KusciaListen,
			description: "address of Kuscia's API over HTTP; port 0 selects a free port; empty: disabled"},
		{name: "kuscia-grpc-listen", defaultValue: "127.0.0.1:8083", groups: serverGroups,
			check: optional(listenAddress), target: &s.KusciaGRPCListen,
			description: "address of Kuscia's API over gRPC; port 0 selects a free port; empty: disabled"},
		{name: "kuscia-protocol", defaultValue: "NOTLS", groups: serverGroups,
			choices: []string{"NOTLS", "TLS", "MTLS"}, target: &s.KusciaProtocol,
			description: "protection of Kuscia's API: MTLS (requires a client certificate and the token), TLS " +
				"(requires the token) or NOTLS (requires neither; for loopback only)"},
		{name: "kuscia-insecure", defaultValue: "false", groups: serverGroups, target: &s.KusciaInsecure,
			description: "allow NOTLS for Kuscia's API on addresses other than loopback"},
		{name: "kuscia-cert-file", groups: serverGroups, target: &s.KusciaCertFile,
			description: "certificate of Kuscia's API, for TLS and MTLS"},
		{name: "kuscia-key-file", groups: serverGroups, target: &s.KusciaKeyFile,
			description: "key of that certificate"},
		{name: "kuscia-ca-file", groups: serverGroups, target: &s.KusciaCAFile,
			description: "CA of the client certificates for Kuscia's API, for MTLS"},
		{name: "kuscia-token-file", groups: serverGroups, target: &s.KusciaTokenFile,
			description: "file with the token of Kuscia's API, for TLS and MTLS; created if it does not exist"},
	}
}

// webhookSettings returns the settings of the webhooks that API servers call.
func webhookSettings(s *Settings) []definition {
	return []definition{
		{name: "webhook-listen", devDefault: "127.0.0.1:9443", groups: serverGroups,
			check: optional(fixedListenAddress), target: &s.WebhookListen,
			description: "address of the webhooks for the API server, required to serve v1alpha1 Rollouts; empty: " +
				"disabled"},
		{name: "webhook-url", groups: serverGroups, check: optional(secureURL), target: (*baseURL)(&s.WebhookURL),
			description: "base URL of the webhooks for the API server; empty: --webhook-listen, if that is a " +
				"loopback address"},
		{name: "webhook-service", groups: serverGroups, check: optional(serviceName), target: &s.WebhookService,
			description: "Service of the webhooks for the API server, as namespace/name or namespace/name:port " +
				"(default port: 443)"},
		{name: "webhook-cert-file", groups: serverGroups, target: &s.WebhookCertFile,
			description: "certificate chain of the webhooks; reloaded every ten minutes; empty: created and renewed " +
				"by the engine"},
		{name: "webhook-key-file", groups: serverGroups, target: &s.WebhookKeyFile,
			description: "key of that certificate"},
		{name: "gate", defaultValue: GateAuto, groups: serverGroups,
			choices: []string{GateAuto, GatePolicy, GateWebhook, GateOff}, target: &s.Gate,
			description: "how workloads named by Rollouts are held: by admission policies (slipway guard install), " +
				"by webhooks, or not at all; auto: policies if the API server supports them, otherwise webhooks"},
	}
}

// packageSettings returns the settings of the package store and of its users.
func packageSettings(s *Settings) []definition {
	return []definition{
		{name: "package-listen", defaultValue: "127.0.0.1:8085", groups: packageStore, check: listenAddress,
			target:      &s.PackageListen,
			description: "address of the package store; port 0 selects a free port"},
		{name: "package-dir", groups: packageStore, target: &s.PackageDir,
			description: "folder of the package store; if neither it nor --package-bucket is set, slipway dev runs " +
				"no package store"},
		{name: "package-bucket", groups: packageStore, check: optional(bucketURL), target: &s.PackageBucket,
			description: "bucket of the package store, instead of --package-dir, as s3://name or s3://name/prefix; " +
				"credentials are found as by other AWS programs: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
				"~/.aws/credentials, or a role"},
		{name: "package-s3-endpoint", defaultValue: "https://s3.amazonaws.com", groups: packageStore, check: httpURL,
			target:      (*baseURL)(&s.PackageS3Endpoint),
			description: "URL of the bucket's S3 service"},
		{name: "package-s3-region", groups: packageStore, target: &s.PackageS3Region,
			description: "region of the bucket; empty: detected"},
		{name: "package-token-file", groups: packageStore, target: &s.PackageTokenFile,
			description: "file with the token required for all requests to the package store except downloads; " +
				"created if it does not exist, reloaded when it changes; empty: the file token in --package-dir; " +
				"required with a bucket"},
		{name: "package-cert-file", groups: packageStore, target: &s.PackageCertFile,
			description: "certificate of the package store, for TLS"},
		{name: "package-key-file", groups: packageStore, target: &s.PackageKeyFile,
			description: "key of that certificate"},
		{name: "source-allow", defaultValue: "public", groups: workers, check: sourceAllow, target: &s.SourceAllow,
			description: "allowed sources of packages: public, or hosts, *.domains, addresses and networks, each " +
				"with an optional port"},
		{name: "package-store", groups: packageUsers, check: optional(httpURL), target: (*baseURL)(&s.PackageStore),
			description: "base URL of the party's package store, reachable from its pods; empty: pods download " +
				"packages from their source"},
		{name: "package-store-token-file", groups: packageUsers, target: &s.PackageStoreTokenFile,
			description: "file with the token of the package store; reloaded when it changes"},
		{name: "package-keep", defaultValue: "24h", groups: workers, target: &s.PackageKeep,
			description: "how long the store keeps packages that no pod template, revision or record refers to"},
		{name: "package-max-bytes", defaultValue: formatSize(source.DefaultLimits.Bytes),
			groups:      slices.Concat(packageUsers, packageStore),
			target:      &s.PackageMaxBytes,
			description: "maximum size of a package, in bytes or, for example, as 500Mi or 2Gi"},
		{name: "package-max-unpacked-bytes", defaultValue: formatSize(source.DefaultLimits.UnpackedBytes),
			groups: packageUsers, target: &s.PackageMaxUnpackedBytes,
			description: "maximum total size of the unpacked files of a package"},
		{name: "image", devDefault: "slipway:local", groups: workers, target: &s.Image,
			description: "Slipway image with which pods download and unpack packages; empty: items that deploy " +
				"packages are rejected"},
	}
}

// temporalSettings returns the settings of the connection to Temporal and of the encryption of its data.
func temporalSettings(s *Settings) []definition {
	return []definition{
		{name: "temporal-address", defaultValue: "127.0.0.1:7233", groups: engine, check: dialAddress,
			target:      &s.TemporalAddress,
			description: "address of the Temporal server"},
		{name: "temporal-namespace", defaultValue: "default", groups: engine, check: required,
			target:      &s.TemporalNamespace,
			description: "Temporal namespace of the engine"},
		{name: "temporal-tls", defaultValue: link.TLSAuto, groups: engine,
			choices: []string{link.TLSAuto, link.TLSOn, link.TLSOff}, target: &s.TemporalTLS,
			description: "whether to use TLS for the connection to Temporal; auto: if a CA, a certificate, a server " +
				"name or an API key is set"},
		{name: "temporal-ca-file", groups: engine, target: &s.TemporalCAFile,
			description: "CAs of Temporal's certificate; empty: the system's CAs; all files for the connection to " +
				"Temporal are reloaded when they change"},
		{name: "temporal-cert-file", groups: engine, target: &s.TemporalCertFile,
			description: "client certificate chain for Temporal"},
		{name: "temporal-key-file", groups: engine, target: &s.TemporalKeyFile,
			description: "key of that certificate"},
		{name: "temporal-server-name", groups: engine, target: &s.TemporalServerName,
			description: "server name in Temporal's certificate; empty: the host of --temporal-address"},
		{name: "temporal-api-key-file", groups: engine, target: &s.TemporalAPIKeyFile,
			description: "file with the API key for Temporal"},
		{name: "temporal-codec-key-dir", groups: slices.Concat(engine, []Group{Codec}), target: &s.TemporalCodecKeyDir,
			description: "folder with the keys that encrypt all release data in Temporal: one file per key, named by " +
				"its ID, and a file named current with the ID of the active key; all processes of an engine need the " +
				"same keys; empty: no encryption"},
		{name: "temporal-ui", defaultValue: "http://127.0.0.1:8233",
			groups: slices.Concat(serverGroups, []Group{Codec}), check: optional(httpURL),
			target:      (*baseURL)(&s.TemporalUI),
			description: "base URL of the Temporal Web UI, for links; slipway codec accepts requests from its pages"},
		{name: "codec-listen", defaultValue: "127.0.0.1:8086", groups: []Group{Codec}, check: listenAddress,
			target: &s.CodecListen,
			description: "address of the codec server; an address other than loopback requires --codec-token-file " +
				"and --codec-cert-file"},
		{name: "codec-cert-file", groups: []Group{Codec}, target: &s.CodecCertFile,
			description: "certificate of the codec server, for TLS"},
		{name: "codec-key-file", groups: []Group{Codec}, target: &s.CodecKeyFile,
			description: "key of that certificate"},
		{name: "codec-token-file", groups: []Group{Codec}, target: &s.CodecTokenFile,
			description: "file with the token of the codec server; created if it does not exist, reloaded when it " +
				"changes"},
	}
}

// otherSettings returns all other settings.
func otherSettings(s *Settings) []definition {
	return []definition{
		{name: "metrics-listen", groups: []Group{Worker}, check: optional(listenAddress), target: &s.MetricsListen,
			description: "address of a worker's /healthz, /readyz and /metrics; empty: disabled"},
		{name: "kubeconfig", groups: engine, target: &s.Kubeconfig,
			description: "kubeconfig file; empty: in-cluster, then KUBECONFIG, then ~/.kube/config"},
		{name: "context", groups: engine, target: &s.Context,
			description: "context of the kubeconfig; empty: the current context"},
		{name: "namespace", defaultValue: "slipway", groups: engine, check: namespaceName, target: &s.Namespace,
			description: "namespace of the engine in the home cluster"},
		{name: "engine-name", groups: serverGroups, check: optional(namespaceName), target: &s.EngineName,
			description: "display name of the engine, if several engines work on one cluster; empty: its namespace"},
		{name: "serving-namespace", defaultValue: "cross-domain", groups: engine, check: namespaceName,
			target: &s.ServingNamespace,
			description: "namespace of the home cluster with the KusciaDeployments of this engine's servings; two " +
				"engines on one cluster need different ones"},
		{name: "install-crds", defaultValue: "false", devDefault: "true", groups: serverGroups, target: &s.InstallCRDs,
			description: "install or update the custom resource definitions at startup"},
		{name: "install-guard", defaultValue: "true", groups: []Group{Dev}, target: &s.InstallGuard,
			description: "install the guard in the API server at startup, like slipway guard install"},
		{name: "party", groups: []Group{Worker}, neverEmpty: true, check: parties, target: &s.Parties,
			description: "serve only the queue of this party (alice, or alice=QUEUE if its Party object sets a " +
				"queue); can be repeated; empty: the engine's queue and the default party's"},
		{name: "watch-namespaces", groups: engine, check: each(namespaceName), target: &s.WatchNamespaces,
			description: "watch workloads and manage Rollout objects only in these namespaces; empty: all namespaces"},
		{name: "servings-in-any-namespace", defaultValue: "false", groups: workers, target: &s.ServingsInAnyNamespace,
			description: "allow servings in namespaces without the label slipway.io/servings=allowed"},
		{name: "serving-policy-file", groups: workers, target: &s.ServingPolicyFile,
			description: "YAML file with what the party allows in pods of servings; empty: all except privileges"},
		{name: "build-policy-file", groups: workers, target: &s.BuildPolicyFile,
			description: "YAML file with what the party allows in Jobs of builds; empty: as serving-policy-file"},
		{name: "max-concurrent-services", defaultValue: "50", groups: serverGroups, target: &s.MaxConcurrentServices,
			description: "maximum number of services of one task that are released at the same time"},
		{name: "max-concurrent-workloads", defaultValue: "100", groups: serverGroups, check: atMost(1000),
			target:      &s.MaxConcurrentWorkloads,
			description: "maximum number of workloads of one service that a PARALLEL release changes at once, up to 1000"},
		{name: "unreachable-budget", defaultValue: "120s", groups: serverGroups, check: wholeSeconds,
			target:      &s.UnreachableBudget,
			description: "how long a cluster may be unreachable before a release is interrupted"},
		{name: "record-limit", defaultValue: "50", groups: workers, target: &s.RecordLimit,
			description: "number of records of past releases to keep per plan"},
		{name: "worker-versioning", defaultValue: "true", groups: workers, target: &s.WorkerVersioning,
			description: "use Temporal Worker Versioning, so that the newest running build gets the work; set false " +
				"for a Temporal server without worker deployments"},
		{name: "rollback-window", defaultValue: "24h", groups: workers, target: &s.RollbackWindow,
			description: "how long after an upgrade you can return to the previous build: until then, new releases " +
				"record nothing that it does not understand"},
		{name: "kube-qps", defaultValue: "1000", groups: engine, target: &s.KubeQPS,
			description: "maximum requests per second of this process to one Kubernetes API server"},
		{name: "kube-burst", defaultValue: "2000", groups: engine, target: &s.KubeBurst,
			description: "maximum burst of requests to one Kubernetes API server"},
		{name: "trace-endpoint", groups: engine, check: optional(httpURL), target: (*baseURL)(&s.TraceEndpoint),
			description: "base URL of the OpenTelemetry collector for spans of requests and activities (OTLP over " +
				"HTTP); empty: no tracing"},
		{name: "trace-sample-ratio", defaultValue: "1", groups: engine, check: ratio, target: &s.TraceSampleRatio,
			description: "fraction of traces to send, greater than 0 and at most 1"},
		{name: "log-level", defaultValue: "info", groups: longRunning,
			choices: []string{"debug", "info", "warn", "error"}, target: &s.LogLevel,
			description: "minimum log level: debug, info, warn or error"},
		{name: "log-format", defaultValue: "text", groups: longRunning, choices: []string{"text", "json"},
			target:      &s.LogFormat,
			description: "log format: text or json"},
		{name: "shutdown-timeout", defaultValue: "20s", groups: longRunning, target: &s.ShutdownTimeout,
			description: "how long a process waits for running work when it is stopped"},
		{name: "api", defaultValue: "http://127.0.0.1:8080", groups: []Group{Client}, check: httpURL,
			target:      (*baseURL)(&s.API),
			description: "base URL of the Slipway API"},
	}
}

func (d definition) appliesTo(groups []Group) bool {
	return slices.ContainsFunc(d.groups, func(g Group) bool { return slices.Contains(groups, g) })
}

func (d definition) env() string { return EnvName(d.name) }

// EnvName returns the environment variable of a setting.
func EnvName(setting string) string {
	return "SLIPWAY_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// First returns the first setting of the group.
func First(group Group) string {
	all := definitions(&Settings{})
	return all[slices.IndexFunc(all, func(d definition) bool { return d.appliesTo([]Group{group}) })].name
}

func definitionOf(name string) (definition, bool) {
	all := definitions(&Settings{})
	n := slices.IndexFunc(all, func(d definition) bool { return d.name == name })
	if n < 0 {
		return definition{}, false
	}
	return all[n], true
}
