package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// policed is the annotation of pod templates that the policy of changeTemplates concerns.
const policed = "policy.test/apply"

// changeTemplates installs mutating policies as a mesh and an organisation have them: every pod gets a sidecar, and the
// template of every workload a label, an annotation and a value for a field that would get the API server's default.
func changeTemplates(t *testing.T) {
	t.Helper()
	s := harness.SharedStack(t)
	install := func(resource, group, condition string, operations []admission.OperationType, patches ...string) {
		name := harness.RandomName("policed-" + resource)
		policies := s.Kube.AdmissionregistrationV1()
		rule := admission.NamedRuleWithOperations{}
		rule.Operations, rule.APIGroups = operations, []string{group}
		rule.APIVersions, rule.Resources = []string{"v1"}, []string{resource}
		policy := &admission.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admission.MutatingAdmissionPolicySpec{
				FailurePolicy:      new(admission.Fail),
				ReinvocationPolicy: admission.IfNeededReinvocationPolicy,
				MatchConstraints:   &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{rule}},
				MatchConditions:    []admission.MatchCondition{{Name: "policed", Expression: condition}}}}
		for _, patch := range patches {
			policy.Spec.Mutations = append(policy.Spec.Mutations, admission.Mutation{
				PatchType: admission.PatchTypeJSONPatch, JSONPatch: &admission.JSONPatch{Expression: patch}})
		}
		_, err := policies.MutatingAdmissionPolicies().Create(context.Background(), policy, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = policies.MutatingAdmissionPolicyBindings().Create(context.Background(),
			&admission.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admission.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = policies.MutatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
			_ = policies.MutatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{})
		})
	}
	const has = ".metadata.?annotations[?'" + policed + "'].hasValue()"
	for _, resource := range []string{"deployments", "statefulsets"} {
		install(resource, "apps", "object.spec.template"+has,
			[]admission.OperationType{admission.Create, admission.Update},
			`[JSONPatch{op: "add", path: "/spec/template/metadata/labels/policy.test~1team", value: "shop"}]`,
			`[JSONPatch{op: "add", path: "/spec/template/metadata/annotations/policy.test~1checked", value: "yes"}]`,
			`[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/terminationMessagePolicy", `+
				`value: "FallbackToLogsOnError"}]`)
	}
	install("pods", "", "object"+has, []admission.OperationType{admission.Create},
		`object.spec.containers.exists(c, c.name == "sidecar") ? [] : [JSONPatch{op: "add", `+
			`path: "/spec/containers/-", value: {"name": "sidecar", "image": "registry.test/sidecar:v1"}}]`)
	waitPolicies(t, s)
}

// waitPolicies waits until the policies of changeTemplates are in force.
func waitPolicies(t *testing.T, s harness.Stack) {
	t.Helper()
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	labels := map[string]string{"app": "probe"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels,
		Annotations: map[string]string{policed: "yes"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.test/probe:v1"}}}}
	about := metav1.ObjectMeta{Name: "probe", Labels: labels, Annotations: template.Annotations}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	namespace := s.Namespace(t, "policed")
	require.Eventually(t, func() bool {
		d, err := s.Kube.AppsV1().Deployments(namespace).Create(context.Background(), &appsv1.Deployment{
			ObjectMeta: about, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}, dry)
		require.NoError(t, err)
		set, err := s.Kube.AppsV1().StatefulSets(namespace).Create(context.Background(), &appsv1.StatefulSet{
			ObjectMeta: about, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template,
				ServiceName: "probe"}}, dry)
		require.NoError(t, err)
		p, err := s.Kube.CoreV1().Pods(namespace).Create(context.Background(), &corev1.Pod{ObjectMeta: about,
			Spec: template.Spec}, dry)
		if err != nil { // the namespace has no service account yet
			return false
		}
		return d.Spec.Template.Labels["policy.test/team"] == "shop" &&
			set.Spec.Template.Labels["policy.test/team"] == "shop" && len(p.Spec.Containers) == 2
	}, harness.Patience, harness.Tick, "the policies are not in force")
}

// Releases end as usual where mutating policies or webhooks change pods and templates: with an extra workload, in place
// and blue-green, to the new version and back.
func TestRelease_EndsAsUsual_UnderMutatingPolicies(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	changeTemplates(t)
	for _, c := range []cell{deploymentCell(strategy.StyleCanary, harness.Nginx),
		deploymentCell(strategy.StylePartition, harness.NoProvider),
		deploymentCell(strategy.StyleBlueGreen, harness.NoProvider),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
		for _, rollback := range []bool{false, true} {
			t.Run(c.String()+map[bool]string{true: "/Back", false: "/Through"}[rollback], func(t *testing.T) {
				r := prepare(t, e, c, func(object map[string]any, _ *harness.Rollout) {
					template := object["spec"].(map[string]any)["template"].(map[string]any)
					jsonpatch.Put(template, jsonpatch.Annotation(policed), "yes")
				})
				r.requirePoliced()
				r.StartRollout(r.rollout)
				r.waitPaused(1)
				r.requirePoliced()
				if rollback {
					r.sendVerb("rollback", `{"actor":"ann"}`)
					r.requireRolledBack()
				} else {
					r.approveAll(1)
					r.requirePromoted()
				}
				r.requirePoliced()
			})
		}
	}
}

// requirePoliced requires that the policies have changed every pod and the workload's template.
func (r *release) requirePoliced() {
	r.t.Helper()
	value, _ := jsonpatch.At(r.object().Object, "/spec/template/metadata/labels/policy.test~1team")
	require.Equal(r.t, "shop", value)
	pods, err := r.Kube.CoreV1().Pods(r.Apps).List(context.Background(), metav1.ListOptions{
		LabelSelector: "app=" + r.rollout.Name})
	require.NoError(r.t, err)
	for _, p := range pods.Items {
		require.Len(r.t, p.Spec.Containers, 2, "%s has a sidecar", p.Name)
		require.Equal(r.t, "shop", p.Labels["policy.test/team"])
	}
}
