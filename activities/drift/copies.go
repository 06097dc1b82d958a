package drift

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/fieldmanager"
)

// Temporal is what the detectors need of it, as client.Client does it.
type Temporal interface {
	Signaller
	execution.Describer
}

// Brought reports whether a client other than the engine wrote the annotation with a claim. While a release runs, the
// engine did; so only then execution.HasGivenBack is worth a request.
func Brought(o metav1.Object, annotation string) bool {
	return fieldmanager.WrittenByOther(o, annotation)
}
