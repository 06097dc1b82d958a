package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/workload"
)

// check validates a strategy for workloads against every rule that needs no cluster, and fills in the defaults of its
// style.
func (r *Reader) check(d *draft, refs ...catalog.WorkloadRef) {
	d.deployment = len(refs) > 0 && kindOf(refs[0]).Supports(StyleCanary)
	if d.body == "" {
		return // there was nothing to read; that error is already recorded
	}
	r.checkBody(d)
	for _, ref := range refs {
		r.checkStyle(d, ref)
	}
}

func (r *Reader) checkBody(d *draft) {
	r.checkSteps(d)
	r.checkTrafficSource(d)
	if d.PatchPodTemplateMetadata != nil && d.Style != StyleCanary {
		r.refuseUnlessStored(strictyaml.Join(d.body, "patchPodTemplateMetadata"),
			"needs the extra workload, whose pods it is for: %s", d.orExtraWorkload("leave it out"))
		d.PatchPodTemplateMetadata = nil
	}
	if len(d.Steps) == 0 || d.Style == StyleBlueGreen { // its last step waits for an approval
		return
	}
	// after a last step that replaces every pod nothing is left to wait for
	if last := &d.Steps[len(d.Steps)-1]; last.PauseSeconds == nil && last.Replicas.StrVal == allPodsPercent {
		last.PauseSeconds = new(int64)
	}
}

// orExtraWorkload adds the extra workload to a remedy, if the workload can have one.
func (d *draft) orExtraWorkload(remedy string) string {
	switch {
	case !d.deployment:
		return remedy
	case d.legacy:
		return remedy + ", or set the annotation " + annotationRollingStyle + " to canary"
	}
	return remedy + ", or set enableExtraWorkloadForCanary: true"
}

// checkTrafficSource compares the routings with what the steps request.
func (r *Reader) checkTrafficSource(d *draft) {
	routes := slices.ContainsFunc(d.Steps, func(s Step) bool { return s.Routes() })
	switch {
	case d.TrafficRoutingRef != "" && len(d.Routings) > 0:
		r.Refuse(d.refField, "names a TrafficRouting, but trafficRoutings is also set: keep one of them")
	case d.TrafficRoutingRef != "":
		r.Name(d.refField, d.TrafficRoutingRef, validation.IsDNS1123Subdomain)
	case len(d.Routings) > 0 && !routes && d.Style != StyleBlueGreen:
		r.Warn(strictyaml.Join(d.body, "trafficRoutings"),
			"is set, but no step moves traffic: traffic follows the pods")
	}
	if d.DisableGenerateCanaryService {
		r.refuseUnroutableWeights(d)
	}
}

// refuseUnroutableWeights refuses weights without canary Services: one Service selects both versions, and only custom
// objects can distinguish them.
func (r *Reader) refuseUnroutableWeights(d *draft) {
	for _, routing := range d.Routings {
		if len(routing.Custom) > 0 {
			continue
		}
		for i, step := range d.Steps {
			if step.Traffic != nil && len(step.Matches) == 0 {
				r.Refuse(d.stepField(i, d.shareKey()),
					"cannot be done with disableGenerateCanaryService: Ingress and HTTPRoute send a share to a "+
						"Service, and Service %s selects both versions; leave disableGenerateCanaryService out, "+
						"or route by customNetworkRefs", routing.Service)
			}
		}
		return
	}
}

func (r *Reader) checkPodMetadata(field string, m *PodMetadata) {
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		at := strictyaml.Join(strictyaml.Join(field, "labels"), key)
		r.refuseIllegal(at, key, validation.IsQualifiedName(key))
		r.refuseIllegal(at, m.Labels[key], validation.IsValidLabelValue(m.Labels[key]))
		ofRevision := func(k workload.Kind) bool { return k.RevisionLabel == key }
		if key == LabelCanaryOf || slices.ContainsFunc(workload.Kinds, ofRevision) { // changing it would orphan the pods
			r.Refuse(at, "is a label that controllers set to distinguish versions: use another")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		r.refuseIllegal(strictyaml.Join(strictyaml.Join(field, "annotations"), key), key,
			validation.IsQualifiedName(strings.ToLower(key)))
	}
}

func (r *Reader) refuseIllegal(field, text string, problems []string) {
	if len(problems) > 0 {
		r.Refuse(field, "%s is not legal: %s", strictyaml.Quote(text), strings.Join(problems, "; "))
	}
}

const maxSteps = 50

// partitionPercentLimit is the maximum percentage of new pods in a partition step that routes traffic: the stable
// version needs pods for its share of the traffic.
const partitionPercentLimit = 50

const allPodsPercent = "100%"

func formatPercent(n int32) string { return fmt.Sprintf("%d%%", n) }

// stepField returns the path of a key of step i, counted from 0.
func (d *draft) stepField(i int, key string) string {
	return strictyaml.Join(strictyaml.Index(strictyaml.Join(d.body, "steps"), i), key)
}

// shareKey returns the key of a step's percentage of traffic.
func (d *draft) shareKey() string {
	if d.legacy {
		return "weight"
	}
	return "traffic"
}

func (r *Reader) checkSteps(d *draft) {
	steps := strictyaml.Join(d.body, "steps")
	switch {
	case len(d.Steps) == 0:
		r.Refuse(steps, "is required: a strategy has at least one step")
	case len(d.Steps) > maxSteps:
		r.Refuse(steps, "has %d steps, of at most %d", len(d.Steps), maxSteps)
	}
	for i := range d.Steps {
		r.checkReplicas(d, i)
		r.checkTraffic(d, i)
		r.checkPartitionShare(d, i)
	}
	r.checkTrafficOrder(d)
}

func (r *Reader) checkReplicas(d *draft, i int) {
	field, step := d.stepField(i, "replicas"), d.Steps[i]
	if step.Replicas == (intstr.IntOrString{}) {
		if d.legacy && r.found.Unreadable(d.stepField(i, d.shareKey())) {
			return
		}
		if d.legacy {
			r.Refuse(field, "is required where the step has no weight: set how many pods are new after the step")
		} else {
			r.Refuse(field, "is required: set how many pods are new after the step, as a number or a share")
		}
		return
	}
	if i == 0 {
		return
	}
	before := d.Steps[i-1].Replicas
	if shrinks(before, step.Replicas) {
		r.Refuse(field, "is %s, less than the %s of the step before: a step never has fewer new pods",
			step.Replicas.String(), before.String())
	}
}

// shrinks reports whether a number of pods is certainly below the previous one. A number and a percentage cannot be
// compared without the workload's size.
func shrinks(before, now intstr.IntOrString) bool {
	if before.Type != now.Type || before == (intstr.IntOrString{}) || now == (intstr.IntOrString{}) {
		return false
	}
	if now.Type == intstr.Int {
		return now.IntVal < before.IntVal
	}
	return percentOf(now.StrVal) < percentOf(before.StrVal)
}

func (r *Reader) checkTraffic(d *draft, i int) {
	step := d.Steps[i]
	if step.Traffic != nil && len(step.Matches) > 0 {
		r.Warn(d.stepField(i, d.shareKey()), "is ignored, since the step has matches: only the requests that match "+
			"go to the new version")
	}
	if step.RequestHeaderModifier != nil && !step.Routes() {
		r.Refuse(d.stepField(i, "requestHeaderModifier"), "has no requests to change: add %s or matches to the step",
			d.shareKey())
	}
	if len(d.Routings) > 0 || r.found.Unreadable(strictyaml.Join(d.body, "trafficRoutings")) {
		return
	}
	// In v1alpha1 a weight also sets the number of pods; without routings it sets nothing else.
	if d.legacy && step.Traffic != nil && step.Replicas.StrVal == formatPercent(*step.Traffic) {
		r.Warn(d.stepField(i, "weight"), "moves pods only, since there are no trafficRoutings")
		d.Steps[i].Traffic = nil
	}
	r.refuseUnrouted(d, i)
}

func (r *Reader) refuseUnrouted(d *draft, i int) {
	step := d.Steps[i]
	for _, setting := range []struct {
		key string
		set bool
	}{{d.shareKey(), step.Traffic != nil}, {"matches", len(step.Matches) > 0},
		{"requestHeaderModifier", step.RequestHeaderModifier != nil}} {
		switch field := d.stepField(i, setting.key); {
		case !setting.set:
		case d.TrafficRoutingRef != "":
			r.Refuse(field,
				"cannot be combined with the TrafficRouting %s, which defines the traffic itself: leave it out",
				strictyaml.Quote(d.TrafficRoutingRef))
		default:
			r.refuseUnlessStored(field, "has no routing to change: add trafficRoutings, or leave it out and traffic "+
				"follows the pods")
		}
	}
	if r.stored && d.TrafficRoutingRef == "" { // the step moves only pods
		s := &d.Steps[i]
		s.Traffic, s.Matches, s.RequestHeaderModifier = nil, nil, nil
	}
}

// checkPartitionShare applies the reference implementation's limit to a partition step that routes traffic. The last
// step may replace every pod together with all traffic: then no stable pod has to serve traffic.
func (r *Reader) checkPartitionShare(d *draft, i int) {
	step := d.Steps[i]
	share := percentOf(step.Replicas.StrVal) // -1: a number
	if d.Style != StylePartition || !step.Routes() || share <= partitionPercentLimit {
		return
	}
	if i == len(d.Steps)-1 && share == 100 && len(step.Matches) == 0 && *step.Traffic == 100 {
		return
	}
	r.Refuse(d.stepField(i, "replicas"), "is %s in a step that routes traffic: while pods are replaced in place, at "+
		"most %d%% of them may be new as long as the stable ones have a share of the traffic to serve; %s",
		step.Replicas.StrVal, partitionPercentLimit,
		d.orExtraWorkload("lower it, leave out the step's traffic, or give a number of pods"))
}

// checkTrafficOrder warns of a decreasing percentage of traffic, which is legal and sometimes intended.
func (r *Reader) checkTrafficOrder(d *draft) {
	var before *int32
	for i, step := range d.Steps {
		if step.Traffic == nil || len(step.Matches) > 0 {
			continue
		}
		if before != nil && *step.Traffic < *before {
			r.Warn(d.stepField(i, d.shareKey()), fmt.Sprintf(
				"is %d%%, less than the %d%% of an earlier step: traffic goes back to the stable "+
					"version", *step.Traffic, *before))
		}
		before = step.Traffic
	}
}

// kindNames lists the kinds that can be rolled out, with their API versions.
func kindNames() string {
	versions := func(k workload.Kind) string {
		return strings.Join(append([]string{k.Resource.GroupVersion().String()}, k.OtherVersions...), " and ")
	}
	var texts []string
	for _, group := range workload.Grouped(versions) {
		names := workload.Join(phrase.Each(group, workload.Kind.String), " and ")
		texts = append(texts, names+" of "+versions(group[0]))
	}
	return strings.Join(texts, ", ")
}

// kindOf returns the kind of a workload, the zero value if it cannot be rolled out in its API version.
func kindOf(ref catalog.WorkloadRef) workload.Kind {
	if k := workload.Of(ref.APIVersion, ref.Kind); slices.Contains(k.APIVersions(), ref.APIVersion) {
		return k
	}
	return workload.Kind{}
}

func (r *Reader) workloadRef(v strictyaml.Value) catalog.WorkloadRef {
	if !v.Present() {
		r.Refuse(v.Path(), "is required: name the workload by apiVersion, kind and name")
		return catalog.WorkloadRef{}
	}
	m := v.Mapping("apiVersion", "kind", "name")
	ref := catalog.WorkloadRef{APIVersion: r.required(m, "apiVersion", ": "+kindNames()+" can be rolled out"),
		Kind: r.required(m, "kind", ": "+kindNames()+" can be rolled out"),
		Name: r.name(m, "name", validation.IsDNS1123Subdomain)}
	if !kindOf(ref).Known() && ref.APIVersion != "" && ref.Kind != "" {
		r.refuseKind(strictyaml.Join(v.Path(), "kind"), ref)
	}
	return ref
}

func (r *Reader) refuseKind(field string, ref catalog.WorkloadRef) {
	if ref.Kind == "ReplicaSet" {
		r.Refuse(field, "a ReplicaSet does not replace its pods when its template changes: name the Deployment that "+
			"owns it, or create one")
		return
	}
	var versions []string
	for _, k := range workload.Kinds {
		if k.Kind == ref.Kind {
			versions = append(versions, k.APIVersions()...)
		}
	}
	if len(versions) > 0 {
		r.Refuse(field, "%s of %s cannot be rolled out: write apiVersion: %s", ref.Kind,
			strictyaml.Quote(ref.APIVersion), strings.Join(versions, " or "))
		return
	}
	r.Refuse(field, "%s of %s cannot be rolled out: %s can%s", strictyaml.Quote(ref.Kind),
		strictyaml.Quote(ref.APIVersion), kindNames(),
		strictyaml.DidYouMean(ref.Kind, phrase.Each(workload.Kinds, workload.Kind.String)))
}

// checkStyle refuses a style that the workload's kind does not support.
func (r *Reader) checkStyle(d *draft, ref catalog.WorkloadRef) {
	k := kindOf(ref)
	switch supported := k.Supports(d.Style); {
	case !k.Known():
	case supported && d.Style == StyleCanary && len(ref.Name) > validation.DNS1123SubdomainMaxLength-len(CanarySuffix):
		r.Refuse(d.body, "cannot create the extra workload of %s: with %q its name would be too long", ref.Name,
			CanarySuffix)
	case supported:
	case d.Style == StyleCanary:
		r.Refuse(cmp.Or(d.extraField, d.body), "the extra workload exists for Deployments only, not for a %s: leave "+
			"it out, and the pods are replaced in place, step by step", ref.Kind)
	default:
		r.Refuse(d.body,
			"blue-green exists for %s only, not for a %s: use canary, and the pods are replaced in place, step by step",
			workload.Join(phrase.Each(workload.Supporting(StyleBlueGreen),
				func(k workload.Kind) string { return k.Kind + "s" }), " and "), ref.Kind)
	}
}
