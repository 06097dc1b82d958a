package kube

import (
	"cmp"
	"context"
	"fmt"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/definition"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// PolicyVersions are the versions of admissionregistration.k8s.io in which a cluster serves policies, the newest of
// each kind; "" if it serves none.
type PolicyVersions struct{ Mutating, Validating string }

// policyVersions are the versions that the guard supports, the preferred one first.
var policyVersions = []string{"v1", "v1beta1"}

// The resources of policies and of their bindings.
const (
	mutatingPolicies   = "mutatingadmissionpolicies"
	validatingPolicies = "validatingadmissionpolicies"
	mutatingBindings   = "mutatingadmissionpolicybindings"
	validatingBindings = "validatingadmissionpolicybindings"
)

// FindPolicyVersions returns what the cluster serves.
func FindPolicyVersions(d discovery.DiscoveryInterface) (PolicyVersions, error) {
	var found PolicyVersions
	for _, version := range policyVersions {
		list, err := d.ServerResourcesForGroupVersion(admission.GroupName + "/" + version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return found, err
		}
		for _, r := range list.APIResources {
			switch r.Name {
			case mutatingPolicies:
				found.Mutating = cmp.Or(found.Mutating, version)
			case validatingPolicies:
				found.Validating = cmp.Or(found.Validating, version)
			}
		}
	}
	return found, nil
}

// definitions is the resource of CustomResourceDefinitions.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// RolloutsDefinition reports whether a cluster has a definition of Rollouts, and whether that is Slipway's; otherwise
// another product manages Rollouts. If this process may not read definitions, a served one counts as Slipway's.
func (c Cluster) RolloutsDefinition(ctx context.Context) (exists, ours bool, err error) {
	found, err := c.Objects.Resource(definitions).Get(ctx, definition.Name, metav1.GetOptions{})
	unread := apierrors.IsForbidden(err)
	if unread {
		_, err = c.Client.Discovery().ServerResourcesForGroupVersion(v1beta1.GroupVersion.String())
	}
	switch {
	case apierrors.IsNotFound(err):
		return false, false, nil
	case err != nil:
		return false, false, err
	}
	return true, unread || definition.IsOurs(found.GetLabels()), nil
}

// Definition reads the definition of Rollouts.
func (c Cluster) Definition(ctx context.Context) (*apiextensionsv1.CustomResourceDefinition, error) {
	found, err := c.Objects.Resource(definitions).Get(ctx, definition.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, crd)
}

// Resources returns the resources of the guard: bindings first, as a policy without a binding has no effect.
func (v PolicyVersions) Resources() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, r := range []struct{ version, resource string }{{v.Mutating, mutatingBindings},
		{v.Validating, validatingBindings}, {v.Mutating, mutatingPolicies}, {v.Validating, validatingPolicies}} {
		if r.version != "" {
			out = append(out, schema.GroupVersionResource{Group: admission.GroupName, Version: r.version,
				Resource: r.resource})
		}
	}
	return out
}

// ResourceOf returns the resource of a policy or binding.
func ResourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return resource
}

// Guards reads the guard's policies and bindings on a cluster: of one installation, or with name "" of all.
func (c Cluster) Guards(ctx context.Context, v PolicyVersions, name string) ([]unstructured.Unstructured, error) {
	selector := guard.LabelGuard
	if name != "" {
		selector += "=" + name
	}
	var out []unstructured.Unstructured
	for _, resource := range v.Resources() {
		list, err := c.List(ctx, resource, "", selector)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// gateManager is the field manager of the gate's webhook configuration.
const gateManager = "slipway-gate"

var webhookConfigurations = admission.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")

// PutGate applies the configuration of the gate's webhook. The API server changes nothing if it is up to date.
func (c Cluster) PutGate(ctx context.Context, configuration *admission.MutatingWebhookConfiguration) error {
	object, err := guard.Object(configuration)
	if err != nil {
		return err
	}
	_, err = c.Objects.Resource(webhookConfigurations).Apply(ctx, configuration.Name, object,
		metav1.ApplyOptions{FieldManager: gateManager, Force: true})
	if err != nil {
		return fmt.Errorf("webhook configuration %s: %w", configuration.Name, err)
	}
	return nil
}

// Gates reads the configurations of the gate's webhooks on a cluster: of one name, or with name "" of all engines.
func (c Cluster) Gates(ctx context.Context, name string) ([]admission.MutatingWebhookConfiguration, error) {
	selector := guard.LabelGuard
	if name != "" {
		selector += "=" + name
	}
	list, err := c.List(ctx, webhookConfigurations, "", selector)
	if err != nil {
		return nil, err
	}
	out := make([]admission.MutatingWebhookConfiguration, len(list))
	for i := range list {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[i].Object, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RemoveGate deletes the configuration of the gate's webhook if it exists.
func (c Cluster) RemoveGate(ctx context.Context, name string) error {
	client := c.Objects.Resource(webhookConfigurations)
	_, err := client.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = client.Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("webhook configuration %s: %w", name, err)
	}
	return nil
}

// KruiseRollouts returns the parts of the original Kruise Rollouts that are installed or run on the cluster. What this
// process may not read counts as absent.
func (c Cluster) KruiseRollouts(ctx context.Context) (found []reference.Part, err error) {
	for _, look := range []func(context.Context) ([]reference.Part, error){
		c.webhooksOf("mutatingwebhookconfigurations"), c.webhooksOf("validatingwebhookconfigurations"),
		c.referenceDeployment, c.referenceLeaders,
	} {
		parts, err := look(ctx)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return nil, err
		}
		found = append(found, parts...)
	}
	return found, nil
}

// webhooksOf searches the webhook configurations of one kind. Both kinds have the called service in the same field.
func (c Cluster) webhooksOf(resource string) func(context.Context) ([]reference.Part, error) {
	return func(ctx context.Context) (found []reference.Part, err error) {
		list, err := c.List(ctx, admission.SchemeGroupVersion.WithResource(resource), "", "")
		if err != nil {
			return nil, err
		}
		for i := range list {
			var one admission.ValidatingWebhookConfiguration
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[i].Object, &one); err != nil {
				return nil, err
			}
			var calls []admission.WebhookClientConfig
			for _, w := range one.Webhooks {
				calls = append(calls, w.ClientConfig)
			}
			if part, is := reference.Webhooks(list[i].GetKind(), one.Name, calls); is {
				found = append(found, part)
			}
		}
		return found, nil
	}
}

func (c Cluster) referenceDeployment(ctx context.Context) ([]reference.Part, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d, err := c.Client.AppsV1().Deployments(reference.Namespace).Get(call, reference.Deployment, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	part, runs := reference.Controller(d)
	if !runs {
		return nil, nil
	}
	return []reference.Part{part}, nil
}

// referenceLeaders finds its controller by the lease that it holds, in any namespace and under any name.
func (c Cluster) referenceLeaders(ctx context.Context) (found []reference.Part, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := c.Client.CoordinationV1().Leases(metav1.NamespaceAll).List(call,
		metav1.ListOptions{FieldSelector: "metadata.name=" + reference.Lease})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if part, runs := reference.Leader(&list.Items[i], time.Now()); runs {
			found = append(found, part)
		}
	}
	return found, nil
}
