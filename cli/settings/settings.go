// Package settings is the configuration of Slipway: what can be set, from where each value came, and whether the values are sound.
//
// A value is taken from the first of these that has one: the command's flag, the environment variable SLIPWAY_<NAME>, the YAML file
// named by --config or SLIPWAY_CONFIG, the default. An empty environment variable counts as absent.
package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/source"
	"slipway.io/slipway/temporal/link"
)

// Settings are the values that a command runs with; what each of them means stands in its definition. A setting that the command
// does not take (Register) holds its default.
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

// Group is a command, or a family of commands, that takes settings.
type Group string

// The groups. Dev runs the server and the worker in one process and takes what both take.
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

// Groups are all groups, in the order in which people read them.
var Groups = []Group{Server, Worker, Dev, Client, PackageServe, PackagePush, Codec}

// definition says everything about one setting. Values travel as text until they are applied; a list's parts are separated by commas.
type definition struct {
	name, fallback, description string
	// inDev is the default of `slipway dev`, where that is another.
	inDev  string
	groups []Group
	// choices are the values of an enumeration, for errors and shell completion.
	choices []string
	// neverEmpty: an empty flag is no value but a slip, such as a shell variable that is not set.
	neverEmpty bool
	// into is where the value goes; its type says how it is read.
	into any
	// check says what is wrong with a value and what would be right, beyond its type; it may be nil.
	check func(text string) error
}

type baseURL string

// kind is the type of the setting as the help shows it.
func (d definition) kind() string {
	switch d.into.(type) {
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

// apply reads the value from text.
func (d definition) apply(text string) error {
	if len(d.choices) > 0 && !slices.Contains(d.choices, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(d.choices, ", "))
	}
	var err error
	switch into := d.into.(type) {
	case *string:
		*into = text
	case *baseURL:
		*into = baseURL(strings.TrimRight(text, "/"))
	case *[]string:
		*into = splitList(text)
	case *bool:
		*into = text == "true"
		if text != "true" && text != "false" {
			err = fmt.Errorf("%q is neither true nor false", text)
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
	engine   = []Group{Server, Worker, Dev}
	frontEnd = []Group{Server, Dev}
	workers  = []Group{Worker, Dev}
	// bothEnds are the settings that server and client have to agree about.
	bothEnds = []Group{Server, Dev, Client}
	// logging are the processes that run until they are asked to end.
	logging      = []Group{Server, Worker, Dev, PackageServe, Codec}
	packageStore = []Group{PackageServe, Dev}
	// packageUsers are those that read or write the store of packages.
	packageUsers = []Group{Worker, Dev, PackagePush}
)

// The values of Gate.
const (
	GateAuto    = "auto"
	GatePolicy  = "policy"
	GateWebhook = "webhook"
	GateOff     = "off"
)

// definitions are all settings, in the order of the documentation, with their values in s.
func definitions(s *Settings) []definition {
	return slices.Concat(frontDoors(s), webhooks(s), packages(s), temporal(s), behindThem(s))
}

// frontDoors are the settings of what listens for requests.
func frontDoors(s *Settings) []definition {
	return []definition{
		{name: "listen", fallback: "127.0.0.1:8080", groups: frontEnd, check: listening, into: &s.Listen,
			description: "address of the HTTP API; port 0 takes a free one; one that others can reach needs --api-token-file or --api-ca-file"},
		{name: "api-token-file", groups: bothEnds, into: &s.APITokenFile,
			description: "file of the token of the HTTP API: the server asks for it, and makes the file when it does not exist; the other " +
				"commands send it"},
		{name: "api-cert-file", groups: bothEnds, into: &s.APICertFile,
			description: "certificate for TLS with the HTTP API: the server's own, or the client certificate of the other commands"},
		{name: "api-key-file", groups: bothEnds, into: &s.APIKeyFile,
			description: "key of that certificate"},
		{name: "api-ca-file", groups: bothEnds, into: &s.APICAFile,
			description: "CA that the other side's certificate has to come from: the server then asks every client for one, and the other " +
				"commands trust the servers of this CA alone"},
		{name: "allowed-hosts", groups: slices.Concat(engine, []Group{Codec}), check: each(hostName), into: &s.AllowedHosts,
			description: "names and addresses that requests may be addressed to, besides loopback and those that are listened on; a proxy " +
				"or a Service of Kubernetes needs one"},
		{name: "max-event-streams", fallback: "1000", groups: frontEnd, check: atMost(100000), into: &s.MaxEventStreams,
			description: "how many event streams of the HTTP API may be open at once"},
		{name: "kuscia-listen", fallback: "127.0.0.1:8082", groups: frontEnd, check: orNone(listening), into: &s.KusciaListen,
			description: "address of Kuscia's API over HTTP; port 0 takes a free one; empty: nowhere"},
		{name: "kuscia-grpc-listen", fallback: "127.0.0.1:8083", groups: frontEnd, check: orNone(listening), into: &s.KusciaGRPCListen,
			description: "address of Kuscia's API over gRPC; port 0 takes a free one; empty: nowhere"},
		{name: "kuscia-protocol", fallback: "NOTLS", groups: frontEnd, choices: []string{"NOTLS", "TLS", "MTLS"}, into: &s.KusciaProtocol,
			description: "how Kuscia's API is guarded: MTLS (clients show a certificate and the token), TLS (the token) or NOTLS " +
				"(neither; for this machine alone)"},
		{name: "kuscia-insecure", fallback: "false", groups: frontEnd, into: &s.KusciaInsecure,
			description: "serve Kuscia's API with NOTLS also on addresses that others can reach"},
		{name: "kuscia-cert-file", groups: frontEnd, into: &s.KusciaCertFile,
			description: "certificate of Kuscia's API, for TLS and MTLS"},
		{name: "kuscia-key-file", groups: frontEnd, into: &s.KusciaKeyFile,
			description: "key of that certificate"},
		{name: "kuscia-ca-file", groups: frontEnd, into: &s.KusciaCAFile,
			description: "CA that the certificates of Kuscia's clients come from, for MTLS"},
		{name: "kuscia-token-file", groups: frontEnd, into: &s.KusciaTokenFile,
			description: "file of the token that clients of Kuscia's API show, for TLS and MTLS; made when it does not exist"},
	}
}

// webhooks are the settings of what API servers call.
func webhooks(s *Settings) []definition {
	return []definition{
		{name: "webhook-listen", inDev: "127.0.0.1:9443", groups: frontEnd, check: orNone(listeningOn), into: &s.WebhookListen,
			description: "address of the webhooks that the API server calls: without one, Rollouts of v1alpha1 aren't served; empty: nowhere"},
		{name: "webhook-url", groups: frontEnd, check: orNone(secureURL), into: (*baseURL)(&s.WebhookURL),
			description: "base URL under which the API server reaches the webhooks; empty: --webhook-listen, if that is a loopback address"},
		{name: "webhook-service", groups: frontEnd, check: orNone(serviceName), into: &s.WebhookService,
			description: "Service by which the API server reaches the webhooks, as namespace/name or namespace/name:port (default: 443)"},
		{name: "webhook-cert-file", groups: frontEnd, into: &s.WebhookCertFile,
			description: "certificate of the webhooks, with its chain; read again every ten minutes; empty: made and renewed by the engine"},
		{name: "webhook-key-file", groups: frontEnd, into: &s.WebhookKeyFile,
			description: "key of that certificate"},
		{name: "gate", fallback: GateAuto, groups: frontEnd, choices: []string{GateAuto, GatePolicy, GateWebhook, GateOff}, into: &s.Gate,
			description: "what holds the workloads that Rollouts name: admission policies (`slipway guard install`), the webhooks, or nothing; " +
				"auto: policies where the API server has them, else the webhooks"},
	}
}

// packages are the settings of the store of packages, and of those that use it.
func packages(s *Settings) []definition {
	return []definition{
		{name: "package-listen", fallback: "127.0.0.1:8085", groups: packageStore, check: listening, into: &s.PackageListen,
			description: "address of the package store; port 0 takes a free one"},
		{name: "package-dir", groups: packageStore, into: &s.PackageDir,
			description: "folder in which the package store keeps packages; without it and --package-bucket, slipway dev serves no store"},
		{name: "package-bucket", groups: packageStore, check: orNone(aBucket), into: &s.PackageBucket,
			description: "bucket in which the package store keeps packages, in place of --package-dir, as s3://name or s3://name/prefix; its credentials are those " +
				"that programs for AWS find: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials, or a role"},
		{name: "package-s3-endpoint", fallback: "https://s3.amazonaws.com", groups: packageStore, check: aURL, into: (*baseURL)(&s.PackageS3Endpoint),
			description: "URL of the service that has the bucket"},
		{name: "package-s3-region", groups: packageStore, into: &s.PackageS3Region,
			description: "region of the bucket; empty: the service is asked"},
		{name: "package-token-file", groups: packageStore, into: &s.PackageTokenFile,
			description: "file of the token that uploads to the package store show, and everything else but downloads; made when it does not " +
				"exist, read again when it changes; empty: the file token in --package-dir; a bucket needs one"},
		{name: "package-cert-file", groups: packageStore, into: &s.PackageCertFile,
			description: "certificate of the package store, for TLS"},
		{name: "package-key-file", groups: packageStore, into: &s.PackageKeyFile,
			description: "key of that certificate"},
		{name: "source-allow", fallback: "public", groups: workers, check: sourceAllow, into: &s.SourceAllow,
			description: "where packages may be downloaded from: public, and hosts, *.domains, addresses and networks, each with or without a port"},
		{name: "package-store", groups: packageUsers, check: orNone(aURL), into: (*baseURL)(&s.PackageStore),
			description: "base URL of the party's package store, as its pods reach it; empty: none, pods download packages from their source"},
		{name: "package-store-token-file", groups: packageUsers, into: &s.PackageStoreTokenFile,
			description: "file of that store's token; read again when it changes"},
		{name: "package-keep", fallback: "24h", groups: workers, into: &s.PackageKeep,
			description: "how long that store keeps a package that no pod template, revision or record names"},
		{name: "package-max-bytes", fallback: inBytes(source.DefaultLimits.Bytes), groups: slices.Concat(packageUsers, packageStore),
			into:        &s.PackageMaxBytes,
			description: "how large a package may be at most, in bytes or as 500Mi or 2Gi"},
		{name: "package-max-unpacked-bytes", fallback: inBytes(source.DefaultLimits.UnpackedBytes), groups: packageUsers, into: &s.PackageMaxUnpackedBytes,
			description: "how large the files of a package may be in all at most"},
		{name: "image", inDev: "slipway:local", groups: workers, into: &s.Image,
			description: "Slipway's own image, with which pods download and unpack packages; empty: items that deploy packages are refused"},
	}
}

// temporal are the settings of the connection to Temporal, and of what it may read.
func temporal(s *Settings) []definition {
	return []definition{
		{name: "temporal-address", fallback: "127.0.0.1:7233", groups: engine, check: dialling, into: &s.TemporalAddress,
			description: "address of the Temporal server"},
		{name: "temporal-namespace", fallback: "default", groups: engine, check: required, into: &s.TemporalNamespace,
			description: "Temporal namespace that everything runs in"},
		{name: "temporal-tls", fallback: link.TLSAuto, groups: engine, choices: []string{link.TLSAuto, link.TLSOn, link.TLSOff}, into: &s.TemporalTLS,
			description: "whether the connection to Temporal is encrypted; auto: where a CA, a certificate, a server name or an API key is given"},
		{name: "temporal-ca-file", groups: engine, into: &s.TemporalCAFile,
			description: "CAs that Temporal's certificate may come from; empty: those of the system; this file, those of certificate, key and API key, and the folder of codec keys are read again when they change"},
		{name: "temporal-cert-file", groups: engine, into: &s.TemporalCertFile,
			description: "client certificate that Temporal is shown, with its chain"},
		{name: "temporal-key-file", groups: engine, into: &s.TemporalKeyFile,
			description: "key of that certificate"},
		{name: "temporal-server-name", groups: engine, into: &s.TemporalServerName,
			description: "name that Temporal's certificate is for; empty: the host of --temporal-address"},
		{name: "temporal-api-key-file", groups: engine, into: &s.TemporalAPIKeyFile,
			description: "file of the API key that Temporal is shown"},
		{name: "temporal-codec-key-dir", groups: slices.Concat(engine, []Group{Codec}), into: &s.TemporalCodecKeyDir,
			description: "folder of the keys that everything which Temporal keeps of a release is encrypted with: a file for each key, named by its ID, and the file " +
				"current with the ID of the one in use; all processes of an engine need the same; empty: nothing is encrypted"},
		{name: "temporal-ui", fallback: "http://127.0.0.1:8233", groups: slices.Concat(frontEnd, []Group{Codec}), check: orNone(aURL), into: (*baseURL)(&s.TemporalUI),
			description: "base URL of the Temporal Web UI, for links; slipway codec answers its pages"},
		{name: "codec-listen", fallback: "127.0.0.1:8086", groups: []Group{Codec}, check: listening, into: &s.CodecListen,
			description: "address of the codec server; one that others can reach needs --codec-token-file and --codec-cert-file"},
		{name: "codec-cert-file", groups: []Group{Codec}, into: &s.CodecCertFile,
			description: "certificate of the codec server, for TLS"},
		{name: "codec-key-file", groups: []Group{Codec}, into: &s.CodecKeyFile,
			description: "key of that certificate"},
		{name: "codec-token-file", groups: []Group{Codec}, into: &s.CodecTokenFile,
			description: "file of the token that requests to the codec server show; made when it does not exist, read again when it changes"},
	}
}

// behindThem are the settings of all else.
func behindThem(s *Settings) []definition {
	return []definition{
		{name: "metrics-listen", groups: []Group{Worker}, check: orNone(listening), into: &s.MetricsListen,
			description: "address where a worker answers /healthz, /readyz and /metrics; empty: nowhere"},
		{name: "kubeconfig", groups: engine, into: &s.Kubeconfig,
			description: "kubeconfig file; empty: in-cluster, then KUBECONFIG, then ~/.kube/config"},
		{name: "context", groups: engine, into: &s.Context,
			description: "context of the kubeconfig; empty: its current one"},
		{name: "namespace", fallback: "slipway", groups: engine, check: namespaceName, into: &s.Namespace,
			description: "the engine's namespace in the home cluster"},
		{name: "engine-name", groups: frontEnd, check: orNone(namespaceName), into: &s.EngineName,
			description: "what people call the engine where several work on one cluster; empty: the name of its namespace"},
		{name: "serving-namespace", fallback: "cross-domain", groups: engine, check: namespaceName, into: &s.ServingNamespace,
			description: "the namespace of the home cluster whose KusciaDeployments are this engine's servings; two engines on one " +
				"cluster need two"},
		{name: "install-crds", fallback: "false", inDev: "true", groups: frontEnd, into: &s.InstallCRDs,
			description: "install or update the custom resource definitions at the start"},
		{name: "install-guard", fallback: "true", groups: []Group{Dev}, into: &s.InstallGuard,
			description: "install the guard in the API server at the start, as slipway guard install does"},
		{name: "party", groups: []Group{Worker}, neverEmpty: true, check: parties, into: &s.Parties,
			description: "serve only the queue of this party (alice, or alice=QUEUE when its Party object names one); may be repeated; " +
				"empty: the engine's queue and the default party's"},
		{name: "watch-namespaces", groups: engine, check: each(namespaceName), into: &s.WatchNamespaces,
			description: "watch workloads, and look after Rollout objects, in these namespaces only; empty: in all"},
		{name: "servings-in-any-namespace", fallback: "false", groups: workers, into: &s.ServingsInAnyNamespace,
			description: "bring servings also into namespaces without the label slipway.io/servings=allowed"},
		{name: "serving-policy-file", groups: workers, into: &s.ServingPolicyFile,
			description: "YAML file of what the party allows the pods of servings; empty: everything but privileges"},
		{name: "build-policy-file", groups: workers, into: &s.BuildPolicyFile,
			description: "YAML file of what the party allows the Jobs of builds; empty: what serving-policy-file allows the pods of servings"},
		{name: "max-concurrent-services", fallback: "50", groups: frontEnd, into: &s.MaxConcurrentServices,
			description: "how many services of one task are released at once at most"},
		{name: "max-concurrent-workloads", fallback: "100", groups: frontEnd, check: atMost(1000), into: &s.MaxConcurrentWorkloads,
			description: "how many workloads of one service a PARALLEL release has under way at once at most, up to 1000"},
		{name: "unreachable-budget", fallback: "120s", groups: frontEnd, check: wholeSeconds, into: &s.UnreachableBudget,
			description: "how long a cluster may be out of reach before a release is interrupted"},
		{name: "record-limit", fallback: "50", groups: workers, into: &s.RecordLimit,
			description: "how many records of past releases are kept of each plan"},
		{name: "worker-versioning", fallback: "true", groups: workers, into: &s.WorkerVersioning,
			description: "tell Temporal which build the workers are, so that the newest build that runs gets the work; false: for a Temporal server without worker deployments"},
		{name: "rollback-window", fallback: "24h", groups: workers, into: &s.RollbackWindow,
			description: "how long after an upgrade you can go back to the build before: until then, releases that begin record nothing that it doesn't understand"},
		{name: "kube-qps", fallback: "1000", groups: engine, into: &s.KubeQPS,
			description: "requests per second of this process to one Kubernetes API server"},
		{name: "kube-burst", fallback: "2000", groups: engine, into: &s.KubeBurst,
			description: "requests to one Kubernetes API server that may go out at once"},
		{name: "trace-endpoint", groups: engine, check: orNone(aURL), into: (*baseURL)(&s.TraceEndpoint),
			description: "base URL of an OpenTelemetry collector that spans of requests and activities are sent to, by OTLP over HTTP; empty: none are made"},
		{name: "trace-sample-ratio", fallback: "1", groups: engine, check: ratio, into: &s.TraceSampleRatio,
			description: "share of traces that is sent, above 0 and up to 1"},
		{name: "log-level", fallback: "info", groups: logging, choices: []string{"debug", "info", "warn", "error"}, into: &s.LogLevel,
			description: "least severe level that is logged: debug, info, warn or error"},
		{name: "log-format", fallback: "text", groups: logging, choices: []string{"text", "json"}, into: &s.LogFormat,
			description: "format of the log: text or json"},
		{name: "shutdown-timeout", fallback: "20s", groups: logging, into: &s.ShutdownTimeout,
			description: "how long a process that is asked to end waits for what it has begun"},
		{name: "api", fallback: "http://127.0.0.1:8080", groups: []Group{Client}, check: aURL, into: (*baseURL)(&s.API),
			description: "base URL of the Slipway API"},
	}
}

func (d definition) takenBy(groups []Group) bool {
	return slices.ContainsFunc(d.groups, func(g Group) bool { return slices.Contains(groups, g) })
}

func (d definition) env() string { return EnvName(d.name) }

// EnvName is the environment variable of a setting.
func EnvName(setting string) string {
	return "SLIPWAY_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// First is the first setting that a command of the group takes.
func First(group Group) string {
	all := definitions(&Settings{})
	return all[slices.IndexFunc(all, func(d definition) bool { return d.takenBy([]Group{group}) })].name
}

func definitionOf(name string) (definition, bool) {
	all := definitions(&Settings{})
	n := slices.IndexFunc(all, func(d definition) bool { return d.name == name })
	if n < 0 {
		return definition{}, false
	}
	return all[n], true
}
