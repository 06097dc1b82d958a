package strategy

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/strictyaml"
)

// The limits of a step's matches and header changes: entries, and characters.
const (
	maxMatches     = 16
	maxValues      = 16
	maxNameLength  = 256
	maxPathLength  = 1024
	maxQueryLength = 1024
	maxValueLength = 4096
)

// headerName matches a header name: a token of RFC 9110.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// HeaderModifier reads the changes to the headers of requests that go to the new version.
func (r *Reader) HeaderModifier(v strictyaml.Value) *HeaderModifier {
	if !v.Present() {
		return nil
	}
	m := v.Mapping("set", "add", "remove")
	named := map[string]string{}
	modifier := &HeaderModifier{Set: r.headers(m.Optional("set"), named), Add: r.headers(m.Optional("add"), named)}
	modifier.Remove = listOf(r, m.Optional("remove"), maxValues, "names", func(_ int, entry strictyaml.Value) string {
		name := entry.Text()
		r.checkHeaderName(entry, name)
		r.refuseRepeatedHeader(entry.Path(), name, named)
		return name
	})
	if len(modifier.Set)+len(modifier.Add)+len(modifier.Remove) == 0 {
		r.Refuse(v.Path(), "changes no header: give it set, add or remove, or leave it out")
	}
	return modifier
}

func (r *Reader) headers(v strictyaml.Value, named map[string]string) []Header {
	return listOf(r, v, maxValues, "headers", func(_ int, entry strictyaml.Value) Header {
		m := entry.Mapping("name", "value")
		h := Header{Name: m.Optional("name").Text(), Value: m.Optional("value").Text()}
		r.checkHeaderName(m.Field("name"), h.Name)
		r.checkText(m.Field("value"), h.Value, maxValueLength)
		r.refuseRepeatedHeader(entry.Path(), h.Name, named)
		return h
	})
}

// refuseRepeatedHeader refuses a header that is changed twice: which change wins depends on the provider.
func (r *Reader) refuseRepeatedHeader(field, name string, named map[string]string) {
	key := strings.ToLower(name)
	if earlier, taken := named[key]; taken && key != "" {
		r.Refuse(field, "changes the header %s, which %s already changes: change each header once",
			strictyaml.Quote(name), earlier)
		return
	}
	named[key] = field
}

func (r *Reader) checkHeaderName(v strictyaml.Value, name string) {
	if !r.checkText(v, name, maxNameLength) && !headerName.MatchString(name) {
		r.Refuse(v.Path(), "%s is not a header name: use only letters, digits and the characters ! # $ %% & ' * + - "+
			". ^ _ ` | ~", strictyaml.Quote(name))
	}
}

// defaultIngressClass is the class of an Ingress whose routing sets none.
const defaultIngressClass = "nginx"

// maxRoutings is the maximum number of routings of a strategy.
const maxRoutings = 16

// Routings reads trafficRoutings, or the objectRef of a TrafficRouting: each entry is a Service and one provider that
// routes to it. canaries means that the rollout creates a Service <service>-canary for each entry; its name has to be
// legal too.
func (r *Reader) Routings(v strictyaml.Value, canaries bool) []Routing {
	taken := map[string]string{}
	all := listOf(r, v, maxRoutings, "entries", func(_ int, entry strictyaml.Value) []Routing {
		several := r.routing(entry)
		for _, routing := range several {
			r.checkRouting(entry, routing, taken, canaries)
		}
		return several
	})
	return slices.Concat(all...)
}

// checkRouting refuses a routing that cannot work. taken maps the objects that earlier entries name to the paths of
// those entries.
func (r *Reader) checkRouting(entry strictyaml.Value, routing Routing, taken map[string]string, canaries bool) {
	if canaries && len(routing.CanaryService()) > validation.DNS1035LabelMaxLength {
		r.Refuse(strictyaml.Join(entry.Path(), "service"),
			"is too long: its canary Service would be called %s, and a Service's name has at "+
				"most %d characters", strictyaml.Quote(routing.CanaryService()), validation.DNS1035LabelMaxLength)
	}
	for i, object := range routing.objects() {
		earlier, again := taken[object]
		if r.stored && i == 0 { // the API specification shows several entries for one Service: all of them apply
			continue
		}
		switch {
		case again && earlier != entry.Path():
			r.Refuse(entry.Path(), "names %s, which %s already names: use one entry for each object", object, earlier)
		default:
			taken[object] = entry.Path()
		}
	}
}

// objects lists the objects that a routing changes, as text; its Service comes first.
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

// providers are the keys of a routing that name what routes to the Service.
var providers = []string{"ingress", "gateway", "customNetworkRefs"}

// routing reads one entry: one routing, or, for a stored object whose entry names several providers, one for each of
// them.
func (r *Reader) routing(v strictyaml.Value) []Routing {
	m := v.Mapping(append([]string{"service", "gracePeriodSeconds"}, providers...)...)
	routing := Routing{Service: r.name(m, "service", validation.IsDNS1035Label), GraceSeconds: DefaultGraceSeconds}
	readSeconds(m.Optional("gracePeriodSeconds"), &routing.GraceSeconds, 0, math.MaxInt32)
	var named []string
	if field := m.Optional("ingress"); field.Present() {
		named = append(named, "ingress")
		routing.Ingress = r.ingress(field)
	}
	if field := m.Optional("gateway"); field.Present() {
		named = append(named, "gateway")
		routing.HTTPRoute = r.name(field.Mapping("httpRouteName"), "httpRouteName", validation.IsDNS1123Subdomain)
	}
	if routing.Custom = r.objectRefs(m.Optional("customNetworkRefs")); len(routing.Custom) > 0 {
		named = append(named, "customNetworkRefs")
	}
	switch {
	case len(named) == 0 && !slices.ContainsFunc(providers, func(k string) bool {
		return r.found.Unreadable(m.Field(k).Path())
	}):
		r.Refuse(v.Path(), "names nothing that routes to the Service: set one of ingress, gateway, customNetworkRefs")
	case len(named) > 1:
		r.refuseUnlessStored(v.Path(), "names %s: an entry names exactly one of ingress, gateway, customNetworkRefs",
			strings.Join(named, " and "))
		return routing.splitByProvider()
	}
	return []Routing{routing}
}

// splitByProvider returns a routing for each provider that one entry names, in the order in which other controllers
// apply them.
func (r Routing) splitByProvider() (all []Routing) {
	for _, one := range []Routing{{Custom: r.Custom}, {Ingress: r.Ingress}, {HTTPRoute: r.HTTPRoute}} {
		if len(one.Custom) > 0 || one.Ingress != nil || one.HTTPRoute != "" {
			one.Service, one.GraceSeconds = r.Service, r.GraceSeconds
			all = append(all, one)
		}
	}
	return all
}

func (r *Reader) ingress(v strictyaml.Value) *IngressRef {
	m := v.Mapping("classType", "name")
	ref := &IngressRef{Class: defaultIngressClass}
	// An empty class means the default: tools print the field with its zero value.
	if field := m.Optional("classType"); field.Present() {
		ref.Class = cmp.Or(field.FreeText(), ref.Class)
		r.Name(field.Path(), ref.Class, validation.IsDNS1123Subdomain)
	}
	if ref.Name = r.name(m, "name", validation.IsDNS1123Subdomain); len(
		ref.Name) > validation.DNS1123SubdomainMaxLength-len(CanarySuffix) {
		r.Refuse(m.Field("name").Path(), "is too long: the name of its canary, with %q, has at most %d characters",
			CanarySuffix, validation.DNS1123SubdomainMaxLength)
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
