package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// The names of the only cluster and data store, and of the namespace that Slipway's processes use.
const (
	clusterName   = "active"
	storeName     = "sqlite"
	namespaceName = "default"
)

const (
	// historyShards is fixed when the file is created. All writes share one SQLite connection, so more shards would not
	// be faster.
	historyShards = 1
	// retention is how long closed workflows are kept.
	retention = 72 * time.Hour
)

type server struct {
	temporal temporal.Server
	ui       *http.Server
}

// start returns when the server answers and has its namespace and search attributes. The data of an existing file is
// kept.
func start(ctx context.Context, o options) (*server, error) {
	ports, err := choosePorts(o)
	if err != nil {
		return nil, err
	}
	db, err := openDatabase(o)
	if err != nil {
		return nil, err
	}
	s := &server{}
	if s.temporal, err = newTemporal(o, db, ports); err != nil {
		return nil, fmt.Errorf("configure the Temporal server: %w", err)
	}
	if err := s.temporal.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the Temporal server: %w", err), s.temporal.Stop())
	}
	if err := ensureSearchAttributes(ctx, address(ports.internalPort()), o.SearchAttributes); err != nil {
		return nil, errors.Join(err, s.temporal.Stop())
	}
	if s.ui, err = startUI(ctx, o, address(ports.internalPort())); err != nil {
		return nil, errors.Join(fmt.Errorf("start the Web UI: %w", err), s.temporal.Stop())
	}
	return s, nil
}

func (s *server) stop() error { return errors.Join(s.ui.Close(), s.temporal.Stop()) }

// dynamicConfig sets the timer resolution to 10 ms instead of 1 s, which keeps tests short. One partition per task
// queue is enough for one machine, and each task then reaches its poller at once. Temporal's own workers (schedules,
// batches, worker deployments) serve only the default namespace, unless NamespaceWorkers is set: in the thousands of
// test namespaces their polls would keep both cores busy.
func dynamicConfig(o options) dynamicconfig.StaticClient {
	workers := []dynamicconfig.ConstrainedValue{{Value: 0},
		{Constraints: dynamicconfig.Constraints{Namespace: namespaceName}, Value: 1}}
	if o.NamespaceWorkers {
		workers = []dynamicconfig.ConstrainedValue{{Value: 1}}
	}
	config := dynamicconfig.StaticClient{
		dynamicconfig.TimerProcessorMaxTimeShift.Key():          10 * time.Millisecond,
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,
		dynamicconfig.EnableServerVersionCheck.Key():            false,
		dynamicconfig.WorkerPerNamespaceWorkerCount.Key():       workers,
	}
	if o.NamespaceRPS > 0 {
		config[dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key()] = o.NamespaceRPS
	}
	return config
}

func newTemporal(o options, db *config.SQL, ports servicePorts) (temporal.Server, error) {
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Stdout: true, Level: o.LogLevel, Format: "console"}))
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, port := range ports {
		hosts[name] = static.SingleLocalHost(address(port))
	}
	return temporal.NewServer(
		temporal.WithConfig(serverConfig(o, db, ports)),
		temporal.ForServices(serviceNames(o)),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(logger),
		temporal.WithDynamicConfigClient(dynamicConfig(o)),
		temporal.WithAuthorizer(o.Security.authorizer()),
		temporal.WithClaimMapper(o.Security.claimMapper),
	)
}

func serviceNames(o options) []string {
	var names []string
	for _, name := range o.services() {
		names = append(names, string(name))
	}
	return names
}

func serverConfig(o options, db *config.SQL, ports servicePorts) *config.Config {
	c := &config.Config{
		Services:            map[string]config.Service{},
		PublicClient:        config.PublicClient{HostPort: address(o.Port)},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		ClusterMetadata:     clusterMetadata(o),
		Persistence: config.Persistence{
			DefaultStore:     storeName,
			VisibilityStore:  storeName,
			NumHistoryShards: historyShards,
			DataStores:       map[string]config.DataStore{storeName: {SQL: db}},
		},
	}
	if o.Security.secured() {
		c.PublicClient.HostPort = "" // the server then uses its internal frontend
	}
	c.Global.TLS = o.Security.tls()
	c.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: listenIP}
	c.Archival.History.State = config.ArchivalDisabled
	c.Archival.Visibility.State = config.ArchivalDisabled
	c.NamespaceDefaults.Archival.History.State = config.ArchivalDisabled
	c.NamespaceDefaults.Archival.Visibility.State = config.ArchivalDisabled
	for name, port := range ports {
		c.Services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: listenIP}}
	}
	return c
}

// clusterMetadata returns the metadata of a new file. An existing file has its own, ID included, which takes
// precedence.
func clusterMetadata(o options) *cluster.Config {
	return &cluster.Config{
		FailoverVersionIncrement: 10,
		MasterClusterName:        clusterName,
		CurrentClusterName:       clusterName,
		ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
			Enabled:                true,
			InitialFailoverVersion: 1,
			RPCAddress:             address(o.Port),
			ClusterID:              uuid.NewString(),
		}},
	}
}

// servicePorts holds the gRPC port of each of the server's services.
type servicePorts map[primitives.ServiceName]int

// choosePorts checks that the requested ports are free, because the errors of the server and its UI are unclear
// otherwise, and finds ports for the internal services.
func choosePorts(o options) (servicePorts, error) {
	listeners := make([]net.Listener, 0, 5)
	// All stay open until the end, so that no port is given out twice.
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	open := func(port int, flagName string) (int, error) {
		l, err := net.Listen("tcp", address(port))
		if errors.Is(err, syscall.EADDRINUSE) {
			return 0, fmt.Errorf("port %d on %s is in use by another process: choose another with %s", port, listenIP,
				flagName)
		}
		if err != nil {
			return 0, fmt.Errorf("listen for %s: %w", flagName, err)
		}
		listeners = append(listeners, l)
		return l.Addr().(*net.TCPAddr).Port, nil
	}
	ports := servicePorts{}
	var err error
	if ports[primitives.FrontendService], err = open(o.Port, "--port"); err != nil {
		return nil, err
	}
	if _, err := open(o.UIPort, "--ui-port"); err != nil {
		return nil, err
	}
	for _, name := range o.services() {
		if name == primitives.FrontendService {
			continue
		}
		if ports[name], err = open(0, "an internal service"); err != nil {
			return nil, err
		}
	}
	return ports, nil
}
