package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

const (
	// manyParties is the size that a serving is tried at.
	manyParties = 200
	// manyPatience is how long that may take.
	manyPatience = 10 * time.Minute
	// maxManyEvents is a promise: what the history of its creation has for each party, besides a few; Temporal ends a workflow at 51,200.
	maxManyEvents = 20
)

// A serving of 200 parties comes to be Available, and goes, as one workflow each.
// It runs before the tests that run side by side: two cores that make hundreds of workloads at once have everything else wait for minutes.
func TestSoakServingOfManyParties(t *testing.T) { //nolint:paralleltest // it would starve the others
	harness.Soak(t)
	e := harness.Start(t, harness.Options{})
	u := &union{Engine: e, t: t}
	image := u.image("v1")
	parties, domains := make([]string, manyParties), make([]string, manyParties)
	for i := range parties {
		domains[i] = e.Namespace(t, fmt.Sprintf("party%d", i))
		parties[i] = fmt.Sprintf(`{"domain_id":%q,"app_image":%q,"replicas":1}`, domains[i], image)
	}
	began := time.Now()
	u.MustKuscia("/api/v1/serving/create", fmt.Sprintf(`{"serving_id":"many","initiator":%q,"parties":[%s]}`, domains[0], strings.Join(parties, ",")))
	var kd *kuscia.KusciaDeployment
	require.Eventually(t, func() bool {
		kd = e.Serving(e.Home, "many")
		return kd != nil && harness.ServingAvailable(kd)
	}, manyPatience, time.Second, "it never came to be Available: %+v", kd)
	created := time.Since(began)
	require.Equal(t, manyParties, kd.Status.AvailableParties)
	u.requireSmall("creation", kd.Status.Operation.WorkflowID, created)

	began = time.Now()
	u.remove("many")
	require.Eventually(t, func() bool { return e.Serving(e.Home, "many") == nil }, manyPatience, time.Second)
	gone := time.Since(began)
	selector := metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentUID + "=" + string(kd.UID)}
	left, err := e.Kube.AppsV1().Deployments("").List(t.Context(), selector)
	require.NoError(t, err)
	require.Empty(t, left.Items)
	services, err := e.Kube.CoreV1().Services("").List(t.Context(), selector)
	require.NoError(t, err)
	require.Empty(t, services.Items)
	u.requireSmall("deletion", fmt.Sprintf("%s%d", serving.WorkflowPrefix("many"), kd.Generation+1), gone)
}

// requireSmall prints how large an operation was, and wants its history to stay within bounds.
func (u *union) requireSmall(what, workflow string, took time.Duration) {
	u.t.Helper()
	described, err := u.Workflows.DescribeWorkflowExecution(context.Background(), workflow, "")
	require.NoError(u.t, err)
	info := described.GetWorkflowExecutionInfo()
	first, err := u.Workflows.GetWorkflowHistory(context.Background(), workflow, "", false, 0).Next()
	require.NoError(u.t, err)
	input := first.GetWorkflowExecutionStartedEventAttributes().GetInput().Size()
	u.t.Logf("%s of %d parties: %s, input %d bytes, history %d events and %d bytes", what, manyParties, took.Round(100*time.Millisecond), input,
		info.GetHistoryLength(), info.GetHistorySizeBytes())
	require.LessOrEqual(u.t, info.GetHistoryLength(), int64(maxManyEvents*manyParties))
}
