package harness

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/strictyaml"
)

// Account is a ServiceAccount with the permissions of a manifest of deploy/rbac.
type Account struct {
	// Kubeconfig is a file whose only credential is the account's token.
	Kubeconfig string

	kube kubernetes.Interface
}

// resources are the API resources of the kinds in those manifests.
var resources = map[string]schema.GroupVersionResource{
	"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
	"Role":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
}

// Account applies a manifest of deploy/rbac in the given namespace and creates a token for its ServiceAccount. The
// namespace is also appended to the names of cluster-scoped objects, so that tests do not share them.
func (s Stack) Account(t testing.TB, manifest, namespace string) Account {
	t.Helper()
	account := s.grantTo(t, manifest, grantee{namespace: namespace})
	require.NotEmpty(t, account.Name, "%s has no ServiceAccount", manifest)
	return s.Login(t, account.Namespace, account.Name)
}

// engineAccount is the account of `slipway dev` in tests.
const engineAccount = "slipway"

// EngineAccount is the account of an engine in one process: with the permissions of servers, which also install the
// definitions and register their webhooks, and of workers of the centre, with the rights on TrafficRoutings in these
// namespaces.
func (s Stack) EngineAccount(t testing.TB, namespace string, released ...string) Account {
	t.Helper()
	to := grantee{namespace, engineAccount, released}
	for _, manifest := range []string{"server.yaml", "by-server.yaml", "centre.yaml"} {
		s.grantTo(t, manifest, to)
	}
	return s.Login(t, namespace, engineAccount)
}

// grantee is the account to which a manifest of deploy/rbac is granted.
type grantee struct {
	namespace string
	// account is the subject of all bindings; "" leaves those of the manifest.
	account string
	// released are the namespaces in which RoleBindings of ClusterRoles are made, besides the account's own.
	released []string
}

// Grant applies a manifest of deploy/rbac as Account does.
func (s Stack) Grant(t testing.TB, manifest, namespace string) {
	t.Helper()
	s.grantTo(t, manifest, grantee{namespace: namespace})
}

// PartyUser returns the user name of the account of a party's worker that Account made with party.yaml.
func PartyUser(namespace string) string {
	return "system:serviceaccount:" + partyNamespaceOf(namespace) + ":slipway-party"
}

// grantTo applies a manifest and returns its ServiceAccount, if it has one.
func (s Stack) grantTo(t testing.TB, manifest string, to grantee) (account types.NamespacedName) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy", "rbac", manifest))
	require.NoError(t, err)
	for _, document := range strictyaml.Split(text) {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(document, &object.Object), manifest)
		if object.GetKind() == "Namespace" {
			s.ensureSharedNamespace(t, object.GetName(), to.namespace)
			continue
		}
		s.grant(t, object, to)
		if object.GetKind() == "ServiceAccount" {
			account = types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
		}
	}
	return account
}

// engineNamespace is the engine's namespace in those manifests; each test uses its own namespace instead.
const engineNamespace = "slipway"

// partyNamespace is the namespace of the account of a party's worker in those manifests; each test has one of its own.
const partyNamespace = "slipway-party"

// partyNamespaceOf returns the namespace of the account of a worker that releases in a namespace.
func partyNamespaceOf(released string) string { return released + "-party" }

// ensureSharedNamespace creates a namespace of a manifest: one that the engines of all tests share, or that of the
// account of a party's worker.
func (s Stack) ensureSharedNamespace(t testing.TB, name, namespace string) {
	t.Helper()
	switch name {
	case engineNamespace:
	case partyNamespace:
		s.NamedNamespace(t, partyNamespaceOf(namespace))
	default:
		ensureNamespace(t, s.Kube, name)
	}
}

// bind sets the subjects of a binding.
func (to grantee) bind(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	subjects, there, err := unstructured.NestedSlice(object.Object, "subjects")
	require.NoError(t, err)
	if !there {
		return
	}
	for _, subject := range subjects {
		subject := subject.(map[string]any)
		switch {
		case to.account != "":
			subject["namespace"], subject["name"] = to.namespace, to.account
		case subject["namespace"] == partyNamespace:
			subject["namespace"] = partyNamespaceOf(to.namespace)
		default:
			subject["namespace"] = to.namespace
		}
	}
	require.NoError(t, unstructured.SetNestedSlice(object.Object, subjects, "subjects"))
}

func (s Stack) grant(t testing.TB, object *unstructured.Unstructured, to grantee) {
	t.Helper()
	namespace := to.namespace
	if object.GetNamespace() == partyNamespace {
		namespace = partyNamespaceOf(namespace)
	}
	to.bind(t, object)
	resource, known := resources[object.GetKind()]
	require.True(t, known, "unknown kind in a manifest: %s", object.GetKind())
	objects := s.Dynamic(t).Resource(resource)
	where := []string{namespace}
	if role, _, _ := unstructured.NestedStringMap(object.Object, "roleRef"); role["kind"] == "ClusterRole" {
		require.NoError(t, unstructured.SetNestedField(object.Object, role["name"]+"-"+namespace, "roleRef", "name"))
		where = append(where, to.released...)
	}
	if !strings.HasPrefix(object.GetKind(), "Cluster") {
		for _, one := range where {
			object.SetNamespace(one)
			_, err := objects.Namespace(one).Create(context.Background(), object, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		return
	}
	object.SetName(object.GetName() + "-" + namespace)
	_, err := objects.Create(context.Background(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := objects.Delete(context.Background(), object.GetName(),
			metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	})
}

// Login creates a token for a ServiceAccount and a kubeconfig that holds only this token.
func (s Stack) Login(t testing.TB, namespace, name string) Account {
	t.Helper()
	token, err := s.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(context.Background(), name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	ca := s.REST.CAData
	if s.REST.CAFile != "" {
		ca, err = os.ReadFile(s.REST.CAFile)
		require.NoError(t, err)
	}
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: s.REST.Host, CertificateAuthorityData: ca,
			InsecureSkipTLSVerify: s.REST.Insecure}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u", Namespace: namespace}},
		CurrentContext: "x",
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(config, path))
	mine := rest.AnonymousClientConfig(s.REST)
	mine.BearerToken = token.Status.Token
	kube, err := kubernetes.NewForConfig(mine)
	require.NoError(t, err)
	return Account{Kubeconfig: path, kube: kube}
}

// May asks the API server whether the account may use a verb on a resource in a namespace, for example "get" on
// "apps/deployments". Namespace "" means the whole cluster.
func (a Account) May(t testing.TB, verb, resource, namespace string) bool {
	t.Helper()
	group, plural, grouped := strings.Cut(resource, "/")
	if !grouped {
		group, plural = "", resource
	}
	return a.MayDo(t, authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: plural,
		Namespace: namespace})
}

// MayDo is May for arbitrary resource attributes.
func (a Account) MayDo(t testing.TB, what authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review, err := a.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(context.Background(),
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.Allowed
}
