// Package definition completes the CustomResourceDefinition of Rollouts with validation rules in CEL, so that the API
// server rejects a wrong Rollout even if no Slipway server runs. It rejects only what Kruise Rollouts rejects: files
// that work there keep working. What one object alone cannot show is checked by the policies of
// release/kruise/admission.
package definition

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/workload"
)

//go:generate controller-gen object paths=../v1beta1 paths=../v1alpha1
//go:generate controller-gen crd paths=../v1beta1 paths=../v1alpha1 output:crd:dir=../../../deploy/crds
//go:generate go run ../../generate definition ../../../deploy/crds/rollouts.kruise.io_rollouts.yaml

// LabelManagedBy and LabelPartOf have the value ManagedBySlipway on definitions of other API groups that Slipway
// installed. Helm overwrites the first one, so the second one is enough. A definition with neither belongs to another
// product.
const (
	LabelManagedBy   = "app.kubernetes.io/managed-by"
	LabelPartOf      = "app.kubernetes.io/part-of"
	ManagedBySlipway = "slipway"
)

// IsOurs reports whether Slipway installed the definition with these labels.
func IsOurs(labels map[string]string) bool {
	return labels[LabelManagedBy] == ManagedBySlipway || labels[LabelPartOf] == ManagedBySlipway
}

// Name is the name of the definition.
var Name = v1beta1.Resource.Resource + "." + v1beta1.GroupVersion.Group

// rule is one rule of a schema. field is the path of the wrong field, relative to the schema; "" for the schema itself.
type rule struct {
	expression, message, field string
}

// labels mark the definition as Slipway's: a definition of the same name that another product installed is left
// unchanged.
var labels = map[string]any{LabelManagedBy: ManagedBySlipway, LabelPartOf: ManagedBySlipway}

// Complete adds the rules and labels to the definition that controller-gen has written.
func Complete(text []byte) ([]byte, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	metadata, versions := jsonpatch.DigObject(crd, "metadata"), jsonpatch.DigObjects(crd, "spec", "versions")
	if metadata == nil || len(versions) == 0 {
		return nil, fmt.Errorf("the definition has no metadata or no versions: generate it first")
	}
	metadata["labels"] = labels
	for _, version := range versions {
		if err := completeVersion(version); err != nil {
			return nil, fmt.Errorf("version %v: %w", version["name"], err)
		}
	}
	body, err := yaml.Marshal(crd)
	return append([]byte("---\n"), body...), err
}

func completeVersion(version map[string]any) error {
	rules, strategies := rulesBeta, []string{"canary", "blueGreen"}
	if version["name"] == v1alpha1.GroupVersion.Version {
		rules, strategies = rulesAlpha, []string{"canary"}
	}
	root := jsonpatch.DigObject(version, "schema", "openAPIV3Schema")
	for _, strategy := range strategies {
		duration, err := at(root, "spec.strategy."+strategy+".steps.[].pause.duration")
		if err != nil {
			return err
		}
		completeDuration(duration)
	}
	for path, all := range rules() {
		schema, err := at(root, path)
		if err != nil {
			return err
		}
		var validations []any
		for _, r := range all {
			validation := map[string]any{"rule": r.expression, "message": r.message}
			if r.field != "" {
				validation["fieldPath"] = "." + r.field
			}
			validations = append(validations, validation)
		}
		schema["x-kubernetes-validations"] = validations
	}
	return nil
}

// at returns the schema at a path from the root: names of fields, and [] for the items of a list.
func at(schema map[string]any, path string) (map[string]any, error) {
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' }) {
		next := jsonpatch.DigObject(schema, "properties", name)
		if name == "[]" {
			next = jsonpatch.DigObject(schema, "items")
		}
		if next == nil {
			return nil, fmt.Errorf("the schema has no %s of %s", name, path)
		}
		schema = next
	}
	return schema, nil
}

// completeDuration allows 32-bit integers and {}, which the API specification prints for an absent duration. A schema
// cannot name two types, and rules do not see a field without a type; but each of these limits applies to values of one
// type only.
func completeDuration(schema map[string]any) {
	schema["minimum"], schema["maximum"], schema["multipleOf"] = -1<<31, 1<<31-1, 1
	schema["maxProperties"] = 0
	schema["pattern"] = "must be a number of seconds, without quotes$^"
	schema["minItems"], schema["maxItems"] = 1, 0
	schema["not"] = map[string]any{"enum": []any{true, false}}
}

// percents returns a CEL map from the legal percentages, from least to 100%, to their numbers. A rule that parses the
// text would exceed the API server's cost limit, which assumes texts and numbers of the maximum request size.
func percents(least int) string {
	var entries []string
	for n := least; n <= 100; n++ {
		entries = append(entries, fmt.Sprintf("'%d%%': %d", n, n))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// neighbours returns an expression that is true if a condition holds for each pair of consecutive steps, {a} and {b}.
func neighbours(condition string) string {
	condition = strings.NewReplacer("{a}", "self.steps[i]", "{b}", "self.steps[i + 1]").Replace(condition)
	return "!has(self.steps) || " + cel.Pairs("self.steps", "("+condition+")")
}

// share returns an expression for the number in a step's percentage of replicas; -1 if it has none.
func share(step string) string {
	return fmt.Sprintf("(has(%[1]s.replicas) ? %[2]s[?%[1]s.replicas].orValue(-1) : -1)", step, percents(1))
}

// count returns an expression for a step's number of pods; -1 if it has none or a percentage.
func count(step string) string {
	return fmt.Sprintf("(has(%[1]s.replicas) && type(%[1]s.replicas) == int ? int(%[1]s.replicas) : -1)", step)
}

// shrinks returns an expression that is true if both values are known and b is smaller than a.
func shrinks(a, b string) string {
	return fmt.Sprintf("%[1]s >= 0 && %[2]s >= 0 && %[2]s < %[1]s", a, b)
}

// ruleKind returns the rule that accepts the kinds whose pods can be released, in both versions. It accepts a
// ReplicaSet too: the engine's refusal says that its Deployment is what to name.
func ruleKind() rule {
	var accepted, texts []string
	for _, kinds := range workload.Grouped(func(k workload.Kind) string { return k.Resource.Group }) {
		group, names := kinds[0].Resource.Group, phrase.Each(kinds, workload.Kind.String)
		texts = append(texts, workload.Join(names, " or ")+" of "+group)
		list := strings.Replace(strings.Join(names, "', '"), "Deployment", "Deployment', 'ReplicaSet", 1)
		accepted = append(accepted, "self.apiVersion.startsWith('"+group+"/') && self.kind in ['"+list+"']")
	}
	return rule{strings.Join(accepted, " ||\n"), "this kind of workload can't be released: name a " +
		strings.Join(texts, ", or a "), "kind"}
}

// ruleBlueGreen returns the rule that a blue-green release is of a kind that supports it.
func ruleBlueGreen() rule {
	kinds := workload.Supporting(workload.StyleBlueGreen)
	accepted := phrase.Each(kinds, func(k workload.Kind) string {
		return fmt.Sprintf("self.workloadRef.apiVersion.startsWith('%s/') && self.workloadRef.kind == '%s'",
			k.Resource.Group, k.Kind)
	})
	return rule{"!has(self.strategy.blueGreen) || " + strings.Join(accepted, " ||\n"),
		"only a " + workload.Join(phrase.Each(kinds, workload.Kind.String), " or a ") +
			" can be released blue-green: use canary for this kind", "workloadRef"}
}

var (
	ruleSteps = rule{"has(self.steps) && size(self.steps) > 0", "there are no steps: give at least one", ""}
	// ruleReplicas ignores steps without replicas: the versions differ there.
	ruleReplicas = rule{"!has(self.replicas) || (type(self.replicas) == int ? self.replicas > 0 : self.replicas in " +
		percents(1) + ")",
		`replicas must be a number above 0, or a percentage from "1%" to "100%", with the sign`, "replicas"}
)

// rulesRouting are the rules of one entry of trafficRoutings. Kruise Rollouts accepts only one entry; Slipway applies
// all of them.
var rulesRouting = []rule{
	{"!has(self.gracePeriodSeconds) || self.gracePeriodSeconds >= 0",
		"gracePeriodSeconds must not be negative: give the seconds that changed routes are left to take " +
			"effect", "gracePeriodSeconds"},
	{"self.service != ''", "service is empty: give the name of the workload's Service", "service"},
	{"has(self.gateway) || has(self.ingress) || has(self.customNetworkRefs)",
		"the entry doesn't say what routes to the Service: give ingress, gateway or customNetworkRefs", ""},
	{"!has(self.ingress) || self.ingress.name != ''",
		"the name of the Ingress is empty: give the one that routes to the Service", "ingress"},
	{"!has(self.gateway) || has(self.gateway.httpRouteName) && self.gateway.httpRouteName != ''",
		"httpRouteName is missing: give the name of the HTTPRoute that routes to the Service", "gateway"},
}

// inRelease is true if the stored Rollout has a release in progress or is being deleted.
const inRelease = "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in ['Progressing', " +
	"'Terminating'] && (!has(oldSelf.status.slipway) || has(oldSelf.status.slipway.open) && " +
	"oldSelf.status.slipway.open)"

// fixed returns a rule for a field that must not change during a release: unchanged is an expression of self and
// oldSelf.
func fixed(unchanged, what, field string) rule {
	return rule{"!(" + inRelease + ") || (" + unchanged + ")",
		what + " can't change while a release is under way: wait for its end, roll it back, or set disabled to true " +
			"first", field}
}

// sameRoutings returns an expression that is true if the trafficRoutings of one strategy are unchanged.
func sameRoutings(strategy string) string {
	routings := func(object string) string {
		path := object + ".spec.strategy." + strategy
		return fmt.Sprintf("(has(%[1]s) && has(%[1]s.trafficRoutings) ? %[1]s.trafficRoutings : [])", path)
	}
	return routings("self") + " == " + routings("oldSelf")
}

// rulesAlpha returns the rules of v1alpha1 by the path of their schema. The style is an annotation there, which these
// rules cannot see: a policy checks what depends on it.
func rulesAlpha() map[string][]rule {
	// A step without replicas takes weight percent of the pods.
	part := func(step string) string {
		return fmt.Sprintf("(has(%[1]s.replicas) ? %[2]s : has(%[1]s.weight) ? %[1]s.weight : -1)", step, share(step))
	}
	weight := func(step string) string { return fmt.Sprintf("(has(%[1]s.weight) ? %[1]s.weight : -1)", step) }
	return map[string][]rule{
		"": {
			fixed("has(self.spec.objectRef) == has(oldSelf.spec.objectRef) && "+
				"(!has(self.spec.objectRef) || self.spec.objectRef == oldSelf.spec.objectRef)", "objectRef",
				"spec.objectRef"),
			fixed("!has(self.spec.strategy) || !has(oldSelf.spec.strategy) || "+sameRoutings("canary"),
				"trafficRoutings", "spec.strategy"),
		},
		"spec": {
			{"has(self.objectRef) && has(self.objectRef.workloadRef)",
				"objectRef.workloadRef is missing: name the workload that is released", ""},
			{"has(self.strategy) && has(self.strategy.canary)",
				"there is no strategy: give strategy.canary (v1alpha1 has no other; blue-green needs v1beta1)", ""},
		},
		"spec.objectRef.workloadRef": {ruleKind()},
		"spec.strategy.canary": {ruleSteps,
			{neighbours(fmt.Sprintf("!(%s) && !(%s)", shrinks(part("{a}"), part("{b}")),
				shrinks(count("{a}"), count("{b}")))),
				"replicas (or weight, where they are absent) must not shrink from one step to the next: put the " +
					"steps in order", "steps"},
			{"!has(self.trafficRoutings) || size(self.trafficRoutings) == 0 || " +
				neighbours("!("+shrinks(weight("{a}"), weight("{b}"))+")"),
				"weight must not shrink from one step to the next where trafficRoutings are given: put the steps in " +
					"order", "steps"}},
		"spec.strategy.canary.steps.[]": {
			{"has(self.weight) || has(self.replicas)", "the step has neither weight nor replicas: give one of them",
				""},
			ruleReplicas,
			{"has(self.replicas) || !has(self.weight) || self.weight >= 1 && self.weight <= 100",
				"weight must be a number from 1 to 100 where replicas are absent", "weight"},
		},
		"spec.strategy.canary.trafficRoutings.[]": rulesRouting,
	}
}

// rulesBeta returns the rules of v1beta1 by the path of their schema.
func rulesBeta() map[string][]rule {
	step := func(least int) []rule {
		return []rule{
			{"has(self.replicas)",
				`replicas is missing: say how many pods the step takes, as a number or a percentage such as "20%"`, ""},
			ruleReplicas,
			{"!has(self.traffic) || self.traffic in " + percents(least),
				fmt.Sprintf(`traffic must be a percentage from "%d%%" to "100%%", with the sign`, least), "traffic"},
		}
	}
	growing := rule{neighbours(fmt.Sprintf("!(%s) && !(%s)", shrinks(share("{a}"), share("{b}")),
		shrinks(count("{a}"), count("{b}")))),
		"replicas must not shrink from one step to the next: put the steps in order", "steps"}
	return map[string][]rule{
		"": {
			fixed("self.spec.workloadRef == oldSelf.spec.workloadRef", "workloadRef", "spec.workloadRef"),
			fixed(sameStyle, "the style (canary, blueGreen, enableExtraWorkloadForCanary)", "spec.strategy"),
			fixed(sameRoutings("canary")+" && "+sameRoutings("blueGreen"), "trafficRoutings", "spec.strategy"),
			fixed(stepCount("self")+" == "+stepCount("oldSelf"), "the number of steps", "spec.strategy"),
		},
		"spec":             {ruleBlueGreen()},
		"spec.workloadRef": {ruleKind()},
		"spec.strategy": {
			{"has(self.canary) || has(self.blueGreen)", "there is no strategy: give canary or blueGreen", ""},
			{"!has(self.canary) || !has(self.blueGreen)", "there are two strategies: keep one of canary and blueGreen",
				""},
		},
		"spec.strategy.canary":                       {ruleSteps, growing, partitionLimit},
		"spec.strategy.canary.steps.[]":              step(1),
		"spec.strategy.canary.trafficRoutings.[]":    rulesRouting,
		"spec.strategy.blueGreen":                    {ruleSteps, growing},
		"spec.strategy.blueGreen.steps.[]":           step(0),
		"spec.strategy.blueGreen.trafficRoutings.[]": rulesRouting,
	}
}

// partitionLimit limits steps with traffic of an in-place release to 50% of the pods. When such a release is rolled
// back, all traffic goes to the old pods at once, and there must be enough of them.
var partitionLimit = rule{"has(self.enableExtraWorkloadForCanary) && self.enableExtraWorkloadForCanary || " +
	"!has(self.steps) || self.steps.all(s, !has(s.traffic) && (!has(s.matches) || size(s.matches) == 0) || " +
	share("s") + " <= 50)", "a step with traffic or matches takes at most 50% of the pods, unless " +
	"enableExtraWorkloadForCanary is true: lower its replicas, or leave traffic and matches out of it", "steps"}

const sameStyle = `has(self.spec.strategy.canary) == has(oldSelf.spec.strategy.canary) &&
has(self.spec.strategy.blueGreen) == has(oldSelf.spec.strategy.blueGreen) &&
(has(self.spec.strategy.canary) && has(self.spec.strategy.canary.enableExtraWorkloadForCanary) &&
self.spec.strategy.canary.enableExtraWorkloadForCanary) ==
(has(oldSelf.spec.strategy.canary) && has(oldSelf.spec.strategy.canary.enableExtraWorkloadForCanary) &&
oldSelf.spec.strategy.canary.enableExtraWorkloadForCanary)`

// stepCount returns an expression for the number of an object's steps.
func stepCount(object string) string {
	count := func(strategy string) string {
		path := object + ".spec.strategy." + strategy
		return fmt.Sprintf("(has(%[1]s) && has(%[1]s.steps) ? size(%[1]s.steps) : 0)", path)
	}
	return count("canary") + " + " + count("blueGreen")
}
