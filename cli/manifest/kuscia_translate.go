package manifest

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/api/kuscia/kusciapb"
	objects "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/strictyaml"
)

// CreationOf is the request that declares what a KusciaDeployment does, which says nothing that requests cannot.
func CreationOf(kd *objects.KusciaDeployment) ServingRequest {
	return &kusciapb.CreateServingRequest{ServingId: kd.Name, ServingInputConfig: kd.Spec.InputConfig, Initiator: kd.Spec.Initiator,
		AffinityMode: kd.Annotations[objects.AnnotationAffinityMode], Parties: servingParties(kd)}
}

// UpdateOf is the request that brings a serving to a KusciaDeployment. A strategy that is left out there is the default one, which a request says.
func UpdateOf(kd *objects.KusciaDeployment) ServingRequest {
	parties := servingParties(kd)
	for _, p := range parties {
		if p.UpdateStrategy == nil {
			p.UpdateStrategy = &kusciapb.UpdateStrategy{Type: string(appsv1.RollingUpdateDeploymentStrategyType)}
		}
	}
	return &kusciapb.UpdateServingRequest{ServingId: kd.Name, ServingInputConfig: kd.Spec.InputConfig, Parties: parties}
}

func servingParties(kd *objects.KusciaDeployment) []*kusciapb.ServingParty {
	parties := make([]*kusciapb.ServingParty, len(kd.Spec.Parties))
	for i, p := range kd.Spec.Parties {
		parties[i] = &kusciapb.ServingParty{DomainId: p.DomainID, Role: p.Role, AppImage: p.AppImageRef, Replicas: p.Template.Replicas,
			ServiceNamePrefix: p.ServiceNamePrefix, UpdateStrategy: updateStrategy(p.Template.Strategy), Resources: containerResources(p.Template.Spec)}
	}
	return parties
}

// updateStrategy says the type always: a request without one is refused, and Kubernetes takes RollingUpdate for it.
func updateStrategy(strategy *appsv1.DeploymentStrategy) *kusciapb.UpdateStrategy {
	if strategy == nil {
		return nil
	}
	asked := &kusciapb.UpdateStrategy{Type: string(strategy.Type)}
	if asked.Type == "" {
		asked.Type = string(appsv1.RollingUpdateDeploymentStrategyType)
	}
	if rolling := strategy.RollingUpdate; rolling != nil {
		if rolling.MaxSurge != nil {
			asked.MaxSurge = rolling.MaxSurge.String()
		}
		if rolling.MaxUnavailable != nil {
			asked.MaxUnavailable = rolling.MaxUnavailable.String()
		}
	}
	return asked
}

func containerResources(spec *corev1.PodSpec) []*kusciapb.Resource {
	if spec == nil {
		return nil
	}
	resources := make([]*kusciapb.Resource, len(spec.Containers))
	for i, c := range spec.Containers {
		resources[i] = &kusciapb.Resource{ContainerName: c.Name,
			MinCpu: quantityText(c.Resources.Requests, corev1.ResourceCPU), MaxCpu: quantityText(c.Resources.Limits, corev1.ResourceCPU),
			MinMemory: quantityText(c.Resources.Requests, corev1.ResourceMemory), MaxMemory: quantityText(c.Resources.Limits, corev1.ResourceMemory)}
	}
	return resources
}

func quantityText(list corev1.ResourceList, name corev1.ResourceName) string {
	quantity, there := list[name]
	if !there {
		return ""
	}
	return quantity.String()
}

// Unchangeable are what a KusciaDeployment says otherwise than the serving that there is, and what no update can change: it would be left as it is in
// silence.
func Unchangeable(kd *objects.KusciaDeployment, now *kusciapb.QueryServingResponseData) []strictyaml.FieldError {
	var wrong []strictyaml.FieldError
	refuse := func(field, format string, args ...any) {
		wrong = append(wrong, strictyaml.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if kd.Spec.Initiator != now.GetInitiator() {
		refuse("spec.initiator", "is %s for the serving that there is, and an update cannot change it: use kubectl apply", now.GetInitiator())
	}
	if _, there := kd.Annotations[objects.AnnotationAffinityMode]; there {
		refuse("metadata.annotations."+objects.AnnotationAffinityMode, "cannot be changed by an update: use kubectl apply")
	}
	if kd.Spec.InputConfig == "" && now.GetServingInputConfig() != "" {
		refuse("spec.inputConfig", "is absent, and an update cannot take it away: use kubectl apply")
	}
	present := map[string]*kusciapb.ServingParty{}
	for _, p := range now.GetParties() {
		present[serving.PartyName(objects.Party{DomainID: p.GetDomainId(), Role: p.GetRole()})] = p
	}
	for i, p := range kd.Spec.Parties {
		field, party := fmt.Sprintf("spec.parties[%d]", i), present[serving.PartyName(p)]
		delete(present, serving.PartyName(p))
		switch {
		case party == nil:
			refuse(field, "%s is no party of the serving that there is, and an update cannot add it: use kubectl apply", serving.PartyName(p))
		case party.GetServiceNamePrefix() != p.ServiceNamePrefix:
			refuse(field+".serviceNamePrefix", "is %q for the serving that there is, and an update cannot change it: use kubectl apply", party.GetServiceNamePrefix())
		case party.Replicas != nil && p.Template.Replicas == nil:
			refuse(field+".template.replicas", "is absent, and an update cannot take back the %d that there are: say how many, or use kubectl apply", party.GetReplicas())
		}
	}
	for _, p := range now.GetParties() {
		name := serving.PartyName(objects.Party{DomainID: p.GetDomainId(), Role: p.GetRole()})
		if present[name] != nil {
			refuse("spec.parties", "leaves out %s, which is a party of the serving that there is, and an update cannot remove it: use kubectl apply", name)
		}
	}
	return wrong
}
