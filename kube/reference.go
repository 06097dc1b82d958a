package kube

import (
	"context"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/kruise/reference"
)

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
