package traffic

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/kube"
)

var (
	podsGVR       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	slicesGVR     = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	configMapsGVR = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// needs are the permissions that one routing takes.
func (c *check) needs(j job) (map[schema.GroupVersionResource][]string, error) {
	out := map[schema.GroupVersionResource][]string{services.gvr: {"get"}}
	if !j.pair.Same() {
		out[services.gvr] = []string{"get", "create", "patch", "delete"}
		out[podsGVR], out[slicesGVR] = []string{"list"}, []string{"list"}
	}
	switch {
	case j.routing.Ingress != nil:
		out[ingresses.gvr] = []string{"get", "create", "patch", "delete"}
		out[configMapsGVR] = []string{"get"}
	case j.routing.HTTPRoute != "":
		out[httpRoutes.gvr] = []string{"get", "patch"}
	default:
		out[configMapsGVR] = []string{"get"}
		for _, ref := range j.routing.Custom {
			k, err := c.a.kinds.of(ref.APIVersion, ref.Kind)
			if err != nil {
				return nil, err
			}
			out[k.gvr] = []string{"get", "patch"}
		}
	}
	return out, nil
}

// permissions names the permissions that are not there, "" when all are.
func (c *check) permissions(ctx context.Context, j job) (string, error) {
	byResource, err := c.needs(j)
	if err != nil {
		return "", err
	}
	var needs []kube.Permission
	for gvr, verbs := range byResource {
		namespace, name := j.namespace, ""
		if gvr == configMapsGVR {
			// no other is read, so none has to be permitted
			namespace, name = cmp.Or(c.a.options.ScriptsNamespace, namespace), c.a.options.ScriptsConfigMap
		}
		for _, n := range kube.Needs(gvr.Group, gvr.Resource, namespace, verbs...) {
			n.Name = name
			needs = append(needs, n)
		}
	}
	return kube.NewPermissions(c.a.client.AuthorizationV1(), c.a.options.CallTimeout).Lacking(ctx, needs)
}
