package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workload"
)

// TrafficPreflight checks, without writing, that the traffic of a rollout can be routed as each of its steps requires:
// permissions, Services, routing objects, scripts, what each provider can express, and the names of the objects that
// the rollout creates. In the result, Holder is the claim of another release on one of these objects, and On names that
// object. An error is one of the API server.
func (a *Activities) TrafficPreflight(ctx context.Context, req rollout.PreflightRequest) (rollout.PreflightResult,
	error) {
	c := &check{a: a, req: req, root: "strategy.canary"}
	if req.Strategy.Style == strategy.StyleBlueGreen {
		c.root = "strategy.blueGreen"
	}
	err := c.run(ctx)
	return c.result, err
}

// check is one preflight.
type check struct {
	a      *Activities
	req    rollout.PreflightRequest
	root   string
	result rollout.PreflightResult
	// leaveOut is rollout.RouteRequest.LeaveOut.
	leaveOut bool
}

func (c *check) refuse(field, format string, args ...any) {
	r := rollout.Refusal{Field: field, Reason: fmt.Sprintf(format, args...)}
	if !slices.Contains(c.result.Refusals, r) {
		c.result.Refusals = append(c.result.Refusals, r)
	}
}

// noteRefusal adds an error that is a refusal to the result; any other error is returned.
func (c *check) noteRefusal(field string, err error) error {
	var f *failure.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f) && (f.Kind == failure.Refused || f.Kind == failure.Drift):
		c.refuse(field, "%s", f.Message)
		return nil
	default:
		return err
	}
}

func (c *check) run(ctx context.Context) error {
	if shared := c.req.Shared; shared != nil {
		steps := []stepTraffic{{field: c.root + ".trafficRoutingRef", traffic: shared.Traffic}}
		if err := c.routings(ctx, shared.Routings, true, steps); err != nil {
			return err
		}
	}
	c.leaveOut = c.req.Change.Declared != nil
	var steps []stepTraffic
	for i, step := range c.req.Strategy.Steps {
		if step.Routes() {
			steps = append(steps, stepTraffic{field: fmt.Sprintf("%s.steps[%d]", c.root, i),
				traffic: step.DesiredTraffic()})
		}
	}
	return c.routings(ctx, c.req.Strategy.Routings, c.req.Strategy.DisableGenerateCanaryService, steps)
}

// stepTraffic is the traffic that one step asks for, and the step's field in the document.
type stepTraffic struct {
	field   string
	traffic strategy.Traffic
}

// fieldOf returns the field of the step that requests the traffic.
func (s stepTraffic) fieldOf(t strategy.Traffic) string {
	switch {
	case strings.HasSuffix(s.field, ".trafficRoutingRef"):
		return s.field
	case len(t.Matches) > 0:
		return s.field + ".matches"
	case t.Weight != nil:
		return s.field + ".traffic"
	default:
		return s.field
	}
}

func (c *check) routings(ctx context.Context, routings []strategy.Routing, noCanary bool, steps []stepTraffic) error {
	if len(routings) == 0 {
		return nil
	}
	request := rollout.RouteRequest{Subject: c.req.Subject, Routings: routings, NoCanary: noCanary,
		CanaryHash: "preflight"}
	request.Claim, request.TakeOver = "preflight", ""
	before, all := len(c.result.Refusals), jobs(request)
	for i, j := range all {
		field := fmt.Sprintf("%s.trafficRoutings[%d]", c.root, i)
		if noCanary && c.req.Shared != nil {
			field = c.root + ".trafficRoutingRef"
		}
		if err := c.noteRefusal(field, c.job(ctx, j, field, steps)); err != nil {
			return err
		}
	}
	if !c.leaveOut || len(c.result.Refusals) > before {
		return nil
	}
	for _, s := range steps {
		if err := c.stepOfAll(ctx, all, s); err != nil {
			return err
		}
	}
	return nil
}

// stepOfAll checks a step that may leave some of the routes out.
func (c *check) stepOfAll(ctx context.Context, all []job, s stepTraffic) error {
	for i := range all {
		all[i].asks = s.traffic
	}
	omitted, err := c.a.omitted(ctx, all, func(job) trial { return inPreflight })
	for _, o := range omitted {
		notice := fmt.Sprintf("%s: %s", s.field, o)
		if !slices.Contains(c.result.Notices, notice) {
			c.result.Notices = append(c.result.Notices, notice)
		}
	}
	return c.noteStep(s, err)
}

// noteStep adds the refusal of a step to the result, at the field that cannot be expressed.
func (c *check) noteStep(s stepTraffic, err error) error {
	at := s.fieldOf(s.traffic)
	var refused *scriptRefusal
	if errors.As(err, &refused) && refused.field != "" && at != c.root+".trafficRoutingRef" {
		at = s.field + "." + refused.field
	}
	return c.noteRefusal(at, err)
}

// job checks the kinds, the permissions and the routing of a job. The error may be a refusal of the field.
func (c *check) job(ctx context.Context, j job, field string, steps []stepTraffic) error {
	if err := c.a.checkReach(ctx, j); err != nil {
		return err
	}
	switch lacking, err := c.lackingPermissions(ctx, j); {
	case err != nil:
		return err
	case lacking != "":
		return failure.New(failure.Refused, "%s", lacking)
	}
	if err := c.routing(ctx, j, field, steps); err != nil {
		return err
	}
	blind, err := c.lackingWatches(ctx, j)
	if notice := fmt.Sprintf("changes by other clients to the Services and routes are noticed only when a step "+
		"begins: %s", blind); blind != "" && !slices.Contains(c.result.Notices, notice) {
		c.result.Notices = append(c.result.Notices, notice)
	}
	return err
}

// routing checks one routing: first the existing objects, then each step.
func (c *check) routing(ctx context.Context, j job, field string, steps []stepTraffic) error {
	if err := c.noteRefusal(field+".service", c.service(ctx, j)); err != nil {
		return err
	}
	if err := c.findHolder(ctx, j); err != nil {
		return c.noteRefusal(field, err)
	}
	before := len(c.result.Refusals)
	_, err := c.a.eachRoute(ctx, j, func(r route) (bool, error) { return false, r.initialise() })
	if err := c.noteRefusal(field, err); err != nil {
		return err
	}
	if len(c.result.Refusals) > before || c.leaveOut {
		return nil // the steps would report the same again, or are checked for all routings together
	}
	for _, s := range steps {
		j.asks = s.traffic
		_, err := c.a.eachRoute(ctx, j, func(r route) (bool, error) { return false, r.try(inPreflight) })
		if err := c.noteStep(s, err); err != nil {
			return err
		}
	}
	return nil
}

// service checks the stable Service and the name of the canary Service.
func (c *check) service(ctx context.Context, j job) error {
	p := j.stable()
	b, err := c.a.borrowed(ctx, p, notFoundError)
	if err != nil {
		return err
	}
	selector := traffic.SelectorOf(b.Original())
	switch _, pinned := selector[j.version.Label]; {
	case len(selector) == 0:
		return failure.New(failure.Refused, "%s has no selector: a Service that selects no pods cannot be divided", p)
	case pinned && !j.pair.Same():
		return failure.New(failure.Refused, "%s selects by %s: take that out of its selector, since a release does "+
			"this by itself", p, j.version.Label)
	}
	// A shared TrafficRouting usually routes at a Service in front of this workload's. What a workload declares is the
	// new version, which selectsNew checks.
	if c.req.Shared == nil && c.req.Change.Declared == nil {
		if err := c.selects(ctx, p, selector); err != nil {
			return err
		}
	}
	if j.pair.Same() {
		return nil
	}
	if err := c.selectsNew(p, selector); err != nil {
		return err
	}
	if max := 63; len(j.pair.Canary) > max {
		return failure.New(failure.Refused, "%s: the name %s is longer than a Service's may be (%d)", p, j.pair.Canary,
			max)
	}
	return c.a.checkCreatable(ctx, j.canary())
}

// selects checks that a Service's selector matches the workload's pods. A missing workload is reported by another
// check.
func (c *check) selects(ctx context.Context, p place, selector map[string]string) error {
	workload, err := c.a.workload(ctx, c.req.Subject)
	if err != nil || workload == nil {
		return err
	}
	if key := traffic.Unmatched(selector, traffic.PodLabels(workload)); key != "" {
		return failure.New(failure.Refused, "%s selects pods by %s=%s, which the pods of %s do not have: name "+
			"the Service that leads to them", p, key, selector[key], c.req.Workload)
	}
	return nil
}

// selectsNew checks that a Service's selector matches the pods of the new version: those of its canary Service during
// the steps, and its own at the end. What patchPodTemplateMetadata adds is part of the canary Service's selector.
func (c *check) selectsNew(p place, selector map[string]string) error {
	key := traffic.Unmatched(selector, c.req.PodLabels)
	if c.req.PodLabels == nil || key == "" {
		return nil
	}
	has := "don't have that label"
	if value, there := c.req.PodLabels[key]; there {
		has = fmt.Sprintf("have %s=%s", key, value)
	}
	return failure.New(failure.Refused, "%s selects pods by %s=%s, but the new version's pods %s: no request would "+
		"reach them. Take %s out of the Service's selector or keep the label in the pod template; or set "+
		"disableGenerateCanaryService, if your routes choose the version themselves", p, key, selector[key], has, key)
}

// findHolder finds another release that holds one of the objects. The claim of the release's own shared TrafficRouting
// is ignored.
func (c *check) findHolder(ctx context.Context, j job) error {
	var services []place
	if !j.pair.Same() {
		services = []place{j.stable(), j.canary()}
	}
	held, err := c.a.held(ctx, j, services...)
	for _, at := range held {
		own := !workload.IsForeign(c.req.Claim, at.holder)
		if c.result.Holder == "" && (!own || c.req.Shared == nil || strings.HasPrefix(at.holder, "rollout/")) {
			c.result.Holder, c.result.HeldObject = at.holder, at.String()
		}
	}
	return err
}

// lackingPermissions returns the missing ones of the permissions that a routing needs as text, "" if there are none.
func (c *check) lackingPermissions(ctx context.Context, j job) (string, error) {
	out := kube.Needs(services.gvr, j.namespace, "get")
	if !j.pair.Same() {
		out = slices.Concat(out, kube.Needs(services.gvr, j.namespace, "create", "patch", "delete"),
			kube.Needs(corev1.SchemeGroupVersion.WithResource("pods"), j.namespace, "list"),
			kube.Needs(endpointSlices, j.namespace, "list"))
	}
	if j.routing.HTTPRoute == "" && c.a.options.Reach.ReadsScriptsOf(j.namespace) {
		scripts := kube.Needs(configMaps.gvr, j.namespace, "get")
		// the only ConfigMap that is read, so the permission may be limited to it
		scripts[0].Name = traffic.ScriptsConfigMap
		out = append(out, scripts...)
	}
	verbs := []string{"get", "patch"}
	if j.routing.Ingress != nil {
		verbs = []string{"get", "list", "create", "patch", "delete"}
	}
	kinds, err := c.a.kinds.of(j.routing)
	if err != nil {
		return "", err
	}
	for _, k := range kinds {
		out = append(out, kube.Needs(k.gvr, j.namespace, verbs...)...)
	}
	return c.a.cluster.Permissions().Lacking(ctx, out)
}

// lackingWatches returns the watch permissions that the worker lacks for a routing. The release can run without them.
func (c *check) lackingWatches(ctx context.Context, j job) (string, error) {
	namespace := j.namespace
	if len(c.a.options.Namespaces) == 0 {
		namespace = metav1.NamespaceAll // one watch covers them all
	}
	kinds, err := c.a.kinds.of(j.routing)
	if err != nil {
		return "", err
	}
	var needs []kube.Permission
	for _, k := range append([]kind{services, {gvr: endpointSlices}}, kinds...) {
		needs = append(needs, kube.Needs(k.gvr, namespace, "list", "watch")...)
	}
	return c.a.cluster.Permissions().Lacking(ctx, needs)
}
