package kuscia

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/serving"
)

// QueryServing returns a serving and its status.
func (s *Service) QueryServing(ctx context.Context, r *kusciapb.QueryServingRequest) (*kusciapb.QueryServingResponse,
	error) {
	data, err := s.queryServing(ctx, r.GetServingId())
	return &kusciapb.QueryServingResponse{Status: outcome(err, codeQueryServing), Data: data}, nil
}

func (s *Service) queryServing(ctx context.Context, id string) (*kusciapb.QueryServingResponseData, error) {
	if id == "" {
		return nil, errNoServingID
	}
	kd, err := s.getServing(ctx, id)
	if err != nil {
		return nil, err
	}
	version, err := s.shownVersion(ctx, kd)
	if err != nil {
		return nil, err
	}
	return &kusciapb.QueryServingResponseData{
		ServingInputConfig: version.Spec.InputConfig, Initiator: version.Spec.Initiator,
		Parties: showParties(version), Status: showStatus(kd, version),
	}, nil
}

// shownVersion returns the version of a serving that queries show, with the current AppImages.
func (s *Service) shownVersion(ctx context.Context, kd *kuscia.KusciaDeployment) (serving.Version, error) {
	images, err := s.writer().Images(ctx, kd.Spec.Parties)
	if err != nil {
		return serving.Version{}, err
	}
	return serving.DisplayedVersion(kd, images)
}

// showParties returns the parties with one row of resources for each container; if a party's AppImage is missing, with
// the party's own resources.
func showParties(v serving.Version) []*kusciapb.ServingParty {
	shown := convert.MapSlice(v.Spec.Parties, showDeclared)
	for i, party := range shown {
		if rows := v.Resources(i); len(rows) > 0 {
			party.Resources = convert.MapSlice(rows, showRow)
		}
	}
	return shown
}

// showDeclared returns a party as its KusciaDeployment declares it.
func showDeclared(p kuscia.Party) *kusciapb.ServingParty {
	message := &kusciapb.ServingParty{DomainId: p.DomainID, Role: p.Role, AppImage: p.AppImageRef,
		Replicas:          p.Template.Replicas,
		ServiceNamePrefix: p.ServiceNamePrefix, UpdateStrategy: showStrategy(p)}
	if spec := p.Template.Spec; spec != nil {
		message.Resources = convert.MapSlice(spec.Containers, func(c corev1.Container) *kusciapb.Resource {
			return showRow(serving.RowOf(c.Name, c.Resources))
		})
	}
	return message
}

func showRow(r serving.ResourceRow) *kusciapb.Resource {
	return &kusciapb.Resource{ContainerName: r.Container, MinCpu: r.MinCPU, MaxCpu: r.MaxCPU, MinMemory: r.MinMemory,
		MaxMemory: r.MaxMemory}
}

func showStrategy(p kuscia.Party) *kusciapb.UpdateStrategy {
	strategy := p.Template.Strategy
	if strategy == nil {
		return nil
	}
	shown := &kusciapb.UpdateStrategy{Type: string(strategy.Type)}
	if rolling := strategy.RollingUpdate; rolling != nil {
		if rolling.MaxSurge != nil {
			shown.MaxSurge = rolling.MaxSurge.String()
		}
		if rolling.MaxUnavailable != nil {
			shown.MaxUnavailable = rolling.MaxUnavailable.String()
		}
	}
	return shown
}

// BatchQueryServingStatus returns the statuses of servings, in the order of the request; missing servings are omitted.
func (s *Service) BatchQueryServingStatus(ctx context.Context,
	r *kusciapb.BatchQueryServingStatusRequest) (*kusciapb.BatchQueryServingStatusResponse, error) {
	data, err := s.batchQuery(ctx, r.GetServingIds())
	return &kusciapb.BatchQueryServingStatusResponse{Status: outcome(err, codeQueryServingStatus), Data: data}, nil
}

func (s *Service) batchQuery(ctx context.Context, ids []string) (*kusciapb.BatchQueryServingStatusResponseData, error) {
	if len(ids) == 0 {
		return nil, invalid("serving ids can not be empty")
	}
	if slices.Contains(ids, "") {
		return nil, errNoServingID
	}
	found := make([]*kusciapb.ServingStatus, len(ids))
	err := declared.ForEach(len(ids), func(i int) error {
		kd, err := s.getServing(ctx, ids[i])
		if failure.Is(err, failure.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		version, err := s.shownVersion(ctx, kd)
		found[i] = &kusciapb.ServingStatus{ServingId: ids[i], Status: showStatus(kd, version)}
		return err
	})
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(one *kusciapb.ServingStatus) bool { return one == nil })
	return &kusciapb.BatchQueryServingStatusResponseData{Servings: found}, nil
}

// showStatus returns the status of a serving, even before the engine has written one; its parties are in the order of
// the spec.
func showStatus(kd *kuscia.KusciaDeployment, v serving.Version) *kusciapb.ServingStatusDetail {
	status, outdated := kd.Status, serving.Outdated(kd)
	shown := &kusciapb.ServingStatusDetail{State: stateName(status.Phase, outdated), Reason: status.Reason,
		Message:      status.Message,
		TotalParties: int32(len(v.Spec.Parties)), AvailableParties: int32(status.AvailableParties),
		CreateTime: showTime(&kd.CreationTimestamp)}
	if outdated {
		shown.Reason, shown.Message = serving.Refusal(kd)
		shown.AvailableParties = 0
	}
	for i, p := range v.Spec.Parties {
		shown.PartyStatuses = append(shown.PartyStatuses,
			showParty(kd, v, i, status.PartyDeploymentStatuses[p.DomainID]))
	}
	return shown
}

// showParty returns the status of a party. For a party that was never observed, only the requested replicas are known:
// its operation may just have begun, or its worker is unreachable, and none of the pods is available.
func showParty(kd *kuscia.KusciaDeployment, v serving.Version, index int,
	deployments map[string]kuscia.PartyDeploymentStatus) *kusciapb.PartyServingStatus {
	p := v.Spec.Parties[index]
	status, outdated := deployments[serving.DeploymentName(kd.Name, p.Role)], serving.Outdated(kd)
	shown := &kusciapb.PartyServingStatus{DomainId: p.DomainID, Role: p.Role,
		State: stateName(status.Phase, outdated), CreateTime: showTime(status.CreationTimestamp),
		Endpoints: convert.MapSlice(serving.Endpoints(v, index), func(e serving.Endpoint) *kusciapb.ServingPartyEndpoint {
			return &kusciapb.ServingPartyEndpoint{PortName: e.PortName, Scope: e.Scope, Endpoint: e.Endpoint}
		})}
	if status.ObservedAt == nil {
		shown.Replicas = v.Replicas(index)
		shown.UnavailableReplicas = shown.Replicas
		return shown
	}
	shown.Replicas, shown.UpdatedReplicas = status.Replicas, status.UpdatedReplicas
	shown.AvailableReplicas, shown.UnavailableReplicas = status.AvailableReplicas, status.UnavailableReplicas
	if outdated {
		shown.UpdatedReplicas = 0
	}
	return shown
}

// stateName returns the phase as a name of ServingState.State.
func stateName(phase kuscia.Phase, outdated bool) string {
	if phase == kuscia.PhasePending {
		return kusciapb.ServingState_Pending.String()
	}
	if outdated {
		return kusciapb.ServingState_Progressing.String()
	}
	if _, known := kusciapb.ServingState_State_value[string(phase)]; known {
		return string(phase)
	}
	return kusciapb.ServingState_Unknown.String()
}

// showTime formats a time for clients; "" for none.
func showTime(t *metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return phrase.Time(t.Time)
}
