package traffic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workloadops"
)

// TrafficPreflight checks, without a write, that the traffic of a rollout can be moved as each of its steps asks: permissions, Services,
// routing objects, scripts, what each provider can express, and the names of the objects that the rollout makes. holder is the claim that
// another release has on one of these objects, on names that object. It fails with failure.Unreachable or failure.Forbidden when the
// cluster does not answer.
func (a *Activities) TrafficPreflight(ctx context.Context,
	req rollout.PreflightRequest) (refusals []rollout.Refusal, holder, on string, err error) {
	c := &check{a: a, req: req, root: "strategy.canary"}
	if req.Strategy.Style == strategy.StyleBlueGreen {
		c.root = "strategy.blueGreen"
	}
	if err := c.run(ctx); err != nil {
		return nil, "", "", c.failure(err)
	}
	return c.refusals, c.holder, c.on, nil
}

// check is one preflight.
type check struct {
	a          *Activities
	req        rollout.PreflightRequest
	root       string
	refusals   []rollout.Refusal
	holder, on string
}

func (c *check) refuse(field, format string, args ...any) {
	r := rollout.Refusal{Field: field, Reason: fmt.Sprintf(format, args...)}
	if !slices.Contains(c.refusals, r) {
		c.refusals = append(c.refusals, r)
	}
}

// took notes a refusal that an error is; any other error is returned.
func (c *check) took(field string, err error) error {
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
	if !c.a.serves(c.req.Workload.Namespace) {
		c.refuse("namespace", "this party's worker does not serve the namespace %s", c.req.Workload.Namespace)
		return nil
	}
	if shared := c.req.Shared; shared != nil {
		steps := []asked{{field: c.root + ".trafficRoutingRef", traffic: shared.Traffic}}
		if err := c.routings(ctx, shared.Routings, true, steps); err != nil {
			return err
		}
	}
	var steps []asked
	for i, step := range c.req.Strategy.Steps {
		if step.Routes() {
			steps = append(steps, asked{field: fmt.Sprintf("%s.steps[%d]", c.root, i), traffic: step.Asks()})
		}
	}
	return c.routings(ctx, c.req.Strategy.Routings, c.req.Strategy.DisableGenerateCanaryService, steps)
}

// asked is what one step asks of the traffic, and where it stands in the document.
type asked struct {
	field   string
	traffic strategy.Traffic
}

// part is the field of a step that a provider cannot do.
func (s asked) part(t strategy.Traffic) string {
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

func (c *check) routings(ctx context.Context, routings []strategy.Routing, noCanary bool, steps []asked) error {
	if len(routings) == 0 {
		return nil
	}
	request := rollout.RouteRequest{Subject: c.req.Subject, Routings: routings, NoCanary: noCanary, CanaryHash: "preflight"}
	request.Claim, request.TakeOver = "preflight", ""
	for i, j := range jobs(request) {
		field := fmt.Sprintf("%s.trafficRoutings[%d]", c.root, i)
		if noCanary && c.req.Shared != nil {
			field = c.root + ".trafficRoutingRef"
		}
		lacking, err := c.permissions(ctx, j)
		if err != nil {
			if err := c.took(field, err); err != nil {
				return err
			}
			continue
		}
		if lacking != "" {
			c.refuse(field, "%s", lacking)
			continue
		}
		if err := c.routing(ctx, j, field, steps); err != nil {
			return err
		}
	}
	return nil
}

// routing checks one routing: what is there first, and then each step on it.
func (c *check) routing(ctx context.Context, j job, field string, steps []asked) error {
	if err := c.took(field+".service", c.service(ctx, j)); err != nil {
		return err
	}
	p := providerOf(j.routing)
	if err := c.held(ctx, p, j); err != nil {
		return c.took(field, err)
	}
	before := len(c.refusals)
	if err := c.took(field, plain(p.initialise(ctx, c.a, j))); err != nil {
		return err
	}
	if len(c.refusals) > before {
		return nil // the steps would say the same again
	}
	for _, s := range steps {
		j.asks = s.traffic
		err := p.try(ctx, c.a, j)
		at := s.part(s.traffic)
		var refused *scriptRefusal
		if errors.As(err, &refused) && refused.field != "" && at != c.root+".trafficRoutingRef" {
			at = s.field + "." + refused.field
		}
		if err := c.took(at, plain(err)); err != nil {
			return err
		}
	}
	return nil
}

// plain is the failure within an error, if there is one.
func plain(err error) error {
	var f *failure.Error
	if errors.As(err, &f) {
		return f
	}
	return err
}

// service checks the stable Service, and the name of the canary's.
func (c *check) service(ctx context.Context, j job) error {
	p := j.stable()
	b, err := c.a.borrowed(ctx, p, missing)
	if err != nil {
		return err
	}
	selector := traffic.SelectorOf(b.Original())
	switch _, pinned := selector[j.version.Label]; {
	case len(selector) == 0:
		return failure.New(failure.Refused, "%s has no selector: a Service that selects no pods cannot be divided", p)
	case pinned && !j.pair.Same():
		return failure.New(failure.Refused, "%s selects by %s: take that out of its selector, since a release does this by itself", p,
			j.version.Label)
	}
	if c.req.Shared == nil { // a shared TrafficRouting steers whole requests, mostly at a Service further up than this workload's
		if err := c.selects(ctx, p, selector); err != nil {
			return err
		}
	}
	if j.pair.Same() {
		return nil
	}
	if max := 63; len(j.pair.Canary) > max {
		return failure.New(failure.Refused, "%s: the name %s is longer than a Service's may be (%d)", p, j.pair.Canary, max)
	}
	return c.a.ours(ctx, j.canary())
}

// selects checks that a Service's selector takes the workload's pods. A workload that is not there is another check's to say.
func (c *check) selects(ctx context.Context, p place, selector map[string]string) error {
	ref := c.req.Workload.WorkloadRef
	k, err := c.a.kinds.of(ref.APIVersion, ref.Kind)
	var f *failure.Error
	if errors.As(err, &f) {
		return nil
	}
	if err != nil {
		return err
	}
	workload, err := c.a.get(ctx, k, c.req.Workload.Namespace, ref.Name)
	if err != nil || workload == nil {
		return err
	}
	labels := traffic.PodLabels(workload)
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if value := selector[key]; labels[key] != value {
			return failure.New(failure.Refused,
				"%s selects pods by %s=%s, which the pods of %s do not have: name the Service that leads to them", p, key, value,
				c.req.Workload)
		}
	}
	return nil
}

// held finds out whether another release holds one of the objects. The claim of a shared TrafficRouting is no other release's.
func (c *check) held(ctx context.Context, p provider, j job) error {
	all, err := p.places(c.a, j)
	if err != nil {
		return err
	}
	if !j.pair.Same() {
		all = append([]place{j.stable(), j.canary()}, all...)
	}
	for _, at := range all {
		live, err := c.a.get(ctx, at.kind, at.namespace, at.name)
		if err != nil {
			return err
		}
		holder := traffic.HolderOf(live)
		if holder == "" || c.holder != "" {
			continue
		}
		if c.req.Shared != nil && !strings.HasPrefix(workloadops.ParseHolder(holder).WorkflowID, "rollout/") {
			continue
		}
		c.holder, c.on = holder, at.String()
	}
	return nil
}

// failure is what a preflight fails with when the cluster does not answer.
func (c *check) failure(err error) error {
	var f *failure.Error
	switch {
	case errors.As(err, &f):
		return f
	case classify(err) == kube.Forbidden:
		return failure.New(failure.Forbidden, "%s: this party's worker lacks a permission, which has to be granted: %s", c.req.Workload,
			kube.Text(err))
	case classify(err) == kube.Unreachable:
		return failure.New(failure.Unreachable, "%s: its cluster cannot be reached: %s", c.req.Workload, kube.Text(err))
	case classify(err) == kube.Internal:
		return err
	default:
		return failure.New(failure.Refused, "%s: its cluster does not answer the check: %s", c.req.Workload, kube.Text(err))
	}
}

var (
	podsGVR       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	configMapsGVR = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// needs are the permissions that one routing takes.
func (c *check) needs(j job) (map[schema.GroupVersionResource][]string, error) {
	out := map[schema.GroupVersionResource][]string{services.gvr: {"get"}}
	if !j.pair.Same() {
		out[services.gvr] = []string{"get", "create", "patch", "delete"}
		out[podsGVR], out[endpointSlices] = []string{"list"}, []string{"list"}
	}
	switch {
	case j.routing.Ingress != nil:
		out[ingresses.gvr] = []string{"get", "create", "patch", "delete"}
		out[configMapsGVR] = []string{"get"}
	case j.routing.HTTPRoute != "":
		out[httpRoutes.gvr] = []string{"get", "patch"}
	default:
		out[configMapsGVR] = []string{"get"}
		for _, ref := range j.routing.Custom {
			k, err := c.a.kinds.of(ref.APIVersion, ref.Kind)
			if err != nil {
				return nil, err
			}
			out[k.gvr] = []string{"get", "patch"}
		}
	}
	return out, nil
}

// permissions names the permissions that are not there, "" when all are.
func (c *check) permissions(ctx context.Context, j job) (string, error) {
	byResource, err := c.needs(j)
	if err != nil {
		return "", err
	}
	var needs []kube.Permission
	for gvr, verbs := range byResource {
		for _, n := range kube.Needs(gvr.Group, gvr.Resource, j.namespace, verbs...) {
			if gvr == configMapsGVR { // no other is read, so none has to be permitted
				n.Name = traffic.ScriptsConfigMap
			}
			needs = append(needs, n)
		}
	}
	return kube.NewPermissions(c.a.client.AuthorizationV1(), c.a.options.CallTimeout).Lacking(ctx, needs)
}
