package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	deploymentpb "go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/temporal/presence"
	"slipway.io/slipway/workflows"
)

const (
	// lookEvery is how often a process looks which builds run. That takes one cheap call; what follows of it is decided anew only if others run than before.
	lookEvery = 15 * time.Second
	// decideEvery is how often it is decided anew in any case: builds that may be gone back to become too old.
	decideEvery = 10 * time.Minute
	// routePause is how long a process waits before it tries again to get the work: Temporal has to hear of a new build's workers first.
	routePause = 250 * time.Millisecond
	// routeTimeout bounds one look, with what follows of it.
	routeTimeout = 10 * time.Second
)

// Versioning says which build this is.
type Versioning struct {
	// Build is the ID that Temporal knows the workers by (upgrade.ID); upgrade.Unversioned: by none.
	Build string
	// RollbackWindow is for how long after an upgrade people may go back to the build before.
	RollbackWindow time.Duration
}

// builds has Temporal give the work on this process's queues to the newest build that runs (release/upgrade). Every process does that: there is no
// leader that could be missing. A change that another process made in between is refused by Temporal, and looked at anew.
type builds struct {
	temporal client.Client
	options  Options
	queues   []string

	// level is what workflows that begin may record.
	level atomic.Int64
	// running are the builds that ran on each queue when it was last decided, which was at decided.
	running map[string][]string
	decided time.Time
}

func newBuilds(temporal client.Client, queues []Queue, options Options) *builds {
	b := &builds{temporal: temporal, options: options}
	for _, q := range queues {
		b.queues = append(b.queues, q.Name)
	}
	b.level.Store(int64(workflows.HistoryLevel))
	return b
}

// deploymentOf is the name of a queue's workers as a deployment of Temporal's, which must have no dot and no colon.
func deploymentOf(queue string) string { return strings.NewReplacer(".", "/", ":", "/").Replace(queue) }

// deployment is how a worker of the queue says which build it is. Every type of workflow moves to the build that gets the work: one that is pinned to a build would stop for good
// with the last worker of that build.
func (b *builds) deployment(queue string) worker.DeploymentOptions {
	if b.options.Versioning.Build == upgrade.Unversioned {
		return worker.DeploymentOptions{}
	}
	return worker.DeploymentOptions{UseVersioning: true, DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
		Version: worker.WorkerDeploymentVersion{DeploymentName: deploymentOf(queue), BuildID: b.options.Versioning.Build}}
}

// look decides anew if other builds run than before.
func (b *builds) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	running := b.buildsOf(b.presence(ctx), "")
	if maps.EqualFunc(running, b.running, slices.Equal) && time.Since(b.decided) < decideEvery {
		return nil
	}
	if err := b.routeAll(ctx, running); err != nil {
		return err
	}
	b.running, b.decided = running, time.Now()
	return nil
}

// routeAll routes all queues side by side: Temporal takes most of a second to change one.
func (b *builds) routeAll(ctx context.Context, running map[string][]string) error {
	var wg sync.WaitGroup
	failed := make([]error, len(b.queues))
	for i, queue := range b.queues {
		if len(running[queue]) > 0 {
			wg.Go(func() { failed[i] = b.route(ctx, queue, running[queue]) })
		}
	}
	wg.Wait()
	return errors.Join(failed...)
}

// leave gives the work to the builds of others where no worker of this build stays: before an old build ends that a new one is gone back from, say.
func (b *builds) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	stay := b.buildsOf(b.presence(ctx), b.options.Identity)
	maps.DeleteFunc(stay, func(_ string, builds []string) bool { return slices.Contains(builds, b.options.Versioning.Build) })
	if err := b.routeAll(ctx, stay); err != nil {
		b.options.Log.Warn("another build could not be given the work: it takes it when this one is silent", "error", err)
	}
}

func (b *builds) presence(ctx context.Context) map[string]party.Presence {
	return presence.Finder{Temporal: b.temporal, Namespace: b.options.Namespace}.Of(ctx, b.queues...)
}

// buildsOf are the builds that run on each queue, in order: this one too, unless this process is left out as it is about to end.
func (b *builds) buildsOf(present map[string]party.Presence, without string) map[string][]string {
	running := map[string][]string{}
	for queue, p := range present {
		var found []string
		if without == "" {
			found = append(found, b.options.Versioning.Build)
		}
		for _, w := range p.Workers {
			if w.Identity != without {
				found = append(found, w.Build)
			}
		}
		slices.Sort(found)
		running[queue] = slices.Compact(found)
	}
	return running
}

// route has the newest of the builds that run get the queue's work.
func (b *builds) route(ctx context.Context, queue string, running []string) error {
	known, token, err := b.describe(ctx, queue, running)
	if err != nil {
		return err
	}
	if queue == catalog.EngineQueue {
		b.mayRecord(known)
	}
	decision := known.Decide()
	if decision.Build == known.Current {
		return nil
	}
	_, err = b.temporal.WorkflowService().SetWorkerDeploymentCurrentVersion(ctx, &workflowservice.SetWorkerDeploymentCurrentVersionRequest{
		Namespace: b.options.Namespace, DeploymentName: deploymentOf(queue), BuildId: decision.Build, ConflictToken: token, Identity: b.options.Identity,
		IgnoreMissingTaskQueues: true})
	if err != nil {
		return fmt.Errorf("%s can't be given the work on queue %s yet: %w", upgrade.Name(decision.Build), queue, err)
	}
	b.options.Log.Info("work goes to another build", "queue", queue, "build", decision.Build, "before", known.Current, "reason", decision.Reason)
	return nil
}

func (b *builds) mayRecord(known upgrade.Queue) {
	level, reason := known.Record(workflows.HistoryLevel, b.options.Versioning.RollbackWindow, time.Now())
	if before := b.level.Swap(int64(level)); before != int64(level) {
		b.options.Log.Info("releases that begin record what another build understands too", "level", level, "own", workflows.HistoryLevel, "reason", reason)
	}
}

// describe is what Temporal and the heartbeats of workers tell of a queue's builds, and the token that a change of them is refused by if they are no longer so.
func (b *builds) describe(ctx context.Context, queue string, running []string) (upgrade.Queue, []byte, error) {
	described, err := b.temporal.WorkflowService().DescribeWorkerDeployment(ctx, &workflowservice.DescribeWorkerDeploymentRequest{
		Namespace: b.options.Namespace, DeploymentName: deploymentOf(queue)})
	var unknown *serviceerror.NotFound
	if err != nil && !errors.As(err, &unknown) {
		return upgrade.Queue{}, nil, fmt.Errorf("builds of the workers of queue %s: %w (a Temporal server without worker deployments needs --worker-versioning=false)", queue, err)
	}
	info := described.GetWorkerDeploymentInfo()
	known := upgrade.Queue{Current: info.GetRoutingConfig().GetCurrentDeploymentVersion().GetBuildId(), Manager: info.GetManagerIdentity()}
	seen := map[string]upgrade.Build{upgrade.Unversioned: {}}
	for _, s := range info.GetVersionSummaries() {
		seen[s.GetDeploymentVersion().GetBuildId()] = seenBuild(s)
	}
	for _, id := range running {
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

func seenBuild(s *deploymentpb.WorkerDeploymentInfo_WorkerDeploymentVersionSummary) upgrade.Build {
	build := upgrade.Build{ID: s.GetDeploymentVersion().GetBuildId(), FirstSeen: s.GetCreateTime().AsTime()}
	switch {
	case s.GetCurrentSinceTime() != nil:
		build.LastCurrent = time.Now()
	case s.GetLastCurrentTime() != nil:
		build.LastCurrent = s.GetLastDeactivationTime().AsTime()
	}
	return build
}
