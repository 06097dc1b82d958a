package strategy

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/strictyaml"
)

// check holds a strategy against every rule that needs neither the workload's kind nor a cluster, and fills in what its style says.
func (r *Reader) check(d *draft) {
	if d.body == "" {
		return // there was nothing to read, which was said
	}
	r.checkSteps(d)
	r.checkTrafficSource(d)
	if d.PatchPodTemplateMetadata != nil && d.Style != StyleCanary {
		r.Refuse(strictyaml.Join(d.body, "patchPodTemplateMetadata"), "needs the extra workload, whose pods it is for: %s",
			d.orExtra("leave it out"))
	}
	d.passLastStep()
}

// passLastStep: a canary whose last step takes every pod has nothing left to wait for; a blue-green's last step is where a person confirms.
func (d *draft) passLastStep() {
	if len(d.Steps) == 0 || d.Style == StyleBlueGreen {
		return
	}
	if last := &d.Steps[len(d.Steps)-1]; last.PauseSeconds == nil && last.Replicas.StrVal == wholePercent {
		last.PauseSeconds = new(int64)
	}
}

// orExtra is a remedy, and beside it the extra workload where there can be one.
func (d *draft) orExtra(remedy string) string {
	switch {
	case !d.deployment:
		return remedy
	case d.legacy:
		return remedy + ", or set the annotation " + annotationRollingStyle + " to canary"
	}
	return remedy + ", or set enableExtraWorkloadForCanary: true"
}

// checkTrafficSource holds what moves traffic against what the steps ask.
func (r *Reader) checkTrafficSource(d *draft) {
	asks := slices.ContainsFunc(d.Steps, func(s Step) bool { return s.Routes() })
	switch {
	case d.TrafficRoutingRef != "" && len(d.Routings) > 0:
		r.Refuse(d.refField, "names a TrafficRouting, and there are trafficRoutings as well: keep one of them")
	case d.TrafficRoutingRef != "":
		r.Name(d.refField, d.TrafficRoutingRef, validation.IsDNS1123Subdomain)
	case len(d.Routings) > 0 && !asks && d.Style != StyleBlueGreen:
		r.Warn(strictyaml.Join(d.body, "trafficRoutings"), "is there, but no step moves traffic: traffic follows the pods")
	}
	if d.DisableGenerateCanaryService {
		r.refuseBlindWeights(d)
	}
}

// refuseBlindWeights: without canary Services both versions stand behind one Service, and only custom objects can tell them apart.
func (r *Reader) refuseBlindWeights(d *draft) {
	for _, routing := range d.Routings {
		if len(routing.Custom) > 0 {
			continue
		}
		for i, step := range d.Steps {
			if step.Traffic != nil && len(step.Matches) == 0 {
				r.Refuse(d.stepField(i, d.shareKey()), "cannot be done with disableGenerateCanaryService: Ingress and HTTPRoute send a share to a "+
					"Service, and "+
					"Service %s stands for both versions; leave disableGenerateCanaryService out, or route by customNetworkRefs", routing.Service)
			}
		}
		return
	}
}

// ownLabels are labels of pods that others set: changing them would take the pods from their controllers.
var ownLabels = []string{"pod-template-hash", "controller-revision-hash", LabelCanaryOf}

func (r *Reader) checkPodMetadata(field string, m *PodMetadata) {
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		at := strictyaml.Join(strictyaml.Join(field, "labels"), key)
		r.legal(at, key, validation.IsQualifiedName(key))
		r.legal(at, m.Labels[key], validation.IsValidLabelValue(m.Labels[key]))
		if slices.Contains(ownLabels, key) {
			r.Refuse(at, "is a label that tells versions apart and is set by controllers: take another")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		r.legal(strictyaml.Join(strictyaml.Join(field, "annotations"), key), key, validation.IsQualifiedName(strings.ToLower(key)))
	}
}

func (r *Reader) legal(field, text string, problems []string) {
	if len(problems) > 0 {
		r.Refuse(field, "%s is not legal: %s", strictyaml.Quote(text), strings.Join(problems, "; "))
	}
}
