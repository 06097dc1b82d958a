package rollout

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/v1alpha1"
)

// eventUnchecked is the reason of events about objects whose authors were not checked, eventNotHeld of those about
// changes of a pod template that moved pods without a release.
const eventUnchecked, eventNotHeld = "AuthorsNotChecked", "ChangeNotHeld"

// warnings records on objects, as events, what their users should know. One that cannot be written, or exceeds the rate
// limit, is lost.
type warnings struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	sink        typedcorev1.EventsGetter
}

func newWarnings(options Options) *warnings {
	broadcaster := record.NewBroadcaster()
	return &warnings{broadcaster, broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "slipway"}),
		options.Events}
}

// run writes the events until the context ends.
func (w *warnings) run(ctx context.Context) {
	if w.sink != nil {
		defer w.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: w.sink.Events("")}).Stop()
	}
	<-ctx.Done()
	w.broadcaster.Shutdown()
}

// unchecked records why nothing proves that the authors of an object were allowed to write it; "" records nothing.
func (w *warnings) unchecked(object *corev1.ObjectReference, why string) {
	if why != "" {
		w.recorder.Event(object, corev1.EventTypeWarning, eventUnchecked, why)
	}
}

// notHeld records a change of a pod template that moved pods without a release.
func (w *warnings) notHeld(object *corev1.ObjectReference, text string) {
	w.recorder.Event(object, corev1.EventTypeWarning, eventNotHeld, text)
}

func referenceTo(r *v1beta1.Rollout) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.Kind,
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion}
}

func referenceToTraffic(t *v1alpha1.TrafficRouting) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.TrafficRoutingResource.GroupVersion().String(),
		Kind: v1alpha1.TrafficRoutingKind, Namespace: t.Namespace, Name: t.Name, UID: t.UID,
		ResourceVersion: t.ResourceVersion}
}

// unchecked returns why nothing proves that the authors of an object may change what it refers to; "" if it is proved,
// or refers to nothing.
func (c *Controller) unchecked(ctx context.Context, r *v1beta1.Rollout) (string, error) {
	o, refers := kruise.AuthoredBy(r)
	return uncheckedBy(ctx, c.options, o, refers)
}

func uncheckedBy(ctx context.Context, options Options, o author.Object, refers bool) (string, error) {
	if !refers || options.Unchecked == nil {
		return "", nil
	}
	return options.Unchecked(ctx, o)
}
