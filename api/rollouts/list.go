package rollouts

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
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

// ListRollouts answers GET /api/v1/rollouts: the newest record of each name, joined with Temporal's lists for running
// rollouts.
func (h *Handlers) ListRollouts(c echo.Context, params schema.ListRolloutsParams) error {
	wanted, err := rolloutFilter(params)
	if err != nil {
		return err
	}
	return answer.Shared(c, h.Recent, answer.ListMaxAge,
		func(ctx context.Context) (list answer.List[schema.RolloutSummary], err error) {
			records, err := h.Home.ListNewest(ctx, map[string]string{v1alpha1.LabelKind: v1alpha1.KindRollout})
			if err != nil {
				return list, err
			}
			lister := &rolloutLister{h, h.OpenOf(workflows.KindRollout)}
			return answer.FromRecords(wanted.page, records,
				func(record *v1alpha1.ReleaseRecord) (summary schema.RolloutSummary, is bool, err error) {
					if key, ok := rolloutOfSubject(record.Spec.Subject); ok && wanted.hasKey(key) {
						summary, err = lister.summary(ctx, key, record)
						is = wanted.hasState(summary)
					}
					return summary, is, err
				})
		})
}

// listFilter is the filter and the page of a list request.
type listFilter struct {
	party, namespace string
	phases           []rollout.Phase
	waits            []rollout.WaitKind
	page             answer.Page
}

func (w listFilter) hasKey(key rolloutKey) bool {
	return (w.party == "" || w.party == key.party) && (w.namespace == "" || w.namespace == key.namespace)
}

func (w listFilter) hasState(s schema.RolloutSummary) bool {
	return (len(w.phases) == 0 || slices.Contains(w.phases, s.Phase)) &&
		(len(w.waits) == 0 || s.WaitingFor != nil && slices.Contains(w.waits, s.WaitingFor.Kind))
}

var rolloutPhases = []rollout.Phase{rollout.PhaseProgressing, rollout.PhaseHealthy, rollout.PhaseFailed,
	rollout.PhaseRolledBack, rollout.PhaseCancelled}

func rolloutFilter(params schema.ListRolloutsParams) (listFilter, error) {
	wanted := listFilter{party: input.Text(params.Party), namespace: input.Text(params.Namespace)}
	var err error
	if wanted.page, err = answer.ParsePage(params.Limit, params.Cursor); err != nil {
		return wanted, err
	}
	if wanted.phases, err = answer.OneOf("phase", params.Phase, rolloutPhases); err != nil {
		return wanted, err
	}
	wanted.waits, err = answer.OneOf("waitingFor", params.WaitingFor, rollout.WaitKinds)
	return wanted, err
}

// rolloutLister creates the summaries of one list.
type rolloutLister struct {
	*Handlers
	open *backend.OpenWorkflows
}

func (l *rolloutLister) summary(ctx context.Context, key rolloutKey,
	record *v1alpha1.ReleaseRecord) (schema.RolloutSummary, error) {
	summary := schema.RolloutSummary{Party: key.party, Namespace: key.namespace, Name: key.name,
		WorkloadRef: record.Spec.Workload, Style: strategy.Style(record.Spec.Style),
		Summary: record.Spec.Comment, Actor: record.Spec.Actor, CreatedAt: record.Spec.CreatedAt.UTC(),
		Record: record.Name, Workflow: l.WorkflowRef(record.Spec.WorkflowID, "")}
	if outcome := record.Outcome; outcome != nil {
		summary.Phase, summary.Reason = rollout.Phase(outcome.State), outcome.Reason
		summary.Workflow = l.WorkflowRef(record.Spec.WorkflowID, outcome.RunID)
		summary.FinishedAt = answer.Moment(outcome.FinishedAt)
		return summary, nil
	}
	info, err := l.open.Running(ctx, record.Spec.WorkflowID)
	if err != nil {
		return summary, err
	}
	if info == nil {
		return l.addLost(ctx, key, summary)
	}
	summary.Phase = publishedPhase(info)
	summary.Workflow = l.WorkflowRef(record.Spec.WorkflowID, info.GetExecution().GetRunId())
	if summary.WaitingFor, _ = publishedWait(info); summary.WaitingFor != nil {
		summary.Reason = summary.WaitingFor.Message
	}
	return summary, nil
}

// addLost completes the summary of a rollout without a recorded outcome whose workflow does not run. Such rollouts are
// few, and are read in full.
func (l *rolloutLister) addLost(ctx context.Context, key rolloutKey,
	summary schema.RolloutSummary) (schema.RolloutSummary, error) {
	seen, err := l.readRollout(ctx, key)
	if err != nil {
		return summary, err
	}
	summary.Phase, summary.Reason, summary.FinishedAt = seen.Value.Phase, seen.Value.Reason, seen.Value.FinishedAt
	summary.Record = cmp.Or(seen.Value.Record, summary.Record)
	summary.WaitingFor = seen.Value.WaitingFor
	summary.Workflow = seen.Value.Workflow
	return summary, nil
}

// GetRolloutHistory answers GET /api/v1/rollouts/{namespace}/{name}/history: the running release, and the past ones
// from their records.
func (h *Handlers) GetRolloutHistory(c echo.Context, namespace, name string,
	params schema.GetRolloutHistoryParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	asked, err := answer.ParsePage(params.Limit, params.Cursor)
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
	list, err := answer.FromRecords(asked, records, func(record *v1alpha1.ReleaseRecord) (schema.RolloutRelease, bool,
		error) {
		one, err := past.release(ctx, record.Name)
		if err != nil {
			return schema.RolloutRelease{}, false, err
		}
		release := schema.RolloutRelease{Rollout: one.status, Actor: one.record.Spec.Actor,
			Reason: one.record.Spec.Reason, Via: one.record.Labels[v1alpha1.LabelVia]}
		release.Replaced, err = past.replaced(ctx, record.Name)
		return release, true, err
	})
	return answer.JSON(c, list, err)
}

// rolloutHistory reads the releases of one name. The live release is read once, and only if a record has no outcome.
type rolloutHistory struct {
	*Handlers
	key rolloutKey
	// records are those of all releases of the name, newest first; read are the releases read so far.
	records []*v1alpha1.ReleaseRecord
	read    map[string]pastRelease
	live    *rolloutSnapshot
	// replacedNumbers are the numbers of the versions that the releases replaced; nil until needed.
	replacedNumbers map[string]int64
}

// pastRelease is a release with its record. Its status is the final or current one, with its number.
type pastRelease struct {
	record *v1alpha1.ReleaseRecord
	status rollout.Status
}

func newHistory(h *Handlers, key rolloutKey, records []*v1alpha1.ReleaseRecord) *rolloutHistory {
	return &rolloutHistory{Handlers: h, key: key, records: records, read: map[string]pastRelease{}}
}

// replaced returns the number of the version that a release replaced; 0 if it has none. It needs the whole history of
// the workload, because an undo may have restored any version.
func (p *rolloutHistory) replaced(ctx context.Context, name string) (int64, error) {
	if p.replacedNumbers != nil {
		return p.replacedNumbers[name], nil
	}
	all, err := p.all(ctx)
	if err != nil {
		return 0, err
	}
	p.replacedNumbers = map[string]int64{}
	for _, statuses := range byWorkload(all) {
		for i, number := range history.Of(statuses).Replaced {
			p.replacedNumbers[statuses[i].Record] = number
		}
	}
	return p.replacedNumbers[name], nil
}

// byWorkload returns the statuses of releases: the name may have had another workload before.
func byWorkload(releases []pastRelease) map[catalog.WorkloadRef][]rollout.Status {
	by := map[catalog.WorkloadRef][]rollout.Status{}
	for _, one := range releases {
		by[one.status.WorkloadRef] = append(by[one.status.WorkloadRef], one.status)
	}
	return by
}

// all returns the releases of the name that are still recorded, newest first.
func (p *rolloutHistory) all(ctx context.Context) (all []pastRelease, err error) {
	for _, record := range p.records {
		if store.IsRestoreOnly(record) {
			continue
		}
		one, err := p.release(ctx, record.Name)
		if problem.IsNotFound(err) {
			continue // it was pruned or withdrawn in the meantime
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// release reads a release, once.
func (p *rolloutHistory) release(ctx context.Context, name string) (one pastRelease, err error) {
	if known, is := p.read[name]; is {
		return known, nil
	}
	if one.record, err = p.Home.GetRelease(ctx, name); err != nil {
		return one, err
	}
	if one.status, err = p.status(ctx, one.record); err != nil {
		return one, err
	}
	one.status.Revision = cmp.Or(v1alpha1.RevisionOf(one.record), one.status.Revision)
	p.read[name] = one
	return one, nil
}

func (p *rolloutHistory) status(ctx context.Context, record *v1alpha1.ReleaseRecord) (rollout.Status, error) {
	if record.Outcome != nil {
		return p.Complete(record)
	}
	if p.live == nil {
		seen, err := p.readRollout(ctx, p.key)
		if err != nil {
			return rollout.Status{}, err
		}
		p.live = &seen
	}
	if p.live.Value.Record == record.Name {
		return p.live.Value, nil
	}
	status, err := p.Outline(record)
	if err != nil {
		return status, err
	}
	switch fresh := time.Since(record.Spec.CreatedAt.Time) < start.LaunchWindow; {
	case len(p.records) == 0 || record.Name != p.records[0].Name:
		status.Phase, status.Reason = rollout.PhaseFailed,
			"it has no recorded outcome: its workflow was terminated, or never started"
	case fresh || isSupersededBy(p.live.Value, record.Name):
		status.Reason = "is being started: the previous release is rolled back first"
	default:
		status.Phase, status.Reason = rollout.PhaseFailed, reasonNoWorkflow
	}
	return status, nil
}

// isSupersededBy reports whether a live release is being rolled back because the record's release supersedes it.
func isSupersededBy(live rollout.Status, record string) bool {
	return slices.ContainsFunc(live.History, func(e audit.Entry) bool {
		return e.Verb == rollout.VerbSupersede && e.Outcome == audit.Accepted &&
			e.Key == audit.StoredKey(supersedeKey(record))
	})
}

// rolloutKey identifies a rollout: a name in a namespace of a party has at most one live release.
type rolloutKey struct {
	party, namespace, name string
}

// newRolloutKey reads the parts of an address; an illegal name is reported as not found.
func newRolloutKey(party *schema.Party, namespace, name string) (rolloutKey, error) {
	key := rolloutKey{cmp.Or(input.Text(party), catalog.DefaultParty), namespace, name}
	if catalog.ValidID(key.party) != nil || len(validation.IsDNS1123Label(namespace)) > 0 ||
		len(validation.IsDNS1123Subdomain(name)) > 0 {
		return key, key.missing()
	}
	return key, nil
}

// rolloutOfSubject parses the subject of a rollout's record.
func rolloutOfSubject(subject string) (key rolloutKey, ok bool) {
	parts := strings.Split(subject, "/")
	if len(parts) != 3 {
		return rolloutKey{}, false
	}
	return rolloutKey{parts[0], parts[1], parts[2]}, true
}

func (k rolloutKey) workflowID() string { return rollout.WorkflowID(k.party, k.namespace, k.name) }

func (k rolloutKey) subject() string {
	return v1alpha1.RolloutSubject(k.party, k.namespace, k.name)
}

// labels select the records of all releases of this name.
func (k rolloutKey) labels() map[string]string {
	return store.RolloutLabels(k.party, k.namespace, k.name)
}

// String names the rollout in messages.
func (k rolloutKey) String() string {
	if k.party == catalog.DefaultParty {
		return fmt.Sprintf("rollout %s/%s", k.namespace, k.name)
	}
	return fmt.Sprintf("rollout %s/%s of party %s", k.namespace, k.name, k.party)
}

// path is the address of the rollout, verb the address of one of its verbs.
func (k rolloutKey) path() string { return k.verb("") }

func (k rolloutKey) verb(verb string) string {
	address := "/api/v1/rollouts/" + url.PathEscape(k.namespace) + "/" + url.PathEscape(k.name)
	if verb != "" {
		address += "/" + verb
	}
	if k.party != catalog.DefaultParty {
		address += "?party=" + url.QueryEscape(k.party)
	}
	return address
}

func (k rolloutKey) missing() error { return problem.NotFound.Because("%s does not exist", k) }
