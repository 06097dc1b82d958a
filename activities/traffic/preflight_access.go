package traffic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	needs, err := c.needs(j)
	if err != nil {
		return "", err
	}
	var lacking []string
	for gvr, verbs := range needs {
		namespace, name := j.namespace, ""
		if gvr == configMapsGVR {
			namespace, name = cmp.Or(c.a.options.ScriptsNamespace, namespace), c.a.options.ScriptsConfigMap // no other is read, so none has to be permitted
		}
		for _, verb := range verbs {
			allowed, err := c.a.may(ctx, authv1.ResourceAttributes{Group: gvr.Group, Resource: gvr.Resource, Verb: verb, Namespace: namespace, Name: name})
			if err != nil {
				return "", err
			}
			if !allowed {
				lacking = append(lacking, verb+" "+gvr.Resource)
			}
		}
	}
	if len(lacking) == 0 {
		return "", nil
	}
	slices.Sort(lacking)
	return fmt.Sprintf("this party's worker may not %s in namespace %s: grant it that", strings.Join(lacking, ", "), j.namespace), nil
}

// may asks the API server about one permission of ours.
func (a *Activities) may(ctx context.Context, attributes authv1.ResourceAttributes) (bool, error) {
	call, cancel := a.call(ctx)
	defer cancel()
	review, err := a.client.AuthorizationV1().SelfSubjectAccessReviews().Create(call, &authv1.SelfSubjectAccessReview{
		Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
