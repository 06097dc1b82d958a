package author

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admission/v1"
	authorization "k8s.io/api/authorization/v1"
	"sigs.k8s.io/yaml"
)

// reviewOf returns the review of an edit by anna, as an API server sends it.
func reviewOf(t *testing.T, old, edited string) []byte {
	t.Helper()
	if old == "" {
		old = "null"
	}
	raw, err := yaml.YAMLToJSON(fmt.Appendf(nil, `{kind: AdmissionReview, apiVersion: admission.k8s.io/v1, request: {
uid: u-1, kind: {group: rollouts.kruise.io, version: v1beta1, kind: Rollout}, namespace: shop, operation: UPDATE,
userInfo: {username: anna, uid: "7", groups: [devs], extra: {scopes: [a, b]}}, object: %s, oldObject: %s}}`, edited, old))
	require.NoError(t, err)
	return raw
}

func titled(text string) string {
	return strings.Replace(text, "{spec", "{metadata: {name: web}, spec", 1)
}

func TestReview(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason, old, edited string
		may                 []string
		says                string
	}{
		"Denied": {"A user who may not change the object is refused, with the name of the object.", "", rollout(web), nil,
			"user anna may not patch ingresses.networking.k8s.io web in namespace shop, to which Rollout web refers"},
		"Allowed": {"One who may passes.", "", rollout(web), []string{"patch ingresses.networking.k8s.io web"}, ""},
		"Half": {"All are asked for.", "", rollout(web, route), []string{"patch ingresses.networking.k8s.io web"},
			"may not patch httproutes.gateway.networking.k8s.io web"},
		"Kept": {"What another user has written isn't asked for.", rollout(web), rollout(web), nil, ""},
		"Refers": {"A permission of its own is enough for all objects.", "", rollout(web, route),
			[]string{"refer releases.slipway.io "}, ""},
		"TooMuch": {"An edit that can't be checked is refused.", "", rollout(strings.Repeat(web+", ", 16) + web), nil,
			"may have 16"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := Reviewer{Engine: func(string, string) bool { return false },
				May: func(q authorization.SubjectAccessReviewSpec) (bool, error) {
					require.Equal(t, "anna", q.User)
					require.Equal(t, "7", q.UID)
					require.Equal(t, []string{"devs"}, q.Groups)
					require.Equal(t, map[string]authorization.ExtraValue{"scopes": {"a", "b"}}, q.Extra)
					r := q.ResourceAttributes
					require.Equal(t, "shop", r.Namespace)
					asked := r.Verb + " " + Reference{r.Group, r.Resource, r.Name}.Kind() + " " + r.Name
					for _, one := range c.may {
						if one == asked {
							return true, nil
						}
					}
					return false, nil
				}}
			old := c.old
			if old != "" {
				old = titled(old)
			}
			response := answered(t, a, reviewOf(t, old, titled(c.edited)))
			require.Equal(t, c.says == "", response.Allowed, c.reason)
			if c.says != "" {
				require.Contains(t, response.Result.Message, c.says, c.reason)
				require.EqualValues(t, 403, response.Result.Code)
			}
		})
	}
}

func answered(t *testing.T, a Reviewer, request []byte) *admission.AdmissionResponse {
	t.Helper()
	raw, err := a.Review(request)
	require.NoError(t, err)
	var out admission.AdmissionReview
	require.NoError(t, json.Unmarshal(raw, &out))
	require.EqualValues(t, "u-1", out.Response.UID)
	return out.Response
}

// The engine passes without a question; a question that can't be asked is an error, so that the edit fails.
func TestReview_EngineAndErrors(t *testing.T) {
	t.Parallel()
	asks := errors.New("asked")
	a := Reviewer{Engine: func(user, namespace string) bool { return user == "anna" && namespace == "shop" },
		May: func(authorization.SubjectAccessReviewSpec) (bool, error) { return true, asks }}
	request := reviewOf(t, "", titled(rollout(web)))
	require.True(t, answered(t, a, request).Allowed)
	a.Engine = func(string, string) bool { return false }
	_, err := a.Review(request)
	require.ErrorIs(t, err, asks)
	_, err = a.Review([]byte(`{"kind":"Other"}`))
	require.Error(t, err)
}

// A review that isn't read to its end is refused, unless the engine makes the edit.
func TestRefuse(t *testing.T) {
	t.Parallel()
	engine := ""
	a := Reviewer{Engine: func(user, _ string) bool { return user == engine }}
	beginning := []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1",` +
		`"kind":{"kind":"Rollout"},"namespace":"shop","userInfo":{"username":"anna","groups":["a"]},"object":{"spec":"aaa`)
	for _, allowed := range []bool{false, true} {
		if allowed {
			engine = "anna"
		}
		raw, err := a.Refuse(beginning, "it is too large")
		require.NoError(t, err)
		var out admission.AdmissionReview
		require.NoError(t, json.Unmarshal(raw, &out))
		require.Equal(t, allowed, out.Response.Allowed)
		if !allowed {
			require.Contains(t, out.Response.Result.Message, "it is too large")
		}
	}
}
