package strategy

import (
	"regexp"
	"strings"
	"unicode"

	"slipway.io/slipway/release/strictyaml"
)

// Matches reads a list of matches.
func (r *Reader) Matches(v strictyaml.Value) []Match {
	return listOf(r, v, maxMatches, "matches", func(_ int, entry strictyaml.Value) (match Match) {
		m := entry.Mapping("path", "headers", "queryParams")
		if field := m.Optional("path"); field.Present() {
			match.Path = r.pathMatch(field)
		}
		match.Headers = r.valueMatches(m.Optional("headers"), "header", maxValueLength)
		match.QueryParams = r.valueMatches(m.Optional("queryParams"), "query parameter", maxQueryLength)
		if match.Path == nil && len(match.Headers) == 0 && len(match.QueryParams) == 0 {
			r.Refuse(entry.Path(), "matches every request, so that all of them would go to the new version: add a "+
				"path, headers or queryParams")
		}
		return match
	})
}

func (r *Reader) pathMatch(v strictyaml.Value) *PathMatch {
	m := v.Mapping("type", "value")
	match := &PathMatch{Type: MatchPathPrefix, Value: "/"}
	readEnum(m.Optional("type"), &match.Type, MatchExact, MatchPathPrefix, MatchRegularExpression)
	field := m.Optional("value")
	if !field.Present() {
		return match
	}
	match.Value = field.Text()
	r.checkValue(field, match.Type, match.Value, maxPathLength)
	if match.Type != MatchRegularExpression && !strings.HasPrefix(match.Value, "/") {
		r.Refuse(field.Path(), "must begin with a slash, not %s", strictyaml.Quote(match.Value))
	}
	return match
}

// valueMatches reads a list of headers or query parameters that all have to match.
func (r *Reader) valueMatches(v strictyaml.Value, what string, longest int) []ValueMatch {
	first := map[string]int{}
	return listOf(r, v, maxValues, v.Path()[strings.LastIndex(v.Path(), ".")+1:],
		func(i int, entry strictyaml.Value) ValueMatch {
			m := entry.Mapping("type", "name", "value")
			match := ValueMatch{Type: MatchExact, Name: m.Optional("name").Text(), Value: m.Optional("value").Text()}
			readEnum(m.Optional("type"), &match.Type, MatchExact, MatchRegularExpression)
			name := match.Name
			if what == "header" {
				r.checkHeaderName(m.Field("name"), match.Name)
				name = strings.ToLower(name)
			} else {
				r.checkText(m.Field("name"), match.Name, maxNameLength)
			}
			r.checkValue(m.Field("value"), match.Type, match.Value, longest)
			if earlier, taken := first[name]; taken && name != "" {
				r.Refuse(entry.Path(), "repeats the %s %s of entry %d: all entries have to match, so list each once",
					what, strictyaml.Quote(match.Name), earlier)
			} else {
				first[name] = i
			}
			return match
		})
}

// checkText refuses a text that is absent, too long, or contains control characters. It reports whether it refused the
// text.
func (r *Reader) checkText(v strictyaml.Value, text string, longest int) (refused bool) {
	switch {
	case text == "":
		r.Refuse(v.Path(), "is required")
	case len(text) > longest:
		r.Refuse(v.Path(), "is too long: %d bytes, of at most %d", len(text), longest)
	case strings.ContainsFunc(text, unicode.IsControl):
		r.Refuse(v.Path(), "contains a control character, such as a line break, which a request cannot carry there")
	default:
		return false
	}
	return true
}

// checkValue refuses a value that checkText refuses, or that should be a regular expression and is not.
func (r *Reader) checkValue(v strictyaml.Value, kind MatchType, text string, longest int) {
	if r.checkText(v, text, longest) || kind != MatchRegularExpression {
		return
	}
	if _, err := regexp.Compile(text); err != nil {
		r.Refuse(v.Path(), "is not a regular expression in RE2 syntax: %s",
			strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
}
