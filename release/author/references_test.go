package author

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/phrase"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	var out map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &out))
	return out
}

const (
	canary = `{spec: {strategy: {canary: {trafficRoutings: [%s]}}}}`
	web    = `{service: web, ingress: {classType: nginx, name: web}}`
	route  = `{service: web, gateway: {httpRouteName: web}}`
	mesh   = `{service: web, customNetworkRefs: [{apiVersion: networking.istio.io/v1, kind: VirtualService, name: a}, ` +
		`{apiVersion: v1, kind: Proxy, name: b}]}`
)

const ingressWeb, routeWeb = "ingresses.networking.k8s.io web", "httproutes.gateway.networking.k8s.io web"

func rollout(entries ...string) string { return fmt.Sprintf(canary, strings.Join(entries, ", ")) }

// Each reference that an edit adds is asked for; those that were there before are not the author's.
func TestAsked(t *testing.T) {
	t.Parallel()
	marked := func(text, mark string) string {
		return strings.Replace(text, "{spec", "{metadata: {annotations: {"+AnnotationChecked+": "+mark+"}}, spec", 1)
	}
	for name, c := range map[string]struct {
		reason, old, edited string
		want                []string
	}{
		"Ingress": {"A new object's Ingress is asked for.", "", rollout(web), []string{ingressWeb}},
		"Route": {"So is an HTTPRoute.", "", rollout(route),
			[]string{routeWeb}},
		"Custom": {"So is each custom object, also one of the core group.", "", rollout(mesh),
			[]string{"virtualservices.networking.istio.io a", "proxies b"}},
		"BlueGreen": {"The other style has the same field.", "",
			strings.Replace(rollout(web), "canary", "blueGreen", 1), []string{ingressWeb}},
		"TrafficRouting": {"A TrafficRouting has a field of its own.", "", "{spec: {objectRef: [" + route + "]}}",
			[]string{routeWeb}},
		"Several": {"An entry may name several providers.", "", rollout(strings.Replace(web, "{service: web",
			"{service: web, gateway: {httpRouteName: b}", 1)),
			[]string{"ingresses.networking.k8s.io web", "httproutes.gateway.networking.k8s.io b"}},
		"Repeated": {"The same object is asked for once.", "", rollout(web, web),
			[]string{ingressWeb}},
		"None":  {"An object without routes needs nothing.", "", "{spec: {strategy: {canary: {}}}}", nil},
		"Kept":  {"References of before need nothing.", rollout(web, mesh), rollout(mesh, web), nil},
		"Added": {"Only the new one is asked for.", rollout(web), rollout(web, route), []string{routeWeb}},
		"Moved": {"The style doesn't matter.", rollout(web),
			strings.Replace(rollout(web), "canary", "blueGreen", 1), nil},
		"Marked": {"An edit can ask for a check of all.", rollout(web), marked(rollout(web), "x"), []string{ingressWeb}},
		"Keeps":  {"The same mark asks for nothing.", marked(rollout(web), "x"), marked(rollout(web), "x"), nil},
		"Unmark": {"Neither does its removal: it proves less.", marked(rollout(web), "x"), rollout(web), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, err := Asked(object(t, c.old), object(t, c.edited))
			require.NoError(t, err)
			texts := phrase.Each(asked, func(r Reference) string { return r.Kind() + " " + r.Name })
			require.ElementsMatch(t, c.want, texts, c.reason)
		})
	}
}

// What can't be read or is too much is refused: the API server could not answer it either.
func TestAsked_RefusesWhatItCannotCheck(t *testing.T) {
	t.Parallel()
	entries := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("{service: web, ingress: {name: w%[1]d}, gateway: {httpRouteName: w%[1]d}}", i))
		}
		return rollout(all...)
	}
	_, err := Asked(nil, object(t, entries(10)))
	require.NoError(t, err)
	_, err = Asked(nil, object(t, entries(11)))
	require.EqualError(t, err, "the edit adds 22 references to objects, and at most 20 are checked at once: add the "+
		"others by further edits")
	_, err = Asked(object(t, entries(10)), object(t, entries(11)))
	require.NoError(t, err, "by two edits they are possible")
	_, err = Asked(nil, object(t, entries(17)))
	require.EqualError(t, err, "the object has 17 entries of routes, and may have 16")
	for _, wrong := range []string{"{spec: {objectRef: {}}}", "{spec: {objectRef: [1]}}",
		"{spec: {objectRef: [{customNetworkRefs: [{kind: A, name: b}]}]}}",
		"{spec: {objectRef: [{customNetworkRefs: x}]}}"} {
		_, err = Asked(nil, object(t, wrong))
		require.ErrorContains(t, err, "can't be read", wrong)
	}
}

func TestPlural(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"Ingress": "ingresses", "HTTPProxy": "httpproxies", "Gateway": "gateways",
		"VirtualService": "virtualservices", "Canary": "canaries", "TLSRoute": "tlsroutes", "Mesh": "meshes",
		"Switch": "switches", "Box": "boxes"} {
		require.Equal(t, want, plural(kind))
	}
}
