// Package settings is the configuration of Slipway: what can be set, from where each value came, and whether the values are sound.
//
// A value is taken from the first of these that has one: the command's flag, the environment variable SLIPWAY_<NAME>, the YAML file
// named by --config or SLIPWAY_CONFIG, the default. An empty environment variable counts as absent.
package settings

import "time"

// Settings are the values that a command runs with; what each of them means stands in its definition. A setting that the command
// does not take (Register) holds its default.
type Settings struct {
	Listen                 string
	KusciaListen           string
	KusciaGRPCListen       string
	KusciaProtocol         string
	KusciaInsecure         bool
	KusciaCertFile         string
	KusciaKeyFile          string
	KusciaCAFile           string
	KusciaTokenFile        string
	MetricsListen          string
	TemporalAddress        string
	TemporalNamespace      string
	TemporalUI             string
	Kubeconfig             string
	Context                string
	Namespace              string
	ServingNamespace       string
	KubeQPS                float32
	KubeBurst              int
	InstallCRDs            bool
	Parties                []string
	WatchNamespaces        []string
	MaxConcurrentServices  int
	MaxConcurrentWorkloads int
	UnreachableBudget      time.Duration
	RecordLimit            int
	LogLevel               string
	LogFormat              string
	ShutdownTimeout        time.Duration
	API                    string
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
