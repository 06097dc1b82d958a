package kuscia

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/serving"
)

// CreateServing creates a serving. It is refused completely if a part of it cannot be carried out.
func (s *Service) CreateServing(ctx context.Context, r *kusciapb.CreateServingRequest) (*kusciapb.CreateServingResponse,
	error) {
	return &kusciapb.CreateServingResponse{Status: outcome(s.createServing(ctx, r), codeCreateServing)}, nil
}

func (s *Service) createServing(ctx context.Context, r *kusciapb.CreateServingRequest) error {
	id := r.GetServingId()
	if err := checkNewServing(r); err != nil {
		return err
	}
	if err := s.checkFree(ctx, id); err != nil {
		return err
	}
	spec, images, err := convert.NewSpec(r, s.readImages(ctx))
	if err != nil {
		return err
	}
	err = s.writer().Create(ctx, id, r.GetAffinityMode(), spec, images)
	if failure.Is(err, failure.Conflict) {
		return alreadyExists(id)
	}
	return err
}

// checkFree refuses an ID that exists, including one of a serving that is being deleted: its parties may still run it.
func (s *Service) checkFree(ctx context.Context, id string) error {
	if declared.CheckName(id) != nil {
		return nil // the check of the version reports the error
	}
	_, err := s.store.GetServing(ctx, id)
	switch {
	case err == nil:
		return alreadyExists(id)
	case failure.Is(err, failure.NotFound):
		return nil
	}
	return err
}

func alreadyExists(id string) error {
	return fmt.Errorf("serving %q already exists, please ensure that the name is not duplicated",
		kuscia.Namespace+"/"+id)
}

// checkNewServing refuses requests that are wrong regardless of the current state, with Kuscia's order of checks and
// messages.
func checkNewServing(r *kusciapb.CreateServingRequest) error {
	if r.GetServingId() == "" {
		return errNoServingID
	}
	if err := checkName("serving_id", r.GetServingId()); err != nil {
		return err
	}
	if r.GetInitiator() == "" {
		return invalid("initiator can not be empty")
	}
	if len(r.GetParties()) == 0 {
		return invalid("parties can not be empty")
	}
	if err := checkNewParties(r); err != nil {
		return err
	}
	return checkInputConfig(r.GetServingInputConfig())
}

var errNoServingID = invalid("serving id can not be empty")

func checkNewParties(r *kusciapb.CreateServingRequest) error {
	initiates := false
	for i, party := range r.GetParties() {
		if party.GetAppImage() == "" {
			return invalid("appimage can't be empty in parties[%d]", i)
		}
		if party.GetDomainId() == "" {
			return invalid("domain id can't be empty in parties[%d]", i)
		}
		if prefix := party.GetServiceNamePrefix(); prefix != "" && !serving.ServicePrefix.MatchString(prefix) {
			return invalid("service name prefix is invalid in parties[%d], field %q is invalid, invalid value: %q: "+
				"regex used for validation is %q ", i, "service_name_prefix", prefix, serving.ServicePrefix)
		}
		initiates = initiates || party.GetDomainId() == r.GetInitiator()
	}
	if !initiates {
		return invalid("initiator %s should be one of the parties", r.GetInitiator())
	}
	return checkNoneTwice(r.GetParties())
}

// checkNoneTwice refuses two parties with the same Deployment: Kuscia accepts them, and such a serving never becomes
// available.
func checkNoneTwice(parties []*kusciapb.ServingParty) error {
	first := map[[2]string]int{}
	for i, party := range parties {
		key := [2]string{party.GetDomainId(), party.GetRole()}
		if before, twice := first[key]; twice {
			return invalid("parties[%d] has domain_id/role %s/%s, which parties[%d] has already: give one of them "+
				"another role", i, key[0], key[1], before)
		}
		first[key] = i
	}
	return nil
}

func checkInputConfig(config string) error {
	if size := len(config); size > serving.MaxInputConfig {
		return invalid("serving input config has %d bytes, which is more than the %d that fit an environment "+
			"variable: let the application fetch what is large", size, serving.MaxInputConfig)
	}
	return nil
}

// UpdateServing changes a serving: its input configuration, and of the named parties the fields in the request. It
// changes all or nothing.
func (s *Service) UpdateServing(ctx context.Context, r *kusciapb.UpdateServingRequest) (*kusciapb.UpdateServingResponse,
	error) {
	return &kusciapb.UpdateServingResponse{Status: outcome(s.updateServing(ctx, r), codeUpdateServing)}, nil
}

func (s *Service) updateServing(ctx context.Context, r *kusciapb.UpdateServingRequest) error {
	if r.GetServingId() == "" {
		return errNoServingID
	}
	if r.GetServingInputConfig() == "" && len(r.GetParties()) == 0 {
		return nil // as in Kuscia, also for a missing serving
	}
	if err := checkInputConfig(r.GetServingInputConfig()); err != nil {
		return err
	}
	return failure.RetryOnConflict("serving "+r.GetServingId(), func() error {
		stored, err := s.getServing(ctx, r.GetServingId())
		if err != nil {
			return err
		}
		return s.changeServing(ctx, stored, r)
	})
}

// changeServing writes the requested serving, unless it equals the stored one. A Conflict means that the serving was
// changed after it was read.
func (s *Service) changeServing(ctx context.Context, stored *kuscia.KusciaDeployment,
	r *kusciapb.UpdateServingRequest) error {
	changed, err := declared.Effective(stored)
	if err != nil {
		return err
	}
	spec, images, err := convert.ChangedSpec(changed.Spec, r, s.readImages(ctx))
	if err != nil {
		return err
	}
	changed.Spec = spec
	_, err = s.writer().Change(ctx, stored, changed, images)
	return err
}

// DeleteServing deletes a serving. Queries no longer find it from now on; its parties are cleaned up afterwards.
func (s *Service) DeleteServing(ctx context.Context, r *kusciapb.DeleteServingRequest) (*kusciapb.DeleteServingResponse,
	error) {
	return &kusciapb.DeleteServingResponse{Status: outcome(s.deleteServing(ctx, r.GetServingId()), codeDeleteServing)},
		nil
}

func (s *Service) deleteServing(ctx context.Context, id string) error {
	if id == "" {
		return errNoServingID
	}
	return failure.RetryOnConflict("serving "+id, func() error {
		stored, err := s.getServing(ctx, id)
		if err != nil {
			return err
		}
		if err = s.store.DeleteServing(ctx, stored); failure.Is(err, failure.NotFound) {
			return notFound(kuscia.KusciaDeploymentResource.Resource, id)
		}
		return err
	})
}

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
	version, err := shownVersion(ctx, s.writer(), kd)
	if err != nil {
		return nil, err
	}
	return &kusciapb.QueryServingResponseData{
		ServingInputConfig: version.Spec.InputConfig, Initiator: version.Spec.Initiator,
		Parties: showParties(version), Status: showStatus(kd, version),
	}, nil
}

// shownVersion returns the version of a serving that queries show, with the current AppImages.
func shownVersion(ctx context.Context, home declared.Writer, kd *kuscia.KusciaDeployment) (serving.Version, error) {
	images, err := home.Images(ctx, kd.Spec.Parties)
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
		Replicas: p.Template.Replicas, ServiceNamePrefix: p.ServiceNamePrefix, UpdateStrategy: showStrategy(p)}
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

// BatchQueryServingStatus returns the statuses of servings, in the order of the request and as often as it names them;
// missing servings are omitted. Each is read once, from the API server: a client that polls after an update must not
// see the state before it.
func (s *Service) BatchQueryServingStatus(ctx context.Context,
	r *kusciapb.BatchQueryServingStatusRequest) (*kusciapb.BatchQueryServingStatusResponse, error) {
	data, err := s.batchQuery(ctx, r.GetServingIds())
	return &kusciapb.BatchQueryServingStatusResponse{Status: outcome(err, codeQueryServingStatus), Data: data}, nil
}

// maxBatch is the maximum number of IDs or names of a batch query.
const maxBatch = 500

// checkBatch refuses a batch query for more than maxBatch IDs or names.
func checkBatch(what string, n int) error {
	if n > maxBatch {
		return invalid("%s can not be more than %d, but there are %d: split the request", what, maxBatch, n)
	}
	return nil
}

func (s *Service) batchQuery(ctx context.Context, ids []string) (*kusciapb.BatchQueryServingStatusResponseData, error) {
	if len(ids) == 0 {
		return nil, invalid("serving ids can not be empty")
	}
	if err := checkBatch("serving ids", len(ids)); err != nil {
		return nil, err
	}
	if slices.Contains(ids, "") {
		return nil, errNoServingID
	}
	home := declared.Writer{Home: imagesOnce{s.store, &recent.Cache{}}}
	shown, err := readEach(ids, func(id string) (*kusciapb.ServingStatus, error) {
		kd, err := s.getServing(ctx, id)
		if err != nil {
			return nil, failure.Ignore(err, failure.NotFound)
		}
		version, err := shownVersion(ctx, home, kd)
		return &kusciapb.ServingStatus{ServingId: id, Status: showStatus(kd, version)}, err
	})
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(convert.MapSlice(ids, func(id string) *kusciapb.ServingStatus { return shown[id] }),
		func(one *kusciapb.ServingStatus) bool { return one == nil })
	return &kusciapb.BatchQueryServingStatusResponseData{Servings: found}, nil
}

// imagesOnce is a Home for one request, which reads each AppImage once, also one that does not exist.
type imagesOnce struct {
	declared.Home
	images *recent.Cache
}

// GetAppImage returns an AppImage that must not be changed.
func (h imagesOnce) GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error) {
	type answer struct {
		image *kuscia.AppImage
		err   error
	}
	read, err := recent.Get(ctx, h.images, name, callTimeout, func(ctx context.Context) (answer, error) {
		image, err := h.Home.GetAppImage(ctx, name)
		if failure.Is(err, failure.NotFound) {
			return answer{err: err}, nil
		}
		return answer{image: image}, err
	})
	return read.image, cmp.Or(err, read.err)
}

// readEach reads each object once, several at a time, and returns them by name. The error is that of the first name.
func readEach[T any](names []string, read func(name string) (T, error)) (map[string]T, error) {
	var distinct []string
	seen := map[string]bool{}
	for _, name := range names {
		if !seen[name] {
			seen[name], distinct = true, append(distinct, name)
		}
	}
	found := make([]T, len(distinct))
	err := declared.ForEach(len(distinct), func(i int) (err error) {
		found[i], err = read(distinct[i])
		return err
	})
	byName := make(map[string]T, len(distinct))
	for i, name := range distinct {
		byName[name] = found[i]
	}
	return byName, err
}

// showStatus returns the status of a serving, even before the engine has written one; its parties are in the order of
// the spec.
func showStatus(kd *kuscia.KusciaDeployment, v serving.Version) *kusciapb.ServingStatusDetail {
	status, outdated := kd.Status, serving.Outdated(kd)
	shown := &kusciapb.ServingStatusDetail{State: stateName(status.Phase, outdated), Reason: status.Reason,
		Message: status.Message, TotalParties: int32(len(v.Spec.Parties)), AvailableParties: int32(
			status.AvailableParties), CreateTime: showTime(&kd.CreationTimestamp)}
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
