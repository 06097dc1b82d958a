package strategy

import (
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/window"
)

// draft is a strategy as it was read, with what validation needs to know about its text.
type draft struct {
	Strategy
	// body is the path of canary or blueGreen, "" if there is neither.
	body string
	// refField is the path of the field that names the TrafficRouting, extraField of the one that sets the style.
	refField, extraField string
	// legacy means that it has the form of v1alpha1; deployment, that it is for a Deployment, the only kind that can
	// have an extra workload.
	legacy, deployment bool
}

// strategy reads a strategy of either version. For v1alpha1 it leaves the style open: an annotation sets it.
func (r *Reader) strategy(v strictyaml.Value, legacy bool) draft {
	d := draft{legacy: legacy}
	if !v.Present() {
		r.Refuse(v.Path(), "is required: define how the new version is released, under canary or blueGreen")
		return d
	}
	keys := []string{"paused", "canary"}
	if !legacy {
		// The API specification shows trafficRoutingRef next to canary; the CRD has it inside canary. Both are
		// accepted.
		keys = append(keys, "blueGreen", "trafficRoutingRef")
	}
	m := v.Mapping(keys...)
	if r.found.Unreadable(v.Path()) {
		return d
	}
	d.Paused = m.Optional("paused").Bool()
	canary, blueGreen := m.Optional("canary"), m.Optional("blueGreen")
	switch {
	case canary.Present() && blueGreen.Present():
		r.Refuse(v.Path(), "has both canary and blueGreen: keep one")
	case blueGreen.Present():
		d.Style = StyleBlueGreen
		r.commonFields(&d, blueGreen, blueGreen.Mapping("steps", "trafficRoutings", "failureThreshold",
			"trafficRoutingRef", "disableGenerateCanaryService"))
	case canary.Present():
		r.canary(&d, canary)
	case legacy:
		r.Refuse(v.Path(), "must have canary, the only strategy of v1alpha1")
	default:
		r.Refuse(v.Path(), "must have one of canary and blueGreen")
	}
	ref := m.Optional("trafficRoutingRef")
	r.setRoutingRef(&d, ref.Path(), ref.Text())
	return d
}

func (r *Reader) canary(d *draft, v strictyaml.Value) {
	keys := []string{"steps", "trafficRoutings", "failureThreshold", "patchPodTemplateMetadata",
		"disableGenerateCanaryService"}
	if !d.legacy {
		keys = append(keys, "enableExtraWorkloadForCanary", "trafficRoutingRef")
	}
	m := v.Mapping(keys...)
	d.Style = StylePartition
	if field := m.Optional("enableExtraWorkloadForCanary"); field.Present() {
		d.extraField = field.Path()
		if field.Bool() {
			d.Style = StyleCanary
		}
	}
	r.commonFields(d, v, m)
	d.PatchPodTemplateMetadata = r.podMetadata(m.Optional("patchPodTemplateMetadata"))
}

func (r *Reader) commonFields(d *draft, v strictyaml.Value, m strictyaml.Mapping) {
	d.body = v.Path()
	d.DisableGenerateCanaryService = m.Optional("disableGenerateCanaryService").Bool()
	for _, entry := range m.Optional("steps").List() {
		d.Steps = append(d.Steps, r.step(entry, d))
	}
	d.Routings = r.Routings(m.Optional("trafficRoutings"), !d.DisableGenerateCanaryService)
	d.FailureThreshold = amount(m.Optional("failureThreshold"), 0)
	ref := m.Optional("trafficRoutingRef")
	r.setRoutingRef(d, ref.Path(), ref.Text())
}

// setRoutingRef sets the name of a TrafficRouting. Several fields may set it, as long as they agree.
func (r *Reader) setRoutingRef(d *draft, field, name string) {
	switch {
	case name == "":
	case d.TrafficRoutingRef != "" && name != d.TrafficRoutingRef:
		r.Refuse(field, "names the TrafficRouting %s, but %s names %s: keep one", strictyaml.Quote(name), d.refField,
			strictyaml.Quote(d.TrafficRoutingRef))
	default:
		d.TrafficRoutingRef, d.refField = name, field
	}
}

// step reads one step. A step without replicas gets the number 0, which validation refuses.
func (r *Reader) step(v strictyaml.Value, d *draft) Step {
	share := d.shareKey()
	m := v.Mapping(share, "replicas", "pause", "matches", "requestHeaderModifier")
	var s Step
	switch field := m.Optional(share); {
	case !field.Present():
	// a blue-green step may keep all traffic on the old version; a canary step leaves traffic out for that
	case d.Style == StyleBlueGreen:
		s.Traffic = Percent(field, 0)
	default:
		s.Traffic = Percent(field, 1)
	}
	if replicas := amount(m.Optional("replicas"), 1); replicas != nil {
		s.Replicas = *replicas
	} else if d.legacy && s.Traffic != nil {
		s.Replicas = intstr.FromString(formatPercent(*s.Traffic))
	}
	if field := m.Optional("pause"); field.Present() {
		duration := field.Mapping("duration").Optional("duration")
		// the API specification shows "duration: {}" for an absent one
		if duration.Present() && !duration.IsEmptyMapping() {
			least := int64(0)
			if r.stored { // a negative pause ends at once, as with other controllers of the kind
				least = math.MinInt32
			}
			s.PauseSeconds = new(max(duration.Seconds(least, math.MaxInt32), 0))
		}
	}
	s.Matches = r.Matches(m.Optional("matches"))
	s.RequestHeaderModifier = r.HeaderModifier(m.Optional("requestHeaderModifier"))
	return s
}

func (r *Reader) podMetadata(v strictyaml.Value) *PodMetadata {
	m := v.Mapping("labels", "annotations")
	metadata := &PodMetadata{Labels: m.Optional("labels").StringMap(),
		Annotations: m.Optional("annotations").StringMap()}
	r.checkPodMetadata(v.Path(), metadata)
	if len(metadata.Labels)+len(metadata.Annotations) == 0 {
		return nil
	}
	return metadata
}

// The longest times that a policy can set, in seconds: a day for a workload's own update, a week for a step's pods, a
// year for an approval.
const (
	maxSettleSeconds          = 24 * 3600
	maxStepDeadlineSeconds    = 7 * 24 * 3600
	maxApprovalExpiresSeconds = 365 * 24 * 3600
)

// maxRollbackWindow is far above the number of releases whose records are kept.
const maxRollbackWindow = 1000

// policy reads the policy with its defaults. batches is the value of rollbackInBatches; nil if absent.
func (r *Reader) policy(v strictyaml.Value) (p Policy, batches *bool) {
	p = Policy{StepDeadlineSeconds: DefaultStepDeadlineSeconds, SettleSeconds: DefaultSettleSeconds,
		OnFailure: OnFailurePause, OnExpiry: OnFailurePause}
	if !v.Present() {
		return p, nil
	}
	m := v.Mapping(append([]string{"stepDeadlineSeconds", "settleSeconds", "onFailure", "approvals",
		"rollbackInBatches", "rollbackWindow", "analysis"}, window.Keys...)...)
	p.Times = window.Read(m)
	p.CheckTimes(v.Path(), r.found)
	readSeconds(m.Field("stepDeadlineSeconds"), &p.StepDeadlineSeconds, 1, maxStepDeadlineSeconds)
	readSeconds(m.Field("settleSeconds"), &p.SettleSeconds, 0, maxSettleSeconds)
	readEnum(m.Field("onFailure"), &p.OnFailure, OnFailurePause, OnFailureRollback)
	if field := m.Field("analysis"); field.Present() {
		field.CannotRead("is not available yet: leave it out, and check the new version yourself in a step whose " +
			"pause has no duration")
	}
	if field := m.Field("rollbackInBatches"); field.Present() {
		batches = new(field.Bool())
	}
	if field := m.Field("rollbackWindow"); field.Present() {
		p.RollbackWindow = r.rollbackWindow(field)
	}
	r.approvals(&p, m.Field("approvals"))
	return p, batches
}

func (r *Reader) rollbackWindow(v strictyaml.Value) int64 {
	revisions := v.Mapping("revisions").Field("revisions")
	if !revisions.Present() {
		if !r.found.Unreadable(v.Path()) {
			r.Refuse(revisions.Path(), "is required: set how many versions back an undo skips the steps")
		}
		return 0
	}
	return revisions.Integer(1, maxRollbackWindow)
}

func (r *Reader) approvals(p *Policy, v strictyaml.Value) {
	m := v.Mapping("required", "approvers", "expiresSeconds", "onExpiry")
	if field := m.Field("required"); field.Present() && field.Integer(1, 1000) > 1 {
		r.Refuse(field.Path(), "can only be 1: callers aren't authenticated yet, so one person could approve twice")
	}
	if field := m.Field("approvers"); field.Present() {
		field.CannotRead("is not available yet: callers aren't authenticated yet, so approver lists can't be " +
			"enforced; leave it out")
	}
	readSeconds(m.Field("expiresSeconds"), &p.ApprovalExpiresSeconds, 1, maxApprovalExpiresSeconds)
	onExpiry := m.Field("onExpiry")
	readEnum(onExpiry, &p.OnExpiry, OnFailurePause, OnFailureRollback)
	if onExpiry.Present() && !m.Field("expiresSeconds").Present() {
		r.Refuse(onExpiry.Path(), "has no effect without expiresSeconds: then an approval never expires")
	}
}

// policyOf reads the policy, including the document's annotation rollback-in-batch.
func (r *Reader) policyOf(d *document, v strictyaml.Value) Policy {
	p, batches := r.policy(v)
	field := strictyaml.Join(v.Path(), "rollbackInBatches")
	switch {
	case batches != nil && d.rollbackInBatches != nil && *batches != *d.rollbackInBatches:
		r.Refuse(field, "is %t, but the annotation %s of the document is %t: keep one", *batches, annotationBatches,
			*d.rollbackInBatches)
	case batches == nil && d.rollbackInBatches != nil:
		batches, field = d.rollbackInBatches, "rollout.metadata.annotations."+annotationBatches
	}
	p.RollbackInBatches = batches != nil && *batches
	if p.RollbackInBatches && d.body != "" && d.Style != StylePartition {
		r.Refuse(field, "is for rollouts that replace pods in place: with %s every old pod still exists, and a "+
			"rollback only moves the traffic; leave it out", map[Style]string{StyleCanary: "an extra workload",
			StyleBlueGreen: "blue-green"}[d.Style])
	}
	return p
}
