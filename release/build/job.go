package build

import (
	"encoding/json"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

// Names on a Job that builds.
const (
	// LabelService is the service that is built.
	LabelService = "slipway.io/build-of"
	// AnnotationDigest is Request.Digest: it identifies what the Job builds.
	AnnotationDigest = "slipway.io/build"
	// AnnotationBy is the workflow that created the Job.
	AnnotationBy = "slipway.io/build-by"
	// AnnotationYield is the result of the build, written once it was read: the Job outlives its pod.
	AnnotationYield = "slipway.io/build-yield"
	// AnnotationCommit, AnnotationBranch and AnnotationRepository are for people.
	AnnotationCommit     = "slipway.io/commit"
	AnnotationBranch     = "slipway.io/branch"
	AnnotationRepository = "slipway.io/repository"
)

// The environment variables that describe the build to its containers. Their values are never part of a command.
const (
	EnvService    = catalog.ReservedPrefix + "SERVICE"
	EnvRepository = catalog.ReservedPrefix + "GIT_URL"
	EnvBranch     = catalog.ReservedPrefix + "GIT_BRANCH"
	EnvCommit     = catalog.ReservedPrefix + "GIT_COMMIT"
	// EnvImage is the image to push, EnvPackage the URL of the package to upload: the pattern of the catalogue with the
	// commit filled in.
	EnvImage   = catalog.ReservedPrefix + "BUILD_IMAGE"
	EnvPackage = catalog.ReservedPrefix + "BUILD_PACKAGE"
)

// Job returns the Job of a build, made from its template in the catalogue. It runs once: a retry would hide a failure.
func (r Request) Job(template []byte) (*batchv1.Job, error) {
	digest, err := TemplateDigest(template)
	if err != nil {
		return nil, err
	}
	if digest != r.TemplateSHA256 {
		return nil, failure.New(failure.Refused, "%s: the template of its Job is not the one that the task was "+
			"started with", r)
	}
	var made batchv1.JobTemplateSpec
	if err := json.Unmarshal(template, &made); err != nil {
		return nil, failure.New(failure.Refused, "%s: build.jobTemplate is not the template of a Job: %v", r, err)
	}
	if len(made.Spec.Template.Spec.Containers) == 0 {
		return nil, failure.New(failure.Refused, "%s: build.jobTemplate has no container", r)
	}
	job := &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		Spec: made.Spec}
	job.Name, job.Namespace = r.JobName(), r.Namespace
	job.Labels, job.Annotations = with(made.Labels, map[string]string{LabelService: r.Service}),
		with(made.Annotations, map[string]string{
			AnnotationDigest: r.Digest(), AnnotationBy: r.By, AnnotationCommit: r.Commit, AnnotationBranch: r.Branch,
			AnnotationRepository: r.Shown})
	one, none := int32(1), int32(0)
	job.Spec.BackoffLimit, job.Spec.Parallelism, job.Spec.Completions = &none, &one, &one
	if own := job.Spec.ActiveDeadlineSeconds; own == nil || *own > r.DeadlineSeconds {
		job.Spec.ActiveDeadlineSeconds = new(r.DeadlineSeconds)
	}
	r.prepare(&job.Spec.Template)
	return job, nil
}

// prepare sets the pod's environment variables, and removes what a build does not need.
func (r Request) prepare(pod *corev1.PodTemplateSpec) {
	pod.Labels = with(pod.Labels, map[string]string{LabelService: r.Service})
	spec := &pod.Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	if spec.AutomountServiceAccountToken == nil {
		spec.AutomountServiceAccountToken = new(bool)
	}
	for i := range spec.InitContainers {
		spec.InitContainers[i].Env = append(r.environment(), spec.InitContainers[i].Env...)
	}
	for i := range spec.Containers {
		spec.Containers[i].Env = append(r.environment(), spec.Containers[i].Env...)
	}
	if first := &spec.Containers[0]; first.TerminationMessagePolicy == "" {
		// The end of the log is kept in the pod's status, even for users who may not read logs.
		first.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
}

func (r Request) environment() []corev1.EnvVar {
	yields := EnvImage
	if r.Package != "" {
		yields = EnvPackage
	}
	var env []corev1.EnvVar
	for _, variable := range [][2]string{{EnvService, r.Service}, {EnvRepository, r.Repository}, {EnvBranch, r.Branch},
		{EnvCommit, r.Commit},
		{yields, r.ExpectedResult()}} {
		env = append(env, corev1.EnvVar{Name: variable[0], Value: source.Literal(variable[1])})
	}
	return env
}

func with(own, more map[string]string) map[string]string {
	all := maps.Clone(own)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, more)
	return all
}
