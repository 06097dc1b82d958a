package traffic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workloadops"
)

// TrafficPreflight checks, without a write, that the traffic of a rollout can be moved as each of its steps asks: permissions, Services,
// routing objects, scripts, what each provider can express, and the names of the objects that the rollout makes. Holder is the claim that
// another release has on one of these objects, On names that object. It fails as the API server does.
func (a *Activities) TrafficPreflight(ctx context.Context, req rollout.PreflightRequest) (rollout.PreflightResult, error) {
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
}

func (c *check) refuse(field, format string, args ...any) {
	r := rollout.Refusal{Field: field, Reason: fmt.Sprintf(format, args...)}
	if !slices.Contains(c.result.Refusals, r) {
		c.result.Refusals = append(c.result.Refusals, r)
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
		blind, err := c.watches(ctx, j)
		if err := c.took(field, plain(err)); err != nil {
			return err
		}
		if notice := fmt.Sprintf("what others change of the Services and routes is noticed only when a step begins: %s", blind); blind != "" &&
			!slices.Contains(c.result.Notices, notice) {
			c.result.Notices = append(c.result.Notices, notice)
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
	before := len(c.result.Refusals)
	if err := c.took(field, plain(p.initialise(ctx, c.a, j))); err != nil {
		return err
	}
	if len(c.result.Refusals) > before {
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
	workload, err := c.a.workload(ctx, c.req.Subject)
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
	all, err := p.places(ctx, c.a, j)
	if err != nil {
		return err
	}
	if !j.pair.Same() {
		all = append([]place{j.stable(), j.canary()}, all...)
	}
	for _, at := range all {
		live, err := c.a.get(ctx, at)
		if err != nil {
			return err
		}
		holder := traffic.HolderOf(live)
		if holder == "" || c.result.Holder != "" {
			continue
		}
		if own := !workloadops.IsForeign(c.req.Claim, holder); own && c.req.Shared != nil && !strings.HasPrefix(holder, "rollout/") {
			continue
		}
		c.result.Holder, c.result.On = holder, at.String()
	}
	return nil
}

// needs are the permissions that one routing takes.
func (c *check) needs(j job) ([]kube.Permission, error) {
	out := kube.Needs(services.gvr, j.namespace, "get")
	if !j.pair.Same() {
		out = slices.Concat(out, kube.Needs(services.gvr, j.namespace, "create", "patch", "delete"),
			kube.Needs(corev1.SchemeGroupVersion.WithResource("pods"), j.namespace, "list"), kube.Needs(endpointSlices, j.namespace, "list"))
	}
	if j.routing.HTTPRoute != "" {
		k, err := c.a.kinds.httpRoutes()
		return append(out, kube.Needs(k.gvr, j.namespace, "get", "patch")...), err
	}
	scripts := kube.Needs(configMaps.gvr, j.namespace, "get")
	scripts[0].Name = traffic.ScriptsConfigMap // no other is read, so none has to be permitted
	out = append(out, scripts...)
	if j.routing.Ingress != nil {
		return append(out, kube.Needs(ingresses.gvr, j.namespace, "get", "list", "create", "patch", "delete")...), nil
	}
	for _, ref := range j.routing.Custom {
		k, err := c.a.kinds.of(ref.APIVersion, ref.Kind)
		if err != nil {
			return nil, err
		}
		out = append(out, kube.Needs(k.gvr, j.namespace, "get", "patch")...)
	}
	return out, nil
}

// watches says what of a routing the worker may not watch. The release goes on without that.
func (c *check) watches(ctx context.Context, j job) (string, error) {
	namespace := j.namespace
	if len(c.a.options.Namespaces) == 0 {
		namespace = metav1.NamespaceAll // one watch covers them all
	}
	watched := []schema.GroupVersionResource{services.gvr, endpointSlices}
	switch {
	case j.routing.HTTPRoute != "":
		k, err := c.a.kinds.httpRoutes()
		if err != nil {
			return "", err
		}
		watched = append(watched, k.gvr)
	case j.routing.Ingress != nil:
		watched = append(watched, ingresses.gvr)
	}
	for _, ref := range j.routing.Custom {
		k, err := c.a.kinds.of(ref.APIVersion, ref.Kind)
		if err != nil {
			return "", err
		}
		watched = append(watched, k.gvr)
	}
	var needs []kube.Permission
	for _, resource := range watched {
		needs = append(needs, kube.Needs(resource, namespace, "list", "watch")...)
	}
	return c.a.cluster.Permissions().Lacking(ctx, needs)
}

// permissions names the permissions that are not there, "" when all are.
func (c *check) permissions(ctx context.Context, j job) (string, error) {
	needs, err := c.needs(j)
	if err != nil {
		return "", err
	}
	return c.a.cluster.Permissions().Lacking(ctx, needs)
}
