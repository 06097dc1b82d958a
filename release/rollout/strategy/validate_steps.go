package strategy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/strictyaml"
)

const maxSteps = 50

// partitionPercentLimit is up to which share of the pods a partition step may route: the stable version keeps its own
// share of the traffic, and has to have the pods for it.
const partitionPercentLimit = 50

const wholePercent = "100%"

func percentText(n int32) string { return fmt.Sprintf("%d%%", n) }

// stepField is the path of a key of step i, counted from 0; "" is the step itself.
func (d *draft) stepField(i int, key string) string {
	field := strictyaml.Index(strictyaml.Join(d.body, "steps"), i)
	if key == "" {
		return field
	}
	return strictyaml.Join(field, key)
}

// shareKey is what the step's share of traffic is called.
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
		if d.legacy {
			r.Refuse(field, "is required where the step has no weight: say how many pods are new after the step")
		} else {
			r.Refuse(field, "is required: say how many pods are new after the step, as a number or a share")
		}
		return
	}
	if i == 0 {
		return
	}
	before := d.Steps[i-1].Replicas
	if shrinks(before, step.Replicas) {
		r.Refuse(field, "is %s, less than the %s of the step before: a step never has fewer new pods", step.Replicas.String(), before.String())
	}
}

// shrinks says whether a number of pods is surely smaller than the one before. A number and a share cannot be compared without the
// workload.
func shrinks(before, now intstr.IntOrString) bool {
	if before.Type != now.Type || before == (intstr.IntOrString{}) || now == (intstr.IntOrString{}) {
		return false
	}
	if now.Type == intstr.Int {
		return now.IntVal < before.IntVal
	}
	was, _ := percentNumber(before.StrVal)
	is, _ := percentNumber(now.StrVal)
	return is < was
}

func (r *Reader) checkTraffic(d *draft, i int) {
	step := d.Steps[i]
	if step.Traffic != nil && len(step.Matches) > 0 {
		r.Warn(d.stepField(i, d.shareKey()), "is not looked at, since the step has matches: only the requests that match go to the new version")
	}
	if step.RequestHeaderModifier != nil && !step.Routes() {
		r.Refuse(d.stepField(i, "requestHeaderModifier"), "has no requests to change: give the step %s or matches as well", d.shareKey())
	}
	if len(d.Routings) > 0 || r.found.Unreadable(strictyaml.Join(d.body, "trafficRoutings")) {
		return
	}
	// In v1alpha1 a weight is the number of pods as well, and without routings nothing else.
	if d.legacy && step.Traffic != nil && step.Replicas.StrVal == percentText(*step.Traffic) {
		r.Warn(d.stepField(i, "weight"), "moves pods only, since there are no trafficRoutings")
		d.Steps[i].Traffic = nil
	}
	r.refuseUnrouted(d, i)
}

func (r *Reader) refuseUnrouted(d *draft, i int) {
	step := d.Steps[i]
	for _, asked := range []struct {
		key string
		yes bool
	}{{d.shareKey(), step.Traffic != nil}, {"matches", len(step.Matches) > 0}, {"requestHeaderModifier", step.RequestHeaderModifier != nil}} {
		switch field := d.stepField(i, asked.key); {
		case !asked.yes:
		case d.TrafficRoutingRef != "":
			r.Refuse(field, "cannot be combined with the TrafficRouting %s, which says itself what its traffic does: leave it out",
				strictyaml.Quote(d.TrafficRoutingRef))
		default:
			r.Refuse(field, "needs something that routes: add trafficRoutings, or leave it out and traffic follows the pods")
		}
	}
}

// checkPartitionShare holds a partition step that routes against the limit of the reference. The last step may take every pod together with
// all traffic: then no stable pod is left that could be short of company.
func (r *Reader) checkPartitionShare(d *draft, i int) {
	step := d.Steps[i]
	share, isShare := percentNumber(step.Replicas.StrVal)
	if d.Style != StylePartition || !step.Routes() || !isShare || share <= partitionPercentLimit {
		return
	}
	if i == len(d.Steps)-1 && share == 100 && len(step.Matches) == 0 && *step.Traffic == 100 {
		return
	}
	r.Refuse(d.stepField(i, "replicas"), "is %s in a step that routes traffic: while pods are replaced in place, at most %d%% of them may "+
		"be new as long as "+
		"the stable ones have a share of the traffic to serve; %s", step.Replicas.StrVal, partitionPercentLimit,
		d.orExtra("lower it, leave out the step's traffic, or give a number of pods"))
}

// checkTrafficOrder warns of a share that shrinks: legal, and sometimes meant.
func (r *Reader) checkTrafficOrder(d *draft) {
	var before *int32
	for i, step := range d.Steps {
		if step.Traffic == nil || len(step.Matches) > 0 {
			continue
		}
		if before != nil && *step.Traffic < *before {
			r.Warn(d.stepField(i, d.shareKey()), fmt.Sprintf("is %d%%, less than the %d%% of an earlier step: traffic goes back to the stable "+
				"version", *step.Traffic, *before))
		}
		before = step.Traffic
	}
}
