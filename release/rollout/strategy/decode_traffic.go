package strategy

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/strictyaml"
)

// What a step's matches and header changes have at most.
const (
	maxMatches     = 16
	maxValues      = 16
	maxNameLength  = 256
	maxPathLength  = 1024
	maxQueryLength = 1024
	maxValueLength = 4096
)

// headerName is a token of RFC 9110, of which the name of a header is made.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// Matches reads a list of matches.
func (r *Reader) Matches(v strictyaml.Value) []Match {
	return listOf(r, v, maxMatches, "matches", func(_ int, entry strictyaml.Value) (match Match) {
		m := entry.Mapping("path", "headers", "queryParams")
		if field := m.Optional("path"); field.Present() {
			match.Path = r.path(field)
		}
		match.Headers = r.valueMatches(m.Optional("headers"), "header", maxValueLength)
		match.QueryParams = r.valueMatches(m.Optional("queryParams"), "query parameter", maxQueryLength)
		if match.Path == nil && len(match.Headers) == 0 && len(match.QueryParams) == 0 {
			r.Refuse(entry.Path(),
				"names nothing to match, so that every request would go to the new version: give it a path, headers or queryParams")
		}
		return match
	})
}

func (r *Reader) path(v strictyaml.Value) *PathMatch {
	m := v.Mapping("type", "value")
	match := &PathMatch{Type: MatchPathPrefix, Value: "/"}
	readWord(m.Optional("type"), &match.Type, MatchExact, MatchPathPrefix, MatchRegularExpression)
	field := m.Optional("value")
	if !field.Present() {
		return match
	}
	match.Value = field.Text()
	r.value(field, match.Type, match.Value, maxPathLength)
	if match.Type != MatchRegularExpression && !strings.HasPrefix(match.Value, "/") {
		r.Refuse(field.Path(), "must begin with a slash, as every path does, not %s", strictyaml.Quote(match.Value))
	}
	return match
}

// valueMatches reads a list of headers or query parameters that all have to match.
func (r *Reader) valueMatches(v strictyaml.Value, what string, longest int) []ValueMatch {
	first := map[string]int{}
	return listOf(r, v, maxValues, v.Path()[strings.LastIndex(v.Path(), ".")+1:], func(i int, entry strictyaml.Value) ValueMatch {
		m := entry.Mapping("type", "name", "value")
		match := ValueMatch{Type: MatchExact, Name: m.Optional("name").Text(), Value: m.Optional("value").Text()}
		readWord(m.Optional("type"), &match.Type, MatchExact, MatchRegularExpression)
		name := match.Name
		if what == "header" {
			r.header(m.Field("name"), match.Name)
			name = strings.ToLower(name)
		} else {
			r.text(m.Field("name"), match.Name, maxNameLength)
		}
		r.value(m.Field("value"), match.Type, match.Value, longest)
		if earlier, taken := first[name]; taken && name != "" {
			r.Refuse(entry.Path(),
				"names the %s %s once more, which entry %d of the list does already: all entries have to match, so name each once",
				what, strictyaml.Quote(match.Name), earlier)
		} else {
			first[name] = i
		}
		return match
	})
}

// HeaderModifier reads what is changed in the headers of requests that go to the new version.
func (r *Reader) HeaderModifier(v strictyaml.Value) *HeaderModifier {
	if !v.Present() {
		return nil
	}
	m := v.Mapping("set", "add", "remove")
	named := map[string]string{}
	modifier := &HeaderModifier{Set: r.headers(m.Optional("set"), named), Add: r.headers(m.Optional("add"), named)}
	modifier.Remove = listOf(r, m.Optional("remove"), maxValues, "names", func(_ int, entry strictyaml.Value) string {
		name := entry.Text()
		r.header(entry, name)
		r.once(entry.Path(), name, named)
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
		r.header(m.Field("name"), h.Name)
		r.text(m.Field("value"), h.Value, maxValueLength)
		r.once(entry.Path(), h.Name, named)
		return h
	})
}

// once refuses a header that is changed twice: which change wins differs from provider to provider.
func (r *Reader) once(field, name string, named map[string]string) {
	key := strings.ToLower(name)
	if earlier, taken := named[key]; taken && key != "" {
		r.Refuse(field, "changes the header %s once more, which %s does already: change each header once", strictyaml.Quote(name), earlier)
		return
	}
	named[key] = field
}

func (r *Reader) header(v strictyaml.Value, name string) {
	if !r.text(v, name, maxNameLength) && !headerName.MatchString(name) {
		r.Refuse(v.Path(), "%s is not the name of a header: it is made of letters, digits and the characters ! # $ %% & ' * + - . ^ _ ` | ~",
			strictyaml.Quote(name))
	}
}

// text refuses a text that is absent, too long, or holds control characters. Its answer says whether it was refused.
func (r *Reader) text(v strictyaml.Value, text string, longest int) (refused bool) {
	switch {
	case text == "":
		r.Refuse(v.Path(), "is required")
	case len(text) > longest:
		r.Refuse(v.Path(), "is too long: %d bytes, of at most %d", len(text), longest)
	case strings.ContainsFunc(text, unicode.IsControl):
		r.Refuse(v.Path(), "holds a control character, such as a line break, which no request can carry there")
	default:
		return false
	}
	return true
}

// value is text that is compared, as it is or by an expression.
func (r *Reader) value(v strictyaml.Value, kind MatchType, text string, longest int) {
	if r.text(v, text, longest) || kind != MatchRegularExpression {
		return
	}
	if _, err := regexp.Compile(text); err != nil {
		r.Refuse(v.Path(), "is not a regular expression of the syntax RE2: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
}

// defaultIngressClass is the class of an Ingress when the routing does not say.
const defaultIngressClass = "nginx"

// maxRoutings is how many routings a strategy has at most.
const maxRoutings = 16

// Routings reads trafficRoutings, or the objectRef of a TrafficRouting: each entry a Service and one provider that routes to it.
// canaries says that a Service <service>-canary is made for each, whose name has to be legal too.
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

// checkRouting refuses what cannot be made for a routing. taken are the objects that entries before it have named, each with the entry.
func (r *Reader) checkRouting(entry strictyaml.Value, routing Routing, taken map[string]string, canaries bool) {
	if canaries && len(routing.CanaryService()) > validation.DNS1035LabelMaxLength {
		r.Refuse(strictyaml.Join(entry.Path(), "service"), "is too long: its canary Service would be called %s, and a Service's name has at "+
			"most %d characters", strictyaml.Quote(routing.CanaryService()), validation.DNS1035LabelMaxLength)
	}
	for i, object := range routing.objects() {
		earlier, again := taken[object]
		if r.object && i == 0 { // the API specification prints several entries for one Service: all of them apply
			continue
		}
		switch {
		case again && earlier != entry.Path():
			r.Refuse(entry.Path(), "names %s once more, which %s does already: one entry for each object", object, earlier)
		default:
			taken[object] = entry.Path()
		}
	}
}

// objects are what a routing changes, in words: its Service first.
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

// routing reads one entry: a routing, or, of an object that names several providers in one entry, one for each.
func (r *Reader) routing(v strictyaml.Value) []Routing {
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
		r.refuseUnlessStored(v.Path(), "names %s: an entry names exactly one of ingress, gateway, customNetworkRefs", strings.Join(named, " and "))
		return routing.split()
	}
	return []Routing{routing}
}

// split is a routing for each provider that one entry names.
func (r Routing) split() (all []Routing) {
	base := Routing{Service: r.Service, GraceSeconds: r.GraceSeconds}
	add := func(set func(one *Routing)) {
		one := base
		set(&one)
		all = append(all, one)
	}
	if len(r.Custom) > 0 { // in the order in which other controllers apply them
		add(func(one *Routing) { one.Custom = r.Custom })
	}
	if r.Ingress != nil {
		add(func(one *Routing) { one.Ingress = r.Ingress })
	}
	if r.HTTPRoute != "" {
		add(func(one *Routing) { one.HTTPRoute = r.HTTPRoute })
	}
	return all
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
