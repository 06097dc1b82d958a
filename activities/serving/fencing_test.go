package serving_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"google.golang.org/grpc"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	partyservings "slipway.io/slipway/activities/serving"
	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

// histories are the first events of operations, by workflow ID.
type histories struct {
	client.Client
	inputs map[string]serving.Input
	// err is Temporal's reply, if set.
	err error
}

func (h histories) WorkflowService() workflowservice.WorkflowServiceClient {
	return historyService{inputs: h.inputs, err: h.err}
}

type historyService struct {
	workflowservice.WorkflowServiceClient
	inputs map[string]serving.Input
	err    error
}

func (h historyService) GetWorkflowExecutionHistory(_ context.Context,
	r *workflowservice.GetWorkflowExecutionHistoryRequest,
	_ ...grpc.CallOption) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	if h.err != nil {
		return nil, h.err
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(h.inputs[r.GetExecution().GetWorkflowId()])
	if err != nil {
		return nil, err
	}
	return &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{Events: []*historypb.HistoryEvent{{
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
				Input: &commonpb.Payloads{Payloads: payloads.GetPayloads()}}}}}}}, nil
}

// site is a party's namespace, and its worker's activities.
type site struct {
	t      *testing.T
	kube   kubernetes.Interface
	config *rest.Config
	domain string
	// also is the namespace of a second party; "" when there is none.
	also     string
	temporal histories
	// sizes are the replicas that the version of a tag requests; a tag that is not listed requests none.
	sizes map[string]int32
	// settings are those of the worker.
	settings partyservings.Options
}

func newSite(t *testing.T) *site {
	t.Helper()
	stack := harness.SharedStack(t)
	t.Parallel()
	s := &site{t: t, kube: stack.Kube, config: stack.REST, domain: stack.Namespace(t, "party"),
		temporal: histories{inputs: map[string]serving.Input{}}}
	s.operation(1, "one", "")
	s.operation(2, "two", "one")
	return s
}

// version returns a version whose pods run an image of that tag, which its file contains, too.
func (s *site) version(tag string) (packed []byte, digest string) {
	if tag == "" {
		return nil, ""
	}
	v := serving.Version{ID: "s1", UID: "u1", AppType: kuscia.AppTypeServing,
		Spec: kuscia.KusciaDeploymentSpec{Initiator: s.domain,
			Parties: []kuscia.Party{{DomainID: s.domain, AppImageRef: "app"}}},
		AppImages: map[string]kuscia.AppImageSpec{"app": {
			Image: kuscia.AppImageInfo{Name: "app", Tag: tag}, ConfigTemplates: map[string]string{"app.conf": tag},
			DeployTemplates: []kuscia.DeployTemplate{{Name: "all",
				Spec: kuscia.PodTemplate{Containers: []kuscia.Container{{
					Name: "main", ConfigVolumeMounts: []kuscia.ConfigVolumeMount{{MountPath: "/app.conf",
						SubPath: "app.conf"}},
					Ports: []kuscia.ContainerPort{{Name: "service", Port: 8000, Scope: kuscia.ScopeCluster,
						Protocol: kuscia.ProtocolHTTP}}}}}}}}}}
	if s.also != "" {
		v.Spec.Parties = append(v.Spec.Parties, kuscia.Party{DomainID: s.also, AppImageRef: "app"})
	}
	if size, asked := s.sizes[tag]; asked {
		v.Spec.Parties[0].Template.Replicas = &size
	}
	packed, err := v.Pack()
	require.NoError(s.t, err)
	digest, err = v.Digest()
	require.NoError(s.t, err)
	return packed, digest
}

// operation registers an operation that applies a tag, and rolls back to another one.
func (s *site) operation(generation int64, target, previous string) {
	in := serving.Input{ID: "s1", UID: "u1", Generation: generation}
	in.Target, in.TargetDigest = s.version(target)
	in.Previous, in.PreviousDigest = s.version(previous)
	s.temporal.inputs[workflowOf(generation)] = in
}

func workflowOf(generation int64) string {
	return serving.WorkflowPrefix("s1") + string(rune('0'+generation))
}

// step returns a step of the operation of a generation.
func (s *site) step(generation int64, back bool) serving.PartyRequest {
	in, id := s.temporal.inputs[workflowOf(generation)], workflowOf(generation)
	req := serving.PartyRequest{ID: "s1", UID: "u1", Generation: generation, Started: 1000 * generation,
		Domain: s.domain, Deployment: "s1", Version: in.TargetDigest,
		Source: serving.Source{WorkflowID: id, RunID: "r", Previous: back},
		Claim:  workload.Holder{WorkflowID: id, RunID: "r"}.String(), DeadlineSeconds: 100}
	if back {
		req.Version = in.PreviousDigest
	}
	return req
}

// apply makes a worker execute a step. wrap, if set, intercepts the requests to the API server.
func (s *site) apply(req serving.PartyRequest, wrap func(http.RoundTripper) http.RoundTripper) error {
	s.t.Helper()
	return s.executeOne((*partyservings.Activities).Apply, req, wrap)
}

// prepare makes a worker check a step.
func (s *site) prepare(req serving.PartyRequest) error {
	s.t.Helper()
	return s.executeOne((*partyservings.Activities).Prepare, req, nil)
}

// remove makes a worker delete all objects of a serving.
func (s *site) remove(req serving.PartyRequest) error {
	s.t.Helper()
	return s.executeOne((*partyservings.Activities).Remove, req, nil)
}

// step is an activity of a party's worker.
type step func(*partyservings.Activities, context.Context, serving.GroupRequest) (*serving.GroupResult, error)

// executeOne makes a worker execute a step in one party, and returns its failure, or why it is retried.
func (s *site) executeOne(what step, req serving.PartyRequest,
	wrap func(http.RoundTripper) http.RoundTripper) error {
	s.t.Helper()
	result, err := s.execute(what, wrap, req)
	if err != nil {
		return err
	}
	require.Len(s.t, result.Parties, 1)
	outcome := result.Parties[0]
	require.False(s.t, outcome.Unfinished, "the only party is retried instead")
	if outcome.Done {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(outcome.Message, string(outcome.Kind), nil)
}

// execute makes a worker execute a step in parties.
func (s *site) execute(what step, wrap func(http.RoundTripper) http.RoundTripper,
	parties ...serving.PartyRequest) (result serving.GroupResult, err error) {
	s.t.Helper()
	config := rest.CopyConfig(s.config)
	config.WrapTransport = wrap
	config = kube.Configure(config, kube.Options{QPS: 200, Burst: 400})
	client, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	log := slog.New(slog.NewTextHandler(s.t.Output(), nil))
	watch := partyservings.NewWatch(s.kube, s.domains(), log)
	require.NoError(s.t, watch.Start(s.t.Context()))
	defer func() { require.NoError(s.t, watch.Stop(context.Background())) }()
	settings := s.settings
	settings.Logger, settings.ListenFor = log, time.Minute
	acts := partyservings.New(client, versions.NewReader(s.temporal, "default"), watch, settings)
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.SetTestTimeout(2 * time.Minute)
	act := func(ctx context.Context, req serving.GroupRequest) (*serving.GroupResult, error) {
		return what(acts, ctx, req)
	}
	env.RegisterActivity(act)
	value, err := env.ExecuteActivity(act, serving.GroupRequest{Parties: parties})
	if err != nil {
		return result, err
	}
	require.NoError(s.t, value.Get(&result))
	return result, nil
}

// domains are the parties' namespaces.
func (s *site) domains() []string {
	if s.also == "" {
		return []string{s.domain}
	}
	return []string{s.domain, s.also}
}

// requireRuns checks what the party runs.
func (s *site) requireRuns(tag string) {
	s.t.Helper()
	s.requireRunsIn(s.domain, tag)
}

func (s *site) requireRunsIn(domain, tag string) {
	s.t.Helper()
	d, err := s.kube.AppsV1().Deployments(domain).Get(s.t.Context(), "s1", metav1.GetOptions{})
	require.NoError(s.t, err)
	require.Equal(s.t, "app:"+tag, d.Spec.Template.Spec.Containers[0].Image)
	files, err := s.kube.CoreV1().ConfigMaps(domain).List(s.t.Context(),
		metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=s1"})
	require.NoError(s.t, err)
	require.Len(s.t, files.Items, 1)
	require.Contains(s.t, files.Items[0].Data, "app.conf")
	require.Equal(s.t, tag, files.Items[0].Data["app.conf"], "its files have the same version")
	require.NotContains(s.t, d.Labels, workload.LabelClaimed, "no claim is left")
}

func requireKind(t *testing.T, kind failure.Kind, err error) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(kind), app.Type(), app.Message())
}

// A step that was suspended and resumes after the rollback writes nothing.
func TestApply_LosesClaim_WhenStepIsObsolete(t *testing.T) {
	s := newSite(t)
	require.NoError(t, s.apply(s.step(1, false), nil))
	s.requireRuns("one")
	require.NoError(t, s.apply(s.step(2, false), nil))
	s.requireRuns("two")
	require.NoError(t, s.apply(s.step(2, true), nil))
	s.requireRuns("one")
	requireKind(t, failure.ClaimLost, s.apply(s.step(2, false), nil))
	requireKind(t, failure.ClaimLost, s.apply(s.step(1, false), nil))
	s.requireRuns("one")
	again := s.step(2, false)
	again.Started++ // the next operation of that generation
	require.NoError(t, s.apply(again, nil))
	s.requireRuns("two")
}

// frozen delays the first request of that method for a ConfigMap: the worker has read the fencing token, but has not
// written anything yet.
type frozen struct {
	next   http.RoundTripper
	method string
	until  <-chan struct{}
	once   *atomic.Bool
	asked  chan<- struct{}
}

func (f frozen) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == f.method && strings.Contains(r.URL.Path, "/configmaps/") && f.once.CompareAndSwap(false, true) {
		close(f.asked)
		<-f.until
	}
	return f.next.RoundTrip(r)
}

// deaf delays the response to the first request of that method for a Service: the Service was created, but the worker
// does not know.
type deaf struct{ frozen }

func (d deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := d.next.RoundTrip(r)
	if r.Method == d.method && strings.HasSuffix(r.URL.Path, "/services/s1-service") &&
		d.once.CompareAndSwap(false, true) {
		close(d.asked)
		<-d.until
	}
	return response, err
}

func TestApply_WritesNothing_WhenSuspendedUntilRollback(t *testing.T) {
	for _, tc := range []struct {
		reason, method string
	}{
		{"before it reads the ConfigMap that it would change", http.MethodGet},
		{"with its pending change of the ConfigMap, which the rollback need not revert", http.MethodPatch},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := newSite(t)
			require.NoError(t, s.apply(s.step(1, false), nil))
			asked, thaw, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				result <- s.apply(s.step(2, false), func(next http.RoundTripper) http.RoundTripper {
					return frozen{next: next, method: tc.method, until: thaw, once: &atomic.Bool{}, asked: asked}
				})
			}()
			<-asked
			stopped := time.Now()
			require.NoError(t, s.apply(s.step(2, true), nil), "the operation considers it dead, and rolls back")
			s.requireRuns("one")
			require.Eventually(t, func() bool {
				return time.Since(stopped) > 3*time.Second
			}, time.Minute, 50*time.Millisecond, "a missed heartbeat takes longer")
			close(thaw)
			var app *temporal.ApplicationError
			require.ErrorAs(t, <-result, &app)
			require.Contains(t, []string{string(failure.ClaimLost), string(failure.NotReady)}, app.Type(),
				"the fencing token stops it, or it detects that it was suspended for too long")
			s.requireRuns("one")
		})
	}
}

// An object is created only if it does not exist: an object that another client has created since is kept.
func TestApply_DoesNotOverwriteObjectCreatedMeanwhile(t *testing.T) {
	foreign := func(s *site) {
		_, err := s.kube.CoreV1().ConfigMaps(s.domain).Create(s.t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "s1-configtemplate"},
				Data: map[string]string{"app.conf": "theirs"}},
			metav1.CreateOptions{FieldManager: serving.FieldManager})
		require.NoError(s.t, err)
	}
	for _, tc := range []struct {
		reason  string
		come    func(s *site)
		want    []failure.Kind
		content string
	}{
		{"a newer operation has created it", func(s *site) { require.NoError(s.t, s.apply(s.step(2, false), nil)) },
			[]failure.Kind{failure.ClaimLost, failure.Claimed}, "two"},
		{"another client has created it, under any field manager", foreign, []failure.Kind{failure.Refused}, "theirs"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := newSite(t)
			asked, thaw, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				result <- s.apply(s.step(1, false), func(next http.RoundTripper) http.RoundTripper {
					return frozen{next: next, method: http.MethodPatch, until: thaw, once: &atomic.Bool{}, asked: asked}
				})
			}()
			<-asked
			tc.come(s)
			close(thaw)
			var app *temporal.ApplicationError
			require.ErrorAs(t, <-result, &app)
			require.Contains(t, tc.want, failure.Kind(app.Type()), app.Message())
			files, err := s.kube.CoreV1().ConfigMaps(s.domain).Get(t.Context(), "s1-configtemplate",
				metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, tc.content, files.Data["app.conf"])
		})
	}
}

func TestApply_CreatesNothing_WhenSuspendedUntilRemoval(t *testing.T) {
	s := newSite(t)
	asked, thaw, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		result <- s.apply(s.step(1, false), func(next http.RoundTripper) http.RoundTripper {
			return deaf{frozen{next: next, method: http.MethodPatch, until: thaw, once: &atomic.Bool{}, asked: asked}}
		})
	}()
	<-asked
	stopped := time.Now()
	require.NoError(t, s.kube.CoreV1().Services(s.domain).Delete(t.Context(), "s1-service", metav1.DeleteOptions{}),
		"what it had created is deleted")
	require.Eventually(t, func() bool {
		return time.Since(stopped) > 11*time.Second
	}, time.Minute, 50*time.Millisecond, "the heartbeat is missed")
	close(thaw)
	requireKind(t, failure.NotReady, <-result)
	left, err := s.kube.CoreV1().ConfigMaps(s.domain).List(t.Context(),
		metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=s1"})
	require.NoError(t, err)
	require.Empty(t, left.Items)
	_, err = s.kube.AppsV1().Deployments(s.domain).Get(t.Context(), "s1", metav1.GetOptions{})
	require.Error(t, err)
}

func TestApply_ReleasesClaim_WhenItFails(t *testing.T) {
	s := newSite(t)
	s.operation(1, "bad", "")
	req := s.step(1, false)
	req.DeadlineSeconds = 2
	requireKind(t, failure.WorkloadFailed, s.apply(req, nil))
	s.requireRuns("bad")
}

func TestApply_IsRetriedByTemporal_WhenFailureIsKnown(t *testing.T) {
	s := newSite(t)
	_, err := s.kube.AppsV1().Deployments(s.domain).Create(t.Context(),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "s1"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x:good"}}}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	req := s.step(2, true)
	err = s.apply(req, nil)
	requireKind(t, failure.Refused, err)
	var reported *temporal.ApplicationError
	require.ErrorAs(t, err, &reported)
	req.KnownFailure = reported.Message()
	err = s.apply(req, nil)
	requireKind(t, failure.NotReady, err)
	require.ErrorAs(t, err, &reported)
	require.Equal(t, serving.PersistentRetryInterval, reported.NextRetryDelay())
	req.KnownFailure = "another reason"
	requireKind(t, failure.Refused, s.apply(req, nil))
}
