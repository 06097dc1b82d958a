package guard

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	admission "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/deploy/crds"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/definition"
	rolloutalpha "slipway.io/slipway/release/kruise/v1alpha1"
)

// The paths of the webhooks of a server (api/webhook).
const pathMutate, pathConvert, pathAuthors = "/mutate", "/convert", "/authors"

// webhookOptions are the flags for the webhooks of a server.
type webhookOptions struct {
	service, url, caFile, engineNamespace string
	gate                                  bool
}

func (o *webhookOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.service, "webhook-service", "", "register the webhooks of the servers behind this `Service`, as "+
		"namespace/name or namespace/name:port")
	f.StringVar(&o.url, "webhook-url", "", "register the webhooks of the servers at this base `URL`")
	f.StringVar(&o.caFile, "webhook-ca-file", "", "`file` with the CA of the servers' --webhook-cert-file")
	f.StringVar(&o.engineNamespace, "engine-namespace", "slipway", "`namespace` of the engine of these servers")
	f.BoolVar(&o.gate, "webhook-gate", false, "hold workloads by a webhook also where admission policies do, and in "+
		"the output of --dry-run")
}

// webhooks are the webhooks of the servers of one engine.
type webhooks struct {
	client admission.WebhookClientConfig
	// name is the name of the gate's configuration, authors that of the check of authors. gate is true if they are
	// wanted on every cluster.
	name, authors string
	gate          bool
}

// read returns the webhooks that the flags specify; nil for none.
func (o webhookOptions) read() (*webhooks, error) {
	switch {
	case o.service == "" && o.url == "" && o.caFile == "" && !o.gate:
		return nil, nil
	case (o.service == "") == (o.url == ""):
		return nil, app.Usagef("set either --webhook-service or --webhook-url: where API servers reach the servers")
	case o.caFile == "":
		return nil, app.Usagef("set --webhook-ca-file: API servers trust only this CA of the servers' certificate")
	}
	ca, err := os.ReadFile(o.caFile)
	if err != nil {
		return nil, fmt.Errorf("--webhook-ca-file: %w", err)
	}
	if len(kube.Certificates(ca)) == 0 {
		return nil, fmt.Errorf("--webhook-ca-file: %s has no certificate in PEM form", o.caFile)
	}
	w := &webhooks{name: guard.GateOf(o.engineNamespace), authors: guard.AuthorsOf(o.engineNamespace), gate: o.gate}
	w.client.CABundle = ca
	if o.url != "" {
		w.client.URL = &o.url
		return w, nil
	}
	service, err := settings.ParseService(o.service)
	if err != nil {
		return nil, app.Usagef("--webhook-service: %v", err)
	}
	w.client.Service = &admission.ServiceReference{Namespace: service.Namespace, Name: service.Name,
		Port: &service.Port}
	return w, nil
}

// at returns the address of one path.
func (w *webhooks) at(path string) admission.WebhookClientConfig {
	client := w.client
	if client.Service != nil {
		service := *client.Service
		service.Path, client.Service = &path, &service
	} else {
		client.URL = new(*client.URL + path)
	}
	return client
}

// gateObject returns the configuration of the gate's webhooks for the users that the guard lets pass.
func (w *webhooks) gateObject(wanted guard.Options) *admission.MutatingWebhookConfiguration {
	wanted.Name = w.name
	return guard.Webhooks(wanted, w.at(pathMutate))
}

// authorsObject returns the configuration of the webhook that checks authors.
func (w *webhooks) authorsObject(wanted guard.Options) *admission.MutatingWebhookConfiguration {
	wanted.Name = w.authors
	return guard.AuthorWebhooks(wanted, w.at(pathAuthors))
}

// conversion returns the definition of Rollouts with the conversion by these webhooks.
func (w *webhooks) conversion() (*unstructured.Unstructured, error) {
	text, err := crds.Files.ReadFile("rollouts.kruise.io_rollouts.yaml")
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	client := w.at(pathConvert)
	config := &apiextensionsv1.WebhookClientConfig{URL: client.URL, CABundle: client.CABundle}
	if s := client.Service; s != nil {
		config.Service = &apiextensionsv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: s.Path,
			Port: s.Port}
	}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: config, ConversionReviewVersions: []string{"v1"}}}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		v.Served = v.Served || v.Name == rolloutalpha.GroupVersion.Version
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&crd)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: content}, nil
}

// printAll prints everything that install applies.
func printAll(a *app.App, wanted guard.Options, hooks *webhooks) error {
	objects := guard.Policies(wanted, "v1", "v1")
	if hooks != nil {
		crd, err := hooks.conversion()
		if err != nil {
			return err
		}
		objects = append([]*unstructured.Unstructured{crd}, objects...)
		if hooks.gate && !wanted.NoGate {
			for _, hook := range []*admission.MutatingWebhookConfiguration{hooks.gateObject(wanted),
				hooks.authorsObject(wanted)} {
				object, err := guard.Object(hook)
				if err != nil {
					return err
				}
				objects = append(objects, object)
			}
		}
	}
	text, err := guard.YAML(objects)
	a.Printf(a.Out, "%s", text)
	return err
}

// registerConversion registers the conversion of Rollouts, in their definition.
func (c *cluster) registerConversion(ctx context.Context, a *app.App, hooks *webhooks) error {
	if hooks == nil {
		return nil
	}
	exists, ours, err := c.RolloutsDefinition(ctx)
	switch {
	case err != nil:
		return err
	case exists && !ours:
		return failure.New(failure.Refused, "the definition %s belongs to another product: Slipway does not convert "+
			"its Rollouts", definition.Name)
	}
	crd, err := hooks.conversion()
	if err != nil {
		return err
	}
	_, err = c.Objects.Resource(kube.ResourceOf(crd)).Apply(ctx, crd.GetName(), crd,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return err
	}
	c.hasRollouts = true
	a.Printf(a.Out, "Rollouts of v1alpha1 are converted by %s\n", guard.ClientText(hooks.client))
	return nil
}

// registerAuthors registers the webhook that checks authors where no admission policy does.
func (c *cluster) registerAuthors(ctx context.Context, a *app.App, wanted guard.Options, hooks *webhooks) error {
	if hooks == nil || !c.hasRollouts || !hooks.gate && c.policies.Validating != "" {
		return nil
	}
	if err := c.PutGate(ctx, hooks.authorsObject(wanted)); err != nil {
		return err
	}
	a.Printf(a.Out, "The webhook %s, which checks authors, is installed\n", hooks.authors)
	return nil
}

// registerGate registers the webhook of the gate where admission policies don't hold workloads.
func (c *cluster) registerGate(ctx context.Context, a *app.App, wanted guard.Options, hooks *webhooks) error {
	if hooks == nil || wanted.NoGate || !hooks.gate && c.policies.Mutating != "" {
		return nil
	}
	wanted.NoRollouts = !c.hasRollouts
	there, err := c.Gates(ctx, hooks.name)
	if err != nil {
		return err
	}
	for i := range there {
		wanted = wanted.Since(guard.WebhookIdentities(&there[i]))
	}
	if err := c.PutGate(ctx, hooks.gateObject(wanted)); err != nil {
		return err
	}
	a.Printf(a.Out, "The gate's webhook %s is installed\n", hooks.name)
	return nil
}

// printWebhooks prints what API servers call: the conversion and the webhooks of the gate, as far as the user may read
// them. hooks is true if there is one of the gate.
func (c *cluster) printWebhooks(ctx context.Context, a *app.App) (hooks bool, err error) {
	if err := c.printConversion(ctx, a); err != nil {
		return false, err
	}
	all, err := c.Gates(ctx, "")
	if apierrors.IsForbidden(err) {
		a.Printf(a.Out, "webhook      unknown: you are not allowed to read webhook configurations\n")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range all {
		identities, written := guard.WebhookIdentities(&all[i])
		gate := Gate{Authors: guard.ChecksAuthors(&all[i])}
		hooks = hooks || !gate.Authors
		want := gate.configuration(guard.Options{Name: all[i].Name, Identities: identities, NoRollouts: !c.hasRollouts},
			clientOf(all[i]))
		state := "complete"
		if problems := guard.WebhookProblems(&all[i], want); len(problems) > 0 {
			state = problems[0]
		}
		a.Printf(a.Out, "webhook      %s, by %s, %s: %s\n", all[i].Name, guard.ClientText(clientOf(all[i])),
			caText(clientOf(all[i]).CABundle), state)
		printIdentities(a, identities, written)
	}
	return hooks, nil
}

// clientOf returns the address that a configuration calls.
func clientOf(configuration admission.MutatingWebhookConfiguration) admission.WebhookClientConfig {
	for _, w := range configuration.Webhooks {
		return w.ClientConfig
	}
	return admission.WebhookClientConfig{}
}

// printConversion prints which server converts Rollouts.
func (c *cluster) printConversion(ctx context.Context, a *app.App) error {
	if !c.hasRollouts {
		return nil
	}
	found, err := c.Definition(ctx)
	if apierrors.IsForbidden(err) {
		a.Printf(a.Out, "conversion   unknown: you are not allowed to read the definition %s\n", definition.Name)
		return nil
	}
	if err != nil {
		return err
	}
	var config *apiextensionsv1.WebhookClientConfig
	if conversion := found.Spec.Conversion; conversion != nil && conversion.Webhook != nil {
		config = conversion.Webhook.ClientConfig
	}
	if config == nil {
		a.Printf(a.Out, "conversion   none: Rollouts of v1alpha1 are not served\n")
		return nil
	}
	client := admission.WebhookClientConfig{URL: config.URL}
	if s := config.Service; s != nil {
		client.Service = &admission.ServiceReference{Namespace: s.Namespace, Name: s.Name}
	}
	a.Printf(a.Out, "conversion   by %s, %s\n", guard.ClientText(client), caText(config.CABundle))
	return nil
}

// caText says until when a CA is valid.
func caText(bundle []byte) string {
	var until time.Time
	for _, ca := range kube.Certificates(bundle) {
		if ca.NotAfter.After(until) {
			until = ca.NotAfter
		}
	}
	if until.IsZero() {
		return "without a CA"
	}
	return "CA valid until " + until.UTC().Format(time.DateOnly)
}
