package plan

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// maxItems is how many items a plan has at most.
const maxItems = 1000

// In the order of the source document.
var (
	operations = []Operation{Start, Stop, Restart, HTTPUploadDeploy, CompileDeploy}
	methods    = []Method{Parallel, Sequential}
)

// Validate says all that is wrong with a plan that did not come through Decode, by the same rules. Nothing has a line.
func (d Document) Validate() ([]Warning, strictyaml.Errors) {
	found := &strictyaml.Findings{}
	warnings := d.check(found)
	return warnings, found.Sorted()
}

// check holds the document against every rule that needs no catalogue.
func (d Document) check(found *strictyaml.Findings) []Warning {
	switch {
	case len(d.Items) == 0:
		found.Refuse(0, keyItems, "is required: a plan has at least one item")
	case len(d.Items) > maxItems:
		found.Refuse(0, keyItems, "has %d items: a plan has at most %d, so split it", len(d.Items), maxItems)
	}
	var warnings []Warning
	for i, item := range d.Items {
		r := itemRules{item: item, index: i, found: found}
		r.check()
		warnings = append(warnings, r.warnings...)
	}
	d.refuseRepeated(found)
	return warnings
}

// itemRules holds one item against the rules of docs/plans.md.
type itemRules struct {
	item     Item
	index    int
	found    *strictyaml.Findings
	warnings []Warning
}

func (r *itemRules) check() {
	if r.present(keyServiceID, string(r.item.ServiceID), "name the service of the catalogue") {
		r.hold(keyServiceID, catalog.ValidID(string(r.item.ServiceID)))
	}
	if r.present(keyDeployment, string(r.item.Deployment), "write one of "+strings.Join(words(operations), ", ")) {
		if slices.Contains(operations, r.item.Deployment) {
			r.checkSource()
		} else {
			r.hold(keyDeployment, notOneOf(string(r.item.Deployment), words(operations)))
		}
	}
	if method := r.item.ContainerExecMethod; method != "" && !slices.Contains(methods, method) {
		r.hold(keyExecMethod, notOneOf(string(method), words(methods)))
	}
	r.checkLabels()
}

func (r *itemRules) checkLabels() {
	if r.item.DeployLabel == "" {
		return
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(r.item.DeployLabel, ",") {
		label := strings.TrimSpace(part)
		switch err := catalog.ValidLabel(label); {
		case label == "":
			r.refuse(keyDeployLabel, "has an empty part: separate the labels by single commas, and leave the key out to take all workloads")
			return
		case err != nil:
			r.refuse(keyDeployLabel, "%s", err)
		case seen[label]:
			r.warn(keyDeployLabel, "names the label "+label+" twice")
		}
		seen[label] = true
	}
}

// present refuses an item without the key. Its answer says whether there is a value to look at.
func (r *itemRules) present(key, value, remedy string) bool {
	if value == "" {
		r.refuse(key, "is required: %s", remedy)
	}
	return value != ""
}

func (r *itemRules) refuse(key, format string, args ...any) {
	r.found.Refuse(r.index+1, itemField(r.index, key), format, args...)
}

// hold refuses what a rule found wrong; nil is nothing.
func (r *itemRules) hold(key string, wrong error) {
	r.found.Check(r.index+1, itemField(r.index, key), wrong)
}

func (r *itemRules) warn(key, reason string) {
	field := itemField(r.index, key)
	r.warnings = append(r.warnings, Warning{Item: r.index + 1, Field: field, Line: r.found.Line(field), Reason: reason})
}

func words[T ~string](all []T) []string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = string(one)
	}
	return texts
}

func notOneOf(word string, legal []string) error {
	return fmt.Errorf("must be one of %s, not %s%s", strings.Join(legal, ", "), strictyaml.Quote(word), strictyaml.DidYouMean(word, legal))
}

// refuseRepeated refuses a service that is named twice in one wave: both would change it at the same time.
func (d Document) refuseRepeated(found *strictyaml.Findings) {
	type place struct {
		service  ServiceID
		priority int64
	}
	items := map[place][]int{}
	for i, item := range d.Items {
		unreadable := found.Unreadable(itemField(i, keyServiceID)) || found.Unreadable(itemField(i, keyPriority))
		if at := (place{item.ServiceID, item.Priority}); !unreadable && catalog.ValidID(string(item.ServiceID)) == nil {
			items[at] = append(items[at], i)
		}
	}
	for i, item := range d.Items {
		same := items[place{item.ServiceID, item.Priority}]
		if len(same) < 2 || same[1] != i {
			continue // said once, at the second of them
		}
		times, have := "twice", "both have"
		if len(same) > 2 {
			times, have = "more than twice", "all have"
		}
		found.Refuse(i+1, itemField(i, keyServiceID),
			"names service %s %s in one wave (items %s): %s the priority %d; give each one of its own, or keep one of them",
			item.ServiceID, times, numbers(same), have, item.Priority)
	}
}

func itemField(index int, key string) string {
	return strictyaml.Join(strictyaml.Index(keyItems, index), key)
}

// mostNumbers is how many items a sentence names before it breaks off.
const mostNumbers = 10

// numbers are the items' numbers, counted from 1: "1 and 3", "1, 2 and 5".
func numbers(indexes []int) string {
	shown := indexes[:min(len(indexes), mostNumbers)]
	texts := make([]string, len(shown))
	for i, index := range shown {
		texts[i] = fmt.Sprint(index + 1)
	}
	if rest := len(indexes) - len(shown); rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts, ", "), rest)
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}
