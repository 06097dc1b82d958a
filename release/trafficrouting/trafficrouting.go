// Package trafficrouting reads the TrafficRouting objects (rollouts.kruise.io/v1alpha1) that several rollouts share for
// one canary.
package trafficrouting

import (
	"encoding/json"
	"slices"
	"strings"

	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
)

// The required values of a full document.
const (
	apiVersion = "rollouts.kruise.io/v1alpha1"
	kind       = "TrafficRouting"
)

// Document is a decoded TrafficRouting.
type Document struct {
	// Namespace and Name are those in the document, "" if absent.
	Namespace, Name string
	// Spec is its spec as JSON, for storage.
	Spec json.RawMessage
	// Shared is the decoded spec with the defaults filled in. Its name is the document's.
	Shared rollout.SharedTraffic
	// Warnings are sentences about what is legal but probably not meant.
	Warnings []string
}

// HeldByAnother returns which of the holders belongs to another engine, and what the user can do about it; "" if none
// does.
func HeldByAnother(holders []string, engine workload.Engine) string {
	for _, claim := range holders {
		if h := workload.ParseHolder(claim); h.Engine.Differs(engine) {
			return h.NameFor(engine) + ": " + workload.ForeignReason(h)
		}
	}
	return ""
}

// Decode reads a TrafficRouting from YAML or JSON, strictly, and reports all errors at once. It accepts a full
// document, also as kubectl prints it, or the spec alone. The Document is valid only without errors.
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

// DecodeSpec reads the stored spec of the TrafficRouting of that name.
func DecodeSpec(name string, spec []byte) (rollout.SharedTraffic, strictyaml.Errors) {
	d, wrong := Decode(spec)
	d.Shared.Name = name
	return d.Shared, wrong
}

// envelope reads everything in a full document except the spec, and returns the spec.
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
		r.Warn(status.Path(), "is ignored: the engine writes it")
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
		Matches:               r.Matches(m.Optional("matches")),
		RequestHeaderModifier: r.HeaderModifier(m.Optional("requestHeaderModifier")),
	}
	weight := m.Optional("weight")
	switch {
	case weight.Present() && len(t.Matches) > 0:
		strategy.Percent(weight, 1)
		r.Warn(weight.Path(), "is ignored because there are matches: only the requests that match go to the new "+
			"versions")
	case weight.Present():
		t.Weight = strategy.Percent(weight, 1)
		refuseWeight(r, weight.Path(), routings)
	case len(t.Matches) == 0:
		r.Refuse(v.Path(), "sends no request anywhere: give it matches, or a weight")
	}
	return t
}

// refuseWeight rejects a weight on Ingresses and HTTPRoutes. They split requests between Services, and a TrafficRouting
// makes no canary Service, so only custom objects can separate the versions.
func refuseWeight(r *strategy.Reader, field string, routings []strategy.Routing) {
	for _, routing := range routings {
		what := "Ingress"
		switch {
		case routing.HTTPRoute != "":
			what = "HTTPRoute"
		case routing.Ingress == nil:
			continue
		}
		r.Refuse(field, "cannot be done by an %s: it sends a share of the requests to a Service, and Service %s "+
			"serves both versions, since a TrafficRouting makes no canary Service; use matches, or route by "+
			"customNetworkRefs", what, routing.Service)
		return
	}
}

// The finalizers that the controller of Kruise Rollouts leaves on TrafficRoutings when it is removed: its own, and one
// for each of its Rollouts.
const (
	finalizerReference         = "rollouts.kruise.io/trafficrouting"
	finalizerReferenceProgress = "progressing.rollouts.kruise.io/"
)

// IsLeftover reports whether a finalizer was left behind by the controller of Kruise Rollouts.
func IsLeftover(finalizer string) bool {
	return finalizer == finalizerReference || strings.HasPrefix(finalizer, finalizerReferenceProgress)
}

// AuthoredBy returns what is needed to judge whether the authors of a TrafficRouting may change what it refers to.
func AuthoredBy(t *v1alpha1.TrafficRouting) author.Object {
	_, shown, _ := strings.Cut(t.Status.Message, warning)
	return author.Object{Resource: author.ResourceTrafficRoutings, Namespace: t.Namespace, Name: t.Name,
		Created: t.CreatedAt, Mark: t.Checked, Shown: shown}
}

// IdleStatus returns the phase and the message of a TrafficRouting that no rollout holds. unchecked is why nothing
// proves that its authors may change what it refers to; "" if it is proved.
func IdleStatus(unchecked string) (v1alpha1.TrafficRoutingPhase, string) {
	return v1alpha1.TrafficHealthy, warned("no rollout holds it", unchecked)
}

// HeldStatus returns the phase and the message of a TrafficRouting that rollouts hold; unchecked is as in IdleStatus.
func HeldStatus(t *v1alpha1.TrafficRouting, holders, unchecked string) (v1alpha1.TrafficRoutingPhase, string) {
	if t.Deleting {
		return v1alpha1.TrafficTerminating, "deleted: removed once no rollout holds it; held by " + holders
	}
	return v1alpha1.TrafficProgressing, warned("held by "+holders, unchecked)
}

func warned(message, unchecked string) string {
	if unchecked == "" {
		return message
	}
	return message + warning + unchecked
}

// warning separates the message of a status from the warning about its authors.
const warning = ". Warning: "

// Action is what to do about a TrafficRouting that a client created, edited or deleted while no release changes it.
type Action struct {
	// WriteStatus is true if Phase and Message must be written. RemoveFinalizers is true if the engine must remove its
	// finalizers from a deleted one.
	WriteStatus, RemoveFinalizers bool
	Phase                         v1alpha1.TrafficRoutingPhase
	Message                       string
}

// Decide returns the action for a TrafficRouting; holders are its holders as messages name them, and unchecked is as in
// IdleStatus.
func Decide(t *v1alpha1.TrafficRouting, holders, unchecked string) Action {
	held := len(t.Status.Holders) > 0
	kept := slices.ContainsFunc(t.Finalizers, func(f string) bool {
		return f == v1alpha1.FinalizerTrafficRouting || IsLeftover(f)
	})
	switch {
	case t.Deleting && !held:
		return Action{RemoveFinalizers: kept}
	case t.Status.Phase == v1alpha1.TrafficFinalizing: // its last holder writes the next phase
		return Action{}
	case held && t.Deleting && t.Status.Phase != v1alpha1.TrafficTerminating:
		phase, message := HeldStatus(t, holders, unchecked)
		return Action{WriteStatus: true, Phase: phase, Message: message}
	case held:
		return Action{}
	}
	phase, message := IdleStatus(unchecked)
	differs := t.Status.Phase != phase || t.Status.ObservedGeneration != t.Generation || t.Status.Message != message
	return Action{WriteStatus: differs, Phase: phase, Message: message}
}
