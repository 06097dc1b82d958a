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
	// manyParties is the number of parties of the tested serving.
	manyParties = 200
	// manyPatience is the time limit for its creation, and for its deletion.
	manyPatience = 10 * time.Minute
	// maxManyEvents is the guaranteed maximum of history events per party and operation. Temporal ends a workflow at
	// 51,200 events.
	maxManyEvents = 20
)

// A serving of 200 parties becomes Available and is deleted, with one workflow for each. It runs before the parallel
// tests: on two cores, creating hundreds of workloads at once would delay every other test by minutes.
//
//nolint:paralleltest // it would starve the others
func TestSoakServingOfManyParties_StaysWithinEventBudget(t *testing.T) {
	harness.Soak(t)
	e := harness.Start(t, harness.Options{})
	u := &twoParties{Engine: e, t: t}
	image := u.image("v1")
	parties, domains := make([]string, manyParties), make([]string, manyParties)
	for i := range parties {
		domains[i] = e.Namespace(t, fmt.Sprintf("party%d", i))
		parties[i] = fmt.Sprintf(`{"domain_id":%q,"app_image":%q,"replicas":1}`, domains[i], image)
	}
	began := time.Now()
	u.MustKuscia("/api/v1/serving/create", fmt.Sprintf(`{"serving_id":"many","initiator":%q,"parties":[%s]}`,
		domains[0], strings.Join(parties, ",")))
	var kd *kuscia.KusciaDeployment
	require.Eventually(t, func() bool {
		kd = e.Serving(e.Home, "many")
		return kd != nil && harness.ServingAvailable(kd)
	}, manyPatience, time.Second, "the serving never became Available: %+v", kd)
	created := time.Since(began)
	require.Equal(t, manyParties, kd.Status.AvailableParties)
	u.requireSmallHistory("creation", kd.Status.Operation.WorkflowID, created)

	began = time.Now()
	u.remove("many")
	require.Eventually(t, func() bool { return e.Serving(e.Home, "many") == nil }, manyPatience, time.Second)
	missing := time.Since(began)
	selector := metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentUID + "=" + string(kd.UID)}
	left, err := e.Kube.AppsV1().Deployments("").List(t.Context(), selector)
	require.NoError(t, err)
	require.Empty(t, left.Items)
	services, err := e.Kube.CoreV1().Services("").List(t.Context(), selector)
	require.NoError(t, err)
	require.Empty(t, services.Items)
	u.requireSmallHistory("deletion", fmt.Sprintf("%s%d", serving.WorkflowPrefix("many"), kd.Generation+1), missing)
}

// requireSmallHistory logs the size of an operation and requires its history to stay within maxManyEvents per party.
func (u *twoParties) requireSmallHistory(what, workflow string, took time.Duration) {
	u.t.Helper()
	described, err := u.Workflows.DescribeWorkflowExecution(context.Background(), workflow, "")
	require.NoError(u.t, err)
	info := described.GetWorkflowExecutionInfo()
	first, err := u.Workflows.GetWorkflowHistory(context.Background(), workflow, "", false, 0).Next()
	require.NoError(u.t, err)
	input := first.GetWorkflowExecutionStartedEventAttributes().GetInput().Size()
	u.t.Logf("%s of %d parties: %s, input %d bytes, history %d events and %d bytes", what, manyParties,
		took.Round(100*time.Millisecond), input,
		info.GetHistoryLength(), info.GetHistorySizeBytes())
	require.LessOrEqual(u.t, info.GetHistoryLength(), int64(maxManyEvents*manyParties))
}
