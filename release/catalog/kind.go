package catalog

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/strictyaml"
)

// APIVersion is the API version of all kinds that can be released so far.
const APIVersion = "apps/v1"

// The kinds of workload that can be released so far.
const (
	Deployment  = "Deployment"
	StatefulSet = "StatefulSet"
	DaemonSet   = "DaemonSet"
)

// Kinds are the kinds of workload that can be released so far, all of API version apps/v1.
func Kinds() []string { return []string{Deployment, StatefulSet, DaemonSet} }

// Supported says why workloads of this API version and kind cannot be released, nil when they can.
func (r WorkloadRef) Supported() error {
	switch {
	case r.APIVersion == APIVersion && slices.Contains(Kinds(), r.Kind):
		return nil
	case r.APIVersion == APIVersion:
		return fmt.Errorf("%s of %s cannot be released: %s can%s", strictyaml.Quote(r.Kind), APIVersion, kindList(), strictyaml.DidYouMean(r.Kind, Kinds()))
	case slices.Contains(Kinds(), r.Kind):
		return fmt.Errorf("%s of %s cannot be released: write apiVersion: %s", r.Kind, strictyaml.Quote(r.APIVersion), APIVersion)
	}
	return fmt.Errorf("%s of %s is not available yet: %s of %s are", strictyaml.Quote(r.Kind), strictyaml.Quote(r.APIVersion), kindList(), APIVersion)
}

// Sized says whether workloads of this kind have a size to be scaled to.
func (r WorkloadRef) Sized() bool { return r.Kind != DaemonSet }

func kindList() string {
	kinds := Kinds()
	return strings.Join(kinds[:len(kinds)-1], ", ") + " and " + kinds[len(kinds)-1]
}

// Identity is the same for two entries exactly when they are the same object: party, API group, kind, namespace and name.
func (w Workload) Identity() string {
	group, _, found := strings.Cut(w.WorkloadRef.APIVersion, "/")
	if !found {
		group = "" // the core group: its API version has no slash
	}
	return strings.Join([]string{w.PartyOrDefault(), group, w.WorkloadRef.Kind, w.Namespace, w.WorkloadRef.Name}, "/")
}
