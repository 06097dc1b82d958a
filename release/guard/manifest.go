package guard

import (
	"bytes"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const manifestHead = `# The guard and the gate in the API server, as "slipway guard install" installs them by default. Generated from release/guard.
#
# They need Kubernetes 1.36. For older servers, other engine identities, custom objects or some namespaces only, use the command; and where another
# product works on Rollouts: the command finds that out, and leaves its objects alone.
`

// Manifest returns the content of deploy/guard/policies.yaml.
func Manifest() ([]byte, error) {
	body, err := YAML(Policies(Options{}, "v1", "v1"))
	return append([]byte(manifestHead), body...), err
}

// YAML returns objects as YAML documents.
func YAML(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(raw)
	}
	return out.Bytes(), nil
}
