package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// granted is one rule that an account has; namespace "" is the whole cluster.
type granted struct {
	rbacv1.PolicyRule
	namespace, role string
}

func (g granted) String() string {
	where := "everywhere"
	if g.namespace != "" {
		where = "in " + g.namespace
	}
	return fmt.Sprintf("%s: %s %s/%s%s %s", g.role, strings.Join(g.Verbs, ","), strings.Join(g.APIGroups, ","),
		strings.Join(g.Resources, ","), strings.Join(g.NonResourceURLs, ","), where)
}

// rights are the rules of each account, "namespace/name", of some manifests.
type rights map[string][]granted

// rightsOf reads the accounts, roles and bindings of manifests.
func rightsOf(t testing.TB, objects []*unstructured.Unstructured) rights {
	t.Helper()
	roles := map[string][]rbacv1.PolicyRule{}
	found := rights{}
	for _, o := range objects {
		switch o.GetKind() {
		case "ServiceAccount":
			found[o.GetNamespace()+"/"+o.GetName()] = nil
		case "Role", "ClusterRole":
			var role rbacv1.ClusterRole
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
			require.Nil(t, role.AggregationRule, "%s: the rules of an aggregated role are unknown", role.Name)
			roles[o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName()] = role.Rules
		}
	}
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "RoleBinding") {
			continue
		}
		var binding rbacv1.RoleBinding
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding))
		key := binding.RoleRef.Kind + "//" + binding.RoleRef.Name
		if binding.RoleRef.Kind == "Role" {
			key = "Role/" + o.GetNamespace() + "/" + binding.RoleRef.Name
		}
		rules, known := roles[key]
		require.True(t, known, "%s %s binds a role of others: %s", o.GetKind(), o.GetName(), key)
		for _, subject := range binding.Subjects {
			require.Equal(t, rbacv1.ServiceAccountKind, subject.Kind, "%s binds more than an account", o.GetName())
			account := subject.Namespace + "/" + subject.Name
			for _, rule := range rules {
				found[account] = append(found[account], granted{rule, o.GetNamespace(), binding.RoleRef.Name})
			}
		}
	}
	return found
}

// administrators is the namespace whose pods, Secrets and accounts are those of administrators.
const administrators = metav1.NamespaceSystem

// reach returns everything that who holds an account can do: also as the accounts of the namespaces where it can run
// pods, or read Secrets.
func (r rights) reach(account string) (all []granted) {
	seen := map[string]bool{}
	for queue := []string{account}; len(queue) > 0; queue = queue[1:] {
		if seen[queue[0]] {
			continue
		}
		seen[queue[0]] = true
		all = append(all, r[queue[0]]...)
		for _, g := range r[queue[0]] {
			for other := range r {
				namespace, _, _ := strings.Cut(other, "/")
				if g.takesAccounts(r[queue[0]]) && (g.namespace == "" || g.namespace == namespace) {
					queue = append(queue, other)
				}
			}
		}
	}
	return all
}

// takesAccounts reports whether a rule gives the tokens of the accounts of its namespace: by pods, or by Secrets.
func (g granted) takesAccounts(all []granted) bool {
	return g.runsPods() || g.readsSecrets(all)
}

// runsPods reports whether a rule allows to run a program in pods, new ones or those of others.
func (g granted) runsPods() bool {
	workloads := []string{"deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs", "clonesets",
		"advancedcronjobs", "broadcastjobs", "sidecarsets", "replicationcontrollers", "podtemplates"}
	return g.may(groups("", "apps", "batch", "apps.kruise.io"), append(workloads, "pods"), writes) ||
		g.may(groups(""), []string{"pods/exec", "pods/attach", "pods/portforward", "pods/proxy"}, anyVerb) ||
		g.may(groups(""), []string{"pods/ephemeralcontainers"}, writes)
}

// readsSecrets reports whether a rule allows to read the token of another account: any Secret, or one of a name that
// the account can create, since a Secret can ask for the token of an account.
func (g granted) readsSecrets(all []granted) bool {
	if !g.may(groups(""), []string{"secrets"}, reads) {
		return false
	}
	return len(g.ResourceNames) == 0 || slices.ContainsFunc(all, func(other granted) bool {
		same := other.namespace == "" || other.namespace == g.namespace
		return same && other.may(groups(""), []string{"secrets"}, verbs("create", "update", "patch"))
	})
}

// may reports whether a rule allows one of the verbs on one of the resources.
func (g granted) may(apiGroups, resources []string, verb func(string) bool) bool {
	in := func(have, want []string) bool {
		return slices.ContainsFunc(want, func(one string) bool {
			return slices.Contains(have, one) || slices.Contains(have, "*")
		})
	}
	return in(g.APIGroups, apiGroups) && in(g.Resources, resources) && g.hasVerb(verb)
}

func (g granted) hasVerb(verb func(string) bool) bool {
	return slices.ContainsFunc(g.Verbs, func(v string) bool { return v == "*" || verb(v) })
}

func groups(names ...string) []string { return names }

func verbs(names ...string) func(string) bool {
	return func(verb string) bool { return slices.Contains(names, verb) }
}

func anyVerb(string) bool { return true }

var (
	reads  = verbs("get", "list", "watch")
	writes = verbs("create", "update", "patch")
	alters = verbs("create", "update", "patch", "delete", "deletecollection")
)

// way is one way to become an administrator.
type way struct {
	name string
	open func(g granted, all []granted) bool
}

// inAdministrators reports whether a rule applies to the namespace of administrators.
func (g granted) inAdministrators() bool { return g.namespace == "" || g.namespace == administrators }

// on returns a way that is open by one of these verbs, in any namespace, on resources of a group.
func on(name, group string, verb func(string) bool, resources ...string) way {
	return way{name, func(g granted, _ []granted) bool { return g.may(groups(group), resources, verb) }}
}

// groupOf returns a way that is open by one of these verbs on any resource of a group.
func groupOf(name, group string, verb func(string) bool) way {
	return way{name, func(g granted, _ []granted) bool {
		return (slices.Contains(g.APIGroups, group) || slices.Contains(g.APIGroups, "*")) &&
			g.hasVerb(verb)
	}}
}

// waysUp are all known ways to become an administrator of a cluster
// (https://kubernetes.io/docs/concepts/security/rbac-good-practices/#privilege-escalation-risks).
var waysUp = []way{
	{"everything", func(g granted, _ []granted) bool {
		all := slices.Concat(g.Verbs, g.Resources, g.APIGroups)
		return slices.Contains(all, "*") || slices.ContainsFunc(g.Resources,
			func(r string) bool { return strings.HasPrefix(r, "*/") })
	}},
	{"verbs of roles", func(g granted, _ []granted) bool {
		return slices.ContainsFunc(g.Verbs, verbs("bind", "escalate", "impersonate"))
	}},
	{"other addresses", func(g granted, _ []granted) bool { return len(g.NonResourceURLs) > 0 }},
	groupOf("roles", rbacv1.GroupName, alters),
	groupOf("admission", "admissionregistration.k8s.io", alters),
	groupOf("definitions", "apiextensions.k8s.io", alters),
	groupOf("API servers", "apiregistration.k8s.io", alters),
	groupOf("certificates", "certificates.k8s.io", alters),
	groupOf("storage", "storage.k8s.io", alters),
	on("tokens", "", anyVerb, "serviceaccounts/token"),
	on("accounts", "", alters, "serviceaccounts"),
	on("nodes", "", anyVerb, "nodes/proxy"),
	on("nodes", "", alters, "nodes", "nodes/status"),
	on("volumes of hosts", "", writes, "persistentvolumes"),
	on("rules for pods of a namespace", "", writes, "namespaces", "namespaces/finalize"),
	on("pods to any node", "", anyVerb, "pods/binding", "bindings"),
	{"tokens by Secrets", func(g granted, all []granted) bool { return g.readsSecrets(all) }},
	{"pods of administrators", func(g granted, _ []granted) bool { return g.runsPods() && g.inAdministrators() }},
	{"settings and traffic of administrators", func(g granted, _ []granted) bool {
		return g.inAdministrators() && (g.may(groups(""), []string{"configmaps", "services", "endpoints"}, alters) ||
			g.may(groups("discovery.k8s.io"), []string{"endpointslices"}, alters))
	}},
}

// waysUpOf returns how who holds an account becomes an administrator.
func (r rights) waysUpOf(account string) (open []string) {
	all := r.reach(account)
	for _, w := range waysUp {
		for _, g := range all {
			if w.open(g, all) {
				open = append(open, w.name+": "+g.String())
			}
		}
	}
	slices.Sort(open)
	return slices.Compact(open)
}

// accounts returns the names of all accounts.
func (r rights) accounts() []string { return slices.Sorted(maps.Keys(r)) }
