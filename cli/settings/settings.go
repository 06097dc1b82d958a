// Package settings is the configuration of Slipway: what can be set, from where each value came, and whether the values are sound.
//
// A value is taken from the first of these that has one: the command's flag, the environment variable SLIPWAY_<NAME>, the YAML file
// named by --config or SLIPWAY_CONFIG, the default. An empty environment variable counts as absent.
package settings

import "time"

// Settings are the values that a command runs with. A setting that the command does not take (Register) holds its default.
type Settings struct {
	// Listen is the address of the HTTP API, host:port; port 0 takes a free one.
	Listen string
	// KusciaListen and KusciaGRPCListen are the addresses of Kuscia's API over HTTP and gRPC, host:port; empty: not served there.
	KusciaListen     string
	KusciaGRPCListen string
	// KusciaProtocol is NOTLS, TLS or MTLS.
	KusciaProtocol string
	// KusciaInsecure permits NOTLS on addresses that others can reach.
	KusciaInsecure bool
	// Files of the certificate and key of Kuscia's API, of the CA of its clients' certificates, and of its token.
	KusciaCertFile  string
	KusciaKeyFile   string
	KusciaCAFile    string
	KusciaTokenFile string
	// MetricsListen is where a worker answers /healthz, /readyz and /metrics, host:port; empty: nowhere.
	MetricsListen string

	// TemporalAddress is the Temporal server's gRPC address, host:port.
	TemporalAddress string
	// TemporalNamespace is the Temporal namespace that everything runs in.
	TemporalNamespace string
	// TemporalUI is the base URL of the Temporal Web UI for links, without a slash at its end; empty: no links.
	TemporalUI string

	// Kubeconfig is the path of a kubeconfig; empty: in-cluster, then KUBECONFIG, then ~/.kube/config.
	Kubeconfig string
	// Context is the context of the kubeconfig; empty: its current one.
	Context string
	// Namespace is the engine's namespace in the home cluster.
	Namespace string
	// ServingNamespace is the namespace of the home cluster whose KusciaDeployments are the engine's servings.
	ServingNamespace string
	// KubeQPS and KubeBurst bound the requests per second to one Kubernetes API server.
	KubeQPS   float32
	KubeBurst int
	// InstallCRDs says whether the custom resource definitions are installed or updated at the start.
	InstallCRDs bool

	// Parties are the parties whose queues this worker serves and nothing else, each as a name or as name=queue; empty: the engine's queue and
	// the default party's.
	Parties []string
	// WatchNamespaces are the namespaces whose workloads are watched; empty: all.
	WatchNamespaces []string

	// MaxConcurrentServices is how many services of one task are released at once at most.
	MaxConcurrentServices int
	// MaxConcurrentWorkloads is how many workloads of one service a PARALLEL release has under way at once at most.
	MaxConcurrentWorkloads int
	// UnreachableBudget is how long a cluster may be out of reach before a release is interrupted.
	UnreachableBudget time.Duration
	// RecordLimit is how many records of each subject are kept.
	RecordLimit int

	// LogLevel is debug, info, warn or error.
	LogLevel string
	// LogFormat is text or json.
	LogFormat string
	// ShutdownTimeout is how long a process that is asked to end waits for what it has begun.
	ShutdownTimeout time.Duration

	// API is the base URL of the API that the client commands talk to, without a slash at its end.
	API string
}

// Group is a command, or a family of commands, that takes settings.
type Group string

// The groups. Dev runs the server and the worker in one process and takes what both take.
const (
	Server Group = "server"
	Worker Group = "worker"
	Dev    Group = "dev"
	Client Group = "client"
)

// Groups are all groups, in the order in which people read them.
var Groups = []Group{Server, Worker, Dev, Client}
