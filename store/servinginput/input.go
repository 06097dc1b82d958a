// Package servinginput makes the input of a serving's operation from what the home cluster declares. The server starts
// the operation with it; the operation itself makes it again, and does nothing if it was started with another one.
package servinginput

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
)

// Home is what is read of the home cluster.
type Home interface {
	Engine(ctx context.Context) (workload.Engine, error)
	GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error)
	Queue(ctx context.Context, party string) (queue string, known bool, err error)
}

// Of returns the input of an operation of that kind; refusals is why it cannot start. The caller adds the settings.
func Of(ctx context.Context, home Home, kd *kuscia.KusciaDeployment, kind string) (in serving.Input, refusals string,
	err error) {
	r := reader{home}
	in = serving.Input{ID: kd.Name, UID: string(kd.UID), Generation: kd.Generation, Kind: kind}
	if in.Engine, err = r.home.Engine(ctx); err != nil {
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
	former, err := serving.ServedVersion(kd)
	if err != nil {
		return in, "", err
	}
	if kind == serving.KindDelete {
		in.Parties, err = r.deletionTargets(ctx, kd, former)
		return in, "", err
	}
	parties := kd.Spec.Parties
	if kind == serving.KindRecreate { // it restores the version that served, regardless of the current spec
		parties = former.Spec.Parties
	} else if wrong := serving.ChangedParties(kd, former); wrong != "" {
		return in, wrong, nil
	}
	var unknown []string
	if in.Parties, unknown, err = r.targets(ctx, kd.Name, parties); err != nil || len(unknown) > 0 {
		return in, strings.Join(unknown, "; "), err
	}
	if served := kd.Status.Served; served != nil {
		in.Previous, in.PreviousDigest = served.Version, served.Digest
	}
	if kind == serving.KindRecreate {
		in.Target, in.TargetDigest, in.Previous, in.PreviousDigest = in.Previous, in.PreviousDigest, nil, ""
		return in, "", nil
	}
	refusals, err = r.target(ctx, kd, &in)
	return in, refusals, err
}

type reader struct{ home Home }

// deletionTargets returns the parties from which a deletion removes workloads: those of the spec, of the version that
// served, and those of operations that began. For an unknown domain the recorded queue is used; a party without any
// operation runs nothing.
func (r reader) deletionTargets(ctx context.Context, kd *kuscia.KusciaDeployment,
	former *serving.Version) ([]serving.PartyTarget, error) {
	parties := slices.Clone(kd.Spec.Parties)
	if former != nil {
		parties = append(parties, former.Spec.Parties...)
	}
	for _, p := range serving.RemovedParties(kd) {
		parties = append(parties, kuscia.Party{DomainID: p.Domain, Role: p.Role})
	}
	var all []serving.PartyTarget
	for _, p := range parties {
		target, known, err := r.partyTarget(ctx, kd.Name, p)
		if err != nil {
			return nil, err
		}
		if !known {
			target.Queue = kd.Status.PartyDeploymentStatuses[p.DomainID][target.Deployment].Queue
		}
		if target.Queue != "" && !slices.Contains(all, target) {
			all = append(all, target)
		}
	}
	return all, nil
}

func (r reader) target(ctx context.Context, kd *kuscia.KusciaDeployment, in *serving.Input) (refusals string,
	err error) {
	images, err := r.images(ctx, kd)
	if err != nil {
		return "", err
	}
	version := serving.Snapshot(kd, images)
	if problems := version.Check(); len(problems) > 0 {
		texts := phrase.Each(problems, func(p serving.Problem) string { return p.Message })
		return strings.Join(texts, "; "), nil
	}
	if in.Target, err = version.Pack(); err != nil {
		return "", err
	}
	if size := len(in.Target) + len(in.Previous); size > serving.MaxInput {
		return fmt.Sprintf("the serving and its AppImages have %d bytes when they are packed, and at most %d can be "+
			"handed to its parties: make them smaller", size, serving.MaxInput), nil
	}
	in.TargetDigest, err = version.Digest()
	return "", err
}

// images returns the AppImages that a serving names and that exist.
func (r reader) images(ctx context.Context, kd *kuscia.KusciaDeployment) (map[string]kuscia.AppImageSpec, error) {
	images := map[string]kuscia.AppImageSpec{}
	for _, party := range kd.Spec.Parties {
		if _, known := images[party.AppImageRef]; known || party.AppImageRef == "" {
			continue
		}
		image, err := r.home.GetAppImage(ctx, party.AppImageRef)
		switch {
		case failure.Is(err, failure.NotFound): // reported by Check
		case err != nil:
			return nil, err
		default:
			images[party.AppImageRef] = image.Spec
		}
	}
	return images, nil
}

// targets returns parties of a serving with their queues; unknown describes those that are unknown or can't be used.
func (r reader) targets(ctx context.Context, id string,
	parties []kuscia.Party) (targets []serving.PartyTarget, unknown []string, err error) {
	for _, party := range parties {
		target, known, err := r.partyTarget(ctx, id, party)
		switch {
		case failure.Is(err, failure.Refused):
			unknown = append(unknown, err.Error())
		case err != nil:
			return nil, nil, err
		case known:
			targets = append(targets, target)
		default:
			unknown = append(unknown,
				fmt.Sprintf("domain %s is neither a party nor a namespace of the home cluster: create one of the two",
					party.DomainID))
		}
	}
	return targets, unknown, nil
}

// partyTarget returns a party of a serving with its queue; known is false if its domain is unknown.
func (r reader) partyTarget(ctx context.Context, id string, p kuscia.Party) (target serving.PartyTarget,
	known bool, err error) {
	target = serving.PartyTarget{Domain: p.DomainID, Role: p.Role, Deployment: serving.DeploymentName(id, p.Role)}
	target.Queue, known, err = r.home.Queue(ctx, p.DomainID)
	return target, known, err
}
