package traffic

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
)

// This file translates matches for HTTPRoutes. Lua scripts translate them for classes of Ingress (nginx.lua, mse.lua,
// aliyun-alb.lua) and for Istio (VirtualService.lua). strategy/match.go reads them.

// byMatches puts a rule for the canary before a stable rule: the same rule, with its matches narrowed by each of the
// step's.
func (r *routeWriter) byMatches(rule Object) ([]any, error) {
	own := jsonpatch.DigObjects(rule, "matches")
	if len(own) == 0 {
		own = []Object{{"path": Object{"type": string(strategy.MatchPathPrefix), "value": "/"}}}
	}
	var narrowed []any
	for _, mine := range own {
		for _, asked := range r.asks.Matches {
			m, possible, err := r.intersectMatch(mine, asked)
			if err != nil {
				return nil, err
			}
			if possible && !slices.ContainsFunc(narrowed, func(n any) bool { return reflect.DeepEqual(n, any(m)) }) {
				narrowed = append(narrowed, m)
			}
		}
	}
	if len(narrowed) == 0 {
		return []any{rule}, nil
	}
	r.matched = true
	canary := clone(rule)
	delete(canary, "name") // rule names are unique
	canary["matches"] = narrowed
	if err := r.addHeaderModifier(canary); err != nil {
		return nil, err
	}
	refs := jsonpatch.DigObjects(rule, "backendRefs")
	ref := clone(refs[r.backend(rule, r.pair.Stable)])
	ref["name"], ref["weight"] = r.pair.Canary, int64(1)
	canary["backendRefs"] = []any{ref}
	return []any{canary, rule}, nil
}

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
		values, possible, err := r.intersectValues(jsonpatch.DigObjects(own, part.field), part.asked, part.fold)
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
			have := jsonpatch.DigString(v.(map[string]any), "name")
			return have == a.Name || fold && strings.EqualFold(have, a.Name)
		})
		if i < 0 {
			values = append(values, theirs)
			continue
		}
		have, _ := values[i].(map[string]any)
		mine := strategy.PathMatch{Type: strategy.MatchType(
			cmp.Or(jsonpatch.DigString(have, "type"), string(strategy.MatchExact))),
			Value: jsonpatch.DigString(have, "value")}
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

// FullMatch reports whether an expression matches a whole text, as Envoy compares.
func FullMatch(expression, text string) bool {
	re, err := regexp.Compile("^(?:" + expression + ")$")
	return err == nil && re.MatchString(text)
}

// PathOf returns a match's path with the defaults of the Gateway API.
func PathOf(m Object) (kind, value string) {
	return cmp.Or(jsonpatch.DigString(m, "path", "type"), string(strategy.MatchPathPrefix)),
		cmp.Or(jsonpatch.DigString(m, "path", "value"), "/")
}

// PrefixMatches compares element by element: /a is a prefix of /a and /a/b, not of /ab.
func PrefixMatches(prefix, path string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}
