package compose

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/memory"
)

// call sends a request to the API, which must answer with this status, and returns the body. The API answers 503 on a
// busy machine: the request is then repeated, as the API asks.
func call(t *testing.T, method, address, body string, want int) []byte {
	t.Helper()
	var status int
	var answer []byte
	var err error
	require.Eventually(t, func() bool {
		status, answer, err = tryCall(method, address, body)
		return err != nil || status != http.StatusServiceUnavailable
	}, harness.Patience, 5*harness.Tick, "%s %s: the API still answers 503", method, address)
	require.NoError(t, err)
	require.Equal(t, want, status, "%s %s: %s", method, address, answer)
	return answer
}

func tryCall(method, address, body string) (status int, answer []byte, err error) {
	request, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/yaml")
	request.Header.Set("Authorization", "Bearer "+sampleToken)
	client := http.Client{Timeout: time.Minute}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// release stops a Deployment with a plan and finds the task in the list, which is a query of Temporal's visibility
// store.
func release(t *testing.T, stack harness.Stack, api, namespace string) {
	t.Helper()
	replicas := int32(2)
	labels := map[string]string{"app": "order"}
	_, err := stack.Kube.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "order"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "order:1"}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	service := fmt.Sprintf("workloads:\n- {namespace: %s, workloadRef: {apiVersion: apps/v1, kind: Deployment, name: "+
		"order}}\n", namespace)
	call(t, http.MethodPut, api+"/api/v1/services/111", service, http.StatusCreated)
	call(t, http.MethodPut, api+"/api/v1/plans/shop", "deployPlanItems:\n- {serviceId: 111, deployment: STOP}\n",
		http.StatusCreated)
	var accepted struct{ ID string }
	require.NoError(t, json.Unmarshal(call(t, http.MethodPost, api+"/api/v1/plans/shop/execute", "",
		http.StatusAccepted), &accepted))
	task := accepted.ID
	require.NotEmpty(t, task)
	var seen struct{ State, Reason, FinishedAt string }
	require.Eventually(t, func() bool {
		_, answer, err := tryCall(http.MethodGet, api+"/api/v1/tasks/"+task, "")
		return err == nil && json.Unmarshal(answer, &seen) == nil && seen.FinishedAt != ""
	}, harness.Patience, 5*harness.Tick, "the task did not end")
	require.Equal(t, "Succeeded", seen.State, seen.Reason)
	stopped, err := stack.Kube.AppsV1().Deployments(namespace).Get(t.Context(), "order", metav1.GetOptions{})
	require.NoError(t, err)
	require.Zero(t, *stopped.Spec.Replicas)

	require.Eventually(t, func() bool {
		status, list, err := tryCall(http.MethodGet, api+"/api/v1/tasks?state=Succeeded", "")
		return err == nil && status == http.StatusOK && strings.Contains(string(list), `"`+task+`"`)
	}, harness.Patience, 5*harness.Tick, "the task is missing from the list")
}

// requireUI reads the namespaces through the Web UI as the server publishes it, which queries Temporal for them.
func (r *localStack) requireUI(t *testing.T) {
	t.Helper()
	ui := "http://127.0.0.1:" + r.ports["slipway-server:8233"]
	require.Contains(t, string(call(t, http.MethodGet, ui+"/api/v1/namespaces", "", http.StatusOK)), `"shop"`)
	require.Contains(t, string(call(t, http.MethodGet, ui+"/api/v1/settings", "", http.StatusOK)),
		`"DefaultNamespace":"shop"`, "the UI must open Slipway's namespace")
	answer, err := http.Get(ui + "/api/v1/namespaces")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode, "the UI must ask for the token")
}

// requireLowLoad compares the stack's connections and memory when idle with the limits in the file.
func (r *localStack) requireLowLoad(t *testing.T) {
	t.Helper()
	connections := r.database.query(t, "postgres",
		"SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'temporal%'")
	most := r.database.query(t, "postgres", "SHOW max_connections")
	require.Less(t, number(t, connections[0]), number(t, most[0]))
	temporal := r.project.Services["temporal"].Environment
	pools := 4 * (number(t, *temporal["SQL_MAX_CONNS"]) + number(t, *temporal["SQL_VIS_MAX_CONNS"]))
	require.Less(t, pools, number(t, most[0])-10, "full pools must leave connections for the schema job and an "+
		"operator")
	t.Logf("Temporal has %s of PostgreSQL's %s connections", connections[0], most[0])
	for name, process := range r.processes {
		used, limit := memory.Of(process.PID(), memory.Resident), int64(r.project.Services[name].MemLimit)
		t.Logf("%s: %d MiB of %d MiB", name, used>>20, limit>>20)
		require.Positive(t, used, "%s runs", name)
		require.Less(t, used, limit*2/3, "%s must use less than two thirds of its memory limit", name)
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
