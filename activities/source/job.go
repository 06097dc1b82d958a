package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

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
	"slipway.io/slipway/release/source"
)

const (
	// callTimeout is how long one request to the cluster may take.
	callTimeout = 5 * time.Second
	// mostLog is how many bytes of a log are read.
	mostLog = 256 << 10
)

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}

// job reads the Job of a build; nil when there is none.
func (a *Activities) job(ctx context.Context, req build.Request) (*batchv1.Job, error) {
	call, cancel := bounded(ctx)
	defer cancel()
	job, err := a.client.BatchV1().Jobs(req.Namespace).Get(call, req.JobName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return job, err
}

// podsOf reads the pods of a Job, newest first.
func (a *Activities) podsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	call, cancel := bounded(ctx)
	defer cancel()
	list, err := a.client.CoreV1().Pods(job.Namespace).List(call, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) })
	slices.SortFunc(pods, func(x, y corev1.Pod) int { return y.CreationTimestamp.Compare(x.CreationTimestamp.Time) })
	return pods, nil
}

// create makes the Job of a build, after the party's policy has agreed. Of two that make it, one comes too late and looks again.
func (a *Activities) create(ctx context.Context, req build.Request) error {
	job, err := a.allowed(ctx, req)
	if err != nil {
		return err
	}
	call, cancel := bounded(ctx)
	defer cancel()
	failpoint.Hit("build.create.before")
	_, err = a.client.BatchV1().Jobs(req.Namespace).Create(call, job, metav1.CreateOptions{FieldManager: fieldmanager.Slipway})
	failpoint.Hit("build.create.after")
	if err == nil {
		a.options.Logger.InfoContext(ctx, "build begun", "service", req.Service, "commit", req.Commit, "job", req.Namespace+"/"+job.Name)
		a.prune(ctx, req)
	}
	return err
}

// allowed is the Job of a build, if the party's policy allows it.
func (a *Activities) allowed(ctx context.Context, req build.Request) (*batchv1.Job, error) {
	template, err := a.template(ctx, req.Order)
	if err != nil {
		return nil, err
	}
	job, err := req.Job(template)
	if err != nil {
		return nil, err
	}
	return job, a.options.Policy.CheckBuild(job)
}

func (a *Activities) template(ctx context.Context, order build.Order) ([]byte, error) {
	if len(order.Template) > 0 {
		return order.Template, nil
	}
	if a.options.Template == nil {
		return nil, failure.New(failure.Refused, "this worker of the party default can't read the records of the engine, where the template of the Job is: "+
			"run `slipway worker` without --party")
	}
	template, err := a.options.Template(ctx, order)
	var f *failure.Error
	if errors.As(err, &f) && f.Kind.System() {
		return nil, &failure.Error{Kind: failure.NotReady, Message: "the record of the task can't be read: " + f.Message}
	}
	return template, err
}

// remove deletes a Job as it was seen, and its pods; point names the failpoints.
func (a *Activities) remove(ctx context.Context, job *batchv1.Job, point string) error {
	call, cancel := bounded(ctx)
	defer cancel()
	background := metav1.DeletePropagationBackground
	failpoint.Hit(point + ".before")
	err := a.client.BatchV1().Jobs(job.Namespace).Delete(call, job.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion}, PropagationPolicy: &background})
	failpoint.Hit(point + ".after")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// record notes on a Job what it has yielded, so that the same commit is not built again once the pod is gone.
func (a *Activities) record(ctx context.Context, job *batchv1.Job, yield build.Yield) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": job.UID, "annotations": map[string]string{build.AnnotationYield: yield.String()}}})
	if err != nil {
		return err
	}
	call, cancel := bounded(ctx)
	defer cancel()
	failpoint.Hit("build.record.before")
	_, err = a.client.BatchV1().Jobs(job.Namespace).Patch(call, job.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldmanager.Slipway})
	failpoint.Hit("build.record.after")
	return err
}

// prune deletes finished builds of a service that are no longer kept. What can't be deleted now is left to the next build.
func (a *Activities) prune(ctx context.Context, req build.Request) {
	call, cancel := bounded(ctx)
	defer cancel()
	list, err := a.client.BatchV1().Jobs(req.Namespace).List(call, metav1.ListOptions{LabelSelector: build.LabelService + "=" + req.Service})
	if err == nil {
		for _, job := range build.Surplus(list.Items, a.options.Now()) {
			err = errors.Join(err, a.remove(ctx, &job, "build.prune"))
		}
	}
	if err != nil {
		a.options.Logger.WarnContext(ctx, "older builds of a service can't be deleted", "service", req.Service, "namespace", req.Namespace, "error", err)
	}
}

// log is the end of what the container of a build wrote that matters: the one that failed, else the first. "" when it can't be read, which fails no
// build.
func (a *Activities) log(ctx context.Context, pods []corev1.Pod) string {
	if len(pods) == 0 || len(pods[0].Spec.Containers) == 0 {
		return ""
	}
	pod, container, said := &pods[0], pods[0].Spec.Containers[0].Name, ""
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			container, said = c.Name, t.Message
			break
		}
	}
	call, cancel := bounded(ctx)
	defer cancel()
	lines := int64(build.TailLines)
	stream, err := a.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, TailLines: &lines}).Stream(call)
	if err != nil {
		a.options.Logger.InfoContext(ctx, "the log of a build can't be read", "pod", pod.Namespace+"/"+pod.Name, "container", container, "error", kube.Text(err))
		return said
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, mostLog))
	if err != nil && len(text) == 0 {
		return said
	}
	return string(text)
}

// RefusesBuild says why a build can't be made in a namespace. The repository itself is not asked: its
// branch may come later.
func (a *Activities) RefusesBuild(ctx context.Context, order build.Order, namespace string) (source.Refusal, error) {
	refusal, err := a.unreachableRepository(ctx, order, namespace)
	if refusal.Reason == "" && err == nil {
		refusal.Reason, err = kube.NewPermissions(a.client).Lacking(ctx, needs(namespace))
	}
	if refusal.Reason == "" && err == nil {
		err = a.tryJob(ctx, build.Request{Order: order, Namespace: namespace, Commit: sampleCommit})
	}
	var f *failure.Error
	if errors.As(err, &f) {
		return source.Refusal{Reason: f.Message}, nil
	}
	return refusal, err
}

// sampleCommit stands for a commit that is not known yet.
const sampleCommit = "0000000000000000000000000000000000000000"

// needs are the permissions that a build takes.
func needs(namespace string) []kube.Permission {
	logs := kube.Needs(corev1.SchemeGroupVersion.WithResource("pods"), namespace, "get")
	logs[0].Subresource = "log"
	return slices.Concat(kube.Needs(batchv1.SchemeGroupVersion.WithResource("jobs"), namespace, "get", "list", "watch", "create", "patch", "delete"),
		kube.Needs(corev1.SchemeGroupVersion.WithResource("pods"), namespace, "list"), logs)
}

// unreachableRepository says why a repository can't be reached, as far as that is known.
func (a *Activities) unreachableRepository(ctx context.Context, order build.Order, namespace string) (source.Refusal, error) {
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

// tryJob has the cluster say whether it would take the Job, without making it.
func (a *Activities) tryJob(ctx context.Context, req build.Request) error {
	job, err := a.allowed(ctx, req)
	if err != nil {
		return err
	}
	call, cancel := bounded(ctx)
	defer cancel()
	_, err = a.client.BatchV1().Jobs(req.Namespace).Create(call, job, metav1.CreateOptions{FieldManager: fieldmanager.Slipway, DryRun: []string{metav1.DryRunAll}})
	if err == nil || apierrors.IsAlreadyExists(err) || kube.NoDryRun(err) {
		return nil
	}
	if class := kube.Classify(err); class == kube.Rejected || class == kube.Refused {
		return failure.New(failure.Refused, "the cluster does not accept the Job of build.jobTemplate: %s", kube.Text(err))
	}
	return err
}
