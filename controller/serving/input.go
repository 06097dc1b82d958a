package serving

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// input is what an operation is started with; refusals say why it cannot be.
func (c *Controller) input(ctx context.Context, kd *kuscia.KusciaDeployment, kind string) (in serving.Input, refusals string, err error) {
	in = serving.Input{ID: kd.Name, UID: string(kd.UID), Generation: kd.Generation, Kind: kind,
		UnreachableBudgetSeconds: int64(c.options.UnreachableBudget / time.Second)}
	if in.Engine, err = c.home.Engine(ctx); err != nil {
		return in, "", err
	}
	policy, wrong := serving.DecodePolicy([]byte(kd.Annotations[serving.AnnotationPolicy]))
	if wrong != nil && kind != serving.KindDelete {
		return in, fmt.Sprintf("annotation %s: %v", serving.AnnotationPolicy, wrong.Err()), nil
	}
	in.Policy = policy
	if wrong := policy.CheckParties(kd.Spec.Parties); wrong != "" && kind != serving.KindDelete {
		return in, fmt.Sprintf("annotation %s: %s", serving.AnnotationPolicy, wrong), nil
	}
	former, err := served(kd)
	if err != nil {
		return in, "", err
	}
	if kind == serving.KindDelete {
		in.Parties, err = c.leaving(ctx, kd, former)
		return in, "", err
	}
	parties := kd.Spec.Parties
	if kind == serving.KindRecreate { // it brings back what served, whatever the spec has come to ask
		parties = former.Spec.Parties
	} else if wrong := checkBegun(kd, former); wrong != "" {
		return in, wrong, nil
	}
	var unknown []string
	if in.Parties, unknown, err = c.targets(ctx, kd.Name, parties); err != nil {
		return in, "", err
	}
	if len(unknown) > 0 {
		return in, strings.Join(unknown, "; "), nil
	}
	if served := kd.Status.Served; served != nil {
		in.Previous, in.PreviousDigest = served.Version, served.Digest
	}
	if kind == serving.KindRecreate {
		in.Target, in.TargetDigest, in.Previous, in.PreviousDigest = in.Previous, in.PreviousDigest, nil, ""
		return in, "", nil
	}
	refusals, err = c.target(ctx, kd, &in)
	return in, refusals, err
}

// served is the version that all parties came to run last; nil when there is none.
func served(kd *kuscia.KusciaDeployment) (*serving.Version, error) {
	if kd.Status.Served == nil {
		return nil, nil
	}
	version, err := serving.Unpack(kd.Status.Served.Version)
	return &version, err
}

// checkBegun says which parties a spec may not leave out or add, "" when all is well: what they run has to be removed by somebody.
func checkBegun(kd *kuscia.KusciaDeployment, former *serving.Version) string {
	if former != nil {
		return former.CheckParties(kd.Spec.Parties)
	}
	for _, p := range serving.LeftOut(kd) {
		return fmt.Sprintf("party %s is left out, and an operation has begun with it: put it back, "+
			"or delete the serving and create it without it", p.Name())
	}
	return ""
}

// leaving are the parties from which a deletion removes what they run: those of the spec, those of the version that served, and those that
// an operation has begun with. Of a domain that nobody knows any more the queue of before counts; one that no operation has begun with runs
// nothing.
func (c *Controller) leaving(ctx context.Context, kd *kuscia.KusciaDeployment, former *serving.Version) ([]serving.PartyTarget, error) {
	parties := slices.Clone(kd.Spec.Parties)
	if former != nil {
		parties = append(parties, former.Spec.Parties...)
	}
	for _, p := range serving.LeftOut(kd) {
		parties = append(parties, kuscia.Party{DomainID: p.Domain, Role: p.Role})
	}
	var all []serving.PartyTarget
	for _, p := range parties {
		target := serving.PartyTarget{Domain: p.DomainID, Role: p.Role, Deployment: serving.DeploymentName(kd.Name, p.Role)}
		queue, known, err := c.home.Queue(ctx, p.DomainID)
		if err != nil {
			return nil, err
		}
		if target.Queue = queue; !known {
			target.Queue = kd.Status.PartyDeploymentStatuses[p.DomainID][target.Deployment].Queue
		}
		if target.Queue != "" && !slices.Contains(all, target) {
			all = append(all, target)
		}
	}
	return all, nil
}

func (c *Controller) target(ctx context.Context, kd *kuscia.KusciaDeployment, in *serving.Input) (refusals string, err error) {
	images, err := c.images(ctx, kd)
	if err != nil {
		return "", err
	}
	version := serving.Snapshot(kd, images)
	if problems := version.Check(); len(problems) > 0 {
		var texts []string
		for _, p := range problems {
			texts = append(texts, p.Message)
		}
		return strings.Join(texts, "; "), nil
	}
	if in.Target, err = version.Pack(); err != nil {
		return "", err
	}
	if size := len(in.Target) + len(in.Previous); size > serving.MaxInput {
		return fmt.Sprintf("the serving and its AppImages have %d bytes when they are packed, and at most %d can be handed to its "+
			"parties: make them smaller", size, serving.MaxInput), nil
	}
	in.TargetDigest, err = version.Digest()
	return "", err
}

// images are the AppImages that a serving names, as far as they exist.
func (c *Controller) images(ctx context.Context, kd *kuscia.KusciaDeployment) (map[string]kuscia.AppImageSpec, error) {
	images := map[string]kuscia.AppImageSpec{}
	for _, party := range kd.Spec.Parties {
		if _, known := images[party.AppImageRef]; known || party.AppImageRef == "" {
			continue
		}
		image, err := c.home.GetAppImage(ctx, party.AppImageRef)
		switch {
		case failure.Is(err, failure.NotFound): // Check says so
		case err != nil:
			return nil, err
		default:
			images[party.AppImageRef] = image.Spec
		}
	}
	return images, nil
}

// targets are parties of a serving with their queues; unknown says which of them nobody knows.
func (c *Controller) targets(ctx context.Context, id string,
	parties []kuscia.Party) (targets []serving.PartyTarget, unknown []string, err error) {
	for _, party := range parties {
		queue, known, err := c.home.Queue(ctx, party.DomainID)
		if err != nil {
			return nil, nil, err
		}
		if !known {
			unknown = append(unknown,
				fmt.Sprintf("domain %s is neither a party nor a namespace of the home cluster: create one of the two", party.DomainID))
			continue
		}
		targets = append(targets,
			serving.PartyTarget{Domain: party.DomainID, Role: party.Role, Deployment: serving.DeploymentName(id, party.Role), Queue: queue})
	}
	return targets, unknown, nil
}
