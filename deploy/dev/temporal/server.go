package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// The name of the one cluster and of the one data store.
const (
	clusterName = "active"
	storeName   = "sqlite"
)

// Fixed when the file is created. All writes share one SQLite connection, so more shards would not make it faster.
const historyShards = 1

type server struct {
	temporal temporal.Server
	ui       *webUI
}

// start returns when the server answers and has the namespaces and search attributes that were asked for. What an
// existing file holds is kept.
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
	if err := ensureSearchAttributes(ctx, o); err != nil {
		return nil, errors.Join(err, s.temporal.Stop())
	}
	if !o.Headless {
		s.ui = startUI(o)
	}
	return s, nil
}

func (s *server) stop() error {
	if s.ui != nil {
		s.ui.stop()
	}
	return s.temporal.Stop()
}

func newTemporal(o options, db *config.SQL, ports servicePorts) (temporal.Server, error) {
	// Search attributes that are added to a running server must be usable at once.
	dynamic := dynamicconfig.StaticClient{
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,
		dynamicconfig.WorkerPerNamespaceWorkerCount.Key():           schedulers(o.Namespaces),
	}
	for key, value := range o.DynamicConfig {
		dynamic[dynamicconfig.MakeKey(key)] = value
	}
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Stdout: true, Level: o.LogLevel, Format: o.LogFormat}))
	return temporal.NewServer(
		temporal.WithConfig(serverConfig(o, db, ports)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(staticHosts(o, ports)),
		temporal.WithLogger(logger),
		temporal.WithDynamicConfigClient(dynamic),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
			return authorization.NewNoopClaimMapper()
		}),
	)
}

// schedulers gives Temporal's own workers, those of schedules and batches, to the namespaces that the server was started with. The namespaces of tests, of
// which there are thousands, would keep both cores busy with their polls alone.
func schedulers(namespaces []string) []dynamicconfig.ConstrainedValue {
	values := []dynamicconfig.ConstrainedValue{{Value: 0}}
	for _, namespace := range namespaces {
		values = append(values, dynamicconfig.ConstrainedValue{Constraints: dynamicconfig.Constraints{Namespace: namespace}, Value: 1})
	}
	return values
}

func serverConfig(o options, db *config.SQL, ports servicePorts) *config.Config {
	c := &config.Config{
		Services:            map[string]config.Service{},
		PublicClient:        config.PublicClient{HostPort: o.frontendAddress()},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		ClusterMetadata:     clusterMetadata(o),
		Persistence: config.Persistence{
			DefaultStore:     storeName,
			VisibilityStore:  storeName,
			NumHistoryShards: historyShards,
			DataStores:       map[string]config.DataStore{storeName: {SQL: db}},
		},
	}
	c.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: o.IP}
	c.Archival.History.State = config.ArchivalDisabled
	c.Archival.Visibility.State = config.ArchivalDisabled
	c.NamespaceDefaults.Archival.History.State = config.ArchivalDisabled
	c.NamespaceDefaults.Archival.Visibility.State = config.ArchivalDisabled
	for name, port := range ports {
		c.Services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: o.IP}}
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
			RPCAddress:             o.frontendAddress(),
			ClusterID:              uuid.NewString(),
		}},
	}
}

func staticHosts(o options, ports servicePorts) map[primitives.ServiceName]static.Hosts {
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, port := range ports {
		hosts[name] = static.SingleLocalHost(hostPort(o.IP, port))
	}
	return hosts
}
