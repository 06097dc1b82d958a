package app

import (
	"slices"
	"strings"

	"slipway.io/slipway/release/catalog"
)

// releasable is a kind of workload that can be released, with the words by which people call it.
type releasable struct {
	apiVersion, kind string
	words            []string
}

// releasables are the kinds of workload that can be released (docs/rollouts.md).
var releasables = []releasable{
	{"apps/v1", "Deployment", []string{"deployment", "deployments", "deploy"}},
	{"apps/v1", "StatefulSet", []string{"statefulset", "statefulsets", "sts"}},
	{"apps/v1", "DaemonSet", []string{"daemonset", "daemonsets", "ds"}},
	{"apps.kruise.io/v1alpha1", "CloneSet", []string{"cloneset", "clonesets", "clone"}},
	{"apps.kruise.io/v1beta1", "StatefulSet", []string{"advancedstatefulset", "asts"}},
	{"apps.kruise.io/v1alpha1", "DaemonSet", []string{"advanceddaemonset", "ads"}},
}

// ParseWorkload reads KIND/NAME as kubectl does: deployment/web, sts/db, statefulset.apps.kruise.io/db.
func ParseWorkload(text string) (catalog.WorkloadRef, error) {
	word, name, both := strings.Cut(text, "/")
	if !both || word == "" || name == "" || strings.Contains(name, "/") {
		return catalog.WorkloadRef{}, Usagef("%q names no workload: write KIND/NAME, such as deployment/web", text)
	}
	return WorkloadOfKind(word, name)
}

// WorkloadOfKind is the workload of that name and of the kind that people call by a word: deployment, sts, statefulset.apps.kruise.io.
func WorkloadOfKind(kind, name string) (catalog.WorkloadRef, error) {
	word, group, grouped := strings.Cut(strings.ToLower(kind), ".")
	for _, r := range releasables {
		own, _, _ := strings.Cut(r.apiVersion, "/")
		bare := strings.ToLower(r.kind)
		if grouped && group == own && (word == bare || word == bare+"s") || !grouped && slices.Contains(r.words, word) {
			return catalog.WorkloadRef{APIVersion: r.apiVersion, Kind: r.kind, Name: name}, nil
		}
	}
	var known []string
	for _, r := range releasables {
		known = append(known, r.words[0])
	}
	return catalog.WorkloadRef{}, Usagef("%q is no kind of workload that can be released: take %s", kind, strings.Join(known, ", "))
}
