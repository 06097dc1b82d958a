package main

import (
	"cmp"
	"strings"

	"go.temporal.io/sdk/client"
	"go.uber.org/fx"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/activities/leg"
	partyservings "slipway.io/slipway/activities/serving"
	partysource "slipway.io/slipway/activities/source"
	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/cli/packages"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/podpolicy"
	routing "slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/worker"
	"slipway.io/slipway/workflows"
)

// partyModule runs the activities on the cluster of the served parties, and those of the centre if there is a
// homeModule.
var partyModule = fx.Options(
	fx.Provide(releasePolicy, newProtection, newListing, newTraffic, newSource, newWorkloads, newServings, newQueues,
		fx.Annotate(newBounded, fx.ResultTags(`name:"bounded"`))),
	driftModule,
	fx.Invoke(reportListing),
	worker.Module,
)

// partyParts are the dependencies of the activities on a party's cluster.
type partyParts struct {
	Process
	Lifecycle fx.Lifecycle
	Typed     kube.Typed
	// Bounded is a client with a timeout for each request, for the activities of servings and sources.
	Bounded kube.Typed `name:"bounded"`
	Objects dynamic.Interface
	// Policy is what the party allows in the pods of all releases.
	Policy podpolicy.Policy
	// Protection reads what the API server does to edits of this process.
	Protection *kube.ProtectionReader
	// Home reads data that is not stored in workflow histories; nil in a party's own worker, which has no access to it.
	Home *centre.Activities `optional:"true"`
}

// newBounded returns a client for the activities whose requests may take 5 seconds.
func newBounded(config *rest.Config) (kube.Typed, error) {
	config = rest.CopyConfig(config)
	config.Timeout = kube.CallTimeout
	return kube.NewTyped(config)
}

func newTraffic(p partyParts) (*traffic.Activities, error) {
	parties, _ := servedParties(p.Settings)
	reach, err := trafficReach(p.Settings)
	if err != nil {
		return nil, err
	}
	return traffic.New(p.Typed, p.Objects, traffic.Options{Namespaces: p.Settings.WatchNamespaces, Parties: parties,
		Reach: reach, ScriptsNamespace: ownNamespace(p.Settings), Protection: p.Protection, Logger: p.Log})
}

// trafficReach returns what the releases of this worker may route by.
func trafficReach(s settings.Settings) (routing.Reach, error) {
	reach := routing.Reach{TenantScripts: s.TenantScripts}
	for _, name := range s.TrafficKinds {
		kind, err := routing.ParseKind(name)
		if err != nil {
			return reach, err
		}
		reach.Kinds = append(reach.Kinds, kind)
	}
	return reach, nil
}

// ownNamespace returns the namespace of this worker in the cluster that it releases in: that of its pod, or that of the
// engine outside of a cluster.
func ownNamespace(s settings.Settings) string {
	return cmp.Or(kube.PodNamespace(kube.Options{Kubeconfig: s.Kubeconfig, Context: s.Context}), s.Namespace)
}

func newWorkloads(p partyParts, routes *traffic.Activities, packages *partysource.Activities,
	temporal client.Client) *workload.Activities {
	parties, _ := servedParties(p.Settings)
	activities := workload.New(p.Typed, p.Objects, workload.Options{Namespaces: p.Settings.WatchNamespaces,
		Parties: parties, TrafficPreflight: routes.TrafficPreflight, Packages: packages, Policy: p.Policy,
		Protection: p.Protection, Logger: p.Log, Temporal: temporal})
	p.Lifecycle.Append(fx.StopHook(activities.Stop))
	return activities
}

// newSource returns the activities that fetch code packages.
func newSource(p partyParts) (*partysource.Activities, error) {
	s := p.Settings
	policy, err := buildPolicy(s, p.Policy)
	if err != nil {
		return nil, err
	}
	limits := source.DefaultLimits
	limits.Bytes, limits.UnpackedBytes = s.PackageMaxBytes, s.PackageMaxUnpackedBytes
	options := partysource.Options{Logger: p.Log, Namespaces: s.WatchNamespaces, Retention: s.PackageKeep,
		Policy: policy, ReleasePolicy: p.Policy, TempBytes: tempBytes(s),
		Unbounded: p.Typed, Fetcher: source.Fetcher{Image: s.Image, Store: s.PackageStore, Allow: s.SourceAllow,
			Limits: limits}}
	if p.Home != nil {
		options.RecordedURL, options.Template = p.Home.PackageURL, p.Home.BuildTemplate
	}
	authorities, err := packages.OpenAuthorities(s, p.Log)
	if err != nil {
		return nil, err
	}
	if authorities != nil {
		options.StoreCA = func() string { return authorities().PEM }
	}
	switch store, err := packages.NewClient(s, authorities); {
	case err != nil:
		return nil, err
	case store != nil:
		options.Store = store
	}
	return partysource.New(p.Bounded, options)
}

// newServings returns the activities for the party's servings, and starts their watch.
func newServings(p partyParts, temporal client.Client, reader *versions.Reader) (*partyservings.Activities, error) {
	s := p.Settings
	policy, err := policyOf("serving-policy-file", s.ServingPolicyFile)
	if err != nil {
		return nil, err
	}
	watch := partyservings.NewWatch(p.Typed, s.WatchNamespaces, p.Log)
	_, queues := servedParties(s)
	activities := partyservings.New(p.Bounded, reader, watch, partyservings.Options{
		Namespaces: s.WatchNamespaces, AnyNamespace: s.ServingsInAnyNamespace, Policy: policy,
		ReleasePolicy: p.Policy, Queues: queues, Engine: s.TemporalNamespace, Logger: p.Log,
	})
	observer := partyservings.NewObserver(activities, temporal)
	p.Lifecycle.Append(fx.Hook{OnStart: observer.Start, OnStop: observer.Stop})
	p.Lifecycle.Append(fx.Hook{OnStart: watch.Start, OnStop: watch.Stop})
	return activities, nil
}

// driftModule detects changes by other clients to workloads being released and to the objects that route to them. It is
// a module so that its detectors start before the worker.
var driftModule = fx.Module("drift",
	fx.Invoke(func(p partyParts, temporal client.Client, workloads *workload.Activities, routes *traffic.Activities) {
		detector := workload.NewDriftDetector(workloads, p.Typed.Discovery(), temporal)
		beside := traffic.NewDriftDetector(routes, detector, temporal, workload.Autoscalers())
		p.Lifecycle.Append(fx.Hook{OnStart: beside.Start, OnStop: beside.Stop})
		p.Lifecycle.Append(fx.Hook{OnStart: detector.Start, OnStop: detector.Stop})
	}),
)

// queueParts are the activities of a worker.
type queueParts struct {
	fx.In

	Settings  settings.Settings
	Workloads *workload.Activities
	Routes    *traffic.Activities
	Servings  *partyservings.Activities
	Code      *partysource.Activities
	Policy    podpolicy.Policy
	Listing   *listing
	// Centre is nil in a party's own worker.
	Centre *centre.Activities `optional:"true"`
}

// newQueues returns the queues of the parties that this process serves, and the engine's in a worker of the centre.
func newQueues(p queueParts) []worker.Queue {
	var queues []worker.Queue
	if p.Centre != nil {
		queues = append(queues, worker.Queue{Name: workflows.QueueEngine, Workflows: true,
			Activities: []worker.Registrar{p.Centre}})
	}
	_, names := servedParties(p.Settings)
	for _, name := range names {
		queues = append(queues, worker.Queue{Name: name, Policy: p.Policy.String(), Account: p.Listing.Account,
			Activities: []worker.Registrar{p.Workloads, leg.New(p.Workloads, p.Routes, leg.Options{}), p.Servings,
				p.Code}})
	}
	return queues
}

// servedParties returns the parties that this process serves, and their queues.
func servedParties(s settings.Settings) (names, queues []string) {
	if len(s.Parties) == 0 {
		s.Parties = []string{catalog.DefaultParty}
	}
	for _, served := range s.Parties {
		name, queue, own := strings.Cut(served, "=")
		if !own {
			queue = catalog.PartyQueue(name)
		}
		names, queues = append(names, name), append(queues, queue)
	}
	return names, queues
}
