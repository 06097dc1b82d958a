// Package trafficrouting reads the TrafficRouting objects (rollouts.kruise.io/v1alpha1) that several rollouts share for one canary.
package trafficrouting

import (
	"encoding/json"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/workloadops"
)

// What a whole document says.
const (
	apiVersion = "rollouts.kruise.io/v1alpha1"
	kind       = "TrafficRouting"
)

// Document is a TrafficRouting as it was sent.
type Document struct {
	// Namespace and Name are what the document says, "" when it does not.
	Namespace, Name string
	// Spec is its spec as JSON, to be kept.
	Spec json.RawMessage
	// Shared is what the spec asks, with the defaults filled in. Its name is the document's.
	Shared rollout.SharedTraffic
	// Warnings are sentences on what is legal but probably not meant.
	Warnings []string
}

// HeldByAnother says which of the holders is another engine's, and what a person can do; "" when none is.
func HeldByAnother(holders []string, engine workloadops.Engine) string {
	for _, claim := range holders {
		if h := workloadops.ParseHolder(claim); h.Engine.Differs(engine) {
			return h.For(engine) + ": " + workloadops.ForeignReason(h)
		}
	}
	return ""
}

// Decode reads a TrafficRouting from YAML or JSON, strictly, with all errors at once: a whole document, also as kubectl prints it, or the
// spec alone. The Document means nothing when there are errors.
func Decode(body []byte) (Document, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(body)
	if !ok {
		return Document{}, found.Sorted()
	}
	r := strategy.NewReader(found)
	var d Document
	spec := root
	if root.Has("spec") || root.Has("kind") || root.Has("metadata") {
		spec = d.envelope(r, root)
	}
	if spec.Present() {
		d.Shared = readSpec(r, spec)
		d.Shared.Name = d.Name
		if found.Sorted() == nil {
			d.Spec = spec.Object()
		}
	}
	d.Warnings = r.Warnings()
	return d, found.Sorted()
}

// DecodeSpec reads the spec of the stored TrafficRouting of that name.
func DecodeSpec(name string, spec []byte) (rollout.SharedTraffic, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(spec)
	if !ok {
		return rollout.SharedTraffic{}, found.Sorted()
	}
	shared := readSpec(strategy.NewReader(found), root)
	shared.Name = name
	return shared, found.Sorted()
}

// envelope reads what is around the spec of a whole document.
func (d *Document) envelope(r *strategy.Reader, root strictyaml.Value) (spec strictyaml.Value) {
	m := root.Mapping("apiVersion", "kind", "metadata", "spec", "status")
	for _, field := range []struct{ key, want string }{{"apiVersion", apiVersion}, {"kind", kind}} {
		v := m.Optional(field.key)
		if !v.Present() {
			r.Refuse(v.Path(), "is required: write %s", field.want)
		} else if text := v.Text(); text != "" && text != field.want {
			r.Refuse(v.Path(), "must be %s, not %s", field.want, strictyaml.Quote(text))
		}
	}
	d.Namespace, d.Name, _ = r.Metadata(m.Optional("metadata"))
	if status := m.Optional("status"); status.Present() {
		r.Warn(status.Path(), "is not looked at: the engine keeps it")
	}
	spec = m.Optional("spec")
	if !spec.Present() {
		r.Refuse(spec.Path(), "is required: it holds objectRef and strategy")
	}
	return spec
}

func readSpec(r *strategy.Reader, v strictyaml.Value) rollout.SharedTraffic {
	m := v.Mapping("objectRef", "strategy")
	var shared rollout.SharedTraffic
	objects := m.Optional("objectRef")
	shared.Routings = r.Routings(objects, false)
	if len(shared.Routings) == 0 {
		r.Refuse(objects.Path(), "is required: name at least one Service and what routes to it")
	}
	strategy := m.Optional("strategy")
	if !strategy.Present() {
		r.Refuse(strategy.Path(), "is required: say which requests go to the new versions, by weight or matches")
		return shared
	}
	shared.Traffic = readStrategy(r, strategy, shared.Routings)
	return shared
}

func readStrategy(r *strategy.Reader, v strictyaml.Value, routings []strategy.Routing) strategy.Traffic {
	m := v.Mapping("weight", "matches", "requestHeaderModifier")
	t := strategy.Traffic{
		Matches: r.Matches(m.Optional("matches")), RequestHeaderModifier: r.HeaderModifier(m.Optional("requestHeaderModifier")),
	}
	weight := m.Optional("weight")
	switch {
	case weight.Present() && len(t.Matches) > 0:
		weight.Integer(1, 100)
		r.Warn(weight.Path(), "is not looked at, since there are matches: only the requests that match go to the new versions")
	case weight.Present():
		n := int32(weight.Integer(1, 100))
		t.Weight = &n
		refuseWeight(r, weight.Path(), routings)
	case len(t.Matches) == 0:
		r.Refuse(v.Path(), "sends no request anywhere: give it matches, or a weight")
	}
	return t
}

// refuseWeight: a TrafficRouting makes no canary Services, so that a share of the requests can only be told apart by custom objects.
func refuseWeight(r *strategy.Reader, field string, routings []strategy.Routing) {
	for _, routing := range routings {
		what := "Ingress"
		switch {
		case routing.HTTPRoute != "":
			what = "HTTPRoute"
		case routing.Ingress == nil:
			continue
		}
		r.Refuse(field, "cannot be done by an %s: it sends a share of the requests to a Service, and Service %s stands for both versions, "+
			"since a TrafficRouting makes no canary Service; use matches, or route by customNetworkRefs", what, routing.Service)
		return
	}
}
