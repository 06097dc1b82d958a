package strategy

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// kind is a kind of workload that can be rolled out, and in which styles.
type kind struct {
	apiVersions []string
	kind        string
	styles      []Style
}

var kinds = []kind{
	{[]string{"apps/v1"}, catalog.Deployment, []Style{StylePartition, StyleCanary, StyleBlueGreen}},
	{[]string{"apps/v1"}, catalog.StatefulSet, []Style{StylePartition}},
	{[]string{"apps/v1"}, catalog.DaemonSet, []Style{StylePartition}},
	{[]string{"apps.kruise.io/v1alpha1"}, "CloneSet", []Style{StylePartition, StyleBlueGreen}},
	{[]string{"apps.kruise.io/v1beta1", "apps.kruise.io/v1alpha1"}, catalog.StatefulSet, []Style{StylePartition}},
	{[]string{"apps.kruise.io/v1alpha1"}, catalog.DaemonSet, []Style{StylePartition}},
}

const kindNames = "Deployment, StatefulSet and DaemonSet of apps/v1, CloneSet and DaemonSet of apps.kruise.io/v1alpha1, StatefulSet of " +
	"apps.kruise.io/v1beta1 and v1alpha1"

func kindOf(ref catalog.WorkloadRef) (kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.kind == ref.Kind && slices.Contains(k.apiVersions, ref.APIVersion) })
	if i < 0 {
		return kind{}, false
	}
	return kinds[i], true
}

// isDeployment says whether the workload is a Deployment, which v1alpha1 gives another default style.
func isDeployment(ref catalog.WorkloadRef) bool {
	return ref.APIVersion == "apps/v1" && ref.Kind == catalog.Deployment
}

func (r *Reader) workloadRef(v strictyaml.Value) catalog.WorkloadRef {
	if !v.Present() {
		r.Refuse(v.Path(), "is required: name the workload by apiVersion, kind and name")
		return catalog.WorkloadRef{}
	}
	m := v.Mapping("apiVersion", "kind", "name")
	ref := catalog.WorkloadRef{APIVersion: r.required(m, "apiVersion", ": "+kindNames+" can be rolled out"),
		Kind: r.required(m, "kind", ": "+kindNames+" can be rolled out"), Name: r.name(m, "name", validation.IsDNS1123Subdomain)}
	if _, known := kindOf(ref); !known && ref.APIVersion != "" && ref.Kind != "" {
		r.refuseKind(strictyaml.Join(v.Path(), "kind"), ref)
	}
	return ref
}

func (r *Reader) refuseKind(field string, ref catalog.WorkloadRef) {
	if ref.Kind == "ReplicaSet" {
		r.Refuse(field, "a ReplicaSet does not replace its pods when its template changes: name the Deployment that owns it, or make one")
		return
	}
	var versions, names []string
	for _, k := range kinds {
		names = append(names, k.kind)
		if k.kind == ref.Kind {
			versions = append(versions, k.apiVersions...)
		}
	}
	if len(versions) > 0 {
		r.Refuse(field, "%s of %s cannot be rolled out: write apiVersion: %s", ref.Kind, strictyaml.Quote(ref.APIVersion),
			strings.Join(versions, " or "))
		return
	}
	r.Refuse(field, "%s of %s cannot be rolled out: %s can%s", strictyaml.Quote(ref.Kind), strictyaml.Quote(ref.APIVersion), kindNames,
		strictyaml.DidYouMean(ref.Kind, names))
}

// checkStyle refuses a style that the kind of workload does not have.
func (r *Reader) checkStyle(d *draft, ref catalog.WorkloadRef) {
	k, known := kindOf(ref)
	if !known || d.body == "" {
		return
	}
	switch supported := slices.Contains(k.styles, d.Style); {
	case supported && d.Style == StyleCanary && len(ref.Name) > validation.DNS1123SubdomainMaxLength-len(CanarySuffix):
		r.Refuse(d.body, "cannot make the extra workload of %s: with %q its name would be too long", ref.Name, CanarySuffix)
	case supported:
	case d.Style == StyleCanary:
		r.Refuse(cmp.Or(d.extraField, d.body),
			"the extra workload exists for Deployments only, not for a %s: leave it out, and the pods are replaced in place, step by step", ref.Kind)
	default:
		r.Refuse(d.body,
			"blue-green exists for Deployments and CloneSets only, not for a %s: use canary, and the pods are replaced in place, step by step",
			ref.Kind)
	}
}
