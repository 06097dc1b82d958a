package rollouts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/page"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/history"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/workflows"
)

// ListRollouts answers GET /api/v1/rollouts: the newest record of each name, and what Temporal's lists say of those that still run.
func (h *Handlers) ListRollouts(c echo.Context, params schema.ListRolloutsParams) error {
	wanted, err := rolloutFilter(params)
	if err != nil {
		return err
	}
	return answer.Shared(c, h.Recent, answer.FreshList, func(ctx context.Context) (page.List[schema.RolloutSummary], error) {
		return h.list(ctx, wanted)
	})
}

func (h *Handlers) list(ctx context.Context, wanted wantedRollouts) (page.List[schema.RolloutSummary], error) {
	records, err := h.Home.ListNewest(ctx, map[string]string{v1alpha1.LabelKind: v1alpha1.KindRollout})
	if err != nil {
		return page.List[schema.RolloutSummary]{}, err
	}
	lister := &rolloutLister{h, backend.OpenWorkflows{Backend: h.Backend,
		Query: fmt.Sprintf("%s = '%s'", workflows.AttributeKind.GetName(), workflows.KindRollout)}}
	return page.OfRecords(wanted.page, records,
		func(record *v1alpha1.ReleaseRecord) (schema.RolloutSummary, bool, error) {
			key, ok := rolloutOfSubject(record.Spec.Subject)
			if !ok || !wanted.hasKey(key) {
				return schema.RolloutSummary{}, false, nil
			}
			summary, err := lister.summary(ctx, key, record)
			return summary, wanted.hasState(summary), err
		})
}

// wantedRollouts is what a list was asked for.
type wantedRollouts struct {
	party, namespace string
	phases           []rollout.Phase
	waits            []rollout.WaitKind
	page             page.Asked
}

func (w wantedRollouts) hasKey(key rolloutKey) bool {
	return (w.party == "" || w.party == key.party) && (w.namespace == "" || w.namespace == key.namespace)
}

func (w wantedRollouts) hasState(s schema.RolloutSummary) bool {
	return (len(w.phases) == 0 || slices.Contains(w.phases, s.Phase)) &&
		(len(w.waits) == 0 || s.WaitingFor != nil && slices.Contains(w.waits, s.WaitingFor.Kind))
}

var rolloutPhases = []rollout.Phase{rollout.PhaseProgressing, rollout.PhaseHealthy, rollout.PhaseFailed, rollout.PhaseRolledBack,
	rollout.PhaseCancelled}

func rolloutFilter(params schema.ListRolloutsParams) (wantedRollouts, error) {
	wanted := wantedRollouts{party: input.Text(params.Party), namespace: input.Text(params.Namespace)}
	var err error
	if wanted.page, err = page.Parse(params.Limit, params.Cursor); err != nil {
		return wanted, err
	}
	if wanted.phases, err = page.OneOf("phase", params.Phase, rolloutPhases); err != nil {
		return wanted, err
	}
	wanted.waits, err = page.OneOf("waitingFor", params.WaitingFor, rollout.WaitKinds)
	return wanted, err
}

// rolloutLister makes the summaries of one list.
type rolloutLister struct {
	*Handlers
	open backend.OpenWorkflows
}

func (l *rolloutLister) summary(ctx context.Context, key rolloutKey, record *v1alpha1.ReleaseRecord) (schema.RolloutSummary, error) {
	summary := schema.RolloutSummary{Party: key.party, Namespace: key.namespace, Name: key.name, WorkloadRef: record.Spec.Workload,
		Style:   strategy.Style(record.Spec.Style),
		Summary: record.Spec.Comment, Actor: record.Spec.Actor, CreatedAt: record.Spec.CreatedAt.UTC(), Record: record.Name,
		Workflow: l.WorkflowRef(record.Spec.WorkflowID, "")}
	if outcome := record.Outcome; outcome != nil {
		summary.Phase, summary.Reason = rollout.Phase(outcome.State), outcome.Reason
		summary.Workflow = l.WorkflowRef(record.Spec.WorkflowID, outcome.RunID)
		if outcome.FinishedAt != nil {
			summary.FinishedAt = answer.UTC(outcome.FinishedAt.Time)
		}
		return summary, nil
	}
	info, err := l.open.Running(ctx, record.Spec.WorkflowID)
	if err != nil {
		return summary, err
	}
	if info == nil {
		return l.lost(ctx, key, summary)
	}
	summary.Phase = publishedPhase(info)
	summary.Workflow = l.WorkflowRef(record.Spec.WorkflowID, info.GetExecution().GetRunId())
	if summary.WaitingFor = publishedWait(info); summary.WaitingFor != nil {
		summary.Reason = summary.WaitingFor.Message
	}
	return summary, nil
}

// lost is for the few rollouts whose record is not complete and whose workflow does not run: they are read in full.
func (l *rolloutLister) lost(ctx context.Context, key rolloutKey, summary schema.RolloutSummary) (schema.RolloutSummary, error) {
	seen, err := l.readRollout(ctx, key)
	if err != nil {
		return summary, err
	}
	summary.Phase, summary.Reason, summary.FinishedAt = seen.status.Phase, seen.status.Reason, seen.status.FinishedAt
	summary.Record = cmp.Or(seen.status.Record, summary.Record)
	summary.WaitingFor = seen.status.WaitingFor
	summary.Workflow = seen.status.Workflow
	return summary, nil
}

// GetRolloutHistory answers GET /api/v1/rollouts/{namespace}/{name}/history: the release that runs, and the past ones from their records.
func (h *Handlers) GetRolloutHistory(c echo.Context, namespace, name string, params schema.GetRolloutHistoryParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	asked, err := page.Parse(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	records, err := h.Home.ListRecords(ctx, key.labels())
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return key.missing()
	}
	past := newHistory(h, key, records)
	list, err := page.OfRecords(asked, records, func(record *v1alpha1.ReleaseRecord) (schema.RolloutRelease, bool, error) {
		release, err := past.release(ctx, record.Name)
		if err == nil {
			release.Replaced, err = past.replaced(ctx, record.Name)
		}
		return release, true, err
	})
	return answer.JSON(c, list, err)
}

// rolloutHistory reads the releases of one name. The live one is asked once, and only if some record is not complete.
type rolloutHistory struct {
	*Handlers
	key    rolloutKey
	newest string
	live   *rolloutSnapshot
	// releases are the names of the records of releases, newest first, and numbers their numbers; read are those that were read.
	releases []string
	numbers  map[string]int64
	read     map[string]rollout.Status
	// found are the numbers of the versions that they found, nil until somebody asks.
	found map[string]int64
}

// newHistory reads the releases of a name, whose records come newest first.
func newHistory(h *Handlers, key rolloutKey, records []*v1alpha1.ReleaseRecord) *rolloutHistory {
	p := &rolloutHistory{Handlers: h, key: key, numbers: map[string]int64{}, read: map[string]rollout.Status{}}
	if len(records) > 0 {
		p.newest = records[0].Name
	}
	numbers := history.Numbers(store.RecordedNumbers(records))
	for _, record := range records {
		if store.BringsHome(record) {
			continue
		}
		p.numbers[record.Name] = numbers[len(p.releases)]
		p.releases = append(p.releases, record.Name)
	}
	return p
}

// replaced is the number of the version that a release found, 0 where that has none. The whole history of its workload tells: somebody may have brought
// back any version of it.
func (p *rolloutHistory) replaced(ctx context.Context, name string) (int64, error) {
	if p.found == nil {
		if err := p.readAll(ctx); err != nil {
			return 0, err
		}
	}
	return p.found[name], nil
}

// readAll reads every release of the name, for the versions that they found. Under one name, several workloads may have been released.
func (p *rolloutHistory) readAll(ctx context.Context) error {
	byWorkload := map[catalog.WorkloadRef][]rollout.Status{}
	names := map[catalog.WorkloadRef][]string{}
	for _, name := range p.releases {
		status, err := p.statusOf(ctx, name)
		if problem.IsGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		of := status.WorkloadRef
		byWorkload[of], names[of] = append(byWorkload[of], status), append(names[of], name)
	}
	p.found = map[string]int64{}
	for workload, statuses := range byWorkload {
		for i, number := range history.Of(statuses).Replaced {
			p.found[names[workload][i]] = number
		}
	}
	return nil
}

// statusOf reads a release once.
func (p *rolloutHistory) statusOf(ctx context.Context, name string) (rollout.Status, error) {
	if status, is := p.read[name]; is {
		return status, nil
	}
	release, err := p.release(ctx, name)
	return release.Rollout, err
}

func (p *rolloutHistory) release(ctx context.Context, name string) (schema.RolloutRelease, error) {
	record, err := p.Home.GetRelease(ctx, name)
	if err != nil {
		return schema.RolloutRelease{}, err
	}
	status, err := p.status(ctx, record)
	if err == nil {
		p.read[name] = status
	}
	return schema.RolloutRelease{Rollout: status, Actor: record.Spec.Actor, Reason: record.Spec.Reason,
		Via: record.Labels[v1alpha1.LabelVia]}, err
}

// status is a release as it ended, or as it is, with its number.
func (p *rolloutHistory) status(ctx context.Context, record *v1alpha1.ReleaseRecord) (rollout.Status, error) {
	status, err := p.unnumbered(ctx, record)
	if number := p.numbers[record.Name]; number > 0 {
		status.Revision = number
	}
	return status, err
}

func (p *rolloutHistory) unnumbered(ctx context.Context, record *v1alpha1.ReleaseRecord) (rollout.Status, error) {
	if record.Outcome != nil {
		seen, err := p.readComplete(record)
		return seen.status, err
	}
	if p.live == nil {
		seen, err := p.readRollout(ctx, p.key)
		if err != nil {
			return rollout.Status{}, err
		}
		p.live = &seen
	}
	if p.live.status.Record == record.Name {
		return p.live.status, nil
	}
	status, err := p.outlineRollout(record)
	if err != nil {
		return status, err
	}
	switch fresh := time.Since(record.Spec.CreatedAt.Time) < start.Window; {
	case record.Name != p.newest:
		status.Phase, status.Reason = rollout.PhaseFailed, "it was never recorded as over: its workflow was terminated, or never started"
	case fresh || makesWayFor(p.live.status, record.Name):
		status.Reason = "is being started: the release before it goes back first"
	default:
		status.Phase, status.Reason = rollout.PhaseFailed, neverKnown
	}
	return status, nil
}

// makesWayFor says whether a live release goes back because that of the record takes its place.
func makesWayFor(live rollout.Status, record string) bool {
	return slices.ContainsFunc(live.History, func(e audit.Entry) bool {
		return e.Verb == rollout.VerbSupersede && e.Outcome == audit.Accepted && e.Key == audit.KeptKey(supersedeKey(record))
	})
}
