package settings

import (
	"slices"
	"strings"
)

// definition says everything about one setting. Values travel as text until they are applied; a list's parts are separated by commas.
type definition struct {
	name        string
	kind        kind
	fallback    string
	description string
	groups      []Group
	// choices are the values of an enumeration, for errors and shell completion.
	choices []string
	// neverEmpty: an empty flag is no value but a slip, such as a shell variable that is not set.
	neverEmpty bool
	// apply reads the text into the settings. Its error says what is wrong with the value and what would be right.
	apply func(s *Settings, text string) error
}

// kind is the type of a setting as the help shows it.
type kind string

const (
	kindText     kind = "string"
	kindList     kind = "list"
	kindInt      kind = "int"
	kindNumber   kind = "number"
	kindDuration kind = "duration"
	kindBool     kind = "bool"
)

var (
	engine   = []Group{Server, Worker, Dev}
	frontEnd = []Group{Server, Dev}
	workers  = []Group{Worker, Dev}
)

// definitions are all settings, in the order in which they are shown.
var definitions = []definition{
	{name: "listen", kind: kindText, fallback: "127.0.0.1:8080", groups: frontEnd,
		description: "address of the HTTP API; port 0 takes a free one",
		apply:       func(s *Settings, text string) error { return address(&s.Listen, text, listening) }},
	{name: "kuscia-listen", kind: kindText, fallback: "127.0.0.1:8082", groups: frontEnd,
		description: "address of Kuscia's API over HTTP; port 0 takes a free one; empty: nowhere",
		apply:       func(s *Settings, text string) error { return address(&s.KusciaListen, text, listeningOrNone) }},
	{name: "kuscia-grpc-listen", kind: kindText, fallback: "127.0.0.1:8083", groups: frontEnd,
		description: "address of Kuscia's API over gRPC; port 0 takes a free one; empty: nowhere",
		apply:       func(s *Settings, text string) error { return address(&s.KusciaGRPCListen, text, listeningOrNone) }},
	{name: "kuscia-protocol", kind: kindText, fallback: "NOTLS", groups: frontEnd, choices: []string{"NOTLS", "TLS", "MTLS"},
		description: "how Kuscia's API is guarded: MTLS (clients show a certificate and the token), TLS (the token) or NOTLS (neither; for this machine alone)",
		apply: func(s *Settings, text string) error {
			return oneOf(&s.KusciaProtocol, text, "NOTLS", "TLS", "MTLS")
		}},
	{name: "kuscia-insecure", kind: kindBool, fallback: "false", groups: frontEnd,
		description: "serve Kuscia's API with NOTLS also on addresses that others can reach",
		apply:       func(s *Settings, text string) error { return boolean(&s.KusciaInsecure, text) }},
	{name: "kuscia-cert-file", kind: kindText, groups: frontEnd,
		description: "certificate of Kuscia's API, for TLS and MTLS",
		apply:       func(s *Settings, text string) error { s.KusciaCertFile = text; return nil }},
	{name: "kuscia-key-file", kind: kindText, groups: frontEnd,
		description: "key of that certificate",
		apply:       func(s *Settings, text string) error { s.KusciaKeyFile = text; return nil }},
	{name: "kuscia-ca-file", kind: kindText, groups: frontEnd,
		description: "CA that the certificates of Kuscia's clients come from, for MTLS",
		apply:       func(s *Settings, text string) error { s.KusciaCAFile = text; return nil }},
	{name: "kuscia-token-file", kind: kindText, groups: frontEnd,
		description: "file of the token that clients of Kuscia's API show, for TLS and MTLS; made when it does not exist",
		apply:       func(s *Settings, text string) error { s.KusciaTokenFile = text; return nil }},
	{name: "metrics-listen", kind: kindText, groups: []Group{Worker},
		description: "address where a worker answers /healthz, /readyz and /metrics; empty: nowhere",
		apply:       func(s *Settings, text string) error { return address(&s.MetricsListen, text, listeningOrNone) }},
	{name: "temporal-address", kind: kindText, fallback: "127.0.0.1:7233", groups: engine,
		description: "address of the Temporal server",
		apply:       func(s *Settings, text string) error { return address(&s.TemporalAddress, text, dialling) }},
	{name: "temporal-namespace", kind: kindText, fallback: "default", groups: engine,
		description: "Temporal namespace that everything runs in",
		apply:       func(s *Settings, text string) error { return required(&s.TemporalNamespace, text) }},
	{name: "temporal-ui", kind: kindText, fallback: "http://127.0.0.1:8233", groups: frontEnd,
		description: "base URL of the Temporal Web UI, for links",
		apply:       func(s *Settings, text string) error { return baseURL(&s.TemporalUI, text, false) }},
	{name: "kubeconfig", kind: kindText, groups: engine,
		description: "kubeconfig file; empty: in-cluster, then KUBECONFIG, then ~/.kube/config",
		apply:       func(s *Settings, text string) error { s.Kubeconfig = text; return nil }},
	{name: "context", kind: kindText, groups: engine,
		description: "context of the kubeconfig; empty: its current one",
		apply:       func(s *Settings, text string) error { s.Context = text; return nil }},
	{name: "namespace", kind: kindText, fallback: "slipway", groups: engine,
		description: "the engine's namespace in the home cluster",
		apply:       func(s *Settings, text string) error { return namespace(&s.Namespace, text) }},
	{name: "serving-namespace", kind: kindText, fallback: "cross-domain", groups: engine,
		description: "the namespace of the home cluster whose KusciaDeployments are this engine's servings; two engines on one cluster need two",
		apply:       func(s *Settings, text string) error { return namespace(&s.ServingNamespace, text) }},
	{name: "install-crds", kind: kindBool, fallback: "false", groups: frontEnd,
		description: "install or update the custom resource definitions at the start",
		apply:       func(s *Settings, text string) error { return boolean(&s.InstallCRDs, text) }},
	{name: "party", kind: kindList, groups: []Group{Worker}, neverEmpty: true,
		description: "serve only the queue of this party (alice, or alice=QUEUE when its Party object names one); may be repeated; empty: the engine's queue and the default party's",
		apply:       func(s *Settings, text string) error { return parties(&s.Parties, text) }},
	{name: "watch-namespaces", kind: kindList, groups: workers,
		description: "watch workloads in these namespaces only; empty: in all",
		apply:       func(s *Settings, text string) error { return names(&s.WatchNamespaces, text, namespaceName) }},
	{name: "max-concurrent-services", kind: kindInt, fallback: "50", groups: frontEnd,
		description: "how many services of one task are released at once at most",
		apply:       func(s *Settings, text string) error { return integer(&s.MaxConcurrentServices, text) }},
	{name: "max-concurrent-workloads", kind: kindInt, fallback: "100", groups: frontEnd,
		description: "how many workloads of one service a PARALLEL release has under way at once at most, up to 1000",
		apply:       func(s *Settings, text string) error { return integerUpTo(&s.MaxConcurrentWorkloads, text, 1000) }},
	{name: "unreachable-budget", kind: kindDuration, fallback: "120s", groups: frontEnd,
		description: "how long a cluster may be out of reach before a release is interrupted",
		apply:       func(s *Settings, text string) error { return wholeSeconds(&s.UnreachableBudget, text) }},
	{name: "record-limit", kind: kindInt, fallback: "50", groups: workers,
		description: "how many records of past releases are kept of each plan",
		apply:       func(s *Settings, text string) error { return integer(&s.RecordLimit, text) }},
	{name: "kube-qps", kind: kindNumber, fallback: "200", groups: engine,
		description: "requests per second to one Kubernetes API server",
		apply:       func(s *Settings, text string) error { return number(&s.KubeQPS, text) }},
	{name: "kube-burst", kind: kindInt, fallback: "400", groups: engine,
		description: "requests to one Kubernetes API server that may go out at once",
		apply:       func(s *Settings, text string) error { return integer(&s.KubeBurst, text) }},
	{name: "log-level", kind: kindText, fallback: "info", groups: engine, choices: []string{"debug", "info", "warn", "error"},
		description: "least severe level that is logged: debug, info, warn or error",
		apply: func(s *Settings, text string) error {
			return oneOf(&s.LogLevel, text, "debug", "info", "warn", "error")
		}},
	{name: "log-format", kind: kindText, fallback: "text", groups: engine, choices: []string{"text", "json"},
		description: "format of the log: text or json",
		apply:       func(s *Settings, text string) error { return oneOf(&s.LogFormat, text, "text", "json") }},
	{name: "shutdown-timeout", kind: kindDuration, fallback: "20s", groups: engine,
		description: "how long a process that is asked to end waits for what it has begun",
		apply:       func(s *Settings, text string) error { return duration(&s.ShutdownTimeout, text) }},
	{name: "api", kind: kindText, fallback: "http://127.0.0.1:8080", groups: []Group{Client},
		description: "base URL of the Slipway API",
		apply:       func(s *Settings, text string) error { return baseURL(&s.API, text, true) }},
}

// groupFallbacks are the defaults that one command has of its own.
var groupFallbacks = map[Group]map[string]string{
	Dev: {"install-crds": "true"},
}

// fallbackFor is the default of the setting for a command that takes exactly these groups.
func (d definition) fallbackFor(groups []Group) string {
	if len(groups) == 1 {
		if own, ok := groupFallbacks[groups[0]][d.name]; ok {
			return own
		}
	}
	return d.fallback
}

// takenBy says whether a command of one of these groups takes the setting.
func (d definition) takenBy(groups []Group) bool {
	return slices.ContainsFunc(d.groups, func(g Group) bool { return slices.Contains(groups, g) })
}

// env is the environment variable of the setting.
func (d definition) env() string { return envName(d.name) }

func envName(setting string) string {
	return "SLIPWAY_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

func definitionOf(name string) (definition, bool) {
	n := slices.IndexFunc(definitions, func(d definition) bool { return d.name == name })
	if n < 0 {
		return definition{}, false
	}
	return definitions[n], true
}
