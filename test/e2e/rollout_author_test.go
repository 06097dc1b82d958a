package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/api/webhook"
	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/test/harness"
)

// The entries of routes that the tests of authors write.
const (
	byIngress = `{"service":"web","ingress":{"classType":"nginx","name":"web"}}`
	byRoute   = `{"service":"web","gateway":{"httpRouteName":"web"}}`
	byMesh    = `{"service":"web","customNetworkRefs":[{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","name":"web"}]}`
	byCanary  = `{"service":"web","customNetworkRefs":[{"apiVersion":"mesh.example.com/v1","kind":"Canary","name":"web"}]}`
	byProxy   = `{"service":"web","customNetworkRefs":[{"apiVersion":"mesh.example.com/v1","kind":"HTTPProxy","name":"web"}]}`
)

// rolloutBy returns a Rollout with these entries of routes.
func rolloutBy(name string, entries ...string) *unstructured.Unstructured {
	return authored(v1beta1.GroupVersion.String(), v1beta1.Kind, name, fmt.Sprintf(`{"workloadRef":{"apiVersion":`+
		`"apps/v1","kind":"Deployment","name":%q},"strategy":{"canary":{"steps":[{"replicas":"20%%","traffic":"20%%"},`+
		`{"replicas":"40%%","traffic":"60%%"}],`+
		`"trafficRoutings":[%s]}}}`, name, strings.Join(entries, ",")))
}

// sharedBy returns a TrafficRouting with these entries of routes.
func sharedBy(name string, entries ...string) *unstructured.Unstructured {
	return authored(trafficRoutings.GroupVersion().String(), v1alpha1.TrafficRoutingKind, name, fmt.Sprintf(
		`{"objectRef":[%s],"strategy":{"matches":[{"headers":[{"type":"Exact","name":"x-tag","value":"gray"}]}]}}`,
		strings.Join(entries, ",")))
}

func authored(apiVersion, kind, name, spec string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal([]byte(spec), &o.Object); err != nil {
		panic(err)
	}
	o.Object = map[string]any{"spec": o.Object}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	return o
}

func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	if o.GetKind() == v1beta1.Kind {
		return v1beta1.Resource
	}
	return trafficRoutings
}

// may lets the tenant do one thing.
func (n tenant) may(verb, group, resource string, names ...string) {
	n.t.Helper()
	meta := metav1.ObjectMeta{Name: harness.RandomName("tenant"), Namespace: n.Apps}
	_, err := n.Kube.RbacV1().Roles(n.Apps).Create(n.t.Context(), &rbacv1.Role{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb},
			ResourceNames: names}}}, metav1.CreateOptions{})
	require.NoError(n.t, err)
	_, err = n.Kube.RbacV1().RoleBindings(n.Apps).Create(n.t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "tenant", Namespace: n.Apps}}},
		metav1.CreateOptions{})
	require.NoError(n.t, err)
}

// tries creates an object as the tenant, without storing it.
func (n tenant) tries(o *unstructured.Unstructured) error {
	_, err := n.objects.Resource(resourceOf(o)).Namespace(n.Apps).Create(n.t.Context(), o,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// patches patches an object as the tenant.
func (n tenant) patches(o *unstructured.Unstructured, kind types.PatchType, patch string) error {
	_, err := n.objects.Resource(resourceOf(o)).Namespace(n.Apps).Patch(n.t.Context(), o.GetName(), kind, []byte(patch),
		metav1.PatchOptions{})
	return err
}

// waitChecked waits until the API server checks the tenant's references.
func (n tenant) waitChecked() {
	n.t.Helper()
	require.Eventually(n.t, func() bool { return apierrors.IsForbidden(n.tries(rolloutBy("probe", byIngress))) },
		harness.Patience, harness.Tick, "references are not checked")
}

// eventuallyMay waits until a permission that was just granted has its effect.
func (n tenant) eventuallyMay(o *unstructured.Unstructured) {
	n.t.Helper()
	var err error
	require.Eventually(n.t, func() bool {
		err = n.tries(o)
		return err == nil
	}, harness.Patience, harness.Tick, "%v", &err)
}

// A tenant may write Rollouts and TrafficRoutings, but refer only to what he may patch himself: the API server asks at
// the edit.
func TestAuthor_RefersOnlyToWhatHeMayPatch(t *testing.T) {
	t.Parallel()
	e := harness.NewWithoutProcesses(t)
	harness.SharedGuard(t).EnforceOn(t, e.Apps)
	n := newTenant(t, e)
	testAuthor(t, n)

	config, err := clientcmd.BuildConfigFromFlags("", e.Account(t, "server.yaml", e.Apps).Kubeconfig)
	require.NoError(t, err)
	n.objects, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	n.eventuallyMay(sharedBy("app", byIngress, byMesh)) // a server, for a TrafficRouting of the HTTP API
}

// A server does the same by its webhook, for clusters without validating policies.
func TestLongAuthorWebhook_AsksForPermissions(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.NewWithoutProcesses(t)
	e.InstallRollouts(t)
	serveAuthorWebhook(t, e)
	testAuthor(t, newTenant(t, e))
}

func serveAuthorWebhook(t *testing.T, e *harness.Engine) {
	t.Helper()
	serveWebhook(t, e, func(s servedWebhook) webhook.Endpoint {
		return webhook.NewAuthors(webhook.Authors{May: s.cluster.May, Engine: isEngine,
			Publish: s.publish(guard.AuthorWebhooks)})
	})
}

func testAuthor(t *testing.T, n tenant) {
	t.Helper()
	n.waitChecked()
	for entry, kind := range map[string]string{byIngress: "ingresses.networking.k8s.io",
		byRoute: "httproutes.gateway.networking.k8s.io", byMesh: "virtualservices.networking.istio.io",
		byCanary: "canaries.mesh.example.com", byProxy: "httpproxies.mesh.example.com"} {
		for _, o := range []*unstructured.Unstructured{rolloutBy("app", entry), sharedBy("app", entry)} {
			err := n.tries(o)
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, fmt.Sprintf("user system:serviceaccount:%s:tenant may not patch %s web in "+
				"namespace %[1]s, to which %[3]s app refers", n.Apps, kind, o.GetKind()))
		}
	}
	require.NoError(t, n.tries(rolloutBy("app")), "without routes there is nothing to ask for")

	n.may("patch", "networking.k8s.io", "ingresses", "web")
	n.may("patch", "mesh.example.com", "canaries")
	n.eventuallyMay(rolloutBy("app", byIngress))
	n.eventuallyMay(sharedBy("app", byIngress, byCanary))
	other := strings.Replace(byIngress, `"name":"web"`, `"name":"other"`, 1)
	require.True(t, apierrors.IsForbidden(n.tries(rolloutBy("app", other))), "the permission is for one Ingress")
	require.True(t, apierrors.IsForbidden(n.tries(rolloutBy("app", byIngress, byMesh))), "each reference is asked for")
	testOtherAuthor(t, n)
	testManyReferences(t, n)
	n.may("refer", author.GroupRefer, author.ResourceRefer)
	n.eventuallyMay(rolloutBy("app", byMesh, byRoute))
}

// testOtherAuthor edits an object with references that an administrator has written.
func testOtherAuthor(t *testing.T, n tenant) {
	t.Helper()
	for _, o := range []*unstructured.Unstructured{rolloutBy("app", byMesh), sharedBy("app", byMesh)} {
		_, err := n.Dynamic(t).Resource(resourceOf(o)).Namespace(n.Apps).Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, n.patches(o, types.MergePatchType, `{"metadata":{"labels":{"team":"shop"}}}`))
		list := "/spec/objectRef"
		if o.GetKind() == v1beta1.Kind {
			list = "/spec/strategy/canary/trafficRoutings"
			require.NoError(t, n.patches(o, types.JSONPatchType,
				`[{"op":"replace","path":"/spec/strategy/canary/steps/0/traffic","value":"30%"}]`),
				"the tenant edits what isn't a reference")
		}
		add := func(entry string) error {
			return n.patches(o, types.JSONPatchType, fmt.Sprintf(`[{"op":"add","path":"%s/-","value":%s}]`, list, entry))
		}
		require.NoError(t, add(byIngress), "he adds what he may patch")
		err = add(byRoute)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		err = n.patches(o, types.MergePatchType, `{"metadata":{"annotations":{"`+author.AnnotationChecked+`":"x"}}}`)
		require.True(t, apierrors.IsForbidden(err), "a mark asks for all references: %v", err)
		require.NoError(t, n.Dynamic(t).Resource(resourceOf(o)).Namespace(n.Apps).Delete(t.Context(), o.GetName(),
			metav1.DeleteOptions{}))
	}
}

// testManyReferences adds as many references as one edit may have, and more. The API server limits what a policy may
// cost.
func testManyReferences(t *testing.T, n tenant) {
	t.Helper()
	entries := func(count int) (all []string) {
		for i := range count {
			all = append(all, fmt.Sprintf(`{"service":"web","ingress":{"classType":"nginx","name":"w%[1]d"},`+
				`"gateway":{"httpRouteName":"w%[1]d"}}`, i))
		}
		return all
	}
	n.may("patch", "networking.k8s.io", "ingresses")
	n.may("patch", "gateway.networking.k8s.io", "httproutes")
	n.eventuallyMay(rolloutBy("app", byRoute))
	for _, by := range []func(string, ...string) *unstructured.Unstructured{rolloutBy, sharedBy} {
		n.eventuallyMay(by("app", entries(10)...))
		require.ErrorContains(t, n.tries(by("app", entries(11)...)), "the edit adds 22 references to objects, and at "+
			"most 20 are checked at once")
	}
	require.ErrorContains(t, n.tries(sharedBy("app", entries(17)...)),
		"the object has 17 entries of routes, and may have 16")
}

// Objects from before the check say that their authors were not checked; with --require-gate their releases don't
// begin. A user with the permissions has them checked.
func TestAuthor_ObjectsFromBeforeCheck_WarnOrAreRefused(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{SeparateWorker: true,
		Kubeconfig: func(e *harness.Engine) string { return e.KubeconfigAs(t, harness.EngineUser) }})
	n := newTenant(t, e)
	e.Subject(harness.Deployment, "web", nil)
	e.Route(harness.Gateway, "web")
	e.Subject(harness.Deployment, "gray", nil)
	e.Route(harness.Gateway, "gray")
	byGray := strings.ReplaceAll(byRoute, "web", "gray")
	step := func(s strategy.Strategy) harness.Rollout {
		return harness.Rollout{Kind: harness.Deployment, Name: "gray", Strategy: s}
	}
	gray := step(strategy.Strategy{Style: strategy.StyleCanary, Steps: []strategy.Step{harness.Step("1", -1)},
		TrafficRoutingRef: "old"}).Body(e.Apps)
	raw, err := json.Marshal(map[string]any{"workloadRef": gray["workloadRef"], "strategy": gray["strategy"]})
	require.NoError(t, err)
	for _, o := range []*unstructured.Unstructured{rolloutBy("web", byRoute), sharedBy("old", byGray),
		authored(v1beta1.GroupVersion.String(), v1beta1.Kind, "gray", string(raw))} {
		_, err := n.objects.Resource(resourceOf(o)).Namespace(e.Apps).Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err, "without a check the tenant refers to what he wants")
	}
	web := &declared{release: &release{Engine: e, t: t, rollout: harness.Rollout{Kind: harness.Deployment,
		Name: "web"}}}
	unchecked := func(text string) {
		t.Helper()
		web.waitObject(text, func(r *v1beta1.Rollout) bool {
			return strings.Contains(conditionOf(r, v1beta1.ConditionUnchecked).Message, text)
		})
		require.Eventually(t, func() bool { return strings.Contains(n.message("old"), text) }, harness.Patience,
			harness.Tick, "the TrafficRouting shows it too")
	}
	unchecked("slipway guard install")
	n.waitEvent(v1beta1.Kind, "web", "slipway guard install")
	n.waitEvent(v1alpha1.TrafficRoutingKind, "old", "slipway guard install")

	g := e.InstallGuard(t)
	g.EnforceOn(t, e.Apps)
	web.guard = g
	n.waitChecked()
	require.NoError(t, e.Processes[1].Stop())
	e.Processes[1] = e.Worker(harness.Options{Args: []string{"--require-gate"}})
	e.WaitReady()
	unchecked("it is older than the check")
	web.waitGate()
	web.setImage("owner", harness.NewImage("web"))
	refused := web.waitObject("refused", func(r *v1beta1.Rollout) bool {
		return conditionOf(r, v1beta1.ConditionStalled).Status == string(corev1.ConditionTrue)
	})
	require.Contains(t, refused.Status.Message, "--require-gate")

	token := regexp.MustCompile(author.AnnotationChecked + `=(\w+)`).FindStringSubmatch(refused.Status.Message)
	require.Len(t, token, 2, refused.Status.Message)
	mark := `{"metadata":{"annotations":{"` + author.AnnotationChecked + `":"` + token[1] + `"}}}`
	err = n.patches(rolloutBy("web"), types.MergePatchType, mark)
	require.True(t, apierrors.IsForbidden(err), "the tenant can't prove it: %v", err)
	n.may("patch", "gateway.networking.k8s.io", "httproutes", "web")
	require.Eventually(t, func() bool { return n.patches(rolloutBy("web"), types.MergePatchType, mark) == nil },
		harness.Patience, harness.Tick, "with the permission he can")
	web.waitObject("released", func(r *v1beta1.Rollout) bool {
		return commonStatus(r).CurrentStepState == "StepPaused" && conditionOf(r, v1beta1.ConditionUnchecked).Type == ""
	})
	n.testOldTraffic(g, mark)
}

// testOldTraffic releases a workload whose Rollout uses the TrafficRouting old.
func (n tenant) testOldTraffic(g *harness.Guard, mark string) {
	n.t.Helper()
	gray := &declared{release: &release{Engine: n.Engine, t: n.t, rollout: harness.Rollout{Kind: harness.Deployment,
		Name: "gray"}}, guard: g}
	gray.waitGate()
	gray.setImage("owner", harness.NewImage("gray"))
	refused := gray.waitObject("refused", func(r *v1beta1.Rollout) bool {
		return strings.Contains(r.Status.Message, "--require-gate")
	})
	require.Contains(n.t, refused.Status.Message, "TrafficRouting "+n.Apps+"/old")
	_, err := n.Dynamic(n.t).Resource(trafficRoutings).Namespace(n.Apps).Patch(n.t.Context(), "old",
		types.MergePatchType, []byte(mark), metav1.PatchOptions{})
	require.NoError(n.t, err, "an administrator may patch everything")
	require.Eventually(n.t, func() bool { return n.message("old") == "no rollout holds it" }, harness.Patience,
		harness.Tick, "it is checked")
}

// message returns the message of a TrafficRouting.
func (n tenant) message(name string) string {
	n.t.Helper()
	o, err := n.Dynamic(n.t).Resource(trafficRoutings).Namespace(n.Apps).Get(n.t.Context(), name, metav1.GetOptions{})
	require.NoError(n.t, err)
	message, _, _ := unstructured.NestedString(o.Object, "status", "message")
	return message
}

// waitEvent waits for a warning about an object.
func (n tenant) waitEvent(kind, name, text string) {
	n.t.Helper()
	require.Eventually(n.t, func() bool {
		list, err := n.Kube.CoreV1().Events(n.Apps).List(n.t.Context(), metav1.ListOptions{})
		require.NoError(n.t, err)
		for _, event := range list.Items {
			if event.InvolvedObject.Kind == kind && event.InvolvedObject.Name == name &&
				event.Type == corev1.EventTypeWarning && strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	}, harness.Patience, harness.Tick, "%s %s has no event", kind, name)
}
