package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/source"
)

// maxLogBytes is how many bytes of a log are read.
const maxLogBytes = 256 << 10

// job returns the Job of a build; nil if there is none.
func (a *Activities) job(ctx context.Context, req build.Request) (*batchv1.Job, error) {
	job, err := a.client.BatchV1().Jobs(req.Namespace).Get(ctx, req.JobName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return job, err
}

// podsOf returns the pods of a Job, newest first.
func (a *Activities) podsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.CallTimeout) // a list clears the client's own limit
	defer cancel()
	list, err := a.client.CoreV1().Pods(job.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) })
	slices.SortFunc(pods, func(x, y corev1.Pod) int { return y.CreationTimestamp.Compare(x.CreationTimestamp.Time) })
	return pods, nil
}

// create creates the Job of a build if the party's policy allows it. When two requests race, one gets AlreadyExists and
// reads again.
func (a *Activities) create(ctx context.Context, req build.Request) error {
	job, err := a.createJob(ctx, req)
	if err == nil {
		a.options.Logger.InfoContext(ctx, "build started", "service", req.Service, "commit", req.Commit, "job",
			req.Namespace+"/"+job.Name)
		a.prune(ctx, req)
	}
	return err
}

// createJob creates the Job of a build; it fails if the party's policy forbids it.
func (a *Activities) createJob(ctx context.Context, req build.Request, dryRun ...string) (*batchv1.Job, error) {
	template, err := a.template(ctx, req.Order)
	if err != nil {
		return nil, err
	}
	job, err := req.Job(template)
	if err == nil {
		err = a.options.Policy.CheckBuild(job)
	}
	if err == nil {
		err = a.options.ReleasePolicy.Check(podpolicy.Template{Object: "Job " + job.Namespace + "/" + job.Name,
			New: &job.Spec.Template, Remedy: "Change build.jobTemplate in the catalogue"})
	}
	if err != nil {
		return nil, err
	}
	return job, failpoint.Around("build.create", func() error {
		_, err := a.client.BatchV1().Jobs(req.Namespace).Create(ctx, job,
			metav1.CreateOptions{FieldManager: fieldmanager.Slipway, DryRun: dryRun})
		return err
	})
}

// template returns the Job template of an order. An unreachable home cluster is reported as NotReady, so that the build
// is retried.
func (a *Activities) template(ctx context.Context, order build.Order) ([]byte, error) {
	if len(order.Template) > 0 {
		return order.Template, nil
	}
	if a.options.Template == nil {
		return nil, failure.New(failure.Refused, "this worker of the party default can't read the records of the "+
			"engine, where the template of the Job is: run `slipway worker` without --party")
	}
	template, err := a.options.Template(ctx, order)
	var f *failure.Error
	if errors.As(err, &f) && f.Kind.System() {
		return nil, &failure.Error{Kind: failure.NotReady,
			Message: "the record of the task can't be read: " + f.Message}
	}
	return template, err
}

// remove deletes a Job and its pods, unless the Job has changed since it was read. point is the prefix of the
// failpoints' names.
func (a *Activities) remove(ctx context.Context, job *batchv1.Job, point string) error {
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground),
		Preconditions: &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion}}
	err := failpoint.Around(point, func() error {
		return a.client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, options)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// record writes the result of a build into an annotation of its Job, so that the commit is not built again after the
// pod was deleted.
func (a *Activities) record(ctx context.Context, job *batchv1.Job, yield build.Yield) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": job.UID,
		"annotations": map[string]string{build.AnnotationYield: yield.String()}}})
	if err != nil {
		return err
	}
	return failpoint.Around("build.record", func() error {
		_, err := a.client.BatchV1().Jobs(job.Namespace).Patch(ctx, job.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: fieldmanager.Slipway})
		return err
	})
}

// prune deletes surplus finished Jobs of a service. Failures are logged only: the next build tries again.
func (a *Activities) prune(ctx context.Context, req build.Request) {
	list, err := a.client.BatchV1().Jobs(req.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: build.LabelService + "=" + req.Service})
	if err == nil {
		for _, job := range build.Surplus(list.Items, a.options.Now()) {
			err = errors.Join(err, a.remove(ctx, &job, "build.prune"))
		}
	}
	if err != nil {
		a.options.Logger.WarnContext(ctx, "older builds of a service can't be deleted", "service", req.Service,
			"namespace", req.Namespace, "error", err)
	}
}

// log returns the end of a build container's log: that of the container that failed, otherwise of the first one. If the
// log can't be read it returns the container's termination message, or "".
func (a *Activities) log(ctx context.Context, pods []corev1.Pod) string {
	if len(pods) == 0 || len(pods[0].Spec.Containers) == 0 {
		return ""
	}
	pod, container, message := &pods[0], pods[0].Spec.Containers[0].Name, ""
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			container, message = c.Name, t.Message
			break
		}
	}
	lines := int64(build.TailLines)
	stream, err := a.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name,
		&corev1.PodLogOptions{Container: container, TailLines: &lines}).Stream(ctx)
	if err != nil {
		a.options.Logger.InfoContext(ctx, "the log of a build can't be read", "pod", pod.Namespace+"/"+pod.Name,
			"container", container, "error", kube.Text(err))
		return message
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, maxLogBytes))
	if err != nil && len(text) == 0 {
		return message
	}
	return string(text)
}

// RefusesBuild returns the reason why a build can't be made in a namespace. It sends no request to the repository: the
// branch may be pushed later.
func (a *Activities) RefusesBuild(ctx context.Context, order build.Order, namespace string) (source.Refusal, error) {
	refusal, err := a.unreachableRepository(ctx, order, namespace)
	if refusal.Reason == "" && err == nil {
		refusal.Reason, err = kube.NewPermissions(a.client).Lacking(ctx, buildPermissions(namespace))
	}
	if refusal.Reason == "" && err == nil {
		err = a.dryRunJob(ctx, build.Request{Order: order, Namespace: namespace, Commit: sampleCommit})
	}
	var f *failure.Error
	if errors.As(err, &f) {
		return source.Refusal{Reason: f.Message}, nil
	}
	return refusal, err
}

// sampleCommit replaces a commit that is not resolved yet.
const sampleCommit = "0000000000000000000000000000000000000000"

// buildPermissions are the Kubernetes permissions that a build needs.
func buildPermissions(namespace string) []kube.Permission {
	logs := kube.Needs(corev1.SchemeGroupVersion.WithResource("pods"), namespace, "get")
	logs[0].Subresource = "log"
	return slices.Concat(kube.Needs(batchv1.SchemeGroupVersion.WithResource("jobs"), namespace, "get", "list", "watch",
		"create", "patch", "delete"),
		kube.Needs(corev1.SchemeGroupVersion.WithResource("pods"), namespace, "list"), logs)
}

// unreachableRepository returns the reason why a repository can't be reached, as far as that is known without
// connecting.
func (a *Activities) unreachableRepository(ctx context.Context, order build.Order, namespace string) (source.Refusal,
	error) {
	repository, access, err := a.repository(ctx, order, namespace)
	if err != nil {
		return source.Refusal{}, err
	}
	host, port, err := repository.Authority()
	if err == nil {
		err = a.allow.CheckHost(host, port)
	}
	var f *failure.Error
	switch {
	case errors.As(err, &f):
		return source.Refusal{Key: source.KeyRepository, Reason: f.Message}, nil
	case err != nil:
		return source.Refusal{}, err
	}
	if err := access.Check(repository); err != nil {
		return source.Refusal{Reason: fmt.Sprintf("%s: %v", order.Shown, err)}, nil
	}
	return source.Refusal{}, nil
}

// dryRunJob asks the API server whether it would accept the Job, without creating it.
func (a *Activities) dryRunJob(ctx context.Context, req build.Request) error {
	_, err := a.createJob(ctx, req, metav1.DryRunAll)
	if err == nil || apierrors.IsAlreadyExists(err) || kube.NoDryRun(err) {
		return nil
	}
	if class := kube.Classify(err); class == kube.Rejected || class == kube.Refused {
		return failure.New(failure.Refused, "the cluster does not accept the Job of build.jobTemplate: %s",
			kube.Text(err))
	}
	return err
}
