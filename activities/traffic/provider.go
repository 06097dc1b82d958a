package traffic

import (
	"context"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// job is one routing of a request, and what is asked of it.
type job struct {
	namespace string
	routing   strategy.Routing
	pair      traffic.ServicePair
	asks      strategy.Traffic
	hand      traffic.Hand
	version   traffic.Version
}

// stable and canary are the job's two Services.
func (j job) stable() place { return services.at(j.namespace, j.pair.Stable) }

func (j job) canary() place { return services.at(j.namespace, j.pair.Canary) }

// provider is what routes requests to Services. ensure and finalise read the world, write what differs, and say whether they wrote
// anything; a change is verified by another round that finds nothing left to write.
type provider interface {
	// initialise checks without a write that the routing objects are there and lead to the Service; it fails with failure.Refused.
	initialise(ctx context.Context, a *Activities, j job) error
	// try finds out without a write whether the routes can do what the job asks; it fails with failure.Refused.
	try(ctx context.Context, a *Activities, j job) error
	// ensure has the routes do what the job asks.
	ensure(ctx context.Context, a *Activities, j job) (bool, error)
	// finalise makes the routing objects what they were.
	finalise(ctx context.Context, a *Activities, j job) (bool, error)
	// places are the objects that the provider reads and writes.
	places(ctx context.Context, a *Activities, j job) ([]place, error)
}

func providerOf(r strategy.Routing) provider {
	if r.Ingress != nil {
		return ingressProvider{}
	}
	return borrowingProvider{}
}

// jobs are the routings of a request.
func jobs(req rollout.RouteRequest) []job {
	var out []job
	for _, r := range req.Routings {
		pair := traffic.ServicePair{Stable: r.Service, Canary: r.CanaryService()}
		if req.NoCanary {
			pair.Canary = r.Service
		}
		asks := req.Traffic
		if req.Action == rollout.RouteToNew {
			all := int32(100)
			asks = strategy.Traffic{Weight: &all, RequestHeaderModifier: req.Traffic.RequestHeaderModifier}
		}
		out = append(out, job{
			namespace: req.Workload.Namespace, routing: r, pair: pair, asks: asks,
			hand: traffic.Hand{Claim: req.Claim, TakeOver: req.TakeOver, Overwrite: req.Overwrite},
			version: traffic.Version{
				Workload: req.Workload.WorkloadRef.Name, Label: rollout.RevisionLabel(req.Workload.WorkloadRef.Kind), Hash: req.CanaryHash,
				Labels: req.CanaryLabels, Claim: req.Claim,
			},
		})
	}
	return out
}

// existing reads an object; absent is the failure when it is not there.
func (a *Activities) existing(ctx context.Context, p place, absent func(place) error) (traffic.Object, error) {
	live, err := a.get(ctx, p)
	if err == nil && live == nil {
		err = absent(p)
	}
	return live, err
}

// borrowed reads an object that marks stay on.
func (a *Activities) borrowed(ctx context.Context, p place, absent func(place) error) (traffic.Borrowed, error) {
	live, err := a.existing(ctx, p, absent)
	if err != nil {
		return traffic.Borrowed{}, err
	}
	return traffic.Look(p.String(), live)
}

// derivation is what becomes of the original of an object, and at which pointers it differs.
type derivation func(original traffic.Object) (traffic.Object, []string, error)

// borrow has an object be what derive makes of its original.
func (a *Activities) borrow(ctx context.Context, p place, h traffic.Hand, derive derivation) (bool, error) {
	b, err := a.borrowed(ctx, p, vanished)
	if err != nil {
		return false, err
	}
	w, err := b.Want(h, derive)
	if err != nil || w == nil {
		return false, err
	}
	return a.write(ctx, p, b.Live(), w)
}

// giveBack makes a borrowed object what it was; one that was deleted needs nothing.
func (a *Activities) giveBack(ctx context.Context, p place, h traffic.Hand) (bool, error) {
	live, err := a.get(ctx, p)
	if err != nil || live == nil {
		return false, err
	}
	b, err := traffic.Look(p.String(), live)
	if err != nil {
		return false, err
	}
	w, err := b.Return(h)
	if err != nil || w == nil {
		return false, err
	}
	return true, a.send(ctx, p, live, w.Ops())
}

// keep has an object that we make be as desired.
func (a *Activities) keep(ctx context.Context, p place, h traffic.Hand, desired traffic.Object, paths []string) (bool, error) {
	live, err := a.get(ctx, p)
	if err != nil {
		return false, err
	}
	if live == nil {
		return true, a.create(ctx, p, desired, paths)
	}
	w, err := traffic.LookCreated(p.String(), live).Want(h, desired, paths)
	if err != nil || w == nil {
		return false, err
	}
	return a.write(ctx, p, live, w)
}

// clear deletes an object that we made; one that we did not make is left alone.
func (a *Activities) clear(ctx context.Context, p place, h traffic.Hand) (bool, error) {
	live, err := a.get(ctx, p)
	if err != nil || live == nil {
		return false, err
	}
	c := traffic.LookCreated(p.String(), live)
	if c.Foreign() {
		return false, nil
	}
	if err := c.Mine(h); err != nil {
		return false, err
	}
	return true, a.remove(ctx, p, live)
}
