package store

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/kruise/admission"
	"slipway.io/slipway/release/kruise/definition"
)

// EnsureRolloutPolicies applies the admission policies for Rollouts. They refer to Rollouts, so the definition has to
// exist. With another product's definition they are not needed, and on a cluster that does not serve such policies they
// are not possible.
func (s *Store) EnsureRolloutPolicies(ctx context.Context) error {
	call, cancel := bounded(ctx)
	defer cancel()
	crd, err := s.crds.CustomResourceDefinitions().Get(call, definition.Name, metav1.GetOptions{})
	if err != nil {
		return asFailure(err, "definition "+definition.Name)
	}
	if !definition.IsOurs(crd.Labels) {
		return nil
	}
	for _, policy := range admission.Policies() {
		_, err := s.untyped.Resource(kube.ResourceOf(policy)).Apply(call, policy.GetName(), policy,
			metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return asFailure(err, policy.GetKind()+" "+policy.GetName())
		}
	}
	return nil
}
