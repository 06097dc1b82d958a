package hold

import (
	"fmt"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/cel"
)

// The parts of a Rollout's status that matter to commands. Clients other than the engine may change only commands.
const (
	statusEngine = "slipway"
	statusBy     = "by"
	approved     = "StepReady"
)

// StatusPatch returns the expression that restores the engine's part of a Rollout's status and records who sends a
// command, regardless of what the edit sets there. Repeating a stored command does not change its sender.
func StatusPatch() string {
	was := cel.Field("oldObject", "/status/"+statusEngine)
	return fmt.Sprintf(`!object.?status.hasValue() ? [] :
!%[1]s.hasValue() ? (object.status.?%[2]s.hasValue() ? [JSONPatch{op: "remove", path: "/status/%[2]s"}] : []) :
[JSONPatch{op: "add", path: "/status/%[2]s", value: %[1]s.value()}] +
(variables.commanded ? [JSONPatch{op: "add", path: "/status/%[2]s/%[3]s", value: %[4]s}] : [])`, was, statusEngine, statusBy, user)
}

// StatusVariables returns the variables of StatusPatch and StatusRefusals: parts of the status before and after the
// edit, and what it changes.
func StatusVariables() []admission.Variable {
	part := func(name string) string { return "variables.statuses.map(s, " + cel.Members("s.?"+name) + ")" }
	return []admission.Variable{
		{Name: "statuses", Expression: "[oldObject, object].map(o, " + cel.Members("o.?status") + ")"},
		{Name: "engine", Expression: part(statusEngine)},
		{Name: "styles", Expression: "[" + part("canaryStatus") + ", " + part("blueGreenStatus") + "]"},
		{Name: "commanded", Expression: "variables.styles.exists(p, " + commands + ".exists(k, p[0][?k] != p[1][?k]))"},
		{Name: "edited", Expression: strings.Join([]string{
			changes("variables.statuses", "!(k in ['canaryStatus', 'blueGreenStatus', '"+statusEngine+"'])"),
			changes("variables.styles[0]", notCommands) + ".map(k, 'canaryStatus.' + string(k))",
			changes("variables.styles[1]", notCommands) + ".map(k, 'blueGreenStatus.' + string(k))",
			changes("variables.engine", "!(k == '"+statusBy+"' && variables.engine[1][?k] == optional.of("+user+"))") +
				".map(k, '" + statusEngine + ".' + string(k))",
		}, " + ")},
		{Name: "states", Expression: "variables.styles.filter(p, p[0].?currentStepState != p[1].?currentStepState)" +
			".map(p, string(p[1].?currentStepState.orValue('')))"},
	}
}

const (
	commands    = "['currentStepState', 'nextStepIndex']"
	notCommands = "!(k in " + commands + ")"
)

// changes returns an expression for the counted keys that differ between the two maps of a pair.
func changes(pair, counts string) string {
	return fmt.Sprintf("(%[1]s[0].filter(k, %[2]s && %[1]s[0][?k] != %[1]s[1][?k]) + "+
		"%[1]s[1].filter(k, %[2]s && !(k in %[1]s[0])))", pair, counts)
}

// StatusRefusals returns the validations for edits of a Rollout's status by other clients.
func StatusRefusals() []admission.Validation {
	return []admission.Validation{
		{Expression: "variables.edited.size() == 0",
			Message: "others than Slipway only send commands in the status of a Rollout",
			MessageExpression: "'only Slipway writes ' + variables.edited.join(', ') + ' in the status of Rollout ' " +
				"+ object.metadata.name + ': others change only currentStepState, to " + approved +
				", or nextStepIndex, in canaryStatus or blueGreenStatus'"},
		{Expression: "variables.states.all(s, s == '" + approved + "')",
			Message: "currentStepState can only be set to " + approved,
			MessageExpression: "'in the status of Rollout ' + object.metadata.name + ', currentStepState can not be " +
				"set to ' + variables.states.filter(s, s != '" + approved + "').join(', ') + ': set it to " + approved +
				" to approve the step, or change nextStepIndex to go to another one'"},
	}
}
