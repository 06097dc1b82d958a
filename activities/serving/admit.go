package serving

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/serving/admission"
)

// ensureAdmitted checks admission, unless this very attempt has just done so.
func (w *writer) ensureAdmitted(ctx context.Context, o serving.Objects) error {
	if time.Since(w.readAt) < tokenMaxAge {
		return nil
	}
	return w.admit(ctx, o)
}

// admit refuses, before anything is written, what the party does not accept, and objects that the operation may not
// write.
func (w *writer) admit(ctx context.Context, o serving.Objects) error {
	is, err := w.readDeployment(ctx)
	if err != nil {
		return err
	}
	if err := w.invited(ctx, is); err != nil {
		return err
	}
	if err := w.a.options.Policy.Check(o.Deployment); err != nil || is == nil {
		return err
	}
	return w.mayWrite("Deployment", is)
}

// invited refuses a serving that the namespace does not invite. is is the current Deployment.
func (w *writer) invited(ctx context.Context, is *appsv1.Deployment) error {
	if w.a.options.AnyNamespace || !admission.NeedsInvitation(is, w.req) {
		return nil
	}
	namespace, err := recent.Get(ctx, &w.a.namespaces, w.req.Domain, attempt.CacheAge(ctx),
		func(ctx context.Context) (*corev1.Namespace, error) {
			call, cancel := w.a.call(ctx)
			defer cancel()
			return w.a.client.CoreV1().Namespaces().Get(call, w.req.Domain, metav1.GetOptions{})
		})
	if err != nil {
		return err
	}
	return admission.CheckInvitation(namespace)
}
