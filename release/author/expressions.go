package author

import (
	"fmt"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/cel"
)

// The expressions of this file are Asked and its questions in CEL.

// Changed is true if an edit may need a check: it creates an object, changes its routes, or requests a check.
var Changed = "request.operation == 'CREATE' || object.?spec.?strategy != oldObject.?spec.?strategy || " +
	"object.?spec.?objectRef != oldObject.?spec.?objectRef || " + requested

// requested is true if the edit requests a check of all references.
var requested = cel.Annotation("object", AnnotationChecked) + ".orValue('') != '' && " +
	cel.Annotation("object", AnnotationChecked) + " != " + cel.Annotation("oldObject", AnnotationChecked)

// MayNotRefer is true unless the user may refer to every object of the namespace.
var MayNotRefer = fmt.Sprintf("!authorizer.group(%s).resource(%s).namespace(request.namespace).check(%s).allowed()",
	cel.Text(GroupRefer), cel.Text(ResourceRefer), cel.Text(VerbRefer))

// Variables returns the variables of Validations: pairs of the routes and the references before and after the edit, and
// the references that are checked.
func Variables() []admission.Variable {
	var routings, flat []string
	for _, path := range lists {
		routings = append(routings, items("o.?"+strings.Join(path, ".?")))
	}
	for i := range maxRoutings {
		flat = append(flat, fmt.Sprintf("(size(l) > %[1]d ? l[%[1]d] : [])", i))
	}
	return []admission.Variable{
		{Name: "routings", Expression: "[oldObject, object].map(o, o == null ? [] : " +
			strings.Join(routings, " + ") + ")"},
		{Name: "referred", Expression: "variables.routings.map(l, l.map(r, " + referred + "))"},
		{Name: "references", Expression: "variables.referred.map(l, " + strings.Join(flat, " + ") + ")"},
		{Name: "all", Expression: "request.operation == 'CREATE' || " + requested},
		{Name: "asked",
			Expression: "variables.references[1].filter(r, variables.all || !(r in variables.references[0]))"},
	}
}

// items returns an expression for the elements of an optional list; an absent list and null have none.
func items(optional string) string {
	return "optional.ofNonZeroValue(" + optional + ".orValue(dyn(null))).orValue([])"
}

// referred is the list of what one entry of routes refers to.
var referred = fmt.Sprintf(`%s.map(c, {'group': c.apiVersion.contains('/') ? c.apiVersion.split('/')[0] : '', 'resource': `+
	`[c.kind.lowerAscii()].map(k, k.matches('%s') ? k + 'es' : k.matches('%s') ? k.substring(0, size(k) - 1) + 'ies' : k + 's')[0], `+
	`'name': string(c.name)})`, items("r.?customNetworkRefs"), endsInSibilant, endsInY) +
	named("ingress", "name", ingress) + named("gateway", "httpRouteName", httpRoute)

// named returns an expression for the reference of a field of its own, in a list that is empty without it.
func named(object, field string, of Reference) string {
	return fmt.Sprintf(" + (r.?%[1]s.?%[2]s.orValue('') == '' ? [] : "+
		"[{'group': %[3]s, 'resource': %[4]s, 'name': string(r.%[1]s.%[2]s)}])",
		object, field, cel.Text(of.Group), cel.Text(of.Resource))
}

// Validations returns the validations of an edit. Each asks for one permission: an API server limits how many one
// expression asks for.
func Validations() []admission.Validation {
	out := []admission.Validation{
		{Expression: fmt.Sprintf("size(variables.routings[1]) <= %d", maxRoutings),
			Reason: new(metav1.StatusReasonForbidden),
			MessageExpression: celFormat(tooManyRoutings, "string(size(variables.routings[1]))",
				cel.Text(fmt.Sprint(maxRoutings))), Message: "the object has too many entries of routes"},
		{Expression: fmt.Sprintf("size(variables.asked) <= %d", maxAsked),
			Reason:            new(metav1.StatusReasonForbidden),
			MessageExpression: celFormat(tooMany, "string(size(variables.asked))", cel.Text(fmt.Sprint(maxAsked))),
			Message:           "the edit adds too many references to objects"},
	}
	for i := range maxAsked {
		one := fmt.Sprintf("variables.asked[%d]", i)
		there := fmt.Sprintf("size(variables.asked) <= %d", i)
		out = append(out, admission.Validation{
			Expression: fmt.Sprintf("%[1]s || authorizer.group(%[2]s.group).resource(%[2]s.resource)"+
				".namespace(request.namespace).name(%[2]s.name).check('%[3]s').allowed()", there, one, VerbPatch),
			MessageExpression: there + " ? '' : " + denied(one), Reason: new(metav1.StatusReasonForbidden),
			Message: "the user may not change an object to which this one refers"})
	}
	return out
}

// denied returns Denied in CEL, for an element of variables.asked.
func denied(one string) string {
	text := cel.Text(Denied("\x00user\x00", "\x00kind\x00", "\x00namespace\x00", "\x00self\x00",
		Reference{Group: "\x00group\x00", Resource: "\x00resource\x00", Name: "\x00name\x00"}))
	for name, expression := range map[string]string{"user": "request.userInfo.username",
		"kind": "request.kind.kind", "namespace": "request.namespace",
		"self":     "object.metadata.?name.orValue('')",
		"resource": one + ".resource", "name": one + ".name"} {
		text = strings.ReplaceAll(text, "\x00"+name+"\x00", "' + string("+expression+") + '")
	}
	return strings.ReplaceAll(text, ".\x00group\x00",
		"' + ("+one+".group == '' ? '' : '.' + string("+one+".group)) + '")
}

// celFormat returns an expression for a text of fmt.Sprintf, with an expression for each of its verbs.
func celFormat(format string, expressions ...string) string {
	text := cel.Text(format)
	for _, e := range expressions {
		text = strings.Replace(text, "%d", "' + "+e+" + '", 1)
	}
	return text
}
