package workload_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
)

func down(*http.Request) (*http.Response, error) { return nil, errDown }

func TestRun_FailsWhenUnreachableBeyondBudget(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 0, neverReady)
	one := int32(1)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas, req.UnreachableBudgetSeconds, req.SpentSeconds = &one, 2, 17
	d := b.driver(req)
	d.b.traffic.set(down)
	began := time.Now()
	_, err := d.run()
	app := requireFailure(t, err, failure.Unreachable)
	require.Contains(t, app.Message(), "its cluster has been out of reach for more than 2 s: ")
	require.Contains(t, app.Message(), "connection refused")
	var details failure.Details
	require.NoError(t, app.Details(&details))
	require.Equal(t, int64(17), details.SpentSeconds,
		"time out of reach does not count against the deadline, and what was used before is kept")
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
}

// The cluster is unreachable for longer than the whole deadline after the operation has started: the operation
// continues, and the outage does not count.
func TestRun_ContinuesAfterOutage(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 0, slowDeployment)
	one := int32(1)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas, req.DeadlineSeconds = &one, 4
	began := time.Now()
	b.traffic.set(func(*http.Request) (*http.Response, error) {
		if b.traffic.written() > 0 && time.Since(began) < 5*time.Second {
			return nil, errDown
		}
		return nil, nil
	})
	result := b.must(req)
	require.Equal(t, "started: 1 of 1 pods are ready", result.Message)
	require.GreaterOrEqual(t, time.Since(began), 5*time.Second, "the outage was longer than the deadline")
}

// The cluster answers reads and fails every write with 500, as one does whose admission webhook is down.
func TestRun_FailsWhenOnlyWritesFail(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 1, nil)
	b.settled(order, 1)
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPatch {
			return nil, nil
		}
		return answer(r, 500,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"failed calling webhook \"policy.example.com\""}`), nil
	})
	req := b.request(order, plan.Stop, plan.Parallel)
	req.UnreachableBudgetSeconds = 2
	app := b.fails(req, failure.Unreachable)
	require.Contains(t, app.Message(), "failed calling webhook")
}

// A cluster refuses every change halfway through an operation, while its controllers continue to write: each answer may
// mean that another client was faster, and the restore remains pending.
func TestRefusedRun_ReportsPendingRestore_WhileWorkloadChanges(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	var patches atomic.Int32
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPatch {
			return nil, nil
		}
		n := patches.Add(1)
		if n == 1 {
			return nil, nil // the claim, with the borrowed settings
		}
		if n > 3 { // the operation was refused; what it holds is restored
			_, err := b.kube.AppsV1().Deployments(b.namespace).Patch(context.Background(), "order",
				"application/merge-patch+json",
				fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n), metav1.PatchOptions{})
			require.NoError(t, err)
		}
		return answer(r, 422,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid","message":"not today"}`), nil
	})
	app := b.fails(b.request(order, plan.Restart, plan.Sequential), failure.Refused)
	var details failure.Details
	require.NoError(t, app.Details(&details))
	require.True(t, details.RestorePending, app.Message())
	require.Equal(t, 1, strings.Count(app.Message(), "does not accept the change"), app.Message())
	require.Contains(t, app.Message(), "borrowed settings are not restored yet: not today")
}

func answer(r *http.Request, code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewBufferString(body))}
}

// account makes a service account with these rules in the test's namespace, and a client configuration for it.
func (b *bench) account(rules ...rbacv1.PolicyRule) (config *rest.Config, take func()) {
	b.t.Helper()
	ctx := context.Background()
	meta := metav1.ObjectMeta{Name: "worker", Namespace: b.namespace}
	_, err := b.kube.CoreV1().ServiceAccounts(b.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta},
		metav1.CreateOptions{})
	require.NoError(b.t, err)
	_, err = b.kube.RbacV1().Roles(b.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
		metav1.CreateOptions{})
	require.NoError(b.t, err)
	_, err = b.kube.RbacV1().RoleBindings(b.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "worker", Namespace: b.namespace}},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "worker"}},
		metav1.CreateOptions{})
	require.NoError(b.t, err)
	token, err := b.kube.CoreV1().ServiceAccounts(b.namespace).CreateToken(ctx, "worker", &authv1.TokenRequest{},
		metav1.CreateOptions{})
	require.NoError(b.t, err)
	config = rest.AnonymousClientConfig(b.config)
	config.BearerToken = token.Status.Token
	config = kube.Configure(config, kube.Options{QPS: 500, Burst: 1000})
	return config, func() {
		require.NoError(b.t, b.kube.RbacV1().RoleBindings(b.namespace).Delete(ctx, "worker", metav1.DeleteOptions{}))
	}
}

var (
	appsRule = rbacv1.PolicyRule{APIGroups: []string{"apps"},
		Resources: []string{"deployments", "statefulsets", "daemonsets"},
		Verbs:     []string{"get", "list", "watch", "patch"}}
	podsRule = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"},
		Verbs: []string{"list", "watch", "delete"}}
)

// Everything works with permissions in one namespace, as the worker of a small party has them.
func TestRun_WithPermissionsInOneNamespace(t *testing.T) {
	b := newBench(t)
	config, _ := b.account(appsRule, podsRule)
	b.use(config, workload.Options{Namespaces: []string{b.namespace}})
	b.deployment("order", 2, slowDeployment)
	b.settled(order, 2)
	req := b.request(order, plan.Restart, plan.Sequential)
	b.mayPreflight(req)
	reads := b.traffic.count(http.MethodGet, "/deployments/order")
	require.Equal(t, "restarted: 2 of 2 pods are ready", b.must(req).Message)
	require.Less(t, b.traffic.count(http.MethodGet, "/deployments/order")-reads, 40,
		"the watch of that namespace must replace repeated reads")
	req.Workload.Namespace = "elsewhere"
	require.Contains(t, b.fails(req, failure.Refused).Message(),
		"this party's worker does not serve the namespace elsewhere")
}

// Without the permission to watch all namespaces, and without configured namespaces, operations work, but slower.
func TestRun_WithoutWatchPermission(t *testing.T) {
	b := newBench(t)
	config, _ := b.account(appsRule, podsRule)
	b.use(config, workload.Options{})
	b.deployment("order", 2, slowDeployment)
	b.settled(order, 2)
	require.Equal(t, "restarted: 2 of 2 pods are ready", b.must(b.request(order, plan.Restart, plan.Parallel)).Message)
}

func (b *bench) mayPreflight(req operation.Request) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		checked, err := b.acts.Preflight(b.t.Context(),
			operation.PreflightRequest{Requests: []operation.Request{req}})
		return err == nil && len(checked.Refusals) == 0
	}, patience, tick, "the account's permissions did not take effect")
}

func TestRun_FailsWhenPermissionRevoked(t *testing.T) {
	b := newBench(t)
	config, take := b.account(appsRule, podsRule)
	b.use(config, workload.Options{Namespaces: []string{b.namespace}})
	b.deployment("order", 0, neverReady)
	one := int32(1)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas = &one
	b.mayPreflight(req)
	ended := b.begin(req)
	take()
	app := requireFailure(t, <-ended, failure.Forbidden)
	require.Contains(t, app.Message(), "this party's worker lacks a permission, which has to be granted: ")
}

func TestPreflightNamesMissingPermissions(t *testing.T) {
	b := newBench(t)
	reading := appsRule
	reading.Verbs = []string{"get", "list", "watch"}
	config, _ := b.account(reading, podsRule)
	b.use(config, workload.Options{Namespaces: []string{b.namespace}})
	b.deployment("order", 1, nil)
	req := b.request(order, plan.Stop, plan.Parallel)
	want := "Deployment " + b.namespace + "/order: this party's worker may not patch deployments in namespace " +
		b.namespace + ": grant it that"
	var reason string
	require.Eventually(t, func() bool {
		checked, err := b.acts.Preflight(t.Context(),
			operation.PreflightRequest{Requests: []operation.Request{req}})
		require.NoError(t, err)
		require.Len(t, checked.Refusals, 1)
		reason = checked.Refusals[0].Reason
		return reason == want
	}, patience, tick, "the refusal must name what is missing")
}

// An admission policy that forbids the change is a refusal, not a missing permission, though both are 403.
func TestRun_RefusedByAdmissionPolicy(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	b.forbid("object.spec.replicas > 0", "this service must not be stopped")
	before := b.state(order)
	app := b.fails(b.request(order, plan.Stop, plan.Parallel), failure.Refused)
	require.Contains(t, app.Message(), "this service must not be stopped")
	require.Equal(t, before, b.state(order))
}

// forbid makes an admission policy for the test's namespace, and waits until it is in effect.
func (b *bench) forbid(expression, message string) {
	b.t.Helper()
	ctx := context.Background()
	forbidden := metav1.StatusReasonForbidden
	policies := b.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := b.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(ctx,
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.namespace},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{"UPDATE"},
					Rule: admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"},
						Resources: []string{"deployments"}},
				}}}},
				Validations: []admissionv1.Validation{{Expression: expression, Message: message, Reason: &forbidden}},
			}}, metav1.CreateOptions{})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = policies.Delete(ctx, b.namespace, metav1.DeleteOptions{}) })
	_, err = bindings.Create(ctx,
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: b.namespace},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: b.namespace,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				MatchResources: &admissionv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{
						MatchLabels: map[string]string{"kubernetes.io/metadata.name": b.namespace}}}},
		}, metav1.CreateOptions{})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = bindings.Delete(ctx, b.namespace, metav1.DeleteOptions{}) })
	require.Eventually(b.t, func() bool {
		_, err := b.kube.AppsV1().Deployments(b.namespace).Patch(ctx, "order", "application/merge-patch+json",
			[]byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{DryRun: []string{"All"}})
		return err != nil && strings.Contains(err.Error(), message)
	}, patience, tick, "the policy did not take effect")
}

func TestRestore_RetriesWhileUnreachable(t *testing.T) {
	b := newBench(t)
	b.use(b.config, workload.Options{ListenFor: time.Second})
	b.traffic.set(down)
	_, err := b.acts.Restore(t.Context(), operation.RestoreRequest{Request: b.request(order, plan.Restart,
		plan.Parallel)})
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(failure.NotReady), app.Type(), "a pending restore remains until it succeeds")
	require.False(t, app.NonRetryable())
	require.Contains(t, app.Message(), "its cluster is out of reach")
}

// The reason why a restore is refused is reported once; after that the server retries alone.
func TestRestore_WithPersistIsRetryable(t *testing.T) {
	b := newBench(t)
	b.use(b.config, workload.Options{Namespaces: []string{"elsewhere"}})
	req := operation.RestoreRequest{Request: b.request(order, plan.Restart, plan.Parallel)}
	_, err := b.acts.Restore(t.Context(), req)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.True(t, app.NonRetryable(), "the workflow must report why it waits")
	message := app.Message()
	req.Persist = true
	_, err = b.acts.Restore(t.Context(), req)
	require.ErrorAs(t, err, &app)
	require.False(t, app.NonRetryable(), "the server retries")
	require.Equal(t, operation.RestoreRetryInterval, app.NextRetryDelay())
	require.Equal(t, message, app.Message(), "the pending activity shows the reason")
}
