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

// knownName is a label or annotation that tools of Kruise Rollouts look for while a step rests.
type knownName struct {
	reason string
	on     *unstructured.Unstructured
	// key is a label's, or an annotation's.
	label bool
	key   string
	// want is its value, or is contained in it where that is JSON.
	want string
}

func (n knownName) value() string {
	if n.label {
		return n.on.GetLabels()[n.key]
	}
	return n.on.GetAnnotations()[n.key]
}

// at is an object of the namespace; nil when it isn't there.
func (d *declared) at(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	d.t.Helper()
	found, err := d.Dynamic(d.t).Resource(resource).Namespace(d.Apps).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(d.t, err)
	return found
}

// Resources of what a release makes beside a workload.
var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	ingresses   = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
)

// knownNames are those that a cell has at its first rest.
func (d *declared) knownNames(c cell) []knownName {
	d.t.Helper()
	r, o, name := d.asked(), d.object(), d.rollout.Name
	names := []knownName{
		{"who releases the workload", o, false, rollout.AnnotationInProgressing, fmt.Sprintf(`{"rolloutName":%q}`, name)},
		{"what served before", o, true, rollout.LabelStableRevision, common(r).StableRevision},
	}
	if c.kind == harness.Deployment {
		names = append(names, knownName{"how far its new pods are", o, false, rollout.AnnotationExtraStatus, `"updatedReadyReplicas":`})
	}
	switch c.style {
	case strategy.StyleBlueGreen:
		names = append(names, knownName{"the limits of before", o, false, rollout.AnnotationOriginalStrategy, `"maxUnavailable":`})
	case strategy.StyleCanary:
		extra := d.at(deployments, name+strategy.CanarySuffix)
		require.NotNil(d.t, extra, "the extra Deployment")
		names = append(names, knownName{"beside which workload it stands", extra, true, rollout.LabelCanaryDeployment, name})
	}
	if c.provider == harness.Istio {
		names = append(names, knownName{"what the routes were", d.at(harness.VirtualServices, name), false, rollout.AnnotationOriginalSpec, `{"spec":{`})
	}
	return names
}

// requireKnownNames wants what other tools look for at the first rest: on the Rollout, the workload and its pods, and on what was made beside it.
func (d *declared) requireKnownNames(c cell) {
	d.t.Helper()
	for _, n := range d.knownNames(c) {
		require.NotEmpty(d.t, n.value(), "%s %s has no %s: %s", n.on.GetKind(), n.on.GetName(), n.key, n.reason)
		require.Contains(d.t, n.value(), n.want, "%s: %s", n.key, n.reason)
	}
	r := d.asked()
	require.Equal(d.t, common(r).RolloutHash, r.Annotations[kruise.AnnotationHash], "what the object and its status say of the strategy")
	for resource, made := range map[schema.GroupVersionResource]bool{services: c.provider != harness.NoProvider, ingresses: c.provider == harness.Nginx} {
		require.Equal(d.t, made, d.at(resource, d.rollout.Name+strategy.CanarySuffix) != nil, "%s %s-canary", resource.Resource, d.rollout.Name)
	}
	if c == deploymentBy(strategy.StyleBlueGreen, c.provider) {
		surge, _, err := unstructured.NestedFieldNoCopy(d.object().Object, "spec", "strategy", "rollingUpdate", "maxSurge")
		require.NoError(d.t, err)
		require.Equal(d.t, d.rollout.Strategy.Steps[0].Replicas.String(), fmt.Sprint(surge), "maxSurge is as the step has it")
	}
	d.requireNumbered()
}

// requireNumbered wants the pods of the first step, and no others, to have its number.
func (d *declared) requireNumbered() {
	d.t.Helper()
	r, numbered := d.asked(), 0
	pods, err := d.Kube.CoreV1().Pods(d.Apps).List(context.Background(), metav1.ListOptions{LabelSelector: rollout.LabelRolloutID + "=" + common(r).ObservedRolloutID})
	require.NoError(d.t, err)
	for _, p := range pods.Items {
		require.Equal(d.t, "1", p.Labels[rollout.LabelBatchID], "the first step has brought it")
		numbered++
	}
	brought := int32(0)
	switch {
	case r.Status.CanaryStatus != nil:
		brought = r.Status.CanaryStatus.CanaryReplicas
	case r.Status.BlueGreenStatus != nil:
		brought = r.Status.BlueGreenStatus.UpdatedReplicas
	}
	require.Equal(d.t, int(brought), numbered, "every pod of the step is numbered, and no other")
}

// requireNamesGone wants nothing of these names on what stays, once the release is over.
func (d *declared) requireNamesGone(c cell) {
	d.t.Helper()
	stays := []*unstructured.Unstructured{d.object()}
	if c.provider == harness.Istio {
		stays = append(stays, d.at(harness.VirtualServices, d.rollout.Name))
	}
	for _, o := range stays {
		for _, keys := range []map[string]string{o.GetAnnotations(), o.GetLabels()} {
			for key := range keys {
				require.False(d.t, strings.HasPrefix(key, "rollouts.kruise.io/"), "%s %s still has %s", o.GetKind(), o.GetName(), key)
			}
		}
	}
}
