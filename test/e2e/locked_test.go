package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/proxy"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/sealed"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/temporal/codec"
	"slipway.io/slipway/test/harness"
)

// secret must appear nowhere in Temporal that is readable without a key.
const secret = "marked-5ecret"

// A Temporal with TLS, client certificates and API keys stores nothing of a plan, a rollout and a serving that is
// readable without a key, and with --codec-require the engine refuses nothing that it has written itself. Its
// certificate, API key and codec key are rotated while the releases wait.
func TestLockedTemporal_StoresNothingReadable_AcrossKeyRotation(t *testing.T) {
	t.Parallel()
	l := harness.NewSecureTemporal(t)
	e := harness.Start(t, harness.Options{Stack: &l.Stack, Args: append(l.Flags(), "--codec-require"),
		WorkerEnv: packageEnvironment, SeparateWorker: true})
	p := newPlanWithCanary(t, e, "locked")
	p.waitApproval("locked")
	e.Deployment("alone", 2, nil)
	e.WaitReadyPods("alone", 2)
	e.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: "alone",
		Strategy: strategy.Strategy{Steps: []strategy.Step{harness.Step("1", -1), harness.Step("100%", -1)}},
		Image:    "registry.test/" + secret + ":v2", ExtraFields: map[string]any{"reason": secret}})
	e.WaitForApproval("alone", 1)
	u := newTwoParties(t, e)
	u.createWith("locked", secret)
	u.WaitServing("locked", "available", harness.ServingAvailable)

	l.NewClientCA()
	l.RenewClientCertificate()
	l.AcceptKey("another")
	l.Write("api-key", "another")
	l.UseCodecKey("second")
	l.Restart()

	require.Eventually(t, func() bool {
		answer, err := e.TryCall(http.MethodGet, "/readyz", "")
		return err == nil && answer.Status == http.StatusOK
	}, harness.Patience, harness.Tick, "the engine uses the new certificate and key")
	e.MustVerb("alone", "approve", fmt.Sprintf(`{"step":1,"actor":"ann","reason":%q}`, secret))
	e.WaitPhase("alone", rollout.PhaseHealthy)
	p.Approve("locked-canary", p.Rollout("locked-canary"))
	ended := p.WaitTask(p.task, plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskSucceeded, ended.State, ended.Reason)
	u.remove("locked")

	contents := readTemporal(t, l.Temporal(t, e.TemporalNamespace), e.TemporalNamespace)
	require.NotContains(t, string(contents.raw), secret, "nothing is readable without a key")
	keys, err := codec.OpenKeys(filepath.Join(l.Dir, "codec-keys"), nil)
	require.NoError(t, err)
	opened := contents.decrypt(t, codec.New(keys))
	require.GreaterOrEqual(t, strings.Count(opened, secret), 5, "and it is readable with the keys")
	intercept, err := codec.NewInterceptor(keys, true)
	require.NoError(t, err)
	read, refused := contents.readAt(t, intercept, e.TemporalNamespace)
	require.Positive(t, read)
	require.Zero(t, refused, "each payload names the place where it is")
	read, refused = contents.readAt(t, intercept, "elsewhere")
	require.Zero(t, read, "no payload can be read in another place")
	require.Positive(t, refused)
	for _, id := range []string{"first", "second"} {
		require.Contains(t, string(contents.raw), id, "payloads from before and after the rotation name their keys")
	}
}

// temporalContents is everything that Temporal stores of a namespace, as read by a client without keys.
type temporalContents struct {
	histories []*workflowservice.GetWorkflowExecutionHistoryResponse
	// of are the runs of the histories.
	of  []*commonpb.WorkflowExecution
	raw []byte
}

// readTemporal reads all workflows of a namespace and their histories.
func readTemporal(t *testing.T, from client.Client, namespace string) (all temporalContents) {
	t.Helper()
	var runs []*workflowpb.WorkflowExecutionInfo
	for token := []byte(nil); ; {
		page, err := from.ListWorkflow(context.Background(),
			&workflowservice.ListWorkflowExecutionsRequest{Namespace: namespace, NextPageToken: token})
		require.NoError(t, err)
		raw, err := proto.Marshal(page)
		require.NoError(t, err)
		all.raw = append(all.raw, raw...)
		runs = append(runs, page.GetExecutions()...)
		if token = page.GetNextPageToken(); len(token) == 0 {
			break
		}
	}
	require.GreaterOrEqual(t, len(runs), 6, "a task, its items, rollouts and operations on a serving")
	for _, run := range runs {
		history, err := from.WorkflowService().GetWorkflowExecutionHistory(context.Background(),
			&workflowservice.GetWorkflowExecutionHistoryRequest{
				Namespace: namespace, Execution: run.GetExecution(),
				HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT})
		require.NoError(t, err)
		raw, err := proto.Marshal(history)
		require.NoError(t, err)
		all.raw, all.histories = append(all.raw, raw...), append(all.histories, history)
		all.of = append(all.of, run.GetExecution())
	}
	return all
}

// decrypt returns the decrypted payloads of all histories.
func (k temporalContents) decrypt(t *testing.T, with codec.Codec) string {
	t.Helper()
	var all strings.Builder
	for _, history := range k.histories {
		require.NoError(t, proxy.VisitPayloads(context.Background(), history,
			proxy.VisitPayloadsOptions{SkipSearchAttributes: true,
				Visitor: func(_ *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload,
					error) {
					opened, err := with.Decode(payloads)
					for _, payload := range opened {
						all.Write(payload.GetData())
					}
					return payloads, err
				}}))
	}
	return all.String()
}

// readAt reads the histories like an engine that gets them from a Temporal namespace, and counts their payloads.
func (k temporalContents) readAt(t *testing.T, intercept grpc.UnaryClientInterceptor, namespace string) (read,
	refused int) {
	t.Helper()
	for i, history := range k.histories {
		answer := proto.CloneOf(history)
		require.NoError(t, intercept(context.Background(), "", &workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: namespace, Execution: k.of[i]}, answer, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }))
		require.NoError(t, proxy.VisitPayloads(context.Background(), answer,
			proxy.VisitPayloadsOptions{SkipSearchAttributes: true,
				Visitor: func(_ *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload,
					error) {
					for _, payload := range payloads {
						encoding := string(payload.GetMetadata()[converter.MetadataEncoding])
						if encoding == sealed.Encoding || sealed.Refusal(encoding, payload.GetMetadata()) != nil {
							refused++
						} else {
							read++
						}
					}
					return payloads, nil
				}}))
	}
	return read, refused
}

// createWith creates a serving of both parties with an input.
func (u *twoParties) createWith(id, input string) {
	u.t.Helper()
	u.MustKuscia("/api/v1/serving/create", fmt.Sprintf(
		`{"serving_id":%q,"serving_input_config":"{\"n\":\"%s\"}","initiator":%q,"parties":[
		{"domain_id":%q,"app_image":%q,"replicas":1},{"domain_id":%q,"app_image":%q,"replicas":1}]}`, id, input, u.alice, u.alice, u.good, u.bob, u.good))
	u.policy(id, serving.Policy{})
}

// A worker without the keys stops at an encrypted release and fails nothing. A worker with the keys continues the
// release.
func TestEncryptedRelease_WaitsForWorkerWithKeys(t *testing.T) {
	t.Parallel()
	keys := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(keys, name), []byte(content), 0o600))
	}
	write("first", base64.StdEncoding.EncodeToString(make([]byte, 32)))
	write("current", "first")
	with := harness.Options{Args: []string{"--temporal-codec-key-dir", keys}, SeparateWorker: true}
	e := harness.Start(t, with)
	e.Deployment("web", 2, nil)
	e.WaitReadyPods("web", 2)
	e.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: "web",
		Strategy: strategy.Strategy{Steps: []strategy.Step{harness.Step("1", -1), harness.Step("100%", -1)}}})
	waits := e.WaitForApproval("web", 1)

	e.Processes[1].Kill()
	without := e.Worker(harness.Options{})
	approve := fmt.Sprintf(`{"actor":"ann","step":1,"gate":%q,"key":"once"}`, waits.WaitingFor.Gate)
	a := e.RolloutVerb("web", "approve", approve)
	require.Equal(t, http.StatusServiceUnavailable, a.Status, "no worker can read the release: %s", a.Body)
	require.Eventually(t, func() bool {
		return strings.Contains(without.Output(), "encrypted with a key that this process doesn't have")
	}, harness.Patience, harness.Tick,
		"the worker says why it stops")
	for _, event := range e.History(e.RolloutID("web")) {
		require.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, event.GetEventType())
	}

	require.NoError(t, without.Stop())
	e.Processes[1] = e.Worker(with)
	e.MustVerb("web", "approve", approve)
	require.Equal(t, rollout.PhaseHealthy, e.WaitPhase("web", rollout.PhaseHealthy).Phase)
}

// Temporal lacks the search attributes, and the API key may not add them: the worker logs what is missing and the
// command that adds it, and continues once it exists. A wrong or a removed key is reported with its file.
func TestWorker_LogsMissingSetup_OfLockedTemporal(t *testing.T) {
	t.Parallel()
	l := harness.NewSecureTemporal(t)
	namespace := l.TemporalNamespace(t)
	run := func(extra ...string) *harness.Process {
		home := l.Namespace(t, "home")
		return harness.Run(t, l.Binary("slipway"),
			append(append([]string{"worker", "--kubeconfig", l.Kubeconfig, "--temporal-address", l.TemporalAddress,
				"--temporal-namespace", namespace, "--namespace", home, "--serving-namespace", home,
				"--watch-namespaces",
				home}, l.Flags()...), extra...), nil)
	}
	says := func(p *harness.Process, want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return strings.Contains(p.Output(), want)
		}, harness.Patience, harness.Tick, "the log never says %q", want)
	}
	p := run()
	says(p, "temporal operator search-attribute create --namespace "+namespace+
		" --name SlipwayKind --type Keyword --name SlipwayName")
	l.AddSearchAttributes(t, namespace)
	says(p, "polling")
	l.Write("wrong", "no-such-key")
	says(run("--temporal-api-key-file", filepath.Join(l.Dir, "wrong")),
		"this process uses the API key in "+filepath.Join(l.Dir, "wrong")+" (--temporal-api-key-file)")
	cert, key := harness.NewAuthority(t).Issue()
	says(run("--temporal-cert-file", cert, "--temporal-key-file", key),
		"rejected the client certificate "+cert+" (--temporal-cert-file)")
	says(run("--temporal-ca-file", cert), "is not trusted: check "+cert+" (--temporal-ca-file)")
	says(run("--temporal-tls", "off", "--temporal-ca-file", "", "--temporal-cert-file", "", "--temporal-key-file", ""),
		"if it requires TLS, set --temporal-tls=on")
	l.Write(filepath.Join("bad-keys", "current"), "absent")
	says(run("--temporal-codec-key-dir", filepath.Join(l.Dir, "bad-keys")),
		filepath.Join(l.Dir, "bad-keys", "current")+` names the key "absent", but there is no file`)
}
