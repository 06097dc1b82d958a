package manifest

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/release/strictyaml"
)

// servingFields are what of a KusciaDeployment Kuscia's requests can express, each with what leads to it.
var servingFields = []string{
	"apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.labels", "metadata.labels.kuscia.secretflow/app-type",
	"metadata.annotations", "metadata.annotations.kuscia.secretflow/affinity-mode",
	"spec", "spec.initiator", "spec.inputConfig", "spec.parties",
	"spec.parties[].domainID", "spec.parties[].appImageRef", "spec.parties[].role", "spec.parties[].serviceNamePrefix",
	"spec.parties[].template", "spec.parties[].template.replicas",
	"spec.parties[].template.strategy", "spec.parties[].template.strategy.type", "spec.parties[].template.strategy.rollingUpdate",
	"spec.parties[].template.strategy.rollingUpdate.maxSurge", "spec.parties[].template.strategy.rollingUpdate.maxUnavailable",
	"spec.parties[].template.spec", "spec.parties[].template.spec.containers", "spec.parties[].template.spec.containers[].name",
	"spec.parties[].template.spec.containers[].resources",
	"spec.parties[].template.spec.containers[].resources.limits", "spec.parties[].template.spec.containers[].resources.limits.cpu",
	"spec.parties[].template.spec.containers[].resources.limits.memory",
	"spec.parties[].template.spec.containers[].resources.requests", "spec.parties[].template.spec.containers[].resources.requests.cpu",
	"spec.parties[].template.spec.containers[].resources.requests.memory",
}

// writtenByServer are what kubectl shows of an object and nobody asks for: an object that comes from there has them. The revision has edited AppImages run,
// which every update does by itself.
var writtenByServer = []string{
	"status", "metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp", "metadata.managedFields", "metadata.selfLink",
	"metadata.annotations.kubectl.kubernetes.io/last-applied-configuration", "spec.revision",
}

// fieldCheck finds the fields of a document that are not among the known ones, with their lines.
type fieldCheck struct {
	file     string
	findings []apiclient.Finding
}

// unexpressible are the fields of a KusciaDeployment that Kuscia's requests do not have.
func unexpressible(file string, document *yaml.Node) []apiclient.Finding {
	check := &fieldCheck{file: file}
	check.visit(document, "", "")
	return check.findings
}

// visit checks what stands at a path; pattern is the path with no indexes in it.
func (f *fieldCheck) visit(node *yaml.Node, path, pattern string) {
	switch node.Kind {
	case yaml.AliasNode:
		f.visit(node.Alias, path, pattern)
	case yaml.SequenceNode:
		for i, element := range node.Content {
			f.visit(element, fmt.Sprintf("%s[%d]", path, i), pattern+"[]")
		}
	case yaml.MappingNode:
		for n := 0; n+1 < len(node.Content); n += 2 {
			key := node.Content[n]
			f.entry(key, node.Content[n+1], within(path, key.Value), within(pattern, key.Value))
		}
	}
}

func (f *fieldCheck) entry(key, value *yaml.Node, path, pattern string) {
	switch {
	case slices.Contains(writtenByServer, pattern):
	case slices.Contains(servingFields, pattern):
		f.visit(value, path, pattern)
	default:
		f.findings = append(f.findings, apiclient.Finding{File: f.file, Wrong: strictyaml.FieldError{Field: path, Line: key.Line,
			Reason: "cannot be said in Kuscia's request: remove it, or use kubectl apply"}})
	}
}

func within(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }
