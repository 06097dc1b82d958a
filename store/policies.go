package store

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/kruise/admission"
	"slipway.io/slipway/release/kruise/definition"
)

// EnsureRolloutPolicies applies the admission policies for Rollouts. They refer to Rollouts, so that their definition has to be there; next
// to one that another product brought they aren't needed, and on a cluster that doesn't serve such policies they aren't possible.
func (s *Store) EnsureRolloutPolicies(ctx context.Context) error {
	call, cancel := bounded(ctx)
	defer cancel()
	crd, err := s.crds.CustomResourceDefinitions().Get(call, definition.Name, metav1.GetOptions{})
	if err != nil {
		return failed(err, "definition "+definition.Name)
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
			return failed(err, policy.GetKind()+" "+policy.GetName())
		}
	}
	return nil
}
