package apiclient

import (
	"net/url"
	"regexp"
	"strings"
)

// httpCall is a request as the API's messages name it: "POST /api/v1/tasks/shop-1/stop".
var httpCall = regexp.MustCompile(`\b(GET|PUT|POST|DELETE) /api/v1/([a-z]+)((?:/[^\s/?)\]",;:]+)*)(\?party=([^\s&)\]",;]+))?`)

// commandNouns are the commands for the collections of the API. The names in those of namespaces have two parts.
var commandNouns = map[string]struct {
	noun  string
	parts int
}{
	"services": {"service", 1}, "plans": {"plan", 1}, "tasks": {"task", 1}, "servings": {"serving", 1}, "parties": {"party", 1},
	"rollouts": {"rollout", 2}, "trafficroutings": {"trafficrouting", 2},
}

// namingCommands puts the commands that people type here in the place of the HTTP requests that a message names.
func namingCommands(text string) string {
	return httpCall.ReplaceAllStringFunc(text, func(call string) string {
		match := httpCall.FindStringSubmatch(call)
		method, what, known := match[1], commandNouns[match[2]], commandNouns[match[2]].noun != ""
		if !known {
			return call
		}
		parts := strings.FieldsFunc(match[3], func(r rune) bool { return r == '/' })
		name := strings.Join(parts[:min(len(parts), what.parts)], "/")
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		if match[5] != "" {
			name += " --party " + match[5]
		}
		verb := "list"
		switch {
		case len(parts) > what.parts:
			verb = parts[what.parts]
		case method == "PUT":
			verb, name = "apply", "-f FILE"
		case method == "POST":
			verb = "start"
		case method == "DELETE":
			verb = "delete"
		case name != "":
			verb = "get"
		}
		if verb == "execute" {
			verb = "run"
		}
		return strings.TrimSpace("slipway " + what.noun + " " + verb + " " + name)
	})
}
