package chart

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/test/harness"
)

// grantedRule is one rule of a role of the chart's release.
type grantedRule struct {
	installation *installation
	role         *unstructured.Unstructured
	rule         int
	// verb limits the rule to one verb; "": the whole rule.
	verb string
	// permissions are the single permissions that the rule grants.
	permissions []authorizationv1.ResourceAttributes
}

func (r grantedRule) String() string {
	return fmt.Sprintf("%s%s-%d%s", r.role.GetKind(), r.roleSuffix(), r.rule, r.verb)
}

// roleSuffix returns the role's name without the release's prefix.
func (r grantedRule) roleSuffix() string {
	return strings.TrimPrefix(r.role.GetName(), r.installation.release+"-"+r.installation.namespace)
}

// grantedRules returns everything that a release is granted.
func (i *installation) grantedRules() (table []grantedRule) {
	i.t.Helper()
	objects := objectsOf(i.t, i.helm("get", "manifest", i.release))
	for _, object := range objects {
		if object.GetKind() != "Role" && object.GetKind() != "ClusterRole" {
			continue
		}
		var role rbacv1.Role
		require.NoError(i.t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role))
		for n, rule := range role.Rules {
			table = append(table, grantedRule{i, object, n, "", permissionsOf(rule, boundIn(objects, object))})
		}
	}
	require.NotEmpty(i.t, table)
	return table
}

// boundIn returns the namespace in which a role is bound, "" for the whole cluster.
func boundIn(objects []*unstructured.Unstructured, role *unstructured.Unstructured) string {
	for _, object := range objects {
		if name, _, _ := unstructured.NestedString(object.Object, "roleRef",
			"name"); object.GetKind() == "RoleBinding" && name == role.GetName() {
			return object.GetNamespace()
		}
	}
	return role.GetNamespace()
}

func permissionsOf(rule rbacv1.PolicyRule, namespace string) (out []authorizationv1.ResourceAttributes) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, resource := range rule.Resources {
		resource, subresource, _ := strings.Cut(resource, "/")
		for _, verb := range rule.Verbs {
			for _, name := range names {
				out = append(out, authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: resource,
					Subresource: subresource, Verb: verb,
					Namespace: namespace, Name: name})
			}
		}
	}
	return out
}

// revoke removes the rule's permissions from all roles of the release until the test ends.
func (r grantedRule) revoke(t *testing.T) {
	t.Helper()
	rules := map[*unstructured.Unstructured][]any{}
	for _, other := range r.installation.grantedRules() {
		if _, known := rules[other.role]; !known {
			rules[other.role] = []any{}
		}
		if rule := other.without(r); rule != nil {
			rules[other.role] = append(rules[other.role], rule)
		}
	}
	for role, left := range rules {
		if all := role.Object["rules"].([]any); !reflect.DeepEqual(left, all) {
			t.Cleanup(func() { r.installation.write(t, role, all) })
			r.installation.write(t, role, left)
		}
	}
	account := r.installation.account(t, r.component())
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(r.permissions, func(p authorizationv1.ResourceAttributes) bool {
			return account.MayDo(t, p)
		})
	},
		harness.Patience, harness.Tick, "%s: another role still grants it", r)
}

// without returns the rule without the permissions of another rule, nil if nothing is left.
func (r grantedRule) without(other grantedRule) any {
	rule := r.role.Object["rules"].([]any)[r.rule]
	if !r.overlaps(other) {
		return rule
	}
	left := runtime.DeepCopyJSON(rule.(map[string]any))
	left["verbs"] = slices.DeleteFunc(left["verbs"].([]any), func(verb any) bool {
		return slices.ContainsFunc(other.permissions, func(p authorizationv1.ResourceAttributes) bool {
			return p.Verb == verb
		})
	})
	if len(left["verbs"].([]any)) == 0 {
		return nil
	}
	return left
}

// watchRules returns the rules that grant watch, limited to that verb.
func watchRules(table []grantedRule) (narrow []grantedRule) {
	for _, r := range table {
		r.verb = "watch"
		r.permissions = slices.DeleteFunc(slices.Clone(r.permissions), func(p authorizationv1.ResourceAttributes) bool {
			return p.Verb != r.verb
		})
		if len(r.permissions) > 0 {
			narrow = append(narrow, r)
		}
	}
	return narrow
}

// overlaps reports whether both rules grant a common permission.
func (r grantedRule) overlaps(other grantedRule) bool {
	return slices.ContainsFunc(r.permissions, func(p authorizationv1.ResourceAttributes) bool {
		return slices.ContainsFunc(other.permissions, func(q authorizationv1.ResourceAttributes) bool {
			here, named := p.Namespace == q.Namespace || p.Namespace == "", p.Name == q.Name || p.Name == ""
			return here && named && p.Group == q.Group && p.Resource == q.Resource && p.Subresource == q.Subresource &&
				p.Verb == q.Verb
		})
	})
}

func (i *installation) write(t *testing.T, role *unstructured.Unstructured, rules []any) {
	t.Helper()
	roles := i.stack.Dynamic(t).Resource(rbacv1.SchemeGroupVersion.WithResource(strings.ToLower(role.GetKind()) +
		"s")).Namespace(role.GetNamespace())
	live, err := roles.Get(context.Background(), role.GetName(), metav1.GetOptions{})
	require.NoError(t, err)
	live.Object["rules"] = rules
	_, err = roles.Update(context.Background(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// account returns the account of a component's pods.
func (i *installation) account(t testing.TB, component string) harness.Account {
	t.Helper()
	return i.stack.Login(t, i.namespace, i.deployment(component).Spec.Template.Spec.ServiceAccountName)
}

// component returns the component to which a role of deploy/rbac is granted.
func (r grantedRule) component() string {
	suffix := r.roleSuffix()
	if strings.HasPrefix(suffix, "-server") || suffix == "-webhooks" || suffix == "-definitions" {
		return "server"
	}
	return "worker"
}

// unreported returns the permissions that a text does not name, in the wording of Slipway or of the API server.
func unreported(text string, lost []authorizationv1.ResourceAttributes) (missing []string) {
	text = strings.ReplaceAll(text, `\"`, `"`)
	for _, p := range lost {
		if !strings.Contains(text, p.Verb+" "+resourceOf(p)) &&
			!strings.Contains(text, fmt.Sprintf("cannot %s resource %q", p.Verb, resourceOf(p))) {
			missing = append(missing, p.Verb+" "+resourceOf(p))
		}
	}
	return missing
}

func resourceOf(p authorizationv1.ResourceAttributes) string {
	return strings.TrimSuffix(p.Resource+"/"+p.Subresource, "/")
}

// requireReported revokes a rule and requires that the reports name it. The reports are read one after the other.
// Unless every verb must be named, one verb of each resource is enough: a check stops at the first missing permission.
func (r grantedRule) requireReported(t *testing.T, every bool, read func(t *testing.T) []func() string) {
	t.Helper()
	r.revoke(t)
	sources := read(t)
	texts := make([]string, len(sources))
	var missing []string
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(harness.Tick) {
		for n, source := range sources {
			texts[n] = source()
			if missing = unreported(strings.Join(texts, "\n"), r.permissions); !every {
				missing = r.unreportedResources(missing)
			}
			if len(missing) == 0 {
				return
			}
		}
	}
	t.Fatalf("%s: no report names %v:\n%s", r, missing, strings.Join(texts, "\n"))
}

// unreportedResources returns the missing permissions of whose resource no verb is named. A serving reports only the
// first refused object.
func (r grantedRule) unreportedResources(missing []string) []string {
	if r.roleSuffix() == "-party-servings" && len(missing) < len(r.permissions) {
		return nil
	}
	named := func(p authorizationv1.ResourceAttributes) bool {
		return !slices.Contains(missing, p.Verb+" "+resourceOf(p))
	}
	return slices.DeleteFunc(slices.Clone(missing), func(one string) bool {
		_, resource, _ := strings.Cut(one, " ")
		return slices.ContainsFunc(r.permissions, func(p authorizationv1.ResourceAttributes) bool {
			return resourceOf(p) == resource && named(p)
		})
	})
}

// centreStartReports starts new processes of an engine and returns their output and readiness.
func (i *installation) centreStartReports(t *testing.T) []func() string {
	node := i.node
	node.t = t
	server, worker := node.start(i.deployment("server")), node.start(i.deployment("worker"))
	return []func() string{server.Output, worker.Output, func() string {
		response, err := http.Get("http://" + server.address + "/readyz")
		if err != nil {
			return ""
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}}
}

// sample returns every nth rule, so that each part of the table is covered.
func sample(table []grantedRule, n int) (some []grantedRule) {
	for i, r := range table {
		if i%n == 0 {
			some = append(some, r)
		}
	}
	return some
}

// TestLongMissingCentrePermission_IsReported checks that a process names, at its start, a permission that the centre
// lacks.
func TestLongMissingCentrePermission_IsReported(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := harness.SharedStack(t)
	content := engineValues(stack, stack.TemporalNamespace(t), stack.Namespace(t, "servings"),
		stack.Namespace(t, "apps"))
	centre := install(t, stack, stack.Namespace(t, "home"), content)
	for _, r := range sample(centre.centreRules(), 6) {
		t.Run(r.String(), func(t *testing.T) { r.requireReported(t, true, centre.centreStartReports) })
	}
}

// centreRules returns the rules that do not belong to a party, an approver, a guard reader or a repairer.
func (i *installation) centreRules() []grantedRule {
	return slices.DeleteFunc(i.grantedRules(), func(r grantedRule) bool {
		return strings.HasPrefix(r.roleSuffix(), "-party") || r.roleSuffix() == "-rollout-approver" ||
			r.roleSuffix() == "-guard-reader" || r.roleSuffix() == "-override"
	})
}

func TestSoakEveryMissingCentrePermission_IsReported(t *testing.T) {
	harness.Soak(t)
	p := harness.NewPrivateStack(t)
	apps, home := p.Namespace(t, "apps"), p.Namespace(t, "home")
	content := engineValues(p.Stack, p.TemporalNamespace(t), p.Namespace(t, "servings"), apps)
	content["rollouts"], content["rbac"] = map[string]any{"enabled": true}, map[string]any{"byServer": true}
	centre := install(t, p.Stack, home, content)
	table := centre.centreRules()
	for _, r := range table {
		t.Run(r.String(), func(t *testing.T) { r.requireReported(t, true, centre.centreStartReports) })
	}
	harness.Covered(t, len(table), "rights of the centre")
}
