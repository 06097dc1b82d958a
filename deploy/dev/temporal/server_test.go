package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	computepb "go.temporal.io/api/compute/v1"
	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const waitAtMost = 30 * time.Second

// TestServer_KeepsData_AfterRestart is one test, because the server keeps global state: only one can run per process.
func TestServer_KeepsData_AfterRestart(t *testing.T) {
	o := testOptions(t)
	o.SearchAttributes = map[string]enumspb.IndexedValueType{"Team": enumspb.INDEXED_VALUE_TYPE_KEYWORD}

	s := startServer(t, o)
	requireUI(t, o)
	requireUIRefusesForeignHosts(t, o)
	runWorkflow(t, o, "first", "Team", "red")
	requireNoServerlessWorkers(t, o)
	_, err := start(t.Context(), o)
	require.ErrorContains(t, err, fmt.Sprintf("port %d on 127.0.0.1 is in use by another process: choose another "+
		"with --port", o.Port))
	require.NoError(t, s.stop())

	o.Port, o.UIPort = freePort(t), freePort(t)
	o.SearchAttributes["Owner"] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	s = startServer(t, o)
	runWorkflow(t, o, "second", "Owner", "alice")
	require.Equal(t, []string{"first", "second"}, closedWorkflows(t, o), "workflows must survive a restart")
	require.NoError(t, s.stop())

	o.SearchAttributes["Team"] = enumspb.INDEXED_VALUE_TYPE_INT
	_, err = start(t.Context(), o)
	require.ErrorContains(t, err, "search attribute Team is a Keyword already and cannot become a Int")
}

func testOptions(t *testing.T) options {
	return options{Port: freePort(t), UIPort: freePort(t), DBFilename: filepath.Join(t.TempDir(), "new", "t.db"),
		LogLevel: "fatal"}
}

func startServer(t *testing.T, o options) *server {
	s, err := start(t.Context(), o)
	require.NoError(t, err)
	return s
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port
}

func requireUI(t *testing.T, o options) {
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + address(o.UIPort) + "/namespaces/default/workflows")
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		return answer.StatusCode == http.StatusOK
	}, waitAtMost, 50*time.Millisecond, "the Web UI does not serve its page")
}

// requireUIRefusesForeignHosts plays a page whose own host name has been made to resolve to 127.0.0.1.
func requireUIRefusesForeignHosts(t *testing.T, o options) {
	for host, want := range map[string]int{"": http.StatusOK, "localhost": http.StatusOK, "[::1]:8233": http.StatusOK,
		"evil.example:8233": http.StatusForbidden, "10.0.0.7": http.StatusForbidden} {
		for _, path := range []string{"/", "/api/v1/namespaces", "/api/v1/settings"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address(o.UIPort)+path, nil)
			require.NoError(t, err)
			r.Host = host
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, want, answer.StatusCode, "%s of host %q", path, host)
			if want == http.StatusForbidden {
				require.Empty(t, answer.Cookies())
			}
		}
	}
}

func runWorkflow(t *testing.T, o options, id, attribute, value string) {
	c, err := client.Dial(client.Options{HostPort: address(o.Port)})
	require.NoError(t, err)
	defer c.Close()
	w := worker.New(c, "q", worker.Options{})
	w.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: "empty"})
	require.NoError(t, w.Start())
	defer w.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), waitAtMost)
	defer cancel()
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: "q",
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(attribute).ValueSet(value))}, "empty")
	require.NoError(t, err)
	require.NoError(t, run.Get(ctx, nil))
}

// requireNoServerlessWorkers calls a method of a feature that is left out of the server (leftout/workers).
func requireNoServerlessWorkers(t *testing.T, o options) {
	c, err := client.Dial(client.Options{HostPort: address(o.Port)})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.WorkflowService().ValidateWorkerDeploymentVersionComputeConfig(t.Context(),
		&workflowservice.ValidateWorkerDeploymentVersionComputeConfigRequest{
			Namespace:         namespaceName,
			DeploymentVersion: &deploymentpb.WorkerDeploymentVersion{DeploymentName: "shop", BuildId: "1"},
			ComputeConfigScalingGroups: map[string]*computepb.ComputeConfigScalingGroupUpdate{"all": {ScalingGroup: &computepb.ComputeConfigScalingGroup{
				Provider: &computepb.ComputeProvider{Type: "aws-lambda"}}}},
		})
	require.ErrorContains(t, err, "the local Temporal server has no serverless workers")
}

func closedWorkflows(t *testing.T, o options) []string {
	c, err := client.Dial(client.Options{HostPort: address(o.Port)})
	require.NoError(t, err)
	defer c.Close()
	var ids []string
	for _, id := range []string{"first", "second"} {
		answer, err := c.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		if answer.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestRun_Succeeds_WhenStoppedDuringStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	args := []string{"--port", strconv.Itoa(freePort(t)), "--ui-port", strconv.Itoa(freePort(t)), "--db-filename",
		filepath.Join(t.TempDir(), "t.db")}
	require.NoError(t, run(ctx, args, io.Discard), "stopping a starting server is not a failure")
}

func TestParseFlags_RefusesInvalidArguments(t *testing.T) {
	cases := []struct {
		reason string
		args   []string
		want   string
	}{
		{"a flag of the Temporal CLI that this server does not have", []string{"--ui-asset-path", "x"},
			"flag provided but not defined"},
		{"an argument that is not a flag", []string{"start"}, `unexpected argument "start"`},
		{"no database file", nil, "--db-filename is missing"},
		{"a port out of range", []string{"--db-filename", "t.db", "--port", "70000"}, "70000 is not a port"},
		{"no port", []string{"--db-filename", "t.db", "--ui-port", "0"}, "0 is not a port"},
	}
	for _, c := range cases {
		_, err := parseFlags(c.args, io.Discard)
		require.ErrorContains(t, err, c.want, c.reason)
	}
}
