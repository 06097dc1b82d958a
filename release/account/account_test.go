package account

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsServiceAccount(t *testing.T) {
	t.Parallel()
	require.True(t, IsServiceAccount(User("slipway", "slipway-dev")))
	for _, user := range []string{"", "anna", "system:admin", "system:serviceaccount:", "system:serviceaccount:slipway",
		"system:serviceaccount::slipway", "system:serviceaccount:slipway:", "system:serviceaccount:a:b:c",
		"system:serviceaccounts:slipway", "slipway:slipway"} {
		require.False(t, IsServiceAccount(user), user)
	}
}

const manifest = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: slipway, namespace: slipway}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: slipway, namespace: slipway}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [slipway-gate-slipway, other], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: slipway, namespace: slipway}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: slipway}
subjects: [{kind: ServiceAccount, name: slipway, namespace: slipway}, {kind: User, name: anna}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: slipway-party, namespace: shop}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: slipway-party, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: slipway-party}
subjects: [{kind: ServiceAccount, name: slipway, namespace: slipway}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: slipway-left-out}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get]}
`

// objectsOf returns the objects of the manifest as namespace/kind/name.
func objectsOf(t *testing.T, released ...string) (names []string) {
	t.Helper()
	a := Account{Namespace: "home", Name: "slipway-dev", Released: released,
		Names: map[string]string{"slipway": "home", "slipway-gate-slipway": "slipway-gate-home"}}
	objects, err := a.Objects(Manifest{Name: "m.yaml", Text: []byte(manifest), Omit: []string{"slipway-left-out"}})
	require.NoError(t, err)
	for _, o := range objects {
		names = append(names, o.GetNamespace()+"/"+o.GetKind()+"/"+o.GetName())
		require.Equal(t, map[string]string{Label: "slipway-dev"}, o.GetLabels())
		if o.Object["subjects"] != nil {
			require.Equal(t, []any{map[string]any{"kind": "ServiceAccount", "name": "slipway-dev",
				"namespace": "home"}}, o.Object["subjects"], "no other subject of the manifest gets the rights")
		}
	}
	require.Equal(t, []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"},
		"resourceNames": []any{"slipway-gate-home", "other"}, "verbs": []any{"get"}}}, objects[0].Object["rules"])
	return names
}

func TestObjects_AreOfTheAccountAlone(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"home/Role/home:slipway-dev:slipway", "home/RoleBinding/home:slipway-dev:slipway",
		"shop/Role/home:slipway-dev:slipway-party", "pay/Role/home:slipway-dev:slipway-party",
		"shop/RoleBinding/home:slipway-dev:slipway-party", "pay/RoleBinding/home:slipway-dev:slipway-party"},
		objectsOf(t, "shop", "pay"))
	require.Equal(t, []string{"home/Role/home:slipway-dev:slipway", "home/RoleBinding/home:slipway-dev:slipway",
		"/ClusterRole/home:slipway-dev:slipway-party", "/ClusterRoleBinding/home:slipway-dev:slipway-party"},
		objectsOf(t), "in all namespaces, a Role is a ClusterRole")
}

func TestObjects_UnknownNamespace_IsAnError(t *testing.T) {
	t.Parallel()
	_, err := Account{Namespace: "home", Name: "slipway-dev"}.Objects(Manifest{Name: "m.yaml", Text: []byte(manifest)})
	require.ErrorContains(t, err, "deploy/rbac/m.yaml: Role slipway is in the namespace slipway, which this account")
}
