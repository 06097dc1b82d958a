package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// The names of the one cluster, of the one data store and of the namespace that Slipway's processes use.
const (
	clusterName   = "active"
	storeName     = "sqlite"
	namespaceName = "default"
)

const (
	// historyShards is fixed when the file is created. All writes share one SQLite connection, so more would not make it faster.
	historyShards = 1
	// retention is how long closed workflows are kept.
	retention = 72 * time.Hour
)

type server struct {
	temporal temporal.Server
	ui       *uiserver.Server
}

// start returns when the server answers and has its namespace and search attributes. What an existing file holds is
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
	if err := ensureSearchAttributes(ctx, address(ports.insider()), o.SearchAttributes); err != nil {
		return nil, errors.Join(err, s.temporal.Stop())
	}
	s.ui = newUI(o, address(ports.insider()))
	// Its port was found free by choosePorts; should another process take it in between, the UI ends this process with a message.
	go func() { _ = s.ui.Start() }()
	return s, nil
}

func (s *server) stop() error {
	s.ui.Stop()
	return s.temporal.Stop()
}

func newUI(o options, frontend string) *uiserver.Server {
	return uiserver.NewServer(server_options.WithConfigProvider(&uiconfig.Config{
		Host:                listenIP,
		Port:                o.UIPort,
		TemporalGRPCAddress: frontend,
		EnableUI:            true,
		DefaultNamespace:    namespaceName,
		HideLogs:            true,
		// Both would ask hosts of the internet.
		DisableNewsFetch:   true,
		NotifyOnNewVersion: false,
		// A browser sends the cookie over plain HTTP only if it may.
		CORS: uiconfig.CORS{CookieInsecure: true},
	}))
}

// dynamicConfig lets timers fire to 10 ms instead of 1 s, which is what makes short tests short. One partition per task queue is plenty
// for one machine, and a task then always meets its poller at once. Temporal's own workers, those of schedules, batches and worker deployments, serve the
// default namespace alone unless all are asked for: those of tests, of which there are thousands, would keep both cores busy with their polls.
func dynamicConfig(o options) dynamicconfig.StaticClient {
	workers := []dynamicconfig.ConstrainedValue{{Value: 0}, {Constraints: dynamicconfig.Constraints{Namespace: namespaceName}, Value: 1}}
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
		temporal.WithAuthorizer(o.Locks.authorizer()),
		temporal.WithClaimMapper(o.Locks.claimMapper),
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
	if o.Locks.locked() {
		c.PublicClient.HostPort = "" // the insiders' frontend, which the server finds itself
	}
	c.Global.TLS = o.Locks.tls()
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

// A file that exists has its own cluster metadata, ID included, which win over these.
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
