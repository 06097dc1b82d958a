package build_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/build"
)

const jobTemplate = `{"metadata":{"labels":{"team":"shop"}},"spec":{"activeDeadlineSeconds":60,"template":{"metadata":{"labels":{"app":"build"}},"spec":{
	"initContainers":[{"name":"clone","image":"git"}],
	"containers":[{"name":"build","image":"go","command":["make","$(SLIPWAY_GIT_COMMIT)"],"env":[{"name":"OWN","value":"1"}]},{"name":"cache","image":"c"}]}}}}`

func withTemplate(t testing.TB, r build.Request, template string) build.Request {
	var err error
	r.TemplateSHA256, err = build.TemplateDigest([]byte(template))
	require.NoError(t, err)
	return r
}

func TestJob(t *testing.T) {
	t.Parallel()
	r := withTemplate(t, imageBuild(), jobTemplate)
	r.Branch = "release/$(HOME)-`id`;rm"
	job, err := r.Job([]byte(jobTemplate))
	require.NoError(t, err)
	require.Equal(t, r.JobName(), job.Name)
	require.Equal(t, "shop", job.Namespace)
	require.Equal(t, map[string]string{"team": "shop", build.LabelService: "111"}, job.Labels)
	require.Equal(t, r.Digest(), job.Annotations[build.AnnotationDigest])
	require.Equal(t, "task/a/1-111", job.Annotations[build.AnnotationBy])
	require.Equal(t, []int32{0, 1, 1}, []int32{*job.Spec.BackoffLimit, *job.Spec.Completions, *job.Spec.Parallelism},
		"a retry would hide a failure")
	require.EqualValues(t, 60, *job.Spec.ActiveDeadlineSeconds, "a shorter deadline of the template applies")
	pod := job.Spec.Template.Spec
	require.Equal(t, corev1.RestartPolicyNever, pod.RestartPolicy)
	require.False(t, *pod.AutomountServiceAccountToken)
	require.Equal(t, corev1.TerminationMessageFallbackToLogsOnError, pod.Containers[0].TerminationMessagePolicy,
		"the end of the log is kept where it fails")
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		env := map[string]string{}
		for _, v := range c.Env {
			env[v.Name] = v.Value
		}
		require.Equal(t, "https://git.test/order.git", env[build.EnvRepository])
		require.Equal(t, commit, env[build.EnvCommit])
		require.Equal(t, "release/$$(HOME)-`id`;rm", env[build.EnvBranch], "Kubernetes expands nothing in it")
		require.Equal(t, "registry.test:5000/shop/order:"+commit, env[build.EnvImage])
		require.NotContains(t, env, build.EnvPackage)
	}
	require.Equal(t, "OWN", pod.Containers[0].Env[5].Name,
		"the template's own variables come after, and may refer to these")
	require.Equal(t, []string{"make", "$(SLIPWAY_GIT_COMMIT)"}, pod.Containers[0].Command,
		"nothing is spliced into a command")

	r.DeadlineSeconds = 30
	job, err = r.Job([]byte(jobTemplate))
	require.NoError(t, err)
	require.EqualValues(t, 30, *job.Spec.ActiveDeadlineSeconds)

	_, err = r.Job([]byte(`{"spec":{}}`))
	require.ErrorContains(t, err, "is not the one that the task was started with")
	_, err = withTemplate(t, r, `{"spec":{}}`).Job([]byte(`{"spec":{}}`))
	require.ErrorContains(t, err, "has no container")
}

// Requests for the same build get the same Job; a different build gets another one.
func TestJobName(t *testing.T) {
	t.Parallel()
	name := withTemplate(t, imageBuild(), jobTemplate).JobName()
	require.LessOrEqual(t, len(name), 63-len("-abcde"), "the names of pods fit into a label")
	for reason, change := range map[string]func(*build.Request){
		"another task":     func(r *build.Request) { r.By, r.Task, r.Item = "task/b/2-111", "b", 2 },
		"another branch":   func(r *build.Request) { r.Branch = "next" },
		"other deadlines":  func(r *build.Request) { r.DeadlineSeconds, r.ResolveSeconds = 1, 2 },
		"other login":      func(r *build.Request) { r.Credentials = "other" },
		"the same, spaced": func(r *build.Request) { *r = withTemplate(t, *r, " "+jobTemplate+"\n") },
	} {
		r := withTemplate(t, imageBuild(), jobTemplate)
		change(&r)
		require.Equal(t, name, r.JobName(), reason)
	}
	for reason, change := range map[string]func(*build.Request){
		"another service":    func(r *build.Request) { r.Service = "112" },
		"another repository": func(r *build.Request) { r.Repository = "https://git.test/basket.git" },
		"another commit":     func(r *build.Request) { r.Commit = commit[1:] + "0" },
		"another image":      func(r *build.Request) { r.Image = "registry.test/order:{{commit}}" },
		"another template": func(r *build.Request) {
			*r = withTemplate(t, *r, `{"spec":{"activeDeadlineSeconds":61}}`)
		},
	} {
		r := withTemplate(t, imageBuild(), jobTemplate)
		change(&r)
		require.NotEqual(t, name, r.JobName(), reason)
	}
	_, err := build.TemplateDigest([]byte("{"))
	require.Error(t, err)
}

func TestOrderHasNoTemplate_ByDefault(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(imageBuild())
	require.NoError(t, err)
	require.NotContains(t, string(text), `"template"`)
}
