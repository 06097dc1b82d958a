package serving

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/store/recent"
)

// admit refuses, before anything is written, what the party does not take, and what is not the operation's to write.
func (w *writer) admit(ctx context.Context, o serving.Objects) error {
	is, err := w.standing(ctx)
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

// invited refuses a serving that the namespace does not invite. is is the Deployment as it stands.
func (w *writer) invited(ctx context.Context, is *appsv1.Deployment) error {
	if w.a.options.AnyNamespace || !admission.NeedsInvitation(is, w.req) {
		return nil
	}
	namespace, err := recent.Get(ctx, &w.a.namespaces, w.req.Domain, min(invitationLasts, sinceAsked(ctx)), func(ctx context.Context) (*corev1.Namespace, error) {
		call, cancel := w.a.call(ctx)
		defer cancel()
		return w.a.client.CoreV1().Namespaces().Get(call, w.req.Domain, metav1.GetOptions{})
	})
	if err != nil {
		return err
	}
	return admission.CheckInvitation(namespace)
}

// invitationLasts is how long is relied on what a namespace invites: hundreds of its servings may be created in a second. What was read before an operation was
// asked for counts for nothing: somebody may have given the invitation, or taken it back, just before.
const invitationLasts = time.Second

// sinceAsked is how long ago the activity was asked for.
func sinceAsked(ctx context.Context) time.Duration {
	if !activity.IsActivity(ctx) {
		return 0
	}
	return time.Since(activity.GetInfo(ctx).ScheduledTime)
}
