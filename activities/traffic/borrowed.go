package traffic

import (
	"context"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
)

// Borrowed lists the objects of a request's routings that a release currently holds.
func (a *Activities) Borrowed(ctx context.Context, req rollout.RouteRequest) ([]kube.Ref, error) {
	var out []kube.Ref
	seen := map[kube.Ref]bool{}
	for _, j := range jobs(req) {
		places, err := providerOf(j.routing).places(ctx, a, j)
		if err != nil {
			return nil, err
		}
		for _, p := range append(places, j.stable(), j.canary()) {
			live, err := a.get(ctx, p)
			if err != nil {
				return nil, err
			}
			if live != nil && traffic.HolderOf(live) != "" && !seen[p.Ref] {
				seen[p.Ref] = true
				out = append(out, p.Ref)
			}
		}
	}
	return out, nil
}
