package admission

import (
	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/kruise/conversion"
)

// style returns an expression for the style that an object of v1alpha1 names, in lower case; "" if it names none.
func style(object string) string {
	text := func(name string) string { return cel.Annotation(object, name) + ".orValue('').lowerAscii()" }
	named, alias := text(conversion.AnnotationStyle), text(conversion.AnnotationStyleAlias)
	return "(" + named + " != '' ? " + named + " : " + alias + ")"
}

var (
	changedAlpha = "request.operation == 'CREATE' || object.?spec != oldObject.?spec || " + style("object") + " != " +
		style("oldObject")

	styleVariables = []admission.Variable{
		{Name: "style", Expression: style("object")},
		{Name: "was", Expression: "oldObject == null ? '' : " + style("oldObject")},
		{Name: "workload", Expression: "object.?spec.?objectRef.?workloadRef.orValue({})"},
		// A blue-green is shown as a canary in this version, but stays a blue-green.
		{Name: "inPlace", Expression: "!(" + cel.Annotation("object", conversion.AnnotationBeta) +
			`.orValue('').contains('"blueGreen":')) && ` +
			"(variables.style == 'partition' || variables.workload.?kind.orValue('') != 'Deployment' || " +
			"!variables.workload.?apiVersion.orValue('').startsWith('apps/'))"},
		{Name: "steps", Expression: "object.?spec.?strategy.?canary.?steps.orValue([])"},
	}

	styleValidations = []admission.Validation{
		{Expression: "variables.style in ['', 'canary', 'partition']",
			MessageExpression: "'the annotation " + conversion.AnnotationStyle +
				" is ' + variables.style + ': it must be canary or partition'",
			Message: "the style must be canary or partition"},
		{Expression: "!variables.inPlace || variables.steps.all(s, has(s.replicas) ? !(has(s.weight) || " +
			"has(s.matches)) || type(s.replicas) != string || int(s.replicas.replace('%', '')) <= 50 : " +
			"s.?weight.orValue(0) <= 50)",
			Message: "a step in style partition with weight or matches takes at most 50% of the pods: lower its " +
				"replicas (or weight, where they are absent), or leave weight and matches out of it"},
		{Expression: "request.operation == 'CREATE' || !(oldObject.?status.?phase.orValue('') in ['Progressing', " +
			"'Terminating']) || variables.style == variables.was",
			Message: "the annotation " + conversion.AnnotationStyle +
				" can't change while a release is under way: wait for its end, roll it back, or set disabled to true " +
				"first"},
	}
)
