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
	"slipway.io/slipway/release/podpolicy"
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
	return build.Request{Order: build.Order{Service: "111", Repository: "https://git.test/order.git",
		Shown: "https://git.test/order.git", Branch: "main",
		Image: "registry.test/order:{{commit}}", TemplateSHA256: digest, DeadlineSeconds: 600, ResolveSeconds: 600,
		Template: json.RawMessage(buildTemplate)},
		Party: "default", Namespace: "shop", Commit: builtCommit, By: "task/a/1-111"}
}

// jobCluster is a fake cluster in which a Job ends as soon as it is created, as the test decides.
type jobCluster struct {
	*fake.Clientset
	// finish sets the result of a created Job; nil: it keeps running.
	finish  func(job *batchv1.Job, pod *corev1.Pod)
	created int
}

func newJobCluster(t *testing.T, finish func(job *batchv1.Job, pod *corev1.Pod)) *jobCluster {
	t.Helper()
	y := &jobCluster{Clientset: fake.NewClientset(), finish: finish}
	y.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		job := action.(clienttesting.CreateAction).GetObject().(*batchv1.Job).DeepCopy()
		if len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) > 0 {
			return true, job, nil
		}
		y.created++
		job.UID, job.ResourceVersion = uid(y.created), "1"
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name + "-x",
			Labels: map[string]string{batchv1.JobNameLabel: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job,
				batchv1.SchemeGroupVersion.WithKind("Job"))}}, Spec: job.Spec.Template.Spec}
		job.Status.Active = 1
		if y.finish != nil {
			y.finish(job, pod)
		}
		if err := y.Tracker().Add(job); err != nil {
			return true, nil, err
		}
		_ = y.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), pod.Namespace, pod.Name)
		return true, job, y.Tracker().Add(pod)
	})
	return y
}

func uid(n int) types.UID { return types.UID(fmt.Sprint("uid-", n)) }

// jobResult finishes a Job with a condition; its pod's container exits with code and message.
func jobResult(condition batchv1.JobConditionType, code int32, message string) func(*batchv1.Job, *corev1.Pod) {
	return func(job *batchv1.Job, pod *corev1.Pod) {
		job.Status.Active = 0
		job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.Now()}}
		pod.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "build",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code,
				Message: message}}}}
	}
}

func (y *jobCluster) activities(t *testing.T, options Options) *Activities {
	t.Helper()
	options.ListenFor = 50 * time.Millisecond
	a, err := New(y.Clientset, options)
	require.NoError(t, err)
	return a
}

func (y *jobCluster) jobs(t *testing.T) []batchv1.Job {
	t.Helper()
	list, err := y.BatchV1().Jobs("shop").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func TestBuild_ReusesFinishedJob(t *testing.T) {
	t.Parallel()
	y := newJobCluster(t, jobResult(batchv1.JobComplete, 0, builtImage))
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
	require.NoError(t, err, "the result is on the Job, which outlives its pod")
	require.True(t, again.Reused)
	require.Equal(t, built.Yield, again.Yield)
	require.Equal(t, 1, y.created)
}

func TestBuildFailure_CarriesLog(t *testing.T) {
	t.Parallel()
	y := newJobCluster(t, jobResult(batchv1.JobFailed, 2, "make: *** [all] Error 2"))
	a := y.activities(t, loopback())
	req := buildRequest(t)
	for range 2 { // the second attempt reports the same
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
	require.Equal(t, 1, y.created)

	y.finish = jobResult(batchv1.JobComplete, 0, builtImage)
	req.By = "task/b/1-111"
	built, err := a.Build(t.Context(), req)
	require.NoError(t, err, "another task's failed build is built again")
	require.False(t, built.Reused)
	require.Equal(t, 2, y.created)
	require.Len(t, y.jobs(t), 1)
}

// An attempt at a running build ends with NotReady; the next attempt finds the same Job.
func TestRunningBuild_IsContinuedByNextAttempt(t *testing.T) {
	t.Parallel()
	y := newJobCluster(t, nil)
	a := y.activities(t, loopback())
	req := buildRequest(t)
	_, err := a.Build(t.Context(), req)
	kind, again := kindOf(t, err)
	require.Equal(t, failure.NotReady, kind)
	require.True(t, again)
	require.ErrorContains(t, err, "build of service 111 at commit 0123456789ab: running")
	_, err = a.Build(t.Context(), req)
	require.ErrorContains(t, err, "(Job shop/"+req.JobName()+")")
	require.Equal(t, 1, y.created)
}

func TestBuild_IsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(*Options, *build.Request)
		kind   failure.Kind
		says   string
	}{
		"Policy": {"the party's policy applies to the Job", func(o *Options, _ *build.Request) {
			o.Policy = admission.Policy{ImagePrefixes: []string{"party.test/"}}
		}, failure.Refused,
			"the party's policy refuses Job shop/"},
		"ReleasePolicy": {"so does its policy for all releases", func(o *Options, _ *build.Request) {
			o.ReleasePolicy.Preset = podpolicy.Restricted
		}, failure.Refused, "(rule restricted.runAsNonRoot)"},
		"Namespace": {"a namespace that this worker does not serve", func(o *Options, _ *build.Request) {
			o.Namespaces = []string{"bank"}
		}, failure.Refused,
			"does not serve the namespace shop"},
		"Template": {"the template differs from the one the task was started with", func(_ *Options, r *build.Request) {
			r.Template = json.RawMessage(`{"spec":{}}`)
		}, failure.Refused,
			"is not the one that the task was started with"},
		"NoTemplate": {"a worker without access to the records", func(_ *Options, r *build.Request) {
			r.Template = nil
		}, failure.Refused, "can't read the records"},
		"RecordsUnreachable": {"an unreachable home cluster does not fail the build",
			func(o *Options, r *build.Request) {
				r.Template = nil
				o.Template = func(context.Context, build.Order) ([]byte, error) {
					return nil, failure.New(failure.Unreachable, "the home cluster is unreachable")
				}
			}, failure.NotReady, "the home cluster is unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newJobCluster(t, nil)
			options, req := loopback(), buildRequest(t)
			tc.change(&options, &req)
			_, err := y.activities(t, options).Build(t.Context(), req)
			kind, _ := kindOf(t, err)
			require.Equal(t, tc.kind, kind, "%s: %v", tc.reason, err)
			require.ErrorContains(t, err, tc.says, tc.reason)
			require.Zero(t, y.created)
		})
	}
}

// A cluster that rejects the Job fails the build; an unreachable one is retried until the budget is used up.
func TestBuild_WhenClusterFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		kind failure.Kind
		says string
	}{
		"Invalid": {apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "x", nil), failure.Refused,
			"its cluster does not accept this"},
		"Throttled":   {apierrors.NewTooManyRequestsError("slow down"), failure.NotReady, "out of reach"},
		"Unavailable": {apierrors.NewServiceUnavailable("unavailable"), failure.NotReady, "out of reach"},
		"Namespace": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), failure.Refused,
			"not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newJobCluster(t, nil)
			y.PrependReactor("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, tc.err
			})
			_, err := y.activities(t, loopback()).Build(t.Context(), buildRequest(t))
			kind, _ := kindOf(t, err)
			require.Equal(t, tc.kind, kind, "%v", err)
			require.ErrorContains(t, err, tc.says)
		})
	}
	y := newJobCluster(t, nil)
	y.PrependReactor("get", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("unavailable")
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
	require.Equal(t, failure.Unreachable, kind, "past its budget an operator must decide: %v", err)
}

func TestRefusesBuild(t *testing.T) {
	t.Parallel()
	credentials := func(data map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "git"}, StringData: data,
			Data: bytesOf(data)}
	}
	public := Options{Fetcher: source.Fetcher{Image: "slipway:test"}}
	for name, tc := range map[string]struct {
		reason string
		secret *corev1.Secret
		change func(*Options, *build.Request)
		says   string
	}{
		"Accepted": {"nothing prevents the build", nil, func(*Options, *build.Request) {}, ""},
		"Host": {"a host that no entry of the allow list names", nil, func(o *Options, _ *build.Request) {
			o.Fetcher.Allow = []string{"10.0.0.0/8:1"}
		}, "host git.test with port 443 is not an allowed source"},
		"Address": {"an internal address", nil, func(_ *Options, r *build.Request) {
			r.Repository = "http://127.0.0.1/a.git"
		}, "SLIPWAY_SOURCE_ALLOW"},
		"NoSecret": {"a Secret that does not exist", nil, func(_ *Options, r *build.Request) {
			r.Credentials = "git"
		}, "Secret shop/git, which build.credentials names, does not exist"},
		"OtherHost": {"credentials for another host",
			credentials(map[string]string{"token": "t", "hosts": "other.test"}), func(_ *Options, r *build.Request) {
				r.Credentials = "git"
			}, "no credentials for https://git.test"},
		"KnownHosts": {"ssh without known hosts", credentials(map[string]string{"ssh-privatekey": "k"}),
			func(_ *Options, r *build.Request) {
				r.Credentials, r.Repository = "git", "git@git.test:a.git"
			}, "the key known_hosts is missing"},
		"SSHKey": {"ssh without a key", nil, func(_ *Options, r *build.Request) {
			r.Repository = "git@git.test:a.git"
		}, "needs a key"},
		"Policy": {"the party's policy is checked before the build begins", nil,
			func(o *Options, _ *build.Request) {
				o.Policy.ImagePrefixes = []string{"party.test/"}
			}, "the party's policy refuses Job"},
		"ReleasePolicy": {"so is its policy for all releases", nil, func(o *Options, _ *build.Request) {
			o.ReleasePolicy.Preset = podpolicy.Restricted
		}, "Change build.jobTemplate in the catalogue, or ask the party to allow that in --release-policy-file"},
		"Baseline": {"which a build of no privileges complies with", nil, func(o *Options, _ *build.Request) {
			o.ReleasePolicy.Preset = podpolicy.Baseline
		}, ""},
		"GitProtocol": {"a protocol without encryption", nil, func(_ *Options, r *build.Request) {
			r.Repository = "git://git.test/a.git"
		}, "git:// is neither encrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newJobCluster(t, nil)
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
				require.Equal(t, name == "Host" || name == "Address", reason.Key == source.KeyRepository,
					"the refusal names the repository only when its address is not allowed")
			}
			require.Zero(t, y.created)
		})
	}
	y := newJobCluster(t, nil)
	y.PrependReactor("create", "selfsubjectaccessreviews",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			return true, action.(clienttesting.CreateAction).GetObject(), nil
		})
	reason, err := y.activities(t, public).RefusesBuild(t.Context(), buildRequest(t).Order, "shop")
	require.NoError(t, err)
	require.Contains(t, reason.Reason, "this party's worker may not create jobs, delete jobs, get jobs, get "+
		"pods/log, list jobs, list pods, patch jobs, watch jobs in namespace shop")
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

func TestResolve_RetriesTemporaryErrorsOnly(t *testing.T) {
	t.Parallel()
	s := newPackageServer(t, nil)
	y := newJobCluster(t, nil)
	req := buildRequest(t)
	req.Repository, req.Shown = s.URL+"/order.git", s.URL+"/order.git"
	a := y.activities(t, loopback())
	s.set(func() { s.status = 503 })
	_, err := a.Resolve(t.Context(), req)
	kind, again := kindOf(t, err)
	require.Equal(t, failure.NotReady, kind, "a server error is retried")
	require.True(t, again)
	require.ErrorContains(t, err, "503")
	s.set(func() { s.status = 404 })
	_, err = a.Resolve(t.Context(), req)
	kind, _ = kindOf(t, err)
	require.Equal(t, failure.Refused, kind)
	require.ErrorContains(t, err, "branch main of "+s.URL+
		"/order.git can't be resolved for service 111: the server answered 404")

	s.set(func() { s.status = 503 })
	now := time.Now()
	options := loopback()
	options.Now = func() time.Time { now = now.Add(time.Second); return now }
	req.SpentSeconds = 601
	_, err = y.activities(t, options).Resolve(t.Context(), req)
	kind, _ = kindOf(t, err)
	require.Equal(t, failure.WorkloadFailed, kind, "but only until the deadline: %v", err)

	y.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("boom")
	})
	req.Credentials = "git"
	_, err = a.Resolve(t.Context(), req)
	require.ErrorContains(t, err, "boom", "an unexpected error is passed on unchanged")
}

// allowed grants every SelfSubjectAccessReview.
func allowed(action clienttesting.Action) (bool, runtime.Object, error) {
	review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
	review.Status.Allowed = true
	return true, review, nil
}
