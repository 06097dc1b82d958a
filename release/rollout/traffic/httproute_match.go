package traffic

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout/strategy"
)

// intersectMatch returns the match that a request meets exactly if it meets both the route's own and the asked one;
// possible reports whether any request can. What an HTTPRoute cannot express is refused: two expressions for one value.
func (r *routeWriter) intersectMatch(own Object, asked strategy.Match) (m Object, possible bool, err error) {
	m = clone(own)
	if asked.Path != nil {
		path, possible, err := r.intersectPaths(own, *asked.Path)
		if err != nil || !possible {
			return nil, false, err
		}
		m["path"] = path
	}
	for _, part := range []struct {
		field string
		asked []strategy.ValueMatch
		fold  bool
	}{{"headers", asked.Headers, true}, {"queryParams", asked.QueryParams, false}} {
		values, possible, err := r.intersectValues(DigObjects(own, part.field), part.asked, part.fold)
		if err != nil || !possible {
			return nil, false, err
		}
		if len(values) > 0 {
			m[part.field] = values
		}
	}
	return m, true, nil
}

func (r *routeWriter) intersectPaths(own Object, asked strategy.PathMatch) (path Object, possible bool, err error) {
	kind, value := PathOf(own)
	mine := strategy.PathMatch{Type: strategy.MatchType(kind), Value: value}
	either := func(kind strategy.MatchType) bool { return mine.Type == kind || asked.Type == kind }
	switch {
	case covers(mine, asked):
		return Object{"type": string(asked.Type), "value": asked.Value}, true, nil
	case covers(asked, mine):
		return Object{"type": kind, "value": value}, true, nil
	case either(strategy.MatchExact) || !either(strategy.MatchRegularExpression):
		return nil, false, nil
	}
	return nil, false, refuse("%s has a rule for the path %s %s, which cannot be combined with the path %s %s of "+
		"the step: an HTTPRoute compares a path with one expression only", r.name, kind, value, asked.Type, asked.Value)
}

// covers reports whether one match is known to take everything that another takes.
func covers(wide, narrow strategy.PathMatch) bool {
	switch {
	case wide == narrow:
		return true
	case wide.Type == strategy.MatchRegularExpression:
		return narrow.Type == strategy.MatchExact && FullMatch(wide.Value, narrow.Value)
	case wide.Type == strategy.MatchPathPrefix:
		return wide.Value == "/" ||
			narrow.Type != strategy.MatchRegularExpression && PrefixMatches(wide.Value, narrow.Value)
	}
	return false
}

// intersectValues returns the header or query matches that meet both lists; a name occurs once in a list.
func (r *routeWriter) intersectValues(own []Object, asked []strategy.ValueMatch, fold bool) (values []any,
	possible bool, err error) {
	for _, o := range own {
		values = append(values, clone(o))
	}
	for _, a := range asked {
		theirs := Object{"type": string(a.Type), "name": a.Name, "value": a.Value}
		i := slices.IndexFunc(values, func(v any) bool {
			have := DigString(v.(map[string]any), "name")
			return have == a.Name || fold && strings.EqualFold(have, a.Name)
		})
		if i < 0 {
			values = append(values, theirs)
			continue
		}
		have, _ := values[i].(map[string]any)
		mine := strategy.PathMatch{Type: strategy.MatchType(cmp.Or(DigString(have, "type"), string(strategy.MatchExact))),
			Value: DigString(have, "value")}
		wanted := strategy.PathMatch{Type: a.Type, Value: a.Value}
		switch {
		case covers(wanted, mine):
		case covers(mine, wanted):
			values[i] = theirs
		case mine.Type == strategy.MatchExact || a.Type == strategy.MatchExact:
			return nil, false, nil
		default:
			return nil, false,
				refuse("%s compares %s with an expression already, which cannot be combined with the step's", r.name,
					a.Name)
		}
	}
	return values, true, nil
}

const (
	filterHeaders = "RequestHeaderModifier"
	fieldHeaders  = "requestHeaderModifier"
)

// addHeaderModifier adds the step's RequestHeaderModifier to the filters of a rule or backend. Only one such filter is
// allowed, so it is merged into an existing one as if it were applied after that.
func (r *routeWriter) addHeaderModifier(holder Object) error {
	asked := r.asks.RequestHeaderModifier
	if asked == nil {
		return nil
	}
	filters, _ := clone(holder["filters"]).([]any)
	filter := Object{"type": filterHeaders}
	if i := slices.IndexFunc(objectsOf(filters), func(f Object) bool {
		return DigString(f, "type") == filterHeaders
	}); i >= 0 {
		filter = objectsOf(filters)[i]
	} else {
		filters = append(filters, filter)
	}
	modifier := mergedModifier(DigObject(filter, fieldHeaders), asked)
	filter[fieldHeaders], holder["filters"] = modifier, filters
	for _, part := range []string{"set", "add", "remove"} {
		if list, _ := modifier[part].([]any); len(list) > maxValues {
			return refuse("%s would %s %d headers in one filter, the most is %d", r.name, part, len(list), maxValues)
		}
	}
	return nil
}

// mergedModifier returns one modifier that does what the route's own does, and then the step's.
func mergedModifier(own Object, asked *strategy.HeaderModifier) Object {
	set, add := DigObjects(own, "set"), DigObjects(own, "add")
	remove, _, _ := unstructured.NestedStringSlice(own, "remove")
	named := func(name string) func(Object) bool {
		return func(m Object) bool { return strings.EqualFold(DigString(m, "name"), name) }
	}
	forget := func(name string) {
		set, add = slices.DeleteFunc(set, named(name)), slices.DeleteFunc(add, named(name))
		remove = slices.DeleteFunc(remove, func(s string) bool { return strings.EqualFold(s, name) })
	}
	for _, name := range asked.Remove {
		forget(name)
		remove = append(remove, name)
	}
	for _, h := range asked.Set {
		forget(h.Name)
		set = append(set, Object{"name": h.Name, "value": h.Value})
	}
	for _, h := range asked.Add {
		// A name may occur only once in a list: an earlier entry takes the value in.
		there := slices.Concat(add, set)
		if i := slices.IndexFunc(there, named(h.Name)); i >= 0 {
			there[i]["value"] = DigString(there[i], "value") + "," + h.Value
		} else {
			add = append(add, Object{"name": h.Name, "value": h.Value})
		}
	}
	out := Object{}
	for field, list := range map[string][]any{"set": anyList(set), "add": anyList(add), "remove": anyList(remove)} {
		if len(list) > 0 {
			out[field] = list
		}
	}
	return out
}

func anyList[T any](list []T) []any {
	out := make([]any, 0, len(list))
	for _, item := range list {
		out = append(out, item)
	}
	return out
}

// FullMatch reports whether an expression matches a whole text, as Envoy compares.
func FullMatch(expression, text string) bool {
	re, err := regexp.Compile("^(?:" + expression + ")$")
	return err == nil && re.MatchString(text)
}

// PathOf returns a match's path with the defaults of the Gateway API.
func PathOf(m Object) (kind, value string) {
	return cmp.Or(DigString(m, "path", "type"), string(strategy.MatchPathPrefix)),
		cmp.Or(DigString(m, "path", "value"), "/")
}

// PrefixMatches compares element by element: /a is a prefix of /a and /a/b, not of /ab.
func PrefixMatches(prefix, path string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}
