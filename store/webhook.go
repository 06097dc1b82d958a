package store

import (
	"context"
	"errors"
	"net/http"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise/definition"
	rolloutalpha "slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// webhookSecret holds the certificate of the engine's webhooks.
const webhookSecret = "slipway-webhook"

// WebhookCertificate returns the content of the Secret of the engine's webhooks, and its version; both are empty if it
// does not exist.
func (s *Store) WebhookCertificate(ctx context.Context) (data map[string][]byte, version string, err error) {
	found, err := s.core.Secrets(s.namespace).Get(ctx, webhookSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", asFailure(err, s.webhookObject())
	}
	return found.Data, found.ResourceVersion, nil
}

// PutWebhookCertificate creates that Secret, or replaces this version of it; a change since is a Conflict.
func (s *Store) PutWebhookCertificate(ctx context.Context, data map[string][]byte, version string) error {
	secrets := s.core.Secrets(s.namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: webhookSecret, ResourceVersion: version},
		Type: corev1.SecretTypeTLS, Data: data}
	var err error
	if version == "" {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	return asFailure(err, s.webhookObject())
}

func (s *Store) webhookObject() string { return "Secret " + s.namespace + "/" + webhookSecret }

// fieldManagerConversion owns the fields of the definition that depend on where servers run.
const fieldManagerConversion = "slipway-webhook"

// conversionRecheck is how often to check whether another server still converts.
const conversionRecheck = 30 * time.Second

// PublishConversion writes the conversion webhook into the definition of Rollouts, and makes v1alpha1 served. Another
// working server stays in place, of any engine: all convert alike. Call it again after the returned time.
func (s *Store) PublishConversion(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration,
	err error) {
	err = failure.RetryOnConflict("definition "+definition.Name, func() error {
		again, err = s.publishConversion(ctx, client)
		return err
	})
	return again, err
}

func (s *Store) publishConversion(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration,
	err error) {
	object := "definition " + definition.Name
	crd, err := s.crds.CustomResourceDefinitions().Get(ctx, definition.Name, metav1.GetOptions{})
	if err != nil {
		return 0, asFailure(err, object)
	}
	if !definition.IsOurs(crd.Labels) {
		return conversionRecheck, nil // another product's definition, with its own conversion
	}
	wanted := conversionBy(client)
	known := equality.Semantic.DeepEqual(crd.Spec.Conversion, wanted)
	if known && servesAlpha(crd) {
		return 0, nil
	}
	if !known && servesAlpha(crd) && isConverted(crd) {
		if works, err := s.conversionWorks(ctx); works || err != nil {
			return conversionRecheck, err
		}
	}
	crd.Spec.Conversion = wanted
	if version := alpha(crd); version != nil {
		version.Served = true
	}
	_, err = s.crds.CustomResourceDefinitions().Update(ctx, crd,
		metav1.UpdateOptions{FieldManager: fieldManagerConversion})
	return 0, asFailure(err, object)
}

// CheckConversion reports what is wrong with the conversion of Rollouts that an administrator has installed, for a
// server at this address, whose certificate chain is in place of the CA. Another working converter is as good as this
// one: all convert alike. It writes nothing.
func (s *Store) CheckConversion(ctx context.Context, client admission.WebhookClientConfig) (problem string, err error) {
	object := "definition " + definition.Name
	crd, err := s.crds.CustomResourceDefinitions().Get(ctx, definition.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "the " + object + " is missing: an administrator has to install it", nil
	case err != nil:
		return "", asFailure(err, object)
	case !definition.IsOurs(crd.Labels):
		return "the " + object + " belongs to another product: Rollouts are left to it", nil
	case !isConverted(crd) || crd.Spec.Conversion.Webhook == nil || !servesAlpha(crd):
		return "the " + object + " has no webhook for conversion, so v1alpha1 is not served: an administrator has to " +
			"install it (the Helm chart, or slipway guard install --webhook-service)", nil
	}
	config := crd.Spec.Conversion.Webhook.ClientConfig
	if config == nil || !sameAddress(*config, client) {
		if works, err := s.conversionWorks(ctx); works || err != nil {
			return "", err
		}
		return "the webhook for conversion in the " + object + " is another server's, which does not answer", nil
	}
	if wrong := kube.CheckTrust(config.CABundle, client.CABundle, kube.WebhookHost(client)); wrong != nil {
		return "the " + object + " has another CA for conversion: " + wrong.Error(), nil
	}
	return "", nil
}

// sameAddress reports whether the definition calls this address.
func sameAddress(have apiextensionsv1.WebhookClientConfig, want admission.WebhookClientConfig) bool {
	wanted := conversionBy(want).Webhook.ClientConfig
	wanted.CABundle, have.CABundle = nil, nil
	return equality.Semantic.DeepEqual(have, *wanted)
}

// conversionBy is the conversion by a webhook, as stored by the API server.
func conversionBy(client admission.WebhookClientConfig) *apiextensionsv1.CustomResourceConversion {
	config := &apiextensionsv1.WebhookClientConfig{URL: client.URL, CABundle: client.CABundle}
	if service := client.Service; service != nil {
		config.Service = &apiextensionsv1.ServiceReference{Namespace: service.Namespace, Name: service.Name,
			Path: service.Path, Port: service.Port}
	}
	return &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: config, ConversionReviewVersions: []string{"v1"}}}
}

func isConverted(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
}

func servesAlpha(crd *apiextensionsv1.CustomResourceDefinition) bool {
	version := alpha(crd)
	return version == nil || version.Served
}

// alpha returns the version v1alpha1 of the definition; nil if it does not exist.
func alpha(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Name == rolloutalpha.GroupVersion.Version {
			return &crd.Spec.Versions[i]
		}
	}
	return nil
}

// conversionWorks asks the API server whether conversion works, by a dry-run creation of a v1alpha1 object.
func (s *Store) conversionWorks(ctx context.Context) (bool, error) {
	probe := &unstructured.Unstructured{Object: map[string]any{"apiVersion": rolloutalpha.GroupVersion.String(),
		"kind": v1beta1.Kind, "metadata": map[string]any{"generateName": "slipway-conversion-probe-"},
		"spec": map[string]any{"objectRef": map[string]any{"workloadRef": map[string]any{"apiVersion": "apps/v1",
			"kind": "Deployment", "name": "none"}},
			"strategy": map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"replicas": int64(
				1)}}}}}}}
	_, err := s.untyped.Resource(rolloutalpha.Resource).Namespace(s.namespace).Create(ctx, probe,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError {
		return false, nil
	}
	return err == nil, asFailure(err, "a Rollout of v1alpha1 that tries the conversion")
}

// WatchConversion calls changed whenever the definition of Rollouts changes, until the context ends.
func (s *Store) WatchConversion(ctx context.Context, changed func()) {
	watch.New(watch.From(s.watched, s.watched.Resource(definitions).Namespace), watch.Whole[*metav1.PartialObjectMetadata],
		watch.Options{Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, definition.Name).String()}).
		Handle(watch.OnChange(func(*metav1.PartialObjectMetadata) { changed() })).Run(ctx)
}
