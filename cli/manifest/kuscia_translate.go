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

// creationOf is the request that declares what a KusciaDeployment does, which says nothing that requests cannot. A strategy always has its
// type there: a request without one is refused, and Kubernetes takes RollingUpdate for it.
func creationOf(kd *objects.KusciaDeployment) *kusciapb.CreateServingRequest {
	parties := kuscia.ServingParties(kd.Spec.Parties)
	for _, p := range parties {
		if p.UpdateStrategy != nil {
			p.UpdateStrategy.Type = cmp.Or(p.UpdateStrategy.Type, rollingUpdate)
		}
	}
	return &kusciapb.CreateServingRequest{ServingId: kd.Name, ServingInputConfig: kd.Spec.InputConfig, Initiator: kd.Spec.Initiator,
		AffinityMode: kd.Annotations[objects.AnnotationAffinityMode], Parties: parties}
}

const rollingUpdate = string(appsv1.RollingUpdateDeploymentStrategyType)

// UpdateTo is the request that brings a serving to a whole one. A strategy that is left out there is the default one, which a request says.
func UpdateTo(whole *kusciapb.CreateServingRequest) *kusciapb.UpdateServingRequest {
	whole = proto.CloneOf(whole)
	for _, p := range whole.GetParties() {
		if p.UpdateStrategy == nil {
			p.UpdateStrategy = &kusciapb.UpdateStrategy{Type: rollingUpdate}
		}
	}
	return &kusciapb.UpdateServingRequest{ServingId: whole.GetServingId(), ServingInputConfig: whole.GetServingInputConfig(),
		Parties: whole.GetParties()}
}

// requestFields are what Kuscia's request calls the fields of a KusciaDeployment.
var requestFields = strings.NewReplacer("spec.inputConfig", "serving_input_config", "spec.", "", "template.replicas", "replicas",
	"serviceNamePrefix", "service_name_prefix", "metadata.annotations."+objects.AnnotationAffinityMode, "affinity_mode")

// Unchangeable are what a document says otherwise than the serving that there is, and what no update can change: it would be left as
// it is in silence.
func Unchangeable(d ServingDocument, now *kusciapb.QueryServingResponseData, affinityMode string) []apiclient.Finding {
	var findings []apiclient.Finding
	refuse := func(field, format string, args ...any) {
		if !d.Declared {
			field = requestFields.Replace(field)
		}
		findings = append(findings, apiclient.Finding{File: d.File,
			Wrong: strictyaml.FieldError{Field: field, Line: fieldLine(d.Text, field), Reason: fmt.Sprintf(format, args...)}})
	}
	asked := d.Creation
	if asked.GetInitiator() != now.GetInitiator() {
		refuse("spec.initiator", "is %s for the serving that there is, and an update cannot change it: use kubectl apply", now.GetInitiator())
	}
	if mode := asked.GetAffinityMode(); mode != "" && mode != affinityMode {
		refuse("metadata.annotations."+objects.AnnotationAffinityMode,
			"is %q for the serving that there is, and an update cannot change it: use kubectl apply", affinityMode)
	}
	if asked.GetServingInputConfig() == "" && now.GetServingInputConfig() != "" {
		refuse("spec.inputConfig", "is absent, and an update cannot take it away: use kubectl apply")
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
			refuse(field, "%s is no party of the serving that there is, and an update cannot add it: use kubectl apply", partyName(p))
		case party.GetServiceNamePrefix() != p.GetServiceNamePrefix():
			refuse(field+".serviceNamePrefix", "is %q for the serving that there is, and an update cannot change it: use kubectl apply",
				party.GetServiceNamePrefix())
		case party.Replicas != nil && p.Replicas == nil:
			refuse(field+".template.replicas", "is absent, and an update cannot take back the %d that there are: say how many, or use kubectl apply",
				party.GetReplicas())
		}
	}
	for _, p := range now.GetParties() {
		if present[partyName(p)] != nil {
			refuse("spec.parties", "leaves out %s, which is a party of the serving that there is, and an update cannot remove it: use kubectl apply",
				partyName(p))
		}
	}
	return findings
}

func partyName(p *kusciapb.ServingParty) string {
	return serving.PartyName(objects.Party{DomainID: p.GetDomainId(), Role: p.GetRole()})
}

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

// writtenByServer are what kubectl shows of an object and nobody asks for: an object that comes from there has them. The revision
// has edited AppImages run, which every update does by itself.
var writtenByServer = []string{
	"status", "metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp",
	"metadata.managedFields", "metadata.selfLink",
	"metadata.annotations.kubectl.kubernetes.io/last-applied-configuration", "spec.revision",
}

// fieldCheck finds the fields of a document that are not among the known ones, with their lines.
type fieldCheck struct {
	file     string
	findings []apiclient.Finding
}

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
