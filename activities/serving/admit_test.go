package serving_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/test/harness"
)

// invite labels the site's namespace; withdraw removes the label.
func (s *site) invite() {
	s.t.Helper()
	harness.LabelNamespace(s.t, s.kube, s.domain, admission.LabelServings, admission.ServingsAllowed)
}

func (s *site) withdraw() {
	s.t.Helper()
	harness.LabelNamespace(s.t, s.kube, s.domain, admission.LabelServings, "")
}

// requireNothing checks that nothing of the serving was written.
func (s *site) requireNothing() {
	s.t.Helper()
	ours := metav1.ListOptions{LabelSelector: kuscia.LabelController + "=" + kuscia.ControllerName}
	services, err := s.kube.CoreV1().Services(s.domain).List(s.t.Context(), ours)
	require.NoError(s.t, err)
	configMaps, err := s.kube.CoreV1().ConfigMaps(s.domain).List(s.t.Context(), ours)
	require.NoError(s.t, err)
	_, err = s.kube.AppsV1().Deployments(s.domain).Get(s.t.Context(), "s1", metav1.GetOptions{})
	require.True(s.t, apierrors.IsNotFound(err), "%v", err)
	require.Zero(s.t, len(services.Items)+len(configMaps.Items))
}

// A namespace that does not invite servings refuses both the check and the write; with the label it accepts them.
func TestApply_IsRefused_WithoutInvitation(t *testing.T) {
	s := newSite(t)
	s.withdraw()
	for _, try := range []func() error{
		func() error { return s.prepare(s.step(1, false)) }, func() error { return s.apply(s.step(1, false), nil) },
	} {
		err := try()
		requireKind(t, failure.Refused, err)
		require.ErrorContains(t, err, "namespace "+s.domain+" does not take servings")
		require.ErrorContains(t, err, "kubectl label namespace "+s.domain+" slipway.io/servings=allowed")
		s.requireNothing()
	}
	s.invite()
	require.NoError(t, s.prepare(s.step(1, false)))
	require.NoError(t, s.apply(s.step(1, false), nil))
	s.requireRuns("one")
}

// A namespace whose invitation is withdrawn keeps the running version, and gets nothing new: no half update, and
// nothing that cannot be deleted.
func TestApply_KeepsRunningVersion_WhenInvitationIsWithdrawn(t *testing.T) {
	s := newSite(t)
	require.NoError(t, s.apply(s.step(1, false), nil))
	s.withdraw()
	for _, try := range []error{s.prepare(s.step(2, false)), s.apply(s.step(2, false), nil)} {
		requireKind(t, failure.Refused, try)
		s.requireRuns("one")
	}
	s.patch("kubectl-edit", image("theirs"))
	again := s.step(1, false)
	again.Started++
	require.NoError(t, s.apply(again, nil), "changes by other clients are reverted")
	s.requireRuns("one")

	s.invite()
	require.NoError(t, s.apply(s.step(2, false), nil))
	s.requireRuns("two")
	s.withdraw()
	require.NoError(t, s.apply(s.step(2, true), nil), "an update is rolled back")
	s.requireRuns("one")
	require.NoError(t, s.remove(s.step(2, false)), "a deletion needs no invitation")
	s.requireNothing()
	requireKind(t, failure.Refused, s.apply(s.step(2, true), nil))
	s.requireNothing()
}

// AnyNamespace neither reads the label nor needs the permission to.
func TestApply_NeedsNoInvitation_WithAnyNamespace(t *testing.T) {
	s := newSite(t)
	s.withdraw()
	s.settings.AnyNamespace = true
	s.as(harness.SharedStack(t), false)
	require.NoError(t, s.apply(s.step(1, false), nil))
	s.requireRuns("one")
}

// A worker with the permissions of deploy/rbac may read its namespace; one without that permission reports that it
// lacks it.
func TestApply_IsForbidden_WhenNamespaceCannotBeRead(t *testing.T) {
	s := newSite(t)
	s.as(harness.SharedStack(t), true)
	require.NoError(t, s.prepare(s.step(1, false)))
	s.as(harness.SharedStack(t), false)
	err := s.apply(s.step(1, false), nil)
	requireKind(t, failure.Forbidden, err)
	require.ErrorContains(t, err, `lacks a permission, which has to be granted: namespaces "`+s.domain+`" is forbidden`)
	s.requireNothing()
}

// as makes the worker use an account that has the permissions of deploy/rbac, with or without the one to read its
// namespace.
func (s *site) as(stack harness.Stack, readsNamespace bool) {
	s.t.Helper()
	ctx, roles := s.t.Context(), s.kube.RbacV1().Roles(s.domain)
	if s.config.Impersonate.UserName == "" {
		stack.Grant(s.t, "party.yaml", s.domain)
		stack.Grant(s.t, "party-servings.yaml", s.domain)
		s.config = rest.CopyConfig(s.config)
		s.config.Impersonate = rest.ImpersonationConfig{UserName: harness.PartyUser(s.domain),
			Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	}
	if !readsNamespace {
		role, err := roles.Get(ctx, "slipway-party-servings", metav1.GetOptions{})
		require.NoError(s.t, err)
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "namespaces")
		})
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
		require.NoError(s.t, err)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: s.config.Impersonate.UserName,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "namespaces",
			Namespace: s.domain, Name: s.domain}}}
	require.Eventually(s.t, func() bool {
		said, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && said.Status.Allowed == readsNamespace
	}, harness.Patience, harness.Tick, "the API server has read the rules")
}

// The party's policy is checked before every write, also of a version that runs already, and of a rollback.
func TestApply_IsRefused_ByPartyPolicy(t *testing.T) {
	s := newSite(t)
	s.settings.Policy = admission.Policy{ImagePrefixes: []string{"registry.example/"}}
	for _, try := range []error{s.prepare(s.step(1, false)), s.apply(s.step(1, false), nil)} {
		requireKind(t, failure.Refused, try)
		require.ErrorContains(t, try, "the party's policy refuses Deployment "+s.domain+
			"/s1: container main: image app:one comes from none of registry.example/ (rule images.allowedPrefixes)")
		s.requireNothing()
	}
	s.settings.Policy = admission.Policy{ImagePrefixes: []string{"app"}}
	require.NoError(t, s.apply(s.step(1, false), nil))
	require.NoError(t, s.apply(s.step(2, false), nil))
	s.settings.Policy = admission.Policy{ImagePrefixes: []string{"registry.example/"}}
	requireKind(t, failure.Refused, s.apply(s.step(2, true), nil))
	s.requireRuns("two")
	require.NoError(t, s.remove(s.step(2, false)), "an object that the policy refuses can still be deleted")
	s.requireNothing()
}

// The party's policy for all releases judges new versions, not the way back to the one that an update began from.
func TestApply_IsRefused_ByPartyPolicyForReleases(t *testing.T) {
	s := newSite(t)
	s.settings.ReleasePolicy = podpolicy.Policy{Preset: podpolicy.Baseline,
		Lists: podpolicy.Lists{ImagePrefixes: []string{"registry.example/"}}}
	for _, try := range []error{s.prepare(s.step(1, false)), s.apply(s.step(1, false), nil)} {
		requireKind(t, failure.Refused, try)
		require.ErrorContains(t, try, "the party's policy (baseline) refuses the pods of Deployment "+s.domain+
			"/s1: container main: image app:one comes from none of registry.example/ (rule images.allowedPrefixes). "+
			"Change the AppImage, or ask the party to allow that in --release-policy-file of its worker")
		s.requireNothing()
	}
	s.settings.ReleasePolicy = podpolicy.Policy{Preset: podpolicy.Baseline}
	require.NoError(t, s.apply(s.step(1, false), nil))
	require.NoError(t, s.apply(s.step(2, false), nil))
	s.settings.ReleasePolicy = podpolicy.Policy{Preset: podpolicy.Restricted,
		Lists: podpolicy.Lists{ImagePrefixes: []string{"registry.example/"}}}
	require.NoError(t, s.apply(s.step(2, true), nil))
	s.requireRuns("one")
	requireKind(t, failure.Refused, s.apply(s.step(2, false), nil))
	s.requireRuns("one")
}

// Pods that a namespace does not allow are reported within seconds, with the API server's message, and not only at the
// deadline. Once they are allowed, the same version is applied although the old condition remains.
func TestApply_IsRefused_WhenNamespaceForbidsPods(t *testing.T) {
	const enforce = "pod-security.kubernetes.io/enforce"
	for name, tc := range map[string]struct {
		reason, says  string
		forbid, allow func(s *site)
		deadline      int64
	}{
		"pod security": {reason: "Pod Security checks pods, not Deployments",
			says: `violates PodSecurity "restricted:latest"`, deadline: 600,
			forbid: func(s *site) { harness.LabelNamespace(s.t, s.kube, s.domain, enforce, "restricted") },
			allow:  func(s *site) { harness.LabelNamespace(s.t, s.kube, s.domain, enforce, "") }},
		"quota": {reason: "a quota may become free: it is tolerated for half the deadline", says: "exceeded quota",
			deadline: 30,
			forbid:   func(s *site) { s.quota() },
			allow: func(s *site) {
				require.NoError(s.t, s.kube.CoreV1().ResourceQuotas(s.domain).Delete(s.t.Context(), "none",
					metav1.DeleteOptions{}))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			tc.forbid(s)
			req := s.step(1, false)
			req.DeadlineSeconds = tc.deadline
			require.NoError(t, s.prepare(req), "the Deployment itself is allowed")
			began := time.Now()
			err := s.apply(req, nil)
			requireKind(t, failure.Refused, err)
			require.Less(t, time.Since(began), time.Minute, tc.reason)
			require.ErrorContains(t, err, "namespace "+s.domain+" does not allow the pods of Deployment s1: pods ",
				tc.reason)
			require.ErrorContains(t, err, tc.says, tc.reason)

			tc.allow(s)
			again := s.step(1, false)
			again.Started++
			require.NoError(t, s.apply(again, nil), tc.reason)
			s.requireRuns("one")
		})
	}
}

// quota creates a quota that allows no pods, and waits until it is in force.
func (s *site) quota() {
	s.t.Helper()
	none := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}}}
	_, err := s.kube.CoreV1().ResourceQuotas(s.domain).Create(s.t.Context(), none, metav1.CreateOptions{})
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		found, err := s.kube.CoreV1().ResourceQuotas(s.domain).Get(s.t.Context(), "none", metav1.GetOptions{})
		return err == nil && len(found.Status.Hard) > 0
	}, harness.Patience, harness.Tick, "the quota is not in force")
}
