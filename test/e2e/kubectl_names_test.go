package e2e

import (
	"context"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// kruiseKey is a label or annotation that tools of Kruise Rollouts read while a step waits.
type kruiseKey struct {
	reason string
	on     *unstructured.Unstructured
	// label is true for a label, false for an annotation.
	label bool
	key   string
	// want must be contained in its value.
	want string
}

func (n kruiseKey) value() string {
	if n.label {
		return n.on.GetLabels()[n.key]
	}
	return n.on.GetAnnotations()[n.key]
}

// getObject returns an object of the namespace; nil if it does not exist.
func (d *declared) getObject(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	d.t.Helper()
	found, err := d.Dynamic(d.t).Resource(resource).Namespace(d.Apps).Get(context.Background(), name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(d.t, err)
	return found
}

// Resources of the objects that a release creates.
var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	ingresses   = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
)

// kruiseKeys returns the keys of a cell at its first waiting step.
func (d *declared) kruiseKeys(c cell) []kruiseKey {
	d.t.Helper()
	r, o, name := d.get(), d.object(), d.rollout.Name
	names := []kruiseKey{
		{"which Rollout releases the workload", o, false, rollout.AnnotationInProgressing,
			fmt.Sprintf(`{"rolloutName":%q}`, name)},
		{"the stable revision", o, true, rollout.LabelStableRevision, commonStatus(r).StableRevision},
	}
	if c.kind == harness.Deployment {
		names = append(names, kruiseKey{"the progress of its new pods", o, false, rollout.AnnotationExtraStatus,
			`"updatedReadyReplicas":`})
	}
	switch c.style {
	case strategy.StyleBlueGreen:
		names = append(names, kruiseKey{"the original limits", o, false, rollout.AnnotationOriginalStrategy,
			`"maxUnavailable":`})
	case strategy.StyleCanary:
		extra := d.getObject(deployments, name+strategy.CanarySuffix)
		require.NotNil(d.t, extra, "the extra Deployment")
		names = append(names, kruiseKey{"the workload that it belongs to", extra, true, rollout.LabelCanaryDeployment,
			name})
	}
	if c.provider == harness.Istio {
		names = append(names, kruiseKey{"the original routes", d.getObject(harness.VirtualServices, name), false,
			rollout.AnnotationOriginalSpec, `{"spec":{`})
	}
	return names
}

// requireKruiseKeys requires the labels and annotations that other tools read at the first waiting step, on the
// Rollout, the workload, its pods and the objects that the release created.
func (d *declared) requireKruiseKeys(c cell) {
	d.t.Helper()
	for _, n := range d.kruiseKeys(c) {
		require.NotEmpty(d.t, n.value(), "%s %s has no %s: %s", n.on.GetKind(), n.on.GetName(), n.key, n.reason)
		require.Contains(d.t, n.value(), n.want, "%s: %s", n.key, n.reason)
	}
	r := d.get()
	require.Equal(d.t, commonStatus(r).RolloutHash, r.Annotations[kruise.AnnotationHash],
		"the hash of the strategy is the same in the object and its status")
	for resource, made := range map[schema.GroupVersionResource]bool{services: c.provider != harness.NoProvider,
		ingresses: c.provider == harness.Nginx} {
		require.Equal(d.t, made, d.getObject(resource, d.rollout.Name+strategy.CanarySuffix) != nil, "%s %s-canary",
			resource.Resource, d.rollout.Name)
	}
	if c == deploymentCell(strategy.StyleBlueGreen, c.provider) {
		surge, _, err := unstructured.NestedFieldNoCopy(d.object().Object, "spec", "strategy", "rollingUpdate",
			"maxSurge")
		require.NoError(d.t, err)
		require.Equal(d.t, d.rollout.Strategy.Steps[0].Replicas.String(), fmt.Sprint(surge),
			"maxSurge is the step's replicas")
	}
	d.requireNumbered()
}

// requireNumbered requires that exactly the pods of the first step have its batch number.
func (d *declared) requireNumbered() {
	d.t.Helper()
	r, numbered := d.get(), 0
	pods, err := d.Kube.CoreV1().Pods(d.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: rollout.LabelRolloutID + "=" + commonStatus(r).ObservedRolloutID})
	require.NoError(d.t, err)
	for _, p := range pods.Items {
		require.Equal(d.t, "1", p.Labels[rollout.LabelBatchID], "the pod is of the first step")
		numbered++
	}
	created := int32(0)
	switch {
	case r.Status.CanaryStatus != nil:
		created = r.Status.CanaryStatus.CanaryReplicas
	case r.Status.BlueGreenStatus != nil:
		created = r.Status.BlueGreenStatus.UpdatedReplicas
	}
	require.Equal(d.t, int(created), numbered, "exactly the pods of the step are numbered")
}

// requireNoKruiseKeys requires that none of these keys remains on the objects after the release.
func (d *declared) requireNoKruiseKeys(c cell) {
	d.t.Helper()
	remaining := []*unstructured.Unstructured{d.object()}
	if c.provider == harness.Istio {
		remaining = append(remaining, d.getObject(harness.VirtualServices, d.rollout.Name))
	}
	for _, o := range remaining {
		for _, keys := range []map[string]string{o.GetAnnotations(), o.GetLabels()} {
			for key := range keys {
				require.False(d.t, strings.HasPrefix(key, "rollouts.kruise.io/"), "%s %s still has %s", o.GetKind(),
					o.GetName(), key)
			}
		}
	}
}
