package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/test/harness"
)

// document returns an unchanged example of Kuscia's documents (kuscia-serving-api, kuscia-deployment).
func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "kuscia", name))
	require.NoError(t, err)
	return string(text)
}

// writeFile writes the text into a temporary file and returns its path.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "document")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

const success = `{"status":{"code":0,"message":"success","details":[]}}`

// queryAnswer is the answer to a query.
type queryAnswer struct {
	Initiator string `json:"initiator"`
	Parties   []struct {
		DomainID       string            `json:"domain_id"`
		AppImage       string            `json:"app_image"`
		Replicas       *int32            `json:"replicas"`
		UpdateStrategy map[string]string `json:"update_strategy"`
		Resources      []map[string]string
	} `json:"parties"`
	Status servingStatus `json:"status"`
}

type servingStatus struct {
	State     string `json:"state"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
	Total     int    `json:"total_parties"`
	Available int    `json:"available_parties"`
	Parties   []struct {
		DomainID    string `json:"domain_id"`
		State       string `json:"state"`
		Replicas    int32  `json:"replicas"`
		Available   int32  `json:"available_replicas"`
		Unavailable int32  `json:"unavailable_replicas"`
		Updated     int32  `json:"updatedReplicas"`
		Endpoints   []struct {
			PortName string `json:"port_name"`
			Scope    string `json:"scope"`
			Endpoint string `json:"endpoint"`
		} `json:"endpoints"`
	} `json:"party_statuses"`
}

// The examples of Kuscia's documents work unchanged: over HTTP and by kubectl, with parties alice and bob.
func TestServingExamplesOfKusciaDocuments_Work(t *testing.T) {
	t.Parallel()
	own := harness.NewPrivateStack(t).Stack // the names in the documents are not unique to this test
	e := harness.Start(t, harness.Options{Stack: &own, Args: []string{"--serving-namespace", kuscia.Namespace}})
	e.NamedNamespace(t, "alice")
	e.NamedNamespace(t, "bob")
	apply := func(text string) { e.Kubectl("apply", "-f", writeFile(t, text)) }
	image := document(t, "appimage.yaml")
	apply(image)
	apply(strings.Replace(image, "name: secretflow-serving-image", "name: sf-serving-image", 1))
	t.Cleanup(func() { e.Kubectl("delete", "aimg", "secretflow-serving-image", "sf-serving-image") })
	t.Run("over HTTP", func(t *testing.T) { overHTTP(t, e) })
	t.Run("by kubectl", func(t *testing.T) {
		apply(document(t, "secretflow-serving.yaml"))
		byKubectl(t, e)
	})
}

func overHTTP(t *testing.T, e *harness.Engine) {
	t.Helper()
	//nolint:testifylint // clients compare these exact bytes
	require.Equal(t, success, e.Kuscia("/api/v1/serving/create", document(t, "create.json")).Text)
	query := func() queryAnswer {
		var q queryAnswer
		a := e.MustKuscia("/api/v1/serving/query", document(t, "query.json"))
		require.NoError(t, json.Unmarshal(a.Data, &q), "%s", a.Text)
		return q
	}
	require.Contains(t, []string{"Pending", "Progressing"}, query().Status.State, "its pods cannot run yet")
	available := func() bool { return query().Status.State == "Available" }
	require.Eventually(t, available, harness.Patience, harness.Tick)
	q := query()
	require.Equal(t, "alice", q.Initiator)
	require.Equal(t, []string{"alice", "bob"}, []string{q.Parties[0].DomainID, q.Parties[1].DomainID})
	require.Equal(t, map[string]string{"type": "RollingUpdate", "max_surge": "25%", "max_unavailable": "25%"},
		q.Parties[0].UpdateStrategy)
	require.Equal(t, []map[string]string{{"container_name": "secretflow", "min_cpu": "100m", "max_cpu": "100m",
		"min_memory": "100Mi", "max_memory": "100Mi"}}, q.Parties[0].Resources)
	require.Equal(t, 2, q.Status.Total)
	require.Equal(t, 2, q.Status.Available)
	for i, domain := range []string{"alice", "bob"} {
		p := q.Status.Parties[i]
		require.Equal(t, domain, p.DomainID)
		require.Equal(t, []int32{1, 1, 0, 1}, []int32{p.Replicas, p.Available, p.Unavailable, p.Updated})
		var endpoints []string
		for _, endpoint := range p.Endpoints {
			endpoints = append(endpoints, endpoint.PortName+" "+endpoint.Scope+" "+endpoint.Endpoint)
		}
		require.ElementsMatch(t, []string{"service Cluster serving-01-service." + domain + ".svc",
			"internal Domain serving-01-internal." + domain + ".svc:53510",
			"brpc-builtin Domain serving-01-brpc-builtin." + domain + ".svc:53511"}, endpoints)
	}
	var batch struct {
		Servings []struct {
			ID     string        `json:"serving_id"`
			Status servingStatus `json:"status"`
		} `json:"servings"`
	}
	require.NoError(t, json.Unmarshal(e.MustKuscia("/api/v1/serving/status/batchQuery",
		document(t, "batchQuery.json")).Data, &batch))
	require.Equal(t, "serving-01", batch.Servings[0].ID)
	require.Equal(t, q.Status, batch.Servings[0].Status)

	//nolint:testifylint // clients compare these exact bytes
	require.Equal(t, success, e.Kuscia("/api/v1/serving/update", document(t, "update.json")).Text)
	require.Eventually(t, func() bool {
		q := query()
		d, err := e.Kube.AppsV1().Deployments("bob").Get(t.Context(), "serving-01", metav1.GetOptions{})
		return err == nil && q.Status.State == "Available" && q.Parties[1].Resources[0]["max_memory"] == "200Mi" &&
			d.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String() == "200Mi"
	}, harness.Patience, harness.Tick)

	//nolint:testifylint // clients compare these exact bytes
	require.Equal(t, success, e.Kuscia("/api/v1/serving/delete", document(t, "delete.json")).Text)
	a := e.Kuscia("/api/v1/serving/query", document(t, "query.json"))
	require.Equal(t, 11601, a.Status.Code, "the serving is not found immediately after the deletion: %s", a.Text)
	require.Equal(t, `kusciadeployments.kuscia.secretflow "serving-01" not found`, a.Status.Message)
	require.Eventually(t, func() bool {
		return e.Serving(kuscia.Namespace, "serving-01") == nil && remainingObjects(t, e, "alice", "serving-01") == 0 &&
			remainingObjects(t, e, "bob", "serving-01") == 0
	}, harness.Patience, harness.Tick, "no object of it is left in either party")
}

// remainingObjects counts the objects of a serving in a namespace.
func remainingObjects(t *testing.T, e *harness.Engine, namespace, id string) int {
	t.Helper()
	options := metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=" + id}
	services, err := e.Kube.CoreV1().Services(namespace).List(t.Context(), options)
	require.NoError(t, err)
	configMaps, err := e.Kube.CoreV1().ConfigMaps(namespace).List(t.Context(), options)
	require.NoError(t, err)
	deployments, err := e.Kube.AppsV1().Deployments(namespace).List(t.Context(), options)
	require.NoError(t, err)
	return len(services.Items) + len(configMaps.Items) + len(deployments.Items)
}

func byKubectl(t *testing.T, e *harness.Engine) {
	t.Helper()
	const id = "secretflow-serving"
	e.Kubectl("wait", "--for=condition=Available", "kd/"+id, "-n", kuscia.Namespace, "--timeout=90s")
	e.WaitServingIn(kuscia.Namespace, id, "Available", harness.ServingAvailable)
	lines := strings.Split(strings.TrimSpace(e.Kubectl("get", "kd", id, "-n", kuscia.Namespace)), "\n")
	require.Equal(t, []string{"NAME", "TOTALPARTIES", "AVAILABLEPARTIES", "PHASE", "AGE"}, strings.Fields(lines[0]))
	require.Equal(t, []string{id, "2", "2", "Available"}, strings.Fields(lines[1])[:4])
	require.Eventually(t, func() bool {
		var status kuscia.KusciaDeploymentStatus
		require.NoError(t, json.Unmarshal([]byte(e.Kubectl("get", "kd", id, "-n", kuscia.Namespace, "-o",
			"jsonpath={.status}")), &status))
		for _, domain := range []string{"alice", "bob"} {
			s := status.PartyDeploymentStatuses[domain][id]
			if s.Replicas != 1 || s.AvailableReplicas != 1 || s.UpdatedReplicas != 1 || s.UnavailableReplicas != 0 ||
				s.Phase != kuscia.PhaseAvailable || len(s.Conditions) != 2 {
				return false
			}
		}
		return status.TotalParties == 2 && status.AvailableParties == 2 && status.LastReconcileTime != nil
	}, harness.Patience, harness.Tick)
	selector := "kuscia.secretflow/kd-name=" + id
	names := func(kind string) []string {
		return strings.Fields(e.Kubectl("get", kind, "-l", selector, "-n", "alice", "-o",
			"jsonpath={.items[*].metadata.name}"))
	}
	require.Equal(t, []string{id + "-brpc-builtin", id + "-internal", id + "-service"}, names("service"))
	require.Equal(t, []string{id + "-configtemplate"}, names("cm"))
	require.Equal(t, []string{id}, names("deployment"))
	require.Len(t, names("pod"), 1)
	require.Equal(t, "None 53510", e.Kubectl("get", "service", id+"-internal", "-n", "alice", "-o",
		"jsonpath={.spec.clusterIP} {.spec.ports[0].port}"))
	var q queryAnswer
	require.NoError(t, json.Unmarshal(e.MustKuscia("/api/v1/serving/query", `{"serving_id":"`+id+`"}`).Data, &q))
	require.Equal(t, "Available", q.Status.State, "HTTP shows the same serving")
	require.Equal(t, int64(1), e.Serving(kuscia.Namespace, id).Generation,
		"the engine does not change the applied spec")
	e.Kubectl("delete", "kd", id, "-n", kuscia.Namespace)
	require.Zero(t, remainingObjects(t, e, "alice", id)+remainingObjects(t, e, "bob", id),
		"kubectl delete returns after all objects are deleted")
	require.Contains(t, e.TryKubectl("get", "kd", id, "-n", kuscia.Namespace),
		`Error from server (NotFound): kusciadeployments.kuscia.secretflow "`+id+`" not found`)
}
