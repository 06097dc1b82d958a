package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/temporal/presence"
)

const (
	// checkInterval is how often a process checks which builds run. That takes one cheap call; the routing is decided
	// again only if other builds run than before.
	checkInterval = 15 * time.Second
	// decideInterval is how often the routing is decided in any case: a build may get the work and die before its first
	// heartbeat.
	decideInterval = time.Minute
	// routePause is how long a process waits before it retries to route the work: Temporal first has to see a new
	// build's workers.
	routePause = 250 * time.Millisecond
	// routeTimeout bounds one check including the routing; leaveTimeout bounds that of a process that shuts down.
	routeTimeout, leaveTimeout = 10 * time.Second, 3 * time.Second
	// heartbeatWithin is the time within which a live worker sends another heartbeat. It sends one every
	// party.HeartbeatInterval, and none may be lost here.
	heartbeatWithin = party.HeartbeatInterval + 2*time.Second
	// missingThreshold is how long a newer build must be without heartbeats before an older one takes its work:
	// Temporal forgets its pollers when it restarts.
	missingThreshold = 10 * time.Second
)

// buildRouter makes Temporal route the work of this process's queues to the newest running build (release/upgrade).
// Every process does this, so there is no leader that could be missing. Temporal refuses a change that conflicts with
// another process's; the next check then decides again.
type buildRouter struct {
	temporal client.Client
	options  Options
	queues   []string

	// running are the builds that ran on each queue at the last decision; decided is its time.
	running map[string][]string
	decided time.Time
	// presenceKnown marks the queues whose pollers Temporal has reported at least once; some Temporal servers never
	// report them.
	presenceKnown map[string]bool
	// missing is since when (time.Time) the newer build that has the work of a queue is without heartbeats.
	missing sync.Map
}

func newBuildRouter(temporal client.Client, queues []Queue, options Options) *buildRouter {
	return &buildRouter{temporal: temporal, options: options, presenceKnown: map[string]bool{},
		queues: phrase.Each(queues, func(q Queue) string { return q.Name })}
}

// deploymentOf returns the name of a queue's workers as a Temporal worker deployment, which must not contain a dot or a
// colon.
func deploymentOf(queue string) string { return strings.NewReplacer(".", "/", ":", "/").Replace(queue) }

// deployment returns the deployment options of a queue's worker. All workflow types move to the build that gets the
// work: a workflow pinned to a build would stop permanently with that build's last worker.
func (b *buildRouter) deployment(queue string) worker.DeploymentOptions {
	if b.options.Build == upgrade.Unversioned {
		return worker.DeploymentOptions{}
	}
	return worker.DeploymentOptions{UseVersioning: true,
		DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
		Version: worker.WorkerDeploymentVersion{DeploymentName: deploymentOf(queue),
			BuildID: b.options.Build}}
}

// check decides the routing again if other builds run than before.
func (b *buildRouter) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	present := b.presence(ctx)
	for queue, p := range present {
		switch {
		case p.Reachable != party.Unknown:
			b.presenceKnown[queue] = true
		case b.presenceKnown[queue]: // otherwise every build that ever ran would count as running
			return fmt.Errorf("the routing is unchanged until Temporal reports the pollers: %s", p.Reason)
		}
	}
	running := b.runningBuilds(present)
	if maps.EqualFunc(running, b.running, slices.Equal) && time.Since(b.decided) < decideInterval {
		return nil
	}
	// No decision is valid until all queues are routed: the state may have changed and changed back in between.
	b.running = nil
	if err := b.routeAll(ctx, running, anyBuild); err != nil {
		return err
	}
	b.running, b.decided = running, time.Now()
	return nil
}

// routeAll routes all queues concurrently: Temporal takes most of a second per queue.
func (b *buildRouter) routeAll(ctx context.Context, running map[string][]string, leaving string) error {
	var wg sync.WaitGroup
	failed := make([]error, len(b.queues))
	for i, queue := range b.queues {
		if len(running[queue]) > 0 {
			wg.Go(func() { failed[i] = b.route(ctx, queue, running[queue], leaving) })
		}
	}
	wg.Wait()
	return errors.Join(failed...)
}

// handOver gives the work to other builds on queues where no worker of this build remains, for example before the old
// build ends in a rollback. Workers in dead do not count as remaining.
func (b *buildRouter) handOver(ctx context.Context, dead ...party.Worker) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	stay := b.remainingBuilds(b.presence(ctx), dead)
	maps.DeleteFunc(stay, func(_ string, builds []string) bool { return slices.Contains(builds, anyBuild) })
	if err := b.routeAll(ctx, stay, b.options.Build); err != nil {
		b.options.Log.Warn("could not route the work to another build; it takes over when this build's heartbeats "+
			"have stopped", "error", err)
	}
}

// awaitDeadWorkers returns the other workers of this build that must be dead: Temporal still lists them, but they send
// no further heartbeat. It waits only if another build could continue and has an ID: one without an ID does not take
// over work by itself. It returns none if there is not enough time.
func (b *buildRouter) awaitDeadWorkers(ctx context.Context) []party.Worker {
	until := time.Now().Add(heartbeatWithin)
	if ends, bounded := ctx.Deadline(); bounded && ends.Before(until.Add(leaveTimeout)) {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	former := b.presence(asking)
	if !b.anotherBuildPolls(asking, former) {
		return nil
	}
	silent, known := b.silent(former, former), true
	for len(silent) > 0 && time.Now().Before(until) && pause.For(ctx, routePause) == nil {
		now := b.presence(ctx)
		known = !slices.ContainsFunc(b.queues, func(queue string) bool { return now[queue].Reachable == party.Unknown })
		if known {
			silent = b.silent(former, now)
		}
	}
	if !known {
		return nil
	}
	return silent
}

// anotherBuildPolls reports whether this build has the work of a queue that another build's workers poll too. Those may
// not have sent heartbeats for all their queues yet.
func (b *buildRouter) anotherBuildPolls(ctx context.Context, present map[string]party.Presence) bool {
	for queue, running := range b.remainingBuilds(present, nil) {
		if !slices.ContainsFunc(running, func(build string) bool { return build != b.options.Build }) {
			continue
		}
		if known, _, err := b.describe(ctx, queue, running); err == nil && known.Current == b.options.Build {
			return true
		}
	}
	return false
}

// silent returns the other workers of this build without a heartbeat since former.
func (b *buildRouter) silent(former, now map[string]party.Presence) (silent []party.Worker) {
	for _, queue := range b.queues {
		for _, w := range now[queue].SilentSince(former[queue]) {
			if w.Build == b.options.Build && w.Identity != b.options.Identity {
				silent = append(silent, w)
			}
		}
	}
	return silent
}

func (b *buildRouter) presence(ctx context.Context) map[string]party.Presence {
	return presence.Finder{Temporal: b.temporal, Namespace: b.options.Namespace}.Of(ctx, b.queues...)
}

// anyBuild means all builds: the queue's pollers are unknown.
const anyBuild = "*"

// runningBuilds returns the builds that run on each queue, sorted, including this one.
func (b *buildRouter) runningBuilds(present map[string]party.Presence) map[string][]string {
	running := map[string][]string{}
	for queue, p := range present {
		running[queue] = buildsOf(p, p.Workers, b.options.Build)
	}
	return running
}

// remainingBuilds returns the builds on each queue, sorted, after this process has ended and without the workers in
// dead.
func (b *buildRouter) remainingBuilds(present map[string]party.Presence, dead []party.Worker) map[string][]string {
	staying := map[string][]string{}
	for queue, p := range present {
		staying[queue] = buildsOf(p, slices.DeleteFunc(slices.Clone(p.Workers), func(w party.Worker) bool {
			return w.Identity == b.options.Identity || slices.Contains(dead, w)
		}))
	}
	return staying
}

// buildsOf returns the builds of these workers and more builds, sorted; with anyBuild if the queue's pollers are
// unknown.
func buildsOf(p party.Presence, workers []party.Worker, more ...string) []string {
	found := append(more, phrase.Each(workers, func(w party.Worker) string { return w.Build })...)
	if p.Reachable == party.Unknown {
		found = append(found, anyBuild)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// missingTooLong reports whether the build with the work of a queue has been without heartbeats for missingThreshold.
func (b *buildRouter) missingTooLong(queue string) bool {
	since, _ := b.missing.LoadOrStore(queue, time.Now())
	return time.Since(since.(time.Time)) >= missingThreshold
}

// route gives the queue's work to the newest running build. leaving is the build whose last worker is about to end, if
// known.
func (b *buildRouter) route(ctx context.Context, queue string, running []string, leaving string) error {
	known, token, err := b.describe(ctx, queue, running)
	if err != nil {
		return err
	}
	decision := known.Decide()
	if decision.Build == known.Current {
		b.missing.Delete(queue)
		return nil
	}
	if decision.Older && known.Current != leaving && !b.missingTooLong(queue) {
		return fmt.Errorf("%s keeps the work on queue %s for now: its heartbeats may only be delayed",
			upgrade.Name(known.Current), queue)
	}
	_, err = b.temporal.WorkflowService().SetWorkerDeploymentCurrentVersion(ctx,
		&workflowservice.SetWorkerDeploymentCurrentVersionRequest{Namespace: b.options.Namespace,
			DeploymentName: deploymentOf(queue), BuildId: decision.Build, ConflictToken: token,
			Identity: b.options.Identity, IgnoreMissingTaskQueues: true})
	if err != nil {
		return fmt.Errorf("cannot route the work on queue %[2]s to %[1]s yet: %[3]w", upgrade.Name(decision.Build),
			queue, err)
	}
	b.missing.Delete(queue)
	b.options.Log.Info("routed the work to another build", "queue", queue, "build", decision.Build, "before",
		known.Current, "reason", decision.Reason)
	return nil
}

// describe returns what Temporal and the workers' heartbeats report about a queue's builds, and the conflict token for
// a change of the routing.
func (b *buildRouter) describe(ctx context.Context, queue string, running []string) (upgrade.Queue, []byte, error) {
	described, err := b.temporal.WorkflowService().DescribeWorkerDeployment(ctx,
		&workflowservice.DescribeWorkerDeploymentRequest{
			Namespace: b.options.Namespace, DeploymentName: deploymentOf(queue)})
	if err != nil && !b.noDeployment(err) {
		return upgrade.Queue{}, nil, fmt.Errorf("builds of the workers of queue %s: %w (a Temporal server without "+
			"worker deployments needs --worker-versioning=false)", queue, err)
	}
	info := described.GetWorkerDeploymentInfo()
	known := upgrade.Queue{Current: info.GetRoutingConfig().GetCurrentDeploymentVersion().GetBuildId(),
		Manager: info.GetManagerIdentity()}
	seen := map[string]upgrade.Build{upgrade.Unversioned: {}}
	for _, s := range info.GetVersionSummaries() {
		id := s.GetDeploymentVersion().GetBuildId()
		seen[id] = upgrade.Build{ID: id, FirstSeen: s.GetCreateTime().AsTime(), Live: slices.Contains(running, anyBuild)}
	}
	for _, id := range running {
		if id == anyBuild {
			continue
		}
		build, ok := seen[id]
		if !ok {
			build.FirstSeen = time.Now()
		}
		build.ID, build.Live = id, true
		seen[id] = build
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		known.Builds = append(known.Builds, seen[id])
	}
	return known, described.GetConflictToken(), nil
}

// noDeployment reports whether an error means that there is no deployment. For workers without an ID, a server without
// worker deployments counts too.
func (b *buildRouter) noDeployment(err error) bool {
	var unknown *serviceerror.NotFound
	var unimplemented *serviceerror.Unimplemented
	var denied *serviceerror.PermissionDenied // also if they are disabled
	return errors.As(err, &unknown) || b.options.Build == upgrade.Unversioned &&
		(errors.As(err, &unimplemented) || errors.As(err, &denied))
}
