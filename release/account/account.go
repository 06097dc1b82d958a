// Package account derives from the manifests of deploy/rbac what a service account needs that a process makes for
// itself. The package does no I/O.
package account

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/strictyaml"
)

// Label is set on everything that belongs to an account which a process has made for itself: the account's name.
const Label = "slipway.io/own-account"

// userPrefix begins the user name of every service account.
const userPrefix = "system:serviceaccount:"

// User returns the user name of a service account.
func User(namespace, name string) string { return userPrefix + namespace + ":" + name }

// IsServiceAccount reports whether a user is a service account. Any other user may be a person.
func IsServiceAccount(user string) bool {
	namespace, name, found := strings.Cut(strings.TrimPrefix(user, userPrefix), ":")
	return found && strings.HasPrefix(user, userPrefix) && namespace != "" && name != "" && !strings.Contains(name, ":")
}

// Account is a service account, and where it works.
type Account struct {
	Namespace, Name string
	// Names replaces names of namespaces and objects that the manifests contain.
	Names map[string]string
	// Released are the namespaces in which it releases, in place of the manifests' namespace "shop"; empty: all.
	Released []string
}

// User returns the account's user name.
func (a Account) User() string { return User(a.Namespace, a.Name) }

// Manifest is one file of deploy/rbac.
type Manifest struct {
	// Name is the name of the file.
	Name string
	Text []byte
	// Omit are the names of roles that are left out, with their bindings.
	Omit []string
	// Optional is true if the account is of use without these rights.
	Optional bool
}

// released is the namespace of the manifests that is replaced by those in which an account releases.
const released = "shop"

// The kinds of roles and bindings.
const (
	kindRole, kindRoleBinding       = "Role", "RoleBinding"
	kindCluster, kindClusterBinding = "ClusterRole", "ClusterRoleBinding"
)

// Objects returns the roles and bindings of a manifest for this account alone: their names are its own, so that they
// replace no role of an administrator. The rules are those of the manifest. In all namespaces, a Role becomes a
// ClusterRole.
func (a Account) Objects(m Manifest) (all []*unstructured.Unstructured, err error) {
	for _, document := range strictyaml.Split(m.Text) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, fmt.Errorf("read deploy/rbac/%s: %w", m.Name, err)
		}
		if !slices.Contains([]string{kindRole, kindRoleBinding, kindCluster, kindClusterBinding}, o.GetKind()) ||
			slices.Contains(m.Omit, o.GetName()) {
			continue
		}
		where, err := a.place(o)
		if err != nil {
			return nil, fmt.Errorf("deploy/rbac/%s: %w", m.Name, err)
		}
		if err := a.take(o); err != nil {
			return nil, fmt.Errorf("read deploy/rbac/%s: %w", m.Name, err)
		}
		for _, namespace := range where {
			one := o.DeepCopy()
			one.SetNamespace(namespace)
			all = append(all, one)
		}
	}
	return all, nil
}

// place returns the namespaces of an object, "" for the whole cluster, and makes it an object of the cluster if it is
// for all namespaces.
func (a Account) place(o *unstructured.Unstructured) (namespaces []string, err error) {
	kind, namespace := o.GetKind(), o.GetNamespace()
	role, _, _ := unstructured.NestedString(o.Object, "roleRef", "kind")
	switch {
	case kind == kindCluster || kind == kindClusterBinding:
		return []string{""}, nil
	case namespace == released || role == kindCluster:
		if len(a.Released) > 0 {
			return a.Released, nil
		}
		o.SetKind("Cluster" + kind)
		if kind == kindRoleBinding {
			err = unstructured.SetNestedField(o.Object, kindCluster, "roleRef", "kind")
		}
		return []string{""}, err
	}
	here, known := a.Names[namespace]
	if !known {
		return nil, fmt.Errorf("%s %s is in the namespace %s, which this account does not know", kind, o.GetName(),
			namespace)
	}
	return []string{here}, nil
}

// take gives an object a name of its own, its subject, and the names of this installation in its rules.
func (a Account) take(o *unstructured.Unstructured) error {
	o.SetName(a.scoped(o.GetName()))
	o.SetLabels(map[string]string{Label: a.Name})
	if strings.HasSuffix(o.GetKind(), "Binding") {
		role, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
		o.Object["subjects"] = []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "name": a.Name,
			"namespace": a.Namespace}}
		return unstructured.SetNestedField(o.Object, a.scoped(role), "roleRef", "name")
	}
	rules, _, err := unstructured.NestedSlice(o.Object, "rules")
	if err != nil {
		return err
	}
	for _, rule := range rules {
		rule, _ := rule.(map[string]any)
		names, _, err := unstructured.NestedStringSlice(rule, "resourceNames")
		if err != nil {
			return err
		}
		for i, name := range names {
			if other, is := a.Names[name]; is {
				names[i] = other
			}
		}
		if len(names) > 0 {
			if err := unstructured.SetNestedStringSlice(rule, names, "resourceNames"); err != nil {
				return err
			}
		}
	}
	return unstructured.SetNestedSlice(o.Object, rules, "rules")
}

// scoped returns the name of a role or binding of this account: no two accounts have the same one.
func (a Account) scoped(name string) string { return a.Namespace + ":" + a.Name + ":" + name }
