// Package podpolicy decides which pod templates a party accepts, whichever release writes them. The party's own worker
// applies it before it writes, because a party does not rely on the checks of the centre.
package podpolicy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
)

// Policy is what a party allows in pod templates. The zero value allows everything.
type Policy struct {
	Preset Preset
	Lists
	// NoTemplatePatch refuses rollouts that change a pod template by a templatePatch.
	NoTemplatePatch bool
	// Digest identifies the document that the policy comes from; "" for one without a document.
	Digest string
}

// Preset selects the checks of a level of the Pod Security Standards.
type Preset string

// The presets. Open, like "", has no checks.
const (
	Open       Preset = "open"
	Baseline   Preset = "baseline"
	Restricted Preset = "restricted"
)

// digestShown is how many characters of a policy's digest are shown.
const digestShown = 12

// String describes the policy in a few words, as workers report it: "baseline", "restricted sha256:0123456789ab".
func (p Policy) String() string {
	text := string(p.preset())
	if p.Digest != "" {
		text += " sha256:" + p.Digest[:digestShown]
	}
	return text
}

func (p Policy) preset() Preset {
	if p.Preset == "" {
		return Open
	}
	return p.Preset
}

// AllowsAll reports whether the policy allows every pod template.
func (p Policy) AllowsAll() bool { return p.preset() == Open && p.open() }

// Violation is a rule that a pod template violates.
type Violation struct {
	// Rule is the rule's name, Text what violates it.
	Rule, Text string
	// identity is equal for the same violation of a live template: the place, and what the violating fields contain.
	identity string
}

// String returns the violation as a clause of a message.
func (v Violation) String() string { return v.Text + " (rule " + v.Rule + ")" }

// violation returns a violation whose text names the place. fields are the violating fields, nil if the text contains
// them.
func violation(rule string, fields any, format string, args ...any) Violation {
	text := fmt.Sprintf(format, args...)
	return Violation{Rule: rule, Text: phrase.Cut(text, maxText), identity: text + form(fields)}
}

// key is equal for the same violation of two templates.
func (v Violation) key() [2]string { return [2]string{v.Rule, v.identity} }

// Template is a pod template that is about to be written.
type Template struct {
	// Object names the object with the template in messages, such as "Deployment shop/web".
	Object string
	// New is the complete template.
	New *corev1.PodTemplateSpec
	// Live is the template that the release began from. What it violates in the same form, in the same field of the
	// same container, does not count: the release does not add it. nil: there is none.
	Live *corev1.PodTemplateSpec
	// Earlier is true if New is a template that the object had before, which a user returns to.
	Earlier bool
	// FetchImage is the image of the init container that fetches packages (source.IsFetchContainer); "": there is none.
	FetchImage string
	// Remedy is what the user can change, as a clause; "": the release.
	Remedy string
}

// Parse reads a pod template from an object's JSON. Like the API server, and unlike encoding/json, it distinguishes
// upper and lower case in keys: otherwise a second key could hide a field from the policy.
func Parse(template map[string]any) (*corev1.PodTemplateSpec, error) {
	if template == nil {
		return nil, nil
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(template); err != nil {
		return nil, err
	}
	var parsed corev1.PodTemplateSpec
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text.Bytes(), &parsed); err != nil {
		return nil, err
	}
	return &parsed, nil
}

// Check refuses a pod template with violations, and names them.
func (p Policy) Check(t Template) error {
	broken := p.Violations(t)
	if len(broken) == 0 {
		return nil
	}
	remedy := t.Remedy
	switch {
	case t.Earlier:
		remedy = "This is an earlier version: to return to it, ask the party to allow that in " +
			"--release-policy-file of its worker, or release a version that complies"
	case remedy == "":
		remedy = "Change the release, or ask the party to allow that in --release-policy-file of its worker"
	default:
		remedy += ", or ask the party to allow that in --release-policy-file of its worker"
	}
	return failure.New(failure.Refused, "the party's policy (%s) refuses the pods of %s: %s. %s", p, t.Object,
		clauses(broken), remedy)
}

// maxShown is how many violations a message lists, maxText how long the text of one is.
const (
	maxShown = 20
	maxText  = 300
)

func clauses(broken []Violation) string {
	var texts []string
	for _, v := range broken[:min(len(broken), maxShown)] {
		texts = append(texts, v.String())
	}
	if more := len(broken) - maxShown; more > 0 {
		texts = append(texts, "and "+phrase.Count(more, "further violation"))
	}
	return strings.Join(texts, "; ")
}

// Violations returns what violates the policy in a new template and not already in the live one.
func (p Policy) Violations(t Template) []Violation {
	if p.AllowsAll() || t.New == nil {
		return nil
	}
	broken := p.all(t.New, t.FetchImage)
	if t.Live == nil || len(broken) == 0 {
		return broken
	}
	known := map[[2]string]bool{}
	for _, v := range p.all(t.Live, t.FetchImage) {
		known[v.key()] = true
	}
	return slices.DeleteFunc(broken, func(v Violation) bool { return known[v.key()] })
}

// all returns the violations of one template, each once.
func (p Policy) all(template *corev1.PodTemplateSpec, fetchImage string) []Violation {
	judged, credentials := withoutOwn(template, fetchImage)
	found := slices.Concat(p.presetViolations(judged), p.listViolations(judged), p.secretsOfVolumes(credentials))
	seen := map[[2]string]bool{}
	return slices.DeleteFunc(found, func(v Violation) bool {
		again := seen[v.key()]
		seen[v.key()] = true
		return again
	})
}

// CheckTemplatePatch refuses a rollout by a templatePatch if the policy does.
func (p Policy) CheckTemplatePatch(object string) error {
	if !p.NoTemplatePatch {
		return nil
	}
	return failure.New(failure.Refused, "the party's policy (%s) refuses to change %s by a templatePatch (rule %s): "+
		"change images instead, or ask the party to allow that in --release-policy-file of its worker", p, object,
		ruleTemplatePatch)
}

// containersOf returns all containers of a pod: init containers first.
func containersOf(pod *corev1.PodSpec) []corev1.Container {
	all := slices.Concat(pod.InitContainers, pod.Containers)
	for _, c := range pod.EphemeralContainers {
		all = append(all, corev1.Container(c.EphemeralContainerCommon))
	}
	return all
}

// form returns fields as JSON, to compare them; "" for none.
func form(fields any) string {
	text, err := json.Marshal(fields)
	if err != nil || string(text) == "null" {
		return ""
	}
	return string(text)
}
