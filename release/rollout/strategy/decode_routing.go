package strategy

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/strictyaml"
)

// defaultIngressClass is the class of an Ingress when the routing does not say.
const defaultIngressClass = "nginx"

// maxRoutings is how many routings a strategy has at most.
const maxRoutings = 16

// Routings reads trafficRoutings, or the objectRef of a TrafficRouting: each entry a Service and one provider that routes to it.
// canaries says that a Service <service>-canary is made for each, whose name has to be legal too.
func (r *Reader) Routings(v strictyaml.Value, canaries bool) []Routing {
	entries := v.List()
	r.atMost(v, len(entries), maxRoutings, "entries")
	var all []Routing
	taken := map[string]string{}
	for _, entry := range entries {
		routing := r.routing(entry)
		if canaries && len(routing.CanaryService()) > validation.DNS1035LabelMaxLength {
			r.Refuse(strictyaml.Join(entry.Path(), "service"), "is too long: its canary Service would be called %s, and a Service's name has at "+
				"most %d characters",
				strictyaml.Quote(routing.CanaryService()), validation.DNS1035LabelMaxLength)
		}
		for _, object := range routing.objects() {
			if earlier, again := taken[object]; again {
				r.Refuse(entry.Path(), "names %s once more, which %s does already: one entry for each object", object, earlier)
			} else {
				taken[object] = entry.Path()
			}
		}
		all = append(all, routing)
	}
	return all
}

// objects are what a routing changes, in words.
func (r Routing) objects() []string {
	var all []string
	add := func(kind, name string) {
		if name != "" {
			all = append(all, kind+" "+name)
		}
	}
	add("Service", r.Service)
	if r.Ingress != nil {
		add("Ingress", r.Ingress.Name)
	}
	add("HTTPRoute", r.HTTPRoute)
	for _, ref := range r.Custom {
		add(ref.Kind+" ("+ref.APIVersion+")", ref.Name)
	}
	return all
}

// providers are the keys of what routes to a Service.
var providers = []string{"ingress", "gateway", "customNetworkRefs"}

func (r *Reader) routing(v strictyaml.Value) Routing {
	m := v.Mapping(append([]string{"service", "gracePeriodSeconds"}, providers...)...)
	routing := Routing{Service: r.name(m, "service", validation.IsDNS1035Label), GraceSeconds: DefaultGraceSeconds}
	readInteger(m.Optional("gracePeriodSeconds"), &routing.GraceSeconds, 0, math.MaxInt32)
	var named []string
	if field := m.Optional("ingress"); field.Present() {
		named = append(named, "ingress")
		routing.Ingress = r.ingress(field)
	}
	if field := m.Optional("gateway"); field.Present() {
		named = append(named, "gateway")
		routing.HTTPRoute = r.name(field.Mapping("httpRouteName"), "httpRouteName", validation.IsDNS1123Subdomain)
	}
	if field := m.Optional("customNetworkRefs"); field.Present() {
		if routing.Custom = r.objectRefs(field); len(routing.Custom) > 0 {
			named = append(named, "customNetworkRefs")
		}
	}
	switch {
	case len(named) == 0 && !slices.ContainsFunc(providers, func(k string) bool { return r.found.Unreadable(m.Field(k).Path()) }):
		r.Refuse(v.Path(), "does not say what routes to the Service: name one of ingress, gateway, customNetworkRefs")
	case len(named) > 1:
		r.Refuse(v.Path(), "names %s: an entry names exactly one of ingress, gateway, customNetworkRefs", strings.Join(named, " and "))
	}
	return routing
}

func (r *Reader) ingress(v strictyaml.Value) *IngressRef {
	m := v.Mapping("classType", "name")
	ref := &IngressRef{Class: defaultIngressClass}
	// An empty class is the default's: the documents print it as the zero value.
	if field := m.Optional("classType"); field.Present() {
		ref.Class = cmp.Or(field.FreeText(), ref.Class)
		r.Name(field.Path(), ref.Class, validation.IsDNS1123Subdomain)
	}
	if ref.Name = r.name(m, "name", validation.IsDNS1123Subdomain); len(ref.Name) > validation.DNS1123SubdomainMaxLength-len(CanarySuffix) {
		r.Refuse(m.Field("name").Path(), "is too long: the name of its canary, with %q, has at most %d characters", CanarySuffix,
			validation.DNS1123SubdomainMaxLength)
	}
	return ref
}

func (r *Reader) objectRefs(v strictyaml.Value) []ObjectRef {
	var all []ObjectRef
	for _, entry := range v.List() {
		m := entry.Mapping("apiVersion", "kind", "name")
		all = append(all, ObjectRef{APIVersion: r.required(m, "apiVersion", ""), Kind: r.required(m, "kind", ""),
			Name: r.name(m, "name", validation.IsDNS1123Subdomain)})
	}
	return all
}
