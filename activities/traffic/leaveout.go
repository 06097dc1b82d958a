package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// This file is about what one of several routes cannot express. Clients of Kruise Rollouts declare an Ingress beside a
// VirtualService, and matches that only one of the two can make. Under a Rollout object (RouteRequest.LeaveOut) a step
// leaves the other one out, and names it, instead of being refused.

// omission is a route that a step leaves out, and the refusal of it.
type omission struct {
	// place is the route's object, users the user's: the canary of an Ingress is another one.
	place, users place
	refused      error
	// unused is true if the route sends no requests to the new version in any step.
	unused bool
}

func (o omission) String() string {
	if o.unused {
		return fmt.Sprintf("%s is left unchanged: %s", o.users, o.refused)
	}
	return fmt.Sprintf("%s sends the new version nothing: %s", o.users, o.refused)
}

// otherHost is the refusal of a DestinationRule of another host: it defines subsets that no request to the job's
// Services reaches.
type otherHost struct{ error }

func (o otherHost) Unwrap() error { return o.error }

// inexpressible reports whether an error is that a route cannot express what a step asks for, and whether that is so in
// every step. A weight is no such thing: without it the versions' shares would not be those of the step.
func inexpressible(err error, asks strategy.Traffic) (is, always bool) {
	var script *scriptRefusal
	var route *traffic.Inexpressible
	switch {
	case errors.As(err, &otherHost{}):
		return true, true
	case len(asks.Matches) == 0:
		return false, false
	}
	return errors.As(err, &script) && script.field != "" || errors.As(err, &route), false
}

// omitted tries the routes of several jobs of one step, and returns those that the step leaves out. It fails if none
// can send requests to the new version, or if one fails for another reason.
func (a *Activities) omitted(ctx context.Context, all []job, how func(job) trial) (out []omission, err error) {
	sends := false
	for _, j := range all {
		_, err := a.eachRoute(ctx, j, func(r route) (bool, error) {
			err := r.try(how(j))
			is, always := inexpressible(err, j.asks)
			switch {
			case is:
				out = append(out, omission{r.place, cmp.Or(r.users, r.place), err, always})
				return false, nil
			case err == nil:
				sends = sends || !r.subsets
			}
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	if !sends && len(out) > 0 {
		return nil, out[0].refused
	}
	return out, nil
}

// leavesOut reports whether the change leaves a route out.
func (t *routeJob) leavesOut(r route) bool {
	for _, o := range t.omitted {
		if o.place == r.place {
			return true
		}
	}
	return false
}

// make makes a route as the step asks, or, if the step leaves it out, restores it.
func (t *routeJob) make(r route) (bool, error) {
	if t.leavesOut(r) {
		return r.finalise()
	}
	return r.ensure()
}

// leftOut names the routes that were left out.
func (t *routeJob) leftOut() (names []string) {
	for _, o := range t.omitted {
		names = append(names, o.String())
	}
	return names
}
