package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	objects "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/strictyaml"
)

// createRequest returns the request that creates the serving of a KusciaDeployment whose fields were checked by
// unexpressible. It sets the type of a strategy, because requests require it; Kubernetes defaults it to RollingUpdate.
func createRequest(kd *objects.KusciaDeployment) *kusciapb.CreateServingRequest {
	parties := kuscia.ServingParties(kd.Spec.Parties)
	for _, p := range parties {
		if p.UpdateStrategy != nil {
			p.UpdateStrategy.Type = cmp.Or(p.UpdateStrategy.Type, rollingUpdate)
		}
	}
	return &kusciapb.CreateServingRequest{ServingId: kd.Name, ServingInputConfig: kd.Spec.InputConfig,
		Initiator:    kd.Spec.Initiator,
		AffinityMode: kd.Annotations[objects.AnnotationAffinityMode], Parties: parties}
}

const rollingUpdate = string(appsv1.RollingUpdateDeploymentStrategyType)

// UpdateRequest returns the request that updates a serving to the complete one. A missing strategy means the default,
// which an update must set explicitly.
func UpdateRequest(complete *kusciapb.CreateServingRequest) *kusciapb.UpdateServingRequest {
	complete = proto.CloneOf(complete)
	for _, p := range complete.GetParties() {
		if p.UpdateStrategy == nil {
			p.UpdateStrategy = &kusciapb.UpdateStrategy{Type: rollingUpdate}
		}
	}
	return &kusciapb.UpdateServingRequest{ServingId: complete.GetServingId(),
		ServingInputConfig: complete.GetServingInputConfig(),
		Parties:            complete.GetParties()}
}

// requestFields maps fields of a KusciaDeployment to those of Kuscia's request.
var requestFields = strings.NewReplacer("spec.inputConfig", "serving_input_config", "spec.", "", "template.replicas",
	"replicas",
	"serviceNamePrefix", "service_name_prefix", "metadata.annotations."+objects.AnnotationAffinityMode, "affinity_mode")

// UnsupportedChanges returns the differences between a document and the existing serving that an update request cannot
// apply and would silently ignore.
func UnsupportedChanges(d ServingDocument, now *kusciapb.QueryServingResponseData,
	affinityMode string) []apiclient.Finding {
	var findings []apiclient.Finding
	refuse := func(field, format string, args ...any) {
		if !d.IsObject {
			field = requestFields.Replace(field)
		}
		findings = append(findings, apiclient.Finding{File: d.File,
			Problem: strictyaml.FieldError{Field: field, Line: fieldLine(d.Text, field),
				Reason: fmt.Sprintf(format, args...)}})
	}
	asked := d.Create
	if asked.GetInitiator() != now.GetInitiator() {
		refuse("spec.initiator", "is %s in the existing serving, and an update cannot change it: use kubectl apply",
			now.GetInitiator())
	}
	if mode := asked.GetAffinityMode(); mode != "" && mode != affinityMode {
		refuse("metadata.annotations."+objects.AnnotationAffinityMode,
			"is %q in the existing serving, and an update cannot change it: use kubectl apply", affinityMode)
	}
	if asked.GetServingInputConfig() == "" && now.GetServingInputConfig() != "" {
		refuse("spec.inputConfig", "is missing, but an update cannot remove it: use kubectl apply")
	}
	present := map[string]*kusciapb.ServingParty{}
	for _, p := range now.GetParties() {
		present[partyName(p)] = p
	}
	for i, p := range asked.GetParties() {
		field, party := fmt.Sprintf("spec.parties[%d]", i), present[partyName(p)]
		delete(present, partyName(p))
		switch {
		case party == nil:
			refuse(field, "%s is not a party of the existing serving, and an update cannot add it: use kubectl apply",
				partyName(p))
		case party.GetServiceNamePrefix() != p.GetServiceNamePrefix():
			refuse(field+".serviceNamePrefix", "is %q in the existing serving, and an update cannot change it: use "+
				"kubectl apply",
				party.GetServiceNamePrefix())
		case party.Replicas != nil && p.Replicas == nil:
			refuse(field+".template.replicas", "is missing, but an update cannot unset the current %d: set it, or "+
				"use kubectl apply",
				party.GetReplicas())
		}
	}
	for _, p := range now.GetParties() {
		if present[partyName(p)] != nil {
			refuse("spec.parties", "does not contain %s, a party of the existing serving, but an update cannot "+
				"remove it: use kubectl apply",
				partyName(p))
		}
	}
	return findings
}

func partyName(p *kusciapb.ServingParty) string {
	return serving.PartyName(objects.Party{DomainID: p.GetDomainId(), Role: p.GetRole()})
}

// servingFields are the fields of a KusciaDeployment that Kuscia's requests support, with their parents.
var servingFields = []string{
	"apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.labels",
	"metadata.labels.kuscia.secretflow/app-type",
	"metadata.annotations", "metadata.annotations.kuscia.secretflow/affinity-mode",
	"spec", "spec.initiator", "spec.inputConfig", "spec.parties",
	"spec.parties[].domainID", "spec.parties[].appImageRef", "spec.parties[].role", "spec.parties[].serviceNamePrefix",
	"spec.parties[].template", "spec.parties[].template.replicas",
	"spec.parties[].template.strategy", "spec.parties[].template.strategy.type",
	"spec.parties[].template.strategy.rollingUpdate",
	"spec.parties[].template.strategy.rollingUpdate.maxSurge",
	"spec.parties[].template.strategy.rollingUpdate.maxUnavailable",
	"spec.parties[].template.spec", "spec.parties[].template.spec.containers",
	"spec.parties[].template.spec.containers[].name",
	"spec.parties[].template.spec.containers[].resources",
	"spec.parties[].template.spec.containers[].resources.limits",
	"spec.parties[].template.spec.containers[].resources.limits.cpu",
	"spec.parties[].template.spec.containers[].resources.limits.memory",
	"spec.parties[].template.spec.containers[].resources.requests",
	"spec.parties[].template.spec.containers[].resources.requests.cpu",
	"spec.parties[].template.spec.containers[].resources.requests.memory",
}

// writtenByServer are fields in the output of kubectl that are no part of the desired state, so they are ignored.
// spec.revision makes the controller roll out edited AppImages, which every update does anyway.
var writtenByServer = []string{
	"status", "metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp",
	"metadata.managedFields", "metadata.selfLink",
	"metadata.annotations.kubectl.kubernetes.io/last-applied-configuration", "spec.revision",
}

// fieldCheck collects the fields of a document that requests do not support, with their lines.
type fieldCheck struct {
	file     string
	findings []apiclient.Finding
}

func unsupportedFields(file string, document *yaml.Node) []apiclient.Finding {
	check := &fieldCheck{file: file}
	check.visit(document, "", "")
	return check.findings
}

// visit checks the value at a path; pattern is the path without indexes.
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
			f.entry(key, node.Content[n+1], joinPath(path, key.Value), joinPath(pattern, key.Value))
		}
	}
}

func (f *fieldCheck) entry(key, value *yaml.Node, path, pattern string) {
	switch {
	case slices.Contains(writtenByServer, pattern):
	case slices.Contains(servingFields, pattern):
		f.visit(value, path, pattern)
	default:
		f.findings = append(f.findings, apiclient.Finding{File: f.file,
			Problem: strictyaml.FieldError{Field: path, Line: key.Line,
				Reason: "is not supported by Kuscia's request: remove it, or use kubectl apply"}})
	}
}

func joinPath(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }
