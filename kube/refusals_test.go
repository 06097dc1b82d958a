package kube_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/kube"
)

// server plays an API server that answers requests with 403, and reviews according to allows.
type server struct {
	mu sync.Mutex
	// forbids is how many requests are answered with 403; the others succeed.
	forbids int
	// allows is the answer of a review; nil: the review itself is forbidden.
	allows   func(a *authv1.ResourceAttributes) bool
	reviewed []string
	requests []string
	bodies   []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
		s.review(w, r)
		return
	}
	body := new(strings.Builder)
	_, _ = io.Copy(body, r.Body)
	s.requests, s.bodies = append(s.requests, r.Method+" "+r.URL.Path), append(s.bodies, body.String())
	if len(s.requests) > s.forbids {
		_ = json.NewEncoder(w).Encode(&appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1",
			Kind: "Deployment"}})
		return
	}
	forbid(w, `deployments.apps "order" is forbidden: exceeded quota: q`)
}

func (s *server) review(w http.ResponseWriter, r *http.Request) {
	var review authv1.SelfSubjectAccessReview
	body, _ := io.ReadAll(r.Body)
	// clients send protobuf, the reviews of refusals are JSON
	_, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review)
	if s.allows == nil || r.Header.Get("Authorization") != "Bearer secret" || err != nil {
		forbid(w, "no reviews")
		return
	}
	a := review.Spec.ResourceAttributes
	s.reviewed = append(s.reviewed, strings.Join([]string{a.Verb, a.Group, a.Resource, a.Namespace, a.Name,
		a.Subresource}, " "))
	review.Status.Allowed = s.allows(a)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

func forbid(w http.ResponseWriter, why string) {
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Reason: metav1.StatusReasonForbidden, Message: why})
}

func (s *server) client(t *testing.T) kube.Typed {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	client, _, err := kube.NewClients(kube.Configure(&rest.Config{Host: web.URL, BearerToken: "secret"},
		kube.Options{}))
	require.NoError(t, err)
	return client
}

func TestAForbiddenRequestIsReviewed(t *testing.T) {
	t.Parallel()
	yes := func(*authv1.ResourceAttributes) bool { return true }
	patch := func(kind types.PatchType, subresources ...string) func(t *testing.T, c kube.Typed) error {
		return func(t *testing.T, c kube.Typed) error {
			_, err := c.AppsV1().Deployments("shop").Patch(t.Context(), "order", kind, []byte("{}"),
				metav1.PatchOptions{FieldManager: "slipway"}, subresources...)
			return err
		}
	}
	cases := map[string]struct {
		reason   string
		server   *server
		do       func(t *testing.T, c kube.Typed) error
		want     kube.Class
		reviewed []string
		requests int
	}{
		"lost permission": {reason: "the review says no: system trouble",
			server: &server{forbids: 9, allows: func(*authv1.ResourceAttributes) bool { return false }},
			do:     patch(types.JSONPatchType), want: kube.Forbidden,
			reviewed: []string{"patch apps deployments shop order "}, requests: 1},
		"quota": {reason: "the review says yes, and the repeated request is refused again: a rule of the cluster",
			server: &server{forbids: 9, allows: yes},
			do:     patch(types.JSONPatchType), want: kube.Refused,
			reviewed: []string{"patch apps deployments shop order "}, requests: 2},
		"no reviews": {reason: "without an answer it remains system trouble", server: &server{forbids: 9},
			do: patch(types.JSONPatchType), want: kube.Forbidden, requests: 1},
		"apply may create": {reason: "an apply needs the permission to create too",
			server: &server{forbids: 9, allows: func(a *authv1.ResourceAttributes) bool { return a.Verb != "create" }},
			do:     patch(types.ApplyYAMLPatchType), want: kube.Forbidden,
			reviewed: []string{"patch apps deployments shop order ", "create apps deployments shop order "},
			requests: 1},
		"status": {reason: "a subresource needs its own permission", server: &server{forbids: 9, allows: yes},
			do: patch(types.MergePatchType, "status"), want: kube.Refused,
			reviewed: []string{"patch apps deployments shop order status"}, requests: 2},
		"list": {reason: "a list is distinguished from a get", server: &server{forbids: 9, allows: yes},
			do: func(t *testing.T, c kube.Typed) error {
				_, err := c.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
				return err
			}, want: kube.Refused, reviewed: []string{"list  pods shop  "}, requests: 2},
		"namespace": {reason: "a namespace is an object itself", server: &server{forbids: 9, allows: yes},
			do: func(t *testing.T, c kube.Typed) error {
				return c.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{})
			}, want: kube.Refused, reviewed: []string{"delete  namespaces shop shop "}, requests: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tc.server
			err := tc.do(t, s.client(t))
			require.True(t, apierrors.IsForbidden(err), "%s: %v", tc.reason, err)
			require.Contains(t, err.Error(), "exceeded quota: q", "the server's own text is kept")
			require.Equal(t, tc.want, kube.Classify(err), tc.reason)
			require.Equal(t, tc.reviewed, s.reviewed, tc.reason)
			require.Len(t, s.requests, tc.requests, tc.reason)
		})
	}
}

// It refuses once, before it has loaded the rules.
func TestForbiddenRequestIsRepeated_WhenAPIServerJustStarted(t *testing.T) {
	t.Parallel()
	s := &server{forbids: 1, allows: func(*authv1.ResourceAttributes) bool { return true }}
	_, err := s.client(t).AppsV1().Deployments("shop").Patch(t.Context(), "order", types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/a"}]`), metav1.PatchOptions{})
	require.NoError(t, err, "the request is repeated")
	require.Equal(t, []string{`[{"op":"remove","path":"/a"}]`, `[{"op":"remove","path":"/a"}]`}, s.bodies,
		"with the same body")
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	s := &server{allows: func(a *authv1.ResourceAttributes) bool {
		return a.Resource == "pods" || a.Namespace == "shop" && a.Verb == "get"
	}}
	asked := kube.NewPermissions(s.client(t))
	needs := []kube.Permission{{Verb: "list", Resource: "pods", Namespace: "shop"},
		{Verb: "get", Group: "apps", Resource: "deployments", Namespace: "shop"},
		{Verb: "patch", Group: "apps", Resource: "deployments", Namespace: "shop"},
		{Verb: "get", Resource: "configmaps", Namespace: "scripts", Name: "lua"}}
	require.NoError(t, asked.Ask(t.Context(), needs))
	require.Equal(t, "this party's worker may not get configmaps in namespace scripts, nor patch deployments in "+
		"namespace shop: grant it that", asked.Lacks(needs))
	require.Empty(t, asked.Lacks(needs[:2]), "one permission is granted everywhere, the other in the namespace")
	count := len(s.reviewed)
	require.NoError(t, asked.Ask(t.Context(), needs))
	require.Len(t, s.reviewed, count, "no permission is asked twice")

	var many []kube.Permission
	for i := range 20 {
		many = append(many, kube.Permission{Verb: "watch", Resource: "pods", Namespace: fmt.Sprintf("n%d", i)})
	}
	require.NoError(t, asked.Ask(t.Context(), many))
	require.Empty(t, asked.Lacks(many))
	require.Len(t, s.reviewed, count+1, "a permission granted everywhere is not asked for in twenty namespaces")
}

// Answers are cached for a second, except refusals: after a missing permission is granted, a retry must not be refused
// again.
func TestRefusedPermissionIsAskedAgain(t *testing.T) {
	t.Parallel()
	granted := false
	s := &server{allows: func(*authv1.ResourceAttributes) bool { return granted }}
	cluster := kube.NewCluster(s.client(t), nil, nil)
	needs := []kube.Permission{{Verb: "list", Resource: "pods", Namespace: "shop"}}
	lacking, err := cluster.Permissions().Lacking(t.Context(), needs)
	require.NoError(t, err)
	require.Contains(t, lacking, "may not list pods in namespace shop")
	granted = true
	lacking, err = cluster.Permissions().Lacking(t.Context(), needs)
	require.NoError(t, err)
	require.Empty(t, lacking)
	kept := cluster.Permissions()
	require.Same(t, kept, cluster.Permissions(), "granted permissions are shared for a second")
}
