package kube

import (
	"context"
	"fmt"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// gateManager is the field manager of the gate's webhook configuration.
const gateManager = "slipway-gate"

var webhookConfigurations = admission.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")

// PutGate applies the configuration of the gate's webhook. The API server changes nothing if it is up to date.
func (c Cluster) PutGate(ctx context.Context, configuration *admission.MutatingWebhookConfiguration) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(configuration)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	_, err = c.Objects.Resource(webhookConfigurations).Apply(ctx, configuration.Name,
		&unstructured.Unstructured{Object: content},
		metav1.ApplyOptions{FieldManager: gateManager, Force: true})
	if err != nil {
		return fmt.Errorf("webhook configuration %s: %w", configuration.Name, err)
	}
	return nil
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
