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
	// decideEvery is how often it is decided anew in any case: a build may take the work and die before it is heard of, and those that may be gone back to become too old.
	decideEvery = time.Minute
	// routePause is how long a process waits before it tries again to get the work: Temporal has to hear of a new build's workers first.
	routePause = 250 * time.Millisecond
	// routeTimeout bounds one look, with what follows of it, leaveTimeout that of a process which ends.
	routeTimeout, leaveTimeout = 10 * time.Second, 3 * time.Second
	// heardAgain is within how long a worker that lives is heard of again: it tells every party.Interval, and none of that may be lost.
	heardAgain = party.Interval + 2*time.Second
	// missingFor is for how long a newer build must not have been heard of before an older one takes its work: Temporal forgets who polls when it is started again.
	missingFor = 10 * time.Second
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
	// learnt are the queues of which it could be learnt who polls them: some servers of Temporal never tell.
	learnt map[string]bool
	// missing is since when the newer build that gets the work of a queue has not been heard of.
	mu      sync.Mutex
	missing map[string]time.Time
}

func newBuilds(temporal client.Client, queues []Queue, options Options) *builds {
	b := &builds{temporal: temporal, options: options, missing: map[string]time.Time{}, learnt: map[string]bool{}}
	for _, q := range queues {
		b.queues = append(b.queues, q.Name)
	}
	b.level.Store(int64(workflows.HistoryLevel))
	return b
}

// deploymentOf is the name of a queue's workers as a deployment of Temporal's, which must have no dot and no colon.
func deploymentOf(queue string) string { return strings.NewReplacer(".", "/", ":", "/").Replace(queue) }

// deployment is how a worker of the queue says which build it is. Every type of workflow moves to the build that gets the work: one that is
// pinned to a build would stop for good with the last worker of that build.
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
	present := b.presence(ctx)
	for queue, p := range present {
		switch {
		case p.Reachable != party.Unknown:
			b.learnt[queue] = true
		case b.learnt[queue]: // every build that ever ran would count as running
			return fmt.Errorf("the work stays where it is until Temporal tells: %s", p.Reason)
		}
	}
	running := b.runOn(present)
	if maps.EqualFunc(running, b.running, slices.Equal) && time.Since(b.decided) < decideEvery {
		return nil
	}
	// Until all queues are settled nothing is: what is so again as it was at the last decision may have been different in between.
	b.running = nil
	if err := b.routeAll(ctx, running, anyBuild); err != nil {
		return err
	}
	b.running, b.decided = running, time.Now()
	return nil
}

// routeAll routes all queues side by side: Temporal takes most of a second to change one.
func (b *builds) routeAll(ctx context.Context, running map[string][]string, leaving string) error {
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

// leave gives the work to the builds of others where no worker of this build stays: before an old build ends that a new one is gone back from, say. Those that are
// known to be dead don't stay.
func (b *builds) leave(ctx context.Context, dead ...party.Worker) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	stay := b.stay(b.presence(ctx), dead)
	maps.DeleteFunc(stay, func(_ string, builds []string) bool { return slices.Contains(builds, anyBuild) })
	if err := b.routeAll(ctx, stay, b.options.Versioning.Build); err != nil {
		b.options.Log.Warn("another build could not be given the work: it takes it when this one is silent", "error", err)
	}
}

// awaitOthers returns the workers of this build, but for this process's own, that must be dead: they count as there until they have been silent for long enough,
// but aren't heard of again. It waits only where another build could go on: one that tells no ID takes no work by itself. When there is no time it finds none.
func (b *builds) awaitOthers(ctx context.Context) []party.Worker {
	until := time.Now().Add(heardAgain)
	if ends, bounded := ctx.Deadline(); bounded && ends.Before(until.Add(leaveTimeout)) {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	former := b.presence(asking)
	if !b.anotherCouldGoOn(asking, former) {
		return nil
	}
	silent, known := b.silent(former, former), true
	for len(silent) > 0 && time.Now().Before(until) && pause(ctx, routePause) {
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

// anotherCouldGoOn says whether this build has the work of a queue that another build's workers poll too. Those may not have been heard of on all their queues yet.
func (b *builds) anotherCouldGoOn(ctx context.Context, present map[string]party.Presence) bool {
	for queue, running := range b.stay(present, nil) {
		if !slices.ContainsFunc(running, func(build string) bool { return build != b.options.Versioning.Build }) {
			continue
		}
		if known, _, err := b.describe(ctx, queue, running); err == nil && known.Current == b.options.Versioning.Build {
			return true
		}
	}
	return false
}

// silent are the workers of this build, but for this process's own, that have not been heard of since.
func (b *builds) silent(former, now map[string]party.Presence) (silent []party.Worker) {
	for _, queue := range b.queues {
		for _, w := range now[queue].SilentSince(former[queue]) {
			if w.Build == b.options.Versioning.Build && w.Identity != b.options.Identity {
				silent = append(silent, w)
			}
		}
	}
	return silent
}

func (b *builds) presence(ctx context.Context) map[string]party.Presence {
	return presence.Finder{Temporal: b.temporal, Namespace: b.options.Namespace}.Of(ctx, b.queues...)
}

// anyBuild stands for builds that may run: who polls the queue can't be learnt.
const anyBuild = "*"

// runOn are the builds that run on each queue, in order: this one too.
func (b *builds) runOn(present map[string]party.Presence) map[string][]string {
	running := map[string][]string{}
	for queue, p := range present {
		running[queue] = inOrder(append(buildsOf(p, p.Workers), b.options.Versioning.Build))
	}
	return running
}

// stay are the builds that run on each queue, in order, when this process has ended. Those that are known to be dead are left out.
func (b *builds) stay(present map[string]party.Presence, dead []party.Worker) map[string][]string {
	staying := map[string][]string{}
	for queue, p := range present {
		staying[queue] = inOrder(buildsOf(p, slices.DeleteFunc(slices.Clone(p.Workers), func(w party.Worker) bool {
			return w.Identity == b.options.Identity || slices.Contains(dead, w)
		})))
	}
	return staying
}

// buildsOf are the builds of these workers of a queue, and anyBuild if who polls it can't be learnt.
func buildsOf(p party.Presence, workers []party.Worker) (found []string) {
	if p.Reachable == party.Unknown {
		found = append(found, anyBuild)
	}
	for _, w := range workers {
		found = append(found, w.Build)
	}
	return found
}

func inOrder(builds []string) []string {
	slices.Sort(builds)
	return slices.Compact(builds)
}

// heard notes that who gets the work of a queue runs.
func (b *builds) heard(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.missing, queue)
}

// missingLong says whether who gets the work of a queue has not been heard of for missingFor.
func (b *builds) missingLong(queue string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.missing[queue].IsZero() {
		b.missing[queue] = time.Now()
	}
	return time.Since(b.missing[queue]) >= missingFor
}

// route has the newest of the builds that run get the queue's work. leaving is the build whose last worker is about to end, if that is known.
func (b *builds) route(ctx context.Context, queue string, running []string, leaving string) error {
	known, token, err := b.describe(ctx, queue, running)
	if err != nil {
		return err
	}
	if queue == catalog.EngineQueue {
		b.mayRecord(known)
	}
	decision := known.Decide()
	if decision.Build == known.Current {
		b.heard(queue)
		return nil
	}
	if decision.Older && known.Current != leaving && !b.missingLong(queue) {
		return fmt.Errorf("%s keeps the work on queue %s for now: it may only not have been heard of", upgrade.Name(known.Current), queue)
	}
	_, err = b.temporal.WorkflowService().SetWorkerDeploymentCurrentVersion(ctx, &workflowservice.SetWorkerDeploymentCurrentVersionRequest{
		Namespace: b.options.Namespace, DeploymentName: deploymentOf(queue), BuildId: decision.Build, ConflictToken: token, Identity: b.options.Identity,
		IgnoreMissingTaskQueues: true})
	if err != nil {
		return fmt.Errorf("%s can't be given the work on queue %s yet: %w", upgrade.Name(decision.Build), queue, err)
	}
	b.heard(queue)
	b.options.Log.Info("work goes to another build", "queue", queue, "build", decision.Build, "before", known.Current, "reason", decision.Reason)
	return nil
}

// mayRecord bounds what releases that begin record. Without an ID builds can't be told apart: whoever goes by that updates all workers at once.
func (b *builds) mayRecord(known upgrade.Queue) {
	if b.options.Versioning.Build == upgrade.Unversioned {
		return
	}
	level, reason := known.Record(workflows.HistoryLevel, b.options.Versioning.RollbackWindow, time.Now())
	if before := b.level.Swap(int64(level)); before != int64(level) {
		b.options.Log.Info("releases that begin record what another build understands too", "level", level, "own", workflows.HistoryLevel, "reason", reason)
	}
}

// describe is what Temporal and the heartbeats of workers tell of a queue's builds, and the token that a change of them is refused by if they are no longer so.
func (b *builds) describe(ctx context.Context, queue string, running []string) (upgrade.Queue, []byte, error) {
	described, err := b.temporal.WorkflowService().DescribeWorkerDeployment(ctx, &workflowservice.DescribeWorkerDeploymentRequest{
		Namespace: b.options.Namespace, DeploymentName: deploymentOf(queue)})
	if err != nil && !b.none(err) {
		return upgrade.Queue{}, nil, fmt.Errorf("builds of the workers of queue %s: %w (a Temporal server without worker deployments needs "+
			"--worker-versioning=false)", queue, err)
	}
	info := described.GetWorkerDeploymentInfo()
	known := upgrade.Queue{Current: info.GetRoutingConfig().GetCurrentDeploymentVersion().GetBuildId(), Manager: info.GetManagerIdentity()}
	seen := map[string]upgrade.Build{upgrade.Unversioned: b.unversioned(ctx, queue, info)}
	for _, s := range info.GetVersionSummaries() {
		build := seenBuild(s)
		build.Live = slices.Contains(running, anyBuild)
		seen[build.ID] = build
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

// none says that an error tells of no deployment. A server without worker deployments has none either, for workers that need none.
func (b *builds) none(err error) bool {
	var unknown *serviceerror.NotFound
	var unimplemented *serviceerror.Unimplemented
	var denied *serviceerror.PermissionDenied // also where they are switched off
	return errors.As(err, &unknown) || b.options.Versioning.Build == upgrade.Unversioned && (errors.As(err, &unimplemented) || errors.As(err, &denied))
}

// unversioned is the build without an ID: until when it got the work, if releases began before the first build with an ID got it. Temporal keeps no list of it.
func (b *builds) unversioned(ctx context.Context, queue string, info *deploymentpb.WorkerDeploymentInfo) (build upgrade.Build) {
	until := time.Now()
	if info.GetRoutingConfig().GetCurrentDeploymentVersion() != nil {
		for _, s := range info.GetVersionSummaries() {
			if first := s.GetFirstActivationTime(); first != nil && first.AsTime().Before(until) {
				until = first.AsTime()
			}
		}
	}
	if queue != catalog.EngineQueue || b.options.Versioning.Build == upgrade.Unversioned || time.Since(until) > b.options.Versioning.RollbackWindow {
		return build
	}
	before, err := b.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: b.options.Namespace,
		Query: fmt.Sprintf("WorkflowType IN ('%s', '%s', '%s') AND StartTime < '%s'", workflows.TypeDeployPlan, workflows.TypeRollout, workflows.TypeServing,
			until.UTC().Format(time.RFC3339Nano))})
	if err != nil || before.GetCount() > 0 {
		build.LastCurrent = until
	}
	return build
}

// prepare learns what releases that begin may record, before a worker asks for work.
func (b *builds) prepare(ctx context.Context) error {
	if !slices.Contains(b.queues, catalog.EngineQueue) || b.options.Versioning.Build == upgrade.Unversioned {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	known, _, err := b.describe(ctx, catalog.EngineQueue, b.runOn(b.presence(ctx))[catalog.EngineQueue])
	if err == nil {
		b.mayRecord(known)
	}
	return err
}

func seenBuild(s *deploymentpb.WorkerDeploymentInfo_WorkerDeploymentVersionSummary) upgrade.Build {
	build := upgrade.Build{ID: s.GetDeploymentVersion().GetBuildId(), FirstSeen: s.GetCreateTime().AsTime()}
	switch {
	case s.GetCurrentSinceTime() != nil:
		build.LastCurrent = time.Now()
	case s.GetLastDeactivationTime() != nil: // it was ramping, at least
		build.LastCurrent = s.GetLastDeactivationTime().AsTime()
	}
	return build
}
