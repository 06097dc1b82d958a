package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/release/source"
)

const (
	buildTemplate = `{"spec":{"template":{"spec":{"containers":[{"name":"build","image":"registry.test/go:1"}]}}}}`
	builtCommit   = "0123456789abcdef0123456789abcdef01234567"
	builtImage    = "registry.test/order@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

func buildRequest(t *testing.T) build.Request {
	t.Helper()
	digest, err := build.TemplateDigest([]byte(buildTemplate))
	require.NoError(t, err)
	return build.Request{Order: build.Order{Service: "111", Repository: "https://git.test/order.git", Shown: "https://git.test/order.git", Branch: "main",
		Image: "registry.test/order:{{commit}}", TemplateSHA256: digest, DeadlineSeconds: 600, ResolveSeconds: 600, Template: json.RawMessage(buildTemplate)},
		Party: "default", Namespace: "shop", Commit: builtCommit, By: "task/a/1-111"}
}

// yard is a cluster in which Jobs come to an end at once, as a test asks.
type yard struct {
	*fake.Clientset
	// ends is what becomes of a Job that is made; nil: it runs.
	ends func(job *batchv1.Job, pod *corev1.Pod)
	made int
}

func newYard(t *testing.T, ends func(job *batchv1.Job, pod *corev1.Pod)) *yard {
	t.Helper()
	y := &yard{Clientset: fake.NewClientset(), ends: ends}
	y.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		job := action.(clienttesting.CreateAction).GetObject().(*batchv1.Job).DeepCopy()
		if len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) > 0 {
			return true, job, nil
		}
		y.made++
		job.UID, job.ResourceVersion = uid(y.made), "1"
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name + "-x", Labels: map[string]string{batchv1.JobNameLabel: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}}, Spec: job.Spec.Template.Spec}
		job.Status.Active = 1
		if y.ends != nil {
			y.ends(job, pod)
		}
		if err := y.Tracker().Add(job); err != nil {
			return true, nil, err
		}
		_ = y.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), pod.Namespace, pod.Name)
		return true, job, y.Tracker().Add(pod)
	})
	return y
}

// uid makes UIDs differ.
func uid(n int) types.UID { return types.UID(fmt.Sprint("uid-", n)) }

func ended(how batchv1.JobConditionType, code int32, message string) func(*batchv1.Job, *corev1.Pod) {
	return func(job *batchv1.Job, pod *corev1.Pod) {
		job.Status.Active = 0
		job.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		pod.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "build", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}}}
	}
}

func (y *yard) activities(t *testing.T, options Options) *Activities {
	t.Helper()
	options.ListenFor = 50 * time.Millisecond
	a, err := New(y.Clientset, options)
	require.NoError(t, err)
	return a
}

func (y *yard) jobs(t *testing.T) []batchv1.Job {
	t.Helper()
	list, err := y.BatchV1().Jobs("shop").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func TestBuildIsMadeOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t, ended(batchv1.JobComplete, 0, builtImage))
	a := y.activities(t, loopback())
	req := buildRequest(t)
	built, err := a.Build(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, build.Yield{Image: builtImage}, built.Yield)
	require.Equal(t, req.JobName(), built.Job)
	require.Equal(t, "fake logs", built.Log)
	require.False(t, built.Reused)
	require.NotNil(t, built.FinishedAt)
	require.Equal(t, builtImage, y.jobs(t)[0].Annotations[build.AnnotationYield])

	require.NoError(t, y.CoreV1().Pods("shop").Delete(t.Context(), req.JobName()+"-x", metav1.DeleteOptions{}))
	later := req
	later.By = "task/b/1-111"
	again, err := a.Build(t.Context(), later)
	require.NoError(t, err, "the Job outlives its pod")
	require.True(t, again.Reused)
	require.Equal(t, built.Yield, again.Yield)
	require.Equal(t, 1, y.made)
}

func TestAFailedBuildTellsWhatItWrote(t *testing.T) {
	t.Parallel()
	y := newYard(t, ended(batchv1.JobFailed, 2, "make: *** [all] Error 2"))
	a := y.activities(t, loopback())
	req := buildRequest(t)
	for range 2 { // also when an attempt is made again
		_, err := a.Build(t.Context(), req)
		kind, again := kindOf(t, err)
		require.Equal(t, failure.WorkloadFailed, kind)
		require.False(t, again)
		require.ErrorContains(t, err, "container build ended with exit code 2: make: *** [all] Error 2")
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		var details failure.Details
		require.NoError(t, app.Details(&details))
		var built build.Built
		require.NoError(t, json.Unmarshal(details.Data, &built))
		require.Equal(t, "fake logs", built.Log)
		require.Equal(t, req.JobName(), built.Job)
	}
	require.Equal(t, 1, y.made)

	y.ends = ended(batchv1.JobComplete, 0, builtImage)
	req.By = "task/b/1-111"
	built, err := a.Build(t.Context(), req)
	require.NoError(t, err, "the next task tries again")
	require.False(t, built.Reused)
	require.Equal(t, 2, y.made)
	require.Len(t, y.jobs(t), 1)
}

// A build that runs is left to the next attempt, which finds the same Job.
func TestABuildThatRunsIsWaitedFor(t *testing.T) {
	t.Parallel()
	y := newYard(t, nil)
	a := y.activities(t, loopback())
	req := buildRequest(t)
	_, err := a.Build(t.Context(), req)
	kind, again := kindOf(t, err)
	require.Equal(t, failure.NotReady, kind)
	require.True(t, again)
	require.ErrorContains(t, err, "build of service 111 at commit 0123456789ab: it ")
	_, err = a.Build(t.Context(), req)
	require.ErrorContains(t, err, "(Job shop/"+req.JobName()+")")
	require.Equal(t, 1, y.made)
}

func TestBuildIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(*Options, *build.Request)
		kind   failure.Kind
		says   string
	}{
		"Policy": {"the party's policy binds the Job", func(o *Options, _ *build.Request) {
			o.Policy = admission.Policy{ImagePrefixes: []string{"party.test/"}}
		}, failure.Refused,
			"the party's policy refuses Job shop/"},
		"Namespace": {"a namespace that this worker has nothing to do with", func(o *Options, _ *build.Request) { o.Namespaces = []string{"bank"} }, failure.Refused,
			"does not serve the namespace shop"},
		"Template": {"another template than the task was started with", func(_ *Options, r *build.Request) { r.Template = json.RawMessage(`{"spec":{}}`) }, failure.Refused,
			"is not the one that the task was started with"},
		"NoTemplate": {"a worker without records", func(_ *Options, r *build.Request) { r.Template = nil }, failure.Refused, "can't read the records"},
		"RecordsAway": {"the home cluster away is no failure of the build", func(o *Options, r *build.Request) {
			r.Template = nil
			o.Template = func(context.Context, build.Order) ([]byte, error) {
				return nil, failure.New(failure.Unreachable, "the home cluster is away")
			}
		}, failure.NotReady, "the home cluster is away"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, nil)
			options, req := loopback(), buildRequest(t)
			tc.change(&options, &req)
			_, err := y.activities(t, options).Build(t.Context(), req)
			kind, _ := kindOf(t, err)
			require.Equal(t, tc.kind, kind, "%s: %v", tc.reason, err)
			require.ErrorContains(t, err, tc.says, tc.reason)
			require.Zero(t, y.made)
		})
	}
}

// A cluster that does not take the Job fails the build; one that is away interrupts it.
func TestBuildInTroubledClusters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		trouble error
		kind    failure.Kind
		says    string
	}{
		"Invalid":   {apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "x", nil), failure.Refused, "its cluster does not accept this"},
		"NoMore":    {apierrors.NewTooManyRequestsError("slow down"), failure.NotReady, "out of reach"},
		"Away":      {apierrors.NewServiceUnavailable("away"), failure.NotReady, "out of reach"},
		"Namespace": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), failure.Refused, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, nil)
			y.PrependReactor("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.trouble })
			_, err := y.activities(t, loopback()).Build(t.Context(), buildRequest(t))
			kind, _ := kindOf(t, err)
			require.Equal(t, tc.kind, kind, "%v", err)
			require.ErrorContains(t, err, tc.says)
		})
	}
	y := newYard(t, nil)
	y.PrependReactor("get", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("away")
	})
	req, now := buildRequest(t), time.Now()
	req.UnreachableBudgetSeconds = 1
	options := loopback()
	options.Now = func() time.Time { now = now.Add(time.Second); return now }
	options.ListenFor = time.Hour
	a, err := New(y.Clientset, options)
	require.NoError(t, err)
	_, err = a.Build(t.Context(), req)
	kind, _ := kindOf(t, err)
	require.Equal(t, failure.Unreachable, kind, "past its budget it is for people: %v", err)
}

func TestPreflightOfBuilds(t *testing.T) {
	t.Parallel()
	credentials := func(data map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "git"}, StringData: data, Data: bytesOf(data)}
	}
	public := Options{Fetcher: source.Fetcher{Image: "slipway:test"}}
	for name, tc := range map[string]struct {
		reason string
		secret *corev1.Secret
		change func(*Options, *build.Request)
		says   string
	}{
		"AllWell":     {"nothing in its way", nil, func(*Options, *build.Request) {}, ""},
		"Host":        {"a host that no entry allows", nil, func(o *Options, _ *build.Request) { o.Fetcher.Allow = []string{"10.0.0.0/8:1"} }, "host git.test with port 443 is not an allowed source"},
		"Address":     {"an address of the inside", nil, func(_ *Options, r *build.Request) { r.Repository = "http://127.0.0.1/a.git" }, "SLIPWAY_SOURCE_ALLOW"},
		"NoSecret":    {"credentials that are not there", nil, func(_ *Options, r *build.Request) { r.Credentials = "git" }, "Secret shop/git, which build.credentials names, does not exist"},
		"OtherHost":   {"credentials for somebody else", credentials(map[string]string{"token": "t", "hosts": "other.test"}), func(_ *Options, r *build.Request) { r.Credentials = "git" }, "no credentials for https://git.test"},
		"KnownHosts":  {"ssh without known hosts", credentials(map[string]string{"ssh-privatekey": "k"}), func(_ *Options, r *build.Request) { r.Credentials, r.Repository = "git", "git@git.test:a.git" }, "the key known_hosts is missing"},
		"SSHKey":      {"ssh without a key", nil, func(_ *Options, r *build.Request) { r.Repository = "git@git.test:a.git" }, "needs a key"},
		"Policy":      {"what the party does not allow is said before anything begins", nil, func(o *Options, _ *build.Request) { o.Policy.ImagePrefixes = []string{"party.test/"} }, "the party's policy refuses Job"},
		"GitProtocol": {"a protocol that nobody guards", nil, func(_ *Options, r *build.Request) { r.Repository = "git://git.test/a.git" }, "git:// is neither encrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, nil)
			y.PrependReactor("create", "selfsubjectaccessreviews", allowed)
			options, req := public, buildRequest(t)
			tc.change(&options, &req)
			if tc.secret != nil {
				require.NoError(t, y.Tracker().Add(tc.secret))
			}
			reason, err := y.activities(t, options).RefusesBuild(t.Context(), req.Order, "shop")
			require.NoError(t, err)
			if tc.says == "" {
				require.Empty(t, reason, tc.reason)
			} else {
				require.Contains(t, reason.Reason, tc.says, tc.reason)
				require.Equal(t, name == "Host" || name == "Address", reason.Key == source.KeyRepository, "the repository is at fault only where it must not be reached")
			}
			require.Zero(t, y.made)
		})
	}
	y := newYard(t, nil)
	y.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, action.(clienttesting.CreateAction).GetObject(), nil
	})
	reason, err := y.activities(t, public).RefusesBuild(t.Context(), buildRequest(t).Order, "shop")
	require.NoError(t, err)
	require.Contains(t, reason.Reason, "this party's worker may not create jobs, delete jobs, get jobs, get pods/log, list jobs, list pods, patch jobs, watch jobs in namespace shop")
	y.PrependReactor("create", "selfsubjectaccessreviews", allowed)
	y.PrependReactor("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "x", nil)
	})
	reason, err = y.activities(t, public).RefusesBuild(t.Context(), buildRequest(t).Order, "shop")
	require.NoError(t, err)
	require.Contains(t, reason.Reason, "the cluster does not accept the Job of build.jobTemplate")
}

func bytesOf(data map[string]string) map[string][]byte {
	out := map[string][]byte{}
	for key, value := range data {
		out[key] = []byte(value)
	}
	return out
}

func TestResolveGoesByTheKindOfTrouble(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	y := newYard(t, nil)
	req := buildRequest(t)
	req.Repository, req.Shown = s.URL+"/order.git", s.URL+"/order.git"
	a := y.activities(t, loopback())
	s.set(func() { s.status = 503 })
	_, err := a.Resolve(t.Context(), req)
	kind, again := kindOf(t, err)
	require.Equal(t, failure.NotReady, kind, "a server in trouble is asked again")
	require.True(t, again)
	require.ErrorContains(t, err, "503")
	s.set(func() { s.status = 404 })
	_, err = a.Resolve(t.Context(), req)
	kind, _ = kindOf(t, err)
	require.Equal(t, failure.Refused, kind)
	require.ErrorContains(t, err, "branch main of "+s.URL+"/order.git can't be resolved for service 111: the server answered 404")

	s.set(func() { s.status = 503 })
	now := time.Now()
	options := loopback()
	options.Now = func() time.Time { now = now.Add(time.Second); return now }
	req.SpentSeconds = 601
	_, err = y.activities(t, options).Resolve(t.Context(), req)
	kind, _ = kindOf(t, err)
	require.Equal(t, failure.WorkloadFailed, kind, "but not for ever: %v", err)

	y.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("boom") })
	req.Credentials = "git"
	_, err = a.Resolve(t.Context(), req)
	require.ErrorContains(t, err, "boom", "a mistake of ours is shown as it is")
}

// allowed answers every question about permissions with yes.
func allowed(action clienttesting.Action) (bool, runtime.Object, error) {
	review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
	review.Status.Allowed = true
	return true, review, nil
}
