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

// right is one rule of a role that a release of the chart has.
type right struct {
	installation *installation
	role         *unstructured.Unstructured
	rule         int
	// verb is the only one that is meant; "": the whole rule.
	verb string
	// permissions are what it grants, one by one.
	permissions []authorizationv1.ResourceAttributes
}

func (r right) String() string {
	return fmt.Sprintf("%s%s-%d%s", r.role.GetKind(), r.part(), r.rule, r.verb)
}

// part is the role's name without what is the release's.
func (r right) part() string {
	return strings.TrimPrefix(r.role.GetName(), r.installation.release+"-"+r.installation.namespace)
}

// rights is the table of everything that a release is granted.
func (i *installation) rights() (table []right) {
	i.t.Helper()
	objects := objectsOf(i.t, i.helm("get", "manifest", i.release))
	for _, object := range objects {
		if object.GetKind() != "Role" && object.GetKind() != "ClusterRole" {
			continue
		}
		var role rbacv1.Role
		require.NoError(i.t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role))
		for n, rule := range role.Rules {
			table = append(table, right{i, object, n, "", permissionsOf(rule, boundIn(objects, object))})
		}
	}
	require.NotEmpty(i.t, table)
	return table
}

// boundIn is the namespace that a role is bound in, "" for the whole cluster.
func boundIn(objects []*unstructured.Unstructured, role *unstructured.Unstructured) string {
	for _, object := range objects {
		if name, _, _ := unstructured.NestedString(object.Object, "roleRef", "name"); object.GetKind() == "RoleBinding" && name == role.GetName() {
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
				out = append(out, authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: resource, Subresource: subresource, Verb: verb,
					Namespace: namespace, Name: name})
			}
		}
	}
	return out
}

// take takes away what the rule grants, from all roles of the release, until the test is over.
func (r right) take(t *testing.T) {
	t.Helper()
	rules := map[*unstructured.Unstructured][]any{}
	for _, other := range r.installation.rights() {
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
	account := r.installation.account(t)
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(r.permissions, func(p authorizationv1.ResourceAttributes) bool { return account.MayDo(t, p) })
	},
		harness.Patience, harness.Tick, "%s: something else grants it", r)
}

// without is what is left of a rule if another right is taken away, nil for nothing.
func (r right) without(other right) any {
	rule := r.role.Object["rules"].([]any)[r.rule]
	if !r.overlaps(other) {
		return rule
	}
	left := runtime.DeepCopyJSON(rule.(map[string]any))
	left["verbs"] = slices.DeleteFunc(left["verbs"].([]any), func(verb any) bool {
		return slices.ContainsFunc(other.permissions, func(p authorizationv1.ResourceAttributes) bool { return p.Verb == verb })
	})
	if len(left["verbs"].([]any)) == 0 {
		return nil
	}
	return left
}

// withoutWatch are the rules of a table with which something can be watched, and that verb alone.
func withoutWatch(table []right) (narrow []right) {
	for _, r := range table {
		r.verb = "watch"
		r.permissions = slices.DeleteFunc(slices.Clone(r.permissions), func(p authorizationv1.ResourceAttributes) bool { return p.Verb != r.verb })
		if len(r.permissions) > 0 {
			narrow = append(narrow, r)
		}
	}
	return narrow
}

// overlaps says whether both grant some right.
func (r right) overlaps(other right) bool {
	return slices.ContainsFunc(r.permissions, func(p authorizationv1.ResourceAttributes) bool {
		return slices.ContainsFunc(other.permissions, func(q authorizationv1.ResourceAttributes) bool {
			here, named := p.Namespace == q.Namespace || p.Namespace == "", p.Name == q.Name || p.Name == ""
			return here && named && p.Group == q.Group && p.Resource == q.Resource && p.Subresource == q.Subresource && p.Verb == q.Verb
		})
	})
}

func (i *installation) write(t *testing.T, role *unstructured.Unstructured, rules []any) {
	t.Helper()
	roles := i.stack.Dynamic(t).Resource(rbacv1.SchemeGroupVersion.WithResource(strings.ToLower(role.GetKind()) + "s")).Namespace(role.GetNamespace())
	live, err := roles.Get(context.Background(), role.GetName(), metav1.GetOptions{})
	require.NoError(t, err)
	live.Object["rules"] = rules
	_, err = roles.Update(context.Background(), live, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// account is that of the release's pods.
func (i *installation) account(t testing.TB) harness.Account {
	t.Helper()
	return i.stack.Login(t, i.namespace, i.deployment("worker").Spec.Template.Spec.ServiceAccountName)
}

// unnamed are those of the permissions that a text doesn't name, in the words of Slipway or in those of the API server.
func unnamed(text string, lost []authorizationv1.ResourceAttributes) (missing []string) {
	text = strings.ReplaceAll(text, `\"`, `"`)
	for _, p := range lost {
		if !strings.Contains(text, p.Verb+" "+resourceOf(p)) && !strings.Contains(text, fmt.Sprintf("cannot %s resource %q", p.Verb, resourceOf(p))) {
			missing = append(missing, p.Verb+" "+resourceOf(p))
		}
	}
	return missing
}

func resourceOf(p authorizationv1.ResourceAttributes) string {
	return strings.TrimSuffix(p.Resource+"/"+p.Subresource, "/")
}

// requireNamed takes a right away, and looks for it in what somebody reads who looks for the reason: one text after the other. If not
// every verb of it has to be named, one of each resource has: who checks something stops at the first that is missing.
func (r right) requireNamed(t *testing.T, every bool, read func(t *testing.T) []func() string) {
	t.Helper()
	r.take(t)
	sources := read(t)
	texts := make([]string, len(sources))
	var missing []string
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(harness.Tick) {
		for n, source := range sources {
			texts[n] = source()
			if missing = unnamed(strings.Join(texts, "\n"), r.permissions); !every {
				missing = r.wholly(missing)
			}
			if len(missing) == 0 {
				return
			}
		}
	}
	t.Fatalf("%s: nothing names %v:\n%s", r, missing, strings.Join(texts, "\n"))
}

// wholly are those of the missing names of whose resource no verb is named. What a serving lacks is told by its first object that is refused, one after the other.
func (r right) wholly(missing []string) []string {
	if r.part() == "-party-servings" && len(missing) < len(r.permissions) {
		return nil
	}
	named := func(p authorizationv1.ResourceAttributes) bool {
		return !slices.Contains(missing, p.Verb+" "+resourceOf(p))
	}
	return slices.DeleteFunc(slices.Clone(missing), func(one string) bool {
		_, resource, _ := strings.Cut(one, " ")
		return slices.ContainsFunc(r.permissions, func(p authorizationv1.ResourceAttributes) bool { return resourceOf(p) == resource && named(p) })
	})
}

// startOfTheCentre is what new processes of an engine say at their start.
func (i *installation) startOfTheCentre(t *testing.T) []func() string {
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

// sample is every nth of the table, so that each part of it has its turn.
func sample(table []right, n int) (some []right) {
	for i, r := range table {
		if i%n == 0 {
			some = append(some, r)
		}
	}
	return some
}

// A right of the centre that is taken away is named by a process that starts.
func TestLongRightsOfTheCentreAreNamed(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := harness.SharedStack(t)
	content := engineValues(stack, stack.TemporalNamespace(t), stack.Namespace(t, "servings"), stack.Namespace(t, "apps"))
	centre := install(t, stack, stack.Namespace(t, "home"), content)
	for _, r := range sample(centre.ofTheCentre(), 6) {
		t.Run(r.String(), func(t *testing.T) { r.requireNamed(t, true, centre.startOfTheCentre) })
	}
}

// ofTheCentre are the rights that aren't those of a party.
func (i *installation) ofTheCentre() []right {
	return slices.DeleteFunc(i.rights(), func(r right) bool {
		return strings.HasPrefix(r.part(), "-party") || r.part() == "-rollout-approver" || r.part() == "-guard-reader"
	})
}

func TestSoakEveryRightOfTheCentreIsNamed(t *testing.T) {
	harness.Soak(t)
	p := harness.NewPrivateStack(t)
	apps, home := p.Namespace(t, "apps"), p.Namespace(t, "home")
	content := engineValues(p.Stack, p.TemporalNamespace(t), p.Namespace(t, "servings"), apps)
	content["rollouts"] = map[string]any{"enabled": true}
	centre := install(t, p.Stack, home, content)
	table := centre.ofTheCentre()
	for _, r := range table {
		t.Run(r.String(), func(t *testing.T) { r.requireNamed(t, true, centre.startOfTheCentre) })
	}
	harness.Covered(t, len(table), "rights of the centre")
}
