// Command generate writes a manifest that is generated from release/: the policies of the guard, the webhooks of the
// gate, the policies for Rollouts, or the rules in the definition of Rollouts that controller-gen has written. The
// comment at the head of the file stays.
package main

import (
	"bytes"
	"fmt"
	"os"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/admission"
	"slipway.io/slipway/release/kruise/definition"
)

func main() {
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(what, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, _, _ := bytes.Cut(text, []byte("---\n"))
	var body []byte
	switch what {
	case "guard":
		body, err = guard.YAML(guard.Policies(guard.Options{}, "v1", "v1"))
	case "lock":
		body, err = guard.YAML(guard.LockPolicies(guard.Options{}, "v1"))
	case "gate":
		body, err = gateWebhooks()
	case "rollouts":
		body, err = guard.YAML(admission.Policies())
	case "definition":
		body, err = definition.Complete(text)
	default:
		err = fmt.Errorf("unknown manifest %q", what)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(head[:len(head):len(head)], body...), 0o644)
}

// gateWebhooks returns the webhooks of the gate and of the check of authors, for clusters without admission policies
// and for the names of deploy/rbac.
func gateWebhooks() ([]byte, error) {
	at := func(path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "slipway",
			Name: "slipway-webhook", Path: &path, Port: new(int32(443))}}
	}
	var all []*unstructured.Unstructured
	for _, configuration := range []*admissionv1.MutatingWebhookConfiguration{
		guard.Webhooks(guard.Options{Name: guard.GateOf("slipway")}, at("/mutate")),
		guard.AuthorWebhooks(guard.Options{Name: guard.AuthorsOf("slipway")}, at("/authors"))} {
		object, err := guard.Object(configuration)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return guard.YAML(all)
}
