package workload

import (
	"context"
	"slices"

	"slipway.io/slipway/kube"
)

// needs are the permissions that operations on a kind take, in one namespace.
func (a *Activities) needs(s scope) []kube.Permission {
	return slices.Concat(kube.Needs(kinds[s.kind].resource.Group, kinds[s.kind].resource.Resource, s.namespace, "get", "list",
		"watch", "patch"),
		kube.Needs("", "pods", s.namespace, "list", "watch", "delete"))
}

// lacking says, for each kind and namespace, which permissions this worker does not have; "" when it has all.
func (a *Activities) lacking(ctx context.Context, groups map[scope][]int) (map[scope]string, error) {
	asked := kube.NewPermissions(a.client.AuthorizationV1(), a.options.CallTimeout)
	var all []kube.Permission
	for s := range groups {
		all = append(all, a.needs(s)...)
	}
	if err := asked.Ask(ctx, all); err != nil {
		return nil, err
	}
	out := map[scope]string{}
	for s := range groups {
		out[s] = asked.Lacks(a.needs(s))
	}
	return out, nil
}
