package e2e

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/sealed"
	"slipway.io/slipway/test/harness"
)

// A client that may write to Temporal, but has no key, copies the encrypted approval of one release into another, and
// sends one that is not encrypted, as a signal and as an Update. All are refused, and the release goes on with an empty
// payload.
func TestEncryptedRelease_RefusesMovedAndUnencryptedCommands(t *testing.T) {
	t.Parallel()
	keys := t.TempDir()
	for name, content := range map[string]string{"first": base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"current": "first"} {
		require.NoError(t, os.WriteFile(filepath.Join(keys, name), []byte(content), 0o600))
	}
	e := harness.Start(t, harness.Options{Args: []string{"--temporal-codec-key-dir", keys, "--codec-require"},
		SeparateWorker: true})
	for _, name := range []string{"first", "second"} {
		e.Deployment(name, 2, nil)
		e.WaitReadyPods(name, 2)
		e.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: name,
			Strategy: strategy.Strategy{Steps: []strategy.Step{harness.Step("1", -1), harness.Step("100%", -1)}}})
		e.WaitForApproval(name, 1)
	}
	e.MustVerb("first", "approve", `{"step":1,"actor":"ann"}`)
	signal := func(p *commonpb.Payload) {
		_, err := e.Workflows.WorkflowService().SignalWorkflowExecution(context.Background(),
			&workflowservice.SignalWorkflowExecutionRequest{Namespace: e.TemporalNamespace, SignalName: "approve",
				WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: e.RolloutID("second")},
				Input:             &commonpb.Payloads{Payloads: []*commonpb.Payload{p}}})
		require.NoError(t, err)
	}
	refused := func(says string) {
		t.Helper()
		s := e.WaitRollout("second", "the refusal", func(s rollout.Status) bool {
			return slices.ContainsFunc(s.History, func(a audit.Entry) bool {
				return a.Outcome == audit.Refused && strings.Contains(a.Message, says)
			})
		})
		require.Equal(t, 1, s.CurrentStepIndex, "it still waits")
	}
	signal(approvalOf(t, e, "first"))
	refused("was encrypted for workflow")
	plain, err := converter.GetDefaultDataConverter().ToPayload(map[string]any{"step": 1, "actor": "eve"})
	require.NoError(t, err)
	signal(plain)
	refused("--codec-require refuses")
	update, err := e.Workflows.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: e.RolloutID("second"), UpdateName: "approve", Args: []any{map[string]any{"step": 1, "actor": "eve"}},
		WaitForStage: client.WorkflowUpdateStageCompleted})
	if err == nil {
		err = update.Get(t.Context(), nil)
	}
	require.Error(t, err, "its text is encrypted")
	require.Equal(t, 1, e.Rollout("second").CurrentStepIndex, "it still waits")
	require.NoError(t, e.Workflows.SignalWorkflow(t.Context(), e.RolloutID("second"), "", "approve", nil))
	for _, name := range []string{"first", "second"} {
		require.Equal(t, rollout.PhaseHealthy, e.WaitPhase(name, rollout.PhaseHealthy).Phase)
	}
}

// approvalOf returns the encrypted payload of the newest accepted Update of a rollout.
func approvalOf(t *testing.T, e *harness.Engine, name string) (approval *commonpb.Payload) {
	t.Helper()
	for _, event := range e.History(e.RolloutID(name)) {
		accepted := event.GetWorkflowExecutionUpdateAcceptedEventAttributes()
		for _, p := range accepted.GetAcceptedRequest().GetInput().GetArgs().GetPayloads() {
			approval = p
		}
	}
	require.Equal(t, sealed.Encoding, string(approval.GetMetadata()[converter.MetadataEncoding]))
	return approval
}
