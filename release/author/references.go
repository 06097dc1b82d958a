// Package author decides whether the author of a Rollout or a TrafficRouting is allowed to change what the object
// refers to. Releases write these Ingresses, routes and custom objects with the engine's permissions: without the
// question, a user could have an object changed that he may not change himself. API servers ask it at the edit, by an
// admission policy or by a webhook; later the engine judges by the object whether it was asked. The package does no
// I/O.
package author

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
)

const (
	// VerbPatch is what an author must be allowed to do with a referred object.
	VerbPatch = "patch"
	// VerbRefer is the permission to refer to every object of a namespace. Servers have it for the TrafficRoutings of the
	// HTTP API. ResourceRefer and GroupRefer are what it is on.
	VerbRefer = "refer"
	// ResourceRefer is the resource of VerbRefer.
	ResourceRefer = "releases"
	// GroupRefer is the API group of ResourceRefer.
	GroupRefer = "slipway.io"
	// AnnotationChecked requests with a new value that all references are checked again. With the token of a Check it
	// proves that this has happened.
	AnnotationChecked = "slipway.io/references-checked"
)

const (
	// maxRoutings is how many entries an object may have; releases accept as many.
	maxRoutings = 16
	// maxAsked is how many references are checked in one edit. An API server ends a policy that asks for more than 28
	// permissions.
	maxAsked = 20
)

// Reference names an object that a Rollout or a TrafficRouting refers to, in its namespace.
type Reference struct{ Group, Resource, Name string }

// Kind returns the kind of the object as resource.group.
func (r Reference) Kind() string { return strings.TrimSuffix(r.Resource+"."+r.Group, ".") }

// The kinds of references that have a field of their own.
var (
	ingress   = Reference{Group: "networking.k8s.io", Resource: "ingresses"}
	httpRoute = Reference{Group: "gateway.networking.k8s.io", Resource: "httproutes"}
)

// lists are the JSON paths of the lists of routings: in a Rollout of either style, and in a TrafficRouting.
var lists = [][]string{{"spec", "strategy", "canary", "trafficRoutings"},
	{"spec", "strategy", "blueGreen", "trafficRoutings"}, {"spec", "objectRef"}}

// Asked returns which references the author of an edit must be allowed to change: those that the object did not have
// before, or all if the edit asks for that. old is nil for a new object. The error says why the edit can't be checked.
func Asked(old, edited map[string]any) ([]Reference, error) {
	now, err := references(edited)
	if err != nil {
		return nil, err
	}
	asked := now
	if was, is := markOf(old), markOf(edited); old != nil && (is == "" || is == was) {
		before, _ := references(old) // an unreadable object of before has no reference that was checked
		asked = slices.DeleteFunc(now, func(r Reference) bool { return slices.Contains(before, r) })
	}
	if len(asked) > maxAsked {
		return nil, fmt.Errorf(tooMany, len(asked), maxAsked)
	}
	return asked, nil
}

// Texts of edits that can't be checked.
const (
	tooMany = "the edit adds %d references to objects, and at most %d are checked at once: add the others by further " +
		"edits"
	tooManyRoutings = "the object has %d entries of routes, and may have %d"
)

func markOf(object map[string]any) string {
	return jsonpatch.DigString(object, "metadata", "annotations", AnnotationChecked)
}

// references returns what an object refers to, each once.
func references(object map[string]any) (all []Reference, err error) {
	entries := 0
	for _, path := range lists {
		list, err := listAt(object, path...)
		if err != nil {
			return nil, err
		}
		for _, entry := range list {
			found, err := referencesOf(entry)
			if err != nil {
				return nil, err
			}
			for _, r := range found {
				if !slices.Contains(all, r) {
					all = append(all, r)
				}
			}
		}
		entries += len(list)
	}
	if entries > maxRoutings {
		return nil, fmt.Errorf(tooManyRoutings, entries, maxRoutings)
	}
	return all, nil
}

// referencesOf returns what one entry of routes refers to.
func referencesOf(entry any) (all []Reference, err error) {
	routing, is := entry.(map[string]any)
	if !is {
		return nil, errUnreadable
	}
	custom, err := listAt(routing, "customNetworkRefs")
	if err != nil {
		return nil, err
	}
	for _, one := range custom {
		ref, _ := one.(map[string]any)
		apiVersion, kind, name := jsonpatch.DigString(ref, "apiVersion"), jsonpatch.DigString(ref, "kind"),
			jsonpatch.DigString(ref, "name")
		if apiVersion == "" || kind == "" || name == "" {
			return nil, errUnreadable
		}
		all = append(all, Reference{Group: groupOf(apiVersion), Resource: plural(kind), Name: name})
	}
	for _, field := range []struct {
		of   Reference
		path []string
	}{{ingress, []string{"ingress", "name"}}, {httpRoute, []string{"gateway", "httpRouteName"}}} {
		if field.of.Name = jsonpatch.DigString(routing, field.path...); field.of.Name != "" {
			all = append(all, field.of)
		}
	}
	return all, nil
}

var errUnreadable = errors.New("an entry of its routes can't be read: correct it")

// listAt returns the list at a path; nil for none.
func listAt(object map[string]any, path ...string) ([]any, error) {
	switch value := jsonpatch.Dig(object, path...).(type) {
	case nil:
		return nil, nil
	case []any:
		return value, nil
	}
	return nil, errUnreadable
}

// groupOf returns the API group of an apiVersion; "" for the core group.
func groupOf(apiVersion string) string {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return ""
	}
	return group
}

// The endings of names of kinds that have other plurals than -s, as RE2 and in CEL.
const endsInSibilant, endsInY = "(s|x|z|ch|sh)$", "[^aeiou]y$"

var sibilant, consonantY = regexp.MustCompile(endsInSibilant), regexp.MustCompile(endsInY)

// plural returns the resource of a kind. A reference names only the kind, so that this is a guess, by the rule that
// almost all definitions follow. For a resource with another name, authors need the permission on the guessed one.
func plural(kind string) string {
	switch name := strings.ToLower(kind); {
	case sibilant.MatchString(name):
		return name + "es"
	case consonantY.MatchString(name):
		return strings.TrimSuffix(name, "y") + "ies"
	default:
		return name + "s"
	}
}

// Denied is the message for an edit by a user who may not change what it refers to.
func Denied(user, kind, namespace, name string, r Reference) string {
	return fmt.Sprintf("user %s may not %s %s %s in namespace %s, to which %s %s refers and which its releases would "+
		"change: ask an administrator for that permission, or let a user who has it make this edit", user, VerbPatch,
		r.Kind(), r.Name, namespace, kind, name)
}
